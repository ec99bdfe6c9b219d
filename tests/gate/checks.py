"""The law of `show checks`: an answer begins with what SQL counts in the rows, and none is clear against its count."""

import re
import sqlite3
from collections.abc import Iterator
from typing import Final

from tests.gate.answers import SHARE, Answers

from timesink.knowledge.step_parts import WORK_WORDS
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.views.statement import MUCH, checks_page

_COLUMNS: Final = ("rank", "device", "kind", "name", "start_ns", "end_ns", "copy_kind")
_COLLECTIVE: Final = " OR ".join(
    f"instr(lower(name), '{word}')"
    for word in (
        "nccl", "rccl", "hccl", "nvshmem", "deep_ep::", "cross_device_reduce", "lamport", "allgather", "all_gather",
        "reducescatter", "reduce_scatter", "alltoall", "all_to_all", "moea2a", "mori::moe::ep",
    )
)  # fmt: skip
_BEFORE: Final = """max(end_ns) OVER (
    PARTITION BY rank, device ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"""
# What has no length runs at no time, and parts no gap; but a device's span goes from its first row to its last.
_RUNNING: Final = """SELECT rank, device, start_ns, end_ns FROM ops WHERE end_ns > start_ns
    UNION SELECT rank, device, min(start_ns), min(start_ns) FROM ops GROUP BY rank, device
    UNION SELECT rank, device, max(end_ns), max(end_ns) FROM ops GROUP BY rank, device"""
_COUNTS: Final = {
    "GPU idle gaps": f"FROM (SELECT start_ns, {_BEFORE} AS before FROM ({_RUNNING})) WHERE start_ns > before",
    "small kernels": "FROM ops WHERE kind = 'kernel' AND end_ns - start_ns < 10000",
    "copies between CPU and GPU": "FROM ops WHERE kind = 'copy' AND copy_kind IN ('h2d', 'd2h')",
    "gaps at collectives": f"FROM ops WHERE kind = 'kernel' AND ({_COLLECTIVE})",
}
_KINDS: Final = {"copies between CPU and GPU": "copy", "gaps at collectives": "communication"}
_NONE: Final = re.compile(r"no (?:communication )?kernels?\b(?! takes)|holds no|found nothing")


def counted(trace: Trace) -> dict[str, int]:
    """What each check looks for, counted by SQLite in the rows of the GPU's work."""
    with sqlite3.connect(":memory:") as database:
        database.execute(f"CREATE TABLE ops ({', '.join(_COLUMNS)})")
        rows = trace.get(DEVICE_OPS).select(_COLUMNS).iter_rows()
        database.executemany(f"INSERT INTO ops VALUES ({', '.join('?' * len(_COLUMNS))})", rows)
        return {what: database.execute(f"SELECT count(*) {query}").fetchone()[0] for what, query in _COUNTS.items()}


def shares(of: Answers) -> dict[str, float]:
    """What of a step is idle, exposed copies and exposed communication where that is most, by the parts in JSON."""
    most = dict.fromkeys(_COUNTS, 0.0)
    for step in of.json["step_parts"]:
        parts = step["parts"]
        taken = {what: sum(one["ms"] for one in parts if one["kind"] == kind) for what, kind in _KINDS.items()}
        taken["GPU idle gaps"] = sum(one["ms"] for one in parts if one["kind"] not in WORK_WORDS)
        most |= {what: max(most[what], part_ms / step["step_ms"]) for what, part_ms in taken.items()}
    return most


def checks_are_counts(of: Answers) -> Iterator[str]:
    if not of.trace.get(DEVICE_OPS).height or not of.json["step_parts"]:
        return
    counts, taken = counted(of.trace), shares(of)
    for what, answer, why, _ in checks_page(of.trace).sheets[0].rows:
        said = re.match(r"([\d,]+) [^;]* in the capture", str(why))
        if what not in counts or said is None:
            if said is None:
                yield f"{what}: {answer} without a count: {why}"
            continue
        if int(said[1].replace(",", "")) != counts[what]:
            yield f"{what}: {said[1]}, of which SQL counts {counts[what]}"
        if counts[what] and answer == "clear" and _NONE.search(str(why)):
            yield f"{what}: {counts[what]} of them: {why}"
        if answer == "clear" and taken[what] >= MUCH.default:
            yield f"{what}: clear with {taken[what]:.1%} of the step"
        share = re.search(rf"in the capture; [a-z ]*{SHARE} of the (?:step|window)", str(why))
        if share and abs(float(share[1]) - 100 * taken[what]) > 0.06 + 0.006 * float(share[1]):
            yield f"{what}: {share[1]} %, of the bar {taken[what]:.2%}"


LAWS: Final = (checks_are_counts,)
