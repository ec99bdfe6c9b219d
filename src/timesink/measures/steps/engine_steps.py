"""Steps of a serving engine by what they read and make, where annotations say so: prompts in the way of others' tokens,
and steps that would hardly take longer for more requests."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import fixes
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.measures.kernels.facts import multiprocessors
from timesink.measures.steps.marks import step_of_ops
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.device_timeline import Device
from timesink.measures.timeline.ranges import requests_of
from timesink.model.arrays import median
from timesink.model.intervals import Intervals
from timesink.model.record import dataclass
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered

_PRODUCTS: Final = (KernelFamily.GEMM, KernelFamily.GEMV)
_ENGINE_STEP: Final = {"prompt_tokens": pl.Int64, "decoding": pl.Int64}


@remembered
def engine_steps(trace: Trace) -> pl.DataFrame:
    """Steady steps whose label says what they do: rank, device, step, start_ns, period_ns, prompt_tokens, decoding."""
    labels = steps(trace).kept.select("rank", "step", "label")
    said = [requests_of(label) for label in labels["label"].to_list()]
    rows = [(one.prompt_tokens, one.decoding) if one else (None, None) for one in said]
    counted = labels.hstack(pl.DataFrame(rows, schema=_ENGINE_STEP, orient="row")).drop_nulls()
    windows = steps(trace).windows.select("rank", "device", "step", "start_ns", "period_ns")
    return windows.join(counted.drop("label"), on=["rank", "step"], how="inner").sort("rank", "device", "step")


@dataclass(frozen=True, slots=True)
class BlockedTokens:
    """The longest step that reads a prompt beside `waiting` requests, and what it would be in chunks. Times in ns."""

    device: Device
    step_ns: float
    usual_ns: float
    prompt_tokens: int
    waiting: int
    chunk: int
    chunked_ns: float


@remembered
def blocked_tokens(trace: Trace) -> tuple[BlockedTokens, ...]:
    """By device with steps that decode alone and steps that read prompts while others wait for a token.

    A chunk is a power of two whose reading takes at most half of a usual step."""
    found = []
    for (rank, device), part in engine_steps(trace).partition_by("rank", "device", as_dict=True).items():
        alone = part.filter(pl.col("prompt_tokens") == 0)
        before = pl.col("decoding").shift(1).fill_null(0)  # a step that only reads a prompt keeps those waiting
        waiting = pl.when(pl.col("decoding") > 0).then("decoding").otherwise(before).alias("waiting")
        reading = part.with_columns(waiting).filter(pl.col("prompt_tokens") > 1, pl.col("waiting") > 0)
        if not alone.height or not reading.height:
            continue
        usual_ns = median(alone["period_ns"].to_numpy())
        worst = reading.sort("period_ns").row(-1, named=True)
        excess_ns, tokens = max(worst["period_ns"] - usual_ns, 1.0), worst["prompt_tokens"]
        chunk = 1 << max(int(np.log2(max(tokens * usual_ns / 2 / excess_ns, 1.0))), 0)
        chunked_ns = usual_ns + excess_ns * min(chunk / tokens * fixes.CHUNK_AGAIN.value, 1.0)
        key = (int(rank), int(device))
        found.append(
            BlockedTokens(key, float(worst["period_ns"]), usual_ns, tokens, worst["waiting"], chunk, chunked_ns)
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class FullBatch:
    """Decoding at one number of requests in nearly every step, while others join: `requests`, the mean step, and of it
    the time that another so many requests would not lengthen: products by weights, short kernels, kernels of less than
    a wave of blocks, and gaps. `fixed` are these times on the device. Times in ns."""

    device: Device
    requests: int
    share: float
    joined: int
    step_ns: float
    fixed_ns: float

    @property
    def saved_ns(self) -> float:
        """Of a step, what its tokens take less at twice the requests."""
        return self.fixed_ns / 2


@remembered
def full_batches(trace: Trace) -> tuple[FullBatch, ...]:
    """By device whose decoding steps are at one largest number of requests most of the time."""
    found = []
    counts = multiprocessors(trace)
    for (rank, device), part in engine_steps(trace).partition_by("rank", "device", as_dict=True).items():
        key = (int(rank), int(device))
        requests = part["decoding"] + (part["prompt_tokens"] > 0).cast(pl.Int64)
        joined = int((part["prompt_tokens"] > 0).sum())
        most = int(requests.to_numpy().max(initial=0))
        if not joined or most < 2 or key not in counts:
            continue
        growing_ns = _growing(trace, key, part, counts[key])
        step_ns = float(part["period_ns"].to_numpy().mean())
        share = float((requests.to_numpy() == most).mean())
        found.append(FullBatch(key, most, share, joined, step_ns, max(step_ns - growing_ns, 0.0)))
    return tuple(found)


def _growing(trace: Trace, device: Device, part: pl.DataFrame, multiprocessor_count: int) -> float:
    """Time per step of kernels that take longer for more requests; of steps that read prompts, all beyond decoding."""
    columns = ("name", "kind", "grid_x", "grid_y", "grid_z", "start_ns", "end_ns")
    ops = trace.get(DEVICE_OPS).with_columns(pl.Series("step", step_of_ops(trace)))
    alone = part.filter(pl.col("prompt_tokens") == 0)
    ops = ops.filter(pl.col("rank") == device[0], pl.col("device") == device[1]).select(*columns, "step")
    ops = ops.join(alone.select("step").cast(ops.schema["step"]), on="step", how="semi")
    blocks = (pl.col("grid_x") * pl.col("grid_y") * pl.col("grid_z")).cast(pl.Int64).fill_null(multiprocessor_count + 1)
    long = pl.col("end_ns") - pl.col("start_ns") > fixes.SHORT_KERNEL_US.ns
    ops = ops.filter(long, blocks > multiprocessor_count)
    kept = [decode(name).family not in _PRODUCTS for name in ops["name"].cast(pl.String).to_list()]
    grown = Intervals.of(ops.filter(pl.Series(kept, dtype=pl.Boolean)).select("start_ns", "end_ns"))
    usual_ns = median(alone["period_ns"].to_numpy()) if alone.height else 0.0
    reading_ns = float((part["period_ns"] - usual_ns).clip(0).filter(part["prompt_tokens"] > 0).sum())
    return grown.total_ns / max(alone.height, 1) + reading_ns / max(part.height, 1)
