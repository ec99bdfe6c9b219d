# ruff: noqa: E501, SIM905 (a table with a kind or a place a line)
"""Plant sixty kinds of secrets in 250 places, redact, and count what can be found again and which files are refused.

    python -m benchmarks.redaction.unseen [--set-aside] [--places N] [--show]

Nine of ten pairs of a kind and a place are set aside by a digest: nobody looks at them. A file holds one secret in one
place, so a refusal is counted where it belongs.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.redaction.places import (
    REPORT,
    SNAPSHOT,
    Database,
    Details,
    Document,
    Log,
    Page,
    Place,
    Report,
    Settings,
    Snapshot,
    Text,
    Trace,
    WebPage,
)
from benchmarks.redaction.unseen_values import KINDS
from benchmarks.redaction.values import Maker

from timesink.capture.errors import CaptureError
from timesink.capture.redaction import redact

_SET_ASIDE = 9  # of ten
_SAID = ("loading from {}", "step 3 of {}", "{}: forward", "{}", "aten::add {}")

_CATEGORIES = tuple(
    """cpu_op user_annotation gpu_user_annotation kernel gpu_memcpy gpu_memset cuda_runtime cuda_driver
python_function cpu_instant_event Trace ac2g fwdbwd overhead cuda_sync hip_runtime mtia_runtime xpu_runtime Operator
Runtime Memset unheard_of""".split()
)
_ARGUMENTS = (
    "Addr|Call stack|Collective name|Comms Id|Concrete Inputs|Device Type|Input Dims|Input type"
    "|Input Strides|Module Hierarchy|Output type|Process Group Description|Process Group Name"
    "|Process Group Ranks|In split size|dtype|kernel|kernel_backend|kernel_file|kernel_hash|kernel_kwargs"
    "|kernel_name|kind|labels|name|scope|src|dst|cuda_sync_kind|Python id|External id|correlation|grid"
    "|block|stream|Trace name|cbid|cmd line|hostname|notes"
).split("|")
_MEMBERS = ("ph", "cat", "pid", "tid", "id", "bp", "s", "ts", "dur", "sf", "cname", "stack")
_TOP = [
    "schemaVersion",
    "displayTimeUnit",
    "traceName",
    "distributedInfo",
    "deviceProperties",
    "with_stack",
    "computeProperties",
    "baseTimeNanoseconds",
    "host_name",
    "jobInfo",
    "cuda_driver_version",
    "record_shapes",
]
_TEXT_COLUMNS = {
    "NVTX_EVENTS": ("text", "jsonText"), "TARGET_INFO_GPU": ("name",), "DIAGNOSTIC_EVENT": ("text",),
    "NVTX_PAYLOAD_SCHEMAS": ("name",), "TARGET_INFO_GPU_METRICS": ("metricName",), "ENUM_CUDA_MEM_KIND": ("name", "label"),
    "ENUM_SAMPLING_THREAD_STATE": ("name", "label"), "PROCESSES": ("name",),
}  # fmt: skip
_REFERRING = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("demangledName", "shortName", "mangledName"), "NVTX_EVENTS": ("textId", "jsonTextId"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("nameId",), "OSRT_API": ("nameId",), "CUBLAS_EVENTS": ("nameId",), "CUDNN_EVENTS": ("nameId",),
    "PROFILER_OVERHEAD": ("nameId",), "MPI_P2P_EVENTS": ("textId",), "MPI_COLLECTIVES_EVENTS": ("textId",),
    "ThreadNames": ("nameId",), "SAMPLING_CALLCHAINS": ("symbol", "module"), "CUDA_CALLCHAINS": ("symbol", "module"),
}  # fmt: skip
_NUMBER_COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("gridX", "streamId", "registersPerThread"), "CUPTI_ACTIVITY_KIND_MEMCPY": ("bytes", "copyKind"),
    "OSRT_API": ("start", "end"), "MPI_RANKS": ("rank",), "GPU_METRICS": ("value", "metricId"),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs",), "ThreadNames": ("priority",),
}  # fmt: skip
_SETTINGS = ("CAPTURE_EVENT_TYPE", "COLLECT_NVTX", "PROCESS_0:COMMAND_LINE", "HOSTNAME", "EXPORT_PRODUCT_VERSION",
             "EXPORT_SCHEMA_VERSION", "CudaDriverVersion", "Hostname")  # fmt: skip
_COLUMNS = ("Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Section Name", "Metric Name",
            "Metric Unit", "Metric Value", "Rule Name", "Rule Description", "gpu__time_duration.sum", "Note")  # fmt: skip
_KEYS = [
    "name",
    "user",
    "host",
    "cmd",
    "model",
    "dataset",
    "tokenizer",
    "wandb_project",
    "path",
    "seed",
    "notes",
    "version",
    "device",
    "stage",
    "phase",
    "label",
    "title",
    "value",
    "id",
    "job",
    "message",
    "error",
    "reason",
    "metric",
    "kernel",
    "opcode",
]
_TAGS = [
    "p",
    "td",
    "th",
    "h1",
    "li",
    "pre",
    "code",
    "span",
    "b",
    "title",
    "summary",
    "option",
    "text",
    "button",
    "textarea",
    "marquee",
    "caption",
    "label",
    "dd",
    "time",
]
_ATTRIBUTES = [
    "title",
    "class",
    "id",
    "href",
    "d",
    "points",
    "data-value",
    "aria-label",
    "content",
    "style",
    "onclick",
    "alt",
    "transform",
    "fill",
]


def _event(**fields: Any) -> Place:
    def place(trace: Trace, text: str, rng: Random) -> None:
        def put(value: Any) -> Any:
            return (
                {key: put(inner) for key, inner in value.items()} if isinstance(value, dict) else _of(value, text, rng)
            )

        trace.event(**{key: put(value) for key, value in fields.items()})

    return place


def _of(form: Any, text: str, rng: Random) -> Any:
    if form == "?":
        return rng.choice(_SAID).format(text)
    return form.replace("@", text) if isinstance(form, str) else form


def _row(table: str, column: str, refers: bool) -> Place:
    def place(base: Database, text: str, rng: Random) -> None:
        value: Any = base.string(_of("?", text, rng)) if refers else _of("?", text, rng)
        base.insert(table, f"{column} TEXT", json.dumps({"Name": value}) if column == "jsonText" else value)

    return place


def _traces() -> dict[str, Place]:
    made: dict[str, Place] = {}
    made |= {f"name of {cat}": _event(cat=cat, name="?") for cat in _CATEGORIES}
    made |= {f"argument {key}": _event(cat="cpu_op", name="aten::mm", args={key: "@"}) for key in _ARGUMENTS}
    made |= {
        f"argument {key} of a kernel": _event(cat="kernel", name="gemm", args={key: "@"}) for key in _ARGUMENTS[::4]
    }
    made |= {f"member {key}": _event(**{"cat": "cpu_op", "name": "aten::mm", key: "@"}) for key in _MEMBERS}
    made |= {f"top {key}": lambda t, s, r, key=key: t.value.__setitem__(key, s) for key in _TOP}  # type: ignore[misc]
    made |= {
        f"{key} inside": lambda t, s, r, key=key: t.value.__setitem__(key, [{"name": s, s: 1}])
        for key in _TOP[3:7]  # type: ignore[misc]
    }
    for name in ("process_name", "thread_name", "process_labels", "thread_sort_index"):
        made[name] = _event(ph="M", name=name, args={"name": "@", "labels": "@", "sort_index": "@"})
    frames = {"frame": "@(12): forward", "function": "train.py(12): @", "module": "nn.Module: @_0", "step": "ProfilerStep#@",
              "optimizer": "Optimizer.step#@.step", "loader": "enumerate(DataLoader)#@.__next__", "region": "Torch-Compiled Region: @",
              "backward": "autograd::engine::evaluate_function: @", "operator": "aten::@", "library": "torch/nn/@/linear.py(3): x",
              "call": "cudaLaunch@", "template": "void at::native::f<@>(int)", "triton": "triton_poi_fused_@_0",
              "mangled": "_ZN2at6native8@EPv", "copy": "Memcpy HtoD (@)", "collective": "nccl:@"}  # fmt: skip
    return made | {f"{name}'s part": _event(cat=cat, name=form) for name, form in frames.items()
                   for cat in (["kernel"] if name in ("template", "triton", "mangled") else ["cpu_op", "python_function"])}  # fmt: skip


def _exports() -> dict[str, Place]:
    made: dict[str, Place] = {}
    for columns, refers in ((_TEXT_COLUMNS, False), (_REFERRING, True), (_NUMBER_COLUMNS, False)):
        made |= {f"{table}.{name}": _row(table, name, refers) for table, names in columns.items() for name in names}
    for table in ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV"):
        for key in _SETTINGS:
            made[f"{table} {key}"] = lambda b, s, r, table=table, key=key: b.insert(
                table, "name TEXT, value TEXT", key, s
            )  # type: ignore[misc]
    return made


def _line(form: str) -> Place:
    return lambda p, s, r: p.lines.append(form.replace("@", s))


def _pages() -> dict[str, Place]:
    made: dict[str, Place] = {
        f"<{tag}>": lambda p, s, r, tag=tag: p.parts.append(f"<{tag}>{html.escape(_of('?', s, r))}</{tag}>")
        for tag in _TAGS
    }  # type: ignore[misc]
    made |= {
        f"attribute {name}": lambda p, s, r, name=name: p.parts.append(f'<path {name}="{html.escape(s)}"></path>')
        for name in _ATTRIBUTES
    }  # type: ignore[misc]
    made["value of the data"] = lambda p, s, r: p.data["names"].append(s)
    made["key of the data"] = lambda p, s, r: p.data.update({s: 1})
    made["style"] = lambda p, s, r: p.parts.append(f"<style>.a{{color:{s}}}</style>")
    return made


class _Trace(Trace):
    """With a few of the events, so that a pair takes milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        timed = [event for event in self.value["traceEvents"] if "ts" in event]
        self.value["traceEvents"] = timed[:20]


