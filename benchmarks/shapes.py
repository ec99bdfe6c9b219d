"""What a diagnosis takes of an event, for traces of one extreme shape each and of growing size: it should stay flat.

    python -m benchmarks.shapes

Every shape is the same loop of operators, launches and kernels in ten steps, but for one thing that grows with it: how
deep operators nest, how many kernels overlap, and the numbers of streams, threads, devices, collectives and names.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.runs import Row, at_most, show

from timesink.diagnosis.engine import diagnose
from timesink.readers import read

NAME = "shapes"
SIZES = (400, 2_000, 20_000)  # events, about
PER_UNIT, STEPS = 4, 10  # an operator, its launch, its kernel and the arrow between; steps of a trace
PERIOD_US = 20.0
# Time per event of the largest over that of the middle one. The smallest is mostly what any trace takes.
FLAT = 1.5
UNITS_OF_A_DEVICE = 100

Event = dict[str, Any]
Unit = tuple[Event, Event, Event]


def _plain(number: int, units: int) -> Unit:
    """An operator with its launch and its kernel, alone at its time."""
    at = number * PERIOD_US
    op = {"cat": "cpu_op", "name": "aten::mul", "pid": 7, "tid": 7, "ts": at, "dur": 12.0, "args": {}}
    call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": at + 2.0, "dur": 5.0}
    kernel = {"cat": "kernel", "name": "multiply", "pid": 0, "tid": 7, "ts": at + 9.0, "dur": 8.0}
    shape = {"grid": [64, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0}
    call["args"] = {"correlation": number + 1, "External id": number + 1}
    kernel["args"] = {**call["args"], **shape, "device": 0, "context": 1, "stream": 7}
    op["args"] = {"External id": number + 1, "Ev Idx": number}
    return op, call, kernel


def _nested(number: int, units: int) -> Unit:
    """Each operator within the one before, as deep as there are operators in a step."""
    op, call, kernel = _plain(number, units)
    per_step = max(1, units // STEPS)
    left = per_step - number % per_step
    op["dur"] = 12.0 + (left - 1) * (PERIOD_US + 0.1)
    return op, call, kernel


def _overlapping(number: int, units: int) -> Unit:
    """Kernels so long that fifty run at once, each on a stream of its own among sixty-four."""
    op, call, kernel = _plain(number, units)
    kernel["dur"] = 50 * PERIOD_US
    kernel["tid"] = kernel["args"]["stream"] = 7 + number % 64
    return op, call, kernel


def _streams(number: int, units: int) -> Unit:
    """A stream for each kernel."""
    op, call, kernel = _plain(number, units)
    kernel["tid"] = kernel["args"]["stream"] = 7 + number
    return op, call, kernel


def _threads(number: int, units: int) -> Unit:
    """A thread for each operator and its launch."""
    op, call, kernel = _plain(number, units)
    op["tid"] = call["tid"] = 1_000 + number
    return op, call, kernel


def _devices(number: int, units: int) -> Unit:
    """A device for each hundred kernels."""
    op, call, kernel = _plain(number, units)
    kernel["pid"] = kernel["args"]["device"] = number % max(1, units // UNITS_OF_A_DEVICE)
    return op, call, kernel


def _collectives(number: int, units: int) -> Unit:
    """Nothing but collectives, in groups that change."""
    op, call, kernel = _plain(number, units)
    op["name"], kernel["name"] = "record_param_comms", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    kernel["args"] |= {
        "Collective name": "allreduce", "In msg nelems": 4096, "Out msg nelems": 4096, "Group size": 2,
        "dtype": "Float", "Process Group Name": str(number % 16), "Process Group Ranks": "[0, 1]",
    }  # fmt: skip
    return op, call, kernel


def _names(number: int, units: int) -> Unit:
    """A name for each operator and each kernel."""
    op, call, kernel = _plain(number, units)
    op["name"], kernel["name"] = f"custom::op_{number}", f"kernel_{number}"
    return op, call, kernel


SHAPES: dict[str, Callable[[int, int], Unit]] = {
    "plain": _plain, "nested": _nested, "overlapping": _overlapping, "streams": _streams, "threads": _threads,
    "devices": _devices, "collectives": _collectives, "names": _names,
}  # fmt: skip


def write(shape: str, events: int, path: Path) -> None:
    """A Kineto trace of that shape with about so many events."""
    units = max(STEPS, events // PER_UNIT)
    written: list[Event] = []
    for number in range(units):
        parts = SHAPES[shape](number, units)
        written += [{"ph": "X", **part} for part in parts]
        _, call, kernel = parts
        for phase, end in (("s", call), ("f", kernel)):
            place = {key: end[key] for key in ("pid", "tid", "ts")}
            written.append({"ph": phase, "cat": "ac2g", "name": "ac2g", "id": number + 1, "bp": "e", **place})
    per_step = units // STEPS * PERIOD_US
    for step in range(STEPS):
        mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 7, "tid": 7}
        written.append({**mark, "ts": step * per_step, "dur": per_step - 0.1, "args": {}})
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": written}))


def cpu_s(shape: str, events: int, folder: Path) -> float:
    """CPU time to read and diagnose it, the better of two: the first of a process pays for what it keeps."""
    path = folder / f"{shape}.{events}.json"
    write(shape, events, path)
    taken = []
    for _ in range(2):
        before = process_time()
        diagnose(read(path, cache=False))
        taken.append(process_time() - before)
    return min(taken)


def rows(sizes: tuple[int, int, int] = SIZES, chosen: Iterable[str] = ()) -> Iterator[Row]:
    """Of each shape, or of those chosen, CPU time per event at each size, and the largest beside the middle one."""
    with tempfile.TemporaryDirectory() as folder:
        for shape in chosen or SHAPES:
            each = [1e6 * cpu_s(shape, events, Path(folder)) / events for events in sizes]
            listed = ", ".join(f"{micros:.0f} us at {events:,}" for micros, events in zip(each, sizes, strict=True))
            yield Row(NAME, f"{shape}: CPU time per event", listed)
            yield at_most(NAME, f"{shape}: per event, {sizes[2]:,} / {sizes[1]:,}", each[2] / each[1], FLAT, "x")


if __name__ == "__main__":
    show(rows())
