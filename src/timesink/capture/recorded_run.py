"""What the manifest beside a trace says of its run: the steps timed without a profiler, and the facts its author gave.

A manifest may come from anybody: what is not of the form that `timesink capture` writes counts as not said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Final, TypeVar

from timesink.untrusted.plain_json import document

MANIFEST: Final = "manifest.json"
LINK_TIMES: Final = "nccl-bench.json"
_MOST_CALLS, _MOST_BYTES, _MOST_RANKS = 10_000, 1 << 50, 1 << 20
MOST_FACTS: Final = 20
LONGEST_VALUE: Final = 80
_LONGEST_NAME: Final = 40
_AT_WORK: Final = 0.4  # of a GPU's power: an H100 draws 17 % of it while it does nothing
_MOST_STEPS: Final = 1_000_000
_MOST_PARTS, _LONGEST_NS = 100, 10**15
_NS_PER_MS: Final = 1_000_000


Told = TypeVar("Told", bound=Any)
"""A `model.trace.Trace`, of which this knows no more than how it is told."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """`steps_ms`: times of the slowest rank's steps without a profiler, in their order, and `step_ms` their median, in
    milliseconds; None and none where nobody timed them. `facts`: what the run was, such as resolution: 512. `settings`:
    what it was set to, such as threads: 16 (`agent.recording`). `start_up`: rank, kind, detail and nanoseconds of what
    came before the first steady step, since the process began (`agent.start_up`)."""

    step_ms: float | None = None
    steps_ms: tuple[float, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    start_up: tuple[tuple[int, str, str, int], ...] = ()

    def told_to(self, trace: Told) -> Told:
        """The trace of that run, which knows all of it from now on."""
        trace = trace.with_facts(self.facts) if self.facts else trace
        trace = trace.with_settings(self.settings) if self.settings else trace
        trace = trace.with_start_up(self.start_up) if self.start_up else trace
        if self.step_ms:
            steps_ns = tuple(ms * _NS_PER_MS for ms in self.steps_ms)
            trace = trace.with_unprofiled_step(self.step_ms * _NS_PER_MS, steps_ns)
        return trace


def recorded_run(paths: Iterable[Path]) -> RecordedRun:
    """What the captures of these traces say: of several the slowest has the steps, and facts are what none disputes."""
    manifests = [found for path in paths if (found := manifest_of(path)) is not None]
    step_ms, steps_ms = max((slowest_rank(one, "unprofiled") or (0.0, ()) for one in manifests), default=(0.0, ()))
    facts, settings = (_keep_undisputed([of(manifest) for manifest in manifests]) for of in (facts_of, settings_of))
    start_up = next((told for manifest in manifests if (told := start_up_of(manifest))), ())
    return RecordedRun(step_ms or None, steps_ms, facts, settings, start_up)


def _keep_undisputed(stated: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What none of them disputes."""
    return {
        name: value
        for facts in stated
        for name, value in facts.items()
        if all(other.get(name, value) == value for other in stated)
    }


def link_times(paths: Iterable[Path]) -> tuple[tuple[str, int, int, float], ...]:
    """What `timesink capture nccl-bench` measured beside these traces: kind, ranks, bytes, nanoseconds, by all four."""
    folders = {path if path.is_dir() else path.parent for path in paths}
    found = set()
    for folder in folders:
        try:
            measured = document(folder / LINK_TIMES)
        except (OSError, ValueError):
            continue
        if isinstance(measured, dict) and isinstance(calls := measured.get("calls"), list):
            found |= {time for call in calls[:_MOST_CALLS] if (time := _link_time(call, measured.get("ranks")))}
    return tuple(sorted(found))


def _link_time(call: Any, ranks: Any) -> tuple[str, int, int, float] | None:
    from timesink.capture.nccl_bench import KINDS  # and ctypes and statistics, for the few that have such a file

    if not isinstance(call, dict) or call.get("kind") not in KINDS:
        return None
    size, time_ns = call.get("bytes"), _time(call.get("time_ns"))
    whole = isinstance(size, int) and isinstance(ranks, int) and 0 < size < _MOST_BYTES and 1 < ranks < _MOST_RANKS
    return (str(call["kind"]), int(ranks), int(size), time_ns) if whole and time_ns else None  # type: ignore[arg-type]


def slowest_rank(manifest: Mapping[str, Any], what: str) -> tuple[float, tuple[float, ...]] | None:
    """Median step and all steps, in ms, of the rank with the longest median; `what` is "unprofiled" or "profiled"."""
    ranks = manifest.get("ranks")
    timed = [rank.get(what) for rank in ranks if isinstance(rank, dict)] if isinstance(ranks, list) else []
    known = [
        (step_ms, _times(one.get("steps_ms")))
        for one in timed
        if isinstance(one, dict) and (step_ms := _time(one.get("step_ms")))
    ]
    return max(known, default=None)


def _times(value: Any) -> tuple[float, ...]:
    listed = value[:_MOST_STEPS] if isinstance(value, list) else []
    return tuple(ms for one in listed if (ms := _time(one)))


