"""The sweep of assumptions: what is read is seen, what is moved is put back, and the table says what a move does."""

from typing import Any

import pytest
from benchmarks.faults import sweep

from timesink.knowledge.assumptions import ALL, fixes


def test_what_is_read_is_seen_and_nothing_afterwards() -> None:
    with sweep.watched() as seen:
        assert fixes.LOADING_LEFT.value == 0.05
        assert fixes.VALUE_BYTES.whole == 4096
    assert seen == {"fixes.loading_left", "fixes.value_bytes"}
    assert fixes.PINNED_TIME.value == 0.5
    assert seen == {"fixes.loading_left", "fixes.value_bytes"}


def test_a_move_is_a_quarter_of_all_figures_and_is_put_back() -> None:
    kept = fixes.OPTIMIZER_KERNELS
    with sweep.moved(kept.name, 1.25):
        assert (kept.low, kept.value, kept.high) == (0.75, 0.4375, 0.25)
    with sweep.moved("fixes.aligned_reach", 1.25):
        assert fixes.ALIGNED_REACH.value == 1.0  # a share
    assert (kept.low, kept.value, kept.high) == (0.6, 0.35, 0.2)


def test_the_table_says_what_moves_and_by_how_much() -> None:
    moved = sweep.Moved(
        base=[("optimizer", 0.30, 0.02, ()), ("sync", 0.10, 0.01, ()), ("none", None, None, ())],
        sides=(
            [("optimizer", 0.25, 0.07, ()), ("sync", 0.10, 0.01, ()), ("none", None, None, ())],
            [("optimizer", 0.32, 0.00, ()), ("python", None, None, ()), ("none", None, None, ())],
        ),
    )
    assert (moved.changed, moved.verdicts, round(moved.points, 6)) == (2, 1, 10.0)
    (first, *others) = sweep.rows({"fixes.optimizer_kernels": moved})
    assert first == ("fixes.optimizer_kernels", "3", "2", "1", "10.00", "4.00", "1.50", "0.00")
    assert len(others) == len(ALL) - 1


def test_each_is_moved_for_so_many_inputs_that_read_it_spread_evenly_and_for_none_twice() -> None:
    read, nothing = [{"a", "b"}, {"a"}, {"a"}, {"a"}, set()], [set[str]()] * 5
    first = sweep.chosen(read, nothing, {"a", "b"}, 2, set())
    assert first == {0: {"a", "b"}, 2: {"a"}}
    done = {(at, name) for at, names in first.items() for name in names}
    assert sweep.chosen(read, nothing, {"a", "b"}, 5, done) == {1: {"a"}, 3: {"a"}}


def test_inputs_with_a_finding_of_the_rule_that_uses_it_come_first() -> None:
    name = fixes.ATTENTION_PRODUCTS.name
    assert sweep.chosen([{name}, {name}, {name}], [set(), {"KRN103"}, {"KRN104"}], {name}, 2, set()) == {1: {name}}


def test_what_moves_nothing_is_tried_again_and_what_moved_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "keep", lambda found, diagnoses: None)
    monkeypatch.setattr(sweep, "EACH", 1)
    asked: list[list[frozenset[str] | None]] = []

    def run(tasks: list[tuple[Any, sweep.How, frozenset[str] | None]]) -> list[list[sweep.Swept]]:
        asked.append([names for *_, names in tasks])
        same: sweep.Figures = ("sync", 0.1, None, ())
        other: sweep.Figures = ("sync", 0.2, None, ())
        return [
            [(name, same, [other if name == "moves" else same] * 2) for name in names or ("moves", "rests")]
            for *_, names in tasks
        ]

    found = sweep.over([("one", "told"), ("two", "told")], run)
    assert asked == [[None, None], [frozenset({"moves", "rests"})], [frozenset({"rests"})]]
    assert (found["moves"].changed, found["rests"].changed, len(found["rests"].base)) == (1, 0, 2)
