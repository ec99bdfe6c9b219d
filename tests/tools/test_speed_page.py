"""The page of what people wait for: every row of the figures, why each missed bar is missed, and a plot."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

import speed_page

GROWTH = {"timesink": [(0.01, 0.4), (0.5, 1.7)], "a rival": [(0.01, 1.4), (0.5, 81.0)]}
FIGURES = [
    {"what": "`diagnose`, 10 MB", "value": 0.45, "unit": "s", "bar": 0.5, "beside": ""},
    {"what": "`plan` / `diagnose`, 10 MB", "value": 1.6, "unit": "x", "bar": 1.5, "beside": "0.7 s"},
    {"what": "a rival / `diagnose`, 500 MB", "value": 48.9, "unit": "times", "bar": None, "beside": "81 s"},
]


def test_rows_say_whether_bars_are_met_and_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"date": "2026-11-27", "machine": "2 cores", "runs": 3, "figures": FIGURES, "growth": GROWTH}
    results = tmp_path / "speed_table.json"
    results.write_text(speed_page.json.dumps(made))
    monkeypatch.setattr(speed_page, "RESULTS", results)
    page = dict(speed_page.speed_pages())[speed_page.PAGE]
    met, missed, noted = (line for line in page.splitlines() if line.startswith(("| `", "| a rival")))
    assert met == "| `diagnose`, 10 MB | 0.45 s | 0.5 s | met |  |"
    assert missed.startswith("| `plan` / `diagnose`, 10 MB | 1.60 x | 1.5 x | missed | 0.7 s; four fifths are replays")
    assert noted == "| a rival / `diagnose`, 500 MB | 48.9 times |  |  | 81 s |"


def test_the_plot_has_a_line_and_a_name_for_each_and_larger_is_further_up() -> None:
    drawn = ElementTree.fromstring(speed_page.plot(GROWTH))
    lines = [one.get("d", "") for one in drawn if one.get("fill") == "none"]
    assert len(lines) == len(GROWTH)
    assert set(GROWTH) <= {one.text for one in drawn}
    ends = [line.removeprefix("M").split("L") for line in lines]
    assert all(float(last.split()[1]) < float(first.split()[1]) for first, last in ends)
    assert float(ends[1][1].split()[1]) < float(ends[0][1].split()[1])


def test_each_figure_that_is_missed_has_a_reason() -> None:
    for one in speed_page.json.loads(speed_page.RESULTS.read_text(encoding="utf-8"))["figures"]:
        assert one["bar"] is None or speed_page._why(one["what"])
