"""Collectives measured on the machine of a job: by nccl-tests' formulae, kept beside the traces, and used by rules."""

import json
import sys
from pathlib import Path

import pytest
from benchmarks.faults.pack import unpacked

from timesink.capture.recorded_run import link_times
from timesink.cli.app import run
from timesink.cli.options import of_run
from timesink.diagnosis.registry import find
from timesink.diagnosis.verdicts import Found
from timesink.measures.communication.links import LinkCurve, link_curve
from timesink.model.trace import LinkTime, Trace
from timesink.readers import read
from timesink.views.capture import link_times_page, sizes_of

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/stages/results"


def test_two_gpus_exchange_as_fast_as_nccl_tests_says() -> None:
    """Every size from 4 KB to 256 MB; three runs of each, taking turns: those of nccl-tests differ by up to 9.5 %."""
    kept = json.loads((RESULTS / "collectives.json").read_text())
    page = link_times_page(kept["measured"], [], [])
    shown = {(row[0], row[1]): row for row in page.sheets[0].rows}
    compared = 0
    for kind, sizes in kept["nccl_tests"].items():
        share = {"allreduce": 1.0, "allgather": 0.5, "reducescatter": 0.5, "sendrecv": 1.0}[kind]  # of two ranks
        for size, known in sizes.items():
            _, _, time_ns, _, bus, _ = shown[kind, int(size)]
            assert 0.95 * min(known["time_us"]) <= time_ns / 1e3 <= 1.05 * max(known["time_us"])
            assert bus == pytest.approx(share * int(size) / time_ns, abs=0.006)
            compared += 1
    assert compared == 36


STAND_IN = """
import json, sys
plan, out = sys.argv[-2:]
calls = [{"kind": kind, "bytes": size, "time_ns": 1e4 + size / 300} for kind, size in json.load(open(plan))["calls"]]
head = {"timesink_nccl_bench": 1, "ranks": 2, "gpu": "H200", "library": "NCCL 2.28"}
json.dump(head | {"calls": calls}, open(out, "w"))
"""


def test_what_a_launcher_measured_lies_beside_the_trace_and_is_taken_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "launcher.py").write_text(STAND_IN)
    assert run(["capture", "nccl-bench", "-f", "json", "--", sys.executable, "launcher.py"]) == 0
    rows = json.loads(capsys.readouterr().out)["collectives"]
    assert len(rows) == len(sizes_of(None)) == 45
    last = next(row for row in rows if row["kind"] == "allreduce" and row["bytes"] == 1 << 28)
    assert last["busbw_gb_per_s"] == pytest.approx(last["algbw_gb_per_s"])  # 2 (n - 1) / n of two ranks
    assert last["algbw_gb_per_s"] == pytest.approx(300, rel=0.02)
    times = link_times([tmp_path / "rank0.json"])
    assert len(times) == 45
    assert ("send", 2, 4096, 1e4 + 4096 / 300) in times
    assert of_run(Trace("t", {}), None, [tmp_path / "rank0.json"]).link_times[0].ranks == 2
    assert run(["capture", "nccl-bench", "--", "no-such-launcher"]) != 0


@pytest.mark.parametrize(
    "text", ["", "[]", '{"calls": 3}', '{"ranks": 2, "calls": [{"kind": "x"}, 7, {"kind": "send"}]}']
)
def test_a_file_of_another_form_measures_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "nccl-bench.json").write_text(text)
    assert link_times([tmp_path]) == ()


def test_between_sizes_the_curve_is_straight_and_small_is_what_is_mostly_latency() -> None:
    curve = LinkCurve({("send", 2): ((1000, 10.0), (3000, 30.0), (9000, 60.0))})
    assert [curve.time_ns(kind, 2, size) for kind, size in (("message", 2000), ("recv", 500), ("send", 18000))] == [
        20,
        10,
        120,
    ]
    assert curve.time_ns("send", 4, 2000) is None and curve.time_ns("allreduce", 2, 2000) is None
    assert curve.small_bytes() == 3000
    assert link_curve(Trace("t", {})) is None


@pytest.mark.parametrize(("usual_us", "slow"), [(60.0, True), (100.0, False)])
def test_one_link_alone_is_judged_by_what_was_measured(
    tmp_path_factory: pytest.TempPathFactory, usual_us: float, slow: bool
) -> None:
    """Between two ranks nothing is usual; a message of 33.6 MB takes 104 us there."""
    place = tmp_path_factory.mktemp("link")
    unpacked(RESULTS / "h200_x2.tar.xz", place)
    trace = read(sorted(place.glob("depth1.rank*.json")), cache=False)
    rule = find("slow-link")
    assert not isinstance(rule.verdict(trace), Found)
    verdict = rule.verdict(trace.with_link_times((LinkTime("send", 2, 33_554_432, usual_us * 1e3),)))
    assert isinstance(verdict, Found) is slow
    if isinstance(verdict, Found):
        assert "as measured here by nccl-bench" in verdict.findings[0].message
