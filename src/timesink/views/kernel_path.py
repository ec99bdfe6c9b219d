"""The way to a kernel's verdict in sentences: one a step, from its busiest unit to what its time goes to."""

from collections.abc import Iterator
from typing import Final

from timesink.measures.counters.causes import WAITING, limiter_words
from timesink.measures.counters.limiter import KernelLimits, why_unexplained
from timesink.measures.counters.machine_roofs import LeastBytes
from timesink.measures.counters.resources import ARITHMETIC, MEMORY
from timesink.measures.counters.roofline import ProductParts, product_parts
from timesink.measures.counters.sheet import KernelSheet
from timesink.measures.counters.waste import Cause
from timesink.units import bytes_text, share_text

_LEAST_SHOWN: Final = 0.005  # half a percent: shares are shown with three digits


def decision_path(sheet: KernelSheet, least: LeastBytes | None = None) -> Iterator[str]:
    """The way to the verdict, one sentence a step: the busiest unit, its side, its work or what waits, of a product its
    main loop beside its epilogue, the end; and what DRAM moved, beside the bytes that must be moved at least."""
    yield from _way(sheet)
    moved = sheet.figures["dram_bytes"]
    if least is not None and least.value is None:
        yield f"What it must move at least is not known: {least.why}."
    elif least is not None and least.value is not None and isinstance(moved, float):
        of = f" ({least.operator})" if least.operator else ""
        times = f"{moved / least.value:.2f} x the least of {bytes_text(least.value)}{of}"
        yield f"DRAM moved {bytes_text(moved)}, {times}{_EXTRA if moved > least.value else _HELD}."


def _product(parts: ProductParts) -> str:
    longer = max(parts.main_loop, parts.epilogue)
    end = "the epilogue" if parts.epilogue > parts.main_loop else "the main loop"
    decides = f"{end} is the longer" if longer >= _FILLS else "neither fills a unit"
    return (
        f"Main loop or epilogue? Matmuls keep tensor cores busy for {share_text(parts.tensor)} of the time, operands "
        f"L2 for {share_text(parts.operands)}; writing {bytes_text(parts.written_bytes)} keeps L2 busy for "
        f"{share_text(parts.writes)}, fp32 arithmetic and special functions theirs for {share_text(parts.arithmetic)}: "
        f"{decides}."
    )


_FILLS: Final = 0.3  # of the time: what keeps every unit less busy than that is decided by waits
_EXTRA: Final = ": reading and writing each byte once would save the rest"
_HELD: Final = ": caches held the rest"


def _way(sheet: KernelSheet) -> Iterator[str]:
    limits = sheet.limits
    if limits is None:
        yield f"No verdict: {why_unexplained(sheet.kernel)}."
        return
    top = limits.top
    yield f"The busiest unit is {top.name} ({top.resource.value}): {share_text(top.busy)} of its peak."
    side = "memory" if top.resource in MEMORY else "compute" if top.resource in ARITHMETIC else "instruction issue"
    if limits.limiter in WAITING:
        little = (
            "Below 60 % of its peak it does not decide" if limits.is_half_busy else f"Less than waiting goes to {side}"
        )
        yield f"{little}: what the warps wait for does."
        yield from _waiting(sheet, limits)
    else:
        yield f"Its side is {side}: the time goes to work there, or to waste of it."
        if (queue := limits.queued_loads) is not None:
            yield f"A load waits {queue.waited:.0f} cycles, in an idle memory {queue.idle:.0f}: loads queue for memory."
        if side == "instruction issue" and limits.roofline is not None and limits.roofline.is_memory_side is not None:
            nearer = "bytes, left of" if limits.roofline.is_memory_side else "operations, right of"
            idle = ", though DRAM is less than half as busy: by instructions" if _is_left_of_idle(limits) else ""
            yield f"Issue slots serve both sides; by the roofline it is bound by its {nearer} the ridge of DRAM{idle}."
        yield from (_compute(sheet) if side == "compute" else _memory(sheet, limits))
    product = product_parts(sheet.kernel)
    if product is not None:
        yield _product(product)
    parts = [cause for cause in limits.ranked if limits.shares[cause] >= _LEAST_SHOWN or cause is limits.limiter]
    yield f"Of the time: {', '.join(_part(limits, cause) for cause in parts)}. The limiter is the first."


def _is_left_of_idle(limits: KernelLimits) -> bool:
    line = limits.roofline
    return line is not None and line.is_memory_side is True and limits.shares[Cause.COMPUTE] > 0


def _part(limits: KernelLimits, cause: Cause) -> str:
    return f"{limiter_words(cause.value)} {share_text(limits.shares[cause])}"


def _memory(sheet: KernelSheet, limits: KernelLimits) -> Iterator[str]:
    excess, conflicts = sheet.figures["excess_sectors_pct"], sheet.figures["bank_conflicts"]
    if isinstance(excess, float):
        yield f"Coalesced? {share_text(excess / 100)} of the sectors of global accesses are beyond need."
    hits = [(level, sheet.figures[f"{level.lower()}_hit_pct"]) for level in ("L1", "L2")]
    told = [f"{level} {share_text(rate / 100)}" for level, rate in hits if isinstance(rate, float)]
    if told:
        yield f"Hit rates: {', '.join(told)}.{_served_by_l2(sheet, limits)}"
    wasted = [cause for cause in limits.ranked if cause in (Cause.BANK_CONFLICTS, Cause.REGISTER_SPILLS, Cause.ATOMICS)]
    if wasted:
        yield f"Waste in the accesses: {', '.join(_part(limits, cause) for cause in wasted)} of the time."
    elif conflicts is not None:
        yield "No bank conflicts, spills or atomics take time."


def _served_by_l2(sheet: KernelSheet, limits: KernelLimits) -> str:
    """Where L2 holds the data, what DRAM attains says nothing of the kernel."""
    caches, memory = sheet.figures["l2_pct"], sheet.figures["dram_pct"]
    is_at_l2 = limits.limiter is Cause.MEMORY and limits.roof[0] == "L2"
    if not is_at_l2 or not isinstance(caches, float) or not isinstance(memory, float):
        return ""
    return f" L2 is the limit, at {share_text(caches / 100)} of its peak; DRAM, at {share_text(memory / 100)}, is not."


def _compute(sheet: KernelSheet) -> Iterator[str]:
    name, share = sheet.figures["tensor_format"], sheet.figures["tensor_pct"]
    if isinstance(name, str) and isinstance(share, float):
        yield f"Tensor cores: {name}, {share_text(share / 100)} of the peak."
    lanes = sheet.figures["active_threads"]
    if isinstance(lanes, float):
        yield f"Divergence? {lanes:.1f} of 32 threads of a warp are active."


def _waiting(sheet: KernelSheet, limits: KernelLimits) -> Iterator[str]:
    idle, achieved = limits.occupancy.sm_idle, limits.occupancy.achieved
    if idle is not None:
        yield f"Enough blocks? SMs have none for {share_text(idle)} of the time."
    if achieved is not None:
        by = sheet.figures["occupancy_limit"]
        yield f"Enough warps? {share_text(achieved)} of an SM's warps are there{f', limited by {by}' if by else ''}."
    if limits.stalls is not None and limits.stalls.top is not None:
        reason, share = limits.stalls.top
        yield f"They wait for {reason.replace('_', ' ')}: {share_text(share)} of the waiting."
