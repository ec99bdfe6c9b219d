"""The one judge of rules that are a pattern, its limits and its words.

Such a rule is declared (`declare`), and has no code of its own but for its pattern: `rows` measures a trace, one row
for each place that it looks at (a device's casts, its idle time of one cause, an operator, the memory of a GPU). A row
whose figures pass every limit becomes a finding; the others say in a `Clear` which limit they miss, and by how much.

Texts are templates. ``{device}`` is a figure of the row or one that the judge adds, ``{idle_ns:time}`` one in words;
what stands in square brackets is left out where a figure in it is None or empty; ``{fixes.grids_spread}`` is an assumed
figure as this run assumes it (`assumptions.fill_figures`), so that a sentence cannot say another one than was used.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from string import Formatter
from typing import Any, Final

from timesink.diagnosis.places import place_of
from timesink.diagnosis.rule import Fact, Limits, Rule, Texts, make_rule, rule_texts
from timesink.diagnosis.verdicts import (
    Claim,
    Clear,
    Evidence,
    Finding,
    Found,
    NotApplicable,
    OfPeriod,
    Quantity,
    Undecided,
    Verdict,
    Where,
)
from timesink.diagnosis.words import of_period
from timesink.fixes import Fix
from timesink.knowledge.figures import OPTIONAL_PART, fill_figures
from timesink.knowledge.step_parts import Bottleneck
from timesink.measures.steps.per_step import per_step_ns
from timesink.measures.timeline import Device
from timesink.measures.timeline.known import known
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.records import Record, field, replace
from timesink.units import NS_PER_MS, bytes_text, share_text, time_text
from timesink.whatif import Case, Change
from timesink.whatif.changes.kernels import ShortenKernels


class Row(Record, eq=False):
    """One place that a rule looks at, with what was measured there.

    `figures` are what limits are compared with, and what texts name; one that costs time may be a function, which is
    called where the figure is asked for. `time` is the device time that a sentence is about; without it, that in which
    any of `kernels` runs. A finding claims `claim`, or else what `kernels` save at best (without kernels, `time`) and
    `also`. `where` may be found when it is asked for; without it, it is the place of most of the time that the kernels
    lose. Texts of the rule's `variant` are figures too, and are said in place of the rule's of that name. A limit is
    asked of rows that have its figure; of one whose `verdict` is there none is asked: it is a finding, or it is not.
    `compared` are the row's own limits in place of the rule's, `advice` a text in place of the rule's, or the variant
    whose it is. `fix` and `bottleneck` are there where they are others than the rule's. `rows` of
    the first fact's table are the longest of the kernels by default; `others_rows` are those of the other facts.
    `cause` and `behind` are as of a `Finding`.
    """

    device: Device
    figures: Mapping[str, Any]
    time: Intervals | None = None
    kernels: ShortenKernels | None = None
    change: Change | None = None
    fix: Fix | None = None
    also: Intervals | None = None
    claim: Claim | None = None
    stated: Quantity | None = None
    where: Where | Callable[[], Where] | None = None
    rows: tuple[int, ...] | None = None
    bottleneck: Bottleneck | None = None
    variant: str = ""
    verdict: bool | None = None
    compared: Mapping[str, float] = field(default_factory=dict)
    advice: str = ""
    others_rows: tuple[int, ...] = ()
    cause: str = ""
    behind: float = 1.0


Rows = Iterable[Row] | Clear | NotApplicable | Undecided
Details = Callable[[Trace, Row, Mapping[str, Any]], tuple[Mapping[str, Any], tuple[Evidence, ...]]]
"""More figures for the sentence, and more evidence, that only a finding needs; it takes all figures known so far."""


class DeclaredRule(Record, eq=False):
    """A rule as it was declared: see `declare`."""

    rows: Callable[..., Rows]
    texts: Texts
    details: Details | None
    most: int | None
    fix: Fix | None
    asks_limits: bool

    def judge(self, trace: Trace, limits: Limits) -> Verdict:
        """The verdict on a trace, in words of its kind of program."""
        rows = self.rows(trace, limits) if self.asks_limits else self.rows(trace)
        if isinstance(rows, Clear | NotApplicable | Undecided):
            return rows
        told = replace(self, texts=self.texts.told_to(known(trace).program))
        findings: list[Finding] = []
        missed: list[tuple[Evidence, ...]] = []
        refused: list[str] = []
        subject = fill_figures(told.texts.said.get("subject", ""))
        for row in rows:
            of_variant = told.texts.variants.get(row.variant, {})
            figures = {"device": row.device[1], "subject": subject, **of_variant, **row.figures}
            figures["noun"] = figures["subject"].rstrip(",")
            if not row.verdict and (facts := told._miss(limits, figures, row.verdict is False)):
                missed.append(tuple([told._evidence(trace, limits, row, figures, fact) for fact in facts]))
            elif why := self._refused(trace, row):
                refused.append(why)
            else:
                findings.append(told._finding(trace, limits, row, figures))
        if findings:
            return Found(tuple(findings))
        if refused:
            return NotApplicable(refused[0])
        if told.texts.said.get("otherwise", "") and not missed:
            return NotApplicable(fill_template(told.texts.said["otherwise"], {"noun": subject.rstrip(",")}))
        return Clear(tuple(dict.fromkeys(chain.from_iterable(missed[: self.most]))))

    def _refused(self, trace: Trace, row: Row) -> str:
        """Why the advice of a row cannot be followed: its fix asks the trace."""
        fix = row.fix or self.fix
        return fix.refused(trace) if fix else ""

    def _miss(self, limits: Limits, figures: dict[str, Any], is_clear: bool) -> tuple[Fact, ...]:
        """What to show where figures miss a limit, the first fact's the last one asked; none where they pass all."""
        main = next(fact for fact in self.texts.facts if fact.figure in figures)
        if is_clear:
            return tuple(dict.fromkeys((main, *self.texts.always)))
        for name in sorted(filter(figures.__contains__, self.texts.limits), key=main.figure.__eq__):
            if callable(figures[name]):
                figures[name] = figures[name]()
            if not self.texts.limits[name].is_passed(figures[name], limits[name]):
                return tuple(dict.fromkeys((self.texts.of_figure.get(name, main), *self.texts.always)))
        return ()

    def _finding(self, trace: Trace, limits: Limits, row: Row, figures: dict[str, Any]) -> Finding:
        time = row.time if row.kernels is None or row.time is not None else row.kernels.whole(trace)
        if time is not None:
            time_ns = per_step_ns(trace, row.device, time)
            figures |= {
                "time": of_period(trace, row.device, time_ns),
                "time_ns": time_ns,
                "time_ms": time_ns / NS_PER_MS,
            }
        more: tuple[Evidence, ...] = ()
        if self.details is not None:
            others, more = self.details(trace, row, figures)
            figures |= others
        facts = [fact for fact in self.texts.facts if fact.shown != "missed" and figures.get(fact.figure) is not None]
        of_variant = self.texts.variants.get(row.variant, {})
        said = {**self.texts.said, **of_variant}
        if (words := of_variant.get("words")) is not None and figures["words"] == words:
            figures["words"] = fill_template(words, figures)
        where = row.where() if callable(row.where) else row.where
        if where is None:
            rank, device = row.device
            where = place_of(trace, row.kernels) if row.kernels is not None else Where(rank=rank, device=device)
        return Finding(
            message=fill_template(said["message"], figures),
            bottleneck=row.bottleneck or Bottleneck(said["bottleneck"]),
            where=where,
            evidence=(*[self._evidence(trace, limits, row, figures, fact) for fact in facts], *more),
            advice=said_advice(self.texts, row.variant, row.advice, figures),
            verify=fill_template(said["verify"], figures),
            claim=row.claim or _claim(trace, row),
            change=row.change,
            fix=row.fix or (self.fix if row.change is not None else None),
            stated=row.stated,
            cause=row.cause,
            parts=tuple(figure for figure in figures.values() if isinstance(figure, OfPeriod)),
            behind=row.behind,
        )

    def _evidence(self, trace: Trace, limits: Limits, row: Row, figures: Mapping[str, Any], fact: Fact) -> Evidence:
        compared = row.compared.get(fact.figure)
        if compared is None and fact.figure in self.texts.limits:
            compared = limits[fact.figure]
        limit = None if compared is None else Quantity(compared, fact.unit)
        rows = row.rows or ()
        if fact is not self.texts.facts[0]:
            rows = row.others_rows
        elif row.rows is None and row.kernels is not None:
            rows = row.kernels.longest(trace)
        label, how = fill_template(fact.label, figures), fill_template(fact.how, figures)
        return Evidence(label, Quantity(figures[fact.figure], fact.unit), how, limit, fact.table, rows)


