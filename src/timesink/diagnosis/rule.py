"""The contract of a rule: the tables it reads, the limits it compares with, the verdict it gives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from timesink.diagnosis.verdicts import Card, Undecided, Verdict
from timesink.records import Record, field, replace

if TYPE_CHECKING:  # the limits of experiments are declared where polars may be absent
    from timesink.model.schema import Table
    from timesink.model.trace import Trace


class Limit(Record):
    """A threshold of a rule: its default, its unit, why it is that high, and the source of the figure.

    `passes` (>, >= or <) is what a figure must be, compared with it, for the judge of declared rules
    (`diagnosis.judge`) to find something.
    """

    default: float
    unit: str
    why: str
    source: str
    passes: str = ">"

    @classmethod
    def ratio(cls, default: float, why: str, source: str, passes: Literal[">", ">=", "<"] = ">") -> Limit:
        """The limit of a share, 0 to 1."""
        return cls(default, "ratio", why, source, passes)

    def is_passed(self, figure: float, limit: float) -> bool:
        """Whether a figure passes the limit, which a run may have set to another figure than the default."""
        return figure < limit if self.passes == "<" else figure >= limit if self.passes == ">=" else figure > limit


class Limits:
    """The limits of one rule with a run's overrides applied; `limits["idle_ratio"]` is a plain number."""

    def __init__(self, declared: Mapping[str, Limit], overrides: Mapping[str, float] = MappingProxyType({})) -> None:
        self._declared = declared
        self._overrides = overrides

    def __getitem__(self, name: str) -> float:
        return self._overrides.get(name, self._declared[name].default)


class Rule(Record, eq=False):
    """A rule: a code, a name and what judges a trace. Its page and its texts are `rules/<topic>/<name>.md`.

    `code` is three letters and a number, never reused. A rule without a `name` is the only one of its module, which
    holds its page and is called as it is. `needs` are the tables that `check` cannot do without: where one
    is missing, the rule is undecided before `check` runs. `reads` are the tables it uses where they exist. `capture` is
    the command that records the needed tables, `since` the version the rule first appeared in. `symptom` says that
    other causes look like this one too: where claims overlap, its findings take what the others leave. `every_step`
    says that it looks for steps that stand out: they are not left out for it.
    """

    code: str
    check: Callable[[Trace, Limits], Verdict]
    needs: tuple[Table, ...] = ()
    reads: tuple[Table, ...] = ()
    limits: Mapping[str, Limit] = field(default_factory=dict)
    references: tuple[str, ...] = ()
    symptom: bool = False
    every_step: bool = False
    capture: str = "timesink capture nsys -- python train.py"
    since: str = "0.1.0"
    name: str = ""

    @property
    def card(self) -> Card:
        """The rule's identity. The figures of its page are those that this run assumes."""
        from timesink.knowledge.figures import fill_figures

        if self.name:
            name, doc = self.name, page_text(self.name)
        else:
            module = sys.modules[self.check.__module__]
            name, doc = module.__name__.rpartition(".")[2].replace("_", "-"), module.__doc__ or ""
        return Card(self.code, name, summary_of(doc), fill_figures(doc), self.since, self.references, self.symptom)

    def verdict(self, trace: Trace, overrides: Mapping[str, float] = MappingProxyType({})) -> Verdict:
        """The verdict on a trace, with the limits named in `overrides` (by their names in this rule) set to those."""
        from timesink.measures.timeline.known import known

        if not trace.tables.keys() >= set(self.needs):
            missing = [table.name for table in self.needs if table not in trace.tables]
            what = "table" if len(missing) == 1 else "tables"
            elsewhere = missing != ["api_calls"] and known(trace).is_of_device
            return Undecided(f"the trace has no {what} {', '.join(missing)}", self.capture, elsewhere)
        lacks = known(trace).lacks
        if not lacks.keys().isdisjoint(self.needs):
            return Undecided(*next(lacks[table] for table in self.needs if table in lacks))
        return self.check(trace, Limits(self.limits, overrides))


TEXTS: Final = "\n# Texts\n"
"""The heading in a rule's file of what it says and compares, below its page."""


@cache
def page_paths() -> dict[str, Path]:
    """The files of rules, `rules/<topic>/<name>.md`, by the name of their rule."""
    return {path.stem: path for path in Path(__file__).parents[1].joinpath("rules").glob("*/*.md")}


@cache
def _parts(name: str) -> tuple[str, str]:
    """The page of the rule of that name, and its texts."""
    page, _, texts = page_paths()[name].read_text(encoding="utf-8").partition(TEXTS)
    return page, texts


@cache
def page_text(name: str) -> str:
    """The page of the rule of that name, with the names of assumed figures in braces (`assumptions.fill_figures`)."""
    return _parts(name)[0]


class Fact(Record):
    """A figure of a row as evidence; `label` and `how` are templates. Where the rule has a limit of that name, the two
    are shown together.

    A finding has all facts but those that are shown only where a row `missed` their limit; a row that misses another
    limit has those that are shown `always`.
    """

    figure: str
    label: str
    unit: str
    how: str
    table: str = ""
    shown: str = "found"


