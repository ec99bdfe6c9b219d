"""What `timesink.handler` costs the steps outside of the profiled window: a training loop, three ways, in turns.

python -m benchmarks.trainer_overhead --out FOLDER [--pairs 6] [--seconds 165]   # on a machine with a GPU
python -m benchmarks.trainer_overhead --out FOLDER --in-turns [--pairs 6]        # one process, bound by its GPU

With ``--in-turns`` one process trains with an eightfold batch, profiles a window with the handler and with plain
torch.profiler in turns (ABBA), and times the steps after each. Else each run is a process of its own that trains the
same small GPT from a DataLoader: `handler` with torch.profiler and ``on_trace_ready=timesink.handler(...)``, `plain`
with torch.profiler and ``export_chrome_trace``, `none` without a profiler. The order turns round from pair to pair.
Timed are the steps before the window and, from the very first on, those after it, while the verdict is being found.
Where the analysis is not installed (as on a bare GPU machine), two busy processes of the same low priority stand in
for it for five seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ARMS = ("handler", "plain", "none")
SETTLE, BEFORE, WARM_UP, ACTIVE, AFTER = 20, 100, 2, 6, 300
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571}  # Student's, two-sided, of so many pairs
# In the place of the first library that the analysis imports: busy until five seconds or the training are over.
STAND_IN = """
import os, sys, time
began, parent = time.monotonic(), os.getppid()
os.fork()
while time.monotonic() - began < 5 and os.getppid() != 1:
    sum(range(10000))
