"""Which lines of the program a kernel of a compiled graph computes, from what TorchInductor states of the graph's code.

A launch is held against the calls of its name in the graph that the range around it names. It is one of them where
the graph, in that turn, launched the name as often as its code does. Without such ranges the kernels of each rank, in
order, are read as turns of graphs, where one graph fits best. What is left gets lines only where all calls that it may
be compute the same ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.ranges import COMPILED_GRAPH, GRAPH_CALL
from timesink.measures.timeline.attribution import asked_at, attribution, launch_links, push_pop_ranges, range_nesting
from timesink.model.arrays import Int64Array
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, GENERATED_KERNELS, HOST_OPS
from timesink.model.trace import Trace, remembered

Texts = tuple[str, ...]
"""The stacks of what is fused into one kernel, each 'file(line): function', innermost first, separated by ';'."""
_Code = Sequence[tuple[str, Texts]]
"""The calls of a graph in order: kernel, and what it computes."""
_EXTERN: Final = "extern_kernels."
_FEWEST_IN_ORDER: Final = 2  # kernels of a graph that its order alone proves


@remembered
def fused_stacks(trace: Trace) -> dict[int, Texts]:
    """For rows of `device_ops` whose kernel the compiler's log explains, the stacks of what it computes."""
    if not trace.get(GENERATED_KERNELS).height or not trace.get(DEVICE_OPS).height:
        return {}
    graphs, found, left = _graphs(trace), dict[int, Texts](), list[tuple[int, int, int, str]]()
    for (rank, name, key, _), rows in _launches(trace).items():
        code = graphs.get((rank, key), ())
        texts = [texts for kernel, texts in code if kernel == name]
        units = sorted({unit for unit, _ in rows})
        if texts and len(texts) == len(units):
            of_unit = dict(zip(units, texts, strict=True))
            found |= {row: of_unit[unit] for unit, row in rows}
        elif key:
            found |= dict.fromkeys((row for _, row in rows), _agreed(texts))
        else:
            left += [(rank, begin, row, name) for (begin, _), row in rows]
    for rank in {rank for rank, *_ in left}:
        own = {graph: code for (of, graph), code in graphs.items() if of == rank}
        found |= dict(_in_order([(row, name) for of, _, row, name in sorted(left) if of == rank], own))
    return {row: texts for row, texts in found.items() if texts}


def _agreed(calls: Sequence[Texts]) -> Texts:
    """What all of the calls compute; nothing where they differ."""
    return calls[0] if len(set(calls)) == 1 else ()


def _in_order(launches: list[tuple[int, str]], graphs: Mapping[str, _Code]) -> Iterator[tuple[int, Texts]]:
    """The launches of a rank, in order, read as turns of graphs: at each place the longest that fits, if but one is."""
    codes, calls = dict[str, list[_Code]](), dict[str, list[Texts]]()
    for key, code in graphs.items():
        own = [call for call in code if not call[0].startswith(_EXTERN)]
        if key and len(own) >= _FEWEST_IN_ORDER:
            codes.setdefault(own[0][0], []).append(own)
        for kernel, texts in own:
            calls.setdefault(kernel, []).append(texts)
    agreed = {kernel: _agreed(texts) for kernel, texts in calls.items()}
    names, at = [name for _, name in launches], 0
    while at < len(names):
        fit = [code for code in codes.get(names[at], ()) if _begins(names, at, code)]
        longest = [code for code in fit if len(code) == max(map(len, fit))]
        turn = [texts for _, texts in longest[0]] if len(longest) == 1 else [agreed.get(names[at], ())]
        yield from zip((row for row, _ in launches[at : at + len(turn)]), turn, strict=True)
        at += len(turn)


def _begins(names: Sequence[str], at: int, code: _Code) -> bool:
    return names[at : at + len(code)] == [kernel for kernel, _ in code]


def _graphs(trace: Trace) -> dict[tuple[int, str], _Code]:
    """By rank and graph, '' where its key is not known, the calls in order of the graph's code."""
    told = trace.get(GENERATED_KERNELS).with_columns(pl.col("graph", "kernel", "stack").cast(pl.String))
    told = told.with_columns(pl.col("graph").fill_null(""))
    calls = told.group_by("rank", "graph", "call", "kernel").agg(pl.col("stack").drop_nulls().unique().sort())
    graphs: dict[tuple[int, str], list[tuple[str, Texts]]] = {}
    for rank, graph, _, kernel, stacks in calls.sort("rank", "graph", "call", "kernel").iter_rows():
        graphs.setdefault((rank, graph), []).append((kernel, tuple(stacks)))
    return dict(graphs)


def _launches(trace: Trace) -> dict[tuple[int, str, str, int], list[tuple[tuple[int, int], int]]]:
    """Rows of `device_ops` by rank, name in the graph's code, key of the graph and turn of it ('' and -1 where no range
    says them). Each with what orders it among those, which the kernels of one library call share."""
    ops, host = trace.get(DEVICE_OPS), attribution(trace).host_op.astype(np.int64)
    turn, keys = _turns(trace)
    op_names = trace.get(HOST_OPS)["name"].cast(pl.String)
    told = set(trace.get(GENERATED_KERNELS)["kernel"].cast(pl.String).unique())
    starts, first = ops["start_ns"].to_list(), dict[int, int]()
    launches: dict[tuple[int, str, str, int], list[tuple[tuple[int, int], int]]] = {}
    names = ops["name"].cast(pl.String).to_list()
    for row, (rank, name) in enumerate(zip(ops["rank"].to_list(), names, strict=True)):
        at, own = int(host[row]), name in told
        library = op_names[at] if at >= 0 and turn[row] >= 0 else ""
        called = name if own else library.replace("aten::", _EXTERN, 1)
        if called in told:
            unit = (starts[row], row) if own else (first.setdefault(at, starts[row]), at)
            launches.setdefault((rank, called, keys[turn[row]], int(turn[row])), []).append((unit, row))
    return launches


def _turns(trace: Trace) -> tuple[Int64Array, Sequence[str]]:
    """For each device op the row of the range in which its compiled graph was called, or -1; and by row its key."""
    ranges = push_pop_ranges(trace)
    texts = ranges["name"].cast(pl.String).to_list()
    is_call = matches(ranges["name"], GRAPH_CALL).to_numpy()
    found = (COMPILED_GRAPH.search(text) if called else None for text, called in zip(texts, is_call, strict=True))
    keys = [match[0] if match else "" for match in found]
    own = np.where(is_call, np.arange(ranges.height), -1)
    around = np.append(range_nesting(trace).innermost_value(own), -1)
    calls = np.append(range_nesting(trace).innermost_of(trace.get(API_CALLS)), -1)
    launched = around[calls[launch_links(trace).call]]
    return np.where(launched >= 0, launched, around[asked_at(trace, range_nesting(trace))]), [*keys, ""]
