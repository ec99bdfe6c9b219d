"""A change is worth the same whoever asks: the price of a finding is what `plan --change` says of its change."""

from collections.abc import Iterator

from timesink.diagnosis.pricing import Priced, price, price_change
from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.verdicts import Finding, Found
from timesink.fixes.table import parse_change
from timesink.measures.timeline.replay import calibrated_pricers
from timesink.model.trace import Trace


def priced_findings(trace: Trace) -> list[Finding]:
    """All findings that name a change, without sharing."""
    verdicts = [rule.verdict(trace, {}) for rule in all_rules()]
    findings = [finding for verdict in verdicts if isinstance(verdict, Found) for finding in verdict.findings]
    return [finding for finding in findings if finding.change is not None]


def asked(trace: Trace, finding: Finding) -> list[Priced | None]:
    """What the what-if says of a finding's fix: written as text, where it has words."""
    rank, fix = finding.where.rank or 0, finding.fix
    target, direction = (getattr(finding.change, name, "") for name in ("target", "direction"))
    if fix is None or fix.verb is None or getattr(target, "kind", "") == "windows":  # no words
        return [price_change(finding.change, rank, trace)]  # type: ignore[arg-type]
    changes = parse_change(f"{fix.name} d2h" if direction == "d2h" else fix.name).changes(trace, rank)
    here = [
        made for made in changes if getattr(made, "device", (rank, finding.where.device))[1] == finding.where.device
    ]
    return [price_change(made, rank, trace) for made in here or changes]


def unlike_what_if(trace: Trace, finding: Finding) -> Iterator[str]:
    """In what the price of a finding is another than that of its change."""
    told, pricer = price(finding, trace), calibrated_pricers(trace).get(finding.where.rank or 0)
    answers = asked(trace, finding)
    if told.by == "bound" and answers == [None]:  # nothing to replay
        return
    if len(answers) != 1 or answers[0] is None:
        yield f"{finding.message[:60]}: {told}, and the what-if says {answers}"
        return
    answer = answers[0]
    slowed = pricer is not None and pricer.price(finding.change).refused  # type: ignore[arg-type]
    ends = [(one.by, one.gain.low, one.gain.value, None if slowed else one.gain.high) for one in (told, answer)]
    if ends[0] != ends[1]:  # a doubtful gain's high end is held to the finding's own claim
        yield f"{finding.message[:60]}: {ends[0]}, and the what-if says {ends[1]}"
