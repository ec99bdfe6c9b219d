"""Real runs of which others have said what is true."""

from pathlib import Path

import polars as pl
import pytest

from timesink.measures.communication import communication
from timesink.measures.communication.waits import collective_waits
from timesink.measures.ranks.lateness import lateness
from timesink.model.trace import Trace
from timesink.readers import read


@pytest.fixture(scope="module")
def dlrm(shared_data: Path) -> Trace:
    return read([shared_data / "public/kineto/dlrm_8rank"], cache=False)


def test_rank_7_comes_last_to_the_first_exchange_of_dlrm(dlrm: Trace) -> None:
    first = collective_waits(dlrm).instances.row(0, named=True)
    assert (first["kind"], first["size"], first["last_rank"]) == ("sendrecv", 8, 7)
    # The durations that the data's README states, less the last rank's 10 us, are what the others waited.
    waited = collective_waits(dlrm).calls.filter(pl.col("instance") == 0).sort("rank")["wait_ns"]
    assert [round(ns / 1000) for ns in waited] == pytest.approx([2136, 7625, 508, 6122, 4872, 4669, 504, 0], abs=4)


def test_ranks_4_and_5_come_last_to_the_last_collectives_of_dlrm(dlrm: Trace) -> None:
    assert set(collective_waits(dlrm).instances.tail(3)["last_rank"]) == {4, 5}
    own = dict(lateness(dlrm).ranks.select("rank", "own_ns").rows())
    assert sorted(own, key=lambda rank: -own[rank])[:2] in ([4, 5], [5, 4])


def test_every_collective_of_dlrm_is_matched(dlrm: Trace) -> None:
    found = collective_waits(dlrm)
    assert found.matched.unmatched_count == 0
    assert found.instances["size"].unique().to_list() == [8]
    assert all(clock.consistent for clock in found.clocks.clocks)


@pytest.mark.parametrize(("name", "exposed_ms"), [("h100_2gpu_before", 25.40), ("h100_2gpu_after", 33.74)])
def test_exposed_communication_of_the_two_gpu_pair(name: str, exposed_ms: float, shared_data: Path) -> None:
    trace = read(shared_data / f"public/nsys/{name}.sqlite", cache=False)
    assert sum(part.exposed_ns for part in communication(trace)) / 1e6 == pytest.approx(exposed_ms, abs=0.005)
