"""Changes to a program that a graph can replay: one class per fix, several at once, and changes as text.

A line such as `scale kernel:.*gemm.* 0.5` names a verb, its target and its figures; `GRAMMAR` has a form per verb.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Final

from timesink.errors import UsageError
from timesink.model.record import dataclass
from timesink.whatif.change import EVERYTHING, Case, Change, Range, Target, Touches
from timesink.whatif.changes.host import CaptureGraph, DropOperator, FeedLoader, RemoveSyncs, ScaleHost
from timesink.whatif.changes.kernels import KernelFix, ScaleKernels
from timesink.whatif.changes.transfers import OverlapCollectives, PinCopies
from timesink.whatif.graph import Graph


@dataclass(frozen=True, slots=True)
class Together:
    """Changes made one after another. What they win together is less than the sum where they win the same time."""

    changes: tuple[Change, ...]

    @property
    def label(self) -> str:
        """The changes in one line."""
        return "all together: " + ", ".join(change.label for change in self.changes)

    @property
    def touches(self) -> Touches:
        """Whose time they take away: both sides', unless all take the same side's."""
        sides = {change.touches for change in self.changes}
        return sides.pop() if len(sides) == 1 else Touches.BOTH

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after all of them."""
        for change in self.changes:
            graph = change.rewrite(graph, case)
        return graph


GRAMMAR: Final = {
    "scale": "scale kernel:REGEX FACTOR, or collective:, op:, range:, frame: — how long its device work runs",
    "scale-host": "scale-host op:REGEX FACTOR, or range:, frame:, call: — how long its host time takes",
    "remove-sync": "remove-sync [op:REGEX | range: | call:] — waits that go",
    "pin-copies": "pin-copies [d2h] [TARGET] — pageable copies to the device (or host) by pinned memory, overlapped",
    "feed-loader": "feed-loader [range:REGEX] [workers=N] — batches that come from workers",
    "fuse-optimizer": "fuse-optimizer [range:REGEX] — one fused optimizer step",
    "fuse-pointwise": "fuse-pointwise [kernel:REGEX] — runs of pointwise kernels as one",
    "capture-graph": "capture-graph [range:REGEX] — host time between waits as graph launches",
    "precision": "precision bf16|fp16|tf32|fp32 [kernel:REGEX] — FP32 matrix products, or FP64, in a narrower type",
    "fuse-attention": "fuse-attention — attention written out as one kernel",
    "drop-casts": "drop-casts — casts between floating types that nobody needs",
    "keep-layout": "keep-layout — copies and conversions that only change a layout",
    "align-products": "align-products — products of operands padded to 16 bytes",
    "spread-grids": "spread-grids — kernels with too few blocks over all multiprocessors",
    "overlap-streams": "overlap-streams — streams that take turns at once",
    "streams": "streams [kernel:REGEX] N, or range:, op:, frame: — small kernels of one stream on N streams",
    "join-graphs": "join-graphs — compiled pieces as one graph",
    "overlap": "overlap [collective:REGEX] — collectives beside computation",
    "drop": "drop op:REGEX, or range:, kernel: — what should not happen at all",
}


_MOST_STREAMS: Final = 128  # grids that a device runs at once


