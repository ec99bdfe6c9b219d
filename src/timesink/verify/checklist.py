"""What has to be fixed and written down before two measurements can be compared, ticked by what a capture recorded.

One change at a time needs all else to be the same: what a manifest holds is ticked, and the rest is left to do.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

from timesink.capture.recorded_run import facts_of, settings_of, slowest_rank
from timesink.records import Record
from timesink.verify.environment import differences

LEAST_STEPS: Final = 10  # fewer tell a median and hardly how much it varies
_CLOCKS: Final = "clocks"  # a fact that says at what they were locked
_RESULTS: Final = ("compiled_graphs", "others_busy")
_SLOWING: Final = ("launch_blocking", "anomaly_mode")
Manifest = Mapping[str, Any]


class Item(Record):
    """One line of the list: what is to be fixed, whether the capture says that it is, what it found, what to do."""

    what: str
    is_held: bool
    found: str
    to_do: str


def checklist(manifest: Manifest, before: Manifest | None = None, predicted: int = 0) -> tuple[Item, ...]:
    """The list for a capture, empty where none is given; `predicted` counts hypotheses that are still open."""
    said = f"{predicted} open in the ledger" if predicted else ""
    return (
        *_what_ran(manifest),
        *_where(manifest),
        *_how_often(manifest),
        _one_change(manifest, before),
        Item("what is expected", bool(said), said, 'timesink verify --ledger add "WHAT" --predicted LOW,MOST,HIGH'),
    )


def _part(manifest: Manifest, name: str) -> Mapping[str, Any]:
    found = manifest.get(name)
    return found if isinstance(found, dict) else {}


def _listed(manifest: Manifest, name: str) -> list[Mapping[str, Any]]:
    found = manifest.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _what_ran(manifest: Manifest) -> Iterator[Item]:
    program, git = str(manifest.get("program", "")), _part(manifest, "git")
    commit, is_dirty = str(git.get("commit", ""))[:12], git.get("is_dirty") is True
    to_do = "commit what was changed" if is_dirty else "write down its commit: it ran outside of git, or names are gone"
    said = ", ".join(filter(None, (program, commit, "with changes that are in no commit" if is_dirty else "")))
    yield Item("the program", bool(program and commit) and not is_dirty, said, to_do)
    facts = ", ".join(f"{name}={value}" for name, value in facts_of(manifest).items() if name != _CLOCKS)
    shapes = "shapes of operators" if _part(_part(manifest, "tool"), "plan").get("shapes") else ""
    yield Item("shapes and scenario", bool(facts or shapes), ", ".join(filter(None, (facts, shapes))),
               "name what the run is: --fact batch=8 of timesink capture")  # fmt: skip
    settings = settings_of(manifest)
    slowing = [name for name in _SLOWING if settings.get(name) == "on"]
    chosen = ", ".join(f"{name} {value}" for name, value in _chosen(manifest).items())
    to_do = f"switch off for a measurement: {', '.join(slowing)}" if slowing else "write down the switches of torch"
    yield Item("switches", bool(chosen) and not slowing, chosen, to_do)
    held = _software(manifest)
    driver = str(next((gpu.get("driver_version", "") for gpu in _listed(manifest, "gpus")), ""))
    versions = [*(f"{name} {value}" for name, value in held.items()), f"driver {driver}" if driver else ""]
    yield Item("versions", bool(held and driver), ", ".join(filter(None, versions)), "write down torch, CUDA, driver")


def _where(manifest: Manifest) -> Iterator[Item]:
    gpus = _listed(manifest, "gpus")
    names = sorted({f"{gpu.get('name')} at {gpu.get('power.limit')}" for gpu in gpus})
    yield Item("the GPU", bool(gpus), ", ".join(names) and f"{len(gpus)} x {', '.join(names)}",
               "write down its name and power limit: nvidia-smi")  # fmt: skip
    most = ", ".join(sorted({str(gpu.get("clocks.max.sm")) for gpu in gpus}))
    locked = facts_of(manifest).get(_CLOCKS, "")
    said = (
        f"locked at {locked}, as its author says" if locked else most and f"at most {most}; locked or not is not known"
    )
    to_do = (
        f"lock them (nvidia-smi -lgc) and say so (--fact {_CLOCKS}=1410), or run both sides in turns: timesink verify"
    )
    yield Item("clocks", bool(locked), said, to_do)
    busy = settings_of(manifest).get("others_busy", "")
    yield Item("the machine to itself", bool(gpus) and not busy,
               f"{busy} % busy before the program began" if busy else "idle before the program began" * bool(gpus),
               "stop what else runs on the GPU")  # fmt: skip


def _how_often(manifest: Manifest) -> Iterator[Item]:
    steps = {name: int(value) for name, value in _part(manifest, "steps").items() if isinstance(value, int)}
    warm = steps.get("settle", 0) + steps.get("warm_up", 0)
    yield Item("warm-up", warm > 0, f"{warm} steps before those that count" if warm else "",
               "let it compile and fill caches first: --settle of timesink capture")  # fmt: skip
    alone, recorded = (slowest_rank(manifest, what) for what in ("unprofiled", "profiled"))
    timed = alone[1] if alone else ()
    said = f"{len(timed)} steps of {median(timed):.3g} ms, {min(timed):.3g} to {max(timed):.3g}" if timed else ""
    to_do = f"time {LEAST_STEPS} steps or more without a profiler: --timed of timesink capture"
    yield Item("repeats", len(timed) >= LEAST_STEPS, said, to_do)
    cost = f"{alone[0]:.3g} ms without, {recorded[0]:.3g} ms with it" if alone and recorded else ""
    yield Item("what the profiler costs", bool(cost), cost, "time steps without it: --unprofiled inside")
    lost = [str(text) for name in ("missing", "doubts") for text in manifest.get(name) or ()]
    yield Item("nothing is missing", bool(manifest) and not lost, "; ".join(lost) or "no gaps" * bool(manifest),
               "capture again")  # fmt: skip


def _one_change(manifest: Manifest, before: Manifest | None) -> Item:
    """Whether exactly one thing differs from the capture before; of the program each argument counts."""
    to_do = "change one thing, capture again, and give both: BEFORE AFTER"
    if before is None:
        return Item("one change", False, "", to_do)
    changed = [f"{name}: {was} -> {now}" for name, (was, now) in differences(_known(before), _known(manifest)).items()]
    return Item("one change", len(changed) == 1, "; ".join(changed) or "nothing differs", to_do)


def _known(manifest: Manifest) -> dict[str, str]:
    """All that one change may be of, by name; of the program each argument."""
    parts = {
        "argument": {str(at): word for at, word in enumerate(shlex.split(str(manifest.get("program", ""))))},
        **{name: _part(manifest, name) for name in ("environment", "machine", "config_files")},
        "git": {name: value for name, value in _part(manifest, "git").items() if name == "commit"},
        "setting": _chosen(manifest),
        "software": _software(manifest),
        "GPU": {str(at): gpu.get("name") for at, gpu in enumerate(_listed(manifest, "gpus"))},
    }
    return {f"{of} {name}": str(value) for of, part in parts.items() for name, value in part.items()}


def _chosen(manifest: Manifest) -> dict[str, str]:
    """Settings that a person chose: what a run made of them, and what others did meanwhile, are none."""
    return {name: value for name, value in settings_of(manifest).items() if name not in _RESULTS}


def _software(manifest: Manifest) -> dict[str, Any]:
    return {name: value for rank in _listed(manifest, "ranks") for name, value in _part(rank, "software").items()}
