"""Experiments run programs: verify, calibrate, gate, and the ledger of what was predicted and measured.

What they keep are files of records that people commit and diff: sorted keys, six significant digits, a schema version.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from timesink.errors import TimesinkError, UsageError
from timesink.untrusted import is_made_of
from timesink.untrusted.plain_json import document
from timesink.untrusted.whole_file import write_whole

LONGEST_RUN_S: Final = 1800
"""What runs longer is ended, unless a time was given."""


SIGNIFICANT = 6
_EXACT = 2**53  # whole numbers a double holds exactly


_LONGEST_SUITE = 80  # it becomes a folder


def check_suite(name: str) -> None:
    """`UsageError` where the suite's name is no plain file name."""
    if not (name[:1].isalnum() and is_made_of(name, "_.-") and len(name) <= _LONGEST_SUITE):
        raise UsageError(f"{name!r} is not a name for a suite", remedy="use letters, digits, '.', '_' and '-'")


def check_history(path: Path) -> None:
    """`UsageError` where no file of run means is."""
    if not path.is_file():
        raise UsageError(f"there is no history at {path}", remedy='let the trunk job append {"mean": seconds} lines')


class BrokenRecord(TimesinkError):
    """A record file that is no JSON, of another schema version, or lacks what it must have."""


def round_floats(value: Any) -> Any:
    """The value with every float at six significant digits, so that files diff by what changed; whole ones stay."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT}g}")
    if isinstance(value, Mapping):
        return {str(key): round_floats(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [round_floats(part) for part in value]
    return value


def text_of(record: Mapping[str, Any]) -> str:
    """The file's text."""
    return json.dumps(round_floats(record), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Store a record, in a new folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text_of(record))


def load(path: Path, version: int, needed: Mapping[str, type]) -> dict[str, Any]:
    """The record, or `BrokenRecord` naming what is wrong with it."""
    remedy = "restore it from version control or make it anew"
    try:
        record = document(path)
    except (OSError, ValueError) as broken:
        raise BrokenRecord(f"{path} is not readable JSON: {broken}", remedy=remedy) from broken
    if not isinstance(record, dict):
        raise BrokenRecord(f"{path} holds no object", remedy=remedy)
    if record.get("schema_version") != version:
        version_found = record.get("schema_version")
        raise BrokenRecord(f"{path} has schema version {version_found!r}, this timesink reads {version}", remedy=remedy)
    for name, kind in needed.items():
        if not isinstance(record.get(name), kind):
            raise BrokenRecord(f"{path} has no {kind.__name__} {name!r}", remedy=remedy)
    return record
