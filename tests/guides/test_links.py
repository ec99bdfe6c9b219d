"""What a timeline shows of links and units: ranges of NCCL, counters of NVLink, and what limits kernels by counters."""

import lzma
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from benchmarks.faults.pack import unpacked
from tests.capture.stand_ins import NSYS_HELP
from tests.guides.answers import sheets
from tests.tables import trace_of

from timesink.capture.profilers import NsysOptions
from timesink.capture.tools import Tool
from timesink.cli.app import run
from timesink.diagnosis.registry import find
from timesink.diagnosis.verdicts import Found
from timesink.measures.counters.sampled import sampled
from timesink.model.intervals import Intervals
from timesink.readers import read

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
EXCHANGES = {
    "healthy_ddp.fault": {"NCCL:ncclAllReduce": 40},
    "pipeline.fix": {"NCCL:ncclSend": 40, "NCCL:ncclRecv": 40, "NCCL:ncclGroupEnd": 80},
}


@pytest.mark.parametrize(
    ("asked", "known", "traced"),
    [
        (("cuda", "nvtx", "osrt", "nccl"), NSYS_HELP, "cuda,nvtx,osrt"),
        (("cuda", "nccl"), NSYS_HELP, "cuda,nvtx"),
        (("cuda", "nccl"), NSYS_HELP.replace("'mpi'", "'mpi', 'nccl'"), "cuda,nccl"),
    ],
)
def test_nccl_is_traced_by_its_own_ranges_where_nsys_has_no_domain_of_it(
    asked: tuple[str, ...], known: str, traced: str
) -> None:
    tool = Tool("nsys", Path("/bin/nsys"), (2025, 3), frozenset(), known)
    argv = NsysOptions(asked, cuda_graphs="graph", cpu_samples=True).command(
        tool, Path("/out"), ["a.out"], by_range=False
    )
    assert f"--trace={traced}" in argv


@pytest.mark.parametrize("name", EXCHANGES)
def test_ranges_of_nccl_hold_the_exchanges_that_they_launch(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two H100s under `nsys -t cuda,nvtx,osrt`: NCCL marks each call in its domain, on both ranks."""
    unpacked(BENCHMARKS / f"ranks/captures/two/{name}.nsys.tar.xz", tmp_path)
    found = sheets(capsys, "show", "ranges", next(tmp_path.rglob("*.sqlite")), "--top", "40")["ranges"]
    for rank in (0, 1):
        calls = {row["name"]: row for row in found if row["rank"] == rank}
        assert {called: calls[called]["count"] for called in EXCHANGES[name]} == EXCHANGES[name]
        assert sum(calls[called]["op_count"] or 0 for called in EXCHANGES[name]) > 0


LINKS = """
| devices | rank | device | name |
| g | 0 | 0 | NVIDIA H100 80GB HBM3 |

| device_ops | name | kind | start_us | end_us |
| k | ncclDevKernel_AllReduce_Sum_f16_RING_LL | kernel | 0 | 1000 |

"""


def test_kernels_without_shapes_are_told_apart_by_sampled_counters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On an H100: passes over memory are memory bound, an fp32 product is neither that nor on tensor cores."""
    path = tmp_path / "two_kernels.sqlite"
    path.write_bytes(lzma.decompress((BENCHMARKS / "lines/captures/two_kernels.sqlite.xz").read_bytes()))
    found = {row["part"]: row for row in sheets(capsys, "show", "ops", path)["kernels"]}
    assert found["pointwise"]["bound"] == "memory" and found["pointwise"]["dram_ratio"] == pytest.approx(0.83, abs=0.01)
    assert found["gemm"]["bound"] == "neither memory nor tensor cores"
    assert found["idle: launch latency"]["bound"] == "launch" and found["idle: host sync"]["bound"] == "idle"
    assert sum(row["time_ratio"] for row in found.values()) == pytest.approx(1.0, abs=0.01)


def test_a_timeline_without_shapes_and_counters_says_how_to_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpacked(BENCHMARKS / "faults/captures/loader_in_main.nsys.tar.xz", tmp_path)
    assert run(["show", "ops", str(next(tmp_path.rglob("*high.fault*")))]) == 0
    assert "timesink capture nsys --gpu-metrics" in " ".join(capsys.readouterr().out.split())


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two H200s that sum 268,435,456 bytes four times a step."""
    folder = tmp_path_factory.mktemp("links")
    unpacked(BENCHMARKS / "guides/captures/links.tar.xz", folder)
    return folder


def test_nccl_is_asked_for_and_recorded_by_its_own_ranges(links: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = sheets(capsys, "show", "ranges", links / "nccl", "--top", "40")["ranges"]
    calls = {row["rank"]: (row["count"], row["op_count"]) for row in found if row["name"] == "NCCL:ncclAllReduce"}
    assert calls == {0: (16, 16), 1: (16, 16)}


SENT, LINK, LINKS_EACH = 268_435_456, 26.562e9, 18


def test_what_goes_over_nvlink_is_what_the_exchange_is_known_to_send(links: Path) -> None:
    """Over two GPUs a ring sends each byte once: payload within two points of bytes over time over the links' rate, on
    both GPUs, each of which is its own rank's."""
    trace = read([links / "nvlink/report.sqlite"])
    for rank in (0, 1):
        ops = trace["device_ops"].filter(pl.col("rank") == rank)
        sums = ops.filter(ops["name"].cast(pl.String).str.starts_with("ncclDevKernel_AllReduce"))
        lengths = (sums["end_ns"] - sums["start_ns"]).to_numpy()
        usual = sums.filter(lengths < 1.2 * np.median(lengths))  # others wait for their peer
        during = Intervals.union_of(usual["start_ns"].to_numpy(), usual["end_ns"].to_numpy())
        expected = SENT * usual.height / (during.total_ns * 1e-9) / (LINK * LINKS_EACH)
        shares = {one.what: one.share for one in sampled(trace, (rank, rank), during)}
        samples = trace["gpu_metrics"].filter(pl.col("rank") == rank, pl.col("device") == rank)
        payload = samples.filter(samples["name"].cast(pl.String).str.contains("NVLink TX .* User Data"))
        inside = during.covered_ns(payload["time_ns"].to_numpy() - 1, payload["time_ns"].to_numpy()) > 0
        parts = payload["name"].n_unique()
        assert parts * payload["value"].to_numpy()[inside].mean() / 100 == pytest.approx(expected, abs=0.02)
        assert expected < shares["NVLink sent"] < 1.25 * expected  # and what the protocol adds


COLLECTIVES = (
    "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_that_keeps_few_multiprocessors_busy_is_no_finding(name: str) -> None:
    """It does so by design: on two H200s an all-reduce with 19 % of them was "split the work into more blocks"."""
    samples = [f"| s{at} | SMs Active [Throughput %] | {at} | 17 |" for at in range(50, 1000, 50)]
    head = LINKS.replace("ncclDevKernel_AllReduce_Sum_f16_RING_LL", name)
    trace = trace_of(head + "\n".join(["| gpu_metrics | name | time_us | value |", *samples]))
    assert not isinstance(find("KRN112").verdict(trace), Found)
    other = trace_of(
        (head + "\n".join(["| gpu_metrics | name | time_us | value |", *samples])).replace(name, "scan_of_few")
    )
    assert isinstance(find("KRN112").verdict(other), Found)


def test_kernels_that_exchange_are_limited_by_links(links: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = sheets(capsys, "show", "ops", links / "nvlink")["kernels"]
    assert {row["bound"] for row in found if row["part"] == "communication"} == {"links"}
