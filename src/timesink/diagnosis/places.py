"""Where a change belongs in the program: where findings say, else where most of the time goes that it takes away."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import polars as pl

from timesink.diagnosis.plan import Joint
from timesink.diagnosis.verdicts import Finding, Where
from timesink.measures.kernels.classification import modules
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.lines.common import longest_line
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.whatif import Case, Change
from timesink.whatif.changes.kernels import OfKernels, ShortenKernels


def place_of(trace: Trace, kernels: ShortenKernels) -> Where:
    """The kernel name and the operator with the most of the time that goes, and the line behind most of it."""
    rank, device = kernels.device
    gone = pl.DataFrame({"row": kernels.rows, "gone": 1.0 - kernels.keep[Case.EXPECTED.value]})
    saved = kernel_facts(trace).frame.join(gone, on="row", how="inner")
    saved = saved.with_columns(pl.col("length") * pl.col("gone"))
    totals = saved.group_by("name", "op").agg(pl.col("length").sum(), pl.col("row").min())
    if not totals.height:
        return Where(rank=rank, device=device)
    longest = totals.sort("length", "row", descending=[True, False]).row(0, named=True)
    op = None if longest["op"] is None else str(longest["op"])
    line = longest_line(trace, saved["row"].to_numpy(), saved["length"])
    return Where(
        rank=rank,
        device=device,
        op=op,
        kernel=str(trace.get(DEVICE_OPS)["name"][int(longest["row"])]),
        file=line.file if line else None,
        line=line.line if line else None,
    )


_TELLING: Final = ("file", "op", "range", "kernel")


class ChangePlace(Record):
    """A line, else an operator or a range; the modules around it; and the kernel. Empty where unknown; untrusted."""

    where: str = ""
    module: str = ""
    kernel: str = ""


def place_in_program(joint: Joint, name: str, chosen: Sequence[str]) -> ChangePlace:
    """Where a change goes that is made beside the `chosen` ones."""
    findings = [finding for _, finding in joint.offered[name].findings]
    told: Where | None = max((finding.where for finding in findings), key=_told, default=Where())
    if told is None or not _told(told):
        told = next(_of_parts(joint, name, chosen), None) or _after_a_wait(joint.trace, findings)
    if told is None:
        return ChangePlace()
    line = f"{told.file}:{told.line}" if told.file and told.line else told.file
    return ChangePlace(line or told.op or told.range or "", _module(joint.trace, told), told.kernel or "")


def _told(where: Where) -> int:
    """How much a place says: a line more than an operator, that more than a range or a kernel."""
    said = where.known()
    return max((len(_TELLING) - at for at, key in enumerate(_TELLING) if key in said), default=0)


def _of_parts(joint: Joint, name: str, chosen: Sequence[str]) -> Iterator[Where]:
    """By the kernels that it shortens, those with most of the time that goes first."""
    made = joint.offered[name].parts(joint.trace, joint.rank, frozenset({*chosen, name}), True)
    kernels = [part for change in made if (part := _kernels(change)) is not None]
    ops = joint.trace.get(DEVICE_OPS)
    length = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    kernels.sort(key=lambda part: -float(length[part.rows] @ (1.0 - part.keep[Case.EXPECTED.value])))
    return (place_of(joint.trace, part) for part in kernels if part.rows.size)


def _kernels(change: Change) -> ShortenKernels | None:
    if isinstance(change, OfKernels):
        return change.kernels
    return change if isinstance(change, ShortenKernels) else None


def _after_a_wait(trace: Trace, findings: Sequence[Finding]) -> Where | None:
    """Of a wait that nothing names: the operator and the kernel that came when it was over."""
    rows = [row for finding in findings for fact in finding.evidence if fact.table == "device_ops" for row in fact.rows]
    if not rows:
        return None
    frame = kernel_facts(trace).frame
    at = np.flatnonzero(frame["row"].to_numpy() == rows[0])
    op = str(frame["op"][int(at[0])]) if at.size and frame["op"][int(at[0])] is not None else None
    return Where(op=f"before {op}" if op else None, kernel=str(trace.get(DEVICE_OPS)["name"][rows[0]]))


def _module(trace: Trace, where: Where) -> str:
    """The modules, or the named range, around most of the kernels of this operator and name."""
    frame = kernel_facts(trace).frame
    named = trace.get(DEVICE_OPS)["name"][frame["row"]].cast(pl.String) == (where.kernel or "")
    mine = frame.filter(named & (frame["host_op"] >= 0))
    if where.kernel is None or not mine.height:
        return ""
    around = modules(trace)[mine["host_op"]]
    known = (
        mine.with_columns(around.alias("module")).drop_nulls("module").group_by("module").agg(pl.col("length").sum())
    )
    return str(known.sort("length", "module", descending=[True, False])["module"][0]) if known.height else ""
