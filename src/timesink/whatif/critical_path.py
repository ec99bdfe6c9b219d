"""The critical path of a replay in words: what a step's time consists of, and so what limits it.

It leads from the end of the last step back along the edge that bound each node, to the start of the first. Every edge
on it is tight, so its weights and what is unexplained on it add up to the time of the steps.
"""

from collections import defaultdict
from typing import Final

import numpy as np
import polars as pl

from timesink.model.arrays import Int64Array
from timesink.model.nesting import Nesting
from timesink.model.tables import API_CALLS, HOST_OPS
from timesink.records import Record
from timesink.whatif.graph import Graph
from timesink.whatif.network import EdgeKind, Replay
from timesink.whatif.periods import Anchors

_KINDS: Final = {
    EdgeKind.HOST: "CPU", EdgeKind.FORK: "CPU", EdgeKind.JOIN: "CPU", EdgeKind.LAUNCH: "launch latency",
    EdgeKind.RUN: "GPU", EdgeKind.STREAM: "gap behind the previous op", EdgeKind.EVENT: "event wait",
    EdgeKind.RELEASE: "return from a wait", EdgeKind.QUEUE: "full launch queue",
}  # fmt: skip


class PathShare(Record):
    """Part of the critical path: `kind` says on which side, `name` what (untrusted text), `ns` how long per step."""

    kind: str
    name: str
    ns: float


class PathPieces(Record, eq=False):
    """The critical path as time passes: each piece ends where the next begins. `names` are untrusted text."""

    start_ns: Int64Array
    end_ns: Int64Array
    kinds: list[str]
    names: list[str]


def path_pieces(graph: Graph, replay: Replay, anchors: Anchors) -> PathPieces:
    """The path that bounds the steps, in order of time; neighbours of one kind and name are one piece."""
    path = _path(graph, replay, anchors)[::-1]
    edges = graph.network.edges
    start, end = replay.time_ns[edges.src[path]], replay.time_ns[edges.dst[path]]
    text = np.full((2, path.size), "", object)
    for kind in EdgeKind:
        of_kind = np.flatnonzero(edges.kind[path] == kind)
        text[0, of_kind] = _KINDS[kind]
        text[1, of_kind] = _names(graph, kind, path[of_kind]) if of_kind.size else []
    kept = np.flatnonzero(end > start)
    new = np.append(True, (text[:, kept[1:]] != text[:, kept[:-1]]).any(axis=0))[: kept.size]
    first, last = kept[new], kept[np.append(new[1:], True)[: kept.size]]
    return PathPieces(start[first], end[last], text[0, first].tolist(), text[1, first].tolist())


def _path(graph: Graph, replay: Replay, anchors: Anchors) -> Int64Array:
    """The edges of the path, latest first; none where there is no steady step."""
    if not len(anchors.windows):
        return np.empty(0, np.int64)
    return replay.path_to(anchors.last_node(replay), graph.network, anchors.first_ns(replay))


def path_shares(graph: Graph, replay: Replay, anchors: Anchors) -> tuple[PathShare, ...]:
    """Shares of the path that bound the steps, longest first. Together they are the time of the path per step."""
    if not len(anchors.windows):
        return ()
    path = _path(graph, replay, anchors)
    totals: dict[tuple[str, str], int] = defaultdict(int)
    edges = graph.network.edges
    for kind in EdgeKind:
        of_kind = path[edges.kind[path] == kind]
        if of_kind.size:
            for name, length in zip(_names(graph, kind, of_kind), edges.weight_ns[of_kind].tolist(), strict=True):
                totals[_KINDS[kind], name] += length
    totals["unexplained", ""] += int(edges.unexplained_ns[path].sum())
    shares = [PathShare(kind, name, ns / len(anchors.windows)) for (kind, name), ns in totals.items() if ns]
    return tuple(sorted(shares, key=lambda share: (-share.ns, share.kind, share.name)))


def longest_kind(graph: Graph, replay: Replay, anchors: Anchors) -> str:
    """The kind that most of the path consists of; empty where there is no path."""
    path, edges = _path(graph, replay, anchors), graph.network.edges
    totals = dict.fromkeys(_KINDS.values(), 0)
    for kind, word in _KINDS.items():
        totals[word] += int(edges.weight_ns[path[edges.kind[path] == kind]].sum())
    totals["unexplained"] = int(edges.unexplained_ns[path].sum())
    return max(totals, key=lambda word: totals[word]) if any(totals.values()) else ""


def _names(graph: Graph, kind: EdgeKind, edges: Int64Array) -> list[str]:
    """A name for each edge: the op that runs, or the operator or call the host is in."""
    match kind:
        case EdgeKind.RUN:
            op = graph.program.blocks.op[graph.block_of(graph.network.edges.dst[edges])]
            return _texts(graph.names_of_ops()[op])
        case EdgeKind.HOST | EdgeKind.FORK | EdgeKind.JOIN:
            return _host_names(graph, edges)
        case _:
            return [""] * edges.size


def _host_names(graph: Graph, edges: Int64Array) -> list[str]:
    """The outermost operator around the middle of each stretch, else the call it is, else that none was recorded."""
    points, calls = graph.program.points, graph.program.calls
    src, dst = graph.network.edges.src[edges], graph.network.edges.dst[edges]
    middle = (points.time_ns[src] + points.time_ns[dst]) // 2
    thread = np.where(points.call[dst] >= 0, points.thread[dst], points.thread[src])
    names = np.full(edges.size, "no operator recorded", object)
    own = (points.call[dst] >= 0) & points.ends[dst]
    call_names = graph.tables[API_CALLS]["name"]
    names[own] = _texts(call_names[calls.row[points.call[dst[own]]]])
    ops = graph.table(HOST_OPS)
    if ops.height:
        nesting = Nesting.of(ops)
        for number in np.unique(thread):
            on_thread = np.flatnonzero(thread == number)
            process, id_ = calls.threads[int(number)]
            row = _outermost(nesting, nesting.innermost((graph.program.rank, process, id_), middle[on_thread]))
            names[on_thread[row >= 0]] = _texts(ops["name"][row[row >= 0]])
    return [str(name) for name in names]


def _outermost(nesting: Nesting, rows: Int64Array) -> Int64Array:
    """The root of the tree each row is in; -1 stays -1."""
    rows = rows.copy()
    while (inner := (rows >= 0) & (nesting.parent[np.maximum(rows, 0)] >= 0)).any():
        rows[inner] = nesting.parent[rows[inner]]
    return rows


def _texts(names: pl.Series) -> list[str]:
    return [str(name) for name in names.cast(pl.String).to_list()]
