"""Limits on numbers of tables: what they mean, what breaks them, and that nothing unknown ever passes."""

import json
import lzma
import math
from importlib.resources import as_file, files
from pathlib import Path

import jsonschema
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import trace_of

from timesink.cli.app import run
from timesink.errors import UsageError
from timesink.measures.kernels import kernels
from timesink.model.tables import DEVICE_OPS, KERNEL_METRICS
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.records import replace
from timesink.render import Format, render
from timesink.render.schemas import schema
from timesink.verify.limit_texts import parse_limit
from timesink.verify.outcomes import GateResult, Outcome
from timesink.verify.table_limits import gate_tables

OLD = trace_of("""
| device_ops | name   | stream | start_us | end_us |
| a          | gemm 1 | 7      | 0        | 30     |
| b          | relu   | 7      | 40       | 60     |
| c          | gemm 2 | 20     | 50       | 100    |
""")
NEW = trace_of("""
| device_ops | name   | stream | start_us | end_us |
| a          | gemm 1 | 7      | 0        | 33     |
| b          | tanh   | 7      | 40       | 60     |
| c          | gemm 2 | 20     | 50       | 90     |
""")
SUITE = Path(__file__).resolve().parents[2] / "benchmarks" / "kernels" / "reports"


def gated(*limits: str, new: Trace = NEW, old: Trace | None = OLD) -> GateResult:
    result = gate_tables([parse_limit(text) for text in limits], new, old)
    jsonschema.validate(json.loads(render(result, Format.JSON)), schema("gate"))
    return result


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("sum(kernels.total_ns[name~gemm]) <= 73 us", 0),
        ("sum(kernels.total_ns[name~gemm]) < 73 us", 1),
        ("sum(kernels.total_ns[name~gemm]) <= 0.91x", 1),  # 73 of 80 are 0.9125
        ("sum(kernels.total_ns[name~gemm]) <= 0.92x", 0),
        ("sum(kernels.total_ns[name~gemm]) >= 0.9x", 0),
        ("sum(kernels.total_ns[name~gemm]) +- 7 us", 0),
        ("sum(kernels.total_ns[name~gemm]) +- 6.9 us", 1),
        ("sum(kernels.total_ns[name~gemm]) ± 0.1x", 0),
        ("mean(kernels.total_ns[name~gemm]) <= 36.5 us", 0),
        ("max(kernels.total_ns[name!~gemm]) <= 20 us", 0),
        ("min(kernels.total_ns) >= 20.001 us", 1),
        ("kernels.total_ns[name=gemm 1] <= 1.1x", 0),
        ("kernels.total_ns[name=gemm 1] <= 1.05x", 1),
        ("kernels.total_ns[name~gemm] <= 1.05x", 1),  # each on its own: gemm 1 is slower, gemm 2 faster
        ("total_ns[name~gemm] <= 1.1x", 0),
        ('kernels.total_ns[name~"[12]$", name!=gemm 2] <= 34000', 0),
        ("kernels.total_ns[name~relu|tanh] == 20 us", 0),
        ("kernels.time_ratio[name=gemm 2] +- 7 points", 0),  # 50 % before, 43 % now
        ("kernels.time_ratio[name=gemm 2] +- 6.9 points", 1),
        ("kernels.time_ratio[name=gemm 2] <= 43.1 %", 0),
        ("sum(device_ops.stream) <= 34", 0),
        ("kernels.total_ns <= 2x", 4),  # relu is gone
        ("kernels.total_ns[name=tanh] <= 2x", 2),
    ],
)
def test_a_limit_by_hand(limit: str, code: int) -> None:
    if code == 2:
        with pytest.raises(UsageError, match="no row has"):
            gated(limit)
    else:
        assert gated(limit).exit_code() == code


def test_a_name_of_one_side_alone_is_no_pass() -> None:
    result = gated("kernels.total_ns <= 2x")
    outcomes = {row.name.removeprefix("kernels.total_ns of "): row.verdict.outcome for row in result.rows}
    assert outcomes["tanh"] is Outcome.INCONCLUSIVE
    assert outcomes["relu"] is Outcome.INVALID


@pytest.mark.parametrize(
    ("limit", "wrong", "remedy"),
    [
        ("kernel.count <= 1", "no table is called 'kernel'", "did you mean kernels"),
        ("kernels.cuont <= 1", "no column of kernels is called 'cuont'", "count"),
        ("kernels.count[nmae=a] <= 1", "no column of kernels is called 'nmae'", "name"),
        ("kernels.count[name=gemm 11] <= 1", "no row has kernels.name=gemm 11", "did you mean gemm 1"),
        ("kernels.name <= 1", "holds no numbers", "count"),
        ("kernels.count <= 1 ms", "no unit", "write x"),
        ("kernels.total_ns <= 1 MB", "is in ns", "us"),
        ("kernels.total_ns <= 1 points", "is in ns", "us"),
        ("kernels.time_ratio +- 2 %", "is in ratio", "points"),
        ("kernels.total_ns == 1x", "held to that", "0.05x"),
        ("kernels.total_ns <= 1.2.3", "is not a number", "write it"),
        ("kernels.total_ns <= 1e999", "is not a number", "write it"),
        ("kernels.total_ns", "is not a limit", "write it"),
        ("sum(kernels.total_ns <= 3", "names no number", "write it"),
        ("kernels.count[name~(] <= 1", "not a regular expression", ""),
        ("kernels.count[name] <= 1", "is not a filter", "column=text"),
        ("device_ops.start_ns[stream=7] <= 1", "", ""),
        ("syncs.start_ns <= 1", "no table is called 'syncs'", ""),
    ],
)
def test_what_is_not_there_or_makes_no_sense_is_refused(limit: str, wrong: str, remedy: str) -> None:
    if not wrong:  # names there: each is held on its own
        assert len(gated(limit).rows) == 2
        return
    with pytest.raises(UsageError, match=wrong) as caught:
        gated(limit)
    assert remedy in caught.value.remedy


