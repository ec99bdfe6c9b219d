"""One rank of one measured program: a few training steps or one served batch, its peaks phase by phase, its snapshot.

usage: python -m benchmarks.memory.program NAME OUTDIR   (RANK, WORLD_SIZE, LOCAL_RANK as torchrun sets them)
"""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import pickle
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from benchmarks.memory.configurations import CONFIGURATIONS
from benchmarks.memory.models import Transformer
from torch import Tensor, nn
from torch.profiler import record_function

STEPS = 4
DTYPES = {"amp": torch.float32, "fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass
class Meter:
    """Peak and end of every phase of every step, as the allocator counts them."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    step: int = -1

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with record_function(f"phase.{name}"):
            yield
        torch.cuda.synchronize()
        self.rows.append(
            {
                "step": self.step,
                "phase": name,
                "before_bytes": before,
                "after_bytes": torch.cuda.memory_allocated(),
                "peak_bytes": torch.cuda.max_memory_allocated(),
                "reserved_bytes": torch.cuda.memory_reserved(),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
            }
        )


def device_used_bytes() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free


def record(enabled: str | None) -> None:
    try:
        torch.cuda.memory._record_memory_history(
            enabled, context="alloc", stacks="all", max_entries=400_000, global_record_annotations=True
        )
    except TypeError:
        torch.cuda.memory._record_memory_history(enabled, context="alloc", stacks="all", max_entries=400_000)


def sharded(model: nn.Module, train: dict[str, Any], parallel: dict[str, Any], local: int) -> nn.Module:
    if parallel.get("sharding") == "ddp":
        view = parallel.get("gradient_as_bucket_view", False)
        return nn.parallel.DistributedDataParallel(model, device_ids=[local], gradient_as_bucket_view=view)
    if parallel.get("sharding") == "fsdp2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        amp = train["precision"] == "amp"
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if amp else MixedPrecisionPolicy()
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    return model


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    match name:
        case "adamw":
            return torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
        case "adamw-fused":
            return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        case "sgd-momentum":
            return torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, foreach=True)
        case _:
            raise ValueError(name)


def inputs_of(m: dict[str, Any], train: dict[str, Any]) -> tuple[Tensor, Tensor]:
    if m["kind"] == "vision":
        images = torch.randn(train["batch"], 3, m["image"], m["image"], device="cuda")
        return images, torch.randint(m["vocab"], (train["batch"],), device="cuda")
    shape = (train["batch"], train["sequence"])
    return torch.randint(m["vocab"], shape, device="cuda"), torch.randint(m["vocab"], shape, device="cuda")


def run_training(config: dict[str, Any], meter: Meter, local: int) -> dict[str, list[Any]]:
    m, train, parallel = config["model"], config["train"], config.get("parallel", {})
    torch.manual_seed(0)
    with meter.phase("init"):
        with torch.device("cuda"):
            model: nn.Module = Transformer(m, train.get("attention", "flash"), train.get("recompute", "none"))
        model = model.to(DTYPES[train["precision"]])
        model = sharded(model, train, parallel, local)
        optimizer = optimizer_of(train["optimizer"], model)
    amp = train["precision"] == "amp" and parallel.get("sharding") != "fsdp2"
    tokens, targets = inputs_of(m, train)
    for step in range(STEPS):
        meter.step = step
        optimizer.zero_grad(set_to_none=True)
        with meter.phase("forward"), torch.autocast("cuda", torch.bfloat16, enabled=amp):
            loss = model(tokens, targets)
        with meter.phase("backward"):
            loss.backward()
        with meter.phase("optimizer"):
            optimizer.step()
    return truth(model, optimizer, (tokens, targets))


def run_serving(config: dict[str, Any], meter: Meter) -> dict[str, list[Any]]:
    m, serve = config["model"], config["serve"]
    torch.manual_seed(0)
    with torch.inference_mode(), meter.phase("init"):
        with torch.device("cuda"):
            model = Transformer(m)
        model = model.to(torch.bfloat16).eval()
        width, kv_heads = m["hidden"] // m["heads"], m.get("kv_heads", m["heads"])
        shape = (serve["batch"], kv_heads, serve["context"], width)
        for block in model.blocks:
            block.attention.cache = tuple(torch.zeros(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    with torch.inference_mode():
        tokens = torch.randint(m["vocab"], (serve["batch"], serve["prompt"]), device="cuda")
        for step in range(2):
            meter.step = step
            with meter.phase("prefill"):
                last = model(tokens).argmax(-1, keepdim=True)
            with meter.phase("decode"):
                for at in range(16):
                    last = model(last, start=serve["prompt"] + at).argmax(-1, keepdim=True)
    found = truth(model, None, (tokens,))
    found["kv_cache"] = [entry(part) for block in model.blocks for part in block.attention.cache]
    return found


def entry(tensor: Tensor) -> tuple[int, int]:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    storage = local.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def truth(
    model: nn.Module, optimizer: torch.optim.Optimizer | None, inputs: tuple[Tensor, ...]
) -> dict[str, list[Any]]:
    """Addresses and sizes of what is known to be alive, by what it is: the check of the classification."""
    states = [t for state in optimizer.state.values() for t in state.values()] if optimizer else []
    return {
        "weights": [entry(p) for p in model.parameters()],
        "gradients": [entry(p.grad) for p in model.parameters() if p.grad is not None],
        "optimizer": [entry(t) for t in states if torch.is_tensor(t) and t.is_cuda],
        "buffers": [entry(b) for b in model.buffers() if b.is_cuda],
        "inputs": [entry(t) for t in inputs],
    }


def main() -> None:
    name, outdir = sys.argv[1], Path(sys.argv[2])
    config = next(c for c in CONFIGURATIONS if c["name"] == name)
    rank, world, local = (
        int(os.environ.get(key, given)) for key, given in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
    )
    torch.cuda.set_device(local)
    torch.cuda.init()
    torch.cuda.synchronize()
    context_bytes = device_used_bytes()
    if world > 1:
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
        dist.barrier()
    started, meter = time.monotonic(), Meter()
    record("all")
    found = run_training(config, meter, local) if "train" in config else run_serving(config, meter)
    torch.cuda.synchronize()
    used, stats = device_used_bytes(), torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    record(None)
    result = {
        "config": config,
        "rank": rank,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "total_bytes": torch.cuda.mem_get_info()[1],
        "parameters": sum(size for _, size in found["weights"]),
        "context_bytes": context_bytes,
        "device_used_bytes": used,
        "reserved_bytes": torch.cuda.memory_reserved(),
        "allocated_bytes": torch.cuda.memory_allocated(),
        "peak_bytes": max(row["peak_bytes"] for row in meter.rows),
        "peak_reserved_bytes": max(row["peak_reserved_bytes"] for row in meter.rows),
        "retries": stats.get("num_alloc_retries"),
        "phases": meter.rows,
        "truth": found,
        "seconds": time.monotonic() - started,
    }
    stem = outdir / (name if world == 1 else f"{name}.rank{rank}")
    stem.with_name(stem.name + ".json").write_text(json.dumps(result))
    if rank == 0:
        with lzma.open(stem.with_name(stem.name + ".pickle.xz"), "wb", preset=6) as stream:
            pickle.dump(snapshot, stream, protocol=4)
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
