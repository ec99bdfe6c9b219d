"""What `timesink capture --redact` keeps of a profile, and by what it knows people, machines, folders and secrets in the rest.

Keys, tables and columns are listed in `private_texts.json` by what readers take. A text is kept word by word: words of `redaction/words.txt`
are those that software says, all others are somebody's.
"""

# ruff: noqa: E501  # a pattern is read whole
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from timesink.knowledge import Pattern, Patterns

_FILE: Final = Patterns(__file__, globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Pattern: ...


# Shapes, in the order in which they are looked for. The group that matches names the kind of placeholder.
PRIVATE_SHAPES: Final = tuple(_FILE.kind("PRIVATE_SHAPES").values())
"""What is private by its shape, wherever it stands."""

IDENTIFYING_NUMBERS: Final = tuple(_FILE.kind("IDENTIFYING_NUMBERS").values())
"""Numbers that stand for somebody or something of somebody's, in free text; kernels' names may hold such."""

_SHAPES, _CERTAIN = _FILE.kind("PRIVATE_SHAPES"), _FILE.kind("CERTAIN_SHAPES")
CERTAIN_SHAPES: Final = (
    _SHAPES["key"], _SHAPES["token"], _CERTAIN["e-mail"], _SHAPES["UUID"], _CERTAIN["IPv4"], _CERTAIN["folder"],
)  # fmt: skip
"""Shapes that a redacted file cannot hold by chance; redaction fails where it does."""
LONG_WORD: Final = Pattern(r"\S{2000,}", "what nobody writes as one word", "x" * 2000, "x" * 1999)
BESIDE_A_SYMBOL: Final = frozenset(_FILE.words["BESIDE_A_SYMBOL"])
TERMINAL_STYLE: Final = Pattern("\x1b\\[[0-9;]{0,20}m", "a colour of a terminal", "\x1b[31m", "[31m")

ESCAPED_SLASH: Final = "\\/"
"""As some writers of JSON spell it."""


def whole_words(names: Iterable[str]) -> str:
    """The pattern of these names where no letter or digit stands beside them; the longest first."""
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9])"


NAMING_SIGNS: Final = _FILE.words["NAMING_SIGNS"]

_KEPT: Final = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""Keys, tables and columns by what readers take."""
# Kineto: https://github.com/pytorch/kineto, and what other writers of its format add.
TRACE_KEYS: Final = frozenset(_KEPT["trace keys"])
EVENT_KEYS: Final = frozenset(_KEPT["event keys"])
ARGUMENT_KEYS: Final = frozenset(_KEPT["argument keys"])
PAGE_TAGS: Final = frozenset(_KEPT["page tags"])
PAGE_ATTRIBUTES: Final = frozenset(_KEPT["page attributes"])
KERNEL_KINDS: Final = frozenset(("kernel", "Kernel", "cuda_profiler_range"))
"""Categories of events whose names are kernels."""
KERNEL_ARGUMENTS: Final = frozenset(("kernel", "kernel_name"))

NSYS_COLUMNS: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {
        table: (columns.get("whole numbers", ""), columns.get("numbers", ""), columns.get("texts", ""))
        for table, columns in _KEPT["nsys columns"].items()
    }
)
"""Of the tables of an nsys export that are kept, the columns of whole numbers, of numbers and of texts."""
NSYS_SYMBOLS: Final = frozenset((
    ("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName"), ("CUPTI_ACTIVITY_KIND_KERNEL", "shortName"),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "mangledName"),
))  # fmt: skip
"""Columns that refer to kernels' names."""
NSYS_LABELS: Final = frozenset(("nameId", "textId", "jsonTextId", "symbol", "module"))
"""Columns, of any kept table, that refer to other texts."""
NSYS_SETTINGS_KEPT: Final = {
    "META_DATA_CAPTURE": _FILE.CAPTURE_SETTINGS,
    "META_DATA_EXPORT": _FILE.EXPORT_SETTINGS,
    "EXPORT_META_DATA": _FILE.EXPORT_SETTINGS,
    "TARGET_INFO_SYSTEM_ENV": _FILE.DRIVER_VERSIONS,
}
"""Of tables of settings, the settings that say how to read the rest."""
COMMON_METRIC: Final = Pattern(
    r"\x08[\x00-\x7f]\x12(?:\x09\x19.{8}|[\x02-\x0b]\x28[\x80-\xff]{0,9}[\x00-\x7f])|\x08[\x80-\xff][\x00-\x7f]\x12(?:\x09\x19.{8}|[\x02-\x0b]\x28[\x80-\xff]{0,9}[\x00-\x7f])",
    "the bytes of a metric that is a number and nothing else (ncu)", "\x08\x01\x12\x02\x28\x07", "\x08\x01\x12\x03\x0a\x01a",
)  # fmt: skip
PAGE_COLUMNS: Final = frozenset(_KEPT["page columns"])