def said_advice(texts: Texts, variant: str, advice: str, figures: Mapping[str, Any]) -> str:
    """The advice of a row: its own, else that of its variant, else the rule's. `advice` may name another variant."""
    of_variant = texts.variants.get(advice, {} if advice else texts.variants.get(variant, {}))
    return fill_template(of_variant.get("advice") or advice or texts.said["advice"], {**figures, **of_variant})


def _claim(trace: Trace, row: Row) -> Claim:
    """The device time that goes at best, and what goes with it."""
    parts = [row.time if row.kernels is None else row.kernels.gone(trace, Case.HOPEFUL), row.also]
    claimed = [part for part in parts if part is not None]
    return Claim({row.device: Intervals.union_all(claimed)} if claimed else {})


def declare(
    name: str,
    rows: Callable[..., Rows],
    *,
    details: Details | None = None,
    most: int | None = None,
    fix: Fix | None = None,
    asks_limits: bool = False,
) -> Rule:
    """A rule that the judge judges: its code, its tables, what it says, its facts and limits are those of its file
    (`rule_texts`).

    `rows` measures the places it looks at, or gives the verdict where there is nothing to judge; where there is no
    place, its text `otherwise` says why the rule is not applicable, without it the rule is clear. `details` are figures
    and evidence that only a finding needs. The first fact is the figure that the finding is about; limits on others are
    asked before its own. The text `subject` is what others call ``{subject}``, and ``{noun}`` where no verb follows.
    `most` is how many rows a clear verdict shows at most; `fix` is the row of the table of fixes that the changes are
    of. A rule that `asks_limits` is no plain pattern: its `rows` take the limits too.
    """
    return make_rule(name, DeclaredRule(rows, rule_texts(name), details, most, fix, asks_limits).judge)


_TEXTS: Final[Mapping[str, Callable[[Any], str]]] = {"time": time_text, "share": share_text, "bytes": bytes_text}


class _Words(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        """A figure in the words of its unit, or as Python formats it."""
        in_words = _TEXTS.get(format_spec)
        return in_words(value) if in_words is not None else str(super().format_field(value, format_spec))


_WORDS: Final = _Words()


def fill_template(template: str, figures: Mapping[str, Any]) -> str:
    """The text that the figures, and those that are assumed, make of a template."""
    if "{" not in template:
        return template

    def kept(part: re.Match[str]) -> str:
        names = [name for _, name, _, _ in _WORDS.parse(part[1]) if name]
        return "" if any(figures.get(name) in (None, "") for name in names) else part[1]

    return _WORDS.vformat(re.sub(OPTIONAL_PART, kept, fill_figures(template)), (), figures)
