"""The step time without a profiler reaches every command that prices, and the server: given, or as the capture says."""

import json
import shutil
from importlib.resources import files
from pathlib import Path

import pytest

from timesink.cli.app import run
from timesink.cli.parser import loaded

BEFORE, AFTER = (Path(str(files("timesink.cli").joinpath(f"demo/gpt_{side}.json.xz"))) for side in ("before", "after"))
LONGER = "times the unprofiled 5.00 ms"
PRICING = ("diagnose", "report", "plan", "report --export FORMAT", "report --open", "compare", "capture --loop")


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """The bundled capture as `timesink capture` would leave it: with a manifest that knows a step of 5 ms."""
    folder = tmp_path / "capture"
    folder.mkdir()
    shutil.copy(BEFORE, folder / "rank0.json.gz")
    manifest = {
        "timesink_manifest": 1,
        "files": [{"file": "rank0.json.gz"}],
        "ranks": [{"rank": 0, "unprofiled": {"step_ms": 5.0}}],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("name", PRICING)
def test_a_command_that_prices_takes_the_step_without_a_profiler(name: str) -> None:
    """First contact defect 2."""
    (option,) = [param for param in loaded(name).params if "--unprofiled-step-ms" in param.opts]
    assert option.metavar == "MS"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["diagnose", "report"])
def test_first_contact_defect_2_a_diagnosis_is_held_against_the_step_that_is_given(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.html"
    assert run([command, str(BEFORE), "--unprofiled-step-ms", "5", "-o", str(file)]) == 0
    assert LONGER in file.read_text(encoding="utf-8")
    assert run([command, str(BEFORE), "-o", str(file)]) == 0
    assert LONGER not in file.read_text(encoding="utf-8")


def test_the_step_that_the_capture_measured_is_known_unless_another_is_given(
    measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def step_ms(*options: str) -> float:
        words = ["plan", str(measured / "rank0.json.gz"), "--change", "remove_sync", "-f", "json", *options]
        assert run(words) == 0
        step_ns = json.loads(capsys.readouterr().out)["prices"][0]["step_ns"]
        assert isinstance(step_ns, (int, float))
        return step_ns / 1e6

    assert step_ms() == pytest.approx(5.0, rel=0.01)
    assert step_ms("--unprofiled-step-ms", "7") == pytest.approx(7.0, rel=0.01)
    assert step_ms("--unprofiled-step-ms", "0") > 7.5


def test_each_side_of_a_comparison_has_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    both = ["compare", str(BEFORE), str(AFTER), "-f", "json"]
    assert run([*both, "--unprofiled-step-ms", "5"]) == 2
    assert "of BEFORE, then of AFTER" in capsys.readouterr().out

    def gains() -> list[float]:
        found = json.loads(capsys.readouterr().out)["findings"]
        return [one["before_ms"] for one in found if one["code"] == "KRN108"]

    assert run(both) in (0, 4)
    as_profiled = gains()
    assert run([*both, "--unprofiled-step-ms", "5", "--unprofiled-step-ms", "4"]) in (0, 4)
    assert gains() != as_profiled


def test_the_server_prices_against_it_and_prices_anew_under_the_same_handle(measured: Path) -> None:
    pytest.importorskip("mcp", reason="pip install 'timesink[mcp]'")
    from timesink.errors import UsageError
    from timesink.mcp.captures import Captures

    captures = Captures([measured])
    first = captures.open("rank0.json.gz")
    assert first.trace.unprofiled_step_ns == 5e6
    again = captures.open("rank0.json.gz", 7.0)
    assert (again.handle, again.trace.unprofiled_step_ns) == (first.handle, 7e6)
    assert captures.open("rank0.json.gz") is again
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="no step takes"):
            captures.open("rank0.json.gz", wrong)
