"""Reports of ncu and the pages it printed of them; and its raw page, printed from a trace in any locale, scaled or not,
as ncu prints it from a report."""

import csv
import io
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from tests.profiles import PROFILES

from timesink.model.tables import KERNEL_METRICS, KERNEL_PROFILES
from timesink.model.trace import Trace
from timesink.readers import read

SUITE = Path(__file__).resolve().parents[2] / "benchmarks" / "kernels" / "reports"
H100 = SUITE.parent / "unseen2" / "reports"
OWN, PUBLIC = PROFILES / "own" / "ncu", PROFILES / "public" / "ncu"
PAGES = {
    SUITE / "atomics.ncu-rep.xz": sorted(SUITE.glob("atomics.*.csv.xz")),
    OWN / "h200_torch_kernels.ncu-rep.xz": sorted(OWN.glob("*.csv")),
    H100 / "cuda.ncu-rep.xz": [H100 / "cuda.details.csv.xz"],
}
REPORTS = sorted(
    {H100 / "cuda.ncu-rep.xz", *SUITE.glob("*.ncu-rep.xz"), *OWN.glob("*.ncu-rep.xz"), *PUBLIC.glob("a1*.ncu-rep")}
)
UNSEEN = sorted(SUITE.parent.glob("unseen*/reports/*.ncu-rep.xz"))
Reading = Callable[[Path], Trace]


def reading_into(folder: Path) -> Reading:
    """A reader of reports and pages, packed or not, that reads each once."""
    known: dict[Path, Trace] = {}

    def taken(path: Path) -> Trace:
        if path not in known:
            plain = folder / path.name.removesuffix(".xz")
            plain.write_bytes(unpacked(path))
            known[path] = read(plain, cache=False)
        return known[path]

    return taken


def unpacked(path: Path) -> bytes:
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


FIXED = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size")
_SCALED = {"ns": ("usecond", 1e3), "bytes": ("Kbyte", 1e3), "bytes/s": ("Gbyte/second", 1e9), "Hz": ("Ghz", 1e9)}


def english(value: float) -> str:
    return f"{value:,.6f}"


def german(value: float) -> str:
    return english(value).translate(str.maketrans(",.", ".,"))


def french(value: float) -> str:
    return english(value).translate(str.maketrans({",": "\u202f", ".": ","}))


@dataclass(frozen=True)
class Style:
    """How a page is printed. `units`: with the row of units; `scaled`: as without ``--print-units base``."""

    write: Callable[[float], str] = english
    units: bool = True
    scaled: bool = False
    quoted: bool = True


def raw_page(trace: Trace, style: Style) -> str:
    """The raw page of every profile of the trace; lists of units are not printed, as ncu does not."""
    metrics = trace[KERNEL_METRICS].with_columns(pl.col(pl.Categorical).cast(pl.String))
    unit_of = dict(metrics.filter(~pl.col("metric").str.starts_with("breakdown:")).select("metric", "unit").rows())
    names = sorted(unit_of)
    scales = [_SCALED.get(unit_of[name] or "", ("", 1.0)) if style.scaled else ("", 1.0) for name in names]
    page = io.StringIO()
    writer = csv.writer(page, quoting=csv.QUOTE_ALL if style.quoted else csv.QUOTE_MINIMAL, lineterminator="\n")
    writer.writerow([*FIXED, "Device", "CC", *names])
    if style.units:
        writer.writerow([*[""] * 11, *(unit or unit_of[n] or "" for n, (unit, _) in zip(names, scales, strict=True))])
    for row in trace[KERNEL_PROFILES].iter_rows(named=True):
        own = metrics.filter(pl.col("profile") == row["profile"])
        cells = {name: (value, text) for name, value, text in own.select("metric", "value", "text").iter_rows()}
        sizes = [f"({row[f'{kind}_x']}, {row[f'{kind}_y']}, {row[f'{kind}_z']})" for kind in ("block", "grid")]
        fixed = [row["profile"], 1, "a", "h", row["name"], 1, 7, *sizes, 0]
        writer.writerow(
            [*fixed, f"{row['compute_major']}.{row['compute_minor']}"]
            + [_cell(cells.get(name), scale, style) for name, (_, scale) in zip(names, scales, strict=True)]
        )
    return page.getvalue()


def _cell(cell: tuple[float | None, str | None] | None, scale: float, style: Style) -> str:
    if cell is None or cell == (None, None):
        return ""
    value, text = cell
    return text or "" if value is None else style.write(value / scale)


def long_page(raw: str) -> str:
    """A raw page as a details page prints it with every metric by its name: a row per kernel and metric."""
    header, units, *rows = csv.reader(io.StringIO(raw))
    page = io.StringIO()
    writer = csv.writer(page, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*header[:11], "Section Name", "Metric Name", "Metric Unit", "Metric Value"])
    for row in rows:
        for name, unit, cell in zip(header[11:], units[11:], row[11:], strict=True):
            if cell:
                writer.writerow([*row[:11], "Command line profiler metrics", name, unit, cell])
    return page.getvalue()
