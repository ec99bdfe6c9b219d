"""At 80 and at 60 columns no command clips anything: heads and units are whole, names can be read, commands copied."""

import re
from pathlib import Path

import pytest

from timesink.cli.app import run
from timesink.render.tables import wrapped_name

DATA = Path(__file__).resolve().parents[1] / "data"
DEMO = Path(__file__).resolve().parents[2] / "src" / "timesink" / "cli" / "demo"
BEFORE, AFTER = str(DEMO / "gpt_before.json.xz"), str(DEMO / "gpt_after.json.xz")
COMMANDS = {
    "diagnose": ("diagnose", BEFORE),
    "verbose": ("diagnose", BEFORE, "-v"),
    "idle": ("show", "idle", BEFORE),
    "summary": ("show", BEFORE),
    "tables": ("show", "tables", BEFORE),
    "compile": ("show", "compile", BEFORE),
    "compare": ("compare", BEFORE, AFTER),
    "ranks": ("ranks", BEFORE),
    "next": ("kernels", "--next", BEFORE),
    "which": ("doctor", "slow"),
    "which-from": ("doctor", "--from", BEFORE),
    "rules": ("explain",),
    "plan": ("plan", BEFORE),
    "what-if": ("plan", BEFORE, "--change", "scale kernel:.*gemm.* 0.5"),
}
# A line that may be longer: a command, and a file named in a title.
COMMAND = re.compile(r"^\s*(?:next: )?(?:timesink|ncu|nsys|torch\.|TORCH|python|\$)")
HALF_UNIT = re.compile(r"\d\s*$\n\s*(?:%|ns|us|ms|s|kB|MB|GB)\s", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("name", COMMANDS)
def test_first_contact_defect_9_nothing_is_clipped(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First contact defect 9."""
    monkeypatch.setenv("COLUMNS", str(width))
    run([*COMMANDS[name]])
    out = capsys.readouterr().out
    assert out.strip()
    long = [line for line in out.splitlines() if len(line) > width and not COMMAND.match(line)]
    assert long == []
    assert not HALF_UNIT.search(out)
    for line in out.splitlines():
        if COMMAND.match(line):
            assert "…" not in line


@pytest.mark.parametrize("width", [80, 60])
def test_heads_and_units_of_copies_are_whole(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First contact defect 9: the copies' rate read "7" and "2."."""
    monkeypatch.setenv("COLUMNS", str(width))
    run(["show", "steps", BEFORE])
    copies = capsys.readouterr().out.partition("\nCopies\n")[2].partition("\n\nBlocking calls")[0]
    for head in ("direction", "from", "count", "moved", "rate"):
        assert head in copies.split()
    assert re.search(r"[\d.]+ [GM]B/s", copies)
    assert "rank" not in copies.split()
    assert "GPU" not in copies.split()


def test_no_two_kernels_of_a_table_look_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """First contact defect 9: three rows of the summary had the same name."""
    run(["show", "steps", BEFORE, "--top", "60"])
    kernels = capsys.readouterr().out.partition("\nKernels\n")[2].partition("\n\nOperators")[0]
    names = [row[48:].strip() for row in kernels.splitlines()[2:] if " us " in row or " ms " in row]
    assert len(set(names)) == len(names) > 10


def test_a_name_is_broken_behind_punctuation_and_loses_its_middle_last() -> None:
    assert wrapped_name("aten::unique_consecutive", 14) == ["aten::unique_", "consecutive"]
    lines = wrapped_name("a" * 100, 12)
    assert len(lines) == 3
    assert max(map(len, lines)) <= 12
    assert "…" in "".join(lines)
