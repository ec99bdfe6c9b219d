"""The sweep of assumptions: what is read is seen, what is moved is put back, and the table says what a move does."""

from __future__ import annotations

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
        base=[("optimizer", 0.30, 0.02), ("sync", 0.10, 0.01), ("none", None, None)],
        sides=(
            [("optimizer", 0.25, 0.07), ("sync", 0.10, 0.01), ("none", None, None)],
            [("optimizer", 0.32, 0.00), ("python", None, None), ("none", None, None)],
        ),
    )
    assert (moved.changed, moved.verdicts, round(moved.points, 6)) == (2, 1, 10.0)
    (first, *others) = sweep.rows({"fixes.optimizer_kernels": moved})
    assert first == ("fixes.optimizer_kernels", "3", "2", "1", "10.00", "4.00", "1.50", "0.00")
    assert len(others) == len(ALL) - 1
