"""What keeps an engine's host from launching in time: its bottleneck, its words, its remedy, and what that is worth."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from timesink.diagnosis.verdicts import Bottleneck, Quantity
from timesink.measures.steps.engine import EngineLate, Root
from timesink.measures.steps.per_step import per_step_ns
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, bytes_text, time_text

CAUSES: Final[Mapping[Root, tuple[Bottleneck, str]]] = MappingProxyType(
    {
        Root.ALLOCATION: (Bottleneck.ALLOCATOR, "Keep memory between steps: no empty_cache, no tensors of new sizes."),
        Root.COPY_OUT: (
            Bottleneck.DEVICE_TO_HOST_COPY,
            "Copy only what is asked for, into pinned memory with non_blocking=True, and read it a step later.",
        ),
        Root.COPY_IN: (
            Bottleneck.HOST_TO_DEVICE_COPY,
            "Fill pinned buffers that stay, change only what is new, and copy with non_blocking=True.",
        ),
        Root.LOCK: (
            Bottleneck.HOST_PYTHON,
            "Move what the other thread does to another process: Python runs one thread at a time.",
        ),
        Root.WAITS: (
            Bottleneck.HOST_SYNC,
            "Launch the next step before the tokens of this one are read (asynchronous scheduling); read all of "
            "them at once.",
        ),
        Root.HOST: (
            Bottleneck.HOST_PYTHON,
            "Schedule and prepare the next step while this one runs; sample on the device; move text to another "
            "process, not another thread. Ranges around scheduling, sampling and detokenising tell them apart.",
        ),
        Root.LAUNCHES: (
            Bottleneck.LAUNCH_BOUND,
            "Capture a CUDA graph for this batch size too, or pad the batch to a size that has one.",
        ),
    }
)
_MANY_WAITS: Final = 3  # per step; an engine waits for its tokens once


def worth_of(trace: Trace, engine: EngineLate, root: Root, gain: Quantity) -> Quantity | None:
    """The gain of the root's replay without a profiler, where that step is known: what the device itself needs of it
    stays, for a profiler slows the host and not the device. None where the replay alone knows."""
    if trace.unprofiled_step_ns is None:
        return None
    copied_ns = per_step_ns(trace, engine.device, engine.busy_copies) if root is Root.HOST else 0.0
    most_ms = max(trace.unprofiled_step_ns - engine.step_ns + engine.late_ns + copied_ns, 0.0) / NS_PER_MS
    return Quantity(min(gain.value, most_ms), "ms", low=min(gain.low or 0.0, most_ms), high=gain.most)


def words_of(engine: EngineLate, root: Root) -> str:
    """What the host does, in the words of the root."""
    if root is Root.WAITS:
        many = engine.waits > _MANY_WAITS
        return (
            f"it reads {engine.waits:.0f} values one by one"
            if many
            else "the next step is launched only when the tokens of this one were read"
        )
    if root is Root.LOCK:
        return f"its thread waits {time_text(engine.locked_ns)} of each step for a lock that another thread holds"
    if root is Root.HOST and engine.copied_bytes:
        return (
            f"{bytes_text(engine.copied_bytes)} are copied out of the device in each step, and code on the host, such "
            f"as sampling, runs for {time_text(engine.host_ns)}"
        )
    return {
        Root.HOST: f"code between CUDA calls runs for {time_text(engine.host_ns)} of each step",
        Root.ALLOCATION: "it gives memory back and allocates it anew, which waits for the device",
        Root.COPY_OUT: f"it waits for {bytes_text(engine.copied_bytes)} copied out through pageable memory",
        Root.COPY_IN: "it waits for inputs to be copied from pageable memory",
        Root.LAUNCHES: f"it launches {engine.launches:.0f} kernels and copies one by one",
    }[root]
