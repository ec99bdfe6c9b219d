# ruff: noqa: E501 (rows of what is planted)
"""Places that no earlier round of `found` has: other captures, exports, pages, answers of ours and files around a job.

A text is planted in other ways than there: as a scope, a member, a setting, an argument, in quotes, on a line of its own.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import lzma
import re
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from benchmarks.redaction.found_places import Planting, in_value
from benchmarks.redaction.fresh_files import FILES

from fuzz import seeds
from timesink.diagnosis.engine import diagnose
from timesink.readers import read
from timesink.render import render

_WAYS = (
    "{new}", "{new}", "{old}::{new}", "{old}.{new}", "{old}={new}", "{new}-{old}", "{old}<{new}>", "{old}[{new}]",
    "{old}, {new}", "{new}@{old}", '{old} "{new}"', "{old};{new};", "{old}\n{new}", "({new}) {old}", "{new} {old} {new}",
)  # fmt: skip
_TRACES = ("01_t4_fp16_named_s1688", "09_gpu_named_kernels_lost", "10_npu_tracks", "11_reductions_read_one_by_one",
           "13_one_wait_then_starved_by_host", "14_frames_of_engine_only")  # fmt: skip
_EXPORTS = ("nsys/emit_nvtx", "nsys/writes", "cases/um_faults", "cases/pool_trim", "cases/nccl_slow")
_EVENTS, _ROWS, _LINES = 40, 20, 70


def mixed(old: Any, new: str, where: str) -> Any:
    """The new text with the old one, as the place's digest says; alone where the old is no text."""
    way = _WAYS[_digest(where) % len(_WAYS)]
    return way.format(old=old, new=new) if isinstance(old, str) and old else new


def _digest(title: str) -> int:
    return int.from_bytes(hashlib.sha256(f"fresh/{title}".encode()).digest()[:4])


def _opened(path: Path) -> bytes:
    content = path.read_bytes()
    return {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix, bytes)(content)