def _time(value: Any) -> float:
    """The number of milliseconds; 0 where it is none."""
    try:
        ms = float(value) if isinstance(value, (int, float)) else 0.0
    except OverflowError:
        return 0.0
    return ms if isfinite(ms) and ms > 0 else 0.0


def facts_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Its facts, those of the right form."""
    return _texts(manifest.get("facts"))


def settings_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What all of its ranks were set to; and `others_busy`, where a GPU of theirs worked before the program started:
    the share of its time, or of its power, in per cent."""
    ranks = manifest.get("ranks")
    told = [rank for rank in ranks if isinstance(rank, dict)] if isinstance(ranks, list) else []
    settings = _keep_undisputed([_texts(rank.get("settings")) for rank in told])
    busy = max(map(_busy_before, _own_gpus(manifest, max(len(told), 1))), default=0.0)
    return {**settings, **({"others_busy": f"{busy:.0f}"} if busy else {})}


def start_up_of(manifest: Mapping[str, Any]) -> tuple[tuple[int, str, str, int], ...]:
    """What each rank spent its start on, those rows that are of the right form."""
    ranks = manifest.get("ranks")
    found = list[tuple[int, str, str, int]]()
    for told in ranks if isinstance(ranks, list) else []:
        if not isinstance(told, dict) or not isinstance(rank := told.get("rank"), int) or not 0 <= rank < _MOST_RANKS:
            continue
        parts = told.get("start_up_ns")
        for part in parts[:_MOST_PARTS] if isinstance(parts, list) else []:
            match part:
                case [str(kind), str(detail), int(time_ns)] if 0 < time_ns < _LONGEST_NS and kind:
                    found.append((rank, kind[:LONGEST_VALUE], detail[:LONGEST_VALUE], int(time_ns)))
    return tuple(sorted(found, key=lambda row: (row[0], -row[3], row[1], row[2])))


def _own_gpus(manifest: Mapping[str, Any], ranks: int) -> list[Mapping[str, Any]]:
    """The GPUs that the program could see, or the first ones, as many as it has ranks."""
    listed = manifest.get("gpus")
    gpus = [gpu for gpu in listed if isinstance(gpu, dict)] if isinstance(listed, list) else []
    environment = manifest.get("environment")
    visible = str(environment.get("CUDA_VISIBLE_DEVICES", "")) if isinstance(environment, dict) else ""
    numbers = {text.strip() for text in visible.split(",")} if visible else set(map(str, range(ranks)))
    return [gpu for gpu in gpus if str(gpu.get("index")) in numbers]


def _texts(named: Any) -> dict[str, str]:
    pairs = list(named.items())[:MOST_FACTS] if isinstance(named, dict) else []
    return {name: value for name, value in pairs if isinstance(value, str) and not fact_fault(name, value)}


def _busy_before(gpu: Mapping[str, Any]) -> float:
    """Per cent of a GPU's time that nvidia-smi saw work in; where it does not say, of its power; 0 for an idle GPU."""
    if "utilization.gpu" in gpu:
        return _figure(gpu["utilization.gpu"])
    draw, limit = _figure(gpu.get("power.draw")), _figure(gpu.get("power.limit"))
    return 100 * draw / limit if draw > _AT_WORK * limit > 0 else 0.0


def _figure(text: Any) -> float:
    """The number a cell of nvidia-smi begins with, such as 458.50 W; 0 where there is none."""
    try:
        return _time(float(str(text).split()[0]))
    except (ValueError, IndexError):
        return 0.0


def fact_fault(name: str, value: str) -> str:
    """Why this is no fact of a run, or ''."""
    plain = name.translate(dict.fromkeys(map(ord, "_.-")))  # without these
    begins = name[:1].isalpha() or name.startswith("_")
    if not (begins and name.isascii() and len(name) <= _LONGEST_NAME and (plain.isalnum() or not plain)):
        return f"{name!r} is not a name of a fact: a letter, then letters, digits, _, . or -, {_LONGEST_NAME} at most"
    if not value or len(value) > LONGEST_VALUE or not value.isprintable() or value != value.strip():
        return f"{value[:LONGEST_VALUE]!r} is not a value of {name}: one to {LONGEST_VALUE} printable characters"
    return ""


def parse_facts(texts: Sequence[str]) -> dict[str, str]:
    """``["resolution=512"]`` as facts by name. `ValueError` says which is none, and why."""
    facts: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is not a fact: NAME=VALUE is")
        if fault := fact_fault(name, value):
            raise ValueError(fault)
        if facts.setdefault(name, value) != value:
            raise ValueError(f"the fact {name} is given twice, as {facts[name]!r} and as {value!r}")
    if len(facts) > MOST_FACTS:
        raise ValueError(f"{len(facts)} facts are too many: {MOST_FACTS} are kept")
    return facts


def manifest_of(path: Path) -> Mapping[str, Any] | None:
    """The manifest of the trace's folder, if it is one of timesink's and names the trace."""
    try:
        manifest = document((path if path.is_dir() else path.parent) / MANIFEST)
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or "timesink_manifest" not in manifest:
        return None
    listed = manifest.get("files", ())
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return manifest if path.is_dir() or any(entry.get("file") == path.name for entry in entries) else None
