"""The laws that every answer keeps, one function each: it yields what breaks it, a line each.

They read what is printed. What a sentence says is held against other sentences, against the rows below it and against
the bar; `sentences.py` holds it against the trace.
"""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from tests.gate import checks, steps
from tests.gate.advised import advice_can_be_followed
from tests.gate.answers import SHARE, TIME, Answers, Row, alike, flat, ms
from tests.gate.arithmetic import advice_names_no_type_that_is_lacking, types_by_name_are_those_recorded
from tests.gate.causes import (
    OWED,
    bars_of_steps_have_steps,
    causes_are_owned,
    copies_are_mended_in_their_direction,
    exchanges_are_told_apart,
    exchanges_have_work_beside_them,
    guessed_steps_hold_the_work,
    kernels_of_a_late_host_are_a_bound,
    more_blocks_bring_no_page,
    one_cause,
    start_up_names_its_whole,
    unrecorded_time_is_named_so,
    waits_cost_what_they_win,
    waits_of_a_search_are_its_own,
)
from tests.gate.doors import (
    bar_is_the_budget,
    commands_are_understood,
    findings_agree,
    one_late_rank,
    ranks_agree,
    report_agrees,
    rows_count_their_own,
    rows_divide,
    rows_have_their_share,
    words_of,
)
from tests.gate.pages import (
    change_alone_is_its_finding,
    lane_is_the_bar,
    page_commands_are_understood,
    prices_are_in_order,
)
from tests.gate.prices import priced_findings, unlike_what_if
from tests.gate.screen import faults_of_screen
from tests.gate.words import plainly_said, told_in_its_idioms

from timesink.diagnosis.registry import find
from timesink.diagnosis.verdicts import Clear
from timesink.fixes.table import parse_change
from timesink.knowledge.step_parts import IDLE_WORDS, WORK_WORDS, Bottleneck
from timesink.views.plan import plan, what_if_page

_STEP = rf"the {TIME} (?:guessed )?(?:mean )?(?:step|window)"
_WHOLE = re.compile(rf"(?:of|holds) {_STEP}")
_OF = re.compile(rf"{TIME} of {_STEP}(?: [a-z ]{{1,30}})? \({SHARE}\)")
_SAVES = re.compile(rf"saves (?:at most )?{TIME} \({SHARE} of the (?:(mean|unprofiled|longest) )?(step|window)\)")
_INTERVAL = re.compile(rf"saves (?:at most )?{TIME} [^;]{{0,60}}?\)?, {TIME} to {TIME}")
_ESTIMATED = re.compile(
    rf"the {TIME} (?:guessed )?(?:mean )?step takes an estimated {TIME} (?:without it )?\({TIME} to {TIME}\)"
)
_NOTHING_FOUND = re.compile(r"(?i)no finding is worth|no rule finds a change|no bottleneck")
_REASON = re.compile(r"not all recorded|To decide:|cannot be told|has no GPU work")
_WITHOUT = re.compile(rf"{SHARE} of its time (?:on|in|at) (?:(?! of its time ).)*?at most (\d[\d.]*)× as fast")
MATERIAL: Final = 0.01  # of the step: docs/explanation/accuracy.md, run-to-run deviation
SURE_PART: Final = 0.3  # of a bound that may be nothing: what is expected of it (Swanson's rule, `expected_ms`)


def parts_sum(of: Answers) -> Iterator[str]:
    """The parts of a step are the step: in JSON, on the bar, and in the table of idle time."""
    for step in of.json["step_parts"]:
        total = sum(part["ms"] for part in step["parts"])
        if abs(total - step["step_ms"]) > 1e-6 * max(step["step_ms"], 1.0):
            yield f"{total} ms of a step of {step['step_ms']} ms"
    work = [share for name, share in of.bar.items() if name in {*WORK_WORDS.values(), "idle"}]
    if of.bar and abs(sum(work) - 100) > 0.06 * len(work) + 0.05:
        yield f"the bar holds {sum(work):.2f} %: {of.bar}"
    causes = [share for name, share in of.bar.items() if name not in {*WORK_WORDS.values(), "idle"}]
    if sum(causes) > of.bar.get("idle", 0.0) + 0.06 * len(causes):
        yield f"causes of {sum(causes):.2f} % in {of.bar}"


