"""The canonical tables of a trace, as `tables.txt` declares them; `ALL` is every one, in the order of the reference
pages. The last five hold what is read beside the profile of a run: kernels profiled one by one, and compilations."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, cast

import polars as pl

from timesink.model.schema import RANGES_OF_VALUES, Column, DType, Table


@cache
def _dtype(text: str) -> DType:
    if "|" in text:
        return pl.Enum(text.split("|"))
    return pl.Categorical() if text == "Categorical" else cast("DType", getattr(pl, text))


def _within(text: str) -> tuple[float, float]:
    if text in RANGES_OF_VALUES:
        return RANGES_OF_VALUES[text]
    least, most = (float(end) if "e" in end else int(end) for end in text.split(".."))
    return least, most


def _column(text: str) -> Column:
    """`Int64? bytes SIZES  size of the block` as a column."""
    spec, _, doc = text.strip().partition("  ")
    spec, _, refers_to = spec.partition(" -> ")
    dtype, *more = spec.split()
    within = [_within(word) for word in more if word in RANGES_OF_VALUES or ".." in word]
    unit = next((word for word in more if word not in RANGES_OF_VALUES and ".." not in word), None)
    ends = within[0] if within else None
    return Column(_dtype(dtype.rstrip("?")), doc.strip(), unit, dtype.endswith("?"), refers_to or None, ends)


def _tables() -> Iterator[Table]:
    shared: dict[str, Column] = {}
    groups: dict[str, list[str]] = {}
    for block in Path(__file__).with_name("tables.txt").read_text("utf-8").split("\n\n")[1:]:
        head, *lines = block.strip().splitlines()
        columns: dict[str, Column] = {}
        sorted_by: tuple[str, ...] = ()
        for name, _, rest in (line.strip().partition(" ") for line in lines):
            if name == "sorted":
                sorted_by = tuple(rest.removeprefix("by ").split())
            elif name[0] == "*" and rest:
                groups[name] = rest.split()
            elif name[0] == "*":
                columns |= {one: shared[one] for one in groups[name]}
            else:
                columns[name] = _column(rest) if rest else shared[name]
        key, _, doc = head.partition(": ")
        if not shared:
            shared = columns
        else:
            yield Table(key, doc, columns, sorted_by)


ALL: Final[tuple[Table, ...]] = tuple(_tables())
(
    SOURCES, SETTINGS, DEVICES, DEVICE_OPS, API_CALLS, HOST_OPS, RANGES, FRAMES, HOST_STACKS, OS_CALLS,
    THREAD_STATES, THREADS, GRAPH_NODES, SYNCS, EVENT_WAITS, COLLECTIVES, GPU_METRICS, MEMORY_EVENTS,
    MEMORY_SEGMENTS, MEMORY_BLOCKS, MEMORY_MARKS, PROFILER_OVERHEAD, SUMS, KERNEL_PROFILES, KERNEL_METRICS,
    KERNEL_RULES, COMPILE_EVENTS, GENERATED_KERNELS,
) = ALL  # fmt: skip
OpKind, CopyKind, MemoryKind, SyncKind, BlockState = (
    cast("pl.Enum", table.columns[name].dtype)
    for table, name in (
        (DEVICE_OPS, "kind"),
        (DEVICE_OPS, "copy_kind"),
        (DEVICE_OPS, "src_memory"),
        (SYNCS, "kind"),
        (MEMORY_BLOCKS, "state"),
    )
)
LAUNCH_SHAPE: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
"""Columns of the grid and the blocks that a kernel is launched with."""
