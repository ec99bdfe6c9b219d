"""Records the programs of this folder on a GPU: `record.py truth|torch|small|nsys NAME|metrics NAME|ncu OUT`.

The 12 programs are recorded by torch.profiler with stacks; under Nsight Systems a program opens the capture itself.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "programs"))
sys.path.insert(1, str(HERE))
PROGRAMS = sorted(path.stem for path in (HERE / "programs").glob("*.py"))
STEPS = 4
METRICS = ("low_activity", "memory_bound", "products")


def step_ms(step, rounds=7, steps=10):
    """The median over rounds of the mean step, unprofiled; in ms."""
    for _ in range(3):
        step()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) / steps * 1e3)
    return statistics.median(times)


def record_torch(step, path, stacks=True):
    """`STEPS` steps by torch.profiler, with the lines of calls added."""
    from torch.profiler import ProfilerActivity, profile, schedule

    def export(prof):
        prof.export_chrome_trace(str(path))

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    plan = schedule(wait=0, warmup=2, active=STEPS, repeat=1)
    with profile(
        activities=activities, schedule=plan, with_stack=stacks, record_shapes=True, on_trace_ready=export
    ) as prof:
        for _ in range(2 + STEPS):
            step()
            torch.cuda.synchronize()
            prof.step()
    if stacks:
        from call_lines import add_call_lines

        add_call_lines(prof, path)


def main():
    verb, out = sys.argv[1], Path(sys.argv[-1])
    if verb == "truth":
        (out / "truth.json").write_text(json.dumps(truth(), indent=1))
    elif verb == "torch":
        for name in PROGRAMS:
            step = importlib.import_module(name).make()
            for _ in range(3):
                step()
            record_torch(step, out / f"{name}.json")
    elif verb == "small":
        for kind, streams in (("one_stream", 1), ("graph", 1), ("dependent", 1), ("streams", 4)):
            record_torch(small_kernels.make(kind, streams), out / f"{kind}.json", stacks=False)
        record_torch(small_kernels.make_tiny(), out / "tiny_graph.json", stacks=False)
    elif verb == "ncu":
        steps = [small_kernels.make_metrics(kind) for kind in METRICS]
        recorded([(lambda: [step() for step in steps])], 1)
    else:
        make = importlib.import_module(sys.argv[2]).make if verb == "nsys" else None
        recorded([make() if make else small_kernels.make_metrics(sys.argv[2])], 6)


def recorded(steps, count):
    """A capture that the program opens itself, with a range per step."""
    for step in steps:
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    for number in range(count):
        torch.cuda.nvtx.range_push(f"step {number}")
        for step in steps:
            step()
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
    torch.cuda.cudart().cudaProfilerStop()


def truth():
    """Unprofiled steps in ms: of the 12 programs, and of small kernels on one and several streams."""
    found = {name: step_ms(importlib.import_module(name).make()) for name in PROGRAMS}
    for kind in ("one_stream", "graph", "dependent"):
        for streams in (1, 2, 4, 8)[: 1 if kind == "dependent" else 4]:
            found[f"{kind} {streams}"] = step_ms(small_kernels.make(kind, streams))
    found["tiny_graph 1"] = step_ms(small_kernels.make_tiny())
    rows = torch.rand(64, 1024, device="cuda")
    found["tiny_graph fused"] = step_ms(lambda: rows * 0.86)
    return found


if __name__ == "__main__":
    import small_kernels
    import torch

    main()
