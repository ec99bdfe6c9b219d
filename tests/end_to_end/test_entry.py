"""The first minute: what is shown unasked, names that nearly fit, names of options, what the shell completes."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click import Group

from timesink.cli.app import run
from timesink.cli.commands import COMMANDS, ENTRIES, GROUPS, OPTIONS, SHOWN, resolve
from timesink.cli.help import is_argument, value_name
from timesink.cli.parser import group, loaded, parsed_and_run
from timesink.diagnosis.registry import all_rules, find_all
from timesink.errors import UsageError, did_you_mean, unknown
from timesink.recipes.table import EDITS, SWITCHES

Captured = pytest.CaptureFixture[str]
# One word, two meanings: `report --open` counts findings, the ledger names them; nsys, ncu and gates have metrics; an
# expression names kernels, and a check's name its limit; a log has columns, and a table;
# a trial tries only some changes.
TWO_MEANINGS = {
    "--apply",
    "--change",
    "--finding",
    "--metrics",
    "--against",
    "--svg",
    "--steps",
    "--name",
    "--limit",
    "--columns",
    "--capture",
    "--only",
}


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """The command and, of a group, its commands."""
    yield name, command
    if isinstance(command, Group):
        for below, other in command.commands.items():
            yield from commands(f"{name} {below}", other)


EVERY = [pair for name in ENTRIES for pair in commands(name, loaded(name))]


def shown(capsys: Captured, *words: str) -> str:
    """What a command that succeeds prints; nothing goes to stderr."""
    assert run(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys: Captured, *words: str) -> str:
    """What a command that is asked wrongly says, on one line."""
    assert run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return " ".join(err.split())


@pytest.mark.parametrize(
    ("words", "entry", "rest"),
    [
        (["a.json", "--only", "KRN"], "diagnose", ["a.json", "--only", "KRN"]),
        (["show", "a", "idle", "--top", "3"], "show idle", ["a", "--top", "3"]),
        (["show", "lines", "a", "--code", "idle"], "show lines", ["a", "--code", "idle"]),
        (["show", "a", "-v", "ops"], "show ops", ["a", "-v"]),
        (["show", "./idle"], "show", ["./idle"]),
        (["report", "a", "--serve", "--port", "0"], "report --serve", ["a", "--port", "0"]),
        (["report", "a", "--export=perfetto"], "report --export FORMAT", ["a", "--export=perfetto"]),
        (["gate", "--", "python", "baseline"], "gate", ["--", "python", "baseline"]),
        (["gate", "--suite", "baseline", "--limits", "a"], "gate --limits", ["--suite", "baseline", "a"]),
        (["verify", "--ledger", "3", "--toggle", "A=1/2"], "verify", ["--ledger", "3", "--toggle", "A=1/2"]),
        (["verify", "--ledger", "add", "x"], "verify --ledger", ["add", "x"]),
        (["capture", "--loop", "--", "capture", "--redact"], "capture --loop", ["--", "capture", "--redact"]),
    ],
)
def test_the_words_choose_what_a_command_does(words: list[str], entry: str, rest: list[str]) -> None:
    assert resolve(words)[1:] == (entry, rest)


@pytest.mark.slow
def test_a_file_is_diagnosed_and_options_of_every_command_stand_anywhere(capsys: Captured) -> None:
    demo = str(Path(__file__).resolve().parents[2] / "src/timesink/cli/demo/gpt_before.json.xz")
    assert shown(capsys, demo) == shown(capsys, "--no-cache", "--no-color", "diagnose", demo)
    assert shown(capsys, demo, "-v") == shown(capsys, "-v", "diagnose", demo)
    assert "no-such-file.json" in refused(capsys, "no-such-file.json")


def test_first_contact_defect_1_without_arguments_one_screen_says_what_it_is_and_names_every_command(
    capsys: Captured,
) -> None:
    """First contact defect 1."""
    text = shown(capsys)
    names = {name for group in SHOWN.values() for name in group}
    assert len(names) <= 16
    assert len(text.splitlines()) <= 20
    assert max(map(len, text.splitlines())) <= 80
    assert names <= set(re.findall(r"[a-z][a-z-]+", text))
    assert shown(capsys, "help") == text


def test_the_groups_hold_every_command_once(capsys: Captured) -> None:
    assert list(GROUPS) == ["Capture", "Look", "Change", "Keep", "More"]
    assert sum(map(len, GROUPS.values())) == len(COMMANDS) == len(set(COMMANDS))
    text = shown(capsys, "--help")
    assert re.findall(r"^(\w+):$", text, re.MULTILINE) == ["Options", *SHOWN]
    assert re.findall(r"^(\w+):$", shown(capsys, "--help-all"), re.MULTILINE) == ["Options", *GROUPS]


def test_the_help_that_needs_no_parser_is_what_the_parser_says(capsys: Captured) -> None:
    root = group()
    context = root.make_context("timesink", ["rules"])
    shown_of = {", ".join(sorted(one.opts, key=len)): one.get_help_record(context) for one in root.get_params(context)}
    parsed = [(names, record[1]) for names, record in shown_of.items() if record]
    assert list(OPTIONS) == parsed
    assert parsed_and_run(["--help"]) == parsed_and_run(["-V"]) == 0
    assert capsys.readouterr().out == shown(capsys, "--help") + shown(capsys, "--version")


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_asked_for_in_two_ways(capsys: Captured, option: str) -> None:
    assert re.fullmatch(r"timesink \d+\.\d+\.\d+\S*\n", shown(capsys, option))


@pytest.mark.parametrize("words", [["diagnose"], ["capture", "torch"], ["memory"]])
def test_help_of_a_command_is_the_same_as_its_own(capsys: Captured, words: list[str]) -> None:
    assert shown(capsys, "help", *words) == shown(capsys, *words, "--help")


@pytest.mark.parametrize("name", ["capture", "memory", "gate baseline"])
def test_a_group_without_a_command_shows_its_help(capsys: Captured, name: str) -> None:
    text = shown(capsys, *name.split())
    assert text == shown(capsys, *name.split(), "--help")
    assert "completion" not in text


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["diagnoze"], "Did you mean 'diagnose'?"),
        (["help", "diagnoze"], "Did you mean 'diagnose'?"),
        (["memory", "shwo"], "Did you mean 'show'?"),
        (["diagnose", "--windw", "1s:"], "--window"),
        (["explain", "input-pipelin"], "did you mean IDL101 input-pipeline?"),
        (["explain", "KRN"], "did you mean KRN101 "),
        (["explain", "--format", "jsn"], "'json'"),
        (["kernels", "--metrics", "a", "--chip", "sm90"], "did you mean sm_90"),
        (["verify", "--ledger", "add", "x", "--finding", "CPY10l"], "CPY101 copies-exposed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_first_contact_defect_17_a_name_that_nearly_fits_is_asked_back(
    capsys: Captured, words: list[str], meant: str
) -> None:
    """First contact defects 16 and 17."""
    said = refused(capsys, *words)
    assert meant in said
    assert len(said) < 400


def test_tables_and_examples_are_asked_back(capsys: Captured, tmp_path: Path) -> None:
    demo = str(Path(__file__).resolve().parents[2] / "src/timesink/cli/demo/gpt_before.json.xz")
    assert "did you mean device_ops or devices?" in refused(
        capsys, "report", "--export", "table", demo, "--table", "device_op", "-o", str(tmp_path / "t.csv")
    )
    pytest.importorskip("duckdb", reason="pip install 'timesink[query]'")
    assert "did you mean longest-gaps?" in refused(capsys, "query", demo, "longest-gap")


def test_a_name_like_no_other_gets_the_list_where_that_is_short_and_who_lists_it_where_it_is_long() -> None:
    assert unknown("engine", "zzz", ["serial", "dask"]).remedy == "choose one of: serial, dask"
    assert unknown("rule", "zzz", map(str, range(1000, 1052)), "timesink rule").remedy == "`timesink rule` lists all 52"
    assert did_you_mean("", {"a": "a"}) == ""


def test_every_rule_is_meant_by_each_beginning_of_its_code() -> None:
    for rule in all_rules():
        for end in range(1, len(rule.code) + 1):
            meant = find_all([rule.code[:end].lower()])
            assert rule in meant
            assert all(other.code.startswith(rule.code[:end]) for other in meant)
    assert find_all(["KRN", "input-pipeline,idl103"]) == (
        *[rule for rule in all_rules() if rule.code.startswith("KRN")],
        *find_all(["IDL101"]),
        *find_all(["IDL103"]),
    )
    with pytest.raises(UsageError, match="no rule is called 'XYZ'"):
        find_all(["XYZ"])


def test_what_is_typed_for_a_parameter_is_named_for_people() -> None:
    """First contact defect 22: no `<str>`, `list[Path]` or `<int range>` in any help."""
    for name, command in EVERY:
        for param in command.params:
            if not (is_argument(param) or not param.is_flag):
                continue
            assert value_name(param), f"{name}: {param.name} says nothing of its value"
            assert param.help, f"{name}: {param.name} has no help"
            told = re.fullmatch(r"(-- )?[A-Z][A-Z0-9:.=,|/\[\]-]*|\w+(\|\w+)+", value_name(param))
            assert told, f"{name}: {value_name(param)}"
        text = command.get_help(command.make_context(name, [], resilient_parsing=True))
        assert not re.search(r"<(str|int|float|path|list)|list\[|x>=|<=x|\{[A-Z]", text), f"{name}:\n{text}"


def test_first_contact_defect_22_an_option_has_one_short_form_one_metavar_and_one_type_everywhere() -> None:
    """First contact defect 22."""
    seen: dict[str, tuple[str, set[str], str]] = {}
    for name, command in EVERY:
        for param in command.params:
            if is_argument(param):
                continue
            long = next(opt for opt in param.opts if opt.startswith("--"))
            metavar = "FILE" if value_name(param) in ("FILE|-", "DIR") else value_name(param)
            first, short, value = seen.setdefault(long, (name, set(param.opts), metavar))
            assert set(param.opts) == short, f"{long} of {name} and of {first}"
            assert metavar == value or long in TWO_MEANINGS, f"{long} of {name} and of {first}"
    shorts = {
        short: {long for long, (_, every, _) in seen.items() if short in every} for short in ("-o", "-f", "-q", "-v")
    }
    assert all(len(longs) <= 1 for longs in shorts.values()), shorts


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Callable[[str], list[str]]:
    """What bash is offered for a command line that ends in an unfinished word."""

    def completed(words: str) -> list[str]:
        monkeypatch.setenv("_TIMESINK_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", f"timesink {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
        with pytest.raises(SystemExit):
            run([])
        out, err = capsys.readouterr()
        assert err == ""
        return [line.partition(",")[2] for line in out.split()]  # after the kind of each

    return completed


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("diag", ["diagnose"]),
        ("help diag", ["diagnose"]),
        ("explain KRN10", [rule.code for rule in all_rules() if rule.code.startswith("KRN10")]),
        ("explain input-p", ["input-pipeline"]),
        ("diagnose x --only IDL1", [rule.code for rule in all_rules() if rule.code.startswith("IDL1")]),
        ("diagnose x --skip KRN,cpy101", ["KRN,cpy101"]),
        ("diagnose x --limit IDL101.idle_r", ["IDL101.idle_ratio="]),
        ("diagnose x --format j", ["json"]),
        ("report x --export table --table device_o", ["device_ops"]),
        ("query x longest", ["longest-gaps"]),
        ("kernels --metrics x --chip sm_9", ["sm_90"]),
        ("capture ncu --replay app", ["application", "app-range"]),
        ("ranks x --engine th", ["threads"]),
        ("verify --ledger add x --finding CPY101", ["CPY101"]),
        ("try --only fused_o", [name for name in SWITCHES if name.startswith("fused_o")]),
        ("try --only tf32,fused_o", ["tf32,fused_optimizer"]),
        ("fix --only build", [name for name in EDITS if name.startswith("build")]),
    ],
)
def test_first_contact_defect_23_the_shell_completes_what_timesink_knows(
    words: str, offered: list[str], completed: Callable[[str], list[str]]
) -> None:
    """First contact defect 23."""
    assert completed(words) == offered


def test_the_shell_completes_suites(tmp_path: Path, completed: Callable[[str], list[str]]) -> None:
    (tmp_path / "baselines" / "train").mkdir(parents=True)
    assert completed(f"gate baseline show --root {tmp_path} --suite tr") == ["train"]
