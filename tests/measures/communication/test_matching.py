"""Which calls are one collective: by number, by order, shifted windows, missing calls."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.jobs_by_hand import EPOCH_NS, Drift, calls_frame, collectives, on_clocks

from timesink.measures.communication.matching import TokenSequence, align_sequences, match_collectives


def pairs(found: pl.DataFrame) -> list[list[int]]:
    """The true number (its time in ms) of each matched call, by instance."""
    number = (pl.col("end_ns") - EPOCH_NS) // 1_000_000
    grouped = found.sort("instance", "rank").group_by("instance", maintain_order=True).agg(number)
    return [list(row) for row in grouped["end_ns"]]


def numbered(sequence: list[tuple[int, int]]) -> pl.DataFrame:
    """Calls of (rank, sequence number), each at its number in ms."""
    return calls_frame(
        [
            {"rank": rank, "group": "g", "group_size": 2, "sequence": number, "bytes": 8,
             "start_ns": EPOCH_NS + number * 1_000_000, "end_ns": EPOCH_NS + number * 1_000_000 + 500}
            for rank, number in sequence
        ]
    )  # fmt: skip


def test_sequence_numbers_match_whatever_is_missing() -> None:
    found = match_collectives(numbered([(0, 1), (0, 2), (0, 4), (1, 2), (1, 3), (1, 4)]))
    assert pairs(found.calls) == [[2, 2], [4, 4]]
    assert found.unmatched_count == 2
    assert found.by_order_count == 0


def test_sequence_numbers_that_name_different_kinds_are_not_believed() -> None:
    calls = numbered([(0, 1), (0, 2), (1, 1), (1, 2)])
    other = (pl.col("rank") == 1) & (pl.col("sequence") == 1)
    wrong = calls.with_columns(kind=pl.when(other).then(pl.lit("allgather")).otherwise("kind"))
    assert match_collectives(wrong).by_order_count > 0


def test_a_window_that_opened_a_step_late_is_shifted_by_that_step() -> None:
    """Four collectives a step, alike in every step; rank 1 recorded steps 1 to 4, rank 0 steps 0 to 3."""
    random = np.random.default_rng(0)
    begin = np.cumsum(random.integers(900_000, 1_100_000, size=20))
    calls = collectives(np.stack([begin, begin + random.integers(0, 3_000, size=20)], axis=1), [20_000] * 20)
    calls = calls.with_columns(pl.col("start_ns").rank("dense").over("rank").cast(pl.Int64).alias("number"))
    kept = calls.filter(
        ((pl.col("rank") == 0) & (pl.col("number") <= 16)) | ((pl.col("rank") == 1) & (pl.col("number") > 4))
    ).drop("number")
    shown = on_clocks(kept, {1: Drift(offset_ns=12_345_678)})
    found = match_collectives(shown).calls.sort("instance", "rank")
    ends = found.group_by("instance", maintain_order=True).agg(pl.col("end_ns").diff().last())["end_ns"]
    assert found["instance"].n_unique() == 12
    assert ends.to_list() == [12_345_678] * 12


def test_a_call_that_one_rank_lost_leaves_the_others_matched() -> None:
    kinds = ["allgather", "allgather", "reducescatter", "allreduce", "allgather", "barrier"]
    rows = [
        {"rank": rank, "kind": kind, "start_ns": EPOCH_NS + at * 1_000_000, "end_ns": EPOCH_NS + at * 1_000_000 + 100}
        for rank in (0, 1)
        for at, kind in enumerate(kinds)
        if (rank, at) != (1, 2)
    ]
    found = match_collectives(calls_frame(rows))
    assert pairs(found.calls) == [[0, 0], [1, 1], [3, 3], [4, 4], [5, 5]]
    assert found.unmatched_ratio == pytest.approx(1 / 11)


def test_sends_between_two_ranks_are_no_all_to_all() -> None:
    calls = collectives([[0, 0], [1_000, 1_000]], [10, 10]).with_columns(
        kind=pl.lit("sendrecv"), labelled=pl.lit(False)
    )
    found = match_collectives(calls)
    assert (found.calls.height, found.one_sided_count) == (0, 4)


def test_exchanges_of_many_alike_ranks_count_but_prove_nothing() -> None:
    calls = collectives([[0, 0, 5], [1_000, 1_000, 1_002]], [10, 10]).with_columns(kind=pl.lit("sendrecv"))
    found = match_collectives(calls).calls
    assert found["instance"].n_unique() == 2
    assert not found["rigorous"].any()


def test_a_missing_rank_makes_an_instance_incomplete() -> None:
    calls = numbered([(0, 1), (1, 1)]).with_columns(group_size=pl.lit(3, pl.Int32))
    assert not match_collectives(calls).calls["complete"].any()


def test_calls_of_different_groups_are_never_one() -> None:
    calls = collectives([[0, 0], [1_000, 1_000]], [10, 10])
    split = calls.with_columns(group=pl.when(pl.col("rank") == 0).then(pl.lit("a")).otherwise(pl.lit("b")))
    assert match_collectives(split).calls.height == 0


@given(st.permutations(range(12)))
def test_the_order_of_rows_does_not_matter(order: list[int]) -> None:
    calls = collectives([[0, 3], [900, 905], [2_000, 2_001], [3_000, 3_100], [4_000, 4_000], [5_000, 5_009]], [9] * 6)
    assert match_collectives(calls[order].sort(calls.columns)).calls.equals(match_collectives(calls).calls)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=9), st.lists(st.integers(0, 2), min_size=1, max_size=9))
def test_aligned_calls_are_of_one_kind_and_in_order(first: list[int], second: list[int]) -> None:
    one, two = (TokenSequence(np.array(x, np.int64), np.arange(len(x), dtype=np.int64)) for x in (first, second))
    mine, theirs = align_sequences(one, two)
    assert [first[i] for i in mine] == [second[i] for i in theirs]
    assert (np.diff(mine) > 0).all()
    assert (np.diff(theirs) > 0).all()
