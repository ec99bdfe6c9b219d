"""Kernels of compiled graphs at the lines that they compute: a transformer of known lines, captured on an H100."""

import re
from pathlib import Path

import polars as pl
import pytest
from tests.tables import trace_of

from timesink.measures.lines.generated import fused_stacks
from timesink.measures.lines.stacks import op_stacks, stack_book
from timesink.model.tables import DEVICE_OPS, GENERATED_KERNELS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.records import replace

DATA = Path(__file__).resolve().parents[2] / "data/compile/planted"
LINES = {mark[1]: n for n, text in enumerate((DATA / "model.txt").read_text().splitlines(), 1)
         if (mark := re.search(r"# L:(\w+)", text))}  # fmt: skip
PLANTED = {"_softmax": "softmax", "sigmoid": "gelu", "embedding": "embedding", "cat_cos": "turn", "argmax": "argmax"}
"""What only one line of the program does, by what the names of its kernels hold."""


@pytest.fixture(scope="module")
def planted() -> Trace:
    return read([DATA / "trace.json.gz", DATA / "torch_trace.log.gz"], cache=False)


def lines_of(trace: Trace) -> list[tuple[str, int, frozenset[int]]]:
    """Name, time and lines of each kernel that TorchInductor generated."""
    ops, stacks, found = trace[DEVICE_OPS], stack_book(trace).stacks, []
    columns = ops["name"].cast(pl.String), ops["end_ns"] - ops["start_ns"], op_stacks(trace).tolist()
    for name, length, at in zip(*columns, strict=True):
        if name.startswith("triton_"):
            line = stacks[at][-1] if at >= 0 else None
            told = {line.line or 0, *(number for _, number in line.others)} if line and line.file else set()
            found.append((name, length, frozenset(told)))
    return found


def resolved(trace: Trace) -> float:
    told = lines_of(trace)
    return sum(length for _, length, lines in told if lines) / sum(length for _, length, _ in told)


def test_generated_kernels_are_at_the_lines_that_were_planted(planted: Trace) -> None:
    told = lines_of(planted)
    assert resolved(planted) >= 0.95
    of_one_line = [(lines, LINES[line]) for name, _, lines in told for word, line in PLANTED.items() if word in name]
    assert len(of_one_line) > 25 and all(line in lines for lines, line in of_one_line)
    norms = {LINES["norm"], LINES["norm2"]}
    assert all(lines & norms for name, _, lines in told if "layer_norm" in name)


def test_without_stacks_of_the_compiler_the_nodes_of_its_code_say_the_same(planted: Trace, tmp_path: Path) -> None:
    import gzip

    text = gzip.decompress((DATA / "torch_trace.log.gz").read_bytes()).decode()
    bare = re.sub(r"(?m)^.*kernel_stack_traces.*\n(?:\t.*\n)+", "", text)
    (tmp_path / "bare.log").write_text(bare)
    found = lines_of(read([DATA / "trace.json.gz", tmp_path / "bare.log"], cache=False))
    pairs = list(zip(found, lines_of(planted), strict=True))
    assert len(bare) < len(text) and all(lines <= every for (*_, lines), (*_, every) in pairs)
    same = sum(length for (_, length, lines), (*_, every) in pairs if lines == every)
    assert same >= 0.95 * sum(length for _, (_, length, _) in pairs)  # names of two nodes are not in their graph


def test_without_ranges_the_order_of_the_kernels_says_the_same(planted: Trace) -> None:
    bare = replace(planted, tables={table: rows for table, rows in planted.tables.items() if table is not RANGES})
    assert lines_of(bare) == lines_of(planted)


def test_the_log_of_another_compilation_explains_nothing(planted: Trace) -> None:
    other = planted[GENERATED_KERNELS].with_columns(pl.lit("f" * 52).cast(pl.Categorical()).alias("graph"))
    assert resolved(replace(planted, tables={**planted.tables, GENERATED_KERNELS: other})) == 0


def test_products_of_a_compiled_graph_have_lines_too(planted: Trace) -> None:
    ops = planted[DEVICE_OPS]
    products = [row for row, name in enumerate(ops["name"].cast(pl.String)) if "gemm" in name.lower()]
    told = fused_stacks(planted)
    assert len(products) > 60 and all(len(told[row]) == 1 for row in products)


KEY = "f" + "a" * 51
CALLS = f"""
device_ops | kind   | name               | device | stream | start_us | end_us | correlation
first      | kernel | triton_poi_fused_0 |      0 |      7 |       20 |     30 |           1
second     | kernel | triton_poi_fused_0 |      0 |      7 |       40 |     50 |           2

api_calls | name             | thread | start_us | end_us | correlation
one       | cuLaunchKernelEx |      1 |       12 |     14 |           1
two       | cuLaunchKernelEx |      1 |       16 |     18 |           2

ranges | name                            | kind     | depth | thread | start_us | end_us
graph  | ## Call CompiledFxGraph {KEY} ## | push_pop |     0 |      1 |       10 |     60
"""


def calls(*stacks: str) -> str:
    rows = [f"c{n} | {KEY} | triton_poi_fused_0 | {n} | {stack}" for n, stack in enumerate(stacks, 1)]
    return "\n".join([CALLS, "generated_kernels | graph | kernel | call | stack", *rows, ""])


@pytest.mark.parametrize(
    ("stacks", "lines"),
    [
        (("m.py(1): f", "m.py(2): f"), [1, 2]),
        (("m.py(1): f", "m.py(2): f", "m.py(2): f"), [None, None]),  # launched twice, called three times
        (("m.py(1): f", "m.py(1): f", "m.py(1): f"), [1, 1]),
        (("torch/nn/f.py(1): f", "m.py(2): f"), [None, 2]),  # a line of a library is none of the program
    ],
)
def test_a_launch_is_one_call_of_its_graph_or_none(stacks: tuple[str, ...], lines: list[int | None]) -> None:
    trace = trace_of(calls(*stacks))
    book = stack_book(trace).stacks
    known = [book[at][-1] if at >= 0 else None for at in op_stacks(trace).tolist()]
    assert [line.line if line else None for line in known] == lines
