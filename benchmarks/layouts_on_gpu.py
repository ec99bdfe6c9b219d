"""What channels last and compiling cost convolutional networks, by how these normalise, on a real GPU.

    python -m benchmarks.layouts_on_gpu OUTDIR            train every network, each in a process of its own (needs CUDA)
    python -m benchmarks.layouts_on_gpu --read OUTDIR     a table of it, with the converters' time that timesink finds

Networks of residual blocks, of a U and of a decoder, with normalisations over groups of channels or over batches; each
in fp32 and under autocast, in the usual layout and in channels last, its blocks eager or compiled. A step is its
shortest of ten blocks of four. All are built and warm before the first is timed, one process at a time.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WIDTHS = {"residual": (64, 128, 256), "u": (64, 128, 256), "decoder": (256, 128, 64)}
NETWORKS = [f"{shape}_{norm}" for shape in WIDTHS for norm in ("groups", "batches")]
BATCH, SIDE = 32, 96
WARM, BLOCKS, STEPS = 8, 10, 4
VARIANTS = list(itertools.product(("fp32", "bf16"), ("usual", "last"), ("eager", "compiled")))


def network(name: str) -> Any:
    """The module, and which of its parts compile."""
    import torch
    import torch.nn.functional as F  # noqa: N812
    from torch import nn

    shape, _, norm = name.partition("_")
    widths = WIDTHS[shape]

    def normalised(width: int) -> nn.Module:
        return nn.GroupNorm(8, width) if norm == "groups" else nn.BatchNorm2d(width)

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norms = nn.ModuleList(normalised(width) for _ in range(2))
            self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            hidden = self.convs[0](F.relu(self.norms[0](image)))
            return image + self.convs[1](F.relu(self.norms[1](hidden)))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first, last = widths[0], widths[-1]
            self.begin, self.end = nn.Conv2d(3, first, 3, padding=1), nn.Conv2d(last, 3, 1)
            self.there = nn.ModuleList(nn.Sequential(Block(width), Block(width)) for width in widths)
            pairs = list(itertools.pairwise(widths))
            self.between = nn.ModuleList(nn.Conv2d(a, b, 3, 1 if shape == "decoder" else 2, 1) for a, b in pairs)
            self.back = nn.ModuleList(nn.Sequential(Block(width), Block(width)) for width in widths[-2::-1])
            self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
            self.merge = nn.ModuleList(nn.Conv2d(2 * width, width, 1) for width in widths[-2::-1])
            self.head = nn.Conv2d(first, 3, 1)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            hidden, kept = self.begin(image), []
            for number, blocks in enumerate(self.there):
                hidden = blocks(hidden)
                kept.append(hidden)
                if number < len(self.between):
                    hidden = self.between[number](hidden)
                    if shape == "decoder":
                        hidden = F.interpolate(hidden, scale_factor=2.0)
            if shape != "u":
                return self.end(hidden)
            for up, merge, blocks, other in zip(self.up, self.merge, self.back, kept[-2::-1], strict=True):
                hidden = blocks(merge(torch.cat((up(hidden), other), 1)))
            return self.head(hidden)

    model = Network()
    return model, [module for module in model.modules() if isinstance(module, Block)]


def steps_of(name: str, precision: str, layout: str, mode: str) -> Callable[[], Any]:
    """A training step, warm."""
    import torch
    import torch.nn.functional as F  # noqa: N812

    torch.manual_seed(0)
    model, blocks = network(name)
    form = torch.channels_last if layout == "last" else torch.contiguous_format
    model = model.cuda().to(memory_format=form)
    side = SIDE // 4 if name.startswith("decoder") else SIDE
    image = torch.randn(BATCH, 3, side, side, device="cuda").to(memory_format=form)
    for block in blocks if mode == "compiled" else ():
        block.compile(dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            made = model(image)
        F.mse_loss(made.float(), torch.zeros_like(made, dtype=torch.float32)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    return step


def shortest_ms(step: Callable[[], Any]) -> float:
    import torch

    taken = []
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - began) / STEPS)
    return 1e3 * min(taken)


def device_ms(step: Callable[[], Any]) -> float:
    """Time of all kernels of a step."""
    from torch.profiler import ProfilerActivity

    return sum(event.self_device_time_total for event in profiled(step, ProfilerActivity.CUDA).key_averages()) / 3e3


def profiled(step: Callable[[], Any], *activities: Any) -> Any:
    """Three steps under the profiler."""
    import torch
    from torch.profiler import profile

    with profile(activities=activities, record_shapes=len(activities) > 1) as recorded:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    return recorded


def measured(name: str, folder: Path, processes: int) -> None:
    """All variants of one network, into `folder/NAME.json`."""
    from torch.profiler import ProfilerActivity

    made, failed = {}, {}
    for variant in VARIANTS:
        try:
            made[variant] = steps_of(name, *variant)
        except Exception as error:  # noqa: BLE001 - any failure is this variant's result
            failed["_".join(variant)] = repr(error)[:300]
    (folder / f"{name}.ready").touch()
    waited = time.monotonic() + 300
    while len(list(folder.glob("*.ready"))) < processes and time.monotonic() < waited:
        time.sleep(0.2)
    found: dict[str, Any] = {"failed": failed}
    with (folder / "turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        for variant, step in made.items():
            found["_".join(variant)] = {"ms": shortest_ms(step), "device_ms": device_ms(step)}
            if variant[1:] == ("usual", "eager"):
                activities = ProfilerActivity.CPU, ProfilerActivity.CUDA
                profiled(step, *activities).export_chrome_trace(str(folder / f"{name}_{variant[0]}.json"))
    (folder / f"{name}.json").write_text(json.dumps(found))


def table(folder: Path) -> str:
    """By network and precision: step and kernel time in ms, and what each change adds, over the converters' time."""
    import timesink
    from timesink.measures.kernels.conversions import layout_kernels
    from timesink.model.tables import DEVICE_OPS

    heads = ["network", "step", "kernels", "converters", "last", "compiled", "both", "last / converters"]
    rows = [heads, ["---"] * len(heads)]
    for name, precision in itertools.product(NETWORKS, ("fp32", "bf16")):
        found = json.loads((folder / f"{name}.json").read_text())
        trace = timesink.read(folder / f"{name}_{precision}.json", cache=False)
        ops = trace[DEVICE_OPS]
        moved = [rows for part in layout_kernels(trace) for role, rows in part.groups.items() if role != "strided"]
        length = (ops["end_ns"] - ops["start_ns"]).to_numpy()
        converters = sum(float(length[rows].sum()) for rows in moved) / 3e6
        base = found[f"{precision}_usual_eager"]
        others = [found.get(f"{precision}_{key}") for key in ("last_eager", "usual_compiled", "last_compiled")]
        gains = [f"{one['ms']:.2f} ({one['device_ms']:.2f})" if one else "failed" for one in others]
        more = (others[0]["device_ms"] - base["device_ms"]) / converters if others[0] and converters else float("nan")
        own = [f"{base['ms']:.2f}", f"{base['device_ms']:.2f}", f"{converters:.2f}"]
        rows.append([f"{name} {precision}", *own, *gains, f"{more:+.2f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--read", action="store_true")
    parser.add_argument("--only", help="one network, in this process")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.read:
        print(table(options.folder))
        return
    if options.only:
        measured(options.only, options.folder, len(NETWORKS))
        return
    own = [sys.executable, "-m", "benchmarks.layouts_on_gpu", str(options.folder), "--only"]
    for process in [subprocess.Popen([*own, name]) for name in NETWORKS]:
        process.wait()
    with tarfile.open(options.folder / "layouts.tar.xz", "w:xz") as archive:
        for path in sorted(options.folder.glob("*.json")):
            archive.add(path, path.name)


if __name__ == "__main__":
    main()
