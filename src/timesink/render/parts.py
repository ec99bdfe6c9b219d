"""The parts of a diagnosis that every report for people shows in the same words."""

from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import (
    Card,
    Clear,
    DeviceFigures,
    Diagnosis,
    Evidence,
    Finding,
    NotApplicable,
    StepFigures,
    Undecided,
    Where,
)
from timesink.knowledge.kernel_names import fused_operators, short_name
from timesink.knowledge.step_parts import Bottleneck
from timesink.records import Record
from timesink.render.tables import limit_value_text, quantity_text
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.untrusted import scrub_sentence, shortened
from timesink.views import Sheet, listed

SHOWN_DEVICES = 16
SHOWN_ROWS = 5
SHOWN_MARKER = 60
SHOWN_OTHERS = 4


class Group(Record, eq=False):
    """Findings of one rule, name and advice: the costliest is shown in full, the others by their device."""

    number: int
    card: Card
    first: Finding
    others: tuple[str, ...]


def grouped(diagnosis: Diagnosis) -> list[Group]:
    """Findings by rule, name and advice, in the order of the costliest of each; a thousand ranks make one group."""
    members: dict[tuple[str, str, str], list[tuple[Card, Finding]]] = {}
    for card, finding in diagnosis.findings:
        members.setdefault((card.code, finding.name, finding.advice), []).append((card, finding))
    return [
        Group(number, same[0][0], same[0][1], _others(same[0][1], [finding for _, finding in same[1:]]))
        for number, same in enumerate(members.values(), start=1)
    ]


def _others(first: Finding, findings: list[Finding]) -> tuple[str, ...]:
    shown = tuple(f"{_short(finding, first)}: {saving_text(finding)}" for finding in findings)
    left = len(shown) - SHOWN_OTHERS
    return (*shown[:SHOWN_OTHERS], f"{left} more places (--format json lists them)") if left > 0 else shown


def _short(finding: Finding, first: Finding) -> str:
    """The device of another finding; its message where that is the device of the first finding too."""
    here, there = (Where(rank=item.where.rank, device=item.where.device) for item in (finding, first))
    return place_text(here) if here != there else finding.message


def sources_text(diagnosis: Diagnosis) -> str:
    """The input files, the first two by name."""
    paths = list(dict.fromkeys(str(source.get("path") or "?") for source in diagnosis.sources))
    more = f" and {len(paths) - 2} more files" if len(paths) > 2 else ""
    return ", ".join(paths[:2]) + more


def steps_text(steps: StepFigures) -> str:
    """Step times in one line, and those of the steps timed without a profiler, where the capture timed each."""
    alone = steps.unprofiled
    return _times_text(steps) + (f"; without a profiler {_times_text(alone)}" if alone is not None else "")


def _times_text(steps: StepFigures) -> str:
    """A percentile that needs more steps is left out, and the line says so."""
    origin = f" ({shortened(steps.source, SHOWN_MARKER)})" if steps.source else ""
    dropped = f"; left out: {', '.join(steps.dropped)}" if steps.dropped else ""
    if not steps.count:
        return f"no complete step{origin}{dropped}" if dropped else f"no steps found{origin}"
    percentiles = {"p50": steps.p50_ms, "p90": steps.p90_ms, "p99": steps.p99_ms}
    figures = ", ".join(f"{name} {time_text(ms * NS_PER_MS)}" for name, ms in percentiles.items() if ms is not None)
    missing = [name for name, ms in percentiles.items() if ms is None]
    few = f" ({' and '.join(missing)} need{'s' * (len(missing) == 1)} more steps)" if missing else ""
    covered = "" if (ratio := steps.little_ratio) is None else f"; they cover {share_text(ratio)} of the recording"
    return f"{steps.count} {steps.noun}{origin}: {figures}{few}{dropped}{covered}"


def device_sheet(devices: tuple[DeviceFigures, ...]) -> Sheet:
    """Time budgets: the span, and the share of it that each part takes."""
    rows = []
    for one in devices[:SHOWN_DEVICES]:
        parts_ns = (one.compute_ns, one.exposed_comm_ns, one.exposed_copy_ns, one.idle_ns)
        shares = (part_ns / one.span_ns if one.span_ns else None for part_ns in parts_ns)
        rows.append((one.rank, one.device, one.name or None, one.span_ns, *shares, one.idle_ns))
    left = len(devices) - SHOWN_DEVICES
    note = f"{left} more GPUs are not shown; --rank chooses" if left > 0 else ""
    return listed("parts.devices", rows, note)


