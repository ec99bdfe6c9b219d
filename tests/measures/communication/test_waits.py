"""Waiting and transfer: every nanosecond of a collective once, by hand and as laws."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.jobs_by_hand import EPOCH_NS, Drift, calls_frame, collectives, job_of, on_clocks
from tests.tables import trace_of

from timesink.measures.communication import communication
from timesink.measures.communication.waits import waits_of
from timesink.measures.ranks.job import job
from timesink.measures.ranks.lateness import lateness_of, rebalanced
from timesink.records import replace

ONE_HOST = dict.fromkeys(range(8), "node")
ARRIVALS = st.lists(
    st.lists(st.integers(0, 5_000), min_size=3, max_size=3), min_size=2, max_size=8
).map(lambda rows: [[20_000 * at + x for x in row] for at, row in enumerate(rows)])  # fmt: skip


def test_the_last_rank_waits_for_nobody_and_the_others_for_it() -> None:
    calls = collectives([[0, 300, 1_000]], [250])
    found = waits_of(job_of(calls, ONE_HOST))
    assert found.calls.select("rank", "wait_ns", "transfer_ns").rows() == [(0, 1_000, 250), (1, 700, 250), (2, 0, 250)]
    line = found.instances.row(0, named=True)
    assert (line["last_rank"], line["margin_ns"], line["transfer_ns"]) == (2, 700, 250)


@given(ARRIVALS)
def test_wait_and_transfer_are_the_whole_duration_exposed_or_not(arrival: list[list[int]]) -> None:
    calls = waits_of(job_of(collectives(arrival, [100] * len(arrival)), ONE_HOST)).calls
    length = calls["end_ns"] - calls["start_ns"]
    assert (calls["wait_ns"] + calls["transfer_ns"] == length).all()
    assert (calls["wait_ns"] >= 0).all()
    assert (calls["transfer_ns"] >= 0).all()
    # Every collective here is exposed from begin to end.
    assert (calls["exposed_wait_ns"] == calls["wait_ns"]).all()
    assert (calls["exposed_transfer_ns"] == calls["transfer_ns"]).all()


@given(ARRIVALS, st.integers(-(10**12), 10**12))
def test_no_wait_depends_on_what_the_clocks_show(arrival: list[list[int]], offset: int) -> None:
    """Ends coincide exactly here, so that offsets are found exactly."""
    calls = collectives(arrival, [100] * len(arrival))
    true = waits_of(job_of(calls)).calls
    moved = waits_of(job_of(on_clocks(calls, {1: Drift(offset), 2: Drift(-offset)}))).calls
    assert moved["wait_ns"].to_list() == true["wait_ns"].to_list()


def test_inherited_lateness_is_not_a_ranks_own() -> None:
    """At the second, rank 1 is 400 us late by itself; it and rank 0 leave together, so nobody is late at the third."""
    calls = collectives([[0, 0], [1_000_000, 1_400_000], [2_500_000, 2_500_000], [3_600_000, 3_600_000]], [100_000] * 4)
    late = lateness_of(waits_of(job_of(calls, ONE_HOST)))
    assert late.ranks.select("rank", "own_ns", "late_count").rows() == [(0, 0, 0), (1, 400_000, 1)]


EXPERTS = """
| device_ops | rank | stream | name                                | start_us | end_us |
| a0         |    0 |     20 | dpsk::ep::internode::notify_dispatch |        0 |     60 |
| b0         |    0 |     20 | dpsk::ep::internode::dispatch<false> |       60 |    160 |
| c0         |    0 |      7 | grouped_gemm                        |      160 |    300 |
| d0         |    0 |     20 | dpsk::ep::internode::combine<false>  |      300 |    500 |
| a1         |    1 |     20 | dpsk::ep::internode::notify_dispatch |       50 |     60 |
| b1         |    1 |     20 | dpsk::ep::internode::dispatch<false> |       60 |    160 |
| c1         |    1 |      7 | grouped_gemm                        |      160 |    400 |
| d1         |    1 |     20 | dpsk::ep::internode::combine<false>  |      400 |    500 |
"""


def test_an_expert_exchange_is_waiting_for_the_rank_with_more_tokens_and_then_transfer() -> None:
    trace = trace_of(EXPERTS)
    found = waits_of(job(trace)).calls.sort("rank", "start_ns").select("rank", "kind", "wait_ns", "transfer_ns").rows()
    assert found == [
        (0, "barrier", 50_000, 10_000),
        (0, "alltoall", 0, 100_000),
        (0, "alltoall", 100_000, 100_000),
        (1, "barrier", 0, 10_000),
        (1, "alltoall", 0, 100_000),
        (1, "alltoall", 0, 100_000),
    ]
    of_rank_0 = communication(trace)
    assert (of_rank_0[0, 0].total_ns, of_rank_0[0, 0].exposed_ns) == (360_000, 360_000)
    assert of_rank_0.barriers_ns((0, 0)) == 60_000  # known without the other rank's file, at least


def test_lateness_within_the_error_of_the_clocks_is_none() -> None:
    calls = collectives([[0, 0], [1_000_000, 1_400_000], [2_500_000, 2_500_000]], [800_000] * 3)
    late = lateness_of(waits_of(job_of(calls)))
    assert late.ranks["own_ns"].to_list() == [0, 0]


def test_more_computation_is_told_from_a_late_host() -> None:
    calls = collectives([[0, 0], [1_000_000, 1_400_000], [2_500_000, 2_900_000]], [100_000] * 3)
    work = (
        pl.when((pl.col("rank") == 1) & (pl.col("start_ns").rank().over("rank") == 2))
        .then(1_200_000)
        .otherwise(900_000)
    )
    late = lateness_of(waits_of(job_of(calls.with_columns(work_before_ns=work.cast(pl.Int64)), ONE_HOST)))
    assert late.ranks.row(1, named=True)["device_ns"] == 300_000
    assert late.ranks.row(1, named=True)["host_ns"] == 100_000 + 400_000


def test_lateness_from_a_slow_transfer_or_from_waiting_for_some_ranks_is_not_the_hosts() -> None:
    """Everybody leaves the first at 100 us. Ranks 2 and 3 then exchange: rank 3 comes to that at 200, rank 2 at 500,
    and it takes 700. So at 1,300 both are 600 us behind ranks 0 and 1, whose exchange from 600 to 650 is the usual one:
    they come at 700. Rank 3 waited 300 of it for rank 2; of the transfer 650 are more than usual."""

    def part(group: str, ranks: list[int], arrival_us: list[int], end_us: int) -> list[dict[str, object]]:
        return [
            {"rank": rank, "group": group, "group_size": len(ranks), "holds": group == "all",
             "start_ns": EPOCH_NS + 1_000 * at, "end_ns": EPOCH_NS + 1_000 * end_us}
            for rank, at in zip(ranks, arrival_us, strict=True)
        ]  # fmt: skip

    every = [0, 1, 2, 3]
    rows = [
        *part("all", every, [0] * 4, 100),
        *part("a", [0, 1], [600, 600], 650),
        *part("b", [2, 3], [500, 200], 1_200),
    ]
    rows += [*part("all", every, [700, 700, 1_300, 1_300], 1_400), *part("all", every, [1_900] * 4, 2_000)]
    calls = calls_frame(rows)
    bare = job_of(calls, ONE_HOST)
    whole = replace(bare, exposed=calls.select("rank", "device", "start_ns", "end_ns").sort("*"))
    late = lateness_of(waits_of(whole)).ranks
    assert late.select("rank", "own_ns", "network_ns", "host_ns").rows()[2:] == [
        (2, 600_000, 600_000, 0),
        (3, 300_000, 300_000, 0),
    ]


def test_without_its_lateness_the_job_is_as_late_as_the_next() -> None:
    """At the second, rank 3 is 400 us late and rank 2 100 us: 300 us go without the one, 400 us without both."""
    late_ns = [1_000_000, 1_000_000, 1_100_000, 1_400_000]
    calls = collectives([[0] * 4, late_ns, [2_500_000] * 4], [100_000] * 3)
    late = lateness_of(waits_of(job_of(calls, ONE_HOST)))
    assert (rebalanced(late, [3]), rebalanced(late, [2, 3])) == (0.12, 0.16)
    assert late.span_ns == 2_500_000


@given(ARRIVALS)
def test_gains_grow_with_the_ranks_and_stay_below_the_span(arrival: list[list[int]]) -> None:
    late = lateness_of(waits_of(job_of(collectives(arrival, [100] * len(arrival)), ONE_HOST)))
    nobody, one, two = (rebalanced(late, chosen) for chosen in ([], [0], [0, 1]))
    assert nobody == 0
    assert 0 <= one <= two <= 1


def exchanged(arrival: list[list[int]], ends: dict[tuple[int, int], int] | None = None) -> pl.DataFrame:
    """Exchanges that run as sends and receives, each over 100 us after its last rank came; `ends` of some ranks."""
    calls = collectives(arrival, [100_000] * len(arrival)).with_columns(kind=pl.lit("sendrecv"), labelled=pl.lit(False))
    rows = calls.sort("start_ns", "rank").to_dicts()
    for (at, rank), early_ns in (ends or {}).items():
        [row for row in rows if row["rank"] == rank][at]["end_ns"] -= early_ns
    return calls_frame(rows)


LATE = [[1_000_000 * at, 1_000_000 * at + 400_000, 1_000_000 * at + 5_000] for at in range(8)]


@pytest.mark.parametrize(
    ("calls", "late_ranks"),
    [
        (exchanged(LATE), [1]),
        (exchanged(LATE, {(3, 0): 450_000}), []),  # one went on without the late rank
        (exchanged(LATE[:4]), []),  # too few to tell
        (exchanged([[at, at + 40_000, at] for at, _, _ in LATE]), []),  # later by less than a transfer takes
        (exchanged([[*row, row[0]] for row in LATE]), [1]),
        (exchanged(LATE, {(3, 2): 40_000}), [1]),  # its part was there before the others'
    ],
)
def test_exchanges_that_were_seen_to_hold_their_ranks_prove_who_was_late(
    calls: pl.DataFrame, late_ranks: list[int]
) -> None:
    late = lateness_of(waits_of(job_of(calls, ONE_HOST))).ranks
    assert late.filter(pl.col("own_ns") > 100_000)["rank"].to_list() == late_ranks


def test_on_clocks_that_nothing_ties_exchanges_prove_nothing() -> None:
    late = lateness_of(waits_of(job_of(exchanged(LATE)))).ranks
    assert late["own_ns"].sum() == 0
