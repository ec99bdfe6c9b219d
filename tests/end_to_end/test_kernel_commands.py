"""The commands about profiled kernels, from file to output."""

import json
import lzma
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.readers import ncu_reports as made

from timesink.cli.app import run
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck, Found, Undecided
from timesink.knowledge.kernel_names import short_name
from timesink.measures.counters.comparison import compare_reports
from timesink.readers import read
from timesink.untrusted.masking import redacted
from timesink.views.kernels import kernel_entries, kernels_page

SUITE = Path(__file__).resolve().parents[2] / "benchmarks" / "kernels" / "reports"
PCT = ".avg.pct_of_peak_sustained_elapsed"
BUSY = {"gpu__time_duration.sum": 2000.0, f"dram__cycles_active{PCT}": 90.0, f"sm__inst_executed{PCT}": 10.0}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "locals.ncu-rep"
    path.write_bytes(lzma.decompress((SUITE / "locals.ncu-rep.xz").read_bytes()))
    return path


def hand_made(
    path: Path, metrics: dict[str, made.Value], command: str = "ncu a.out", lock: tuple[int, int] = (1, 1)
) -> Path:
    found = [made.metric(index, value) for index, value in enumerate(metrics.values())]
    head = made.block(details=made.session(command))
    path.write_bytes(made.report(head, made.block([made.kernel("k", found, locked=lock)], list(metrics))))
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert run([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_kernels_as_json_are_a_list_in_report_order(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(output(capsys, "kernels", report, "--format", "json"))["kernels"]
    assert [one["id"] for one in listed] == [0, 1, 2, 3]
    keys = {"kernel", "id", "time_us", "limiter", "limiter_or", "limiter_share", "limiter_share_at_most", "action"}
    assert all(set(one) == keys | {"roof", "roof_share", "roof_speedup", "bound_speedup"} for one in listed)
    assert all(
        one["limiter_share_at_most"] >= max(one["limiter_share"], 1 - 1 / one["bound_speedup"]) for one in listed
    )
    assert all(Bottleneck(one["limiter"]) for one in listed)
    assert [one["limiter"] for one in listed if "_fault" in one["kernel"]] == ["register_spills"] * 2
    assert all(one["bound_speedup"] >= 1 and 0 <= one["roof_share"] <= 1.05 for one in listed)


def test_kernels_as_text_name_limiter_clock_and_command(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "kernels", report)
    assert "register spills" in text
    assert "boost 1.98 GHz" in text
    assert "counters of the report" in text


def test_a_kernel_with_failed_counters_has_no_limiter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = hand_made(tmp_path / "a.ncu-rep", dict.fromkeys(BUSY, math.nan))
    (one,) = json.loads(output(capsys, "kernels", path, "--format", "json"))["kernels"]
    assert (one["limiter"], one["time_us"], one["bound_speedup"]) == (None, None, None)
    assert "undecided, 3 counters are NaN" in output(capsys, "kernels", path)


def test_a_diagnosis_of_a_report_names_the_kernel(report: Path) -> None:
    diagnosis = diagnose(read(report, cache=False))
    assert diagnosis.bottleneck is Bottleneck.REGISTER_SPILLS
    assert all(finding.where.kernel for card, finding in diagnosis.findings if card.code.startswith("NCU"))
    _, first = diagnosis.findings[0]
    assert first.recoverable is not None
    assert first.recoverable.unit == "ms"


def test_rules_that_miss_counters_are_undecided_and_name_the_kernel(tmp_path: Path) -> None:
    path = hand_made(tmp_path / "a.ncu-rep", dict.fromkeys(BUSY, math.nan))
    verdicts = [ruling.verdict for ruling in diagnose(read(path, cache=False)).rulings if ruling.card.code[:3] == "NCU"]
    assert len(verdicts) == 9
    assert all(isinstance(verdict, Undecided) and "k (launch 0)" in verdict.why for verdict in verdicts)


def test_launches_of_one_kernel_are_one_finding(tmp_path: Path) -> None:
    result = made.kernel("k", [made.metric(index, value) for index, value in enumerate(BUSY.values())])
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(made.report(made.block([result, result, result], list(BUSY))))
    rulings = diagnose(read(path, cache=False)).rulings
    (memory,) = [ruling.verdict for ruling in rulings if ruling.card.name == "memory-bound-kernel"]
    assert isinstance(memory, Found)
    assert [("3 launches of 6.00 us in all" in finding.message) for finding in memory.findings] == [True]


def test_beside_a_timeline_the_gain_is_of_the_step(tmp_path: Path) -> None:
    """A kernel of 2 of every 10 us, 90 % busy on DRAM, 10 % issue: without its bytes 0.2 us of it remain."""
    profile = hand_made(tmp_path / "a.ncu-rep", BUSY)
    events = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "GPU"}}]
    shape = {"device": 0, "context": 1, "stream": 7, "grid": [2, 3, 1], "block": [64, 1, 1]}
    for step in range(12):
        start = 10 * step
        events.append(_event(f"ProfilerStep#{step}", "user_annotation", start, 10, pid=1))
        linked, other = {"correlation": 2 * step + 1}, {"correlation": 2 * step + 2, "grid": [1, 1, 1]}
        events += [_event("cudaLaunchKernel", "cuda_runtime", start + 0.1, 0.1, pid=1, args=linked)]
        events += [_event("cudaLaunchKernel", "cuda_runtime", start + 0.3, 0.1, pid=1, args=other)]
        events.append(_event("void k(float*)", "kernel", start + 1, 2, args={**shape, **linked}))
        events.append(_event("other", "kernel", start + 4, 5, args={**shape, **other}))
    timeline = tmp_path / "trace.json"
    timeline.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    from timesink.readers import read

    diagnosis = diagnose(read([timeline, profile], cache=False))
    (finding,) = [finding for card, finding in diagnosis.findings if card.name == "memory-bound-kernel"]
    assert finding.recoverable is not None
    assert finding.recoverable.high == pytest.approx(0.002 * 0.9, rel=0.01)
    assert "12 launches, 2.00 us of a step" in finding.message


