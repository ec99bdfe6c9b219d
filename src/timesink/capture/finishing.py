"""After the run: what counts as a failure, what is missing, and the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from timesink.capture import manifest as manifests
from timesink.capture.captured import Capture
from timesink.capture.errors import CaptureError, Fault
from timesink.capture.manifest import Checked
from timesink.capture.processes import Ended
from timesink.capture.running import Settings, all_done, explained

# Recording makes steps longer; ten steps of a DataLoader's differ by a tenth from the next ten.
_LEAST_SHARE = 0.75
_STEPS_REMEDY = (
    "call timesink.step() at the end of each step, ask for fewer (--steps, --settle, --timed), or record all of a "
    "program without steps with --whole"
)


def refuse_failure(ended: Ended, ranks: Sequence[dict[str, Any]], what: str, settings: Settings) -> None:
    """A program that failed before its steps were recorded is an error; so is one whose steps nobody saw."""
    if any(rank["phase"] == "failed" for rank in ranks) or ended.status == 0:
        refuse_unrecorded(ranks, settings)
    elif not all_done(ranks):
        raise explained(ended, what, settings.out)


def refuse_unrecorded(ranks: Sequence[dict[str, Any]], settings: Settings) -> None:
    """`CaptureError` unless every rank recorded its steps to the end."""
    failed = [rank for rank in ranks if rank["phase"] == "failed"]
    if failed:
        full = "No space left" in failed[0]["error"]
        remedy = "free some space, or choose another --out" if full else f"look at {settings.out / 'log.txt'}"
        raise CaptureError(
            Fault.FAILED, f"rank {failed[0]['rank']} could not record: {failed[0]['error']}", remedy=remedy
        )
    if not all_done(ranks):
        raise CaptureError(Fault.FAILED, _no_steps(ranks, settings), remedy=_STEPS_REMEDY)


def _no_steps(ranks: Sequence[dict[str, Any]], settings: Settings) -> str:
    if not ranks:
        return "the program ended, and no step was seen in it (no optimizer, no torch.profiler, no timesink.step())"
    first = next(rank for rank in ranks if rank["phase"] != "done")
    return (
        f"the program ended in the phase {first['phase']!r} of rank {first['rank']}: "
        f"a capture needs {settings.steps.total} steps"
    )


def missing_from(checked: Sequence[Checked], expected: Sequence[str], ranks: Sequence[dict[str, Any]]) -> list[str]:
    """One sentence per thing that was expected of the artefacts, or of a rank, and is not there."""
    missing = [sentence for one in checked for sentence in one.missing(tuple(expected))]
    absent = sorted(set(range(ranks[0]["world"])) - {rank["rank"] for rank in ranks}) if ranks else []
    return missing + [f"rank {rank} recorded nothing" for rank in absent]


def doubtful(ranks: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence per rank whose recorded steps are shorter than its unprofiled ones by mean and by median."""
    found = []
    for rank in ranks:
        if rank.get("unprofiled") and rank.get("profiled"):
            alone, recorded = rank["unprofiled"]["steps_ms"], rank["profiled"]["steps_ms"]
            if all(typical(recorded) < _LEAST_SHARE * typical(alone) for typical in (fmean, median)):
                found.append(
                    f"rank {rank['rank']}: recorded steps take {fmean(recorded):.3g} ms on average, unprofiled ones "
                    f"{fmean(alone):.3g} ms, so they are not like the others (input that lay ready?): raise --warm-up"
                )
    return found


def finished(
    settings: Settings,
    checked: Sequence[Checked],
    missing: Sequence[str],
    known: dict[str, Any],
    ranks: Sequence[dict[str, Any]],
) -> Capture:
    """Write the manifest beside the artefacts."""
    entry = {
        **known,
        "steps": asdict(settings.steps),
        "unprofiled": settings.unprofiled,
        "ranks": [{key: value for key, value in rank.items() if key != "pid"} for rank in ranks],
        "files": manifests.files_entry(checked),
        "missing": list(missing),
        "doubts": doubtful(ranks),
    }
    manifests.write(settings.out, entry)
    return Capture(settings.out, tuple(one.path for one in checked if one.size_bytes), entry, tuple(missing))


def with_unprofiled(ranks: list[dict[str, Any]], alone: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each rank with the step time of the run of its own, where there was one."""
    times = {rank["rank"]: rank.get("unprofiled") for rank in alone}
    return [{**rank, "unprofiled": times[rank["rank"]]} if times.get(rank["rank"]) else rank for rank in ranks]
