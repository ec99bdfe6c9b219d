"""Laws of an answer: the same program, written down in another way, is told the same.

A trace of a few hundred events is changed within what a profiler could have recorded (`gently`), and then told in other
ways: its events shuffled, later on the clock, twice as slow, its processes and kernels under other names, by an
interpreter with another hash seed and without assertions. What may differ is said beside each law.
"""

from __future__ import annotations

import atexit
import json
import random
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.faults.pack import unpacked

from fuzz import answers
from fuzz.seeds import ROOT
from timesink.diagnosis.verdicts import Diagnosis

Tree = dict[str, Any]
CAPTURES = ("broken_in_pieces", "workspace_per_call", "weights_cast_every_call", "large_products", "odd_width")
_SHIFT_US = 7_000_000_000  # two hours
_SLOWER = 2
_RENAMED = " [clone .renamed]"  # as compilers write: a signature stays whole


@cache
def programs() -> tuple[bytes, ...]:
    """Captures of the fault suite, the smallest of each program, with times that begin near zero."""
    return tuple(_written(_near_zero(json.loads(capture(name)))) for name in CAPTURES)


def capture(program: str) -> bytes:
    """The smallest trace of a program of the fault suite."""
    archive = ROOT / "benchmarks" / "faults" / "captures" / f"{program}.torch.tar.xz"
    with TemporaryDirectory() as folder:
        unpacked(archive, Path(folder))
        return min(Path(folder).glob("*.json"), key=lambda path: (path.stat().st_size, path.name)).read_bytes()


def _near_zero(trace: Tree) -> Tree:
    first = min(event["ts"] for event in trace["traceEvents"] if event.get("ph") == "X")
    events = [
        {**event, "ts": round(max(event["ts"] - first, 0.0), 3)} for event in trace["traceEvents"] if "ts" in event
    ]
    return {**trace, "traceEvents": events}


def _written(trace: Tree) -> bytes:
    return json.dumps(trace).encode()


def gently(data: bytes, rng: random.Random, others: object = ()) -> bytes:
    """Up to eight changes that leave a trace as a profiler might have written it: times, streams, names, events."""
    trace = json.loads(data)
    for _ in range(rng.choice((1, 2, 4, 8))):
        _changed(trace["traceEvents"], rng)
    return _written(trace)


def _changed(events: list[Tree], rng: random.Random) -> None:
    timed = [event for event in events if event.get("ph") == "X"]
    one, other = rng.choice(timed), rng.choice(timed)
    alike = [event for event in timed if event.get("cat") == one.get("cat")]
    match rng.randrange(9):
        case 0:  # all of one kind take longer
            factor = rng.choice((0.0, 0.5, 3.0, 40.0))
            for event in alike:
                event["dur"] = round(event["dur"] * factor, 3)
        case 1:
            one["dur"] = round(one["dur"] * rng.choice((0.0, 0.1, 10.0, 1_000.0)), 3)
        case 2:  # a pause
            pause = rng.choice((1.0, 500.0, 20_000.0))
            for event in events:
                event["ts"] = round(event["ts"] + (pause if event["ts"] > one["ts"] else 0.0), 3)
        case 3:
            events.remove(one)
        case 4:  # all of one name are gone
            events[:] = [event for event in events if event.get("name") != one["name"] or event.get("ph") != "X"]
        case 5:
            one["name"] = rng.choice(alike)["name"]
        case 6 if "stream" in one.get("args", {}):
            one["args"]["stream"], one["tid"] = 23, 23
        case 7:
            one["tid"] = other["tid"] if one.get("cat") == other.get("cat") else one["tid"]
        case _:
            one["ts"] = round(max(0.0, one["ts"] + rng.choice((-300.0, -5.0, 5.0, 300.0))), 3)


def shuffled(trace: Tree) -> Tree:
    """Its events in another order: a profiler's order means nothing."""
    events = list(trace["traceEvents"])
    random.Random(len(events)).shuffle(events)
    return {**trace, "traceEvents": events}


def later(trace: Tree) -> Tree:
    """Two hours later."""
    return _timed(trace, lambda event: {"ts": round(event["ts"] + _SHIFT_US, 3)})


def slower(trace: Tree) -> Tree:
    """All of it at half the speed."""
    return _timed(trace, lambda event: {key: round(event[key] * _SLOWER, 3) for key in ("ts", "dur") if key in event})


def _timed(trace: Tree, changed: Callable[[Tree], Tree]) -> Tree:
    return {**trace, "traceEvents": [{**event, **changed(event)} for event in trace["traceEvents"]]}


