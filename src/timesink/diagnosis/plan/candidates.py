"""Which changes a trace could use, and what each changes in its graph, given the others that are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast

import numpy as np

from timesink.diagnosis.plan.catalogue import CHANGES, Effort, PlannedChange
from timesink.diagnosis.pricing import worth_ms
from timesink.diagnosis.verdicts import Card, Diagnosis, Finding
from timesink.measures.communication.schedules import trains
from timesink.measures.habits.repeated_calls import layers, repeated_calls
from timesink.measures.habits.repeated_kernels import parameter_loops
from timesink.measures.kernels.conversions import layout_kernels
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.kernels.fusion import eager_runs, optimizer_kernels, unfused_attention
from timesink.measures.kernels.precision import four_byte_kernels, wide_kernels
from timesink.measures.kernels.shapes import misaligned_products
from timesink.measures.kernels.small_grids import small_grids
from timesink.model.record import dataclass, replace
from timesink.model.trace import Trace
from timesink.whatif.change import Change, Selection, Touches
from timesink.whatif.changes import compiling, precision
from timesink.whatif.changes import kernels as fixes
from timesink.whatif.changes.host import CaptureGraph, RemoveSyncs
from timesink.whatif.changes.kernels import ShortenKernels
from timesink.whatif.changes.optimizer import FuseOptimizer
from timesink.whatif.changes.transfers import PinCopies

Chosen = frozenset[str]


@dataclass(frozen=True, slots=True)
class Beside:
    """What a change is made beside: the others that are `chosen`, itself among them, whether they leave the device less
    to do (`eased`), and the `rules` that found something in the trace."""

    chosen: Chosen
    eased: bool
    rules: frozenset[str]

    @property
    def launches_count(self) -> bool:
        """Whether launches hold the device up: a rule says so, or other changes have left it less to do."""
        return self.eased or bool(self.rules & _LAUNCHES)


Build = Callable[[Trace, Beside], Iterable[Change]]
Named = tuple[Card, Finding]
_COMPILES: Final = frozenset({"compile", "compile_graph"})
_DOES_MORE: Final = _COMPILES | {"bf16", "foreach"}  # than a finding that it repairs asks for
OF_LAUNCHES: Final = _COMPILES | {"cuda_graph"}
"""Changes of launches themselves."""
_LAUNCHES: Final = frozenset({"launch_bound", "tiny_kernels", "host_python"})
_NO_CHANGE: Final = frozenset({"slow_steps", "profiler_overhead"})  # the cause, and its change, has another rule


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A change, the findings that it repairs (none where only the replay says that it wins), and how to make it."""

    change: PlannedChange
    findings: tuple[Named, ...]
    build: Build | None
    rules: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """The id of the change."""
        return self.change.id

    @property
    def mends_a_cause(self) -> bool:
        """Whether a finding asks for it that is no symptom of another."""
        return any(not card.symptom for card, _ in self.findings)

    @property
    def claims(self) -> bool:
        """Whether it does what its findings propose, by a replay, and nothing else."""
        own = [finding for _, finding in self.findings]
        return self.id not in _DOES_MORE and bool(own) and all(_is_replayed(f) and f.claim.total_ns for f in own)

    def parts(self, trace: Trace, rank: int, chosen: Chosen, eased: bool) -> tuple[Change, ...]:
        """What it changes on a rank beside the others (`Beside`); empty where its gain is stated or a bound."""
        if self.build is not None:
            return tuple(
                part
                for part in self.build(trace, Beside(chosen, eased, self.rules))
                if _rank_of(part, rank) == rank and _works(part)
            )
        proposed = [cast("Change | None", finding.change) for _, finding in self.findings if _on(finding, rank)]
        return tuple(part for part in proposed if part is not None)

    def on_rank(self, rank: int) -> tuple[Finding, ...]:
        """Its findings of a rank."""
        return tuple(finding for _, finding in self.findings if _on(finding, rank))

    def unreplayed(self, rank: int) -> tuple[Finding, ...]:
        """Findings of a rank whose gain no replay says."""
        if self.build is not None:
            return ()
        return tuple(finding for finding in self.on_rank(rank) if finding.change is None)


def candidates(diagnosis: Diagnosis) -> tuple[Candidate, ...]:
    """Every change of the catalogue that repairs a finding or that a replay can price, then findings without one."""
    left = [named for named in diagnosis.findings if _rule_name(named[0]) not in _NO_CHANGE]
    rules = frozenset(_rule_name(card) for card, _ in diagnosis.findings)
    found = []
    for change in CHANGES:
        own = tuple(named for named in diagnosis.findings if _repairs(change, named))
        left = [named for named in left if named not in own]
        build = _BUILT.get(change.id) or (None if own else _UNASKED.get(change.id))
        if own or build is not None:
            found.append(Candidate(change, own, build, rules))
    by_rule: dict[str, list[Named]] = {}
    for named in left:
        if named[1].counted_in and not worth_ms(named[1]):
            continue  # a symptom of what another finding's change takes away
        by_rule.setdefault(_rule_name(named[0]), []).append(named)
    for name, own_findings in by_rule.items():
        words = own_findings[0][1].advice.partition(". ")[0].rstrip(".")
        found.append(Candidate(PlannedChange(name, words, Effort.UNKNOWN, (name,)), tuple(own_findings), None, rules))
    return tuple(found)


