"""Our own Markdown (the pages of rules) as HTML: paragraphs, lists, code; raw HTML in it stays text."""

from __future__ import annotations

from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup


@cache
def prose(text: str) -> Markup:
    """Markdown as safe HTML. Links are left as text: a report leads nowhere."""
    reader = (
        MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "autolink", "image", "reference"])
    )
    return Markup(reader.render(text))


def section(doc: str, heading: str) -> str:
    """The part of a rule's page under that heading, without the heading; empty where there is none."""
    parts = f"\n{doc}".split("\n## ")
    for part in parts[1:]:
        title, _, body = part.partition("\n")
        if title.strip().lower() == heading.lower():
            return body.strip()
    return ""