def percentages_divide(of: Answers) -> Iterator[str]:
    """A part, its whole and its share in one sentence; the same whole for all shares of "the step" in it."""
    for door, sentences in of.sentences.items():
        yield from (f"{door}: {fault}" for sentence in sentences for fault in _divided(sentence))


def _divided(sentence: str) -> Iterator[str]:
    wholes: dict[int, float] = {}  # by where it is named: "the step" is the one that was named last
    for found in _OF.finditer(sentence):
        part, unit, step, step_unit, share = found.groups()
        whole_ms = wholes[found.start()] = ms(step, step_unit)
        if not alike(ms(part, unit) / whole_ms, float(share) / 100, 1e-4) or float(share) > 100:
            yield f"{share} % is not {part} {unit} of {whole_ms:g} ms: {sentence[:160]}"
    for found in _SAVES.finditer(sentence):
        part, unit, share, which, _ = found.groups()
        whole_ms = next((wholes[at] for at in reversed(wholes) if at < found.start()), 0.0)
        if whole_ms and not which and not alike(ms(part, unit) / whole_ms, float(share) / 100, 1e-3):
            yield f"{share} % is not {part} {unit} of the step of {whole_ms:g} ms: {sentence[:200]}"


def one_whole(of: Answers) -> Iterator[str]:
    """Shares in a verdict are of one whole, and a bar beside savings of another names its own; no time and share are
    told twice."""
    verdict, bar = flat(of.verdict), flat(of.screen)
    if "of the unprofiled step)" in verdict and _OF.search(verdict):
        yield f"shares of the step as recorded and of the unprofiled one: {verdict}"
    for which, whole in (("unprofiled", "recorded"), ("mean", "mean")):
        if f"of {which} step" in bar and "(of the step" in bar:
            yield f"savings are of the {which} step, the bar is not said to be of the {whole} one"
    told = [found[0] for found in re.finditer(rf"{TIME} of {_STEP}", verdict)]
    for part, unit, share, *_ in _SAVES.findall(verdict):
        if any(one.startswith(f"{part} {unit} ") for one in told) and verdict.count(f"({share} %") > 1:
            yield f"{part} {unit} ({share} %) is told twice: {verdict}"


def one_budget(of: Answers) -> Iterator[str]:
    """The bar and `show idle` blame the same causes for as much."""
    if len(of.diagnosis.devices) != 1 or "idle" not in of.doors:
        return
    table = {}
    for line in of.doors["idle"].partition("Where in the program")[0].split("\n"):
        found = re.match(rf" *(\S.*?\S)  +{TIME} +{SHARE} +{TIME} +{SHARE}", line)
        if found:
            table[found[1].strip()] = float(found[7])
    for name, share in of.bar.items():
        if name in IDLE_WORDS.values() and not alike(share, table.get(name, 0.0), 0.02):
            yield f"{name} is {share} % on the bar and {table.get(name)} % in the table"


def idle_time_is_of_the_bar(of: Answers) -> Iterator[str]:
    """What the verdict says most of the idle time is, is as much of the parts of the step."""
    said = re.search(rf"{SHARE} of the idle time is ([a-zA-Z ]+)", flat(of.verdict))
    if not said:
        return
    parts = [part for step in of.json["step_parts"] for part in step["parts"] if part["kind"] in IDLE_WORDS]
    own = sum(part["ms"] for part in parts if said[2].startswith(IDLE_WORDS[part["kind"]]))
    total = sum(part["ms"] for part in parts)
    if not total or not alike(float(said[1]) / 100, own / total, 1e-3):
        yield f"{said[0]}: {own:g} of {total:g} ms"


