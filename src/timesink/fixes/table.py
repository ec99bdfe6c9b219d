"""The table of fixes: every row there is, and changes as text.

`diagnose`, `what-if`, `plan`, the report and the MCP server read it; nothing else lists fixes. To add one, add a row to
the file of its topic; to let one answer the findings of one more rule, add the rule's name to its `answers`.

Changes as text, as they follow `--change`, are a verb of its rows or of the engine's edits, then a target and numbers:
``scale kernel:.*gemm.* 0.5``, ``fuse-attention``, ``streams range:heads 4``.
"""

import shlex
from collections.abc import Mapping
from typing import Any, Final

from timesink.errors import UsageError
from timesink.fixes import Fix, Verb, advised, compute, on_rank, take_factor, transfers, work
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


_WORK: Final = "kernel:REGEX FACTOR, or collective:, op:, range:, frame:"
EDITS: Final = (
    Fix(
        Words("scale"),
        verb=Verb("scale", _WORK, "how long its GPU work runs", options=take_factor),
        change=lambda target, factor: ScaleKernels(target, Range.exact(factor)),
    ),
    Fix(
        Words("scale-host"),
        verb=Verb(
            "scale-host",
            "op:REGEX FACTOR, or range:, frame:, call:",
            "how long its CPU time takes",
            options=take_factor,
        ),
        change=ScaleHost,
    ),
    Fix(
        Words("drop"),
        verb=Verb("drop", "op:REGEX, or range:, kernel:", "what should not happen at all"),
        change=DropOperator,
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
