"""The page of taught workflows says of every step that it works, and shows what was printed."""

from __future__ import annotations

from tests.docs.commands import DOCS


def test_every_step_works_and_shows_something() -> None:
    lines = (DOCS / "explanation" / "workflows.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    rows = [row for row in cells if row[0] != "step" and len(row) == 4]
    assert len(rows) > 60
    assert {row[3].rstrip(" |").partition(",")[0] for row in rows} == {"works"}
    shown = [row for row in rows if row[0] != "no desktop needed"]
    assert [row[0] for row in shown if not (row[1] and row[2])] == []
