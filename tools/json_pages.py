"""The pages of JSON: what `--format json` writes, from the schemas, with the beginning of real answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import timesink
from command_pages import in_workplace, printed
from timesink.cli.commands import ENTRIES
from timesink.render.markdown import code, escaped
from timesink.render.schemas import ENVELOPE, NAMES, OF_COMMANDS, schema, schemas_of

SAMPLES = {
    "diagnosis": "timesink diagnose run.json.gz --only IDL101 --format json",
    "page": "timesink show run.json.gz idle --top 2 --format json",
    "gate": "timesink gate --limits run.json.gz --limit 'mean(steps.period_ns) <= 10 ms' --format json",
    "kernels": "timesink kernels report.ncu-rep --format json",
    "kernel_comparison": "timesink kernels before.ncu-rep --against after.ncu-rep --id 0 --format json",
    "rule": "timesink explain IDL101 --format json",
    "demo": "timesink demo --format json",
    "error": "timesink diagnose no-such-file --format json",
}
LINES, CHARACTERS = 30, 110
PACKAGE = str(Path(timesink.__file__).parent)  # wherever the pages are written
INTRO = """# JSON

Every command that has `--format` writes JSON with `--format json`, and every document begins with the same three keys:

{envelope}

Then come the keys of its schema (JSON Schema, draft 2020-12). Each is a file of the package, whole by itself:
`timesink/render/schemas/NAME.schema.json`; in Python `timesink.render.schemas.schema("NAME")`. Within one
`schema_version` keys are added, never renamed or taken away, so read the keys you know and pass over others. Times are
in the unit that ends the key. Where a command refuses, it writes [`error`](error.md) instead; where only a part of the
input could be read, its answer has the key `error` as well, and the exit code is 2.

| command | schema |
|---|---|
"""


def json_pages() -> Iterator[tuple[str, str]]:
    """Every page: its path in the documentation, and its text."""
    rows = [
        f"| `timesink {name}` | {', '.join(f'[{form}]({form}.md)' for form in schemas_of(name))} |"
        for name in ENTRIES
        if name in OF_COMMANDS
    ]
    rows.append("| all others | [page](page.md) |")
    envelope = "\n".join(keys_table({key: schema("error")["properties"][key] for key in ENVELOPE}, ENVELOPE))
    yield "json/index.md", INTRO.format(envelope=envelope) + "\n".join(rows)
    with in_workplace():
        for name in NAMES:
            yield f"json/{name}.md", json_page(name)


def json_page(name: str) -> str:
    """The keys of one schema, those of the objects it names, and the beginning of a real answer."""
    whole = schema(name)
    own = {key: part for key, part in whole["properties"].items() if key not in ENVELOPE}
    lines = [f"# {name}", "", whole["description"], "", *keys_table(own, whole["required"]), ""]
    if isinstance(other := whole.get("additionalProperties"), dict):
        lines += [f"Every other key is {type_text(other)}.", ""]
    for key, part in {**own, **whole.get("$defs", {})}.items():
        if (made := of_object(part)) and (key != "error" or name == "error"):
            lines += [f"## {key}", "", *keys_table(made["properties"], made.get("required", ())), ""]
    text = printed(SAMPLES[name], refused=name == "error").replace(PACKAGE, "site-packages/timesink").splitlines()
    shown = [line if len(line) <= CHARACTERS else f"{line[:CHARACTERS]}..." for line in text[:LINES]]
    more = [f"... {len(text) - LINES} more lines"] if len(text) > LINES else []
    return "\n".join([*lines, "```console", f"$ {SAMPLES[name]}", *shown, *more, "```"])


def of_object(part: dict[str, Any]) -> dict[str, Any]:
    """What declares keys there: the part itself, or what its list holds; empty where neither does."""
    inner = part.get("items", part)
    return inner if "properties" in inner else {}


def keys_table(keys: dict[str, Any], required: Any) -> list[str]:
    """A row per key."""
    rows = [
        f"| `{key}` | {type_text(part)} | {'' if key in required else 'may be absent'} | "
        f"{escaped(part.get('description', ''))} |"
        for key, part in keys.items()
    ]
    return ["| key | value | | meaning |", "|---|---|---|---|", *rows]


def type_text(part: dict[str, Any]) -> str:
    """The type of a value in words."""
    if "$ref" in part:
        return code(part["$ref"].rpartition("/")[2])
    if "const" in part or "enum" in part:
        values = part.get("enum", [part.get("const")])
        few = [code(json.dumps(value).strip('"')) for value in values[:6]]
        return f"{', '.join(few)}{', ...' if len(values) > len(few) else ''}"
    if "anyOf" in part:
        return " or ".join(type_text(one) for one in part["anyOf"])
    names = part.get("type", "any value")
    named = " or ".join(names) if isinstance(names, list) else names
    if named == "array":
        return f"list of {type_text(part['items'])}"
    values = part.get("additionalProperties")
    return f"object of {type_text(values)}" if named == "object" and isinstance(values, dict) else named


if __name__ == "__main__":
    for path, text in json_pages():
        print(path, text, sep="\n")
