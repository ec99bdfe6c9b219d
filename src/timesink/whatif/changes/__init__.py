"""Changes to a program that a graph can replay: one class per row of the table of fixes."""

from __future__ import annotations

from timesink.whatif.changes.case import Case, Change, Range, Touches
from timesink.whatif.changes.communication import OverlapCollectives
from timesink.whatif.changes.copies import PinCopies
from timesink.whatif.changes.host import CaptureGraph, DropOperator, FeedLoader, RemoveSyncs, ScaleHost
from timesink.whatif.changes.kernels import ChangePrecision, FuseOptimizer, FusePointwise, ScaleKernels
from timesink.whatif.changes.together import Together

__all__ = [
    "CaptureGraph",
    "Case",
    "Change",
    "ChangePrecision",
    "DropOperator",
    "FeedLoader",
    "FuseOptimizer",
    "FusePointwise",
    "OverlapCollectives",
    "PinCopies",
    "Range",
    "RemoveSyncs",
    "ScaleHost",
    "ScaleKernels",
    "Together",
    "Touches",
]