class _Lines(Text):
    name, file = "text", "run.log"

    def __init__(self) -> None:
        super().__init__(["loading the model", "step 1: 3.2 ms"], "run.log")


class _Toml(Settings):
    name, file = "TOML", "job.toml"


_TEXT = {"line": "@", "said": "saved to @ now", "list": "nodes: @, gpu", "keyed": "project=@", "frame": '  File "@", line 3',
         "json": '{"note": "@"}', "prompt": "@$ python train.py", "error": "ValueError: @"}  # fmt: skip
_YAML = {"value": "name: @", "quoted": 'note: "@"', "item": "- @", "key": "@: 3", "comment": "# @", "flow": "x: {a: @}"}
PLACES: dict[type, dict[str, Place]] = {
    _Trace: _traces(), Database: _exports(), Report: dict(REPORT), Snapshot: dict(SNAPSHOT),
    Page: {name: lambda p, s, r, name=name: p.cell(name, s) for name in _COLUMNS},  # type: ignore[misc]
    Details: {name: _line(f"    {form}") for name, form in _TEXT.items()},
    Log: {name: lambda p, s, r, form=form: p.lines.append(p.prefix + form.replace("@", s)) for name, form in _TEXT.items()},  # type: ignore[misc]
    _Lines: {name: _line(form) for name, form in _TEXT.items()},
    Document: {key: lambda p, s, r, key=key: p.value.update({key: s}) for key in _KEYS},  # type: ignore[misc]
    Settings: {name: _line(form) for name, form in _YAML.items()},
    _Toml: {name: _line(form) for name, form in {"value": "name = '@'", "table": "[@]", "list": 'a = ["@"]'}.items()},
    WebPage: _pages(),
}  # fmt: skip


