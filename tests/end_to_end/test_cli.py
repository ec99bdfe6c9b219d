"""The command line as its user meets it: exit codes, formats, files, errors.

`timesink show compile`, and logs beside traces under `timesink diagnose`, as a user runs them.

How many options there are: twelve a command in its help, the others under --help-all, 260 over all commands.
"""

import json
import lzma
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click import Group

from timesink.cli.app import run
from timesink.cli.commands import COMMANDS, ENTRIES, entry_of, modes
from timesink.cli.help import EVERYWHERE, is_argument, is_shown
from timesink.cli.parameters import Commands
from timesink.cli.parser import loaded
from timesink.render.schemas import schema

BEFORE = Path(str(files("timesink.cli").joinpath("demo/gpt_before.json.xz")))
HEAVY = ("polars", "numpy", "scipy", "pyarrow", "rich.console", "timesink.readers", "timesink.measures")


def timesink(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a shell would start it, without a terminal."""
    plain = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    words = [sys.executable, "-m", "timesink", *arguments]
    return subprocess.run(words, capture_output=True, text=True, env={**plain, **environment}, check=False, timeout=120)


def test_help_takes_less_than_200_ms_of_processor_time() -> None:
    """The least of five, of the processor: the machine may be busy, the command may not be slow."""
    spent_s = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert timesink("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent_s) < 0.2


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_where_nothing_can_be_written_to_an_answer_is_no_error(word: str) -> None:
    program = f"import os; os.close(1); os.execv({sys.executable!r}, [{sys.executable!r}, '-m', 'timesink', {word!r}])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["diagnose", "--help"], ["show", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = f"import sys; from timesink.cli.app import run; run({arguments!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stderr.split()) & set(HEAVY) == set()


@pytest.mark.parametrize(("size", "given", "threads"), [(None, None, "1"), (None, "3", "3"), (0, None, "2")])
def test_polars_reads_small_files_on_one_thread_and_others_on_two_unless_told_otherwise(
    size: int | None, given: str | None, threads: str
) -> None:
    """A file counts as small or, with a limit of no bytes, as large."""
    small = "" if size is None else f"from timesink import startup; startup._SMALL_BYTES = {size}; "
    program = f"""import os, sys; from timesink.cli.app import run; {small}
run(["show", "tables", "--no-cache", {str(BEFORE)!r}]); import polars
print(os.environ.get("POLARS_MAX_THREADS"), polars.thread_pool_size(), file=sys.stderr)"""
    environment = {name: value for name, value in os.environ.items() if name != "POLARS_MAX_THREADS"}
    environment |= {"POLARS_MAX_THREADS": given} if given else {}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    said, used = done.stderr.split()
    assert said == used == threads


@pytest.mark.parametrize(("cores", "threads"), [(2, "1"), (3, "2")])
def test_ranks_are_read_on_one_thread_each_where_they_are_enough_for_every_core(
    tmp_path: Path, cores: int, threads: str
) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json.gz").symlink_to(BEFORE)
    program = f"""import os, sys; from timesink.cli.app import run
from timesink import startup; startup._SMALL_BYTES = 0
os.cpu_count = lambda: {cores}
run(["ranks", "--no-cache", *{sorted(map(str, tmp_path.iterdir()))!r}])
print(os.environ.get("POLARS_MAX_THREADS"), file=sys.stderr)"""
    environment = {name: value for name, value in os.environ.items() if name != "POLARS_MAX_THREADS"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr.split()[-1] == threads


def test_parts_of_polars_that_no_command_uses_are_left_out_and_modules_in_them_are_still_found() -> None:
    program = f"""import sys; from timesink.cli.app import run
run(["show", "tables", "--no-cache", {str(BEFORE)!r}]); import polars
before = [name for name in ("importlib.metadata", "polars.io.iceberg._dataset") if name in sys.modules]
from polars.io.iceberg._utils import _to_py_datetime_exact
print(before, polars.scan_iceberg, sys.modules["polars.io.iceberg._utils"].__name__, file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["[]", "None", "polars.io.iceberg._utils"]


def test_numpy_begins_on_one_thread_and_a_program_begun_later_may_have_more() -> None:
    program = f"""import os, sys
class Looking:
    def find_spec(self, name, *rest):
        if name == "numpy": print(os.environ.get("OPENBLAS_NUM_THREADS"), file=sys.stderr)
sys.meta_path.insert(0, Looking())
from timesink.cli.app import run; run(["show", "tables", "--no-cache", {str(BEFORE)!r}])
print(os.environ.get("OPENBLAS_NUM_THREADS"), file=sys.stderr)"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for given, said in (({}, ["1", "None"]), ({"OPENBLAS_NUM_THREADS": "2"}, ["2", "2"])):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment | given, check=True
        )
        assert [done.stderr.split()[at] for at in (0, -1)] == said


def test_every_command_is_listed_with_the_first_line_of_its_own_help() -> None:
    shown = timesink("--help-all", COLUMNS="120").stdout
    for name, summary in COMMANDS.items():
        entry = entry_of(name)
        if not isinstance(entry, Commands) and name != "show":  # whose own answer is one of its views
            assert (entry.__doc__ or "").splitlines()[0] == summary
        assert re.search(rf"^  {name} +{re.escape(summary)}$", shown, re.MULTILINE)


def test_the_exit_codes_stand_in_the_help() -> None:
    shown = " ".join(timesink("--help").stdout.split())
    assert "0 success; 1 a gate failed" in shown
    assert "130 interrupted" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["diagnoze"], "No such command 'diagnoze'"),
        (["diagnose"], "Missing argument"),
        (["diagnose", "--nonsense", "x"], "No such option"),
        (["diagnose", "no/such/file.json"], "no/such/file.json"),
        (["diagnose", str(BEFORE), "--limit", "abc"], "write it as CODE.name=value"),
        (["diagnose", str(BEFORE), "--limit", "CPY101.nothing=1"], "no limit is called 'CPY101.nothing'"),
        (["diagnose", str(BEFORE), "--only", "XXX999"], "no rule is called 'XXX999'"),
        (["diagnose", str(BEFORE), "--rank", "7"], "no rank 7"),
        (["explain", "XXX999"], "`timesink explain` lists all"),
        (["diagnose", str(BEFORE), "-o", "no/such/folder/x.txt"], "cannot write"),
        (["diagnose", str(BEFORE), "-o", str(BEFORE)], "is an input of this command"),
    ],
)
def test_a_wrong_request_exits_with_2_and_says_why(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in " ".join(shown.err.split())


@pytest.mark.parametrize("form", [["--format", "json"], ["--format=json"], ["-f", "json"], ["-fjson"]])
def test_errors_are_json_where_json_was_asked_for(form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["diagnose", "no/such/file", *form], ["diagnose", "--nonsense", *form]):
        assert run(arguments) == 2
        document = json.loads(capsys.readouterr().out)
        jsonschema.validate(document, schema("error"))
        assert document["command"] == "diagnose"
        assert document["error"]["exit_code"] == 2
        assert document["error"]["message"]


def test_a_hostile_file_name_acts_on_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[2J\n::error::b.json"
    path.write_text("not a trace", encoding="utf-8")
    assert run(["diagnose", str(path)]) == 2
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert not re.search(r"^\s*::", shown, re.MULTILINE)


def test_the_diagnosis_is_json_that_obeys_the_shipped_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", str(BEFORE), "--format", "json", "--no-cache"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema("diagnosis"))
    assert document["verdict"]["bottleneck"] == "input_pipeline"
    assert document["verdict"]["statement"].startswith(document["findings"][0]["message"] + ". A fix saves ")
    for device in document["devices"]:
        parts = ("compute_ms", "exposed_comm_ms", "exposed_copy_ms", "idle_ms")
        assert sum(device[part] for part in parts) == pytest.approx(device["span_ms"], abs=1e-6)


def test_the_demo_names_the_input_pipeline_before_and_not_after(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--format", "json"]) == 0
    both = json.loads(capsys.readouterr().out)
    jsonschema.validate(both["gpt_before"], schema("diagnosis"))
    assert both["gpt_before"]["verdict"]["bottleneck"] == "input_pipeline"
    assert both["gpt_after"]["verdict"]["bottleneck"] != "input_pipeline"
    assert not any(finding["bottleneck"] == "input_pipeline" for finding in both["gpt_after"]["findings"])


def test_the_demo_fits_two_screens_and_ends_with_what_to_try_next(capsys: pytest.CaptureFixture[str]) -> None:
    """First contact defect 28."""
    assert run(["demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 60
    assert lines[-5] == "Next, on a program of yours:"


def test_the_demo_is_the_same_text_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo"]) == 0
    first = capsys.readouterr().out
    assert run(["demo"]) == 0
    assert capsys.readouterr().out == first
    assert "\x1b" not in first
    assert "\n\ninput pipeline: " in first


@pytest.mark.slow
@pytest.mark.parametrize("command", ["diagnose", "show steps", "show tables"])
@pytest.mark.parametrize("form", ["text", "json", "md"])
def test_every_reading_command_writes_every_format(
    command: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report"
    assert run([*command.split(), str(BEFORE), "--no-cache", "--format", form, "-o", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert capsys.readouterr().out == ""
    assert text.endswith("\n")
    if form == "json":
        assert json.loads(text)["schema_version"] == 1


@pytest.mark.parametrize("arguments", [["explain"], ["doctor"], ["explain", "CPY101"]])
@pytest.mark.parametrize("form", ["text", "json", "md"])
def test_every_other_command_writes_every_format(
    arguments: list[str], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--format", form]) == 0
    text = capsys.readouterr().out
    assert text.strip()
    if form == "json":
        assert json.loads(text)["schema_version"] == 1


def test_the_budget_of_the_summary_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(BEFORE), "--no-cache", "--format", "json"]) == 0
    page = json.loads(capsys.readouterr().out)
    (budget,) = page["budget"]
    parts = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    assert sum(budget[part] for part in parts) == budget["span_ns"]
    assert page["steps"][0]["count"] > 0
    assert page["kernels"]


def test_a_limit_and_a_choice_of_rules_change_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    def findings(*options: str) -> list[str]:
        assert run(["diagnose", str(BEFORE), "--no-cache", "--format", "json", *options]) == 0
        return [finding["code"] for finding in json.loads(capsys.readouterr().out)["findings"]]

    assert "CPY101" in findings("--only", "cpy101", "--limit", "cpy101.exposed_ratio=0")
    assert findings("--only", "CPY101", "--limit", "CPY101.exposed_ratio=1") == []
    assert "CPY101" not in findings("--skip", "copies-exposed", "--limit", "COM101.exposed_ratio=0")


def test_output_names_its_own_format_and_replaces_a_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o640)
    assert run(["explain", "-o", str(path)]) == 0
    assert json.loads(path.read_text(encoding="utf-8"))["rules"]
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["rules.json"]


def test_a_dash_is_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "-o", "-"]) == 0
    assert "Rules of timesink" in capsys.readouterr().out


@pytest.mark.slow
def test_colour_is_for_terminals_unless_forced_and_never_where_refused() -> None:
    assert "\x1b[" not in timesink("explain").stdout
    assert "\x1b[" in timesink("explain", FORCE_COLOR="1").stdout
    assert "\x1b[" not in timesink("explain", FORCE_COLOR="1", NO_COLOR="1").stdout
    assert "\x1b[" not in timesink("explain", "--no-color", FORCE_COLOR="1").stdout


def test_a_screen_without_unicode_gets_ascii() -> None:
    done = timesink("explain", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "-----" in done.stdout


def test_a_reader_that_leaves_early_is_no_error() -> None:
    words = f"{sys.executable} -m timesink explain CPY101 --format md; echo exit $? >&2"
    done = subprocess.run(["bash", "-c", f"({words}) | true"], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.stderr.strip() == "exit 0"


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("timesink.diagnosis.registry.all_rules", interrupted)
    assert run(["explain"]) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("window", ["1:2", "nan:1s", "2s:1s", "-1s:2s", "1h:2h", "900s:901s"])
def test_a_window_that_is_none_is_a_usage_error_with_the_way_out(
    window: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diagnose", str(BEFORE), f"--window={window}"]) == 2
    shown = capsys.readouterr().err
    assert "window" in shown and ("12.5s:13.5s" in shown or "choose a window" in shown)


def test_a_diagnosis_of_a_window_says_so_and_counts_the_steps_it_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", str(BEFORE), "--window", "40ms:100ms", "--format", "json", "--no-cache"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema("diagnosis"))
    assert any("only the window 40.0 ms to 100 ms of" in note for note in document["notes"])
    assert document["steps"]["count"] == 3
    assert run(["diagnose", str(BEFORE), "--window", "40ms:100ms", "--no-cache", "-v"]) == 0
    assert "1 begun before the window" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["show"],
        ["show", "idle"],
        ["show", "tables"],
        ["plan", "--change", "remove_sync"],
        ["report", "-o", "{}/page.html"],
        ["report", "--export", "perfetto", "-o", "{}/trace.pftrace"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_commands_that_read_a_timeline_take_a_window(command: list[str], tmp_path: Path) -> None:
    words = [word.format(tmp_path) for word in command]
    assert run([*words, str(BEFORE), "--window", "40ms:100ms", "--no-cache"]) == 0


def test_a_query_takes_a_window() -> None:
    assert run(["query", str(BEFORE), "steps", "--window", "40ms:100ms", "--no-cache"]) == 0


def test_a_kernel_report_has_no_window(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "compile.log"
    log.write_text("V0101 00:00:00.000000 1 torch/_dynamo/guards.py:1] [0/0] [__guards] GUARDS:\n")
    assert run(["diagnose", str(log), "--window", "1s:2s"]) == 2
    assert "can be cut" in capsys.readouterr().err


@pytest.mark.parametrize("when", ["the look", "the window"])
def test_an_interrupt_while_a_window_is_read_ends_with_130_and_keeps_nothing(
    when: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from timesink.untrusted import unpack

    passes = []

    def interrupted(reading: unpack.UnpackedFile, packing: str) -> object:
        passes.append(reading)
        if len(passes) == {"the look": 1, "the window": 2}[when]:
            raise KeyboardInterrupt
        return whole(reading, packing)

    whole = unpack.UnpackedFile._members
    monkeypatch.setattr(unpack.UnpackedFile, "_members", interrupted)
    monkeypatch.setenv("TIMESINK_CACHE_DIR", str(tmp_path / "cache"))
    assert run(["diagnose", str(BEFORE), "--window", "40ms:100ms"]) == 130
    assert capsys.readouterr().err == "timesink: interrupted\n"
    assert not (tmp_path / "cache").exists()


DATA = Path(__file__).resolve().parents[1] / "data" / "compile"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The JSON a command writes; it exits with 0."""
    assert run([*arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "layer_breaks.json"
    path.write_bytes(lzma.decompress((DATA / "layer_breaks.broken.json.xz").read_bytes()))
    return path


def test_a_log_alone_shows_its_breaks_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    page = said(capsys, "show", "compile", str(DATA / "print_break.trace.log"))
    assert {row["name"]: row["value"] for row in page["counts"]} == {
        "graph_breaks": 1,
        "recompilations": 0,
        "late_recompilations": 0,
    }
    (row,) = page["breaks"]
    assert (row["line"], row["function"], row["reason"]) == (60, "work", "Failed to trace builtin operator")


def test_a_trace_alone_shows_regions_and_asks_for_a_log(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    assert run(["show", "compile", str(trace)]) == 0
    text = capsys.readouterr().out
    assert "regions_per_step" in text and "TORCH_TRACE" in text


def test_a_diagnosis_of_trace_and_log_names_the_line_to_change(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    document = said(capsys, "diagnose", str(trace), str(DATA / "layer_breaks.trace.log"))
    first = document["findings"][0]
    assert first["code"] == "CMP101"
    assert "benchmarks/compiling/programs.py:161" in first["advice"]
    assert any(sentence.startswith("compile: graph breaks 2") for sentence in document["statements"])


def test_a_log_alone_can_be_diagnosed(capsys: pytest.CaptureFixture[str]) -> None:
    document = said(capsys, "diagnose", str(DATA / "int_argument.trace.log"))
    assert document["verdict"]["bottleneck"] == "recompilation"
    assert "number == 6" in document["verdict"]["statement"]


MOST_SHOWN, MOST_OF_ALL = 12, 260


def commands(command: Any) -> Iterator[Any]:
    """The command or, of a group, those in it, and what the group itself takes."""
    yield command
    for other in command.commands.values() if isinstance(command, Group) else ():
        yield from commands(other)


def options(command: Any) -> list[Any]:
    return [param for param in command.params if not is_argument(param) and not param.hidden]


def offered(name: str) -> set[str]:
    """The options that a command offers in one of the things it does, those that choose one of them included.

    An option that two of them share counts once; those of `EVERYWHERE` belong to no command.
    """
    choices = modes(name)
    entries = [name, *(entry for entry, _ in choices)]
    own = {
        max(option.opts, key=len)
        for entry in entries
        for command in commands(loaded(entry))
        for option in options(command)
        if option.name not in EVERYWHERE
    }
    return own | {choice.split()[0] for _, choice in choices if choice.startswith("-")}


def test_no_command_shows_more_options_than_a_reader_takes_in() -> None:
    shown = {
        (entry, command.name): sum(map(is_shown, options(command)))
        for entry in ENTRIES
        for command in commands(loaded(entry))
    }
    assert {place: count for place, count in shown.items() if count > MOST_SHOWN} == {}


def test_there_are_no_more_options_than_anybody_needs() -> None:
    counts = {name: len(offered(name)) for name in COMMANDS}
    assert sum(counts.values()) <= MOST_OF_ALL, counts


@pytest.mark.parametrize("words", [["gate"], ["capture", "nsys"], ["diagnose"]])
def test_the_rest_of_the_options_is_under_help_all(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for option in ("--help", "--help-all"):
        assert run([*words, option]) == 0
        texts.append(capsys.readouterr().out)
    few, all_of_them = texts
    assert "--help-all  " in few and "--quiet" not in few and "--no-cache" not in few
    assert "--help-all" not in all_of_them
    assert ("--no-cache" in all_of_them) or ("--quiet" in all_of_them)
    assert len(all_of_them) > len(few)
