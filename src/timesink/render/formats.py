"""The formats a diagnosis or a page is written in."""

from __future__ import annotations

from enum import StrEnum

DEFAULT_WIDTH = 100


class Format(StrEnum):
    """What a report is written as."""

    TEXT = "text"
    JSON = "json"
    MD = "md"
    HTML = "html"