def saves_no_more_than_is_taken(of: Answers) -> Iterator[str]:
    """A fix saves no more than all times that its sentence names, but where it says that others get shorter too."""
    for finding in of.json["findings"]:
        named = _WHOLE.sub("", finding["message"])
        taken_ms = sum(ms(*time) for time in re.findall(TIME, named))
        saved_ms = (finding["recoverable_ms_per_step"] or {}).get("value") or 0.0
        if taken_ms and "next to them" not in named and not alike(saved_ms, taken_ms) and saved_ms > taken_ms:
            yield f"saves {saved_ms:g} of {taken_ms:g} ms: {finding['message']}"


def one_price(of: Answers) -> Iterator[str]:
    """The verdict, the first row of the screen, and the first finding of every other door save the same."""
    said = re.search(rf"A fix saves (?:at most )?(?:these )?{TIME}", of.verdict)
    if not said or not of.rows:
        return
    saved_ms = ms(said[1], said[2])
    if of.rows[0].saves_ms is None or not alike(of.rows[0].saves_ms, saved_ms):
        yield f"the verdict saves {saved_ms:g} ms, the first row {of.rows[0]}"
    if not alike(of.json["findings"][0]["recoverable_ms_per_step"]["value"] or saved_ms, saved_ms, 1e-6):
        worth = of.json["findings"][0]["recoverable_ms_per_step"]
        if not alike(worth["high"] or 0.0, saved_ms, 1e-6):
            yield f"the verdict saves {saved_ms:g} ms, JSON {worth}"
    for door in ("md", "-v", "mcp"):
        if flat(of.verdict)[:60] not in flat(of.doors[door]).replace("\\", ""):
            yield f"{door} has another verdict than {of.verdict[:60]}"


def one_name(of: Answers) -> Iterator[str]:
    """The verdict, its finding's row, the bar, JSON and the server call a cause by one name, which `explain` knows."""
    names = {finding.name: finding for _, finding in of.diagnosis.findings}
    yield from (f"no finding is called {row.name}" for row in of.rows if row.name not in names)
    verdict = of.screen.partition(":")[0].replace(" ", "-")
    if names and verdict not in (*names, "no-bottleneck", "undecided"):
        yield f"{verdict} above {list(names)}"
    causes = {cause.value.replace("_", "-") for cause in Bottleneck}
    for finding in of.json["findings"]:
        if finding["name"] != finding["bottleneck"].replace("_", "-") or finding["name"] not in causes:
            yield f"{finding['name']} is {finding['bottleneck']}"
        if not find(finding["name"]).code:
            yield f"explain does not know {finding['name']}"


def dearest_first(of: Answers) -> Iterator[str]:
    """No row below the first saves more; a bound counts for what can be expected of it. Rows without a share are of
    steps apart from the usual ones, which come behind."""
    if not of.rows or of.rows[0].saves_ms is None:
        return
    first = of.rows[0]
    for row in of.rows[1:]:
        dearer = row.share is not None and row.saves_ms is not None and row.saves_ms > (first.saves_ms or 0.0)
        if dearer and _counted(row) > 1.012 * _counted(first):
            yield f"{row} is dearer than the headline {first}"


def _counted(row: Row) -> float:
    """A bound below a tenth of the step is no headline, whatever is above it."""
    is_small = row.is_bound and row.share is not None and row.share < 2 * OWED
    return 0.0 if is_small else (row.saves_ms or 0.0) * (SURE_PART if row.is_bound else 1.0)


def nothing_above(of: Answers) -> Iterator[str]:
    """Where nothing is said to be worth a change, no row is."""
    if not _NOTHING_FOUND.search(of.verdict) and not of.is_without_bottleneck:
        return
    for row in of.rows:
        if row.share is not None and row.share >= MATERIAL and _counted(row):
            yield f"{of.verdict[-60:]} above {row}"


def every_cause_owned(of: Answers) -> Iterator[str]:
    """Of a part of the bar that takes a twentieth of the step something is said: a finding, a bound, or why not."""
    for name, share in of.bar.items():
        if name in ("compute", "idle", "other") or share < 100 * OWED:
            continue
        if of.is_without_bottleneck and not of.rows and name not in of.screen.partition("note: ")[2]:
            yield f"no bottleneck, and {name} is {share} % of the step"
        elif not of.rows and name not in of.verdict and not _REASON.search(of.verdict):
            yield f"nothing is said of {name}, {share} % of the step"


