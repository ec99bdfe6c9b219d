"""Single steps of the guides, by the command that takes each: one change at a time, threads, grading, bars."""

import json
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from benchmarks.faults.pack import unpacked

from timesink.capture.agent.settings import program_settings
from timesink.cli.app import run
from timesink.verify.environment import Command, command_differences, not_one_change

FAULTS = Path(__file__).resolve().parents[2] / "benchmarks/faults/captures"


def said(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    capsys.readouterr()
    assert run([str(word) for word in words]) == code, capsys.readouterr()
    return " ".join(capsys.readouterr().out.split())


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A loop that loads in its main process, and the same with workers, under Nsight Systems."""
    folder = tmp_path_factory.mktemp("loader")
    unpacked(FAULTS / "loader_in_main.nsys.tar.xz", folder)
    return next(folder.rglob("*high.fault*")), next(folder.rglob("*high.fix*"))


@pytest.mark.parametrize(
    ("before", "after", "differing"),
    [
        ("python a.py", "python a.py", {}),
        ("python a.py 1", "python a.py 2", {"argument 2": ("1", "2")}),
        ("X=1 python a.py", "X=2 python a.py", {"variable X": ("1", "2")}),
        ("python a.py", "X=2 python a.py --fast", {"variable X": ("absent", "2"), "argument 2": ("absent", "--fast")}),
        ("python a.py --slow 3 -b 8", "python a.py -b 16",
         {"argument 2": ("--slow 3", "absent"), "argument 5": ("8", "16")}),
        ("python old/a.py", "python new/a.py", {"argument 1": ("old/a.py", "new/a.py")}),
    ],
)  # fmt: skip
def test_what_two_commands_differ_in_is_listed_and_more_than_one_is_said(
    before: str, after: str, differing: dict[str, tuple[str, str]]
) -> None:
    found = command_differences(Command.parse(before), Command.parse(after))
    assert found == differing
    assert bool(not_one_change(found)) == (len(differing) > 1)


def test_a_secret_is_no_difference_to_be_shown() -> None:
    found = command_differences(Command.parse("HF_TOKEN=hf_abcdefghijkl python a.py"), Command.parse("python a.py"))
    assert "hf_abcdefghijkl" not in str(found)


def test_a_verification_lists_its_one_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("verify", "-q", "--whole", "--pairs", "2", "-f", "json")
    program = f"{sys.executable} -c pass"
    capsys.readouterr()
    sides = ("--before", f"SPEED=1 {program}", "--after", f"SPEED=2 {program} one")
    assert run([*words, *sides]) in (0, 1)  # two runs of a busy machine may differ
    told = json.loads(capsys.readouterr().out)
    assert told["differences"] == {"variable SPEED": ["1", "2"], "argument 3": ["absent", "one"]}
    assert any(note.startswith("not one change: 2 facts differ") for note in told["notes"])


def test_ranges_are_listed_by_thread(loader: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Batches that are loaded in line are loaded on the thread that computes."""
    rows = json.loads(said(capsys, "show", "ranges", loader[0], "--by-thread", "-f", "json"))["ranges"]
    threads = {row["name"]: row["thread"] for row in rows}
    assert threads["data"] == threads["forward"] == threads["step"]


def test_the_lab_is_graded_as_one_verdict(loader: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Calls of CUDA, the phases, data among the longest, and 1.1 times as fast: each fails where it is not so."""
    before, after = loader
    checks = ('sum(call_times.count[name~"cudaLaunchKernel|cudaMemcpy"]) >= 1',
              'range_times.count[name~"^(data|forward|backward|optimizer)$"] >= 1',
              "range_times.time_ratio[name=data] >= 30 %")  # fmt: skip
    limits = [word for check in checks for word in ("--limit", check)]
    assert "✓" in said(capsys, "gate", "--limits", before, *limits)
    said(capsys, "gate", "--limits", after, *limits, code=1)
    faster = ("--limit", "mean(steps.period_ns) <= 0.909x")
    said(capsys, "gate", "--limits", after, "--baseline", before, *faster)
    said(capsys, "gate", "--limits", before, "--baseline", after, *faster, code=1)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('nvtx.range_push("data_load")\nwith nvtx.annotate("forward"): ...', "ranges of w.py: data_load, forward"),
        ("with record_function('mlp'): ...", "ranges of w.py: mlp"),
        ('@nvtx.annotate(f"L{n}_mlp", color="red")\ndef mlp(): ...', "ranges of w.py: L{n}_mlp"),
        ("nvtx.range_push(name)", "ranges of w.py: named as it runs"),
        ("import torch", "w.py itself marks no ranges: --auto-ranges marks"),
    ],
)
def test_the_ranges_of_a_script_are_named_before_it_is_captured(
    script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    tool = tmp_path / "nsys"
    tool.write_text("#!/bin/sh\necho 'NVIDIA Nsight Systems version 2025.3.1 --trace cuda nvtx osrt'\n")
    tool.chmod(0o755)
    assert words in said(capsys, "capture", "nsys", "--dry-run", "--tool", tool, "--", sys.executable, "w.py")


def test_rungs_that_are_closed_by_hand_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The post's chart: 383 us, 356 with CUDA graphs, 351 with one kernel for SiLU and product."""
    monkeypatch.chdir(tmp_path)
    for number, (what, measured) in enumerate((("CUDA graphs", "0.383,0.356"), ("SiLU", "0.004,0.005,0.006")), 1):
        said(capsys, "verify", "--ledger", "add", what)
        said(capsys, "verify", "--ledger", "close", number, "--outcome", "faster", "--measured", measured)
    chart = said(capsys, "verify", "--ledger", "show").partition("The step after each change")[2]
    assert [word for word in chart.split() if word in ("383", "356", "351")] == ["383", "356", "351"]
    assert chart.count("█ ") + chart.endswith("█") == 3
    said(capsys, "verify", "--ledger", "add", "tiles")
    said(capsys, "verify", "--ledger", "close", 3, "--outcome", "faster", "--measured", "5", code=2)


def test_a_capture_keeps_what_chooses_torchs_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention backends, precision of products, and graphs compiled; without one of them the others stay."""

    class Backends:
        class cudnn:  # noqa: N801 - as torch has it
            deterministic = benchmark = False

        class cuda:  # noqa: N801
            flash_sdp_enabled = staticmethod(lambda: True)
            math_sdp_enabled = staticmethod(lambda: False)

    class Torch:
        backends = Backends
        get_num_threads = staticmethod(lambda: 4)
        is_anomaly_enabled = are_deterministic_algorithms_enabled = staticmethod(lambda: False)
        get_float32_matmul_precision = staticmethod(lambda: "high")

    class Dynamo:
        counters: ClassVar = {"stats": {"unique_graphs": 3}}

    monkeypatch.setitem(sys.modules, "torch", Torch)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", Dynamo)  # type: ignore[arg-type]
    found = program_settings()
    assert (found["attention"], found["matmul_precision"], found["compiled_graphs"]) == ("flash", "high", "3")
    monkeypatch.delattr(Torch, "get_float32_matmul_precision")
    found = program_settings()
    assert found["threads"] == "4" and "attention" not in found
