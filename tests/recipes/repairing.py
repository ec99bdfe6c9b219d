"""A program's text with the edits made that need no run of it."""

from pathlib import Path

from timesink.recipes.source import Proposal, Source
from timesink.recipes.table import EDITS, proposals

ANYWHERE = [name for name, edit in EDITS.items() if not edit.where]
MOST = 40  # edits of one program here


def proposed(folder: Path, text: str) -> list[tuple[Source, Proposal]]:
    (folder / "train.py").write_text(text)
    return list(proposals([folder / "train.py"], ANYWHERE, {}))


def repaired(folder: Path, text: str) -> tuple[str, set[str]]:
    """The program with each proven edit made, one after another, and their fixes. Another run on what they left finds
    none: an edit that is proposed of its own result would never end here."""
    made: list[str] = []
    while found := [(source, one) for source, one in proposed(folder, text) if not one.unproven]:
        source, one = found[0]
        text = source.edited(one.replacements)
        made.append(one.fix)
        assert len(made) < MOST, made
    return text, {*made}
