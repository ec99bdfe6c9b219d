"""The table of fixes: every row there is, and changes as text.

`diagnose`, `what-if`, `plan`, the report and the MCP server read it; nothing else lists fixes. To add one, add a row to
the file of its topic; to let one answer the findings of one more rule, add the rule's name to its `answers`.

Changes as text, as they follow `--change`, are the name of a row or of an edit of the engine, then a target and
numbers: ``scale kernel:.*gemm.* 0.5``, ``fused_attention``, ``streams range:heads 4``. A cause that no row answers
names the change of its findings.
"""

import shlex
from collections.abc import Mapping
from typing import Any, Final

from timesink.errors import UsageError, did_you_mean
from timesink.fixes import Fix, Verb, advised, compute, on_rank, take_factor, transfers, work
from timesink.knowledge.programs import ProgramKind
from timesink.knowledge.step_parts import Bottleneck
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


_WORK: Final = "kernel:REGEX FACTOR, or collective:, op:, range:, frame:"
EDITS: Final = (
    Fix(
        Words("scale"),
        verb=Verb(_WORK, "how long its GPU work runs", options=take_factor),
        change=lambda target, factor: ScaleKernels(target, Range.exact(factor)),
    ),
    Fix(
        Words("scale_host"),
        verb=Verb("op:REGEX FACTOR, or range:, frame:, call:", "how long its CPU time takes", options=take_factor),
        change=ScaleHost,
    ),
    Fix(
        Words("drop"),
        verb=Verb("op:REGEX, or range:, kernel:", "what should not happen at all"),
        change=DropOperator,
    ),
)
"""What the what-if engine can do to any part of a program: no fix by itself."""

_TAKES_NOTHING: Final = Verb("", "")
GRAMMAR: Final[Mapping[str, Fix]] = {
    **{
        cause.value: Fix(Words(cause.value))
        for cause in Bottleneck
        if cause not in (Bottleneck.NONE, Bottleneck.UNDECIDED)
    },
    **{name: fix for fix in (*FIXES, *EDITS) for name in (fix.name, (fix.verb or _TAKES_NOTHING).also) if name},
}
"""Every name that a change is typed by: its own, in all that timesink prints; another of before; that of a cause."""

OF_A_LAYER: Final = ("cuda_graph", "fuse_pointwise", "streams 2", "tune_matmuls")
"""The actions that people take on one layer."""


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


_PLAIN: Final = {_plain(name): name for name in GRAMMAR}


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
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise UsageError(f"the change {text!r} has an open quotation: {error}") from error
    names = (" ".join(words[:2]), " ".join(words[:1]))
    name = next((name for name in names if _plain(name) in _PLAIN), None)
    if name is None:
        near = did_you_mean(_plain(names[1]), {_plain(fix.name): fix.name for fix in GRAMMAR.values()})
        raise UsageError(f"unknown change {names[1]!r}", remedy=f"{near} `timesink plan` lists all".lstrip())
    fix = GRAMMAR[_PLAIN[_plain(name)]]
    verb, rest = fix.verb or _TAKES_NOTHING, words[len(name.split()) :]
    if verb.options:
        rest, options = verb.options(rest)
    else:
        options = {}
    most = 1 if verb.takes else 0
    if len(rest) > most:
        count = "one target" if most else "no target"
        raise UsageError(f"{name} takes {count}, not {' '.join(rest)!r}", remedy=f"write {fix.form}")
    if most and not rest and not verb.takes.startswith("["):
        raise UsageError(f"{name} needs a target", remedy=f"write {fix.form}")
    return Asked(
        fix, " ".join((fix.name, *words[len(name.split()) :])), Target.parse(rest[0]) if rest else None, options
    )