def parse_change(text: str) -> Change | KernelFix:
    """The change that a line of text names; raises `UsageError` with the grammar where it names none."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        verb, *words = list(lexer) or [""]
    except ValueError as error:
        raise UsageError(f"the change {text!r} has an open quotation: {error}") from error
    if verb not in GRAMMAR:
        raise UsageError(f"{verb!r} is no change", remedy="choose from: " + "; ".join(GRAMMAR.values()))
    return _PARSERS[verb](words)


def _target(words: list[str], verb: str) -> Target | None:
    if len(words) > 1:
        raise UsageError(f"{verb} takes one target, not {' '.join(words)!r}", remedy=f"write {GRAMMAR[verb]}")
    return Target.parse(words[0]) if words else None


def _factored(words: list[str], verb: str) -> tuple[Target, float]:
    if len(words) != 2:
        raise UsageError(f"{verb} takes a target and a factor", remedy=f"write {GRAMMAR[verb]}")
    try:
        factor = float(words[1])
    except ValueError as error:
        raise UsageError(f"{words[1]!r} is no factor", remedy="write a number such as 0.5") from error
    if not 0 <= factor <= 1:
        raise UsageError(f"the factor {factor:g} is not between 0 and 1", remedy="price what takes less time, not more")
    return Target.parse(words[0]), factor


def _scale(words: list[str]) -> Change:
    target, factor = _factored(words, "scale")
    return ScaleKernels(target, Range.exact(factor))


def _drop(words: list[str]) -> Change:
    target = _target(words, "drop")
    if target is None:
        raise UsageError("drop needs a target", remedy=f"write {GRAMMAR['drop']}")
    return DropOperator(target)


def _pin_copies(words: list[str]) -> Change:
    to_host = words[:1] == ["d2h"]
    target = _target(words[to_host:], "pin-copies") or EVERYTHING
    return PinCopies(target, "d2h" if to_host else "h2d")


def _feed_loader(words: list[str]) -> Change:
    counts = [w.removeprefix("workers=") for w in words if w.startswith("workers=")]
    target = _target([w for w in words if not w.startswith("workers=")], "feed-loader")
    if any(not c.isdigit() or int(c) < 1 for c in counts):
        raise UsageError(f"{counts[-1]!r} is no number of workers", remedy="write workers=4")
    workers = int(counts[-1]) if counts else None
    return FeedLoader(workers=workers) if target is None else FeedLoader(target, workers)


def _precision(words: list[str]) -> KernelFix:
    known = ("bf16", "fp16", "tf32", "fp32")
    if not words or words[0] not in known:
        raise UsageError("precision needs a type", remedy=f"choose from {', '.join(known)}")
    target = _target(words[1:], "precision")
    if target is not None and words[0] == "fp32":
        raise UsageError("precision fp32 takes no target", remedy="leave it out: it is for all kernels in FP64")
    return KernelFix("precision " + words[0].replace("fp16", "bf16"), target)  # types of 16 bits move and compute alike


def _streams(words: list[str]) -> KernelFix:
    if not words or not words[-1].isdigit() or not 2 <= int(words[-1][:4]) <= _MOST_STREAMS:
        raise UsageError(f"streams needs a number from 2 to {_MOST_STREAMS}", remedy=f"write {GRAMMAR['streams']}")
    return KernelFix("streams", _target(words[:-1], "streams"), int(words[-1]))


def _found(verb: str) -> Callable[[list[str]], KernelFix]:
    def parse(words: list[str]) -> KernelFix:
        if words:
            raise UsageError(f"{verb} takes no target, not {' '.join(words)!r}", remedy=f"write {GRAMMAR[verb]}")
        return KernelFix(verb)

    return parse


def _optional(make: Callable[[], Change], made: Callable[[Target], Change], verb: str) -> Callable[[list[str]], Change]:
    def parse(words: list[str]) -> Change:
        target = _target(words, verb)
        return make() if target is None else made(target)

    return parse


_PARSERS: Final[dict[str, Callable[[list[str]], Change | KernelFix]]] = {
    "scale": _scale,
    "scale-host": lambda words: ScaleHost(*_factored(words, "scale-host")),
    "remove-sync": _optional(RemoveSyncs, RemoveSyncs, "remove-sync"),
    "pin-copies": _pin_copies,
    "feed-loader": _feed_loader,
    "fuse-optimizer": lambda words: KernelFix("fuse-optimizer", _target(words, "fuse-optimizer")),
    "fuse-pointwise": lambda words: KernelFix("fuse-pointwise", _target(words, "fuse-pointwise")),
    "capture-graph": _optional(CaptureGraph, CaptureGraph, "capture-graph"),
    "precision": _precision,
    "streams": _streams,
    "overlap": _optional(OverlapCollectives, OverlapCollectives, "overlap"),
    "drop": _drop,
    **{verb: _found(verb) for verb, form in GRAMMAR.items() if form.startswith(f"{verb} —")},
}
