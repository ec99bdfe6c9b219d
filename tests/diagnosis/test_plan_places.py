"""Where a change goes: its finding's line before an operator before a kernel, else by the kernels that it shortens."""

from unittest.mock import Mock

import pytest
from tests.diagnosis.test_plan import climbed, joint

from timesink.diagnosis.places import ChangePlace, place_in_program
from timesink.diagnosis.verdicts import Evidence, Finding, Quantity, Where
from timesink.views.plan import page_of


def asked(*wheres: Where, rows: tuple[int, ...] = ()) -> Mock:
    """The demo's trace with one candidate, whose findings are there."""
    fact = Evidence("idle", Quantity(1.0, "ms"), "by hand", table="device_ops", rows=rows)
    findings = [(Mock(), Mock(spec=Finding, where=where, evidence=(fact,))) for where in wheres]
    candidate = Mock(findings=tuple(findings), parts=lambda *_: ())
    return Mock(offered={"one": candidate}, trace=joint().trace, rank=0)


@pytest.mark.parametrize(
    ("wheres", "place"),
    [
        ([Where(rank=0, file="train.py", line=12, op="aten::mm")], "train.py:12"),
        ([Where(op="aten::mm"), Where(file="train.py", line=12)], "train.py:12"),
        ([Where(range="load"), Where(op="aten::mm")], "aten::mm"),
        ([Where(thread=1), Where(range="load")], "load"),
        ([Where(rank=0, thread=7)], ""),
        ([], ""),
    ],
)
def test_the_place_that_says_most_is_taken(wheres: list[Where], place: str) -> None:
    assert place_in_program(asked(*wheres), "one", ()).where == place


def test_a_wait_that_nothing_names_ends_before_an_operator() -> None:
    wait = next(f for card, f in climbed_findings() if card.name == "host-sync")
    row = next(row for fact in wait.evidence if fact.table == "device_ops" for row in fact.rows)
    place = place_in_program(asked(Where(thread=1), rows=(row,)), "one", ())
    assert place.kernel
    assert place.where == "" or place.where.startswith("before ")


def climbed_findings() -> list[tuple[Mock, Finding]]:
    return [named for one in joint().offered.values() for named in one.findings]


def test_every_rung_of_the_demo_holds_its_place_and_a_page_shows_it() -> None:
    made = climbed()
    assert all(rung.place != ChangePlace() for rung in made.rungs)
    sheet = next(sheet for sheet in page_of(made, "demo").sheets if sheet.key == "where")
    assert [row[0] for row in sheet.rows] == [rung.id for rung in made.rungs]
    assert [row[1] or "" for row in sheet.rows] == [rung.place.where for rung in made.rungs]
