"""What timesink prints of a capture, through every door, and what a reader can take from it.

A law of the gate (`laws.py`) reads these texts, not what they were made from: a wrong sentence beside right JSON is
wrong.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Diagnosis
from timesink.errors import TimesinkError, UsageError
from timesink.mcp.captures import OpenCapture
from timesink.mcp.figures import plan_document
from timesink.mcp.findings import diagnosis_document
from timesink.model.tables import DEVICE_OPS, KERNEL_PROFILES
from timesink.model.trace import Trace
from timesink.render import Format, render
from timesink.render.html import html_report
from timesink.views import Page
from timesink.views.kernels import kernels_page
from timesink.views.plan import page_of, plan
from timesink.views.summary import idle_page

_UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
TIME = r"(\d[\d.,]*) (ns|us|ms|s)\b"
SHARE = r"(\d[\d.,]*) %"
ROUNDED = 0.006  # three digits: half a unit of the last, as a share of the smallest figure


def ms(value: str, unit: str) -> float:
    return float(value.replace(",", "")) * _UNITS[unit]


def alike(one: float, other: float, slack: float = 0.0) -> bool:
    """Whether two printed figures can be of one number."""
    return abs(one - other) <= 2 * ROUNDED * max(abs(one), abs(other)) + slack


class Row(NamedTuple):
    """A finding on the screen: its name, what it saves in ms and as a share (None where none is printed), and whether
    that is a bound."""

    name: str
    saves_ms: float | None
    share: float | None
    is_bound: bool


_ROW = re.compile(rf"^ *(≤ )?{TIME}(?: +(?:≤ )?{SHARE})? {{2,}}([a-z][a-z0-9-]+)")
_UNPRICED = re.compile(r"^ *(?:not known|nothing|memory|no more) *  ([a-z][a-z0-9-]+)")
_MORE = re.compile(rf"([a-z][a-z0-9-]+) (≤ )?{TIME}")
_PART = re.compile(rf"(?:[█▓▒░] )?([a-zA-Z][a-zA-Z ]*?) {SHARE}")


@dataclass(frozen=True)
class Answers:
    """Every door's text of one capture. `whole` doors (report, plan, the server for agents) cost most of the time."""

    name: str
    trace: Trace
    diagnosis: Diagnosis
    paths: tuple[Path, ...] = ()

    @cached_property
    def screen(self) -> str:
        return render(self.diagnosis, Format.TEXT, width=100)

    @cached_property
    def doors(self) -> dict[str, str]:
        """The texts that cost little, by door."""
        made = {form.value: render(self.diagnosis, form) for form in (Format.JSON, Format.MD)}
        made["-v"] = render(self.diagnosis, Format.TEXT, width=10_000, verbose=True)
        opened = OpenCapture("cap_0", self.paths, self.trace, self.diagnosis)
        made["mcp"] = json.dumps(diagnosis_document(opened, 5, 0), ensure_ascii=False)
        if self.diagnosis.devices:
            made["idle"] = shown(idle_page(self.trace, 5))
        if self.trace.get(KERNEL_PROFILES).height:
            made["kernels"] = shown(kernels_page(self.trace))
        return {"screen": self.screen, **made}

    @cached_property
    def sentences(self) -> dict[str, list[str]]:
        """What is said at each door: the strings of a document, the paragraphs and lines of a text."""
        said = {}
        for door, text in self.doors.items():
            parts = (
                strings_of(json.loads(text))
                if text.startswith("{")
                else re.split(r"\n\n|\n(?=\S)|\n +(?=also|because)", text)
            )
            said[door] = [flat(part) for part in parts]
        return said

    @cached_property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.doors["json"])
        return document

    @cached_property
    def plan(self) -> str:
        return shown(page_of(plan(self.trace, self.diagnosis), self.trace.source))

    @cached_property
    def plan_of_server(self) -> dict[str, Any]:
        """Empty where there is no GPU work to plan for, and the plan is refused."""
        try:
            return plan_document(OpenCapture("cap_0", self.paths, self.trace, self.diagnosis))
        except UsageError:
            assert not self.trace.get(DEVICE_OPS).height
            return {}

    @cached_property
    def report(self) -> str:
        return html_report(self.trace, self.diagnosis)

    @cached_property
    def page(self) -> str:
        """The words of the report."""
        bare = re.sub(r"<(script|style).*?</\1>", " ", self.report, flags=re.DOTALL)
        return flat(unescape(re.sub(r"<[^>]*>", " ", bare)))

    @cached_property
    def verdict(self) -> str:
        """The sentence at the top, whole."""
        return flat(self.doors["-v"].partition("\n")[2].partition("\n\n")[0])

    @property
    def is_without_bottleneck(self) -> bool:
        return self.screen.startswith("no bottleneck")

    @cached_property
    def bar(self) -> Mapping[str, float]:
        """The parts of the bar below the verdict, in percent: work, `idle`, and each cause of idle time."""
        of = r" \(of\s+the\s+(?:(?:recorded |mean )?step|recorded window)"
        found = re.search(rf"^(█[^\n]* \d.*?){of}", self.screen, re.DOTALL | re.MULTILINE)
        text = flat(found[1].rpartition("\n█")[2] if found and "\n█" in found[1] else found[1]) if found else ""
        return {name.strip(): float(share) for name, share in _PART.findall(text)}

    @cached_property
    def rows(self) -> list[Row]:
        """The findings of the screen, from the top; those that are only named at its end too."""
        rows = []
        for line in self.screen.split("\n"):
            if found := _ROW.match(line):
                share = float(found[4]) / 100 if found[4] else None
                rows.append(Row(found[5], ms(found[2], found[3]), share, bool(found[1])))
            elif found := _UNPRICED.match(line):
                rows.append(Row(found[1], None, None, False))
            elif " more (-v): " in line:
                rows += [Row(name, ms(time, unit), None, bool(le)) for name, le, time, unit in _MORE.findall(line)]
        return rows


def strings_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings_of(part)


def flat(text: str) -> str:
    return " ".join(text.split())


def shown(page: Page) -> str:
    return render(page, Format.TEXT, width=10_000)


def answers_of(name: str, trace: Trace, paths: tuple[Path, ...] = ()) -> Answers:
    return Answers(name, trace, diagnose(trace), paths)


def answered(make: Any) -> Iterator[str]:
    """A door may refuse, and nothing else."""
    try:
        yield make()
    except TimesinkError:
        return