def _event(name: str, category: str, start: float, length: float, **more: object) -> dict[str, object]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "ts": start,
        "dur": length,
        "pid": 0,
        "tid": 7,
        "args": {},
        **more,
    }


def test_two_captures_are_compared_by_count_and_by_time_only_under_equal_settings(tmp_path: Path) -> None:
    counts = {**BUSY, "inst_executed": 100}
    before = read(hand_made(tmp_path / "a.ncu-rep", counts), cache=False)
    after = read(
        hand_made(tmp_path / "b.ncu-rep", {**counts, "inst_executed": 50, "gpu__time_duration.sum": 1e3}), cache=False
    )
    result = compare_reports(before, after)
    (pair,) = result.pairs
    assert result.obstacles == ()
    assert pair.time_ratio == 0.5
    assert dict(pair.counts) == {"instructions": (100.0, 50.0)}
    unlocked = read(hand_made(tmp_path / "c.ncu-rep", counts, lock=(0, 0)), cache=False)
    warm = read(hand_made(tmp_path / "d.ncu-rep", counts, "ncu --cache-control none a.out"), cache=False)
    assert [one.split(":")[0] for one in compare_reports(before, unlocked).obstacles] == ["clock control differs"]
    assert [one.split(":")[0] for one in compare_reports(before, warm).obstacles] == ["cache control differs"]


def test_a_comparison_under_other_settings_shows_no_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = hand_made(tmp_path / "a.ncu-rep", BUSY), hand_made(tmp_path / "b.ncu-rep", BUSY, lock=(0, 0))
    shown = json.loads(output(capsys, "kernels", before, "--against", after, "--format", "json"))
    assert not shown["times_comparable"]
    text = " ".join(output(capsys, "kernels", before, "--against", after, "--id", "0").split())
    assert "times are not compared: clock control differs" in text
    assert "2.00 us" not in text


def test_the_roofline_is_drawn_as_harmless_svg(
    report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "plot.svg"
    output(capsys, "kernels", "--roofline", report, "-o", plot)
    text = plot.read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not re.search(r"<script|href|onload", text)
    circles = root.findall(".//{http://www.w3.org/2000/svg}circle")
    assert len(circles) >= 4


def test_names_are_checked_before_a_run_is_spent_on_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", "--metrics", "gpu__time_duration.sum", "l2__throughput.avg", "--chip", "sm_90"]) == 2
    assert "l2__throughput.avg  wrong on sm_90: exists on no chip; use lts__throughput.avg" in capsys.readouterr().out
    assert run(["kernels", "--metrics", "gpu__time_duration.sum", "--chip", "sm_90"]) == 0


def test_next_prints_a_capture_of_the_steps_that_it_looked_at(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = shared_data / "own" / "kineto" / "gpt_before.json.gz"
    text = output(capsys, "kernels", "--next", trace, "--top", "2", "--program", "python gpt.py")
    commands = [line.strip() for line in text.splitlines() if line.strip().startswith("timesink capture ncu ")]
    assert len(commands) == 2
    assert all(command.endswith("python gpt.py") for command in commands)
    assert "--kernels '^multi_tensor_apply_kernel$' --launch-count 2" in commands[0]
    assert "--launch-skip" not in text  # nothing that a reader would have to count


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("ncu -o r python a.py --api-key abc123 --lr 3", "ncu -o r python a.py --api-key *** --lr 3"),
        ("env HF_TOKEN=hf_abcdefghijk python a.py", "env HF_TOKEN=*** python a.py"),
        ("python a.py --url https://me:secret@host/x", "python a.py --url https://***@host/x"),
        ("python a.py ghp_abcdefghijklmnop", "python a.py ***"),
        ("ncu --set full -k regex:gemm a.out", "ncu --set full -k regex:gemm a.out"),
    ],
)
def test_secrets_leave_a_shown_command(command: str, wanted: str) -> None:
    assert redacted(command) == wanted