def _data(name: str) -> bytes:
    return _opened(min(seeds.DATA.glob(f"{name}*"), key=lambda path: len(path.name)))


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _json_apart(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def _valued(name: str, value: Any, write: Callable[[Any], bytes] = _json) -> dict[str, Planting]:
    return in_value(value, write, name, mixed)


def _traces() -> dict[str, Planting]:
    made: dict[str, Planting] = {}
    paths = [*(f"cases/{name}" for name in _TRACES), "compile/planted/trace.json", "nsys/emit_nvtx.torch.json",
             "capture/compiled/torch/rank0.json"]  # fmt: skip
    for at, name in enumerate(paths):
        trace = json.loads(_data(name))
        events = trace if isinstance(trace, list) else trace["traceEvents"]
        kinds: dict[object, Any] = {}
        for event in events:
            first = re.split("[^A-Za-z]", str(event.get("name")))[0]
            kinds.setdefault((event.get("ph"), event.get("cat"), frozenset(event.get("args") or ()), first), event)
        few = [*kinds.values()][:_EVENTS]
        whole = few if isinstance(trace, list) else trace | {"traceEvents": few}
        made = _valued("trace", whole, _json_apart if at % 2 else _json) | made
    return made


def _exports() -> dict[str, Planting]:
    made: dict[str, Planting] = {}
    for name in _EXPORTS:
        content = seeds.first_rows(_data(f"{name}.sqlite"), _ROWS)
        with closing(sqlite3.connect(":memory:")) as db:
            db.deserialize(content)
            for table in seeds.table_names(db):
                rows = db.execute(f'SELECT * FROM "{table}" ORDER BY rowid DESC LIMIT 1')
                columns, row = [column for column, *_ in rows.description], rows.fetchone()
                for column, cell in zip(columns, row or (), strict=False):
                    title = f"export/{table}.{column}, last"
                    made.setdefault(title, _celled(content, table, column, cell, title))
    return made


def _celled(content: bytes, table: str, column: str, cell: Any, title: str) -> Planting:
    """The last row's cell; a string of the table of strings where it points to one."""

    def plant(text: str) -> bytes:
        with closing(sqlite3.connect(":memory:")) as db:
            db.deserialize(content)
            string = None
            if isinstance(cell, int) and column.lower().endswith(("id", "name")) and table != "StringIds":
                string = db.execute("SELECT value FROM StringIds WHERE id = ?", (cell,)).fetchone()
            if string:
                db.execute("UPDATE StringIds SET value = ? WHERE id = ?", (mixed(string[0], text, title), cell))
            else:
                last = f'WHERE rowid = (SELECT max(rowid) FROM "{table}")'
                with suppress(sqlite3.IntegrityError):
                    db.execute(f'UPDATE "{table}" SET "{column}" = ? {last}', (mixed(cell, text, title),))
            db.commit()
            return db.serialize()

    return plant


def _rows(name: str, text: str, delimiter: str = ",") -> dict[str, Planting]:
    """Each cell of the first and of a later row of a table."""
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    heads = max(rows[:3], key=len)

    def planted(row: int, at: int, title: str) -> Planting:
        def plant(new: str) -> bytes:
            changed = [[*one] for one in rows]
            changed[row][at] = mixed(changed[row][at], new, title)
            out = io.StringIO()
            csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(changed)
            return out.getvalue().encode()

        return plant

    made = {}
    for row in sorted({0, min(3, len(rows) - 1), len(rows) - 1}):
        for at in range(min(len(rows[row]), len(heads))):
            title = f"{name}/{row}/{heads[at] or at}"
            made[title] = planted(row, at, title)
    return made


def _worded(name: str, text: str) -> dict[str, Planting]:
    """One word of each line that looks as none before it."""
    lines, made = text.splitlines()[:_LINES], dict[str, Planting]()

    def planted(at: int, title: str) -> Planting:
        words = re.split("([ \t,;=>]+)", lines[at])
        where = [number for number in range(0, len(words), 2) if words[number]]
        chosen = where[_digest(title + "/word") % len(where)]

        def plant(new: str) -> bytes:
            put_in = [*words]
            put_in[chosen] = mixed(words[chosen], new, title)
            return "\n".join([*lines[:at], "".join(put_in), *lines[at + 1 :], ""]).encode()

        return plant

    for at, line in enumerate(lines):
        title = f"{name}/{re.sub('[0-9]+', '0', line)[:50]}"
        if line.strip(" \t,;=>"):
            made.setdefault(title, planted(at, title))
    return made


def _answers() -> dict[str, tuple[str, dict[str, Planting]]]:
    """Answers of our own about a trace, in each format that holds names."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(next(seed for seed in seeds.kineto() if seed[:1] == b"{"))
        told = diagnose(read(path, cache=False))
        texts = {
            form: re.sub(r"[\w/\\]+/trace\.json", "trace.json", render(told, form)) for form in ("json", "md", "text")
        }
    return {
        "diagnosis.json": ("diagnosis.json", _valued("diagnosis", json.loads(texts["json"]))),
        "diagnosis.md": ("diagnosis.md", _worded("diagnosis.md", texts["md"])),
        "diagnosis.txt": ("diagnosis.txt", _worded("diagnosis.txt", texts["text"])),
    }


def pool() -> dict[str, tuple[str, Planting]]:
    """Every place by its title, with the name of its file."""
    groups: dict[str, tuple[str, dict[str, Planting]]] = {
        "trace": ("rank0.json", _traces()), "export": ("report.sqlite", _exports()),
        "manifest": ("manifest.json", _valued("manifest", json.loads(_data("capture/compiled/torch/manifest.json")))),
        "provenance": ("kernel_stack_traces.json", _valued("stacks", json.loads(seeds.inductor_provenance()[1]))),
        "timeline": ("timeline.raw.json", _valued("timeline", json.loads(seeds.memory_timeline()[0]))),
        **_answers(),
    }  # fmt: skip
    for page in ("cuda.details.txt", "cuda.sol.txt", "plain.txt", "triton.raw.txt", "triton.summary.txt"):
        groups[page] = (page, _worded(page, _data(f"ncu_pages/{page}").decode()))
    for page in ("cuda.details_both.csv", "cuda.summary.csv", "triton.sol.csv"):
        lines = "\n".join(_data(f"ncu_pages/{page}").decode().splitlines()[:12])
        groups[page] = (page, _rows(page, lines[lines.index('"') :]))
    for name in ("compiled.cuda_api_sum", "emit_nvtx.nvtx_sum", "writes.osrt_sum"):
        table = "\n".join(_data(f"nsys/stats/{name}.csv").decode().splitlines()[:8])
        groups[name] = (f"{name}.csv", _rows(name, table))
    for log in ("compile/item_break.text", "compile/gc.1", "compile/layer_breaks.trace"):
        if (seeds.DATA / f"{log}.log").exists():
            groups[log] = (f"{log.split('/')[1]}.log", _worded(log, _data(f"{log}.log").decode()))
    for name, text in FILES.items():
        is_table = name.endswith(".csv")
        is_value = name.endswith((".json", ".sarif"))
        places = _rows(name, text) if is_table else _valued(name, json.loads(text)) if is_value else _worded(name, text)
        groups[name] = (name, places)
    return {title: (file, plant) for file, places in groups.values() for title, plant in places.items()}
