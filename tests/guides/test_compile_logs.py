"""Graph breaks from the text of TORCH_LOGS alone: a run without any writes nothing, and programs print in between."""

from pathlib import Path

import pytest

from timesink.cli.app import run

LOGS = Path(__file__).resolve().parents[1] / "data/compile"
PRINTED = "".join(f"step {number} loss 2.31\n" for number in range(400))  # longer than what a format is known by
GOOD = {
    "empty.log": "",
    "blank.txt": "\n\n",
    "printed.err": PRINTED,
    "stderr.out": "/usr/lib/python3/warnings.py:30: UserWarning: slow\n  warnings.warn(text)\n",
    "umlaut.log": "é ü 漢字\n",
    "bars.stderr": "\r 10%|#         | 1/10\r 20%|##        | 2/10\n",
}
BROKEN = ("item_break", "print_break", "layer_breaks", "collective_break")


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    capsys.readouterr()
    code = run([str(word) for word in words])
    return code, " ".join(capsys.readouterr().out.split())


def broken(folder: Path, name: str, before: str = "", after: str = "") -> Path:
    path = folder / f"{name}.log"
    path.write_text(f"{before}{(LOGS / f'{name}.text.log').read_text()}{after}")
    return path


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("fault", BROKEN[:2])
def test_breaks_from_none_are_stated_and_fail_a_gate(
    name: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence of the guide, "graph_breaks regressed from 0 to N in mode C", from its own command."""
    before = tmp_path / name
    before.write_text(GOOD[name])
    after = broken(tmp_path, fault, PRINTED, "done\n")
    code, text = said(capsys, "show", "statement", after, "--against", before)
    assert code == 0
    assert "graph: graph_breaks 0 -> 1, first at" in text
    assert "if TORCH_LOGS named them" in text
    code, text = said(capsys, "gate", "--capture", after, "--capture-before", before)
    assert (code, "graph breaks worse: +1" in text) == (1, True)
    code, text = said(capsys, "gate", "--capture", before, "--capture-before", after)
    assert (code, "graph breaks better: -1" in text) == (0, True)


@pytest.mark.parametrize("name", GOOD)
def test_a_silent_log_is_no_proof(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    path.write_text(GOOD[name])
    code, text = said(capsys, "show", "compile", path)
    assert code == 0
    assert "which means none if TORCH_LOGS named them" in text
    code, text = said(capsys, "show", "statement", path)
    assert "graph breaks 0, recompilations 0, if TORCH_LOGS named them" in text
    code, text = said(capsys, "diagnose", path)
    assert "2 clear" not in text


@pytest.mark.parametrize("fault", BROKEN)
def test_output_of_the_program_in_between_is_passed_over(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = said(capsys, "show", "statement", LOGS / f"{fault}.text.log")
    assert said(capsys, "show", "statement", broken(tmp_path, fault, PRINTED, PRINTED)) == alone


@pytest.mark.parametrize(
    ("name", "content"), [("a.log", b"\0\1\2"), ("a.log", b'{"a": 1}'), ("a.csv", b""), ("a.json", b""), ("a", b"x\n")]
)
def test_what_is_no_log_of_text_is_refused(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert said(capsys, "show", "compile", path)[0] == 2


def test_a_folder_of_runs_holds_no_silent_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in GOOD.items():
        (tmp_path / name).write_text(text)
    assert said(capsys, "show", "compile", tmp_path)[0] == 2