def test_small_waiting_kernels_are_one_finding_to_fuse(tmp_path: Path) -> None:
    """Ten kernels of 2 us, of which 0.2 us are work: too small to profile alone; the eleventh of 50 us is looked at."""
    units = {f"dram__cycles_active{PCT}": 10.0, f"sm__inst_executed{PCT}": 5.0}
    waits = {"sm__warps_active.avg.pct_of_peak_sustained_active": 10.0}
    metrics = {"gpu__time_duration.sum": 2000.0, **units, **waits}
    short = [made.metric(index, value) for index, value in enumerate(metrics.values())]
    long = [made.metric(0, 50_000.0), *short[1:]]
    results = [made.kernel(f"k{number}", short) for number in range(10)] + [made.kernel("long", long)]
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(made.report(made.block(results, list(metrics))))
    trace = read(path, cache=False)
    findings = [finding for card, finding in diagnose(trace).findings if card.code in ("NCU106", "NCU107")]
    together = [finding for finding in findings if "small kernels" in finding.message]
    assert [finding.message for finding in together] == [
        "10 small kernels, 10 launches of 20.0 us in all, fill no unit for 89.5 % of their time. A launch takes less "
        "than 5 us, too little to change by itself"
    ]
    assert len(findings) == 2
    assert "Fuse" in together[0].advice
    assert all("too small" in one["action"] for one in kernel_entries(trace)[:10])


def test_each_advice_names_the_kernels_it_is_for(report: Path) -> None:
    """Every launch is counted in one row, and the kernels of a row are those whose advice it is."""
    trace = read(report, cache=False)
    page, entries = kernels_page(trace), kernel_entries(trace)
    rows = next(sheet for sheet in page.sheets if sheet.key == "actions").rows
    assert sum(int(str(row[1])) for row in rows) == len(entries)
    for limiter, _, kernels, action in rows:
        of = str(kernels)
        named = {short_name(one["kernel"]) for one in entries if (one["limiter"], one["action"]) == (limiter, action)}
        assert {name.partition(" ×")[0] for name in of.partition(" and ")[0].split(", ")} <= named
        assert (" and " in of) is (len(named) > 3)


@pytest.mark.parametrize("launches", [4, 7, 91])
def test_launches_of_one_kernel_are_one_row_with_their_spread(launches: int, tmp_path: Path) -> None:
    """In report order; a row each where rows are sorted, and as JSON."""
    path = tmp_path / "often.ncu-rep"
    names = list(BUSY)
    kernels = [
        made.kernel("k", [made.metric(0, 2000.0 + 10 * at), *(made.metric(n, BUSY[names[n]]) for n in (1, 2))])
        for at in range(launches)
    ]
    path.write_bytes(made.report(made.block(details=made.session("ncu a.out")), made.block(kernels, names)))
    trace = read(path, cache=False)
    (sheet,) = (sheet for sheet in kernels_page(trace).sheets if sheet.key == "kernels")
    (row,) = sheet.rows
    of = {field.key: cell for field, cell in zip(sheet.columns, row, strict=True)}
    assert (of["launches"], of["longest_ns"]) == (launches, 2000.0 + 10 * (launches - 1))
    assert of["time_ns"] == 2000.0 + 10 * ((launches - 1) // 2)
    assert len(kernel_entries(trace)) == launches
    (sheet,) = (s for s in kernels_page(trace, list(range(launches))).sheets if s.key == "kernels")
    assert len(sheet.rows) == launches


def test_kernels_that_ran_a_few_times_have_a_row_each(report: Path) -> None:
    (sheet,) = (sheet for sheet in kernels_page(read(report, cache=False)).sheets if sheet.key == "kernels")
    assert len(sheet.rows) == 4 and "launches" not in {field.key for field in sheet.columns}
