"""A program's text with the edits made that need no run of it."""

from pathlib import Path

from timesink.recipes.source import Proposal, Source
from timesink.recipes.table import EDITS, proposals

ANYWHERE = [name for name, edit in EDITS.items() if not edit.where]


def proposed(folder: Path, text: str) -> list[tuple[Source, Proposal]]:
    (folder / "train.py").write_text(text)
    return list(proposals([folder / "train.py"], ANYWHERE, {}))


def repaired(folder: Path, text: str) -> tuple[str, set[str]]:
    """The program with each proven edit made, one after another, and their fixes."""
    made: set[tuple[str, bytes]] = set()
    while True:
        found = (
            (source, one, (one.fix, source.rows[one.line - 1]))
            for source, one in proposed(folder, text)
            if not one.unproven
        )
        source, one, key = next((each for each in found if each[2] not in made), (None, None, None))
        if source is None or one is None or key is None:
            return text, {fix for fix, _ in made}
        text = source.edited(one.replacements)
        made.add(key)
