"""`[tool.timesink]` of pyproject.toml: what it may say, what is refused and where, and that the command line wins."""

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from timesink.cli.app import run
from timesink.errors import TimesinkError, UsageError
from timesink.untrusted.configuration import VARIABLE, configuration, read, schema
from timesink.verify.baseline import check_kept_file

ROOT = Path(__file__).resolve().parents[2]
BEFORE = ROOT / "src" / "timesink" / "cli" / "demo" / "gpt_before.json.xz"
WHOLE = """\
[project]
name = "x"
[tool.timesink]
skip = ["KRN", "MEM103"]
[tool.timesink.limits]
IDL101.idle_ratio = 0.2
"COM101.exposed_ratio" = 0.05
[tool.timesink.suites.train]
threshold = "3%"
share-tolerance = "1%"
timeout = 60
limits = ["mean(steps.period_ns) <= 10 ms"]
"""
REFUSED = {
    'skip = "KRN"': "3: [tool.timesink] skip is not a list",
    'skip = ["K R N"]': "3: [tool.timesink] skip cannot be 'K R N'",
    "skips = []": "3: [tool.timesink] skips is not known; did you mean skip?",
    'limits = {IDL101 = "0.2"}': "[tool.timesink.limits] IDL101 is not a table or a number",
    "limits = {IDL101.idle_ratio = true}": "[tool.timesink.limits.IDL101] idle_ratio is not a number",
    '[tool.timesink.suites.train]\nthreshhold = "3%"': "4: [tool.timesink.suites.train] threshhold is not known",
    "[tool.timesink.suites.train]\nthreshold = 3": "4: [tool.timesink.suites.train] threshold is not a text",
    '[tool.timesink.suites.train]\nlimits = ["fast"]': "4: [tool.timesink.suites.train] limits cannot be 'fast'",
    "suites = 3": "3: [tool.timesink] suites is not a table",
}


def written(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_key_is_read(tmp_path: Path) -> None:
    found = read(written(tmp_path, WHOLE))
    assert found is not None
    assert found.skip == ("KRN", "MEM103")
    assert found.limits == {"IDL101.idle_ratio": 0.2, "COM101.exposed_ratio": 0.05}
    assert set(found.suites["train"]) == {"threshold", "share-tolerance", "timeout", "limits"}
    assert check_kept_file(found.path).holds == "2 skipped rules, 2 limits, 1 suite, 1 budget"
    for text in ("", "[tool.other]\nx = 1\n", '[project]\nname = "timesink"\n'):
        assert read(written(tmp_path, text)) is None


@pytest.mark.parametrize("line", REFUSED)
def test_what_the_schema_does_not_know_is_refused_with_file_and_place(line: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"[project]\n[tool.timesink]\n{line}\n")
    with pytest.raises(UsageError) as raised:
        read(path)
    assert str(raised.value).startswith(str(path))
    assert REFUSED[line] in str(raised.value)


@pytest.mark.parametrize("number", ["nan", "-inf", "inf", "9" * 400, "-" + "9" * 400, "0x" + "f" * 300])
@pytest.mark.parametrize(
    "line", ["limits = {IDL101.idle_ratio = %s}", 'limits = {"A.b" = %s}', "suites.a.timeout = %s"]
)
def test_a_number_that_is_not_finite_or_beyond_every_double_is_refused(line: str, number: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no finite number"):
        read(written(tmp_path, f"[tool.timesink]\n{line % number}\n"))


def test_the_schema_is_one_and_says_the_same() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    validator = jsonschema.Draft202012Validator(schema())

    def table(text: str) -> Any:
        return tomllib.loads(text)["tool"]["timesink"]

    assert validator.is_valid(table(WHOLE))
    assert not [line for line in REFUSED if validator.is_valid(table(f"[tool.timesink]\n{line}\n"))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.timesink", "is no TOML"),
        ('[tool.timesink]\nskip = ["ZZZ"]\n', "no rule is called 'ZZZ'"),
        (
            "[tool.timesink.limits]\nIDL101.idle_rato = 1\n",
            "no limit is called 'IDL101.idle_rato'; did you mean IDL101.",
        ),
        ('[tool.timesink.suites.a]\nlimits = ["a <=< b"]\n', "pyproject.toml: "),
    ],
)
def test_a_hook_finds_what_is_wrong_before_it_is_committed(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TimesinkError) as raised:
        check_kept_file(path)
    assert said in str(raised.value)
    assert run(["gate", "baseline", "check", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_the_nearest_file_above_counts_unless_another_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    path = written(tmp_path, WHOLE)
    monkeypatch.chdir(below)
    monkeypatch.delenv(VARIABLE, raising=False)
    assert (found := configuration()) is not None
    assert found.path == path
    monkeypatch.setenv(VARIABLE, "")
    assert configuration() is None
    monkeypatch.setenv(VARIABLE, str(below / "none.toml"))
    with pytest.raises(UsageError, match=r"cannot read .*none\.toml"):
        configuration()


def test_the_command_line_wins_and_a_diagnosis_says_what_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, WHOLE)
    monkeypatch.chdir(tmp_path)

    def notes(*options: str) -> tuple[set[str], str]:
        assert run(["diagnose", str(BEFORE), "--format", "json", *options]) == 0
        document = json.loads(capsys.readouterr().out)
        return {one["code"] for one in document["findings"]}, " ".join(document["notes"])

    codes, said = notes("--only", "KRN108", "--only", "IDL101")
    assert codes == set()
    assert "left out by pyproject.toml: KRN, MEM103" in said
    assert "limits of pyproject.toml: IDL101.idle_ratio=0.2, COM101.exposed_ratio=0.05" in said
    codes, said = notes("--only", "KRN108", "--only", "IDL101", "--skip", "MEM", "--limit", "IDL101.idle_ratio=0.1")
    assert codes == {"KRN108", "IDL101"}
    assert "pyproject" not in said


def test_a_suite_has_its_budgets_and_no_other_suite_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, WHOLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert run(["gate", "--suite", "train", "--limits", str(BEFORE)]) == 1
    assert "mean(steps.period_ns) breaks <= 10 ms" in capsys.readouterr().out
    assert run(["gate", "--suite=train", "--limits", str(BEFORE), "--limit", "mean(steps.period_ns) <= 20 ms"]) == 0
    assert "10 ms" not in capsys.readouterr().out.replace("<= 20 ms", "")
    assert run(["gate", "--limits", str(BEFORE)]) == 2
