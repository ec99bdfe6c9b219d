"""Cases of rules, `<topic>/<name>.md` beside this: tiny tables and the verdict expected of them.

The format is described for its readers in docs/how-to/write-cases.md; the tables themselves are read by
`case_tables`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import polars as pl
from tests.rules.case_tables import UNITS, BadCase, Repeat, TextTable, frames, parse_table

from timesink.diagnosis.rule import page_paths
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Clear,
    Evidence,
    Finding,
    Found,
    NotApplicable,
    Undecided,
    Verdict,
    Where,
)
from timesink.model.schema import Table
from timesink.model.trace import Trace
from timesink.records import replace

VERDICTS: Mapping[str, type[Verdict]] = {
    "found": Found,
    "clear": Clear,
    "not applicable": NotApplicable,
    "undecided": Undecided,
}
KEYS = ("verdict", "message", "where", "evidence", "claim", "why", "to decide", "limit", "setting", "repeat")
_DIRECTIVE = re.compile(r"^- ([A-Za-z ]+): *(.*)$")
_REPEAT = re.compile(r"^(\d+) times, every ([\d.]+) (ns|us|ms|s)$")
_QUANTITY = re.compile(r"^(.*) ([-\d.]+)(?: (\S.*))?$")


@dataclass(frozen=True, slots=True)
class Expected:
    """What a case says of the verdict. Only what it says is compared."""

    verdict: type[Verdict]
    bottlenecks: tuple[Bottleneck, ...]
    says: tuple[tuple[str, str], ...]


class Watched(Mapping[Table, pl.DataFrame]):
    """A trace's tables, remembering which were asked for."""

    def __init__(self, tables: Mapping[Table, pl.DataFrame]) -> None:
        self._tables = tables
        self.asked: set[str] = set()

    def __getitem__(self, table: Table) -> pl.DataFrame:
        self.asked.add(table.name)
        return self._tables[table]

    def __contains__(self, table: object) -> bool:
        self.asked.add(str(table))
        return table in self._tables

    def get(self, table: Table, default: Any = None) -> Any:
        self.asked.add(table.name)
        return self._tables.get(table, default)

    def __iter__(self) -> Iterator[Table]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


@dataclass(frozen=True)
class Case:
    """One case: its tables, its limits where they differ from the defaults, and the verdict expected."""

    title: str
    line: int
    tables: tuple[TextTable, ...]
    limits: Mapping[str, float]
    expected: Expected
    settings: Mapping[str, str]

    @cached_property
    def trace(self) -> Trace:
        """One for all who ask, so that what was measured of it is remembered."""
        return Trace(self.title, frames(self.tables), settings=self.settings)

    @cached_property
    def watched(self) -> Trace:
        """The same for the rule's own laws, which share what was measured: its tables know that they were asked for."""
        return replace(self.trace, tables=Watched(self.trace.tables))


@dataclass(frozen=True, slots=True)
class _Block:
    title: str
    line: int
    tables: tuple[TextTable, ...]
    directives: tuple[tuple[int, str, str], ...]


@cache
def read_cases(path: Path) -> tuple[Case, ...]:
    """The cases of a file. Tables that stand before the first `##` heading belong to every case."""
    shared, *blocks = _blocks(path.read_text(encoding="utf-8").splitlines())
    if shared.directives:
        raise BadCase(f"line {shared.directives[0][0]}: only tables may stand before the first case")
    cases = tuple(_case(block, shared.tables) for block in blocks)
    titles = [case.title for case in cases]
    if len(set(titles)) != len(titles):
        raise BadCase(f"{path.name}: two cases have the same title")
    return cases


def cases_of(name: str) -> tuple[Case, ...]:
    """The cases of the rule of that name."""
    page = page_paths()[name]
    return read_cases(Path(__file__).parent / page.parent.name / page.name)


def differences(case: Case, verdict: Verdict) -> list[str]:
    """What the case says and the verdict does not, in words; empty where they agree."""
    expected = case.expected
    if not isinstance(verdict, expected.verdict):
        return [f"expected {expected.verdict.__name__}, got {verdict}"]
    wrong = []
    if isinstance(verdict, Found):
        got = tuple(finding.bottleneck for finding in verdict.findings)
        if expected.bottlenecks != got:
            wrong.append(f"expected findings {_names(expected.bottlenecks)}, got {_names(got)}")
    return wrong + [problem for key, text in expected.says if (problem := _unsaid(key, text, verdict))]


