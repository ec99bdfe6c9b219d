"""Whatever a file holds, reading it ends in a trace or in a declared error, within bounds, touching nothing else."""

import asyncio
import random
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click import Group
from fuzz.__main__ import left_of, tried
from fuzz.agent import ASKED, NO_FILE
from fuzz.commands import LINES, NOT_FUZZED, OF_RUNS, WRITES, commanded, is_fault, kinds
from fuzz.coverage import SUPPORTED, Corpus
from fuzz.guard import Broken, holds
from fuzz.mutations import mutated
from fuzz.seeds import OF_FORMAT, ROOT, files_of, tar_of
from fuzz.targets import groups, targets

from fuzz import answers, guard, written
from timesink.cli.commands import ENTRIES
from timesink.cli.parser import loaded
from timesink.errors import UnreadableTrace
from timesink.readers import readers

FOUND = sorted((ROOT / "fuzz" / "corpus" / "found").iterdir())
CASES = {
    "records": 250,
    "nsys_report": 20,
    "laws": 6,
}  # of readers 40, of commands few: a second or two of CPU time each
SEED = 20_26


@pytest.fixture(autouse=True)
def no_cache_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_CACHE_HOME", "TIMESINK_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))


def test_every_reader_has_inputs_to_mutate() -> None:
    formats = {reader.format for reader in readers()}
    assert formats == set(OF_FORMAT)


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """The command, or the commands of a group."""
    if not isinstance(command, Group):
        yield name, command
        return
    for below, other in command.commands.items():
        yield from _leaves(f"{name} {below}", other)


def _files_of(name: str, command: Any) -> set[str]:
    """What of a command takes a path and does not write to it: options by their name, arguments as FILE."""
    taking = [param for param in command.params if getattr(param.type, "kind", None) is Path]
    options = {param.opts[0] if param.param_type_name == "option" else "FILE" for param in taking}
    return options - {*WRITES, *OF_RUNS.get(name, ()), "--code"}


def test_every_command_and_option_that_opens_a_file_is_fuzzed() -> None:
    missing = []
    for name, command in (leaf for entry in ENTRIES for leaf in _leaves(entry, loaded(entry))):
        lines = [f" {line} " for line, _ in LINES.get(name, ())]
        wanted = set() if name in NOT_FUZZED or name == "mcp" else _files_of(name, command)
        missing += [(name, option) for option in wanted if not any(f" {option} " in line for line in lines)]
        assert (name in LINES) != (name in NOT_FUZZED), f"{name}: give it lines in fuzz/commands.py, or a reason"
    assert not missing


def test_every_tool_of_an_agent_that_opens_a_file_is_fuzzed(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="mcp is not installed (pip install mcp)")
    from timesink.mcp.server import build

    tools = {tool.name for tool in asyncio.run(build([tmp_path]).list_tools())}
    assert tools == {name for name, _ in ASKED} | set(NO_FILE)


RUNG = {"before_ns": 9.0, "after_low_ns": 1.0, "after_ns": 4.0, "after_high_ns": 8.0}


def test_a_step_of_a_plan_may_take_as_long_as_the_step_before_it_may_and_no_longer() -> None:
    later = {"before_ns": 4.0, "after_low_ns": 1.0, "after_ns": 2.0, "after_high_ns": 7.0}
    answers.check_document({"ladder": [RUNG, later]})
    for wrong in ({"after_high_ns": 8.5}, {"before_ns": 5.0}, {"after_low_ns": 3.0}):
        with pytest.raises(AssertionError):
            answers.check_document({"ladder": [RUNG, later | wrong]})