os._exit(0)
"""


def model_of(device: str, times: int = 1) -> tuple[Any, int, int]:
    """A GPT block stack, its batch size and its length: about 10 ms a step on an H100, with `times` 8 a step of 40."""
    import torch

    width, layers, batch, length = (1024, 4, 8 * times, 512) if device == "cuda" else (32, 1, 2, 16)

    class Tiny(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(8192, width)
            block = torch.nn.TransformerEncoderLayer(width, 16, 4 * width, 0.0, batch_first=True, norm_first=True)
            self.blocks = torch.nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
            self.head = torch.nn.Linear(width, 8192)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.blocks(self.embed(tokens)))

    return Tiny().to(device), batch, length


def batches_of(batch: int, length: int) -> Any:
    """Batches without end, made by two workers."""
    import torch

    class Tokens(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 1_000_000

        def __getitem__(self, index: int) -> Any:
            return torch.randint(8192, (length,))

    return iter(torch.utils.data.DataLoader(Tokens(), batch, num_workers=2, pin_memory=torch.cuda.is_available()))


def run_arm(arm: str, folder: Path) -> dict[str, float]:
    """One run: mean step in ms before and after the window, and how long the window's end held the loop."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
    model, batch, length = model_of(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=device == "cuda")
    batches = batches_of(batch, length)
    held: list[float] = []
    profiler = _profiler(arm, folder, held)

    def step() -> None:
        tokens = next(batches).to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if profiler is not None:
            profiler.step()

    if profiler is not None:
        profiler.start()
    timed(SETTLE, step)
    before = timed(BEFORE, step)
    timed(WARM_UP + ACTIVE, step)
    after = [timed(AFTER // 3, step) for _ in range(3)]
    if profiler is not None:
        profiler.stop()
    thirds = {f"after_{number}_ms": value for number, value in enumerate(after, 1)}
    return {"before_ms": before, "after_ms": statistics.fmean(after), "held_ms": 1e3 * sum(held), **thirds}


def in_turns(pairs: int, folder: Path) -> dict[str, Any]:
    """Mean steps in ms after each window, `pairs` of each way, and their difference; the first pair warms up."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, batch, length = model_of(device, times=8)
    optimizer = torch.optim.AdamW(model.parameters(), fused=device == "cuda")
    tokens = torch.randint(8192, (batch, length), device=device)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    timed(SETTLE, step)
    rounds: list[dict[str, float]] = []
    for number in range(pairs + 1):
        found = {}
        for arm in ("handler", "plain") if number % 2 else ("plain", "handler"):
            held: list[float] = []
            profiler = _profiler(arm, folder / f"{arm}{number}", held, wait=0)
            profiler.start()
            for _ in range(WARM_UP + ACTIVE):
                step()
                profiler.step()
            found |= {f"{arm}_after_ms": timed(AFTER // 3, step), f"{arm}_held_ms": 1e3 * sum(held)}
            profiler.stop()
            time.sleep(6)  # the analysis ends, so that the other way has the machine for itself
        rounds.append(found)
        print(json.dumps(found), flush=True)
    shares = [100 * (one["handler_after_ms"] / one["plain_after_ms"] - 1) for one in rounds[1:]]
    half = T_95.get(len(shares), 2.571) * statistics.stdev(shares) / len(shares) ** 0.5
    found = {"percent": round(statistics.fmean(shares), 3), "half_interval": round(half, 3)}
    return {"stand_in": find_spec("polars") is None, "handler against plain, after": found, "rounds": rounds}


def timed(steps: int, step: Callable[[], None]) -> float:
    """The mean of so many steps in ms; the device is waited for at both ends.

    Without a GPU it is the time that the processor worked for this thread, whatever else runs on the machine.
    """
    import torch

    has_gpu = torch.cuda.is_available()
    wait, clock = (torch.cuda.synchronize, time.perf_counter) if has_gpu else (lambda: None, time.thread_time)
    wait()
    began = clock()
    for _ in range(steps):
        step()
    wait()
    return 1e3 * (clock() - began) / steps


def _profiler(arm: str, folder: Path, held: list[float], wait: int = SETTLE + BEFORE) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    if arm == "none":
        return None
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    import timesink

    kept = timesink.handler(folder) if arm == "handler" else lambda done: done.export_chrome_trace(f"{folder}/t.json")

    def ready(done: Any) -> None:
        began = time.perf_counter()
        kept(done)
        held.append(time.perf_counter() - began)

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])
    steps = schedule(wait=wait, warmup=WARM_UP, active=ACTIVE, repeat=1)
    return profile(activities=activities, schedule=steps, on_trace_ready=ready, record_shapes=True)


def started(arm: str) -> dict[str, float]:
    """One arm in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.trainer_overhead", "--arm", arm, "--out", folder],
            env={**os.environ, "PYTHONPATH": search_path(Path(folder))}, cwd=ROOT, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{arm}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return dict(json.loads(lines[-1]))


def search_path(folder: Path) -> str:
    """Where Python finds timesink, and the stand-in where the analysis is not installed."""
    places = [str(ROOT / "src"), str(ROOT)]
    if find_spec("polars") is None:
        (folder / "stand_in").mkdir(exist_ok=True)
        (folder / "stand_in/typer.py").write_text(STAND_IN)
        places.append(f"{folder}/stand_in")
    return os.pathsep.join(places)


def difference(rounds: list[dict[str, dict[str, float]]], first: str, second: str, what: str) -> dict[str, float]:
    """The mean of what `first` takes longer than `second`, in per cent, and half its 95 % interval."""
    shares = [100 * (one[first][what] / one[second][what] - 1) for one in rounds]
    half = T_95.get(len(shares), 2.571) * statistics.stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else 0.0
    return {"percent": round(statistics.fmean(shares), 3), "half_interval": round(half, 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arm", choices=ARMS)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=165.0, help="begin no round after so many")
    parser.add_argument("--in-turns", action="store_true")
    options = parser.parse_args()
    if options.in_turns:
        os.environ["PYTHONPATH"] = search_path(options.out)  # for the process of the verdict
        told = json.dumps(in_turns(options.pairs, options.out), indent=1)
        (options.out / "in_turns.json").write_text(told + "\n")
        return 0
    if options.arm:
        print(json.dumps(run_arm(options.arm, options.out)), flush=True)
        return 0
    began, rounds = time.monotonic(), []
    while len(rounds) < options.pairs and time.monotonic() - began < options.seconds:
        order = ARMS if len(rounds) % 2 == 0 else ARMS[::-1]
        rounds.append({arm: started(arm) for arm in order})
        print(json.dumps(rounds[-1]), round(time.monotonic() - began), flush=True)
        (options.out / "trainer_overhead.json").write_text(json.dumps(summary(rounds), indent=1) + "\n")
    return 0


def summary(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Every run, and the differences between arms."""
    pairs = (("handler", "plain"), ("plain", "none"), ("handler", "none"))
    found = {
        f"{first} against {second}, {what}": difference(rounds, first, second, f"{what}_ms")
        for first, second in pairs
        for what in ("before", "after")
    }
    return {"stand_in": find_spec("polars") is None, "differences": found, "rounds": rounds}


if __name__ == "__main__":
    sys.exit(main())
