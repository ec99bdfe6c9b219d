"""What broke when strangers' files and requests were tried: trust defects 2 to 10, each made again.

Redaction (trust defect 1) is in `tests/capture/test_redaction.py`; queries that take all memory or time (trust
defect 7) are in `tests/export/test_sql.py`.
"""

import io
import json
import math
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.measures.steps.spike_traces import simulated
from tests.readers import ncu_reports as made
from tests.tables import trace_of

from timesink.cli.app import run
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.gains import in_order
from timesink.diagnosis.verdicts import Quantity
from timesink.errors import UnreadableTrace, UsageError
from timesink.export.sql import TooLong, TooMuch, apart
from timesink.readers import ReadLimits, head_of
from timesink.readers.ncu import READERS
from timesink.untrusted import starts_formula
from timesink.untrusted.unpack import plain_files
from timesink.views import roofline


@pytest.mark.parametrize("name", [2**31, 2**63, 2**64 - 1])
def test_a_metric_whose_name_has_a_huge_number_is_left_out(tmp_path: Path, name: int) -> None:
    body = made.number(1, name) + made.message(2, made.message(1, "t"))
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(made.report(made.block([made.kernel("a", [made.metric(0, 1.0), made.message(13, body)])], ["x"])))
    trace = READERS[0].read(path, ReadLimits())
    assert [(note.message, note.count) for note in trace.notes] == [("damaged metrics were left out", 1)]


@pytest.mark.parametrize("flops", [0.0, -1.0, math.inf, math.nan])
def test_a_kernel_without_a_positive_rate_is_no_point_of_a_roofline(
    flops: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roofline, "verdict_sentence", lambda sheet: "")
    line = SimpleNamespace(
        flops=flops,
        duration_ns=1000.0,
        intensity=lambda _: 2.0,
        memory_of=lambda _: SimpleNamespace(share=0.5, bytes=1),
    )
    assert list(roofline._points(SimpleNamespace(), line)) == []  # type: ignore[arg-type]
    line = SimpleNamespace(
        flops=1.0,
        duration_ns=1000.0,
        intensity=lambda _: flops,
        memory_of=lambda _: SimpleNamespace(share=0.5, bytes=1),
    )
    assert list(roofline._points(SimpleNamespace(), line)) == []  # type: ignore[arg-type]


def test_a_trace_that_begins_before_its_zero_is_written_for_perfetto_from_zero() -> None:
    pytest.importorskip("perfetto", reason="perfetto is not installed")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace

    from timesink.export.perfetto import write_perfetto

    trace = trace_of("""
| device_ops | name | stream | start_us | end_us |
| a          | gemm | 7      | -30      | -10    |
| b          | relu | 7      | 40       | 60     |
""")
    file = io.BytesIO()
    write_perfetto(trace, None, file)
    read = PerfettoTrace.FromString(file.getvalue())
    times = sorted({packet.timestamp for packet in read.packet if packet.HasField("track_event")})
    assert times == [0, 20_000, 70_000, 90_000]


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [
        ((1.65, 0.82, 1.10), (1.10, 0.82, 1.10)),
        ((1.0, 2.0, 3.0), (1.0, 1.0, 3.0)),
        ((2.0, 1.0, None), (2.0, 1.0, None)),
    ],
)
def test_a_price_is_in_order_whatever_a_rule_states(
    stated: tuple[float, float, float | None], wanted: tuple[float, float, float | None]
) -> None:
    gain = in_order(Quantity(stated[0], "ms", low=stated[1], high=stated[2]))
    assert (gain.value, gain.low, gain.high) == wanted


@pytest.mark.parametrize("kind", ["slow_batch", "checkpoint"])
def test_no_price_is_above_the_mean_step_where_some_steps_are_slow(kind: str) -> None:
    diagnosis = diagnose(simulated(3, kind)[0])
    priced = [(finding.recoverable, finding.of_ms) for _, finding in diagnosis.findings if finding.recoverable]
    assert priced
    for gain, step_ms in priced:
        assert step_ms is not None
        high = gain.value if gain.high is None else gain.high
        assert (gain.low or 0.0) <= gain.value <= high <= step_ms * (1 + 1e-9)


def test_a_file_that_ends_too_early_is_said_to_and_nobody_interrupted_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cut() -> None:
        raise EOFError("Compressed file ended before the end-of-stream marker was reached")

    monkeypatch.setattr("timesink.diagnosis.registry.all_rules", cut)
    assert run(["explain"]) == 2
    told = capsys.readouterr().err
    assert "ends before it should" in told
    assert "interrupted" not in told


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path / "a\0b", tmp_path / "a\ud800"):
        with pytest.raises(UnreadableTrace, match=r"not a plain file|no file can have this name"):
            head_of(path)


def test_an_agent_opens_no_pipe_and_no_folder_with_a_link_to_outside(tmp_path: Path) -> None:
    from timesink.mcp.captures import Captures

    root, outside = tmp_path / "root", tmp_path / "outside.parquet"
    (root / "export").mkdir(parents=True)
    outside.write_bytes(b"PAR1")
    os.mkfifo(root / "pipe")
    (root / "export/StringIds.parquet").symlink_to(outside)
    captures = Captures([root])
    (root / "loop").symlink_to(root / "loop")
    for path in ("pipe", "export", "\ud800", "a\0b", "loop", "loop/x", "x" * 5_000, "~" + "z" * 300, "pipe/x"):
        with pytest.raises((UnreadableTrace, UsageError)) as refused:
            captures.open(path)
        str(refused.value).encode()
    with pytest.raises(UnreadableTrace, match="leads outside"):
        list(plain_files(root / "export", (root.resolve(),)))


@pytest.mark.parametrize(
    "text", ["\ud800", "a\udfff\\ud800", "\U0001f600", "\\", '\ud83d"\ude00', "\ud800\U0001f600\udc00"]
)
def test_a_request_with_half_of_a_pair_can_be_answered(text: str) -> None:
    from timesink.mcp.server import without_halves

    mended = json.loads(without_halves(json.dumps({"path": text}).encode()))["path"]
    assert mended == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@pytest.mark.parametrize("text", ["=1", " =1", "\u200b=1", "＝1", "|calc", "\t@a", "−1", "+1", "%1"])
def test_a_disguised_formula_is_one(text: str) -> None:
    assert starts_formula(text)


def test_a_name_is_no_formula() -> None:
    assert not any(map(starts_formula, ("", "void f<4>(int)", "a=b", "_Z1f", "1-2", "  ")))


def test_work_that_does_not_end_or_wants_all_memory_is_ended() -> None:
    assert apart(lambda: {"a": [1, "x"]}, 10.0, 1 << 28) == {"a": [1, "x"]}
    began = time.monotonic()
    with pytest.raises(TooLong):
        apart(lambda: time.sleep(60), 0.2, 1 << 28)
    assert time.monotonic() - began < 20
    with pytest.raises(TooMuch):
        apart(lambda: len(bytearray(1 << 31)), 10.0, 1 << 28)