def test_several_rows_without_names_want_a_word() -> None:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        demo = read(path)
    with pytest.raises(UsageError, match="11 rows"):
        gated("steps.period_ns <= 1 s", new=demo)
    result = gated("mean(steps.period_ns) <= 1.0x", "sum(kernels.count) == 2652", new=demo, old=demo)
    assert result.exit_code() == 0
    assert result.rows[0].verdict.explanation == "mean of 11 rows now, 11 rows before"
    assert any("differ from run to run" in note for note in result.notes)


def test_a_relative_limit_needs_the_other_file() -> None:
    with pytest.raises(UsageError, match="is relative"):
        gated("kernels.count <= 1x", old=None)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    bad=st.sampled_from([math.nan, math.inf, -math.inf, None]),
    fold=st.sampled_from(["", "sum", "mean", "min", "max", "each"]),
    limit=st.sampled_from([">= 0", "<= 1e300", ">= 0.5x", "<= 2x", "+- 1e300", "== 0", "< inf"]),
    side=st.sampled_from(["new", "old"]),
)
def test_a_number_that_is_none_never_passes(bad: float | None, fold: str, limit: str, side: str) -> None:
    def spoilt(trace: Trace) -> Trace:
        frame = trace[DEVICE_OPS].with_columns(pl.Series("bytes", [bad, 1.0, 1.0], pl.Float64))
        return replace(trace, tables={**trace.tables, DEVICE_OPS: frame})

    fine = OLD[DEVICE_OPS].with_columns(pl.Series("bytes", [1.0, 1.0, 1.0]))
    whole = replace(OLD, tables={**OLD.tables, DEVICE_OPS: fine})
    text = f"{fold}(device_ops.bytes) {limit}" if fold else f"device_ops.bytes {limit}"
    if "inf" in limit:
        with pytest.raises(UsageError):
            parse_limit(text)
        return
    pair = {"new": spoilt(OLD), "old": whole} if side == "new" else {"new": whole, "old": spoilt(OLD)}
    parsed = parse_limit(text)
    if side == "old" and not parsed.needs_other:
        return
    assert gate_tables([parsed], pair["new"], pair["old"]).exit_code() == 4


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.text(st.sampled_from(list('kernels.cout_ns[]()=~!<>"x%+-±0123 .,ms')), max_size=40))
def test_any_text_is_a_limit_or_refused(text: str) -> None:
    try:
        limit = parse_limit(text)
    except UsageError:
        return
    assert limit.text == text.strip()
    assert math.isfinite(limit.amount)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reports") / "locals.ncu-rep"
    path.write_bytes(lzma.decompress((SUITE / "locals.ncu-rep.xz").read_bytes()))
    return path


def test_a_report_of_ncu_is_gated_by_shares_and_by_any_counter(report: Path) -> None:
    trace = read(report)
    metric = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
    values = trace[KERNEL_METRICS].filter(pl.col("metric").cast(pl.String) == metric)["value"]
    highest = values.max()
    assert isinstance(highest, float)
    below = math.ceil(highest * 10) / 10 - 0.1
    assert gated(f"max(dram_pct) <= {below + 0.2:.1f} %", new=trace, old=None).exit_code() == 0
    assert gated(f"max({metric}) <= {highest * 0.99} %", new=trace, old=None).exit_code() == 1
    assert gated("each(kernels.dram_pct) >= 0.95x", new=trace, old=trace).exit_code() == 0
    with pytest.raises(UsageError, match="no column"):
        gated("kernels.dram__no_such.sum <= 1", new=trace)


def test_the_command_runs_no_program_and_writes_what_it_found(
    report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ["--limit", "dram_pct >= 0.95x", "--limit", "registers <= 1.0x"]
    assert run(["gate", "--limits", str(report), "--baseline", str(report), *limits, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["procedure"] == "table limits"
    assert {row["limit"] for row in document["metrics"]} == {">= 0.95x", "<= 1.0x"}
    broken = ["gate", "--limits", str(report), "--limit", "max(registers) <= 1", "--junit-xml", str(tmp_path / "j.xml")]
    assert run(broken) == 1
    assert "breaks <= 1" in capsys.readouterr().out
    assert "<failure" in (tmp_path / "j.xml").read_text()
    assert run(["gate", "--limits", str(report)]) == 2
    assert run(["gate", "--limits", str(report), "--limit", "dram_pct >= 1", "--", "true"]) == 2


def test_the_table_of_kernels_is_the_measure() -> None:
    total = gated("sum(kernels.total_ns) >= 0", old=None).rows[0].after
    assert total == kernels(NEW)["total_ns"].sum() == 93_000
