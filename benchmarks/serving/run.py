"""All servers on the GPU of one machine: measured without a profiler and captured by torch, or captured by nsys.

    python -m benchmarks.serving.run measure OUT [--only a,b] [--dry]
    nsys profile ... python -m benchmarks.serving.run nsys OUT

`run_on_gpu.sh` calls both. OUT gets `measured.json`, rewritten after every server, and `NAME.torch.json`.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import traceback
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from benchmarks.serving import server, suite
from benchmarks.serving.server import Engine
from torch.profiler import ProfilerActivity, profile, record_function

BLOCK_STEPS, BLOCKS, WARM = 96, 5, 12


@contextmanager
def nvtx(name: str) -> Any:
    torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


def marker(marks: str, tool: Any) -> Any:
    """What an engine puts around its work: a range of the tool by its own name, by `execute_model`, or nothing."""
    if not marks:
        return lambda name: nullcontext()
    return (lambda name: tool("execute_model")) if marks == "model" else tool


def block(engine: Engine, steps: int) -> dict[str, float]:
    """Time of a token over all requests, and of the waits for a token: the mean and the 99th per cent; in ms."""
    with torch.no_grad(), engine.beside():
        for _ in range(WARM):
            engine.step()
        engine.drain()
        engine.ended.clear()
        held = {request.number: len(request.seen) for request in engine.running}
        began = time.perf_counter()
        tokens = sum(engine.step() for _ in range(steps))
        engine.drain()
        took = time.perf_counter() - began
    waits, first = [], []
    for request in [*engine.running, *engine.ended]:
        seen = request.seen[held.get(request.number, 0) :]
        waits += [later - before for before, later in pairwise(seen)]
        if request.arrived > began and seen:
            first.append(seen[0] - request.arrived)
    waits.sort()
    found = {
        "token_ms": took / tokens * 1e3,
        "step_ms": took / steps * 1e3,
        "wait_ms": statistics.fmean(waits) * 1e3,
        "late_ms": waits[int(0.99 * len(waits))] * 1e3,
    }
    return found | ({"first_ms": statistics.fmean(first) * 1e3} if first else {})


def measured(one: suite.Program, model: server.Model, given: argparse.Namespace) -> dict[str, Any]:
    engines = {"fault": server.build(one.setting, model, given.dry)}
    if one.fixed != one.setting:
        engines["fixed"] = server.build(one.fixed, model, given.dry)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in engines}
    for number in range(given.blocks):
        for name in list(engines) if number % 2 == 0 else reversed(engines):
            found[name].append(block(engines[name], given.steps))
    under_torch(one, engines["fault"], given.out / f"{one.name}.torch.json", given.dry)
    return found


def under_torch(one: suite.Program, engine: Engine, target: Path, dry: bool) -> None:
    """A plain capture of some steps, as a stranger takes it from a running server."""
    activities = [ProfilerActivity.CPU] + ([] if dry else [ProfilerActivity.CUDA])
    with torch.no_grad(), engine.beside():
        for steps in (2, suite.STEPS):  # the first starts the profiler's own machinery
            engine.mark = marker(one.marks, record_function)
            for _ in range(2):
                engine.step()
            with profile(activities=activities) as profiler:
                for _ in range(steps):
                    engine.step()
                if engine.cuda:
                    torch.cuda.synchronize()
            engine.mark = marker("", None)
            engine.drain()
    profiler.export_chrome_trace(str(target))


def under_nsys(names: list[suite.Program], model: server.Model, dry: bool) -> None:
    """Every server in a range of its own, `case NAME`, which `benchmarks.faults.trim` cuts it out by."""
    engines = {}
    for one in names:
        engines[one.name] = engine = server.build(one.setting, model, dry)
        block(engine, 4)
    if not dry:
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
    for one in names:
        engine = engines[one.name]
        with torch.no_grad(), engine.beside():
            for _ in range(4):
                engine.step()
            engine.mark = marker(one.marks, nvtx if not dry else record_function)
            with nullcontext() if dry else nvtx(f"case {one.name}"):
                for _ in range(suite.STEPS):
                    engine.step()
                if engine.cuda:
                    torch.cuda.synchronize()
            engine.mark = marker("", None)
            engine.drain()
    if not dry:
        torch.cuda.profiler.stop()


def in_short(found: dict[str, Any]) -> str:
    if "failed" in found:
        return str(found["failed"])
    figures = ("step_ms", "late_ms")
    return " ".join(f"{name} {[[round(b[what], 3) for b in found[name]] for what in figures]}" for name in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "nsys"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--steps", type=int, default=BLOCK_STEPS)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.set_num_threads(4)
    device, dtype = ("cpu", torch.float32) if given.dry else ("cuda", torch.bfloat16)
    torch.manual_seed(0)
    model = server.Model(server.TINY if given.dry else server.Size()).to(device, dtype).eval().requires_grad_(False)
    names = [one for one in suite.PROGRAMS if not given.only or one.name in given.only.split(",")]
    if given.what == "nsys":
        under_nsys(names, model, given.dry)
        return
    found: dict[str, Any] = {}
    began = time.monotonic()
    for one in names:
        if time.monotonic() - began > given.seconds:
            print(f"{one.name}: no time left", flush=True)
            continue
        try:
            found[one.name] = measured(one, model, given)
        except Exception:  # noqa: BLE001 - any failure is this server's result
            found[one.name] = {"failed": traceback.format_exc()[-1500:]}
        (given.out / "measured.json").write_text(json.dumps(found))
        print(f"{time.monotonic() - began:5.0f} s  {one.name}: {in_short(found[one.name])}", flush=True)
        gc.collect()
        if not given.dry:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