def _blocks(lines: list[str]) -> list[_Block]:
    """Split at `##`; within a block, collect tables (with the repeat that stands above them) and `- key: value`."""
    blocks: list[_Block] = []
    title, start = "", 1
    tables: list[TextTable] = []
    directives: list[tuple[int, str, str]] = []
    repeat, index = Repeat(), 0
    while index < len(lines):
        line = lines[index]
        if line.startswith("## "):
            blocks.append(_Block(title, start, tuple(tables), tuple(directives)))
            title, start, tables, directives, repeat = line[3:].strip(), index + 1, [], [], Repeat()
        elif line.startswith("|"):
            height = next((n for n, text in enumerate(lines[index:]) if not text.startswith("|")), len(lines) - index)
            tables.append(parse_table(lines[index : index + height], index + 1, repeat))
            index += height - 1
        elif match := _DIRECTIVE.match(line):
            key, value = match[1].strip().lower(), match[2].strip()
            if key == "repeat":
                repeat = _repeat(value, index + 1)
            elif key in KEYS:
                directives.append((index + 1, key, value))
            else:
                raise BadCase(f"line {index + 1}: no key is called {key!r}; there are {', '.join(KEYS)}")
        index += 1
    return [*blocks, _Block(title, start, tuple(tables), tuple(directives))]


def _repeat(text: str, line: int) -> Repeat:
    if text == "once":
        return Repeat()
    if not (match := _REPEAT.match(text)):
        raise BadCase(f"line {line}: write `Repeat: 6 times, every 10 ms` or `Repeat: once`, not {text!r}")
    return Repeat(int(match[1]), int(Decimal(match[2]) * UNITS[match[3]]))


def _case(block: _Block, shared: tuple[TextTable, ...]) -> Case:
    limits: dict[str, float] = {}
    settings: dict[str, str] = {}
    said: list[tuple[str, str]] = []
    verdict: tuple[type[Verdict], tuple[Bottleneck, ...]] | None = None
    for line, key, value in block.directives:
        match key:
            case "verdict":
                verdict = _verdict(value, line)
            case "limit":
                name, _, number = value.partition("=")
                limits[name.strip()] = float(number)
            case "setting":
                name, _, text = value.partition("=")
                settings[name.strip()] = text.strip()
            case _:
                said.append((key, value))
    if verdict is None:
        raise BadCase(f"line {block.line}: the case {block.title!r} has no `- Verdict:`")
    return Case(block.title, block.line, shared + block.tables, limits, Expected(*verdict, tuple(said)), settings)


def _verdict(text: str, line: int) -> tuple[type[Verdict], tuple[Bottleneck, ...]]:
    for name, kind in VERDICTS.items():
        if text == name or (name == "found" and text.startswith("found ")):
            rest = text.removeprefix(name).strip()
            return kind, tuple(Bottleneck(part.strip()) for part in rest.split(",") if part.strip())
    raise BadCase(f"line {line}: a verdict is one of {', '.join(VERDICTS)}, not {text!r}")


def _names(bottlenecks: tuple[Bottleneck, ...]) -> str:
    return ", ".join(bottlenecks) or "nothing"


def _unsaid(key: str, text: str, verdict: Verdict) -> str:
    """Empty where the verdict says what `- key: text` demands, else what it says instead."""
    findings: tuple[Finding, ...] = verdict.findings if isinstance(verdict, Found) else ()
    match key:
        case "message":
            said = [finding.message for finding in findings]
            return "" if any(text in message for message in said) else f"no message says {text!r}: {said}"
        case "where":
            places = [finding.where for finding in findings]
            return "" if any(_is_at(where, text) for where in places) else f"no finding is at {text!r}: {places}"
        case "claim":
            claims = [finding.claim.total_ns for finding in findings]
            value, _, unit = text.partition(" ")
            return "" if int(Decimal(value) * UNITS[unit]) in claims else f"no claim is {text}: {claims} ns"
        case "evidence":
            facts = _evidence(verdict)
            return "" if any(_shows(fact, text) for fact in facts) else f"no evidence {text!r}: {facts}"
        case "why" | "to decide":
            said = [getattr(verdict, key.replace(" ", "_"), "")]
            return "" if text in said[0] else f"{key} does not say {text!r}: {said[0]!r}"
        case _:
            raise BadCase(f"nothing compares {key!r}")


def _is_at(where: Where, text: str) -> bool:
    """Whether the place has every `field value` of the comma-separated text."""
    wanted = dict(part.strip().split(" ", 1) for part in text.split(","))
    known = {name: str(value) for name, value in where.known().items()}
    return all(known.get(name) == value for name, value in wanted.items())


def _evidence(verdict: Verdict) -> tuple[Evidence, ...]:
    match verdict:
        case Found(findings=findings):
            return tuple(fact for finding in findings for fact in finding.evidence)
        case Clear(evidence=evidence):
            return evidence
        case _:
            return ()


def _shows(fact: Evidence, text: str) -> bool:
    """`label value unit`: the value agrees to as many decimals as are written."""
    match = _QUANTITY.match(text)
    if match is None:
        raise BadCase(f"evidence is written `label value unit`, not {text!r}")
    label, value, unit = match.groups()
    half = 0.5 * 10.0 ** -len(value.partition(".")[2])
    near = abs(fact.measured.value - float(value)) <= half * (1 + 1e-9)
    return fact.label == label and near and fact.measured.unit == (unit or "")