def is_set_aside(place: str, kind: str) -> bool:
    """Whether nobody looks at the pair."""
    return hashlib.sha256(f"unseen/{place}/{kind}".encode()).digest()[0] % 10 < _SET_ASIDE


def _found(content: bytes, part: str) -> bool:
    """Whether the part stands there as it is, or in an escaped spelling."""
    text = content.decode("utf-8", "replace")
    unescaped = re.sub(
        r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text.replace("\\\\", "\\").replace("''", "'")
    )
    wanted = part.lower()
    return (
        any(wanted in one.lower() for one in (text, unescaped, html.unescape(text)))
        or part.encode("utf-16-le") in content
    )


def outcome(document: type, place: Callable[..., object], make: Maker, seed: str, folder: Path) -> str:
    """ "gone", "survives", "refused", or "" where the text stands in the file without being planted."""
    rng = Random(seed)
    secret = make(rng)
    full, empty, state = document(), document(), rng.getstate()
    place(full, secret.text, rng)
    rng.setstate(state)
    place(empty, "none", rng)
    without = empty.written()
    if any(_found(without, part) for part in secret.parts):
        return ""
    source = folder / full.file
    source.write_bytes(full.written())
    try:
        copy = redact(source, folder / f"copy-{full.file}").path.read_bytes()
    except CaptureError:
        return "refused"
    return "survives" if any(_found(copy, part) for part in secret.parts) else "gone"


def main() -> int:
    return planted(str(__doc__), PLACES, KINDS, is_set_aside)


def planted(
    doc: str, places: dict[type, dict[str, Place]], kinds: dict[str, Maker], aside: Callable[[str, str], bool]
) -> int:
    """Every kind in every place, as the command line asks; 0 where nothing survives and nothing is refused."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set-aside", action="store_true", help="the pairs set aside, not the others")
    parser.add_argument("--one-in", type=int, default=1, help="every Nth pair")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--show", action="store_true", help="say which survived, of those not set aside")
    options = parser.parse_args()
    pairs = [(document, name, kind) for document, named in places.items() for name in named for kind in kinds]
    chosen = [pair for pair in pairs if aside(pair[1], pair[2]) == options.set_aside]
    chosen = chosen[options.first :: options.one_in]
    ends: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        for document, place, kind in chosen:
            end = outcome(document, places[document][place], kinds[kind], f"{place}/{kind}", Path(name))
            ends.setdefault(document.name, Counter())[end] += 1  # type: ignore[attr-defined]
            if options.show and not options.set_aside and end in ("survives", "refused"):
                print(f"{document.name}, {place}: {kind} {end}")  # type: ignore[attr-defined]
    total = sum(ends.values(), Counter())
    for title, counts in [*ends.items(), (f"all of {sum(map(len, places.values()))} places", total)]:
        print(f"{title:24} {sum(counts.values()):6} planted, {counts['survives']} survive, {counts['refused']} refused")
    return 1 if total["survives"] or total["refused"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