def _repairs(change: PlannedChange, named: Named) -> bool:
    card, finding = named
    if _rule_name(card) not in change.rules:
        return False
    return not change.labels or (finding.change is not None and finding.change.label in change.labels)


def _rule_name(card: Card) -> str:
    return card.name.replace("-", "_")


def _is_replayed(finding: Finding) -> bool:
    """Whether a replay prices what it proposes; kernels that only get shorter are priced by their time."""
    change = cast("Change | None", finding.change)
    return change is not None and not (isinstance(change, ShortenKernels) and change.touches is Touches.DEVICE)


def _on(finding: Finding, rank: int) -> bool:
    return (finding.where.rank or 0) == rank


def _rank_of(change: Change, rank: int) -> int:
    """The rank whose kernels a change is of; any where it is of the host."""
    device = getattr(change, "device", None)
    return rank if device is None else int(device[0])


def _works(change: Change) -> bool:
    rows = getattr(change, "rows", None)
    return rows is None or bool(rows.size)


def _bf16(trace: Trace, beside: Beside) -> Iterable[Change]:
    """Products may be misaligned in 16 bits, unless a compiler pads them; it fuses the casts, too."""
    compiled, padded = (bool(beside.chosen & some) for some in (_COMPILES, {"padding"}))
    checked = "debugging_left_on" in beside.rules and "drop_debugging" not in beside.chosen
    for kernels in four_byte_kernels(trace):
        part = _aligned(kernels) if compiled or padded else kernels
        own = kernel_facts(trace).on(kernels.device)
        convolutions = own.filter(own["family"] == "convolution")["row"].to_numpy()
        yield precision.autocast(part, compiled, trains(trace), checked, convolutions)


def _aligned(kernels: Selection) -> Selection:
    groups = dict(kernels.groups)
    groups["tf32"] = np.union1d(groups["tf32"], groups.pop("misaligned"))
    return replace(kernels, groups=groups)


def _attention(trace: Trace, beside: Beside) -> Iterable[Change]:
    """In 16 bits a fused kernel is fast, whatever the type was before."""
    for part in unfused_attention(trace):
        yield fixes.fuse_attention(_narrowed(part) if "bf16" in beside.chosen else part, beside.launches_count)


def _narrowed(kernels: Selection) -> Selection:
    groups = {role.removesuffix("_wide"): rows for role, rows in kernels.groups.items()}
    return Selection(kernels.device, groups)


def _compile(trace: Trace, beside: Beside) -> Iterable[Change]:
    """Eager runs of the model become one kernel each, and the compiler pads products; loops over parameters are no part
    of the model. Launches count where they hold the device up: elsewhere a replay of a host that the profiler slows
    would promise too much."""
    loops = np.concatenate([np.empty(0, np.int64), *(work.rows for work in parameter_loops(trace))])
    for runs in eager_runs(trace):
        of_model = {role: np.setdiff1d(rows, loops) for role, rows in runs.groups.items()}
        yield from compiling.compiled(replace(runs, groups=of_model), beside.launches_count)
    if beside.launches_count:
        for found in layers(trace):
            yield compiling.EnterRegions(found.device, found.rows, trains(trace))
    yield from map(fixes.align_products, misaligned_products(trace))


def _batched(trace: Trace, beside: Beside) -> Iterable[Change]:
    """Calls of a model in a row become one; small grids that a rule found are spread as it says."""
    yield from map(fixes.batch_calls, repeated_calls(trace))
    if "small_grids" in beside.rules:
        yield from map(fixes.spread_grids, small_grids(trace))


def _channels_last(trace: Trace, beside: Beside) -> Iterable[Change]:
    for found in layout_kernels(trace):
        yield fixes.keep_layout(found, beside.launches_count)
        yield fixes.convert_groups(found)


def _compile_graph(trace: Trace, beside: Beside) -> Iterable[Change]:
    if beside.launches_count:
        yield from _compile(trace, beside)
        yield CaptureGraph()


_BUILT: Final[Mapping[str, Build]] = {
    "tf32": lambda trace, _: map(precision.to_tf32, wide_kernels(trace).get("fp32", ())),
    "bf16": _bf16,
    "compile": _compile,
    "compile_graph": _compile_graph,
    "cuda_graph": lambda _, beside: (CaptureGraph(),) if beside.launches_count else (),
    "batch_small_calls": _batched,
    "fused_attention": _attention,
    "fused_optimizer": lambda trace, _: (FuseOptimizer.of(found.unfused) for found in optimizer_kernels(trace)),
    "foreach": lambda trace, _: (
        FuseOptimizer.over_lists(found.unfused) for found in optimizer_kernels(trace) if found.one_by_one
    ),
    "remove_sync": lambda *_: (RemoveSyncs(),),
    "channels_last": _channels_last,
    "padding": lambda trace, _: map(fixes.align_products, misaligned_products(trace)),
}
_UNASKED: Final[Mapping[str, Build]] = {"pin_memory": lambda *_: (PinCopies(),)}
"""The same where no finding proposes what to change: the profiler may hide what waits."""
