# ruff: noqa: E501 (a table with a kind or a place a line)
"""Plant secrets that look like what is kept, in places that neither other list has, redact, and count what survives.

    python -m benchmarks.redaction.disguised [--set-aside] [--one-in N] [--show]

Written and split by a digest before the cleaner was tried on any: half of the pairs are set aside, and nobody looks at
them. A project's name stands as an operator, a kernel, a module, a metric or a version would.
"""

from __future__ import annotations

import hashlib
import html
import json
from random import Random

from benchmarks.redaction.places import Database, Document, Log, Page, Place, Settings, Snapshot, Trace, WebPage
from benchmarks.redaction.unseen import _Lines, _Toml, _Trace, planted
from benchmarks.redaction.unseen_values import _foreign, _form, _spelled
from benchmarks.redaction.values import Maker

KINDS: dict[str, Maker] = {
    "as an operator": _form("[{w4}]::[{w3}]"), "as a kernel": _form("[{w4}]_fwd_kernel"), "as a template": _form("void [{w3}]::[{w4}]_kernel<float, 4>(int)"),
    "as a fused kernel": _form("triton_poi_fused_[{w4}]_add_0"), "as a model": _form("[{C3}]ForCausalLM"), "as a module": _form("nn.Module: [{C4}]_0"),
    "as a type": _form("[{w3}]16"), "as a call": _form("cuda[{C4}]"), "as a collective": _form("nccl:[{w4}]_reduce"),
    "as a metric": _form("sm__[{w4}]_cycles.avg"), "as a variable": _form("NCCL_[{W3}]_URL"), "as a version": _form("2.13.0a0+[{w4}]"),
    "as a build": _form("1.4.2+git[{h8}]"), "as a GPU": _form("NVIDIA [{W2}] [{C3}]"), "as a flag": _form("--[{w3}]-[{w3}]"),
    "as a frame": _form("[{w4}].py(12): [{w3}]"), "as a library": _form("lib[{w4}].so.2"), "as a dunder": _form("__[{w4}]__"),
    "grouped digits": _form("[{d3}_{d3}_{d4}]"), "digits with an exponent": _form("[4.{d12}]e12"), "hex literal": _form("0x[{h12}]"), "octal address": _form("[012.0{d2}.1{d2}.01]"),
    "mapped address": _form("::ffff:[10.{d2}.1{d2}.2{d1}]"), "GPU's id": _form("GPU-[{h8}-{h4}-4{h3}-a{h3}-{h12}]"), "reversed domain": _form("com.[{w3}].[{w4}]"),
    "remote": _form("git@[{w3}].com:[{w4}]/[{w3}].git"), "address with a password": _form("mongodb+srv://[{w3}]:[{a12}]@[{w4}].net"), "share": _form("\\\\[{w3}]\\[{w4}]\\x"),
    "file's address": _form("file:///[{w3}]/[{w4}]"), "home": _form("~[{w4}]/run"), "groups of letters": _form("[{A4}-{A4}-{A4}]"),
    "percent and u": _spelled("%u{:04x}"), "braces": _spelled("\\u{{{:x}}}"), "quoted-printable": _spelled("={:02X}"), "wide letters": _foreign("ａｂｃｄｅｆｇｈｉｊｋｌ", 7), "Greek letters": _foreign("αβγδεζηθικλμ", 8),
    "soft hyphens": _form("[{w2}\u00ad{w2}\u00ad{w2}]"), "between zero widths": _form("[{w3}\u200b{w3}]"), "tag of a run": _form("run-20250113_1{d5}-[{a8}]"), "hash of a layer": _form("sha256:[{h64}]"),
}  # fmt: skip


def _as(**fields: object) -> Place:
    """An event whose texts hold the secret where they say @."""

    def place(trace: Trace, text: str, rng: Random) -> None:
        def put(value: object) -> object:
            if isinstance(value, dict):
                return {put(key): put(inner) for key, inner in value.items()}
            return (
                [put(one) for one in value]
                if isinstance(value, list)
                else value.replace("@", text)
                if isinstance(value, str)
                else value
            )

        trace.event(**{key: put(value) for key, value in fields.items()})

    return place


def _top(key: str, form: object) -> Place:
    """A member beside the events."""

    def place(trace: Trace, text: str, rng: Random) -> None:
        trace.value[key.replace("@", text)] = json.loads(json.dumps(form).replace("@", json.dumps(text)[1:-1]))

    return place


