"""Untrusted text in Markdown: it shows as written, links nowhere, mentions nobody and breaks no table."""

from __future__ import annotations

import re

from timesink.scrub import NAME_CHARACTERS, scrub, scrub_sentence

_PUNCTUATION = re.compile(r"([\\`*_{}\[\]<>|~&$!])")
# GitHub acts on these after Markdown is done, so a backslash does not help; an empty comment splits them.
_AUTOMATIC = re.compile(r"(@|#)(?=\w)|(:)(?=//)|(\bwww)(?=\.)", re.IGNORECASE)


def escaped(text: str) -> str:
    """A sentence as literal Markdown on one line."""
    literal = _PUNCTUATION.sub(r"\\\1", scrub_sentence(text))
    return _AUTOMATIC.sub(r"\g<0><!-- -->", literal)


def code(text: str, *, in_table: bool = False) -> str:
    """A name as a code span, whatever backticks it holds."""
    name = scrub(text, NAME_CHARACTERS)
    if in_table:
        name = name.replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", name)), default=0)
    if not longest:
        return f"`{name or ' '}`"
    fence = "`" * (longest + 1)
    return f"{fence} {name} {fence}"
