import json
from pathlib import Path

import pytest

from timesink.errors import UsageError
from timesink.verify import BrokenRecord, ledger
from timesink.verify.ledger import Gain
from timesink.verify.outcomes import Outcome


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "ledger.jsonl"


def test_an_entry_is_opened_closed_once_and_its_error_is_measured_minus_predicted(path: Path) -> None:
    entry = ledger.add(path, "pin the batch", "H2D101", Gain(1.9, 1.0, 2.0), "abc123")
    closed = ledger.close(path, entry.number, Outcome.FASTER, Gain(1.7, 1.6, 1.8), "kept")
    assert closed.error_ms == pytest.approx(-0.2)
    assert (closed.within, closed.change, closed.outcome) == (True, "abc123", Outcome.FASTER)
    with pytest.raises(UsageError, match="closed already"):
        ledger.close(path, entry.number, Outcome.FASTER)


def test_nothing_written_is_ever_rewritten(path: Path) -> None:
    ledger.add(path, "first")
    before = path.read_bytes()
    ledger.add(path, "second")
    ledger.close(path, 1, Outcome.NO_DIFFERENCE)
    assert path.read_bytes().startswith(before)
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["add", "add", "close"]


@pytest.mark.parametrize("outcome", [Outcome.INVALID, Outcome.INCONCLUSIVE])
def test_what_was_not_shown_brings_no_gain(path: Path, outcome: Outcome) -> None:
    ledger.add(path, "hope", predicted=Gain(1, 0, 2))
    assert ledger.close(path, 1, outcome, Gain(5, 4, 6)).measured is None


def test_the_record_counts_predictions_that_held(path: Path) -> None:
    for measured in (1.0, 0.5, 3.0):
        number = ledger.add(path, "x", predicted=Gain(1.0, 0.8, 1.2)).number
        ledger.close(path, number, Outcome.FASTER, Gain(measured, measured, measured))
    ledger.add(path, "still open", predicted=Gain(1, 1, 1))
    found = ledger.track_record(ledger.read(path))
    assert (found.compared, found.within, found.median_error_ms, found.median_ratio) == (3, 1, 0.0, 1.0)


def test_an_empty_ledger_has_no_record(path: Path) -> None:
    assert ledger.read(path) == []
    assert ledger.track_record([]).median_error_ms is None


@pytest.mark.parametrize("gain", [Gain(1, 2, 3), Gain(float("nan"), 0, 1)])
def test_a_prediction_outside_its_own_interval_is_refused(path: Path, gain: Gain) -> None:
    with pytest.raises(UsageError):
        ledger.add(path, "x", predicted=gain)


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"event": "add"}', '{"event": "close", "number": 9, "date": "", "outcome": "faster"}',
     '{"event": "x", "number": 1}',
     '{"event": "add", "number": 1, "date": "", "hypothesis": "again"}',
     '{"event": "close", "number": 1, "date": "d", "outcome": "great"}',
     '{"event": "close", "number": 1, "date": "d", "outcome": "faster", "measured_ms": [1, NaN, 2]}'],
)  # fmt: skip
def test_a_damaged_line_is_named(path: Path, line: str) -> None:
    ledger.add(path, "x")
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(BrokenRecord, match="line 2"):
        ledger.read(path)


def test_an_unknown_entry_lists_the_open_ones(path: Path) -> None:
    with pytest.raises(UsageError, match="no ledger"):
        ledger.close(path, 1, Outcome.FASTER)
    ledger.add(path, "a")
    ledger.add(path, "b")
    with pytest.raises(UsageError, match="choose an open one: 1, 2"):
        ledger.close(path, 7, Outcome.FASTER)