def other_process(trace: Tree) -> Tree:
    """The program under another name, on another host, as another process."""
    hosts = {event["pid"] for event in trace["traceEvents"] if event.get("cat") in ("cuda_runtime", "cpu_op")}
    text = json.dumps(trace["traceEvents"])
    events = json.loads(text)
    for event in events:
        if event.get("ph") == "M" and event.get("name") == "process_name":
            event["args"]["name"] = "another_program"
        for key in ("pid", "tid"):
            if event.get(key) in hosts and event.get("pid") in hosts | {event.get(key)}:
                event[key] += 100_000
    return {**trace, "traceEvents": events}


def other_kernels(trace: Tree) -> Tree:
    """Every kernel's name with an end that says nothing, and looks cut no more than it did."""
    return {
        **trace,
        "traceEvents": [
            {**event, "name": event["name"] + _RENAMED} if event.get("cat") == "kernel" else event
            for event in trace["traceEvents"]
        ],
    }


def _everything(diagnosis: Diagnosis) -> Any:
    """All that is said, but not of which file."""
    from timesink.render import render

    return {key: value for key, value in json.loads(render(diagnosis, "json")).items() if key != "sources"}


def _figures(diagnosis: Diagnosis) -> Any:
    """Steps, and where the time of each device goes."""
    return {key: value for key, value in _everything(diagnosis).items() if key in ("steps", "devices")}


def _prices(diagnosis: Diagnosis) -> Any:
    """What was found and what it is worth, besides the figures."""
    found = [
        (card.code, finding.recoverable and finding.recoverable.value, finding.of_ms)
        for card, finding in diagnosis.findings
    ]
    return [_figures(diagnosis), sorted(found, key=str)]


def _half(value: Any, key: str = "") -> Any:
    """The figures at twice the speed."""
    if isinstance(value, dict):
        return {name: _half(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [_half(part, key) for part in value]
    return value / _SLOWER if key.endswith("ms") and value is not None else value


# By name: how the program is told anew, what is compared, and what the new answer is turned into before.
LAWS: Mapping[str, tuple[Callable[[Tree], Tree], Callable[[Diagnosis], Any], Callable[[Any], Any]]] = {
    "shuffled": (shuffled, _everything, lambda answer: answer),
    "later": (later, _everything, lambda answer: answer),
    # Limits in microseconds stay, so what is found may differ; where the time goes may not.
    "slower": (slower, _figures, _half),
    "other process": (other_process, _prices, lambda answer: answer),
    "other kernels": (other_kernels, _prices, lambda answer: answer),
}


def holds(path: Path) -> None:
    """The diagnosis of the input keeps one law, chosen by its bytes, and the laws of every answer."""
    data = path.read_bytes()
    names = (*LAWS, "another interpreter")
    name = names[zlib.crc32(data) % len(names)]
    first = _diagnosed(path)
    answers.check_diagnosis(first)
    answers.check_document(_everything(first))
    if name == "another interpreter":
        told = _other_interpreter().asked(path)
        differing = _difference(json.loads(json.dumps(_everything(first))), told)
    else:
        anew, compared, turned = LAWS[name]
        path.write_bytes(_written(anew(json.loads(data))))
        differing = _difference(compared(first), turned(compared(_diagnosed(path))))
    if differing:
        raise AssertionError(f"{name}: {differing}"[:600])


def _diagnosed(path: Path) -> Diagnosis:
    from timesink.diagnosis.engine import diagnose
    from timesink.readers import read

    return diagnose(read(path, cache=False))


def _difference(one: Any, other: Any, where: str = "") -> str:
    """The first place where two answers differ by more than the rounding of floating point; "" where nowhere."""
    if isinstance(one, float) or isinstance(other, float):
        near = isinstance(one, (int, float)) and isinstance(other, (int, float))
        near = near and abs(one - other) <= 1e-9 * max(abs(one), abs(other)) + 1e-9
        return "" if near else f"{where}: {one} and {other}"
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next((found for key in one if (found := _difference(one[key], other[key], f"{where}.{key}"))), "")
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next((found for at, pair in pairs if (found := _difference(*pair, f"{where}[{at}]"))), "")
    return "" if one == other else f"{where}: {str(one)[:200]} and {str(other)[:200]}"


class OtherInterpreter:
    """A process of Python without assertions and with another hash seed, which diagnoses what it is told of."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-O", "-m", "fuzz.laws"], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(),
        )  # fmt: skip
        atexit.register(self._process.kill)

    def asked(self, path: Path) -> Any:
        """Everything it says of the file; the text of an error where it ends in one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONHASHSEED": "77"}


@cache
def _other_interpreter() -> OtherInterpreter:
    return OtherInterpreter()


def warm() -> None:
    """Start what must be started before anything is watched."""
    _other_interpreter()


def main() -> None:
    """Answer one line of JSON for each path on the input."""
    for line in sys.stdin:
        try:
            answer = _everything(_diagnosed(Path(line.rstrip("\n"))))
        except Exception as error:  # noqa: BLE001  # said where it is compared
            answer = str(error)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
