"""What is asked wrongly, or cannot be answered, is told at the door: exit 1 is a verdict only, 70 a fault of ours."""

import json
import lzma
import os
import resource
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib.resources import files
from pathlib import Path

import pytest

from timesink.cli.app import run
from timesink.errors import UnreadableTrace, cannot_read

ROOT = Path(__file__).resolve().parents[2]
BEFORE = str(files("timesink.cli").joinpath("demo/gpt_before.json.xz"))
Captured = pytest.CaptureFixture[str]


def started(*words: str, **streams: object) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "timesink", *words], capture_output=True, text=True, check=False, **streams
    )  # type: ignore[call-overload,no-any-return]


def test_what_nobody_expected_is_no_verdict(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("x")

    monkeypatch.setattr("timesink.diagnosis.engine.diagnose", broken)
    assert run(["diagnose", BEFORE]) == 70
    said = capsys.readouterr().err
    assert "a fault of timesink: ZeroDivisionError: x (in test_doors.py" in said and "TIMESINK_DEBUG=1" in said
    assert run(["diagnose", BEFORE, "--format", "json"]) == 70
    assert '"exit_code": 70' in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("command", [["diagnose"], ["show", "steps"], ["show", "tables"], ["ranks"]])
@pytest.mark.parametrize("name", [b"n\xff\xfe.json", b"\xc3\x28.json", b"k\xed\xa0\x80.json"])
def test_a_name_of_any_bytes_is_read(command: list[str], name: bytes, tmp_path: Path, capsys: Captured) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    path.write_bytes(lzma.decompress(Path(BEFORE).read_bytes()))
    for form in ([], ["--format", "json"]):
        assert run([*command, str(path), *form]) == 0
        assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("closed", [(1,), (0, 1), (1, 2), (0, 1, 2)])
def test_a_closed_stream_is_no_fault(closed: tuple[int, ...], tmp_path: Path) -> None:
    closing = "".join(f"os.close({number}); " for number in closed)
    words = [sys.executable, "-m", "timesink", "diagnose", BEFORE, "-o", str(tmp_path / "a.md")]
    for given in (words[:-2], words):
        program = f"import os; {closing}os.execv({given[0]!r}, {given!r})"
        assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0
    assert "input_pipeline" in (tmp_path / "a.md").read_text()


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    program = f"import os; os.mkdir({str(gone)!r}); os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); "
    words = [sys.executable, "-m", "timesink", "diagnose", "x.json"]
    done = subprocess.run(
        [sys.executable, "-c", f"{program}os.execv({words[0]!r}, {words!r})"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr


@pytest.mark.parametrize("address", ["https://host/x.json", "s3://bucket/x.json", "ftp://h/x", "http://h"])
def test_an_address_is_no_path(address: str, capsys: Captured) -> None:
    assert run(["diagnose", address]) == 2
    assert f"{address!r} is an address; `timesink ranks` reads some" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.pdf", "x.xyz", "x.json.bak", "x.docx", "x.parquet"])
def test_a_name_of_no_format_is_refused(name: str, tmp_path: Path, capsys: Captured) -> None:
    assert run(["diagnose", BEFORE, "-o", str(tmp_path / name)]) == 2
    assert "no format is known by the name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert run(["diagnose", BEFORE, "-o", str(tmp_path / name), "--format", "md"]) == 0


def test_limits_take_per_cent(capsys: Captured) -> None:
    told = []
    for limit in ("3%", "0.03", "3 %"):
        assert run(["diagnose", BEFORE, "-v", "--limit", f"IDL101.idle_ratio={limit}"]) == 0
        told.append(capsys.readouterr().out)
    assert len(set(told)) == 1
    assert run(["diagnose", BEFORE, "--limit", "IDL101.idle_ratio=%"]) == 2


@pytest.mark.parametrize(
    ("told_ms", "code"), [("0.1", 2), ("0.0103", 2), ("200", 2), ("10300", 2), ("10.3", 0), ("8", 0)]
)
def test_a_step_that_cannot_be_is_refused(told_ms: str, code: int, capsys: Captured) -> None:
    assert run(["diagnose", BEFORE, "--unprofiled-step-ms", told_ms]) == code
    assert ("cannot be: the profiled step takes" in capsys.readouterr().err) == (code == 2)


def test_one_rank_is_a_line_and_no_rank_is_refused(tmp_path: Path, capsys: Captured) -> None:
    assert run(["ranks", BEFORE]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    report = tmp_path / "gemm.ncu-rep"
    report.write_bytes(lzma.decompress((ROOT / "benchmarks/kernels/reports/gemm.ncu-rep.xz").read_bytes()))
    assert run(["ranks", str(report)]) == 2
    assert "timesink kernels" in capsys.readouterr().err


def test_a_missing_file_is_told_before_what_reads_files_is_imported() -> None:
    """0.1 s of CPU where everything is compiled; a machine that compiles anew takes four times as long."""
    program = "import sys; from timesink.cli.app import run; run(['diagnose', 'none.json']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"polars", "numpy", "timesink.readers", "timesink.measures"} & set(done.stdout.split())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert started("diagnose", "none.json").returncode == 2
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


OF_A_FILE = (
    "diagnose X", "report --serve X", "show idle X", "show lines X", "show compile X", "plan X", "report X",
    "kernels X", "kernels --next X", "ranks X", "ranks --pipeline X", "memory show X", "memory diff X X", "compare X X",
    "gate --limits X", "capture --redact X", "doctor step slow --from X", "doctor --checklist X",
    "report --export table X --table device_ops -o x.csv",
)  # fmt: skip


def test_no_command_imports_what_reads_files_to_say_that_one_is_missing(tmp_path: Path) -> None:
    """`report --serve` too, which is a server once it has read its options."""
    program = (
        "import json, sys; from timesink.cli.app import run; codes = [run(words) for words in json.loads(sys.argv[1])];"
        "print(json.dumps([codes, [*sys.modules]]))"
    )
    asked = json.dumps([line.replace("X", "none.json").split() for line in OF_A_FILE] + [["ranks", "none"]])
    done = subprocess.run(
        [sys.executable, "-c", program, asked], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    codes, modules = json.loads(done.stdout)
    assert dict(zip(OF_A_FILE, codes, strict=False)) == dict.fromkeys(OF_A_FILE, 2)
    assert done.stderr.count("none.json: No such file or directory") == len(OF_A_FILE)
    assert "choose a view: -" not in done.stderr
    assert not {"polars", "timesink.readers", "timesink.measures", "timesink.diagnosis.registry"} & {*modules}


def test_what_the_system_says_of_a_path_is_told_and_nothing_else(tmp_path: Path, capsys: Captured) -> None:
    """First contact defect B21: any failure to look at a path was told as a file that is not there."""
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for name, why in {
        "none.json": "No such file or directory",
        "nowhere": "No such file or directory",
        "a.json/b.json": "Not a directory",
        "round": "Too many levels of symbolic links",
        f"{300 * 'a'}.json": "File name too long",
    }.items():
        assert run(["diagnose", str(tmp_path / name)]) == 2
        assert f"{name}: {why}" in capsys.readouterr().err


@pytest.mark.parametrize("named", ["/cache/of/ours", "given", None])
def test_an_error_of_another_file_is_not_told_as_that_of_the_input(tmp_path: Path, named: str | None) -> None:
    given = tmp_path / "given"
    error = OSError(2, "No such file or directory", str(given) if named == "given" else named)
    said = cannot_read(given, error)
    assert isinstance(said, UnreadableTrace) == (named != "/cache/of/ours")
    assert (str(given) in said.message) == (named != "/cache/of/ours")


def test_limits_without_a_file_or_a_limit_say_which_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """First contact defect B3. The limits of a suite in pyproject.toml count as given."""
    monkeypatch.chdir(tmp_path)
    assert run(["gate", "--limits"]) == 2 and "no trace or report is named" in capsys.readouterr().err
    assert run(["gate", "--limits", BEFORE, "--suite", "train"]) == 2
    said = capsys.readouterr().err
    assert "no limits are given" in said and "[tool.timesink.suites.train]" in said
    (tmp_path / "pyproject.toml").write_text('[tool.timesink.suites.train]\nlimits = ["sum(kernels.count) <= 2700"]\n')
    assert run(["gate", "--limits", BEFORE, "--suite", "train"]) == 0


def test_redaction_shows_that_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """First contact defect B19: fourteen seconds of silence."""
    (tmp_path / "a.txt").write_text("softmax")
    shown = list[str]()

    def working(what: str) -> AbstractContextManager[None]:
        shown.append(what)
        return nullcontext()

    monkeypatch.setattr("timesink.cli.capture.working", working)
    for proof in ([], ["--proof"]):
        run(["capture", "--redact", str(tmp_path / "a.txt"), *proof])
    assert shown == 2 * ["reading every text of a.txt"]
