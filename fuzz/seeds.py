"""Small real inputs of every format, cut from the captures in the repository. All of them are our own.

An input is always bytes: a format that is a folder stands as a tar archive of it.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
_EVENTS, _ROWS = 220, 60


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """The files as an archive, the same bytes every time."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def files_of(archive: bytes) -> dict[str, bytes]:
    """What `tar_of` packed."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {entry.name: opened.extractfile(entry).read() for entry in opened if entry.isfile()}  # type: ignore[union-attr]


def kineto() -> tuple[bytes, ...]:
    """Traces of one GPU with every table the captures have, plain and gzip'd, cut to a few hundred events."""
    plain = [_cut_trace(json.loads(lzma.decompress(path.read_bytes()))) for path in demos()]
    compiled = sorted((DATA / "compile").glob("*rank*.json.xz"))[:4]
    plain += [_cut_trace(json.loads(lzma.decompress(path.read_bytes()))) for path in compiled]
    packed = gzip.compress(plain[0], mtime=0)
    seeds = (path.read_bytes()[1:] for path in sorted((ROOT / "fuzz" / "corpus" / "decode").glob("*.seed")))
    return (*plain, packed, *seeds)


def demos() -> list[Path]:
    """The two captures of `timesink demo`."""
    return sorted((ROOT / "src" / "timesink" / "cli" / "demo").glob("*.json.xz"))


def _cut_trace(trace: dict[str, Any]) -> bytes:
    """The first events of each category, so that a small trace still has kernels, calls, operators and steps."""
    kept: list[Any] = []
    counts: dict[object, int] = {}
    for event in trace["traceEvents"]:
        kind = (event.get("ph"), event.get("cat"))
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= _EVENTS // 8:
            kept.append(event)
    return json.dumps({**trace, "traceEvents": kept}).encode()


def nsys_sqlite() -> tuple[bytes, ...]:
    """The export of five steps, each table cut to its first rows."""
    return (first_rows((DATA / "nsys" / "gpt_before_5_steps.sqlite").read_bytes(), _ROWS),)


def first_rows(export: bytes, rows: int) -> bytes:
    """An export with so many rows of each table, and all its strings."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(export)
        for name in table_names(db):
            if name != "StringIds":
                db.execute(f'DELETE FROM "{name}" WHERE rowid > (SELECT min(rowid) + {rows} FROM "{name}")')
        db.commit()
        db.execute("VACUUM")
        return db.serialize()


def table_names(db: sqlite3.Connection) -> list[str]:
    """The tables of an export."""
    return [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def nsys_arrow() -> tuple[bytes, ...]:
    """The same tables as a Parquet folder and as an Arrow folder."""
    db = sqlite3.connect(":memory:")
    with contextlib.closing(db):
        db.deserialize(nsys_sqlite()[0])
        frames = {name: _frame(db, name) for name in table_names(db)}
    return (_folder(frames, "parquet", pl.DataFrame.write_parquet), _folder(frames, "arrow", pl.DataFrame.write_ipc))


def _frame(db: sqlite3.Connection, name: str) -> pl.DataFrame:
    columns = [row[1] for row in db.execute(f'PRAGMA table_info("{name}")')]
    rows = db.execute(f'SELECT * FROM "{name}"').fetchall()
    return pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)


def _folder(frames: Mapping[str, pl.DataFrame], suffix: str, write: Callable[[pl.DataFrame, Any], object]) -> bytes:
    files = {}
    for name, frame in frames.items():
        content = io.BytesIO()
        write(frame, content)
        files[f"{name}.{suffix}"] = content.getvalue()
    return tar_of(files)


def nsys_report() -> tuple[bytes, ...]:
    """The beginning of a report: what follows is `nsys`'s own to read."""
    return (b"NVIDIA Tegra Profiler Report\n" + bytes(range(256)),)


def ncu_report() -> tuple[bytes, ...]:
    """Reports of our own kernels, and one as `.ncu-repz` has it."""
    import zstandard
    from tests.readers.test_ncu_hostile import WHOLE

    reports = sorted((ROOT / "benchmarks" / "kernels" / "reports").glob("*.ncu-rep.xz"), key=lambda p: p.stat().st_size)
    real = lzma.decompress(reports[0].read_bytes())
    return (real, WHOLE, zstandard.ZstdCompressor().compress(WHOLE))


def ncu_csv() -> tuple[bytes, ...]:
    """A raw page and a details page, written by hand."""
    head = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size"'
    launch = '"0","12","python","here","void ns::k<int>(float *)","1","7","(256, 1, 1)","(1024, 2, 1)"'
    raw = (
        f'==PROF== Connected\n{head},"Device","CC","gpu__time_duration.sum","launch__registers_per_thread"\n'
        f'"","","","","","","","","","","","nsecond","register/thread"\n{launch},"0","8.6","1,234.5","32"\n'
    )
    details = (
        f'{head},"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type",'
        f'"Rule Description"\n{launch},"0","8.6","GPU Speed Of Light","Duration","us","1.23","","",""\n'
        f'{launch},"0","8.6","","","","","SOLBottleneck","WRN","This kernel is slow"\n'
    )
    return (raw.encode(), details.encode(), _raw_page())


