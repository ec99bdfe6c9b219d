"""Changes that a compiler makes: eager runs become kernels, regions are entered at a price, pieces are joined."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from timesink.knowledge.assumptions import fixes
from timesink.model.arrays import Int64Array
from timesink.model.record import dataclass, replace
from timesink.whatif.change import Case, Range, Selection, Touches
from timesink.whatif.changes.kernels import ShortenKernels, half_at_least, range_of, shorten
from timesink.whatif.edit import Edit, EditedChange
from timesink.whatif.graph import Graph


def join_graphs(kernels: Selection, entries: Int64Array, beyond: float) -> ShortenKernels:
    """Pieces of a compiled program become one graph, whose fused kernels take `usual` of their time, at best `best`.

    Of the host's time up to the launches of `entries` the share `beyond` comes after a break: Python, guards and
    dispatch, all of which go; cautiously half.
    """
    change = half_at_least("join-graphs", kernels, kernels.usual, (kernels.usual + kernels.best) / 2.0)
    return replace(change, launches_saved=Range(fixes.CAUTIOUS_SHARE.value * beyond, beyond, beyond), entries=entries)


def compiled(kernels: Selection, launches: bool = True) -> tuple[ShortenKernels, ...]:
    """Eager runs compiled: all but the `longest` kernel of each go with their launches; the others, and what is
    `alone`, are launched without dispatch. Without `launches` only the kernels' own time goes."""
    other = Selection(kernels.device, {"other": kernels.groups["other"]})
    kept = Selection(kernels.device, {role: kernels.groups[role] for role in ("longest", "alone")})
    gone = shorten("compile", other, other=fixes.COMPILED_OTHERS)
    shorter = shorten("compile", kept, longest=fixes.COMPILED_LONGEST)
    if not launches:
        return gone, shorter
    stay, go = map(range_of, (fixes.COMPILED_LAUNCHES, fixes.COMPILED_LAUNCHES_GONE))
    return replace(gone, launches_saved=go), replace(shorter, launches_saved=stay)


@dataclass(frozen=True, slots=True, eq=False)
class EnterRegions(EditedChange):
    """Compiled layers, each of which is a region: guards are asked and a wrapper is passed before the launch of each of
    the `rows` of `device_ops`, where layers start; where it `trains`, another wrapper leads to its gradient."""

    touches: ClassVar[Touches] = Touches.HOST
    label: ClassVar[str] = "enter-regions"
    device: tuple[int, int]
    rows: Int64Array
    trains: bool

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        entered = np.isin(graph.rows_of_ops(), self.rows)
        launches = fixes.REGION_TRAINED if self.trains else fixes.REGION_ENTERED
        edit.slow_launches(entered, np.full(entered.size, launches.at(case)), np.zeros_like(entered))
