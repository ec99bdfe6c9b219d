"""What users read keeps to the words of the glossary: texts of rules, options, and every sentence in the program."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from timesink.diagnosis.rule import page_paths
from timesink.views import declared_sheets, listed

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "timesink"
_FOREIGN = ("capture/redaction",)
_TABLE = (ROOT / "docs/explanation/glossary.md").read_text(encoding="utf-8").partition("## Not said")[2]
NOT_SAID = {
    pattern: re.compile(pattern)
    for pattern in re.findall(r"^\| `([^`]+)` \|", _TABLE.replace(r"\|", "|"), re.MULTILINE)
}


def of_source(path: Path) -> Iterator[str]:
    """Every text of a module that is no docstring, and of a pattern its meaning: the rest is what others write."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Pattern":
            regex, _, *names = node.args
            documents |= {id(inner) for part in (regex, *names) for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.value


def of_options(told: object) -> Iterator[str]:
    if isinstance(told, str):
        yield told
    elif isinstance(told, dict | list):
        for part in told.values() if isinstance(told, dict) else told:
            yield from of_options(part)


def of_sheets() -> Iterator[str]:
    """Titles, heads of columns and notes of all tables; a space goes with a head, so that one word counts too."""
    for name in declared_sheets():
        sheet = listed(name, ())
        yield from (sheet.title, sheet.note, *(f"{field.head} " for field in sheet.columns))


def said() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(_FOREIGN):
            yield from ((name, text) for text in of_source(path))
    for name in ("knowledge/assumptions.txt", "mcp/SKILL.md"):
        yield name, (SOURCE / name).read_text(encoding="utf-8")
    choice = tomllib.loads((SOURCE / "capture/choice.toml").read_text(encoding="utf-8"))
    for answer in choice["answers"]:
        answer.pop("words")  # what people type
    yield from (("choice.toml", text) for text in of_options(choice))
    yield from (("sheets.txt", text) for text in of_sheets())
    for name, path in page_paths().items():
        yield name, path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sentences() -> list[tuple[str, str]]:
    return [(name, text) for name, text in said() if " " in text]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", NOT_SAID)
def test_words_that_the_glossary_replaces_are_not_said(pattern: str, sentences: list[tuple[str, str]]) -> None:
    looked_for = NOT_SAID[pattern]
    assert [(name, found.group()) for name, text in sentences if (found := looked_for.search(text))] == []


@pytest.mark.parametrize(
    "sentence",
    ["device 0 waits", "for which the host waits", "GPU utilisation", "every so many steps", "'x' is no number"],
)
def test_a_sentence_of_before_is_seen(sentence: str) -> None:
    assert any(pattern.search(sentence) for pattern in NOT_SAID.values())
