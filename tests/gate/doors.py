"""Laws of doors: a finding has one price wherever it stands, and whatever is printed to be typed is understood."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tests.gate.answers import Answers, alike, flat

from timesink.cli.parser import group
from timesink.diagnosis.verdicts import Bottleneck, Found, Undecided
from timesink.knowledge.step_parts import IDLE_WORDS, WORK_WORDS
from timesink.views.ranks import page_of_trace

COMMAND: Final = re.compile(r"(?:next: |^ {6}|`)(timesink [a-z](?:(?!, )[^\n`;])*)", re.MULTILINE)
_HEAD: Final = re.compile(r"^(?:### )?\d+\. +([A-Z]{3}\d+) [a-z-]+:? +(\S.*(?:\n(?! {4}).+)*)", re.MULTILINE)
_SAVES: Final = re.compile(r"^ *(?:≤ )?[\d.,]+ [nmu]?s {2,}(?:(?:≤ )?[\d.]+ % +)?([a-z][a-z0-9-]+)")
_LEAST_MS: Final = 1e-6  # a nanosecond
_ROUNDED: Final = 0.06  # percent: half of the last digit of a share, and what rounding adds


def findings_agree(of: Answers) -> Iterator[str]:
    """Every door has the same findings in the same order, each with one price."""
    found = [(one["code"], _ends(one["recoverable_ms_per_step"])) for one in of.json["findings"]]
    served = [
        (one["rule"], _ends(one.get("gain_per_step", one.get("gain_per_window"))))
        for one in json.loads(of.doors["mcp"])["findings"]
    ]
    for (code, price), (other, price_there) in zip(found, served, strict=False):
        if code != other or not all(alike(*pair, _LEAST_MS) for pair in zip(price, price_there, strict=True)):
            yield f"JSON has {code} {price}, the server for agents {other} {price_there}"
    whole, marked = (
        [(code, flat(text).replace("\\", "")) for code, text in _HEAD.findall(of.doors[door])] for door in ("-v", "md")
    )
    yield from (f"-v says {one}, Markdown {other}" for one, other in zip(whole, marked, strict=False) if one != other)
    if len(whole) != len(marked) or len(whole) > len(found):
        yield f"-v has {len(whole)} findings, Markdown {len(marked)}, JSON {len(found)}"


def _ends(price: Mapping[str, Any] | str | None) -> tuple[float, ...]:
    known = price if isinstance(price, Mapping) else {}  # in words, where it has none
    return tuple(known.get(name) or 0.0 for name in ("low", "value", "high"))


def report_agrees(of: Answers) -> Iterator[str]:
    """The report has each finding with its price."""
    page = words_of(of.page)
    for code, saving in _HEAD.findall(of.doors["-v"]):
        if words_of(saving) not in page:
            yield f"the report does not say that {code} {flat(saving)}"


def ranks_agree(of: Answers) -> Iterator[str]:
    """`ranks` names the late rank of the diagnosis in its words, or why nobody can be named, and no other."""
    if len(of.trace.rank_numbers) < 2:
        return
    title = page_of_trace(of.trace, 3).title
    verdicts = {ruling.card.name: ruling.verdict for ruling in of.diagnosis.rulings}
    verdict = verdicts["straggler"]
    if ("take turns" in title) != isinstance(verdicts["ranks-imbalanced"], Found):
        yield f"of ranks late in turn the diagnosis says {verdicts['ranks-imbalanced']}, ranks {title}"
    if isinstance(verdict, Found | Undecided):
        said = verdict.why if isinstance(verdict, Undecided) else verdict.findings[0].message
        if said not in title:
            yield f"the diagnosis says {said}, ranks {title}"
    elif "is late to" in title:
        yield f"the diagnosis names no late rank, ranks {title}"


def words_of(text: str) -> str:
    """The text without what a door may put between its words."""
    return re.sub(r"\W+", "", text).lower()


def rows_divide(of: Answers) -> Iterator[str]:
    """A row's share is its time over the step that its finding's price is a part of."""
    for row in of.rows:
        shares = [
            saved / price * one["share_of_step"]
            for one in of.json["findings"]
            for price in _ends(one["recoverable_ms_per_step"])[1:]
            for saved in (row.saves_ms or 0.0,)
            if one["name"] == row.name and price and one["share_of_step"]
        ]
        if row.share is not None and shares and not any(alike(row.share, share, 1e-4) for share in shares):
            yield f"{row} is not {shares} of its step"


def rows_have_their_share(of: Answers) -> Iterator[str]:
    """What a row saves is said as a share too, of the column's whole or of one that the row names. A row whose time
    others have is not told below one of its name."""
    told: set[str] = set()
    for row in of.rows:
        if row.saves_ms is None and row.name in told:
            yield f"{row.name} twice, the second time with nothing of its own"
        told.add(row.name)
    priced = [one for one in of.json["findings"] if one["share_of_step"] and one["share_of_step"] > 0.01]
    for block in re.split(r"\n(?= *(?:≤ )?[\d.,]+ [nmu]?s  )", of.screen):
        if (row := _SAVES.match(block)) and "%" not in block.partition("\n\n")[0]:
            yield from (f"no share of {one['name']}: {block}" for one in priced if one["name"] == row[1])


def rows_count_their_own(of: Answers) -> Iterator[str]:
    """`name ×3` stands for three findings of that name."""
    held = Counter(one["name"] for one in of.json["findings"])
    for name, times in re.findall(r"([a-z][a-z0-9-]+) ×(\d+)", of.screen):
        if int(times) > held[name]:
            yield f"{name} ×{times}, where there are {held[name]}"


def one_late_rank(of: Answers) -> Iterator[str]:
    """Steps that are slow since all wait for the rank that is named have no price of their own."""
    if any(card.code == "COM103" for card, _ in of.diagnosis.findings):
        for card, finding in of.diagnosis.findings:
            is_late = card.code == "SPK101" and finding.bottleneck is Bottleneck.STRAGGLER
            if is_late and finding.recoverable and finding.recoverable.most > 0.01 * (finding.of_ms or 0.0):
                yield f"a second late rank: {finding.message}"


def bar_is_the_budget(of: Answers) -> Iterator[str]:
    """The bar of one GPU shows the parts that JSON has."""
    for step in of.json["step_parts"] if len(of.json["step_parts"]) == 1 and of.bar else ():
        parts = {part["kind"]: 100 * part["ms"] / step["step_ms"] for part in step["parts"] if step["step_ms"]}
        for kind, words in {**WORK_WORDS, **IDLE_WORDS}.items():
            if words in of.bar and abs(of.bar[words] - parts.get(kind, 0.0)) > _ROUNDED:
                yield f"{words} is {of.bar[words]} % on the bar and {parts.get(kind)} % in JSON"


def commands_are_understood(of: Answers) -> Iterator[str]:
    """Every command that is printed exists and takes its options."""
    yield from not_understood(COMMAND.findall("\n".join((of.screen, of.doors["-v"], of.doors["md"]))))


def not_understood(commands: Iterable[str]) -> Iterator[str]:
    """Those commands that the command line refuses to read, and how."""
    for command in dict.fromkeys(commands):
        if len(shlex.split(command)) == 2:
            continue  # a command's name alone
        root = group()
        try:
            at_root = root.make_context("timesink", [], resilient_parsing=True)
            words = [__file__ if word == "TRACE" else word for word in shlex.split(command)[1:]]
            name, chosen, rest = root.resolve_command(at_root, words)
            assert chosen is not None
            chosen.make_context(name, [*rest])
        except Exception as refused:  # noqa: BLE001 - whatever it is, a reader gets it
            yield f"{command}: {refused!r}"