def _runs(*statements: str) -> Place:
    """Statements over the export; @ is the secret as a text, # the secret as a name, % a number."""

    def place(base: Database, text: str, rng: Random) -> None:
        as_text, as_name = text.replace("'", "''"), text.replace('"', '""')
        for statement in statements:
            base.db.execute(
                statement.replace("%", str(rng.randint(0, 10**9))).replace("@", as_text).replace("#", as_name)
            )

    return place


def _lines(*forms: str) -> Place:
    return lambda p, s, r: p.lines.extend(form.replace("@", s) for form in forms)


def _part(form: str) -> Place:
    return lambda p, s, r: p.parts.append(form.replace("@", html.escape(s)))


_TRACES: dict[str, Place] = {
    "counter's series": _as(ph="C", name="GPU memory", args={"@": 3}), "counter's name": _as(ph="C", name="@", args={"bytes": 3}), "instant": _as(ph="i", s="g", cat="cpu_instant_event", name="[memory] @"),
    "asynchronous id": _as(ph="b", cat="cpu_op", id="@", name="aten::mm"), "local id": _as(ph="n", cat="cpu_op", id2={"local": "@"}, name="aten::mm"), "flow": _as(ph="s", cat="ac2g", id=7, bp="e", name="@"),
    "sort label": _as(ph="M", name="process_sort_index", args={"sort_index": "@"}), "list of lists": _as(cat="cpu_op", name="aten::mm", args={"Input Dims": [[4, "@"], []]}), "key of an argument": _as(cat="cpu_op", name="aten::mm", args={"@": 1}),
    "object in an argument": _as(cat="cpu_op", name="aten::mm", args={"Concrete Inputs": {"@": {"x": "@"}}}), "type of a list": _as(cat="cpu_op", name="aten::mm", args={"Input type": ["float", "@"]}), "ranks of a group": _as(cat="kernel", name="ncclDevKernel_AllReduce", args={"Process Group Ranks": "[0, @]"}),
    "stream's name": _as(cat="kernel", name="gemm", args={"stream": "stream 7 @"}), "time as a text": _as(cat="cpu_op", name="aten::mm", args={"ts": "@"}), "file of a kernel": _as(cat="kernel", name="gemm", args={"kernel_file": "/tmp/torchinductor_@/x.py"}),
    "frames beside": _top("stackFrames", {"1": {"category": "@", "name": "@"}}), "samples beside": _top("samples", [{"cpu": 0, "name": "@", "sf": 1}]), "other data": _top("otherData", {"version": {"tool": ["@"]}}),
    "trace of the system": _top("systemTraceEvents", "# tracer: nop\n@-12 [000] 1.0: sched"), "member of that name": _top("@", 3), "group's members": _top("distributedInfo", {"pg_config": [{"pg_name": "@", "ranks": ["@"]}]}), "device's key": _top("deviceProperties", [{"id": 0, "name": "NVIDIA H100", "@": 1}]),
}  # fmt: skip
_EXPORTS: dict[str, Place] = {
    "name of a table": _runs('CREATE TABLE "#" (a INTEGER)', 'INSERT INTO "#" VALUES (1)'), "name of a column": _runs('CREATE TABLE EXTRA% ("#" INTEGER)'), "view": _runs("CREATE VIEW v% AS SELECT '@' AS x"), "column of a view": _runs('CREATE VIEW w% AS SELECT 1 AS "#"'),
    "index": _runs('CREATE TABLE IX% (a INTEGER, b TEXT)', 'CREATE INDEX "#" ON StringIds (id)'), "trigger": _runs("CREATE TRIGGER t% AFTER INSERT ON StringIds BEGIN SELECT '@'; END"), "check": _runs("CREATE TABLE CK% (a TEXT CHECK (a <> '@'))"), "generated": _runs("CREATE TABLE GN% (a INTEGER, b TEXT AS ('@' || a))", ),
    "wide bytes": lambda b, s, r: b.insert("NVTX_EVENTS", "start INTEGER, eventType INTEGER, binaryData BLOB", 1, 59, s.encode("utf-16-le")), "bytes for a number": lambda b, s, r: b.insert("OSRT_API", "start INTEGER, end INTEGER, returnValue INTEGER", 1, 2, s.encode()),
    "domain": lambda b, s, r: b.insert("NVTX_EVENTS", "start INTEGER, end INTEGER, eventType INTEGER, domainId INTEGER, text TEXT", 1, 9, 75, 3, s), "category of ranges": lambda b, s, r: b.insert("NVTX_EVENTS", "start INTEGER, eventType INTEGER, category INTEGER, text TEXT", 1, 33, 4, s),
    "colour": lambda b, s, r: b.insert("NVTX_EVENTS", "start INTEGER, end INTEGER, eventType INTEGER, color TEXT", 1, 9, 59, s), "sequence": _runs("CREATE TABLE SQ% (id INTEGER PRIMARY KEY AUTOINCREMENT, b TEXT)", "INSERT INTO sqlite_sequence VALUES ('@', 3)"),
}  # fmt: skip
_LOGS = {"coloured": "\x1b[31m@\x1b[0m", "tabs": "a\t@\tb", "colon": "@: 3", "brackets": "[@] done", "backticks": "use `@` here", "undefined": "NameError: name '@' is not defined", "assigned": "buf0 = @",
         "defined": "def @(self, x):", "nodes": "# Source Nodes: [@], Original ATen: [aten.add]", "guard": "| +- TENSOR_MATCH: check_tensor(L['@'], Tensor)", "size": "L['x'].size()[0] == @", "arrow": "@ -> x", "percent": "@%", "unit": "@ ms"}  # fmt: skip