def clear_below_limits(of: Answers) -> Iterator[str]:
    """A rule that is clear shows a figure that does not pass its limit."""
    for ruling in of.diagnosis.rulings:
        if not isinstance(ruling.verdict, Clear):
            continue
        limits = find(ruling.card.code).limits.values()
        held = [fact for fact in ruling.verdict.evidence if fact.limit is not None]
        passed = [
            any(
                limit.is_passed(fact.measured.value, fact.limit.value)
                for limit in limits
                if (limit.unit, limit.default) == (fact.limit.unit, fact.limit.value)
            )
            for fact in held
            if fact.limit is not None
        ]
        if held and all(passed):
            yield f"{ruling.card.name} is clear with {[(fact.label, fact.measured.value, fact.limit) for fact in held]}"


def gain_within_share(of: Answers) -> Iterator[str]:
    """Without what takes a share of its time, the upper end of a range, a kernel is at most 1 / (1 - share) as fast."""
    for door in ("-v", "kernels"):
        for share, factor in _WITHOUT.findall(flat(of.doors.get(door, ""))):
            if _exceeds(factor, share):
                yield f"{door}: {factor} x without {share} % of the time"
    for line in of.doors.get("kernels", "").split("\n"):
        found = re.search(rf"{TIME}  +([a-z][a-z -]*?)  +{SHARE}  +{SHARE}  .*?  (\d[\d.]*)$", line.rstrip())
        if found and _exceeds(found[6], found[5]):
            yield f"kernels: {found[6]} x without {found[3]}, at most {found[5]} % of the time"


def _exceeds(factor: str, percentage: str) -> bool:
    """Whether a speedup is above 1 / (1 - share); the share has a digit after the point, the speedup two."""
    rest = 1 - float(percentage) / 100 - 0.0005
    return float(percentage) < 100 and float(factor) > 1.02 / rest


def ordered_intervals(of: Answers) -> Iterator[str]:
    """low ≤ value ≤ high ≤ the step, which of a finding of steps apart is the mean of all."""
    for value, unit, low, low_unit, high, high_unit in _INTERVAL.findall(flat(of.doors["-v"])):
        ends = ms(low, low_unit), ms(value, unit), ms(high, high_unit)
        if any(one > other * 1.012 for one, other in pairwise(ends)):
            yield f"not in order: {ends}"
    steps = [step["step_ms"] for step in of.json["step_parts"]]
    for finding in of.json["findings"]:
        worth = finding["recoverable_ms_per_step"]
        own = worth["value"] / finding["share_of_step"] if worth and finding["share_of_step"] else 0.0
        if (
            worth
            and steps
            and (worth["high"] or 0.0) > max(*steps, own) * 1.0001
            and "unprofiled" not in of.doors["-v"]
        ):
            yield f"{finding['code']} saves up to {worth['high']} ms of steps of {max(steps)} ms"
    step = _ESTIMATED.search(flat(of.doors["-v"]))
    if step:
        recorded, value, low, high = (ms(step[at], step[at + 1]) for at in range(1, 9, 2))
        if not low <= value * 1.012 or not value <= high * 1.012 or value > recorded * 1.012:
            yield f"estimated step: {step[0]}"
        # A collective runs until the last rank comes, which recording may make late: that part of it shortens too.
        has_peers = len({one["rank"] for one in of.json["step_parts"]}) > 1
        own = WORK_WORDS.keys() - {"communication" if has_peers else ""}
        works = [[part["ms"] for part in one["parts"] if part["kind"] in own] for one in of.json["step_parts"]]
        busy = max(map(sum, works), default=0.0)
        if value < 0.97 * busy:
            yield f"the unprofiled step of {value} ms is shorter than the device's work of {busy} ms"


def fits_one_screen(of: Answers) -> Iterator[str]:
    yield from faults_of_screen(of.diagnosis)


