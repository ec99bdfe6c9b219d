# a table with a place a line
"""Where secrets are planted: in each format, the fields that profilers fill, and the ones that only a stranger would.

A document of a format is opened from a small capture of the repository, changed by its places, and written.
"""

from __future__ import annotations

import html
import json
import pickle
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from functools import cache
from random import Random
from typing import Any

from tests.readers import ncu_reports as made

from fuzz import seeds

Place = Callable[[Any, str, Random], None]
_FRAMES = ["loading from {}", "step 3 ({})", "{}: forward", "connect to {} failed", "{}"]


def _said(text: str, rng: Random) -> str:
    return rng.choice(_FRAMES).format(text)


@cache
def _seed(name: str, number: int = 0) -> bytes:
    """One of the small captures of a format."""
    return bytes(getattr(seeds, name)()[number])


class Trace:
    """A Kineto trace as a value."""

    name, file = "trace", "rank0.json"

    def __init__(self) -> None:
        self.value: dict[str, Any] = json.loads(_seed("kineto"))
        self.escaped: list[str] = []

    def event(self, **fields: Any) -> None:
        first = next(event for event in self.value["traceEvents"] if "ts" in event)
        base = {"ph": "X", "ts": first["ts"], "dur": 1, "pid": first["pid"], "tid": first["tid"]}
        self.value["traceEvents"].insert(len(self.value["traceEvents"]) // 2, base | fields)

    def written(self) -> bytes:
        text = json.dumps(self.value)
        for word in self.escaped:
            spelled = "".join(f"\\u{ord(letter):04x}" for letter in word)
            text = text.replace(json.dumps(word)[1:-1], spelled)
        return text.encode()


def _environment(trace: Trace, text: str, rng: Random) -> None:
    name, sign, value = text.partition("=")
    trace.value.setdefault("env", {})[name if sign else f"VAR{rng.randint(0, 9999)}"] = value if sign else text


def _as_key(trace: Trace, text: str, rng: Random) -> None:
    trace.value.setdefault("metadata", {})[text] = rng.randint(0, 9)


def _escaped(trace: Trace, text: str, rng: Random) -> None:
    trace.event(cat="user_annotation", name=_said(text, rng))
    trace.escaped.append(text)


def _first_event(trace: Trace, text: str, rng: Random) -> None:
    trace.value["traceEvents"].insert(
        0, {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": _said(text, rng)}}
    )


TRACE: dict[str, Place] = {
    "environment": _environment,
    "top-level text": lambda t, s, r: t.value.__setitem__(f"note{r.randint(0, 9999)}", _said(s, r)),
    "list of messages": lambda t, s, r: t.value.setdefault("INFO", []).append(
        f"INFO:2024-04-03 18:51:35 {_said(s, r)}"
    ),
    "distributed info": lambda t, s, r: t.value.setdefault("distributedInfo", {}).update({f"n{r.random()}": s}),
    "key": _as_key,
    "user annotation": lambda t, s, r: t.event(cat="user_annotation", name=_said(s, r)),
    "operator's name": lambda t, s, r: t.event(cat="cpu_op", name=_said(s, r)),
    "unknown argument": lambda t, s, r: t.event(cat="cpu_op", name="aten::add", args={"cmd line": _said(s, r)}),
    "known argument": lambda t, s, r: t.event(cat="cpu_op", name="aten::add", args={"Call stack": _said(s, r)}),
    "list in argument": lambda t, s, r: t.event(cat="cpu_op", name="aten::add", args={"Concrete Inputs": ["", s]}),
    "Python frame": lambda t, s, r: t.event(cat="python_function", name=f"{s}(12): forward"),
    "unknown member of an event": lambda t, s, r: t.event(cat="cpu_op", name="aten::add", comment=_said(s, r)),
    "unknown category": lambda t, s, r: t.event(cat="my_events", name=_said(s, r)),
    "category": lambda t, s, r: t.event(cat=s, name="x"),
    "process name first": _first_event,
    "thread name": lambda t, s, r: t.event(ph="M", name="thread_name", args={"name": s}),
    "kernel's file": lambda t, s, r: t.event(cat="cpu_op", name="triton_poi", args={"kernel_file": s}),
    "escapes": _escaped,
    "device property": lambda t, s, r: t.value.setdefault("deviceProperties", [{}])[0].update({f"p{r.random()}": s}),
}


class Database:
    """An Nsight Systems export."""

    name, file = "export", "report.sqlite"

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.deserialize(_seed("nsys_sqlite"))
        self.db.execute("PRAGMA secure_delete = OFF")
        self.free = self.db.execute("SELECT max(id) FROM StringIds").fetchone()[0]
        self.gone: list[str] = []

    def string(self, text: str) -> int:
        self.free += 1
        self.db.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (self.free, text))
        return int(self.free)

    def insert(self, table: str, schema: str, *values: Any) -> None:
        self.db.execute(f"CREATE TABLE IF NOT EXISTS {table} ({schema})")
        names = [column.split()[0] for column in schema.split(",")]
        known = {row[1]: row for row in self.db.execute(f"PRAGMA table_info({table})")}
        for name in [name for name in names if name not in known]:
            self.db.execute(f"ALTER TABLE {table} ADD COLUMN {name}")
        row = dict.fromkeys((name for name, about in known.items() if about[3] and about[4] is None), 0)
        row |= dict(zip(names, values, strict=True))
        if "id" in known and known["id"][5]:
            row["id"] = self.db.execute(f"SELECT max(id) + 1 FROM {table}").fetchone()[0]
        columns = ",".join(_quoted_name(name) for name in row)
        self.db.execute(f"INSERT INTO {table} ({columns}) VALUES ({','.join('?' * len(row))})", [*row.values()])

    def written(self) -> bytes:
        for text in self.gone:
            self.insert("gone", "x TEXT", text)
        self.db.execute("DROP TABLE IF EXISTS gone")
        self.db.commit()
        with closing(self.db):
            return self.db.serialize()


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _deleted(base: Database, text: str, rng: Random) -> None:
    base.gone.append(_said(text, rng) + " " * 3000)


def _in_schema(base: Database, text: str, rng: Random) -> None:
    number = rng.randint(0, 10**9)
    base.db.execute(
        f"CREATE TABLE CUPTI_ACTIVITY_KIND_X{number} (a INTEGER /* {text} */, b TEXT DEFAULT '{_quoted(text)}')"
    )


def _quoted_name(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


_NVTX = "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, jsonText TEXT"
EXPORT: dict[str, Place] = {
    "string nobody refers to": lambda b, s, r: b.string(_said(s, r)),
    "environment": lambda b, s, r: b.string(f"LANG=C TERM=x {s} PATH=/bin SHLVL=1 A=b"),
    "range": lambda b, s, r: b.insert("NVTX_EVENTS", _NVTX, 1, 9, 59, _said(s, r), None, None),
    "range's string": lambda b, s, r: b.insert("NVTX_EVENTS", _NVTX, 1, 9, 59, None, b.string(_said(s, r)), None),
    "range's payload": lambda b, s, r: b.insert(
        "NVTX_EVENTS",
        _NVTX,
        1,
        9,
        34,
        None,
        None,
        json.dumps({"note": s, "Stack": [{"File": s, "Line": 1, "Function": "f"}]}),
    ),
    "unknown table": lambda b, s, r: b.insert("MY_TABLE", "id INTEGER, note VARCHAR(200)", 1, _said(s, r)),
    "bytes": lambda b, s, r: b.insert(
        "NVTX_EVENTS", "start INTEGER, eventType INTEGER, binaryData BLOB", 1, 59, s.encode()
    ),
    "text in a column of numbers": lambda b, s, r: b.insert(
        "OSRT_API", "start INTEGER, end INTEGER, returnValue INTEGER", 1, 2, s
    ),
    "unknown column": lambda b, s, r: b.insert(
        "OSRT_API", "start INTEGER, end INTEGER, remark JSON", 1, 2, json.dumps({"a": s})
    ),
    "large text": lambda b, s, r: b.insert("NOTES", "body CLOB", _said(s, r) * 30),
    "generic events": lambda b, s, r: b.insert(
        "GENERIC_EVENTS", "rawTimestamp INTEGER, data JSON", 1, json.dumps({"v": s})
    ),
    "capture's settings": lambda b, s, r: b.insert(
        "META_DATA_CAPTURE", "name TEXT, value TEXT", f"PROCESS_0:ARGUMENT_{r.randint(0, 99)}", s
    ),
    "a kept setting": lambda b, s, r: b.insert("META_DATA_CAPTURE", "name TEXT, value TEXT", "COLLECT_NVTX", s),
    "system": lambda b, s, r: b.insert("TARGET_INFO_SYSTEM_ENV", "name TEXT, value TEXT", "Hostname", s),
    "GPU": lambda b, s, r: b.insert(
        "TARGET_INFO_GPU", "id INTEGER, name TEXT, uuid TEXT, busLocation TEXT", 7, f"NVIDIA H200 {s}", s, s
    ),
    "what it printed": lambda b, s, r: b.insert(
        "ProcessStreams", "globalPid INTEGER, contentId INTEGER", 1, b.string(_said(s, r))
    ),
    "thread's name": lambda b, s, r: b.insert(
        "ThreadNames", "nameId INTEGER, priority INTEGER, globalTid INTEGER", b.string(s), 0, 1
    ),
    "sampled module": lambda b, s, r: b.insert(
        "SAMPLING_CALLCHAINS",
        "id INTEGER, symbol INTEGER, module INTEGER, stackDepth INTEGER",
        1,
        b.string(s),
        b.string(s),
        0,
    ),
    "message of nsys": lambda b, s, r: b.insert(
        "DIAGNOSTIC_EVENT", "timestamp INTEGER, severity INTEGER, text TEXT", 1, 3, _said(s, r)
    ),
    "label of a number": lambda b, s, r: b.insert("ENUM_CUDA_MEM_KIND", "id INTEGER, name TEXT, label TEXT", 99, s, s),
    "free page": _deleted,
    "schema": _in_schema,
    "name of a column": lambda b, s, r: b.db.execute(f"ALTER TABLE NVTX_EVENTS ADD COLUMN {_quoted_name(s)} TEXT"),
    "name of a table": lambda b, s, r: b.db.execute(f"CREATE TABLE {_quoted_name(s)} (a)"),
    "view": lambda b, s, r: b.db.execute(f"CREATE VIEW v{r.randint(0, 10**9)} AS SELECT '{_quoted(s)}' AS a"),
}


class Report:
    """An Nsight Compute report, written field by field."""

    name, file = "ncu report", "report.ncu-rep"

    def __init__(self) -> None:
        self.session, self.kernel, self.strings, self.headers = b"", b"", ["x", "y"], b""
        self.sources: list[bytes] = []

    def written(self) -> bytes:
        extra = made.kernel("gemm", [made.metric(0, 1.0), made.metric(1, 7)], self.kernel)
        payloads = [made.message(4, source) for source in self.sources]
        payload = b"".join(struct.pack("<I", len(one)) + one for one in [*payloads, extra])
        header = (
            made.number(1, len(payloads))
            + made.number(2, 1)
            + made.message(3, made.session("ncu a.out") + self.session)
        )
        strings = b"".join(made.message(1, one) for one in self.strings)
        header += made.message(4, strings) + made.number(5, len(payload)) + self.headers
        return b"NVR\0" + struct.pack("<I", 2) + made.number(1, 7) + struct.pack("<I", len(header)) + header + payload


def _add(field: str, build: Callable[[str, Random], bytes]) -> Place:
    def place(report: Report, text: str, rng: Random) -> None:
        setattr(report, field, getattr(report, field) + build(text, rng))

    return place


REPORT: dict[str, Place] = {
    "command line": _add("session", lambda s, r: made.message(11, f"python train.py {s}")),
    "host": _add("session", lambda s, r: made.message(4, made.message(5, s))),
    "system": _add("session", lambda s, r: made.message(3, made.message(3, made.message(2, _said(s, r))))),
    "unknown field of the session": _add("session", lambda s, r: made.message(27, made.message(2, s))),
    "version": _add("session", lambda s, r: made.message(8, made.message(1, "Note") + made.message(2, s))),
    "device's name": _add("session", lambda s, r: made.message(6, made.number(1, 1) + made.message(2, s))),
    "device's attribute": _add(
        "session",
        lambda s, r: made.message(6, made.message(3, made.message(1, "device__attribute_a") + made.value_message(s))),
    ),
    "process": _add(
        "headers", lambda s, r: made.message(6, made.number(1, 7) + made.message(2, s) + made.message(3, s))
    ),
    "unknown field of a block": _add("headers", lambda s, r: made.message(31, s)),
    "strings": lambda t, s, r: t.strings.append(s),
    "range": _add(
        "kernel", lambda s, r: made.message(21, made.message(2, made.message(2, made.message(3, made.message(1, s)))))
    ),
    "rule": _add("kernel", lambda s, r: made.rule("Rule", _said(s, r), 2)),
    "metric's text": _add("kernel", lambda s, r: made.metric(1, s)),
    "metric's instance": _add(
        "kernel",
        lambda s, r: made.message(
            13, made.number(1, 1) + made.message(3, made.message(1, made.message(1, s)) + made.value_message(1.0))
        ),
    ),
    "unknown field of a kernel": _add("kernel", lambda s, r: made.message(90, made.message(1, s) + made.number(2, 3))),
    "binary": lambda t, s, r: t.sources.append(b"\x7fELF" + bytes(range(200, 256)) + s.encode() + b"\0\xff\xfe"),
    "kernel's source": _add("kernel", lambda s, r: made.message(9, made.message(1, s + "\nint main() {}\n"))),
}


class Text:
    """Lines."""

    def __init__(self, lines: list[str], file: str) -> None:
        self.lines, self.file = lines, file

    def written(self) -> bytes:
        return ("\n".join(self.lines) + "\n").encode()


class Page(Text):
    """A page of Nsight Compute as CSV, with its preamble."""

    name, file = "ncu page", "page.csv"

    def __init__(self) -> None:
        super().__init__(_seed("ncu_csv", 1).decode().splitlines(), "page.csv")
        self.lines.insert(0, "==PROF== Connected to process 12")

    def cell(self, column: str, text: str) -> None:
        heads = [head.strip('"') for head in self.lines[1].split('","')]
        cells = self.lines[3].strip('"').split('","')
        if column not in heads:
            self.lines[1] += f',"{column}"'
            self.lines[2:] = [line + ',""' for line in self.lines[2:]]
            return self.cell(column, text)
        cells += [""] * (len(heads) - len(cells))
        cells[heads.index(column)] = text.replace('"', '""')
        self.lines.append('"' + '","'.join(cells) + '"')
        return None


PAGE: dict[str, Place] = {
    "line before the page": lambda p, s, r: p.lines.insert(0, _said(s, r)),
    "line of ncu": lambda p, s, r: p.lines.insert(0, f'==PROF== Profiling "{s}" - 0: 0%....100% - 8 passes'),
    "line after the page": lambda p, s, r: p.lines.append(_said(s, r)),
    "host": lambda p, s, r: p.cell("Host Name", s),
    "process": lambda p, s, r: p.cell("Process Name", s),
    "rule": lambda p, s, r: p.cell("Rule Description", _said(s, r)),
    "unknown column": lambda p, s, r: p.cell("Remark", s),
    "range": lambda p, s, r: p.cell(
        "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg", f'"{s}:none"'
    ),
}


class Details(Text):
    """A page of Nsight Compute as text."""

    name, file = "ncu text", "details.txt"

    def __init__(self) -> None:
        super().__init__(
            [
                "[12] python3.12@127.0.0.1",
                "  void ns::gemm<int>(float *) (1024, 2, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 9.0",
                "    Section: GPU Speed Of Light Throughput",
                "    DRAM Frequency      Ghz     3.20",
                "    OPT   Memory is more heavily utilized than Compute.",
            ],
            "details.txt",
        )


DETAILS: dict[str, Place] = {
    "head": lambda p, s, r: p.lines.insert(0, f"[12] python3.12@{s}"),
    "line": lambda p, s, r: p.lines.append(f"    {_said(s, r)}"),
    "cell": lambda p, s, r: p.lines.append(f"    Process Name      {s}"),
    "in quotes": lambda p, s, r: p.lines.append(f'    WRN   The range "{s}" was not found.'),
}


class Log(Text):
    """A structured log of torch.compile."""

    name, file = "compile log", "compile.log"

    def __init__(self) -> None:
        text = next(seed for seed in seeds.torch_logs() if b'"dynamo_start"' in seed).decode()
        super().__init__(text.splitlines()[:120], "compile.log")
        self.prefix = self.lines[0].split("] ")[0] + "] "


def _envelope(build: Callable[[str], Any]) -> Place:
    def place(log: Log, text: str, rng: Random) -> None:
        log.lines.append(log.prefix + json.dumps(build(text)))

    return place


LOG: dict[str, Place] = {
    "file's name": _envelope(lambda s: {"str": [s, 999]}),
    "unknown record": _envelope(lambda s: {"my_record": {"note": s}}),
    "unknown key": _envelope(lambda s: {"artifact": {"name": "x", "encoding": "string"}, "who": s}),
    "function": _envelope(
        lambda s: {"dynamo_start": {"stack": [{"line": 1, "name": s, "filename": 2, "loc": s}]}, "frame_id": 9}
    ),
    "metrics": _envelope(
        lambda s: {"compilation_metrics": {"co_filename": s, "fail_reason": s, "config": {"a": s}}, "frame_id": 9}
    ),
    "key": _envelope(lambda s: {"artifact": {"name": "x"}, s: 1}),
    "message": lambda p, s, r: p.lines.append(p.prefix + f"[0/0] [__graph_breaks] {_said(s, r)}"),
    "payload": lambda p, s, r: p.lines.append("\t" + _said(s, r)),
    "foreign line": lambda p, s, r: p.lines.append(_said(s, r)),
    "frame": lambda p, s, r: p.lines.append(f'\t  File "{s}", line 12, in forward'),
}


class Snapshot:
    """A memory snapshot of PyTorch."""

    name, file = "memory snapshot", "snapshot.pickle"

    def __init__(self) -> None:
        self.value: dict[str, Any] = pickle.loads(_seed("torch_snapshot"))  # our own
        self.number = 0

    def written(self) -> bytes:
        return pickle.dumps(self.value, protocol=4)

    def event(self, **fields: Any) -> None:
        base = {"action": "alloc", "addr": 1, "size": 2, "stream": 0, "time_us": 5, "frames": []}
        self.value["device_traces"][0].append(base | fields)


def _key_of(snapshot: Snapshot, text: str, rng: Random) -> None:
    snapshot.value[text] = 1


SNAPSHOT: dict[str, Place] = {
    "frame's file": lambda p, s, r: p.event(frames=[{"name": "forward", "filename": s, "line": 3}]),
    "frame's name": lambda p, s, r: p.event(frames=[{"name": s, "filename": "a.py", "line": 3}]),
    "annotation": lambda p, s, r: p.value["external_annotations"].append(
        {"stage": "START", "name": _said(s, r), "device": 0, "time_us": 9}
    ),
    "unknown top key": lambda p, s, r: p.value.setdefault("env", {}).update({f"V{r.random()}": s}),
    "key": _key_of,
    "settings": lambda p, s, r: p.value["allocator_settings"].update(
        {"PYTORCH_CUDA_ALLOC_CONF": f"{p.value['allocator_settings']['PYTORCH_CUDA_ALLOC_CONF']} {s}"}
    ),
    "user's data": lambda p, s, r: p.event(user_metadata=_said(s, r)),
    "compile context": lambda p, s, r: p.event(compile_context=s),
    "unknown key of an event": lambda p, s, r: p.event(remark=s.encode()),
    "segment": lambda p, s, r: p.value["segments"][0].update({f"owner{r.random()}": [s]}),
    "block's state": lambda p, s, r: p.value["segments"][0]["blocks"].append(
        {"address": 1, "size": 1, "state": s, "frames": []}
    ),
}


class Document:
    """A plain JSON document, as of a job."""

    name, file = "JSON", "job.json"

    def __init__(self) -> None:
        self.value: dict[str, Any] = {"steps": [1, 2], "args": {}}

    def written(self) -> bytes:
        return json.dumps(self.value).encode()


DOCUMENT: dict[str, Place] = {
    **{
        key: lambda p, s, r, key=key: p.value["args"].setdefault(key, []).append(s)  # type: ignore[misc]
        for key in ("cmd", "password", "user", "name", "n", "notes", "api_key", "metadata")
    },
    "key of a document": lambda p, s, r: p.value.update({s: 1}),
    "sentence": lambda p, s, r: p.value.setdefault("message", []).append(_said(s, r)),
    "number": lambda p, s, r: p.value.setdefault("job", []).append(int(s) if s.isdecimal() else s),
}


class Settings:
    """A job's file in YAML."""

    name, file = "YAML", "job.yaml"

    def __init__(self) -> None:
        self.lines = ["steps: 3", "env:"]

    def written(self) -> bytes:
        return "\n".join(self.lines).encode()


SETTINGS: dict[str, Place] = {
    "value": lambda p, s, r: p.lines.append(f"  name: {s}"),
    "quoted": lambda p, s, r: p.lines.append(f'  note{r.randint(0, 9)}: "{s}"'),
    "item": lambda p, s, r: p.lines.append(f"  - {s}"),
    "comment": lambda p, s, r: p.lines.append(f"# {_said(s, r)}"),
    "private block": lambda p, s, r: p.lines.extend(["password: |", f"  {s}"]),
    "command": lambda p, s, r: p.lines.append(f"command: [python, train.py, {s}]"),
    "TOML": lambda p, s, r: p.lines.append(f"host = '{s}'"),
}


class WebPage:
    """A report for a browser."""

    name, file = "HTML", "report.html"

    def __init__(self) -> None:
        self.parts, self.data = list[str](), dict[str, Any](names=[])

    def written(self) -> bytes:
        island = json.dumps(self.data).replace("<", "\\u003c")
        body = "".join(self.parts)
        script = f'<script type="application/json">{island}</script>'
        return f'<!doctype html><html lang="en"><body>{body}{script}</body></html>'.encode()


HTML: dict[str, Place] = {
    "text": lambda p, s, r: p.parts.append(f"<p>{html.escape(_said(s, r))}</p>"),
    "title": lambda p, s, r: p.parts.append(f'<rect title="{html.escape(s)}"></rect>'),
    "unknown attribute": lambda p, s, r: p.parts.append(f'<b onclick="{html.escape(s)}">x</b>'),
    "comment of a page": lambda p, s, r: p.parts.append(f"<!-- {html.escape(s)} -->"),
    "script": lambda p, s, r: p.parts.append(f"<script>var x = {json.dumps(s)}</script>"),
    "island": lambda p, s, r: p.data["names"].append(s),
    "island's key": lambda p, s, r: p.data.update({s: 1}),
}

FORMATS: dict[type, dict[str, Place]] = {
    Trace: TRACE, Database: EXPORT, Report: REPORT, Page: PAGE, Details: DETAILS, Log: LOG, Snapshot: SNAPSHOT,
    Document: DOCUMENT, Settings: SETTINGS, WebPage: HTML,
}  # fmt: skip
