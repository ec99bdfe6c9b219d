"""The tables of `timesink ranks`.

Its notes say what must be known before any figure: ranks that differ, are missing, or could not be
read.
"""

from collections.abc import Callable

import polars as pl

from timesink.cluster.run import Run, run_in
from timesink.diagnosis.engine import ruling_of
from timesink.diagnosis.rule import rule_texts
from timesink.diagnosis.verdicts import Found, Undecided
from timesink.diagnosis.words import number
from timesink.knowledge.assumptions import steps as assumed
from timesink.measures.communication.pipelines import pipeline_of
from timesink.measures.communication.waits import CollectiveWaits, bandwidth, channels, waits_by_step, waits_of
from timesink.measures.ranks.lateness import Lateness, even_gain, lateness_of, latest_rank, may_hide, rebalanced
from timesink.measures.ranks.parity import differences, missing_text, ranks_text
from timesink.model.trace import Trace
from timesink.rules.communication.ranks import SIDES, few_text, unsure_text
from timesink.units import share_text, time_text
from timesink.views import Page, Sheet, listed
from timesink.views.figures import HeatChart

_NAMED = 8  # more files are counted, not named


def notes_of(run: Run, waits: CollectiveWaits) -> tuple[str, ...]:
    """Sentences, the differences between ranks first."""
    sentences = [f"ranks differ: {difference.text}" for difference in differences(run.job.parity)]
    sentences += filter(None, [missing_text(run.job.members)])
    sentences += [f"{path} is left out: {reason}" for path, reason in run.quarantined[:_NAMED]]
    if len(run.quarantined) > _NAMED:
        sentences.append(f"{len(run.quarantined) - _NAMED} more files could not be read")
    sentences += [f"{path} is damaged: {reason}" for path, reason in run.damaged[:_NAMED]]
    if run.assumed:
        sentences.append(run.assumed)
    if run.lost_count:
        sentences.append(f"{run.lost_count} damaged records were left out")
    if waits.clocks.assumed_shared:
        sentences.append("no file names its host; GPU numbers and offsets say that all ranks share one, and so a clock")
    inconsistent = [clock for clock in waits.clocks.clocks if not clock.consistent]
    if inconsistent:
        ranks = tuple(rank for clock in inconsistent for rank in clock.ranks)
        sentences.append(
            f"the collectives of {ranks_text(ranks)} contradict any constant clock: matched wrongly, or drifting"
        )
    return tuple(sentences)


Look = Callable[[int], str | None]
"""What `late_in` says of a trace that holds this rank and peers of it; None where there is none."""


def ranks_page(run: Run, top: int, look: Look = lambda _: None) -> Page:
    """Everything that is known only from all ranks together; `look` reads the late one."""
    waits, job = waits_of(run.job), run.job
    late = lateness_of(waits)
    sheets = [_late(waits, late, top), _budgets(waits, top), _steps(run, top), _kinds(waits), _arrivals(waits, top)]
    if waits.pairs.height:
        sheets.append(_channels(waits, top))
    sheets.append(_clocks(waits, top))
    if (rates := bandwidth(waits)).height:
        sheets.append(_rates(rates))
    if (line := pipeline_of(job)) is not None:
        stages = [(stage.name, stage.time_ns) for stage in line.overlap.stages][:top]
        note = f"step {time_text(line.overlap.period_ns)}; stages stand still {100 * line.overlap.bubble_ratio:.1f} %"
        sheets.append(listed("ranks.pipeline", stages, note))
    title = f"{number(len(job.ranks), 'rank')} of {number(run.file_count, 'file')}"
    charts = () if (heat := heat_of(waits)) is None else (heat,)
    return Page(f"{title}: {ranks_verdict(waits, late, look)}", tuple(sheets), notes_of(run, waits), charts=charts)


def page_of_trace(trace: Trace, top: int) -> Page:
    """The same of the ranks that one trace holds."""
    return ranks_page(run_in(trace), top, lambda _: late_in(trace))


SHOWN_ROWS = 64  # of a heat map: more than a screen tells apart
SHOWN_COLUMNS = 100  # of a heat map: cells of eight pixels


