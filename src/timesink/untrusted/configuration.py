"""What a project's pyproject.toml says under `[tool.timesink]`: rules to leave out, limits, and suites of the gate.

`configuration.schema.json` beside this file declares every key. What it does not declare is refused, with its place.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from timesink.errors import UsageError, did_you_mean

VARIABLE: Final = "TIMESINK_CONFIG"
"""Names another file than the nearest pyproject.toml; empty: none."""
TABLE: Final = ("tool", "timesink")
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,), "array": (list,), "string": (str,), "number": (int, float),
}  # fmt: skip


_WORDS: Final = {"object": "a table", "array": "a list", "string": "a text", "number": "a number"}
_SHOWN: Final = "docs/how-to/configure.md shows what stands there"


@dataclass(frozen=True, slots=True)
class ProjectConfiguration:
    """`skip`: rules left out; `limits`: those of rules, by ``CODE.name``; `suites`: options by the name of a suite."""

    path: Path
    skip: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    suites: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def schema() -> dict[str, Any]:
    """The JSON Schema of the table."""
    text = files("timesink.untrusted").joinpath("configuration.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def configuration() -> ProjectConfiguration | None:
    """That of the project around the current folder, or of the file that `TIMESINK_CONFIG` names; None without one."""
    if (named := os.environ.get(VARIABLE)) is not None:
        return read(Path(named)) if named else None
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (path := folder / "pyproject.toml").is_file():
            return read(path)
    return None


def read(path: Path) -> ProjectConfiguration | None:
    """The table of that file, None where it has none. `UsageError` names the line of what is wrong with it."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy="check the path") from error
    if b"timesink" not in raw:
        return None
    import tomllib

    try:
        text = raw.decode()
        table = tomllib.loads(text).get("tool", {}).get("timesink")
    except (ValueError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML: {error}", remedy="correct that line") from error
    if table is None:
        return None
    for place, fault, remedy in _faults(table, schema(), TABLE):
        raise UsageError(f"{path}{_line(text, place)}: [{'.'.join(place[:-1])}] {place[-1]} {fault}", remedy=remedy)
    return ProjectConfiguration(
        path, tuple(table.get("skip", ())), dict(_flat(table.get("limits", {}))), table.get("suites", {})
    )


def _flat(limits: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """``IDL101.idle_ratio = 0.2`` is a table within a table where it is written without quotes."""
    for name, value in limits.items():
        if isinstance(value, dict):
            yield from ((f"{name.upper()}.{inner}", float(number)) for inner, number in value.items())
        else:
            yield name, float(value)


def _faults(
    value: Any, declared: Mapping[str, Any], place: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """What the schema forbids, each with its place, what is wrong, and what to do."""
    named = declared.get("type", ())
    kinds = [named] if isinstance(named, str) else named
    allowed = tuple(kind for name in kinds for kind in _KINDS[name])
    if allowed and (isinstance(value, bool) or not isinstance(value, allowed)):
        yield place, f"is not {' or '.join(_WORDS[name] for name in kinds)}", declared.get("description", _SHOWN)
    elif isinstance(value, dict):
        keys = declared.get("properties", {})
        others = declared.get("additionalProperties")
        for name, inner in value.items():
            if name in keys or isinstance(others, dict):
                yield from _faults(inner, keys.get(name, others), (*place, name))
            else:
                known = did_you_mean(name, {key: key for key in keys})
                yield (*place, name), "is not known", known or f"choose one of: {', '.join(keys)}"
    elif isinstance(value, list):
        for inner in value:
            yield from _faults(inner, declared.get("items", {}), place)
    elif isinstance(value, (int, float)) and not abs(value) <= sys.float_info.max:
        yield place, "is no finite number", declared.get("description", _SHOWN)
    elif isinstance(value, str) and not re.search(declared.get("pattern", ""), value):
        yield place, f"cannot be {value!r}", declared.get("description", _SHOWN)


def _line(text: str, place: tuple[str, ...]) -> str:
    """`:12` where the key stands in a line of its own below its table's head, or as that head; else nothing."""
    # The key at the start of its line, alone or as the last part of a dotted one, in quotes or not.
    key = re.compile(rf"""\s*(?:[\w."' -]+\.)?["']?{re.escape(place[-1])}["']?\s*[=.]""")
    heads = {".".join(place[:size]) for size in range(len(place) + 1)}
    head = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            head = line.strip().strip("[]").replace('"', "").replace("'", "").replace(" ", "")
            if head == ".".join(place):
                return f":{number}"
        elif head in heads and head and key.match(line):
            return f":{number}"
    return ""
