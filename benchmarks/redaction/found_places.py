# ruff: noqa: E501 (rows of what is planted)
"""Places of the first two rounds of `found`: by the way through captures, exports, pages and files around a job."""

from __future__ import annotations

import copy
import gzip
import hashlib
import html
import json
import pickle
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.redaction.files import FILES
from benchmarks.redaction.places import REPORT, Report

from fuzz import seeds
from timesink.diagnosis.engine import diagnose
from timesink.readers import read
from timesink.render import render

Planting = Callable[[str], bytes]
"""The file with a text planted in one place."""
Mixing = Callable[[Any, str, str], Any]
"""What stands in a place: of the old value, the new text and the place's title."""
_BESIDE = (
    "{new}",
    "{new}",
    "{old} {new}",
    "{new}: {old}",
    "{old}_{new}",
    "{old} ({new})",
    "{old}/{new}",
    "{new} {old}",
)


def _mixed(old: Any, new: str, where: str) -> Any:
    """The new text beside the old one, as the place's digest says; alone where the old is no text."""
    form = _BESIDE[hashlib.sha256(where.encode()).digest()[1] % len(_BESIDE)]
    return form.format(old=old, new=new) if isinstance(old, str) and old else new


def _leaves(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each text, number and key (behind a "key")."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*way, "key", key)
            yield from _leaves(inner, (*way, key))
    elif isinstance(value, (list, tuple)):
        for at, inner in enumerate(value):
            yield from _leaves(inner, (*way, at))
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield way


def in_value(value: Any, write: Callable[[Any], bytes], name: str, mixing: Mixing = _mixed) -> dict[str, Planting]:
    """A place for each way that differs by more than the numbers of lists; an event's number is its category."""
    made: dict[str, Planting] = {}
    for way in _leaves(value):
        title = name
        for at, part in enumerate(way):
            inner = value
            for before in way[:at]:
                inner = inner[before] if before != "key" else inner
            is_event = isinstance(part, int) and isinstance(inner, list) and isinstance(inner[part], dict)
            title += f"/{inner[part].get('cat', inner[part].get('action', '#')) if is_event else '#' if isinstance(part, int) else part}"
        made.setdefault(title, lambda text, way=way, title=title: write(_put(value, way, text, title, mixing)))  # type: ignore[misc]
    return made


def _put(value: Any, way: tuple[Any, ...], text: str, title: str, mixing: Mixing) -> Any:
    changed = copy.deepcopy(value)
    inner, is_key = changed, "key" in way[-2:-1]
    for part in way[: -2 if is_key else -1]:
        inner = inner[part]
    if is_key:
        inner[mixing(way[-1], text, title)] = inner.pop(way[-1])
    else:
        inner[way[-1]] = mixing(inner[way[-1]], text, title)
    return changed


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _trace() -> dict[str, Planting]:
    made: dict[str, Planting] = {}
    for seed in seeds.kineto()[:8]:
        try:
            trace = json.loads(seed)
        except ValueError:  # packed, or damaged on purpose
            continue
        if not isinstance(trace, dict):
            continue
        kinds = {
            (event.get("ph"), event.get("cat"), frozenset(event.get("args", ()))): event
            for event in trace["traceEvents"]
        }
        made = in_value(trace | {"traceEvents": [*kinds.values()]}, _json, "trace") | made
    return made


def _export() -> dict[str, Planting]:
    content = seeds.nsys_sqlite()[0]
    made: dict[str, Planting] = {}
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(content)
        strings = {key for (key,) in db.execute("SELECT id FROM StringIds")}
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = db.execute(f'SELECT * FROM "{table}" LIMIT 1')
            names, row = [name for name, *_ in rows.description], rows.fetchone()
            for name, cell in zip(names, row or (), strict=False):
                title = f"export/{table}.{name}"
                made[title] = _updated(content, table, name, cell, title, refers=False)
                if cell in strings and name.endswith(("Id", "Name")) and isinstance(cell, int):
                    made[f"{title}, its string"] = _updated(content, table, name, "step", title, refers=True)
    return made


def _updated(content: bytes, table: str, name: str, cell: Any, title: str, *, refers: bool) -> Planting:
    def plant(text: str) -> bytes:
        with closing(sqlite3.connect(":memory:")) as db:
            db.deserialize(content)
            new: Any = _mixed(cell, text, title)
            if refers:
                db.execute("INSERT INTO StringIds (id, value) VALUES (987654, ?)", (new,))
                new = 987654
            row = f'WHERE rowid = (SELECT min(rowid) FROM "{table}")'
            with suppress(sqlite3.IntegrityError):  # a primary key takes no text
                db.execute(f'UPDATE "{table}" SET "{name}" = ? {row}', (new,))
            db.commit()
            return db.serialize()

    return plant


def _lines(name: str, text: str) -> dict[str, Planting]:
    """The last word of each line that looks as none before it."""
    lines, made = text.splitlines(), dict[str, Planting]()

    def planted(at: int) -> Planting:
        where = f"{name}/{at}"
        return lambda new: "\n".join([*lines[:at], _last(lines[at], new, where), *lines[at + 1 :]]).encode()

    for at, line in enumerate(lines):
        look = re.sub("[0-9]+", "0", line.rsplit(" ", 1)[0])[:60]
        if line.strip():
            made.setdefault(f"{name}/{look}", planted(at))
    return made


def _last(line: str, new: str, where: str) -> str:
    head, space, old = line.rpartition(" ")
    quote = old[:1] if old[:1] in "\"'" and old[:1] else ""
    return f"{head}{space}{quote}{_mixed(old.strip(quote) if quote else old, new, where)}{quote}"


class _Shown(HTMLParser):
    """What a page shows, by the element and its attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[str, str, str]] = {}
        self._tag = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        for name, value in attrs:
            self.found.setdefault(f"page/{tag} {name}", (tag, name, (value or "")[:80]))

    def handle_data(self, data: str) -> None:
        if data.strip() and self._tag not in ("script", "style", "template"):
            self.found.setdefault(f"page/{self._tag}", (self._tag, "", data.strip()[:80]))


def _page() -> dict[str, Planting]:
    shown = _Shown()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "trace.json").write_bytes(next(seed for seed in seeds.kineto() if seed[:1] == b"{"))
        shown.feed(render(diagnose(read(Path(folder) / "trace.json", cache=False)), "html"))

    def plant(title: str) -> Planting:
        tag, name, old = shown.found[title]

        def planted(text: str) -> bytes:
            new = html.escape(_mixed(old, text, title))
            inner = f'<{tag} {name}="{new}">x</{tag}>' if name else f"<{tag}>{new}</{tag}>"
            return f'<!doctype html><html lang="en"><body>{inner}</body></html>'.encode()

        return planted

    return {title: plant(title) for title in shown.found}


def _cells() -> dict[str, Planting]:
    """Each cell of the first row of a raw page of Nsight Compute, one in ten of the counters."""
    heads, units, row, *rest = seeds.ncu_csv()[2].decode().splitlines()
    names, cells = heads.strip('"').split('","'), row.strip('"').split('","')

    def planted(at: int) -> Planting:
        def plant(text: str) -> bytes:
            changed = [*cells[:at], _mixed(cells[at], text, names[at]).replace('"', '""'), *cells[at + 1 :]]
            return "\n".join([heads, units, '"' + '","'.join(changed) + '"', *rest[:3]]).encode()

        return plant

    return {f"cell/{name}": planted(at) for at, name in enumerate(names) if at < 14 or at % 10 == 0}


def _report() -> dict[str, Planting]:
    def planted(name: str) -> Planting:
        def plant(text: str) -> bytes:
            report = Report()
            REPORT[name](report, text, Random(name))
            return report.written()

        return plant

    return {f"report/{name}": planted(name) for name in REPORT}


def pool() -> dict[str, tuple[str, Planting]]:
    """Every place by its title, with the name of its file."""
    logs = [seed.decode() for seed in seeds.torch_logs()]
    texts = {f"log{at}.log": "\n".join(log.splitlines()[:60]) for at, log in enumerate(logs[:4])} | FILES
    groups: dict[str, dict[str, Planting]] = {
        "rank0.json": _trace(),
        "report.sqlite": _export(),
        "report.html": _page(),
        "page.csv": _cells(),
        "report.ncu-rep": _report(),
    }
    groups["snapshot.pickle"] = in_value(
        pickle.loads(gzip.decompress(seeds.torch_snapshot()[2])),
        lambda value: pickle.dumps(value, protocol=4),
        "snapshot",
    )
    groups |= {
        name: in_value(json.loads(text), _json, name) if name.endswith(".json") else _lines(name, text)
        for name, text in texts.items()
    }
    return {title: (file, plant) for file, group in groups.items() for title, plant in group.items()}