def _raw_page() -> bytes:
    """The raw page of two of our own kernels, with the counters that rules read."""
    from timesink.model.tables import KERNEL_METRICS, KERNEL_PROFILES
    from timesink.readers import read

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.ncu-rep"
        path.write_bytes(ncu_report()[0])
        trace = read(path, cache=False)
    sources = (ROOT / "src" / "timesink" / part for part in ("measures/counters", "readers/ncu", "knowledge"))
    read_by_rules = "".join(path.read_text("utf-8") for part in sources for path in sorted(part.rglob("*.py")))
    known = [name for name in trace[KERNEL_METRICS]["metric"].unique().to_list() if name.split(".")[0] in read_by_rules]
    wanted = pl.col("metric").cast(pl.String).is_in(known)
    values = trace[KERNEL_METRICS].filter(wanted, pl.col("value").is_not_null(), pl.col("profile") < 2)
    wide = values.pivot("metric", index="profile", values="value", aggregate_function="first").drop_nulls()
    units = dict(values.select("metric", "unit").unique("metric").rows())
    fixed = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size")
    fixed += ("Grid Size", "Device", "CC")
    rows = [[*fixed, *wide.columns[1:]], ["" for _ in fixed] + [units[name] or "" for name in wide.columns[1:]]]
    for number, *row in wide.rows():
        kernel = trace[KERNEL_PROFILES].row(number, named=True)
        block, grid = (str(tuple(kernel[f"{part}_{axis}"] for axis in "xyz")) for part in ("block", "grid"))
        rows.append(
            [str(number), "12", "python", "here", kernel["name"], "1", "7", block, grid, "0", "9.0", *map(str, row)]
        )
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return written.getvalue().encode()


def torch_logs() -> tuple[bytes, ...]:
    """Logs of torch.compile: structured ones, one of them with graphs and their code, and text."""
    planted = gzip.decompress((DATA / "compile/planted/torch_trace.log.gz").read_bytes())
    return (*(path.read_bytes() for path in sorted((DATA / "compile").glob("*.log"))), planted)


def inductor_provenance() -> tuple[bytes, ...]:
    """Stacks of the kernels of a compiled graph, in both forms."""
    stack = '  File "m.py", line 3, in f\n    x = g(x)\n  File "m.py", line 7, in g\n'
    stacks = {
        "triton_poi_fused_add_0:1": [stack],
        "extern_kernels.mm:2": [],
        "triton_poi_fused_add_0:3": [stack, stack],
    }
    nodes = {name: {"stack_traces": told, "post_grad_nodes": ["add"]} for name, told in stacks.items()}
    return (json.dumps(stacks).encode(), json.dumps(nodes).encode())


def memory_timeline() -> tuple[bytes, ...]:
    """A raw timeline, plain and gzip'd."""
    rows = [[-1, 1, 100, 0], [1000, 2, 40, 4], [2000, 2, 30, 7], [3000, 3, -30, 7], [3000, 3, 30, 5], [4000, 4, -40, 4]]
    text = json.dumps(rows).encode()
    return (text, gzip.compress(text, mtime=0))


def nsys_stats() -> tuple[bytes, ...]:
    """Tables that `nsys stats` printed, and two of them in one file."""
    tables = [path.read_bytes() for path in sorted((DATA / "nsys" / "stats").glob("writes.*_sum.csv"))]
    return (tables[0], tables[2], tables[0] + b"\n" + tables[3])


def torch_snapshot() -> tuple[bytes, ...]:
    """Allocator snapshots cut to a few events and segments, plain and gzip'd."""
    made = []
    for path in sorted((DATA / "memory").glob("*.pickle.xz")):
        content = pickle.loads(lzma.decompress(path.read_bytes()))  # our own
        content["device_traces"] = [events[:_ROWS] for events in content["device_traces"]]
        content["segments"] = content["segments"][:6]
        made.append(pickle.dumps(content, protocol=4))
    return (*made, gzip.compress(made[0], mtime=0))


# By the name of the reader's format: the name a file must have to be taken for it ("" is a folder), and its inputs.
OF_FORMAT: Mapping[str, tuple[str, Callable[[], tuple[bytes, ...]]]] = {
    "kineto_json": ("trace.json", kineto),
    "nsys_sqlite": ("report.sqlite", nsys_sqlite),
    "nsys_arrow": ("", nsys_arrow),
    "nsys_report": ("report.nsys-rep", nsys_report),
    "nsys_stats": ("sums.csv", nsys_stats),
    "ncu_report": ("report.ncu-rep", ncu_report),
    "ncu_csv": ("page.csv", ncu_csv),
    "torch_logs": ("compile.log", torch_logs),
    "inductor_provenance": ("kernel_stack_traces.json", inductor_provenance),
    "torch_memory_timeline": ("timeline.raw.json", memory_timeline),
    "torch_snapshot": ("snapshot.pickle", torch_snapshot),
}