class Texts(Record, eq=False):
    """What a rule says and what it compares. `said` has its templates by name: message, subject, advice, verify,
    otherwise; what a kind of program is told in other words is there too, as ``advice pytorch``. The first of the
    `facts` is the figure that its findings are about. `variants` are more texts of rows of one kind, by its name:
    `words`, and others by theirs. `declared` are fields of `Rule`, tables by name."""

    declared: Mapping[str, Any]
    said: Mapping[str, str]
    facts: tuple[Fact, ...]
    limits: Mapping[str, Limit]
    references: tuple[str, ...]
    variants: Mapping[str, Mapping[str, str]]
    of_figure: Mapping[str, Fact]
    always: tuple[Fact, ...]

    @cache  # noqa: B019  # as many as there are rules and kinds of programs
    def told_to(self, program: str) -> Texts:
        """The texts in the words of a kind of program (`knowledge.programs`): ``advice pytorch`` in place of
        ``advice``, here and in variants."""

        def own(said: Mapping[str, str]) -> dict[str, str]:
            words = {name.partition(" ")[0]: text for name, text in said.items() if name.endswith(f" {program}")}
            return {**said, **words}

        variants = {name: own(said) for name, said in self.variants.items()}
        return replace(self, said=own(self.said), variants=variants)


@cache
def rule_texts(name: str) -> Texts:
    """The list under `# Texts` in the file of the rule of that name. `ValueError` names an entry that it cannot have.

    ::

        - Code: COM107, and so Capture, Since, Symptom and Every step: fields of `Rule`; Needs, Reads: names of tables
        - Bottleneck: that of its findings, where the rule is not called as it is
        - Advice: a sentence, `- Reference:` an address, and so on
        - Advice pytorch: another sentence for programs of PyTorch; the one above names nothing that only these have
        - Fact idle_ratio: its label; below it How, and where they are not `ratio`, none and `found` Unit, Table, Shown
        - Limit idle_ratio: > 0.03; below it Why and Source, and where it is not `ratio` Unit
        - Variant garbage_collection: its words; below it others, such as Bottleneck and Advice
    """
    facts, limits, references = list[Fact](), dict[str, Limit](), list[str]()
    declared, said, variants = dict[str, Any](), {"bottleneck": name.replace("-", "_")}, dict[str, dict[str, str]]()
    for entry in f"\n{_parts(name)[1].strip()}".split("\n- ")[1:]:
        (key, text), *below = map(_entry, entry.split("\n  - "))
        kind, _, figure = key.partition(" ")
        more = {"Unit": "ratio", **dict(below)}
        if kind == "Fact":
            facts.append(
                Fact(figure, text, more["Unit"], more["How"], more.get("Table", ""), more.get("Shown", "found"))
            )
        elif kind == "Limit":
            passes, _, number = text.partition(" ")
            default = float(number) if "." in number else int(number)
            limits[figure] = Limit(default, more["Unit"], more["Why"], more["Source"], passes)
        elif kind == "Variant":
            variants[figure] = {"words": text, **{name.lower(): other for name, other in below}}
        elif kind == "Reference":
            references.append(text)
        elif kind in ("Message", "Subject", "Advice", "Verify", "Otherwise", "Bottleneck"):
            said[key.lower()] = text
        elif kind in ("Needs", "Reads"):
            declared[kind.lower()] = tuple(text.split(", "))
        elif kind in ("Code", "Capture", "Since", "Symptom", "Every"):
            declared[key.lower().replace(" ", "_")] = True if text == "yes" else text
        else:
            raise ValueError(f"{name}: no text of a rule is called {key!r}")
    of_figure = {fact.figure: fact for fact in facts}
    always = tuple(fact for fact in facts if fact.shown == "always")
    return Texts(declared, said, tuple(facts), limits, tuple(references), variants, of_figure, always)


def _entry(lines: str) -> tuple[str, str]:
    """``Advice: read it`` over several lines as its name and its text."""
    name, _, text = " ".join(lines.split()).partition(": ")
    return name, text


def make_rule(name: str, check: Callable[[Trace, Limits], Verdict]) -> Rule:
    """The rule of that name, as its file declares it."""
    from timesink.model.tables import ALL

    texts, tables = rule_texts(name), {table.name: table for table in ALL}
    named = {key: tuple(map(tables.__getitem__, texts.declared.get(key, ()))) for key in ("needs", "reads")}
    return Rule(check=check, name=name, limits=texts.limits, references=texts.references, **{**texts.declared, **named})


def summary_of(doc: str) -> str:
    """The first line of a docstring as a phrase: no full stop, a small initial unless it begins an acronym."""
    line = doc.strip().partition("\n")[0].rstrip(".")
    return line if line[1:2].isupper() else line[:1].lower() + line[1:]