def place_text(where: Where) -> str:
    """The known fields in words, what one can open first: `train.py:12, range data_load, rank 0, thread 1234`. Where
    only a thread is known, that it is no place in the program."""
    fields = where.known()
    file, line = fields.pop("file", None), fields.pop("line", None)
    opened = [] if file is None else [f"{file}:{line}" if line is not None else str(file)]
    inner = [f"{name} {fields.pop(name)}" for name in ("op", "kernel", "range", "step") if name in fields]
    places = [*opened, *inner, *(f"{name.replace('device', 'GPU')} {value}" for name, value in fields.items())]
    if "thread" in fields and not opened and not inner:
        places[-1] += ": a capture with stacks names the line"
    return ", ".join(places)


def short_place(where: Where, several: bool) -> str:
    """The one place to open or look for: a line of the program, else an operator or a range, else a kernel; the rank
    where there are several devices. '' where only a thread is known, which is no place."""
    op = short_name(where.op) if where.op and fused_operators(where.op) else where.op
    inner = op or (where.kernel and short_name(where.kernel)) or ""
    named = f"{inner} in {where.range}" if inner and where.range else inner or (where.range and f"range {where.range}")
    if where.file is not None:
        named = where.file if where.line is None else f"{where.file}:{where.line}"
    rank = f"rank {where.rank}" if several and where.rank is not None else ""
    return scrub_sentence(", ".join(part for part in (rank, named) if part))


def evidence_text(fact: Evidence) -> str:
    """A fact in one line: what, how much, against which limit, measured how, from which rows."""
    limit = f" (limit {limit_text(fact)})" if fact.limit else ""
    return f"{fact.label}: {quantity_text(fact.measured)}{limit}; {origin_text(fact)}"


def limit_text(fact: Evidence) -> str:
    """What a fact was compared with."""
    return "" if fact.limit is None else limit_value_text(fact.limit.value, fact.limit.unit)


def origin_text(fact: Evidence) -> str:
    """How a fact was measured, and the rows it can be walked back to."""
    if not fact.rows:
        return f"{fact.how} ({fact.table})" if fact.table else fact.how
    rows = ", ".join(str(row) for row in fact.rows[:SHOWN_ROWS])
    more = f" and {len(fact.rows) - SHOWN_ROWS} more" if len(fact.rows) > SHOWN_ROWS else ""
    noun = "row" if len(fact.rows) == 1 else "rows"
    return f"{fact.how} ({fact.table} {noun} {rows}{more})"


def clear_text(diagnosis: Diagnosis) -> list[str]:
    """The rules that looked and found nothing, by code and name."""
    return [f"{r.card.code} {r.card.name}" for r in diagnosis.rulings if isinstance(r.verdict, Clear)]


def not_applicable_text(diagnosis: Diagnosis) -> list[str]:
    """The rules whose question makes no sense for this trace, and why."""
    inapplicable = ((r.card, r.verdict) for r in diagnosis.rulings if isinstance(r.verdict, NotApplicable))
    return [f"{card.code} {card.name} ({verdict.why})" for card, verdict in inapplicable]


def not_applicable_parts(diagnosis: Diagnosis) -> list[tuple[str, list[str]]]:
    """Why rules do not apply, and which: rules with the same reason share an entry."""
    return [(why, rules) for (why,), rules in _by_reason(diagnosis, NotApplicable, "why")]


def undecided_parts(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """Rules, why they could not decide, and what would let them; rules with the same reason share an entry."""
    reasons = _by_reason(diagnosis, Undecided, "why", "to_decide")
    return [(", ".join(rules), why, to_decide) for (why, to_decide), rules in reasons]


def _by_reason(diagnosis: Diagnosis, kind: type, *names: str) -> list[tuple[tuple[str, ...], list[str]]]:
    together: dict[tuple[str, ...], list[str]] = {}
    for ruling in diagnosis.rulings:
        if isinstance(ruling.verdict, kind):
            reason = tuple(getattr(ruling.verdict, name) for name in names)
            together.setdefault(reason, []).append(f"{ruling.card.code} {ruling.card.name}")
    return list(together.items())


def verdict_colour(bottleneck: Bottleneck) -> str:
    """Green where nothing limits the step, yellow where nobody can tell, red for a bottleneck."""
    return {Bottleneck.NONE: "green", Bottleneck.UNDECIDED: "yellow"}.get(bottleneck, "red")