_YAML = {
    "anchor": ("x: &@ 3",),
    "tag": ("x: !@ 3",),
    "block": ("note: |", "  a", "  @ b"),
    "folded": ("note: >-", "  @"),
    "merged": ("<<: *@",),
    "document": ("--- @",),
    "question": ("? @", ": 3"),
}
_TOML = {
    "dotted": "a.'@' = 1",
    "inline": "a = { b = '@' }",
    "arrays of tables": "[['@']]",
    "multi-line": "a = '''\n@\n'''",
    "comment": "# @",
}
_PAGES = {"comment": "<!-- @ -->", "template": "<template>@</template>", "noscript": "<noscript>@</noscript>", "frame": '<iframe srcdoc="@"></iframe>', "picture": '<img srcset="@ 2x">', "name of an attribute": "<b data-@>x</b>",
          "element": "<x-@>x</x-@>", "math": "<math><mi>@</mi></math>", "vector text": "<svg><text><tspan>@</tspan></text></svg>", "described": "<svg><desc>@</desc></svg>", "anchor": "<a name=@>x</a>", "meta": '<meta content="@">', "script's text": "<script>// @</script>"}  # fmt: skip
_CELLS = {
    "head": "ID",
    "second head": "Device",
    "unit": "Metric Unit",
    "device": "Device",
    "CC": "CC",
    "grid": "Grid Size",
    "thread": "Thread ID",
    "estimate": "Estimated Speedup",
    "kind of a rule": "Rule Type",
}


def _head(page: Page, text: str, rng: Random) -> None:
    page.cell(text.replace('"', "'"), "1")


PLACES: dict[type, dict[str, Place]] = {
    _Trace: _TRACES, Database: _EXPORTS,
    Page: {**{f"cell {name}": lambda p, s, r, name=name: p.cell(name, s) for name in dict.fromkeys(_CELLS.values())}, "name of a column": _head},  # type: ignore[misc]
    Log: {name: lambda p, s, r, form=form: p.lines.append(p.prefix + form.replace("@", s)) for name, form in _LOGS.items()},  # type: ignore[misc]
    _Lines: {name: _lines(form) for name, form in _LOGS.items()},
    Settings: {name: _lines(*forms) for name, forms in _YAML.items()}, _Toml: {name: _lines(form) for name, form in _TOML.items()},
    WebPage: {name: _part(form) for name, form in _PAGES.items()},
    Document: {
        "deep": lambda p, s, r: p.value.update(a=[[{"b": [s]}]]), "deep key": lambda p, s, r: p.value.update(a=[{s: None}]), "list of numbers": lambda p, s, r: p.value.update(steps=[1, 2, s]), "time": lambda p, s, r: p.value.update(step_ms=s),
        "file": lambda p, s, r: p.value.update(files=[{"file": s}]), "setting": lambda p, s, r: p.value.update(settings={"threads": s, s: "1"}), "fact": lambda p, s, r: p.value.update(facts={"resolution": s}), "software": lambda p, s, r: p.value.update(software={"torch": s, s: "2.1"}),
    },
    Snapshot: {"event's action": lambda p, s, r: p.event(action=s), "stream's": lambda p, s, r: p.event(stream=s), "time": lambda p, s, r: p.event(time_us=s)},
}  # fmt: skip


def is_set_aside(place: str, kind: str) -> bool:
    """Whether nobody looks at the pair."""
    return hashlib.sha256(f"disguised/{place}/{kind}".encode()).digest()[0] % 2 == 0


if __name__ == "__main__":
    raise SystemExit(planted(str(__doc__), PLACES, KINDS, is_set_aside))
