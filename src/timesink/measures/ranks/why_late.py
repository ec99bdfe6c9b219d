"""Why a rank is late: what its CPU, or its GPU, does in a step beyond what those of its peers do.

Of a late CPU the GPU's idle time says it, by cause, and its copies: what its peers' GPUs wait for as well makes nobody
late. A late GPU runs more kernels than its peers, or larger ones, or the same more slowly.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import polars as pl

from timesink.knowledge.kernels import PRODUCTS, decode
from timesink.knowledge.op_class import class_of_ops
from timesink.measures.communication.waits import collective_waits
from timesink.measures.idle.before_launches import slow_operators
from timesink.measures.idle.blame import idle_blame
from timesink.measures.idle.blamed_time import READ, placed
from timesink.measures.idle.input_pipeline import input_pipeline
from timesink.measures.steps.per_step import per_step_ns
from timesink.measures.timeline import Device, device_timeline, of_device
from timesink.model.arrays import median
from timesink.model.intervals import Intervals
from timesink.model.names import of_each
from timesink.model.schema import picked
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.records import Record, field

Reason = Literal[
    "loader", "copies", "sync", "allocator", "compile", "checkpoint", "garbage_collection", "logging", "os_call",
    "python", "launches", "operators", "more", "other", "larger", "slower",
]  # fmt: skip
"""Of a late CPU, but for the last four: more kernels than the peers run, of more passes or of other work; larger ones,
or slower ones."""

_CAUSES: Final[Mapping[Reason, tuple[str, ...]]] = {
    "loader": ("loader",),
    "copies": ("copy_staging",),
    "sync": ("sync",),
    "allocator": ("allocator",),
    "compile": ("compile",),
    "checkpoint": ("checkpoint",),
    "garbage_collection": ("garbage_collection",),
    "logging": ("logging",),
    "os_call": ("os_call",),
    "python": ("python", "unrecorded_code"),
    "launches": ("dispatch", "cuda_call", "launch_latency", "optimizer"),
}
"""Causes of idle time; copies also stand exposed on the device itself."""
_MOST: Final = 0.5  # of what a rank has beyond its peers: a reason for less of it is not the reason
_SAME: Final = 0.9  # of the runs on the same grids: larger inputs change those of elementwise kernels
_PEERS: Final = 16  # are enough for a median
_ALIKE: Final = 1.1  # times as many runs: that alone says so
_MORE: Final = 1.02  # times as many: where these take most of what is beyond
_FEW: Final = 0.05  # of the kernels beyond the peers': a pass has matmuls, and others between them


class WhyLate(Record, eq=False):
    """`reason` with `excess_ns` a step beyond the peers' median, `share` of all that the rank has beyond them.

    `intervals` is all device time of the reason; `place` are fields of a place (`placed`) and `copies`, which way the
    device copies, or the `kernel` with most. `runs` and `peers_runs` are kernels per step, where they are the reason.
    """

    reason: Reason
    excess_ns: float
    share: float = 1.0
    intervals: Intervals = field(default_factory=Intervals.none)
    place: Mapping[str, Any] = field(default_factory=dict)
    runs: float = 0.0
    peers_runs: float = 0.0


def why_host_is_late(trace: Trace, device: Device) -> WhyLate | None:
    """What a device waits for more than its peers do, if that is most of what it has beyond them."""
    peers = [one for one in device_timeline(trace).by_device if one[0] != device[0]]
    peers = peers[:: -(-len(peers) // _PEERS)] if peers else []
    if not peers:
        return None
    waits = {one: _waits(trace, one) for one in (device, *peers)}
    usual = {reason: median([per_step_ns(trace, one, waits[one][reason]) for one in peers]) for reason in _CAUSES}
    beyond = {reason: per_step_ns(trace, device, part) - usual[reason] for reason, part in waits[device].items()}
    reason = max(beyond, key=lambda name: beyond[name])
    share = beyond[reason] / max(sum(ns for ns in beyond.values() if ns > 0), 1.0)
    if beyond[reason] <= 0 or share <= _MOST:
        return None
    part = waits[device][reason]
    place = _placed(trace, device, reason, part)
    if reason == "loader" and (prepared := input_pipeline(trace).by_rank.get(device[0])) and prepared.name:
        place["range"] = prepared.name
    runs = peers_runs = 0.0
    if reason == "launches":
        kernels = beside_peers(trace, device[0])
        runs, peers_runs = kernels.select(pl.sum("runs", "runs_peers")).row(0)
        if runs > _ALIKE * peers_runs > 0:
            return WhyLate(_of_more(kernels), beyond[reason], share, part, place, runs, peers_runs)
    told = _in_operators(trace, device, reason, part)
    return WhyLate(told, beyond[reason], share, part, place, runs, peers_runs)


def _of_more(kernels: pl.DataFrame) -> Reason:
    """Whether kernels beyond the peers' are of passes, which run matmuls and others, or of other work."""
    runs = kernels["runs"] - kernels["runs_peers"]
    beyond = kernels.select("name").with_columns(runs=runs.clip(0))
    products = beyond.filter(of_each(beyond["name"], lambda name: decode(name).family in PRODUCTS, pl.Boolean))
    share = float(products["runs"].sum()) / float(beyond["runs"].sum())
    return "more" if _FEW < share < 1 - _FEW else "other"


