"""The table of fixes, read from `table.md`: `table.BF16` is the row ``bf16``.

`diagnose`, `what-if`, `plan`, the report and the MCP server read it; nothing else lists fixes. To add one, add a
section; to let one answer the findings of one more rule, add the rule's name to its `Answers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from timesink.fixes import fix, replays
from timesink.fixes.fix import Effort, Fix, Offer, Verb
from timesink.knowledge.assumptions import fixes
from timesink.knowledge.programs import ProgramKind
from timesink.measures.compile import graphs
from timesink.measures.compile.graphs import BrokenGraphs
from timesink.measures.kernels import (
    attainable,
    conversions,
    fusion,
    one_stream,
    precision,
    shapes,
)
from timesink.measures.kernels import (
    small_grids as grids,
)
from timesink.model.trace import Trace
from timesink.startup import replace
from timesink.whatif.change import EVERYTHING, Change, Selection, Target
from timesink.whatif.changes import host, kernels, transfers
from timesink.whatif.changes.host import LOADER, ScaleHost
from timesink.whatif.changes.kernels import FuseOptimizer, ShortenKernels, shorten
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
    return (step.unfused for step in fusion.optimizer_kernels(trace))


def single_steps(trace: Trace) -> Iterator[Selection]:
    """Those of optimizers that go from parameter to parameter."""
    return (step.unfused for step in fusion.optimizer_kernels(trace) if step.one_by_one)


def serial_streams(trace: Trace) -> Iterator[Selection]:
    """Kernels of streams that take turns."""
    return (streams.serial for streams in grids.serialized_streams(trace))


def fuse_named_optimizer(trace: Trace, target: Target) -> Iterator[Change]:
    """The kernels that a target names, as one fused optimizer step."""
    return (FuseOptimizer.of(part, target) for part in replays.named_kernels("unfused", trace, target))


def fuse_named_runs(trace: Trace, target: Target) -> Iterable[Change]:
    """The kernels that a target names, run by run as one."""
    return map(replays.fuse_pointwise, replays.named_runs(trace, target))


def narrow_fp64(found: Selection) -> ShortenKernels:
    """Kernels in FP64 in FP32."""
    return shorten(found, floored=True, fp64=fixes.FP64_AS_FP32)


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
    replays, fix, graphs, attainable, conversions, fusion, one_stream, precision, shapes, grids, host, kernels,
    transfers,
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
