"""ncu's pages as text, which is what it prints without --csv: a line per kernel, then tables and rules by section.

They hold what the CSV pages hold, and are read as their rows. What a program printed between them is left out.
"""

from __future__ import annotations

from timesink.knowledge import profiler_texts as texts
from timesink.startup import regex

DETAILS = (
    *("ID", "Process ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"),
    *("Invocations", "Section Name", "Metric Name", "Metric Unit", "Metric Value"),
    *("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"),
)
_OF_LAUNCH = ("Kernel Name", "Grid Size", "Block Size", "Context", "Stream", "Device", "CC", "Invocations")


def text_rows(text: str) -> list[list[str]]:
    """The rows of a details page with the columns `DETAILS`, of a text page; none where it is no such page."""
    rows: list[list[str]] = []
    launch: dict[str, str] = {}
    process, section, number = "", "", -1
    spans: list[tuple[int, int]] = []
    rule: dict[str, str] | None = None
    for line in text.splitlines():
        words = line.strip()
        if found := regex(texts.PROCESS_LINE).search(line):
            process = found.group(1)
        elif found := regex(texts.KERNEL_LINE).search(line):
            number += 1
            launch = dict(zip(_OF_LAUNCH, (cell or "" for cell in found.groups()), strict=True))
            launch |= {"ID": str(number), "Process ID": process}
            section, spans, rule = "", [], None
        elif not launch:
            continue
        elif words.startswith("Section: "):
            section, spans, rule = words.removeprefix("Section: "), [], None
        elif len(columns := list(regex(texts.RULED_COLUMN).finditer(line))) > 1 and not words.strip("- "):
            spans, rule = [column.span() for column in columns], None
        elif found := regex(texts.RULE_LINE).search(line):
            rule = {"Rule Name": section, "Rule Type": found.group(1), "Rule Description": found.group(2).strip()}
            rows.append(_row(launch, section, rule))
        elif rule is not None and words:
            rule["Rule Description"] += f" {words}"
            rows[-1] = _row(launch, section, rule)
        elif not words:
            rule = None
        elif spans and (name := line[: spans[0][1]].strip()):
            value = line.rfind(" ", 0, spans[-1][0] + 1) + 1  # a long one begins before its column
            unit = line[spans[1][0] : min(spans[1][1], value)].strip()
            shown = {"Metric Name": name, "Metric Unit": unit, "Metric Value": line[value:].strip()}
            rows.append(_row(launch, section, shown))
    return rows


def _row(launch: dict[str, str], section: str, shown: dict[str, str]) -> list[str]:
    cells = {**launch, "Section Name": section, **shown}
    if found := regex(texts.SPEEDUP_LINE).match(cells.get("Rule Description", "")):
        kind = (found.group(1) or "global").lower().strip()
        cells |= {"Estimated Speedup Type": kind, "Estimated Speedup": found.group(2)}
        cells["Rule Description"] = cells["Rule Description"][found.end() :].strip()
    return [cells.get(name, "") for name in DETAILS]