@pytest.mark.parametrize(
    "document",
    [
        {"value": 1.0, "low": 2.0, "high": 3.0},
        {"step_ms": 2.0, "parts": [{"ms": 0.5}, {"ms": 1.0}]},
        {"before_ns": 5.0, "after_low_ns": 1.0, "after_ns": 4.0, "after_high_ns": 6.0},
    ],
)
def test_an_answer_that_does_not_add_up_is_told(document: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        answers.check_document({"rows": [document]})


@pytest.mark.parametrize(
    "body",
    [
        "<script>alert(1)</script>", "<b onclick=a()>", "<a href=javascript:a()>", "<a href=//evil/x.html>",
        "<img src=x>", "<p style=color:red>", "<style>b{}</style>", "<style>b", "a&#x202e;b", "<base href=#a>",
        "<b title='&#x202e;'>",
        '<script type="application/json">{"a": NaN}</script>',
        '<script type="application/json">["\\u001b[2J"]</script>', "<meta http-equiv=refresh content=0>",
    ],
)  # fmt: skip
def test_a_page_that_acts_is_told(body: str) -> None:
    head = "<!doctype html><meta http-equiv=Content-Security-Policy content=\"default-src 'none'\">"
    written.check_page(f"{head}<a href=#a>fine &lt;script&gt;</a><a href=run.json.html>next</a>")
    with pytest.raises(AssertionError):
        written.check_page(f"{head}{body}")


@pytest.mark.parametrize("text", ["\x1b[2J", "::error::boom", "  ::set-output name=a", "a\u202eb"])
def test_text_that_acts_is_told(text: str) -> None:
    with pytest.raises(AssertionError):
        answers.check_text(f"fine\n{text}")


QUOTED = "timesink: a.log: unknown file format: it begins with {}"


@pytest.mark.parametrize(
    ("errors", "fault"),
    [
        ('Traceback (most recent call last):\n  File "a.py", line 1, in f\n', True),
        ("a warning\nTraceback (most recent call last):\n", True),
        ("timesink: interrupted\n", True),
        (QUOTED.format('"Traceback (most"'), False),
        (QUOTED.format('"Traceback (most recent call last):"'), False),
        (QUOTED.format('"\\nTraceback (most recent call last):"'), False),
        ("timesink: the run 'interrupted' has no steps", False),
        ("timesink: Traceback is no command", False),
    ],
)
def test_a_file_that_quotes_a_fault_is_none(errors: str, fault: bool) -> None:
    assert is_fault(errors) is fault


def test_a_run_of_the_fuzzer_goes_on_where_its_log_ends() -> None:
    names, minutes = ["one", "two"], 2.5
    whole = left_of(Counter(), Counter(), minutes, names, 7)
    assert [one.name for one in whole[:4]] == ["one", "two", "one", "two"]
    assert len({(one.name, one.seed) for one in whole}) == len(whole) == 6
    spent, taken = Counter({"one": 120.0}), Counter({"one": 2})
    rest = left_of(spent, taken, minutes, names, 7)
    assert [one for one in rest if one.name == "one"] == [one for one in whole if one.name == "one"][2:]
    assert [one.seconds for one in left_of(Counter(), Counter(), 0.02, names, 7)] == pytest.approx([1.2, 1.2])


@pytest.mark.slow
@pytest.mark.parametrize("name", groups())
def test_mutations_of_real_files_break_no_invariant(name: str) -> None:
    rng = random.Random(SEED)
    group = groups()[name]
    for _ in range(CASES.get(name, 10 if name in OF_FORMAT else 1)):
        target = rng.choice(group)
        tried(target, target.change(rng.choice(target.seeds()), rng, target.seeds()))


@pytest.mark.slow
@pytest.mark.parametrize("file", FOUND, ids=lambda file: file.name)
def test_what_broke_an_invariant_once_does_so_no_more(file: Path) -> None:
    named = [name for name in targets() if file.name.startswith(f"{name}-")]
    tried(targets()[max(named, key=len)], file.read_bytes())


@pytest.mark.parametrize("number", [0, 1])
def test_captures_that_the_fuzzer_begins_with_are_joined(number: int, tmp_path: Path) -> None:
    name, made = kinds()["eager"]
    path = tmp_path / name
    path.write_bytes(made()[number])
    assert commanded(path, "show steps @graphs --capture FILE -f json", "eager") == 0


def test_what_breaks_beside_the_server_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(kinds()["kineto_json"][1]()[-1])
    assert commanded(path, "report --serve FILE --no-browser", "kineto_json") == 0
    monkeypatch.setattr("timesink.views.report.live_report", lambda *_: 1 / 0)
    with pytest.raises(AssertionError, match=r"(?s)ends with 70: .*a fault of timesink: ZeroDivisionError"):
        commanded(path, "report --serve FILE --no-browser", "kineto_json")


def test_the_same_seed_gives_the_same_mutations() -> None:
    data = targets()["torch_logs"].seeds()
    one, other = (mutated(data[0], random.Random(SEED), data) for _ in range(2))
    assert one == other != data[0]


@pytest.mark.skipif(not SUPPORTED, reason="Python tells of branches from 3.12 on")
def test_an_input_that_takes_a_new_way_is_kept(tmp_path: Path) -> None:
    target = targets()["torch_logs"]
    one, same, other = target.seeds()[0], target.seeds()[0], b"{"
    tried(target, one)
    corpora = Corpus(tmp_path / "first"), Corpus(tmp_path / "second")
    for corpus in corpora:  # each asks Python anew
        for data in (one, same, other):
            with corpus.noting(data):
                tried(target, data)
        assert corpus.grown == [one, other]
        assert len(list(corpus.folder.iterdir())) == 2


def test_a_folder_survives_its_archive() -> None:
    files = {"a.parquet": b"1", "b.parquet": b""}
    assert files_of(tar_of(files)) == files


def _write(path: Path) -> None:
    path.with_name("..").joinpath("elsewhere").write_text("x")


def _refuse(path: Path) -> None:
    raise UnreadableTrace(path, "bad")


BREAKING: dict[str, Callable[[Path], object]] = {
    "reads another file": lambda path: Path("/etc/hostname").read_text(),
    "writes outside its folder": _write,
    "starts a process": lambda path: subprocess.run([sys.executable, "-c", ""], check=True),
    "opens a connection": lambda path: socket.socket().connect(("127.0.0.1", 9)),
    "fails undeclared": lambda path: 1 / 0,
    "takes more memory than its input explains": lambda path: bytearray(300 << 20),
    "leaves the user without a way out": _refuse,
}


@pytest.mark.parametrize("how", BREAKING)
def test_the_guard_sees_work_that(how: str, tmp_path: Path) -> None:
    with pytest.raises(Broken):
        holds(BREAKING[how], _input(tmp_path))


def test_the_guard_ends_what_takes_more_time_than_its_input_explains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BASE_CPU_S", 0.1)
    with pytest.raises(Broken, match="more CPU time"):
        holds(lambda path: all(iter(lambda: 1, 2)), _input(tmp_path))


def test_the_guard_lets_its_own_folder_be_read_and_written(tmp_path: Path) -> None:
    assert holds(lambda path: path.with_name("out").write_text(path.read_text()), _input(tmp_path)) == ""


def _input(folder: Path) -> Path:
    path = folder / "input"
    path.write_text("x")
    return path
