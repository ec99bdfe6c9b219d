"""Input that cannot be answered from is refused by every command in the same words and with the same exit code."""

import gzip
import json
import lzma
import shutil
from pathlib import Path

import jsonschema
import pytest
from tests.readers import ncu_reports as made

from timesink.cli.app import run
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.undiagnosable import check_diagnosis
from timesink.errors import UsageError
from timesink.model.tables import KERNEL_METRICS, KERNEL_PROFILES
from timesink.readers import read
from timesink.records import replace
from timesink.render.schemas import schema

DEMO = Path(run.__code__.co_filename).parent / "demo"
BEFORE, AFTER = DEMO / "gpt_before.json.xz", DEMO / "gpt_after.json.xz"
REPORT = made.report(made.block([made.kernel("a", [made.metric(0, 1.0)])], ["launch__waves_per_multiprocessor"]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file of each kind that is refused, and one of which most can be read."""
    folder = tmp_path_factory.mktemp("refused")
    whole = gzip.compress(lzma.decompress(BEFORE.read_bytes()))
    (folder / "beginning.json.gz").write_bytes(whole[:60_000])
    (folder / "most.json.gz").write_bytes(whole[:-60_000])
    (folder / "none.json").write_text("[]")
    (folder / "empty.json").write_text("")
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": %d, "dur": 5}'
    (folder / "cpu.json").write_text(f'{{"traceEvents": [{", ".join(event % (10 * at) for at in range(9))}]}}')
    logged = event.replace("cpu_op", "stage").replace("aten::add", "forward-compute")
    (folder / "log.json").write_text(f'{{"traceEvents": [{", ".join(logged % (10 * at) for at in range(9))}]}}')
    (folder / "log.parquet").write_bytes(b"PAR1" + bytes(90) + b"PAR1")
    (folder / "run.pftrace").write_bytes(b"\x0a\x8c\x01\x52\x05")
    (folder / "host.xplane.pb").write_bytes(b"\x0a\x10\x08\x01")
    (folder / "report.ncu-rep").write_bytes(REPORT)
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run([str(word) for word in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.mark.parametrize(
    ("name", "why", "way"),
    [
        ("beginning.json.gz", "nothing to diagnose: the gzip stream ends before its end mark", "copy the file again"),
        ("none.json", "nothing to diagnose in .*: it holds no events", "timesink capture torch"),
        ("empty.json", "the file is empty", "give a "),
        ("cpu.json", "nothing to diagnose in .*: it holds work of the CPU only", "timesink capture torch"),
        ("log.json", "it holds only events of categories that are not read: 'stage' .9.", "need a reader"),
        ("log.parquet", "this is a Parquet table, such as a log of operations, and no profile", "need a reader"),
        ("run.pftrace", "a Perfetto trace in protocol buffers", "traceconv json"),
        ("host.xplane.pb", "an XPlane profile of XLA", "give a profile of PyTorch"),
    ],
)
@pytest.mark.parametrize("command", [["diagnose"], ["report", "-o", "-"]])
def test_first_contact_defect_4_what_holds_nothing_gets_no_clean_bill(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str], name: str, why: str, way: str
) -> None:
    import re

    code, out, err = said(capsys, *command, folder / name)
    assert (code, out) == (2, "")
    assert re.search(why, err)
    assert way in err


def test_first_contact_defect_4_json_carries_the_same_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "diagnose", folder / "cpu.json", "-f", "json")
    error = json.loads(out)["error"]
    assert (code, error["exit_code"], error["kind"]) == (2, 2, "UsageError")
    assert "CPU only" in error["message"]


def test_first_contact_defect_4_a_report_without_the_counters_says_how_to_get_them(tmp_path: Path) -> None:
    (tmp_path / "a.ncu-rep").write_bytes(REPORT)
    trace = read(tmp_path / "a.ncu-rep", cache=False)
    assert trace[KERNEL_PROFILES].height == 1
    bare = replace(trace, tables={**trace.tables, KERNEL_METRICS: trace[KERNEL_METRICS].clear()})
    with pytest.raises(UsageError, match="1 profiled kernel without the counters") as caught:
        check_diagnosis(bare, diagnose(bare))
    assert "--set rules" in caught.value.remedy


def test_first_contact_defect_4_a_partial_answer_stays_and_is_marked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, "diagnose", folder / "most.json.gz")
    assert code == 2
    assert out.startswith("partial answer: ")
    assert "the gzip stream ends before its end mark" in " ".join(out.split())
    assert "what to do" in out  # the findings of what was read
    assert "the gzip stream ends before its end mark" in err
    code, out, _ = said(capsys, "diagnose", folder / "most.json.gz", "-f", "json")
    document = json.loads(out)
    jsonschema.Draft202012Validator(schema("diagnosis")).validate(document)
    assert (code, document["error"]["exit_code"]) == (2, 2)
    assert document["sources"]
    code, out, _ = said(capsys, "report", folder / "most.json.gz", "-o", "-")
    assert (code, "Partial answer: the gzip stream ends" in out) == (2, True)


@pytest.mark.parametrize("command", ["show idle", "show", "show tables", "ranks", "show compile"])
def test_first_contact_defect_4_every_command_marks_its_answer(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code, out, err = said(capsys, *command.split(), folder / "most.json.gz")
    assert (code, out.startswith("partial answer: ")) == (2, True)
    assert "end mark" in err
    assert run(["explain"]) == 0  # the next command knows nothing of it


@pytest.mark.parametrize("command", ["diagnose", "show idle", "show", "report", "ranks", "show compile"])
def test_first_contact_defect_5_two_captures_of_one_rank_are_hardly_one_job(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code, out, err = said(capsys, *command.split(), BEFORE, AFTER)
    assert (code, out) == (2, "")
    assert "2 files claim rank 0" in err
    pair = "BEFORE AFTER" if command == "ranks" else f"{BEFORE} {AFTER}"
    assert f"did you mean `timesink compare {pair}`?" in err


def test_first_contact_defect_5_a_folder_of_unrelated_captures_is_refused_with_the_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two", "three"):
        shutil.copy(BEFORE, tmp_path / f"{name}.json.xz")
    for command in ("diagnose", "ranks"):
        code, _, err = said(capsys, command, tmp_path)
        assert code == 2
        assert "3 files claim rank 0: one.json.xz, three.json.xz, two.json.xz" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["show", "idle"],
        ["plan", "--change", "remove_sync"],
        ["report", "--open"],
        ["report", "--export", "perfetto", "-o", "k.pftrace"],
    ],
)
def test_first_contact_defect_15_a_kernel_report_has_no_timeline(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = said(capsys, *arguments, folder / "report.ncu-rep")
    assert (code, out) == (2, "")
    assert "profiled one by one, and no timeline" in err
    assert "timesink kernels" in err
    assert list(tmp_path.iterdir()) == []


def test_first_contact_defect_15_a_report_says_what_it_wrote_and_is_html(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "report", BEFORE, "-o", tmp_path / "x.html") == (0, f"wrote {tmp_path / 'x.html'}\n", "")
    code, _, err = said(capsys, "report", BEFORE, "-o", tmp_path / "x.pdf")
    assert (code, (tmp_path / "x.pdf").exists()) == (2, False)
    assert "give -o FILE.html" in err