def heat_of(waits: CollectiveWaits) -> HeatChart | None:
    """How long each rank waited for others in each step; None where there is one rank, or no communication."""
    frame = waits_by_step(waits)
    ranks, numbers = frame["rank"].unique().sort().to_list(), frame["step"].unique().sort().to_list()
    if len(ranks) < 2 or not (frame["wait_ns"] + frame["transfer_ns"]).sum():
        return None
    row_of, rows = _grouped(ranks, SHOWN_ROWS)
    column_of, columns = _grouped(numbers, SHOWN_COLUMNS)
    cells: dict[tuple[int, int], list[float]] = {}
    for rank, step, wait_ns in frame.select("rank", "step", "wait_ns").iter_rows():
        cells.setdefault((row_of[rank], column_of[step]), []).append(wait_ns)
    values = tuple(
        tuple(sum(some) / len(some) if (some := cells.get((row, column))) else None for column in range(len(columns)))
        for row in range(len(rows))
    )
    return HeatChart("waited for other ranks, while nothing was computed", "rank", "step", rows, columns, values)


def _grouped(numbers: list[int], most: int) -> tuple[dict[int, int], tuple[str, ...]]:
    """The group of each number, and the groups' names: neighbours share one where there are more than `most`."""
    each = -(-len(numbers) // most)
    groups = [numbers[at : at + each] for at in range(0, len(numbers), each)]
    names = tuple(str(some[0]) if len(some) == 1 else f"{some[0]}–{some[-1]}" for some in groups)
    return {number: at for at, some in enumerate(groups) for number in some}, names


def ranks_verdict(waits: CollectiveWaits, late: Lateness, look: Look = lambda _: None) -> str:
    """Which rank is late and what the job gains without that, by the rule that `timesink diagnose` goes by."""
    if len(waits.job.ranks) < 2:
        return "nothing to compare it with"
    if not waits.matched.calls.height:
        return "no collective of one rank has a counterpart on another"
    members = waits.job.members
    stood_ns, waited_ns = int(members["exposed_communication_ns"].sum()), int(waits.calls["exposed_wait_ns"].sum() or 0)
    waiting = f"Of {time_text(stood_ns)} exposed communication of all ranks {time_text(waited_ns)} is waiting"
    limits = rule_texts("straggler").limits
    if late.anchors.size < limits["collectives"].default:
        return f"{few_text(late)}. {waiting}"
    worst, limit = latest_rank(late, waits.job.ranks), limits["gain_ratio"].default
    said = look(worst.rank) if worst.is_late(limit) else ""
    if said is not None:
        return f"{said or _nobody_alone(waits, late, limit)}. {waiting}"
    row, late_by = late.of_rank(worst.rank)
    count, side = f"{row['late_count']} of {row['anchors']} collectives", SIDES[late_by][0]
    gain = f"without that the job, as it was recorded, gains {share_text(worst.gain_ratio)}"
    return f"rank {worst.rank} is late to {count} because of {side}; {gain}. {waiting}"


def late_in(trace: Trace) -> str:
    """What a diagnosis of the trace says of a late rank, or why it cannot; empty where it names none."""
    match ruling_of("straggler", trace).verdict:
        case Undecided(why, to_decide):
            return f"{why} (to decide: {to_decide})"
        case Found((first, *_)):
            return first.message
        case _:
            return ""


def _nobody_alone(waits: CollectiveWaits, late: Lateness, limit: float) -> str:
    """What is said where no rank is late by itself: that clocks leave it open, that several take turns, or that nobody
    is."""
    worst = latest_rank(late, waits.job.ranks)
    if may_hide(waits, late, limit) and (unsure := unsure_text(waits, lateness_of(waits, as_if_exact=True), limit)):
        return f"no rank is late for sure: {unsure}"
    if in_turns := _late_in_turns(late):
        return f"no single straggler; {in_turns}"
    gain = share_text(worst.gain_ratio)
    return f"no straggler (without the lateness of rank {worst.rank} the job gains {gain})"


def _late_in_turns(late: Lateness) -> str:
    """Which ranks take turns at being late and what the job gains without that, by the limit that `timesink diagnose`
    goes by; '' where it is less."""
    gain = even_gain(late)
    if late.is_of_one or gain <= rule_texts("ranks-imbalanced").limits["gain_ratio"].default:
        return ""
    return f"{ranks_text(tuple(late.own_ns))} take turns at being late, which costs the job {share_text(gain)}"


def _budgets(waits: CollectiveWaits, top: int) -> Sheet:
    """The ranks that stood exposed in communication longest first."""
    split = waits.calls.group_by("rank", "device").agg(pl.col("exposed_wait_ns", "exposed_transfer_ns").sum())
    span = (pl.col("end_ns") - pl.col("start_ns")).alias("span_ns")
    frame = (
        waits.job.members.with_columns(span)
        .join(split, on=["rank", "device"], how="left")
        .sort("exposed_communication_ns", "rank", "device", descending=[True, False, False], nulls_last=True)
    )
    total = int(waits.job.members["exposed_communication_ns"].sum())
    note = (
        f"compute + exposed communication + exposed copies + idle = span; exposed communication of all ranks together: "
        f"{time_text(total)}; waiting and transfer are known of collectives that were matched"
    )
    if copied := int(waits.job.members["peer_copy_ns"].sum()):
        note += f"; copies from GPU to GPU, which no other rank takes part in, run {time_text(copied)}"
    return listed("ranks.budgets", frame.head(top), note)


def _steps(run: Run, top: int) -> Sheet:
    """Step periods by rank, the slowest first."""
    period = pl.col("end_ns") - pl.col("start_ns")
    frame = (
        run.job.steps.group_by("rank")
        .agg(
            pl.len().cast(pl.Int64).alias("steps"),
            period.median().alias("p50_ns"),
            # By the definition of p90.
            pl.when(pl.len() >= assumed.P90_NEEDS.whole).then(period.quantile(0.9)).alias("p90_ns"),
            # By the definition of p99.
            pl.when(pl.len() >= assumed.P99_NEEDS.whole).then(period.quantile(0.99)).alias("p99_ns"),
            pl.col("compute_ns").median(),
        )
        .sort("p50_ns", "rank", descending=[True, False])
    )
    return listed("ranks.steps", frame.head(top))


def _kinds(waits: CollectiveWaits) -> Sheet:
    frame = (
        waits.calls.group_by("kind", "group", "size")
        .agg(
            pl.col("instance").n_unique().cast(pl.Int64).alias("count"),
            pl.col("wait_ns", "transfer_ns", "exposed_wait_ns", "exposed_transfer_ns").sum(),
        )
        .sort("wait_ns", "kind", "group", "size", descending=[True, False, False, False], nulls_last=True)
    )
    matched = waits.matched
    note = f"times of all ranks summed; {100 * matched.unmatched_ratio:.1f} % of calls have no counterpart"
    if matched.by_order_count:
        note += f"; {matched.by_order_count} calls without sequence numbers were matched by their order"
    sends = waits.paired
    if sends.call_count:
        note += f"; {100 * sends.unmatched_ratio:.1f} % of {sends.call_count} sends and receives have none"
    if left := matched.one_sided_count - sends.call_count:
        note += f"; {left} one-sided calls are left out"
    return listed("ranks.collectives", frame, note)


def _channels(waits: CollectiveWaits, top: int) -> Sheet:
    """Who sends how much to whom, the channels that are waited for longest first."""
    return listed("ranks.channels", channels(waits).head(top))


def _arrivals(waits: CollectiveWaits, top: int) -> Sheet:
    """The collectives at which most was waited, and who came last to them."""
    frame = waits.instances.sort("wait_sum_ns", "instance", descending=[True, False]).head(top).sort("instance")
    return listed("ranks.arrivals", frame)


def _late(waits: CollectiveWaits, late: Lateness, top: int) -> Sheet:
    frame = late.ranks.sort("own_ns", "last_count", "rank", descending=[True, True, False]).head(top)
    gains = [rebalanced(late, [rank]) for rank in frame["rank"]]
    frame = frame.with_columns(pl.Series("gain_ratio", gains, pl.Float64))
    worst = waits.clocks.worst_error_ns
    accuracy = "clocks are not limited on every rank" if worst is None else f"clocks known to {time_text(worst)}"
    note = (
        "own: delay against the median rank since the last collective, without inherited delay; under the clock error "
        f"it counts 0 ({accuracy}); the gain is replayed"
    )
    return listed("ranks.lateness", frame, note)


def _clocks(waits: CollectiveWaits, top: int) -> Sheet:
    rows = (
        (
            *(ranks_text(clock.ranks), clock.offset_ns, clock.error_ns, clock.residual_ns),
            round(clock.drift_ratio * 1e6, 3),  # digits that mean something
            *(clock.calls, "yes" if clock.consistent else "no"),
        )
        for clock in sorted(waits.clocks.clocks, key=lambda clock: (-(clock.error_ns or 0), clock.ranks))[:top]
    )
    note = "offset against the first rank's clock: a median; the error is what causality proves at drifts up to 500 ppm"
    if waits.clocks.shared_clock_ok is not None:
        agrees = "agree" if waits.clocks.shared_clock_ok else "do not agree"
        note += f"; ranks said to share a clock {agrees} with it"
    return listed("ranks.clocks", rows, note)


def _rates(frame: pl.DataFrame) -> Sheet:
    return listed("ranks.bandwidth", frame)