def first_change_agrees(of: Answers) -> Iterator[str]:
    """The plan begins with a change for the headline, or says why it does not; `low ≤ then ≤ high` on each rung."""
    if of.diagnosis.findings and of.plan.startswith("plan: ") and "what to do" in of.plan:
        code = of.diagnosis.findings[0][0].code
        first = re.search(r"findings +costs.*?\n─+\n([^\n]*)", of.plan, re.DOTALL)
        if first and code not in first[1] and f"{code}, the first finding" not in of.plan:
            yield f"the plan begins with {flat(first[1])[:60]}, the headline is of {code}"


def pages_agree(of: Answers) -> Iterator[str]:
    """The report and the server for agents say the verdict and the plan of the command line."""
    if words_of(of.verdict)[:80] not in words_of(of.page):
        yield f"the report has another verdict than {of.verdict[:80]}"
    yield from (f"report: {fault}" for fault in _divided(of.page) if "sum" not in fault)
    said = flat(of.plan_of_server.get("says", ""))
    if said and said not in flat(of.plan):
        yield f"the server's plan is {said}, the command's {of.plan[:80]}"


def one_price_for_all_doors(of: Answers) -> Iterator[str]:
    """What a finding counts before sharing is what `plan --change` says of its change."""
    for finding in priced_findings(of.trace):
        yield from unlike_what_if(of.trace, finding)


Law = Callable[[Answers], Iterator[str]]


def changes_have_their_name(of: Answers) -> Iterator[str]:
    """What a plan calls a change is what `plan --change` takes for it, and is priced as there."""
    made = plan(of.trace, of.diagnosis)
    told = {rung.id: rung.fix.name for rung in made.rungs}
    for name in {*told, *made.singles}:
        asked = parse_change(name)
        if asked.label != name or told.get(name, name) != name:
            yield f"{name} is {asked.label}"
    for rung in made.rungs[:1]:
        page = what_if_page(of.trace, (parse_change(rung.id.replace("_", "-")),))
        gains = [row[4] for row in page.sheets[0].rows if row[4] is not None]
        if not any(alike(float(gain) / 1e6, made.singles[rung.id].value) for gain in gains):
            yield f"{rung.id} wins {made.singles[rung.id]} in a plan, and {gains} asked alone"


LAWS: Final[tuple[Law, ...]] = (
    parts_sum, percentages_divide, one_whole, one_budget, idle_time_is_of_the_bar, saves_no_more_than_is_taken,
    one_price, dearest_first, one_name, nothing_above, every_cause_owned,
    clear_below_limits, gain_within_share, ordered_intervals, fits_one_screen, one_price_for_all_doors,
    advice_can_be_followed, causes_are_owned, unrecorded_time_is_named_so, exchanges_are_told_apart,
    copies_are_mended_in_their_direction, one_cause,
    waits_cost_what_they_win, kernels_of_a_late_host_are_a_bound, bars_of_steps_have_steps,
    guessed_steps_hold_the_work, exchanges_have_work_beside_them, more_blocks_bring_no_page, start_up_names_its_whole,
    waits_of_a_search_are_its_own, types_by_name_are_those_recorded, advice_names_no_type_that_is_lacking,
    findings_agree, rows_divide, rows_have_their_share, rows_count_their_own, one_late_rank, bar_is_the_budget,
    commands_are_understood, lane_is_the_bar,
    plainly_said, *steps.LAWS,
)  # fmt: skip
OF_PAGES: Final[tuple[Law, ...]] = (
    changes_have_their_name, ranks_agree,
    first_change_agrees, pages_agree, report_agrees, page_commands_are_understood, change_alone_is_its_finding,
    prices_are_in_order, told_in_its_idioms, *steps.OF_PAGES, *checks.LAWS,
)  # fmt: skip
"""Laws of what takes seconds: the plan and the report."""


def broken(of: Answers, laws: tuple[Law, ...] = LAWS) -> list[str]:
    """What breaks a law, a line each; nothing where all hold."""
    return [f"{law.__name__}: {fault}" for law in laws for fault in law(of)]
