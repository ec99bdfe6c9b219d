"""The table of fixes, read from `table.md`: `table.BF16` is the row ``bf16``.

`diagnose`, `what-if`, `plan`, the report and the MCP server read it; nothing else lists fixes. To add one, add a
section; to let one answer the findings of one more rule, add the rule's name to its `Answers`.

Changes as text, as they follow `--change`, are a verb of its rows or of the engine's edits, then a target and numbers:
``scale kernel:.*gemm.* 0.5``, ``fuse-attention``, ``streams range:heads 4``.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import timesink.fixes
from timesink.errors import UsageError
from timesink.fixes import Effort, Fix, Offer, Verb, on_rank, replays, take_factor
from timesink.knowledge.assumptions import fixes
from timesink.knowledge.programs import ProgramKind
from timesink.measures import compile as graphs
from timesink.measures.compile import BrokenGraphs
from timesink.measures.kernels import attainable, conversions, fusion, one_stream, precision, shapes
from timesink.measures.kernels import small_grids as grids
from timesink.model.trace import Trace
from timesink.records import Record, replace
from timesink.whatif import EVERYTHING, Change, Range, Selection, Target
from timesink.whatif.changes import host, kernels, transfers
from timesink.whatif.changes.host import LOADER, DropOperator, ScaleHost
from timesink.whatif.changes.kernels import FuseOptimizer, ScaleKernels, ShortenKernels, shorten
from timesink.whatif.changes.transfers import COLLECTIVES


def everything(_: Trace) -> tuple[Target, ...]:
    """All that such a change can be made of."""
    return (EVERYTHING,)


def loader(_: Trace) -> tuple[Target, ...]:
    """Whatever loads batches."""
    return (LOADER,)


def collectives(_: Trace) -> tuple[Target, ...]:
    """All exchanges."""
    return (COLLECTIVES,)


def unfused_steps(trace: Trace) -> Iterator[Selection]:
    """Kernels of optimizers that are not fused."""
    return (step.unfused for step in fusion.optimizer_kernels(trace) if step.takes_fused)


def single_steps(trace: Trace) -> Iterator[Selection]:
    """Those of optimizers that go from parameter to parameter."""
    return (step.unfused for step in fusion.optimizer_kernels(trace) if step.one_by_one and step.takes_fused)


def serial_streams(trace: Trace) -> Iterator[Selection]:
    """Kernels of streams that take turns."""
    return (streams.kernels for streams in grids.serialized_streams(trace))


def fuse_named_optimizer(trace: Trace, target: Target) -> Iterator[Change]:
    """The kernels that a target names, as one fused optimizer step."""
    return (FuseOptimizer.of(part, target) for part in replays.named_kernels("unfused", trace, target))


def fuse_named_runs(trace: Trace, target: Target) -> Iterable[Change]:
    """The kernels that a target names, run by run as one."""
    return map(replays.fuse_pointwise, replays.named_runs(trace, target))


def narrow_fp64(found: Selection) -> ShortenKernels:
    """Kernels in FP64 in FP32."""
    return shorten(found, floored=True, fp64=fixes.FP64_AS_FP32, products=fixes.FP64_PRODUCTS_AS_FP32)


def drop_casts(found: Selection) -> ShortenKernels:
    """Casts, and what stays of each kind."""
    return shorten(found, needless=fixes.CASTS_NEEDLESS, summed=fixes.CASTS_SUMMED, loss=fixes.LOSS_NARROWED)


def join_pieces(pieces: BrokenGraphs) -> ShortenKernels:
    """Compiled pieces as one graph."""
    return replays.join_graphs(pieces.kernels, pieces.entries, pieces.beyond)


def drop_host(target: Target) -> ScaleHost:
    """None of the host's time that a target names."""
    return ScaleHost(target, 0.0)


def no_products(_: Trace, __: Target | None) -> str:
    """Why no product is changed."""
    return "no product is known to be below what it can attain; capture shapes to tell"


_MODULES: Final[tuple[ModuleType, ...]] = (
    timesink.fixes, replays, graphs, attainable, conversions, fusion, one_stream, precision, shapes, grids, host,
    kernels, transfers,
)  # fmt: skip


def _named(name: str) -> Callable[..., Any]:
    """The function, class or class method of that name."""
    first, _, method = name.partition(".")
    found: Any = next(names[first] for names in (globals(), *map(vars, _MODULES)) if first in names)
    function: Callable[..., Any] = getattr(found, method) if method else found
    return function


def _finder(text: str) -> Callable[[Trace], Iterable[Any]]:
    name, _, group = text.partition(" ")
    find = _named(name)
    return (lambda trace: find(trace)[group]) if group else find


def _aim(text: str, change: Callable[..., Any]) -> Callable[..., Iterable[Change]]:
    name, _, group = text.partition(" ")
    select = _named(name)
    return (lambda trace, target: map(change, select(group, trace, target))) if group else select


def _beside(text: str) -> Callable[..., Iterable[Change]]:
    name, _, kind = text.partition(" ")
    return partial(_named(name), kind=kind) if kind else _named(name)


