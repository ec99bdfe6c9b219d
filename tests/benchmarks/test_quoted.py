"""README and the page of accuracy quote what `make scoreboard` kept, and nothing else."""

import re

import pytest
from benchmarks.faults.scoring import Foretold, Observation

from benchmarks import quoted

README = " ".join((quoted.KEPT.parents[1] / "README.md").read_text(encoding="utf-8").split())
ROWS = {row[0]: dict(zip(quoted.SHOWN["peers"], row, strict=True)) for row in quoted.known()["peers"]}


def test_the_page_has_the_tables_that_are_kept() -> None:
    page = quoted.PAGE.read_text(encoding="utf-8")
    assert quoted.with_tables(page) == page
    assert set(re.findall(r"<!-- quoted (\w+) -->", page)) == set(quoted.SHOWN)


def test_readme_has_the_figures_that_are_kept() -> None:
    own = [ROWS["timesink (torch)"], ROWS["timesink (nsys)"]]
    first = {tool: row["first"].removesuffix("%") for tool, row in ROWS.items()}
    said = " ".join(f"{first[tool]}" for tool in ("timesink (torch)", "timesink (nsys)", "TraceLens", "HTA", "nsys-ai"))
    shown = re.search(
        r"right for (\d+) and (\d+) % .*? TraceLens' for (\d+), HTA's for (\d+), nsys-ai's for (\d+) %", README
    )
    assert shown is not None and " ".join(shown.groups()) == said
    off = re.search(r"prices are (\d+) points of the step off, nsys-ai's (\d+)", README)
    assert off is not None
    assert [*off.groups()] == [f"{max(float(row['MAE']) for row in own):.0f}", f"{float(ROWS['nsys-ai']['MAE']):.0f}"]
    alarms = re.search(r"(\d+) of (\d+) false alarms, nsys-ai (\d+)", README)
    assert alarms is not None
    healthy = int(own[0]["healthy"])
    share = int(ROWS["nsys-ai"]["false"].removesuffix("%"))
    assert alarms[2] == str(healthy) and alarms[3] == f"{healthy * share / 100:.0f}"
    assert {row["false"] for row in own} == {f"{100 * int(alarms[1]) / healthy:.0f}%"}


def test_other_tools_are_quoted_as_their_answers_say() -> None:
    answers = quoted.answers()
    kept = {row[0]: row for row in quoted.known()["peers"]}
    for peer in quoted.peers.ASKED:
        assert kept[peer] == quoted.shown("peers", quoted.peers.peer_row(peer, answers[peer], quoted.peers.cases()))


@pytest.mark.parametrize("split", ["tune", "evaluate"])
def test_a_split_that_was_not_scored_keeps_its_row(split: str) -> None:
    seen = Observation(
        "printed_loss", "high", "fault", "torch", split, "host_sync", 0.1, "host_sync", (), Foretold(0.1, 0, 1)
    )
    new = {"faults": [quoted.faults.row(split, "torch", quoted.scoring.figures([seen]))]}
    kept = {"faults": [["tune", "torch", "1"], ["evaluate", "torch", "2"]]}
    rows = {row[0]: list(row) for row in quoted.keep(new, kept)["faults"]}
    assert list(rows) == ["tune", "evaluate"]
    other = "tune" if split == "evaluate" else "evaluate"
    assert rows[other] in kept["faults"] and rows[split][3] == "100%"