def why_host_waits(trace: Trace, device: Device, within: Intervals) -> WhyLate | None:
    """What a device waits for in most of some of its time: of ranks that are late in turn nothing is beyond the peers'
    time, and each has it in the steps in which it is late."""
    waits = {reason: part & within for reason, part in _waits(trace, device).items()}
    reason = max(waits, key=lambda name: waits[name].total_ns)
    part = waits[reason]
    share = part.total_ns / max(within.total_ns, 1)
    if share <= _MOST:
        return None
    told = _in_operators(trace, device, reason, part)
    return WhyLate(told, per_step_ns(trace, device, part), share, part, _placed(trace, device, reason, part))


def _in_operators(trace: Trace, device: Device, reason: Reason, part: Intervals) -> Reason:
    """The reason, but "operators" where most of the host's own work is in long ones, as their rule has it."""
    if reason in ("python", "launches"):
        long_ns = sum((one.intervals & part).total_ns for one in slow_operators(trace) if one.device == device)
        return "operators" if long_ns > _MOST * part.total_ns else reason
    return reason


def _placed(trace: Trace, device: Device, reason: Reason, part: Intervals) -> dict[str, Any]:
    """Where most of that time of a reason is, and `copies`."""
    idle = idle_blame(trace).on(device)
    stretches = picked(idle, idle["cause"].is_in(_CAUSES[reason]))[READ]
    place = placed(trace, stretches, part) if stretches.height else {}
    return {**place, "copies": _direction(trace, device)}


def _direction(trace: Trace, device: Device) -> str | None:
    """Which way most of the time of a device's copies goes: `h2d`, `d2h` or another; None without copies."""
    copies = trace.get(DEVICE_OPS).filter(of_device(device), pl.col("kind") == "copy").drop_nulls("copy_kind")
    ways = copies.group_by(pl.col("copy_kind").cast(pl.String)).agg((pl.col("end_ns") - pl.col("start_ns")).sum())
    return str(ways.sort("end_ns", "copy_kind", descending=[True, False])["copy_kind"][0]) if ways.height else None


def _waits(trace: Trace, device: Device) -> dict[Reason, Intervals]:
    """The device's time by reason."""
    stretches, line = idle_blame(trace).on(device), device_timeline(trace)[device]
    found: dict[Reason, Intervals] = {}
    for reason, causes in _CAUSES.items():
        found[reason] = Intervals.of(picked(stretches, stretches["cause"].is_in(causes)))
    return found | {"copies": found["copies"] | line.exposed_copy}


def why_device_is_late(trace: Trace, device: Device) -> WhyLate | None:
    """Whether a device runs more kernels than its peers do, the same more slowly, or as many on larger inputs.

    Persistent matmuls have one grid whatever their size, so most grids have to be the same before kernels are slower.
    """
    kernels = beside_peers(trace, device[0])
    runs, usual, took_ns, usual_ns = kernels.select(pl.sum("runs", "runs_peers", "length_ns", "length_ns_peers")).row(0)
    beyond_ns = took_ns - usual_ns
    if not usual or beyond_ns <= 0:
        return None
    same = float(kernels.select(pl.min_horizontal("runs", "runs_peers").sum()).item())
    extra = (1 - pl.col("runs_peers") / pl.col("runs")).clip(0).fill_nan(0.0) * pl.col("length_ns")
    reason: Reason = "larger"
    if runs > _ALIKE * usual or (runs > _MORE * usual and kernels.select(extra.sum()).item() > _MOST * beyond_ns):
        reason = _of_more(kernels)
    elif same > _SAME * usual:
        reason = "slower"
    more = kernels.with_columns(beyond_ns=pl.col("length_ns") - pl.col("length_ns_peers"))
    longest = more.group_by("name").agg(pl.col("beyond_ns").sum()).sort("beyond_ns", "name", descending=[True, False])
    return WhyLate(reason, beyond_ns, place={"kernel": longest["name"][0]}, runs=runs, peers_runs=usual)


def _per_step(trace: Trace) -> pl.DataFrame:
    """By rank, name and grid of the kernels that compute: runs and length_ns per steady step."""
    ops, shape = trace.get(DEVICE_OPS), ["name", "grid_x", "grid_y", "grid_z"]
    kernels = ops.filter((class_of_ops(trace) == "compute") & (ops["kind"] == "kernel"))
    steady = collective_waits(trace).job.steps.group_by("rank", "device")
    windows = steady.agg(
        pl.col("start_ns").min().alias("from_ns"), pl.col("end_ns").max().alias("to_ns"), steps=pl.len()
    )
    kernels = kernels.join(windows, on=["rank", "device"]).filter(
        (pl.col("start_ns") >= pl.col("from_ns")) & (pl.col("start_ns") < pl.col("to_ns"))
    )
    runs, length = 1 / pl.col("steps"), (pl.col("end_ns") - pl.col("start_ns")) / pl.col("steps")
    counts = kernels.group_by("rank", *shape).agg(runs.sum().alias("runs"), length.sum().alias("length_ns"))
    return counts.sort("rank", *shape)  # so that sums of them end in the same digits each time


def beside_peers(trace: Trace, rank: int) -> pl.DataFrame:
    """By name and grid of the kernels that compute: runs and length_ns per step of a rank, runs_peers and
    length_ns_peers of the mean of its peers."""
    counts, shape = _per_step(trace), ["name", "grid_x", "grid_y", "grid_z"]
    peers = max(counts["rank"].n_unique() - 1, 1)
    theirs = counts.filter(pl.col("rank") != rank).group_by(shape).agg(pl.col("runs", "length_ns").sum() / peers)
    own = counts.filter(pl.col("rank") == rank).drop("rank")
    both = own.join(theirs, on=shape, how="full", suffix="_peers", coalesce=True, nulls_equal=True)
    return both.sort(shape).with_columns(pl.col("runs", "length_ns", "runs_peers", "length_ns_peers").fill_null(0.0))
