"""Rules on GPU memory: what fills the peak, what the allocator wastes, and what every step leaves behind.

Memory is no time: findings state bytes in their evidence and claim no device time.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.diagnosis.verdicts import NotApplicable, Undecided
from timesink.knowledge.assumptions import steps as assumed
from timesink.knowledge.frames import LOSS, REDUCER
from timesink.measures.memory import MemoryLedger, forward_share, memory_ledger, memory_steps
from timesink.measures.memory.allocator import allocator_views
from timesink.measures.memory.classes import CODES, Category
from timesink.model.names import matches
from timesink.model.trace import Trace

_CAPTURE: Final = (
    "torch.cuda.memory._record_memory_history(); run a few steps; torch.cuda.memory._dump_snapshot('snapshot.pickle')"
)
_UNCLASSIFIED: Final = 0.5  # beyond it a share says more of the classification than of the program; measured: under 1 %


def _peak_rows(measure: Callable[[MemoryLedger], int | None]) -> Callable[[Trace], Rows]:
    """A row per GPU: bytes as a share of its memory peak, where `measure` finds something to ask about."""

    def rows(trace: Trace) -> Rows:
        ledgers = {device: ledger for device, ledger in memory_ledger(trace).items() if ledger.peak_bytes}
        classified = {device: one for device, one in ledgers.items() if one.unclassified_ratio <= _UNCLASSIFIED}
        if ledgers and not classified:
            return Undecided("more than half of the peak cannot be told apart: no stacks were recorded", _CAPTURE)
        sizes = {device: measure(ledger) for device, ledger in sorted(classified.items())}
        found = [
            Row(
                device,
                {
                    "peak_ratio": size / classified[device].peak_bytes,
                    "size": float(size),
                    "peak": float(classified[device].peak_bytes),
                    "forward_ratio": forward_share(classified[device]),
                },
            )
            for device, size in sizes.items()
            if size is not None
        ]
        why = "the record holds no training step" if ledgers else "no GPU memory is in use in the record"
        return found or NotApplicable(why)

    return rows


def _activations(ledger: MemoryLedger) -> int | None:
    size = ledger.at_peak()[Category.ACTIVATIONS]
    return size if size or ledger.classes.phases.has_backward else None


def _loss_bytes(ledger: MemoryLedger) -> int:
    """Alive at the peak, and allocated below a loss."""
    return ledger.alive_bytes(ledger.peak, matches(ledger.classes.lives.frame["stack"], LOSS).to_numpy())


def _kept_gradients(ledger: MemoryLedger) -> int | None:
    """Gradients alive at the forward pass's own peak."""
    peak = ledger.forward_peak()
    return None if peak is None else ledger.alive_bytes(peak, ledger.classes.of(Category.GRADIENTS))


def _gradients_twice(ledger: MemoryLedger) -> int | None:
    """Bytes that are there twice, where most gradients are alive."""
    if not ledger.classes.phases.has_backward:
        return None
    gradients = ledger.live_bytes[CODES[Category.GRADIENTS]]
    peak = int(np.argmax(gradients))
    reducer = matches(ledger.classes.lives.frame["stack"], REDUCER).to_numpy()
    return min(int(gradients[peak]), ledger.alive_bytes(peak, reducer))


def _reserved(trace: Trace) -> Rows:
    return [
        Row(
            device,
            {
                "reserved_ratio": view.split_free_bytes / view.reserved_bytes if view.reserved_bytes else 0.0,
                "free": view.split_free_bytes,
                "reserved": view.reserved_bytes,
                "largest": float(view.largest_free_bytes),
                "cached": float(view.cached_bytes),
            },
        )
        for device, view in allocator_views(trace).items()
    ]


def _churn(trace: Trace) -> Rows:
    return [
        Row(
            device,
            {
                "calls_per_step": counts.driver_calls_per_step,
                "calls": counts.driver_calls,
                "bytes": counts.driver_bytes,
                "steps": counts.steps - 2,
            },
        )
        for device, counts in memory_steps(trace).items()
        if counts.steps >= assumed.REPEATS.whole
    ]


def _retries(trace: Trace, row: Row, _: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[()]]:
    """How often the allocator gave segments back to make room."""
    view = allocator_views(trace).get(row.device)
    return {"retries": view.retries if view else 0}, ()


def _left_behind(trace: Trace) -> Rows:
    return [
        Row(
            device,
            {
                "bytes_per_step": counts.growth_bytes,
                "levels": len(counts.levels_bytes),
                "rises": len(counts.levels_bytes) - 1,
                "level": float(counts.levels_bytes[-1]),
                "leaver": counts.leaver,
            },
        )
        for device, counts in memory_steps(trace).items()
        if len(counts.levels_bytes) >= assumed.REPEATS.whole
    ]


RULES: Final = (
    declare("fragmentation", _reserved),
    declare("allocator-churn", _churn, details=_retries),
    declare("logits-peak", _peak_rows(_loss_bytes)),
    declare("gradients-kept", _peak_rows(_kept_gradients)),
    declare("optimizer-state", _peak_rows(lambda one: one.at_peak()[Category.OPTIMIZER_STATE])),
    declare("activations", _peak_rows(_activations)),
    declare("memory-leak", _left_behind),
    declare("duplicated-gradient-buckets", _peak_rows(_gradients_twice)),
)
