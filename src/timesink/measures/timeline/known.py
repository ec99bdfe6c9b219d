"""What a capture shows and what it cannot, decided once and before any rule.

Rules ask it for what they need (`Known.lacks`): device time of an empty device is not "clear". Where it has `doubts`,
that no rule found anything proves nothing. Words for what the program is come from here too: a loader of PyTorch is no
advice to a program of OpenMP.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import polars as pl

from timesink.knowledge.calls import LAUNCH, CallKind, call_kinds
from timesink.knowledge.kernel_traits import CUT, MIGRATION, OF_BACKWARD
from timesink.knowledge.profiler_texts import LOST_GPU_EVENTS
from timesink.knowledge.programs import SIGNS, ProgramKind
from timesink.knowledge.ranges import AUTOGRAD_OPERATOR, OPTIMIZER_STEP
from timesink.knowledge.vendors import Vendor, vendor_of_calls, vendor_of_product
from timesink.measures.steps import steps
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.quality import graph_capture, head_count
from timesink.measures.timeline.start_up import StartUp, start_up
from timesink.model.names import matches
from timesink.model.schema import Table
from timesink.model.tables import (
    API_CALLS,
    COMPILE_EVENTS,
    DEVICE_OPS,
    DEVICES,
    FRAMES,
    HOST_OPS,
    KERNEL_METRICS,
    KERNEL_PROFILES,
    MEMORY_EVENTS,
    MEMORY_SEGMENTS,
    RANGES,
    THREADS,
)
from timesink.model.trace import NoteKind, Trace, remembered
from timesink.records import Record
from timesink.startup import regex
from timesink.units import NS_PER_US, share_text, time_text

_MOSTLY: Final = 0.5


class Lack(NamedTuple):
    """Why something cannot be told from a capture, as a clause, and the capture or command that tells it."""

    why: str
    to_decide: str


class Known(Record, eq=False):
    """What is known of a capture.

    `products` are the devices that the file names, `vendor` is the maker of the first. `is_of_device` says whether it
    holds anything of a device: what it lacks then takes another kind of capture. `launches` are calls that launch a
    kernel, a graph or a copy. `bar` is why no rule may look at all, `lacks` why a table cannot be judged from,
    `missing` what was visibly lost, `hides_work` whether that is work of the device, so that idle time may be none,
    `too_little` why nothing recurs in it that anybody could tell, and `doubts` why it proves nothing that no rule found
    anything.
    """

    products: tuple[str, ...]
    vendor: Vendor
    program: ProgramKind
    is_of_device: bool
    launches: int
    bar: Lack | None
    lacks: Mapping[Table, Lack]
    missing: tuple[Lack, ...]
    hides_work: bool
    too_little: Lack | None
    doubts: tuple[Lack, ...]


@remembered
def known(trace: Trace) -> Known:
    """Decide it."""
    products = tuple(filter(None, trace.get(DEVICES)["name"].unique(maintain_order=True)))
    vendor = next(filter(None, map(vendor_of_product, products)), None)
    vendor = vendor or vendor_of_calls(trace.get(API_CALLS)["name"].unique().to_list())
    launches, without_record = _launches(trace)
    losses = tuple(_losses(trace, vendor, launches, without_record))
    missing, little = tuple(loss.lack for loss in losses if loss.share >= _VISIBLY), _too_little(trace, vendor)
    return Known(
        products=products,
        vendor=vendor,
        program=program_kind(trace),
        is_of_device=any(trace.get(table).height for table in _OF_DEVICE),
        launches=launches,
        bar=_bar(trace, without_record > trace.get(DEVICE_OPS).height),
        lacks={loss.table: loss.lack for loss in reversed(losses) if loss.share >= _MOSTLY} | _silence(trace),
        missing=missing,
        hides_work=any(loss.hides_work for loss in losses if loss.share >= _VISIBLY),
        too_little=little,
        doubts=missing if little is None else (*missing, little),
    )


_OF_DEVICE: Final = (DEVICE_OPS, KERNEL_PROFILES, KERNEL_METRICS, MEMORY_EVENTS, MEMORY_SEGMENTS)


def _launches(trace: Trace) -> tuple[int, int]:
    """Calls that launch kernels, graphs or copies, and how many of them have no device work in the file though a later
    one of their process has, or it waited for all work of the GPU: what was still queued when the recording ended is
    not lost, nor what a graph captured."""
    calls = trace.get(API_CALLS)
    kinds = call_kinds(calls["name"])
    launching = matches(calls["name"], LAUNCH).to_numpy() | (kinds == CallKind.COPY) | (kinds == CallKind.COPY_BLOCKING)
    has_work = launch_links(trace).launching(calls.height)
    if (launching <= has_work).all() or graph_capture(trace).captured_ns:
        return int(launching.sum()), 0
    last = pl.col("start_ns").filter("has_run").max().over("rank", "process")
    has_run = has_work | (kinds == CallKind.DEVICE_SYNC)
    lost = calls.with_columns(has_work=has_work, has_run=has_run, launching=launching).select(
        pl.col("launching") & ~pl.col("has_work") & (pl.col("start_ns") < last).fill_null(True)
    )
    return int(launching.sum()), int(lost.to_series().sum())


@remembered
def program_kind(trace: Trace) -> ProgramKind:
    """By operators and frames, which PyTorch's profiler alone records; else by names, a kind's own sign first."""
    if any(trace.get(table).height for table in (HOST_OPS, FRAMES, MEMORY_SEGMENTS)):
        return ProgramKind.PYTORCH
    for program, sign in SIGNS:
        if any(matches(trace.get(table)["name"].cast(pl.Categorical), sign).any() for table in _NAMED):
            return program
    return ProgramKind.NATIVE


_NAMED: Final = (DEVICE_OPS, RANGES, KERNEL_PROFILES, THREADS)


def _bar(trace: Trace, is_lost: bool) -> Lack | None:
    """Why no rule may look: what was recorded is no run of the program. Where more is lost than recorded, nobody knows
    when it ran."""
    captured_share, start = graph_capture(trace).share, start_up(trace)
    if captured_share >= _MOSTLY:
        return Lack(
            f"{share_text(captured_share)} of the trace is the capture of a CUDA graph, in which kernels do not run",
            "record steps that replay the graphs, and give this file with --capture",
        )
    if start.is_most and steps(trace).times.count < 2 and not is_lost:
        return Lack(
            said_of_start(start, f"{share_text(start.share)} of the {time_text(start.span_ns)} capture"),
            "record later steps, as timesink capture does (nsys: --delay)",
        )
    return None


def said_of_start(start: StartUp, part: str) -> str:
    """What part of the time is start-up, and what it is made of."""
    longest = start.longest.rpartition(": ")[2]  # what autograd's engine evaluates
    is_start = f"{part} is start-up, which happens once"
    if start.count == 1 or time_text(start.longest_ns) == time_text(start.idle_ns):  # the others take nothing
        return f"{is_start}: {longest} keeps the GPU waiting for {time_text(start.idle_ns)}"
    what = "First runs of operators" if start.of_runs else f"{start.count} runtime calls"
    alone = f"{longest} alone for {time_text(start.longest_ns)}"
    return f"{is_start}. {what} keep the GPU waiting for {time_text(start.idle_ns)}, {alone}"


class _Loss(NamedTuple):
    """What was lost, the table that it makes doubtful, which share of it, and whether the device worked meanwhile."""

    table: Table
    share: float
    lack: Lack
    hides_work: bool = False


_VISIBLY: Final = 0.01  # none of 120 captures of programs and public files that are whole loses as much
_LEAST_OPS: Final = 10  # a step of a program launches more
LEAST_NS: Final = 100 * NS_PER_US  # a program whose whole run is as short is no program that anybody tunes


def _losses(trace: Trace, vendor: Vendor, launches: int, without_record: int) -> Iterator[_Loss]:
    """What the capture visibly lost, the gravest first."""
    ops, calls = trace.get(DEVICE_OPS).height, trace.get(API_CALLS).height
    if not ops:
        if DEVICE_OPS in trace.tables or launches:
            called = f"{launches:,} launches and copies were called, and no record of the {vendor.unit}'s side"
            yield _Loss(DEVICE_OPS, 1.0, Lack(called if launches else f"no {vendor.unit} work was recorded", _AGAIN))
        return
    if not trace[DEVICE_OPS]["kind"].is_in(["kernel", "graph"]).any():
        warned = [note.message for note in trace.notes if note.kind.is_loss and LOST_GPU_EVENTS.search(note.message)]
        if warned:
            yield _Loss(DEVICE_OPS, 1.0, Lack(f"no kernel was recorded, and {warned[0]}", _ENDED))
    if not calls:
        yield _Loss(API_CALLS, 1.0, Lack(f"the capture has GPU work and no {vendor.runtime} calls", _AGAIN))
    for note in trace.notes:
        if note.kind is NoteKind.DATA_LOSS and note.table == DEVICE_OPS.name and note.count:
            share, is_of_a_kind = note.count / (note.of or ops), 0 < note.of < ops
            most = _NOT_ALL if is_of_a_kind else 1.0
            yield _Loss(DEVICE_OPS, min(share, most), Lack(f"{note.count:,} {note.message}", _AGAIN))
    if share := min(_unreadable(trace), _NOT_ALL):
        yield _Loss(DEVICE_OPS, share, Lack("names of kernels are cut or missing, which say what they do", _AGAIN))
    if launches:
        why = f"the file lacks the {vendor.unit}'s side of {without_record:,} of {launches:,} launches and copies"
        yield _Loss(DEVICE_OPS, without_record / launches, Lack(why, _AGAIN), hides_work=True)
    if calls and (unlaunched := _unlaunched(trace)):
        why = f"the file lacks the {vendor.runtime} calls of {unlaunched:,} of {ops:,} records of {vendor.unit} work"
        yield _Loss(API_CALLS, unlaunched / ops, Lack(why, _AGAIN))


def _unreadable(trace: Trace) -> float:
    """The share of GPU work that has no name, or one that is cut: so long as all of them are at most, and one of that
    length names a function of C++ by what it returns and not by what it takes: ``void at::nat``."""
    names = trace[DEVICE_OPS]["name"]
    each = names.unique().to_list()
    most = max(map(len, each), default=0)
    longest = [name for name in each if len(name) == most]
    lost = longest if any(map(_IS_CUT.search, longest)) else [name for name in each if not name]
    return int(names.is_in(lost).sum()) / len(names) if lost else 0.0


_IS_CUT: Final = regex(CUT)


def _too_little(trace: Trace, vendor: Vendor) -> Lack | None:
    """What a capture without steps, or of guessed ones, says where it holds next to nothing."""
    ops, found = trace.get(DEVICE_OPS).height, steps(trace)
    if not ops or (found.windows.height and found.origin != "guessed"):
        return None
    span_ns = max(line.span_ns for line in device_timeline(trace))
    if ops >= _LEAST_OPS and span_ns >= LEAST_NS:
        return None
    records = "1 record" if ops == 1 else f"{ops:,} records"
    what = f"the capture holds only {records} of {vendor.unit} work"
    if ops == len(trace[DEVICE_OPS].filter(pl.col("kind") == "graph")):
        return Lack(f"{what}, each a whole CUDA graph", "timesink capture nsys -- python train.py")
    return Lack(what, "record ten steps of the program")


def _unlaunched(trace: Trace) -> int:
    """Device work without a launch record after the first that has one, but for what the driver does by itself."""
    is_own = ~matches(trace[DEVICE_OPS]["name"], MIGRATION).to_numpy() & ~launch_links(trace).linked
    return max(int(is_own.sum()) - head_count(trace), 0)


_NOT_ALL: Final = 0.49  # one kind of rows, such as copies, is not all that rules over device time look at


def is_silent(trace: Trace) -> bool:
    """Whether the trace has a compiler's log that tells no event: TORCH_LOGS may not have asked for any."""
    return COMPILE_EVENTS in trace and not trace[COMPILE_EVENTS].height


def _silence(trace: Trace) -> dict[Table, Lack]:
    """A compiler's log that says nothing is no proof that nothing happened."""
    why = "the log has no graph break and no recompilation, which means none if TORCH_LOGS named them"
    return {COMPILE_EVENTS: Lack(why, "TORCH_LOGS=graph_breaks,recompiles python train.py")} if is_silent(trace) else {}


_AGAIN: Final = "timesink capture nsys -- python train.py"
_ENDED: Final = f"let every process end by itself (a Ray actor by ray.actor.exit_actor), then {_AGAIN}"


@remembered
def trains(trace: Trace) -> bool:
    """Whether steps end in an update of the model, so that items of one step cannot overlap those of the next."""
    names = pl.concat([trace.get(table)["name"].cast(pl.String).unique() for table in (RANGES, HOST_OPS)])
    kernels = trace.get(DEVICE_OPS)["name"].unique()
    return bool(matches(names, f"{OPTIMIZER_STEP}|{AUTOGRAD_OPERATOR}").any() or matches(kernels, OF_BACKWARD).any())
