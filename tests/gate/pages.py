"""Laws of pages and of plans: the lane's amounts, what a change wins alone, the ends of every price, every command."""

import json
import re
from collections.abc import Iterable, Iterator
from html import unescape
from itertools import pairwise
from typing import Any, Final

from tests.gate.answers import SHARE, TIME, Answers, alike, ms, strings_of
from tests.gate.doors import COMMAND, not_understood

from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.measures.steps.per_step import share_of_step
from timesink.measures.steps.slow_steps import usual_steps
from timesink.model.intervals import Intervals
from timesink.views.timeline import timeline_of

MATERIAL: Final = 0.01  # of the step: docs/explanation/accuracy.md, run-to-run deviation
_ROUNDED: Final = 0.06  # percent: half of the last digit of a share, and what rounding adds
_ALONE: Final = re.compile(rf"^([a-z_0-9]+)  +{TIME}  +{TIME}  +{TIME}  +{SHARE}$", re.MULTILINE)
_RUNG: Final = re.compile(rf"^[a-z_0-9]+  +{TIME}  +{TIME}  +{TIME}  +{TIME}  +{SHARE}", re.MULTILINE)
_SAVES: Final = re.compile(rf"[sS]aves (?:at most )?{TIME} [^;]{{0,60}}?\)?, {TIME} to {TIME}")
_LEAST: Final = re.compile(rf"[sS]aves at most {TIME} [^;]{{0,60}}?\)?, at least {TIME}")
_MAKES_MORE: Final = ("channels_last", "fused_attention", "batch_small_calls")  # launches go, and calls of the model
_ORDER: Final = ("low", "value", "high")


def lane_is_the_bar(of: Answers) -> Iterator[str]:
    """What the lane of the report draws of each cause within the steps is the bar's share of it."""
    if len(of.diagnosis.devices) != 1 or not of.bar or (drawn := timeline_of(of.trace, [], 1_000_000)) is None:
        return
    device, trace = (of.diagnosis.devices[0].rank, of.diagnosis.devices[0].device), usual_steps(of.trace) or of.trace
    rows = [row for lane in drawn.lanes if lane.kind == "idle" for row in lane.rows]
    for name, share in of.bar.items():
        kinds = [at for at, kind in enumerate(drawn.kinds) if IDLE_WORDS.get(kind) == name]
        if name not in IDLE_WORDS.values() or not rows:
            continue
        own = [(row, row.kind == kind) for row in rows for kind in kinds]
        stretches = [Intervals.union_of(row.start_ns[here], row.end_ns[here]) for row, here in own]
        there = 100 * share_of_step(trace, device, Intervals.union_all(stretches))
        if abs(there - share) > _ROUNDED + 0.001 * share:
            yield f"{name} is {share} % on the bar and {there:.2f} % in the lane"


def change_alone_is_its_finding(of: Answers) -> Iterator[str]:
    """A finding saves what its change wins alone in the plan, to a hundredth of the step; less where time of it is
    counted in another finding, or where the change takes time of other findings too. What a plan makes besides
    (`_MAKES_MORE`) wins more there."""
    step_ms = of.plan_of_server.get("step_ms") or 0.0
    alone = {name: ms(value, unit) for name, value, unit, *_ in _ALONE.findall(_table(of.plan, "wins alone"))}
    for (card, finding), one in zip(of.diagnosis.findings, of.json["findings"], strict=True):
        fix, worth = finding.fix, one["recoverable_ms_per_step"]
        if fix is None or worth is None or fix.name not in alone:
            continue
        won, saved = alone[fix.name], worth["value"]
        asking = [other for _, other in of.diagnosis.findings if other.fix is fix]
        is_less = finding.counted_in or fix.does_more or fix.of_launches or fix.name in _MAKES_MORE or len(asking) > 1
        if not alike(saved, won, MATERIAL * step_ms) and (saved > won or not is_less):
            yield f"{card.code} saves {saved:.4g} ms, {fix.name} alone wins {won:.4g} ms in the plan"


def _table(page: str, title: str) -> str:
    """The table of a page whose title ends so."""
    return page.partition(f"{title}\n")[2].partition("\n\n")[0]


def prices_are_in_order(of: Answers) -> Iterator[str]:
    """low ≤ value ≤ high ≤ step at every door: findings in JSON, at the server and in words, rungs and singles of the
    plan and of the server's plan."""
    longest_ms = max(filter(None, _steps_of(of)), default=float("inf"))
    for door, document in (("json", of.json), ("mcp", json.loads(of.doors["mcp"])), ("mcp plan", of.plan_of_server)):
        for found in _prices_in(document):
            ends = [found[end] for end in _ORDER if found.get(end) is not None]
            if _is_disordered([*ends, longest_ms]):
                yield f"{door}: {found} of {longest_ms:.4g} ms"
    for value, unit, low, low_unit, high, high_unit, *_ in (
        *_SAVES.findall(of.doors["-v"]), *_SAVES.findall(of.doors["md"]), *_SAVES.findall(of.page),
        *(row[1:] for row in _ALONE.findall(of.plan)), *(row[2:] for row in _RUNG.findall(of.plan)),
    ):  # fmt: skip
        ends = [ms(low, low_unit), ms(value, unit), ms(high, high_unit)]
        if _is_disordered([*ends, longest_ms]):
            yield f"{ends} ms of {longest_ms:.4g} ms"
    for value, unit, low, low_unit in _LEAST.findall(of.doors["-v"] + of.page):
        if _is_disordered([ms(low, low_unit), ms(value, unit), longest_ms]):
            yield f"at most {value} {unit}, at least {low} {low_unit}"


def _steps_of(of: Answers) -> Iterator[float | None]:
    yield from (step["step_ms"] for step in of.json["step_parts"])
    yield from (found.of_ms for _, found in of.diagnosis.findings)
    yield of.plan_of_server.get("step_ms")


def _prices_in(value: Any) -> Iterator[dict[str, Any]]:
    """The prices of a document: in milliseconds, with an end."""
    if isinstance(value, dict):
        if "value" in value and value.get("high") is not None and value.get("unit", "ms") == "ms":
            yield value
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from _prices_in(part)


def _is_disordered(ends: Iterable[float]) -> bool:
    return any(one > other * 1.012 for one, other in pairwise(ends))


def page_commands_are_understood(of: Answers) -> Iterator[str]:
    """Every command of the plan, of the report and of the server exists and takes its options."""
    yield from not_understood(commands_of_pages(of))


def commands_of_pages(of: Answers) -> list[str]:
    """What the plan, the report and the server say to type."""
    served = [text for door in (json.loads(of.doors["mcp"]), of.plan_of_server) for text in strings_of(door)]
    shown = [unescape(text) for text in re.findall(r"<code>(timesink [^<]*)</code>", of.report)]
    told = [*served, *map(unescape, re.findall(r"<li>([^<]*)</li>", of.report)), *of.plan.split("\n")]
    shown += [found[0] for text in told if (found := re.search(r"(?<=: )timesink [a-z].*|^ *timesink [a-z].*", text))]
    return [*dict.fromkeys(command for text in shown for command in COMMAND.findall(f"next: {text.strip()}"))]
