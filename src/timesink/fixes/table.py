"""The table of fixes: every row there is, and changes as text.

`diagnose`, `what-if`, `plan`, the report and the MCP server read it; nothing else lists fixes. To add one, add a row to
the file of its topic; to let one answer the findings of one more rule, add the rule's name to its `answers`.

Changes as text, as they follow `--change`, are the name of a row or of an edit of the engine, then a target and
numbers: ``scale kernel:.*gemm.* 0.5``, ``fused_attention``, ``streams range:heads 4``. A cause that no row answers
names the change of its findings.
"""

from collections.abc import Mapping
from typing import Any, Final

from timesink.fixes import Fix, advised, compute, on_rank, transfers, work
from timesink.fixes.grammar import typed_change
from timesink.knowledge.programs import ProgramKind
from timesink.model.trace import Trace
from timesink.recipes import Words
from timesink.recipes.table import RECIPES
from timesink.records import Record, replace
from timesink.whatif import Change, Range, Target
from timesink.whatif.changes.host import DropOperator, ScaleHost
from timesink.whatif.changes.kernels import ScaleKernels

_ROWS: Final = tuple(
    row for rows in (compute, transfers, work, advised) for row in vars(rows).values() if isinstance(row, Fix)
)
_TRIED: Final = set(RECIPES) - {row.name for row in _ROWS}
FIXES: Final = (*_ROWS, *(Fix(recipe, of_pytorch=True) for name, recipe in RECIPES.items() if name in _TRIED))
"""All rows, in the order in which a plan lists and replays them; then recipes of which no trace foretells anything."""
BY_NAME: Final = {row.name: row for row in FIXES}


def fixes_of(program: ProgramKind) -> tuple[Fix, ...]:
    """The rows that can be made in a kind of program, in its words."""
    if program is ProgramKind.PYTORCH:
        return FIXES
    rows = [row for row in FIXES if not row.of_pytorch]
    names = {row.name for row in rows}

    def own(row: Fix) -> Fix:
        subsumes, excludes = (tuple(filter(names.__contains__, others)) for others in (row.subsumes, row.excludes))
        words = replace(row.words, title=row.elsewhere or row.title)
        return replace(row, words=words, subsumes=subsumes, excludes=excludes)

    return tuple(map(own, rows))


EDITS: Final = (
    Fix(Words("scale"), change=lambda target, factor: ScaleKernels(target, Range.exact(factor))),
    Fix(Words("scale_host"), change=ScaleHost),
    Fix(Words("drop"), change=DropOperator),
)
"""What the what-if engine can do to any part of a program: no fix by itself."""
_NAMED: Final = {fix.name: fix for fix in (*FIXES, *EDITS)}

OF_A_LAYER: Final = ("cuda_graph", "fuse_pointwise", "streams 2", "tune_matmuls")
"""The actions that people take on one layer."""


class Asked(Record, eq=False):
    """A fix as text asks for it; `label` is that text, with the fix's own name. Without a target it changes what the
    rules find in a trace."""

    fix: Fix
    label: str
    target: Target | None
    options: Mapping[str, Any]

    @property
    def is_whole(self) -> bool:
        """Whether it is the fix as a plan has it: nothing is said of where, or how much."""
        return self.target is None and not self.options

    def changes(self, trace: Trace, rank: int) -> tuple[Change, ...]:
        """What it changes on each device of a rank; none where nothing there is to be changed."""
        fix, target = self.fix, self.target
        if target is not None and fix.aim is not None:
            return on_rank(fix.aim(trace, target, **self.options), rank)
        found = (target,) if target is not None else fix.find(trace) if fix.find else ()
        return on_rank((fix.change(one, **self.options) for one in found), rank)


def parse_change(text: str) -> Asked:
    """The fix or edit that a line of text names; raises `UsageError` with the grammar where it names none."""
    typed = typed_change(text)
    fix = _NAMED.get(typed.name) or Fix(Words(typed.name))  # a cause that no row answers
    return Asked(fix, typed.label, Target.parse(typed.target) if typed.target else None, typed.options)
