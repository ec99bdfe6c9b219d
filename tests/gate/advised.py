"""No advice is given that the same trace refutes: what a change needs is looked for here by itself, call by call."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from tests.gate.answers import Answers, flat

from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace

_ENDS_A_GRAPH: Final = re.compile(
    r"(?:Device|Ctx|Thread|Stream|Event)Synchronize|^(?:cuda|hip)Memcpy(?!\w*Async)|^cuMemcpy(?!\w*Async)"
)
_MOST_CALLS: Final = 400_000
_ADVISES_A_GRAPH: Final = re.compile(r"[Cc]apture the step in a CUDA graph|reduce-overhead")


def advice_can_be_followed(of: Answers) -> Iterator[str]:
    """Of findings no fix is refused by the trace; a graph is advised where launches stand together, outside of one."""
    for card, finding in of.diagnosis.findings:
        if finding.fix and (why := finding.fix.refused(of.trace)):
            yield f"{card.name} advises {finding.fix.name}, though {why}"
    said = [finding.advice for card, finding in of.diagnosis.findings if card.name == "launch-bound"]
    if any(map(_ADVISES_A_GRAPH.search, map(flat, said))) and (why := no_graph_wins(of.trace)):
        yield f"a graph is advised, though {why}"


def no_graph_wins(trace: Trace) -> str:
    """Why a graph wins nothing: most launches stand alone between two waits of their thread, or replay a graph."""
    calls = trace.get(API_CALLS)
    if calls.height > _MOST_CALLS:
        return ""
    launched: dict[Any, int] = defaultdict(int)
    ops = trace.get(DEVICE_OPS)
    for kind, *key in ops.select("kind", "rank", "process", "correlation").iter_rows():
        launched[tuple(key)] += kind == "kernel" and key[2] is not None
    in_stretch: dict[Any, int] = defaultdict(int)
    stretches: list[int] = []
    replayed = 0
    columns = ("rank", "process", "thread", "correlation", "name")
    for rank, process, thread, correlation, name in calls.sort("start_ns").select(columns).iter_rows():
        own = rank, process, thread
        if _ENDS_A_GRAPH.search(name):
            stretches.append(in_stretch.pop(own, 0))
        elif kernels := launched.get((rank, process, correlation), 0):
            in_stretch[own] += 1
            replayed += kernels if "GraphLaunch" in name else 0
    stretches += in_stretch.values()
    alone = stretches.count(1)
    if alone > 1 and 2 * alone > sum(stretches):
        return f"{alone} of {sum(stretches)} launches stand alone"
    whole = sum(launched.values())
    return f"{replayed} of {whole} kernels come from a graph" if 2 * replayed > whole else ""
