"""What users read keeps to the words of the glossary: texts of rules, options, and every sentence in the program."""

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from timesink.views import declared_sheets, listed

ROOT = Path(__file__).resolve().parents[2]
_NOT_OURS = ("src/timesink/capture/redaction", "docs/decisions", "docs/tutorial/walkthroughs")
"""What others write, and what was decided or recorded once."""
_TABLE = (ROOT / "docs/explanation/glossary.md").read_text(encoding="utf-8").partition("## Not said")[2]
NOT_SAID = {
    pattern: re.compile(pattern)
    for pattern in re.findall(r"^\| `([^`]+)` \|", _TABLE.replace(r"\|", "|"), re.MULTILINE)
}


def of_source(text: str) -> Iterator[str]:
    """Every text of a module that is no docstring, and of a pattern its meaning: the rest is what others write."""
    tree = ast.parse(text)
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Pattern":
            regex, _, *names = node.args
            documents |= {id(inner) for part in (regex, *names) for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.value


def of_document(told: object) -> Iterator[str]:
    if isinstance(told, str):
        yield told
    elif isinstance(told, dict | list):
        for part in told.values() if isinstance(told, dict) else told:
            yield from of_document(part)


def of_choice(text: str) -> Iterator[str]:
    choice = tomllib.loads(text)
    for answer in choice["answers"]:
        answer.pop("words")  # what people type
    yield from of_document(choice)


def of_page(text: str) -> Iterator[str]:
    """A page but for names in backticks, for what was answered when it was written, and for the words it refuses."""
    told = text.partition("## Not said")[0]
    yield re.sub(r"^> .*$|`[^`\n]*`", "", told, flags=re.MULTILINE)


def of_fragment(text: str) -> Iterator[str]:
    """A sentence of the changelog may quote a word of before."""
    yield re.sub(r'"\w+"', "", text)


def of_notebook(text: str) -> Iterator[str]:
    for cell in json.loads(text)["cells"]:
        yield "".join(cell["source"])
        yield from of_document(cell.get("outputs"))


def of_template(text: str) -> Iterator[str]:
    yield re.sub(r"\{[%#].*?[%#]\}|\{\{.*?\}\}|<[^>]*>", " ", text, flags=re.DOTALL)


def of_script(text: str) -> Iterator[str]:
    bare = re.sub(r"(?<!:)//.*", "", text)
    yield from (found.group() for found in re.finditer(r"\"[^\"\n]*\"|'[^'\n]*'|`[^`]*`", bare))


def of_sheets() -> Iterator[str]:
    """Titles, heads of columns and notes of all tables; a space goes with a head, so that one word counts too."""
    for name in declared_sheets():
        sheet = listed(name, ())
        yield from (sheet.title, sheet.note, *(f"{field.head} " for field in sheet.columns))


def of_text(text: str) -> Iterator[str]:
    yield text


READ: Final[dict[str, Callable[[str], Iterator[str]]]] = {
    "src/timesink/**/*.py": of_source,
    "src/timesink/**/*.md": of_page,
    "src/timesink/**/*.j2": of_template,
    "src/timesink/render/html/assets/[!u]*.js": of_script,
    "src/timesink/render/schemas/*.json": lambda text: of_document(json.loads(text)),
    "src/timesink/capture/choice.toml": of_choice,
    "src/timesink/knowledge/assumptions.txt": of_text,
    "docs/**/*.md": of_page,
    "docs/**/*.ipynb": of_notebook,
    "docs/assets/*.js": of_script,
    "README.md": of_page,
    "changes/*.md": of_fragment,
    "action.yml": of_text,
}
"""How to find what is said in a file, by its name."""


def files() -> Iterator[tuple[Path, Callable[[str], Iterator[str]]]]:
    for names, reads in READ.items():
        for path in sorted(ROOT.glob(names)):
            if not path.relative_to(ROOT).as_posix().startswith(_NOT_OURS):
                yield path, reads


def said() -> Iterator[tuple[str, str]]:
    for path, reads in files():
        for text in reads(path.read_text(encoding="utf-8")):
            yield path.relative_to(ROOT).as_posix(), re.sub(r"\s+", " ", text)  # a line may end within a phrase
    yield from (("sheets.txt", text) for text in of_sheets())


@pytest.fixture(scope="module")
def sentences() -> list[tuple[str, str]]:
    return [(name, text) for name, text in said() if " " in text]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", NOT_SAID)
def test_words_that_the_glossary_replaces_are_not_said(pattern: str, sentences: list[tuple[str, str]]) -> None:
    looked_for = NOT_SAID[pattern]
    assert [(name, found.group()) for name, text in sentences if (found := looked_for.search(text))] == []


REFUSED: Final = (
    "device 0 waits", "the device is idle", "the host is late", "host code runs", "host work grows",
    "host time is lost", "every so many steps", "neighbouring runs", "GPU utilisation", "it synchronises",
    "normalised by it", "an optimiser",
    "vectorised loads", "quantised weights", "no reader takes a file", "all there is to say", "writes down of it",
    "attention written out", "'x' is no number", "2 x as fast", "to set it up", "it trains otherwise",
    "use fewer multiprocessors", "that could belong", "Nothing can be diagnosed", "measured, not foretold",
    "comes late to it", "what is free is not", "would win of it", "whose label names no", "by what this page tells",
    "of as many items", "a matrix product", "64 multiprocessors", "foretold by it", "a receipt of it", "the first rung",
    "GPU time as areas", "an untraced gap", "Time by call path",
)  # fmt: skip
"""A sentence for each refused word."""
PLACES: Final = {
    "help": ("src/timesink/cli/verify/__init__.py", "Read step times from the output;"),
    "error": ("src/timesink/cli/verify/__init__.py", "step times come from one place"),
    "finding": ("src/timesink/rules/idle/late-start.md", "## "),
    "report": ("src/timesink/render/html/templates/report.html.j2", "<h2"),
    "script of the report": ("src/timesink/render/html/assets/flame.js", "Flame graph; "),
    "server for agents": ("src/timesink/mcp/prompts.md", "## "),
    "JSON": ("src/timesink/render/schemas/gate.schema.json", "One document per comparison."),
    "README": ("README.md", "# "),
    "explanation": ("docs/explanation/faq.md", "**Why "),
    "how-to": ("docs/how-to/ci-gate.md", "## "),
    "comment of a pull request": ("src/timesink/render/markdown.py", "| "),
    "notebook": ("docs/tutorial/first-look.ipynb", "# "),
}
"""Where users read, and a text there that a sentence is put before."""


def test_each_refused_word_has_a_sentence() -> None:
    assert [pattern for pattern, word in NOT_SAID.items() if not any(map(word.search, REFUSED))] == []
    assert [sentence for sentence in REFUSED if not any(word.search(sentence) for word in NOT_SAID.values())] == []


@pytest.mark.parametrize("place", PLACES)
def test_a_refused_word_is_seen_wherever_users_read(place: str) -> None:
    name, at = PLACES[place]
    path = ROOT / name
    (reads,) = (how for file, how in files() if file == path)
    text = path.read_text(encoding="utf-8")
    assert at in text
    for sentence in REFUSED:
        found = " ".join(reads(text.replace(at, f"{sentence}. {at}".replace("'", ""), 1)))
        assert any(word.search(sentence.replace("'", "")) and word.search(found) for word in NOT_SAID.values()), (
            sentence
        )
