"""What is wrong with the English of an answer, by kinds: words that the glossary replaces, one of many and many of one,
two remarks in a row, a note that ends in the middle."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.docs.test_glossary import NOT_SAID
from tests.gate.answers import Answers, flat

_NOUNS = (
    "kernel|launche|block|step|copie|call|rank|stream|row|time|change|finding|operator|graph|region|event|window|GPU|"
    "record|channel|compilation|break|layer|batche|thread|multiprocessor|SM"
)
_ONE = "kernel|launch|block|step|copy|call|collective"
_NO_NAME = r"(?<!rank )(?<!GPU )(?<!step )(?<!stream )(?<!thread )(?<![\d.,/:#])"
KINDS = {
    "one of many": re.compile(rf"{_NO_NAME}\b1 (?:{_NOUNS})s\b"),
    "many of one": re.compile(rf"{_NO_NAME}\b(?:[2-9]|[1-9]\d+) (?:{_ONE})\b(?! [a-z]+s\b)"),
    "a count below nothing": re.compile(r"(?<![\w.)e-])-\d[\d,]* (?:kernels|launches|blocks|calls|steps)\b"),
    "two remarks in a row": re.compile(r"\([^()]*\d[^()]*\) \([^()]*\d[^()]*\)"),
    "or after or": re.compile(r"\b[a-z]+ or [a-z ]+ or [a-z ]+ or\b"),
    "two ends of a sentence": re.compile(r"[.;:] ?[.;:](?!\.)(?= |$)(?<!::)"),
    "a word twice": re.compile(r"\b(the|of|a|is|in|and|to|for) \1\b"),
    "a note cut short": re.compile(r"^(?:lost|note): [^\n]*…(?! \(-v\))", re.MULTILINE),
}


def unplain(text: str) -> Iterator[str]:
    """Which kinds the text shows, each with where."""
    for kind, pattern in KINDS.items():
        for found in pattern.finditer(text):
            yield f"{kind}: {text[max(found.start() - 40, 0) : found.end() + 20]}"


def plainly_said(of: Answers) -> Iterator[str]:
    """The screen and the sentences of every door."""
    messages = [finding.message for _, finding in of.diagnosis.findings]
    notes = [note.counted for note in of.diagnosis.notes]
    blocks = [flat(block) for block in re.split(r"\n\n|\n(?=lost: |note: |next: )", of.screen)]
    for text in (of.verdict, *messages, *notes, *of.diagnosis.statements, *blocks):
        yield from unplain(text)
        yield from (f"{found.group()!r}: {text[:120]}" for said in NOT_SAID.values() if (found := said.search(text)))