def _read(section: str) -> Fix:
    """The row that a section of `table.md` is. `KeyError` and the like for what no row can have."""
    head, _, entries = section.partition("\n\n")
    name, _, what_to_type = head.partition("\n")
    said = dict(line.removeprefix("- ").split(": ", 1) for line in entries.splitlines() if line.startswith("- "))
    fields: dict[str, Any] = {"what_to_type": what_to_type}
    if verb := said.pop("Verb", ""):
        options = _named(said.pop("Options")) if "Options" in said else None
        fields["verb"] = Verb(verb, said.pop("Takes", ""), said.pop("Prices"), options=options)
    change = fields["change"] = _named(said.pop("Change", "_as_found"))
    readers: dict[str, Callable[[str], Any]] = {
        "Effort": lambda text: Effort[text.upper()],
        "Offer": lambda text: Offer[text.upper()],
        "Costs": str,
        "Elsewhere": str,
        "Memory": str,
        "Find": _finder,
        "Aim": lambda text: _aim(text, change),
        "Beside": _beside,
        "Unless": _named,
    }
    for key, text in said.items():
        if key == "Is":
            fields |= {flag.replace(" ", "_"): True for flag in text.split(", ")}
        else:
            read = readers.get(key)
            field = "none" if key == "Unless" else key.lower()
            fields[field] = read(text) if read else tuple(text.split(", "))
    return Fix(name, **fields)


FIXES: Final = tuple(map(_read, Path(__file__).with_suffix(".md").read_text(encoding="utf-8").split("\n## ")[1:]))
"""All rows."""
BY_NAME: Final = {row.name: row for row in FIXES}


def fixes_of(program: ProgramKind) -> tuple[Fix, ...]:
    """The rows that can be made in a kind of program, in its words."""
    if program is ProgramKind.PYTORCH:
        return FIXES
    rows = [row for row in FIXES if not row.of_pytorch]
    names = {row.name for row in rows}

    def own(row: Fix) -> Fix:
        subsumes, excludes = (tuple(filter(names.__contains__, others)) for others in (row.subsumes, row.excludes))
        return replace(row, what_to_type=row.elsewhere or row.what_to_type, subsumes=subsumes, excludes=excludes)

    return tuple(map(own, rows))


globals().update({name.upper(): row for name, row in BY_NAME.items()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Fix: ...


_WORK: Final = "kernel:REGEX FACTOR, or collective:, op:, range:, frame:"
EDITS: Final = (
    Fix(
        "scale",
        verb=Verb("scale", _WORK, "how long its GPU work runs", options=take_factor),
        change=lambda target, factor: ScaleKernels(target, Range.exact(factor)),
    ),
    Fix(
        "scale-host",
        verb=Verb(
            "scale-host",
            "op:REGEX FACTOR, or range:, frame:, call:",
            "how long its CPU time takes",
            options=take_factor,
        ),
        change=ScaleHost,
    ),
    Fix(
        "drop", verb=Verb("drop", "op:REGEX, or range:, kernel:", "what should not happen at all"), change=DropOperator
    ),
)
"""What the what-if engine can do to any part of a program: no fix by itself."""

GRAMMAR: Final[Mapping[str, tuple[Fix, Verb]]] = {
    name: (fix, fix.verb) for fix in (*FIXES, *EDITS) if fix.verb for name in (fix.verb.name, fix.verb.also) if name
}
"""Every verb."""

OF_A_LAYER: Final = ("capture-graph", "fuse-pointwise", "streams 2", "tune-products")
"""The actions that people take on one layer."""


class Asked(Record, eq=False):
    """A fix as text asks for it; `label` is that text. Without a target it changes what the rules find in a trace."""

    fix: Fix
    label: str
    target: Target | None
    options: Mapping[str, Any]

    def changes(self, trace: Trace, rank: int) -> tuple[Change, ...]:
        """What it changes on each device of a rank; none where nothing there is to be changed."""
        fix, target = self.fix, self.target
        if target is not None and fix.aim is not None:
            return on_rank(fix.aim(trace, target, **self.options), rank)
        found = (target,) if target is not None else fix.find(trace) if fix.find else ()
        return on_rank((fix.change(one, **self.options) for one in found), rank)


def parse_change(text: str) -> Asked:
    """The fix or edit that a line of text names; raises `UsageError` with the grammar where it names none."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise UsageError(f"the change {text!r} has an open quotation: {error}") from error
    names = (" ".join(words[:2]), " ".join(words[:1]))
    name = next((name for name in names if name in GRAMMAR), None)
    if name is None:
        forms = dict.fromkeys(f"{verb.form} — {verb.prices}" for _, verb in GRAMMAR.values())
        near = [form for form in forms if words and form.startswith(f"{words[0]} ")]
        raise UsageError(f"unknown change {names[bool(not near)]!r}", remedy=f"choose from: {'; '.join(near or forms)}")
    fix, verb = GRAMMAR[name]
    rest = words[len(name.split()) :]
    if verb.options:
        rest, options = verb.options(rest)
    else:
        options = {}
    most = 1 if verb.takes else 0
    if len(rest) > most:
        count = "one target" if most else "no target"
        raise UsageError(f"{name} takes {count}, not {' '.join(rest)!r}", remedy=f"write {verb.form}")
    if most and not rest and not verb.takes.startswith("["):
        raise UsageError(f"{name} needs a target", remedy=f"write {verb.form}")
    return Asked(fix, " ".join(words), Target.parse(rest[0]) if rest else None, options)
