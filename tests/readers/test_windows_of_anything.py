"""The law of windows on generated recordings, which are sound: kernels start after their launch, and what a call waits
for lies inside the call. In a file where that is not so, a window may lack what stands far from it.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples
from tests.readers.nsys_exports import write_sqlite
from tests.readers.test_nsys_arrow import folder_of, text_tables
from tests.readers.test_windows import LIMITS, same

from timesink.model.window import Window
from timesink.readers import reader_of

Launch = dict[str, int]
HORIZON = 200
APART = 15  # more than what stands around a call: 5 before it, 9 behind it
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"


@st.composite
def launches(draw: st.DrawFn) -> list[Launch]:
    """Calls of a thread of a process, each with a kernel some time later; some launch a collective, some wait.

    What one thread does lies one after the other, so that what is put around its calls nests.
    """
    found: list[Launch] = []
    for number in range(draw(st.integers(1, 10))):
        at = {"process": draw(st.integers(1, 2)), "thread": draw(st.integers(1, 2))}
        free = max((call["end"] + APART for call in found if call.items() >= at.items()), default=0)
        start = free + draw(st.integers(0, HORIZON // 4))
        found.append(
            {
                "id": number + 1,
                **at,
                "start": start,
                "end": start + draw(st.integers(1, 40)),
                "ran": start + draw(st.integers(0, 60)),
                "for": draw(st.integers(0, 80)),
                "device": draw(st.integers(0, 1)),
                "kind": draw(st.integers(0, 2)),
            }
        )
    return found


windows = st.tuples(st.integers(0, 300), st.integers(1, 150))
moments = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 1), st.integers(1, 2)), max_size=8)


def law(path: Path, window: tuple[int, int]) -> None:
    reader: Any = reader_of(path)
    whole = reader.read(path, LIMITS)
    opened = reader.open(path, LIMITS)
    assert opened.extent_ns == whole.extent_ns
    first, last = whole.extent_ns
    cut = Window(first + window[0], first + window[0] + window[1], first, last)
    same(opened.within(cut), whole.within(cut))


def export(calls: list[Launch], turns: list[tuple[int, int, int]]) -> str:
    """An Nsight Systems export: calls, kernels, waits, ranges of every kind, scheduling, memory, counters."""
    api = [
        f"{c['start']} {c['end']} {c['process']}:{c['thread']} {c['id']} {3 if c['kind'] == 2 else 2} -" for c in calls
    ]
    ran = [
        f"{c['ran']} {c['ran'] + c['for']} {c['device']} {7 + c['kind']} {c['id']} {c['process']}: 1"
        for c in calls
        if c["kind"] != 2
    ]
    waits = [f"{c['start']} {c['end']} 0 7 {c['id']} {c['process']}: 3 4" for c in calls if c["kind"] == 2]
    ranges = [f'{c["start"]} {c["ran"]} {c["process"]}:{c["thread"]} 59 1 "step"' for c in calls]
    ranges += [f'{at} - 1:{thread} {59 if on else 34} 1 "open"' for at, on, thread in turns]
    ranges += ['5 - 1:1 75 1 "domain"', '290 - 2:1 75 1 "other"']
    scheduled = [f"{at} 1:{thread} 0 {on}" for at, on, thread in turns]
    memory = [f"{at} 1: 1000 64 2 {on} 0" for at, on, _ in turns]
    counters = [f"{at} 0 1 0.5" for at, _, _ in turns]
    blocks = {
        'StringIds\nid value\n1 "gemm"\n2 "cudaLaunchKernel"\n3 "cudaStreamSynchronize"': ['4 "MPI_Send"'],
        "CUPTI_ACTIVITY_KIND_RUNTIME\nstart end globalTid correlationId nameId eventClass": api,
        "CUPTI_ACTIVITY_KIND_KERNEL\nstart end deviceId streamId correlationId globalPid demangledName": ran,
        f"{SYNC}\nstart end deviceId streamId correlationId globalPid syncType eventId": waits,
        "NVTX_EVENTS\nstart end globalTid eventType domainId text": ranges,
        "SCHED_EVENTS\nstart globalTid threadState isSchedIn": scheduled,
        "CUDA_GPU_MEMORY_USAGE_EVENTS\nstart globalPid address bytes memKind memoryOperationType deviceId": memory,
        "TARGET_INFO_GPU_METRICS\ntypeId metricId metricName": ['0 1 "SM active"'],
        "GPU_METRICS\ntimestamp typeId metricId value": counters,
        "ThreadNames\nglobalTid nameId priority": ["1:1 1 1", "2:1 2 1"],
    }
    return "\n\n".join(f"{head}\n" + "\n".join(rows) for head, rows in blocks.items() if rows)


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(launches(), moments, windows)
def test_an_export_through_a_window_is_the_export_cut(
    calls: list[Launch], turns: list[tuple[int, int, int]], window: tuple[int, int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = export(calls, turns)
        law(write_sqlite(Path(folder) / "export.sqlite", text), window)
        law(folder_of(Path(folder) / "parts", text_tables(text), "parquet"), window)
        law(folder_of(Path(folder) / "more", text_tables(text), "arrow"), window)


def kineto(calls: list[Launch], moments: list[tuple[int, int, int]], base_ns: int) -> str:
    """A PyTorch trace: an operator and a frame around each call, kernels, waits, collectives, memory, threads."""

    def event(cat: str, name: str, start: int, end: int, pid: int, tid: int, **args: Any) -> dict[str, Any]:
        times = {"ts": start / 1000, "dur": (end - start) / 1000}
        return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "args": args, **times}

    events: list[dict[str, Any]] = []
    for c in calls:
        at, start, end = (c["process"], c["thread"]), c["start"], c["end"]
        moves = {"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Float"} if c["kind"] == 1 else {}
        events.append(event("cpu_op", "record_param_comms" if moves else "aten::mm", start, end, *at, **moves))
        events[-1]["args"]["External id"] = c["id"]
        events.append(event("python_function", "a.py(3): f", max(start - 3, 0), end + 3, *at))
        events.append(event("user_annotation", "ProfilerStep#1", max(start - 5, 0), end + 9, *at))
        events.append(event("user_annotation", "forward", start, end, *at))
        events.append(event("cuda_runtime", "cudaLaunchKernel", start, end, *at, correlation=c["id"]))
        if c["kind"] == 2:
            said = {"cuda_sync_kind": "Stream Wait Event", "correlation": c["id"], "stream": 7, "device": 0}
            events.append(event("cuda_sync", "Stream Wait Event", start, end, 0, 7, **said))
            continue
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if moves else "gemm"
        said = {"device": c["device"], "stream": 7 + c["kind"], "correlation": c["id"], "External id": c["id"]}
        events.append(event("kernel", name, c["ran"], c["ran"] + c["for"], c["device"], 7, **said))
    for at_ns, on, thread in moments:
        bytes_ = {"Bytes": 64 if on else -64, "Device Type": 1, "Device Id": 0, "Addr": 4096}
        events.append({"ph": "i", "name": "[memory]", "ts": at_ns / 1000, "pid": 1, "tid": thread, "args": bytes_})
    for process in (1, 2):
        named = {"ph": "M", "name": "thread_name", "pid": process, "tid": 1, "args": {"name": f"thread of {process}"}}
        events.append(named)
    return json.dumps({"traceEvents": events, "baseTimeNanoseconds": base_ns})


@settings(max_examples=examples(40), deadline=None)
@given(launches(), moments, windows, st.sampled_from([0, 1_700_000_000_000_000_000]))
def test_a_trace_through_a_window_is_the_trace_cut(
    calls: list[Launch], moments: list[tuple[int, int, int]], window: tuple[int, int], base_ns: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_text(kineto(calls, moments, base_ns))
        law(path, window)
