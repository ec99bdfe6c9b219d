"""What is wrong with the screen on which a diagnosis is shown: too much, too wide, or without what one must know."""

import re

from timesink.diagnosis.verdicts import Diagnosis
from timesink.render import Format, render
from timesink.render.parts import grouped

_SHORTEST = 10  # characters of a name that a narrow column keeps at least
COMMAND = ("next: timesink ", "      timesink ")


def faults_of_screen(found: Diagnosis, width: int = 80) -> list[str]:
    """What is wrong with the screen of so many columns; nothing of it is cut but what is counted."""
    lines = render(found, Format.TEXT, width=width).rstrip("\n").split("\n")
    rows = sum(-(-max(len(line), 1) // width) for line in lines)
    faults = [f"{rows} rows"] if rows > 24 else []
    faults += [f"too wide: {line}" for line in lines if len(line) > width and not line.startswith(COMMAND)]
    text = " ".join(" ".join(lines).split())
    groups = grouped(found)
    told = [group for group in groups if f" {group.first.name[:_SHORTEST]}" in text]
    more = next((int(line.split()[0]) for line in lines if " more (-v): " in line), 0)
    if len(groups) > len(told) + more:
        faults.append(f"{len(groups) - len(told)} findings are neither shown nor counted")
    if groups and groups[0] not in told:
        faults.append("the first finding is not shown")
    if groups and f"next: timesink explain {groups[0].card.code}" not in text:
        faults.append("no next command")
    if any(budget.period_ns for budget in found.budgets) and not re.search(
        r"[█▓▒░]{20}.*\(of the (step|recorded|mean step|[\d.]+ .?s window)", text
    ):
        faults.append("no bar of the step")
    if any("--unprofiled-step-ms" in note.message for note in found.notes) and "--unprofiled-step-ms" not in text:
        faults.append("the profiler's cost is not told")
    if any(note.kind == "data_loss" for note in found.notes) and "lost: " not in text:
        faults.append("what was lost is not told")
    return faults
