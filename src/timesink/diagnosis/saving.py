"""What a fix saves, in the one phrase that every sentence and every report uses for it; and whether anything is left
to win: the state that a loop of captures and changes ends on.
"""

from enum import StrEnum
from typing import Final

from timesink.diagnosis.verdicts import Clear, Diagnosis, Finding, Found, Quantity, Undecided
from timesink.knowledge.step_parts import OF_MEMORY, Bottleneck
from timesink.records import Record
from timesink.units import NS_PER_MS, bytes_text, share_text, time_text

_NOTHING_MS: Final = 1e-6  # a nanosecond
_ALIKE: Final = 0.02  # of a share: two that are nearer make one ask what the difference is
_WHOLE: Final = 0.995  # from here on it would read 100 %


def saving_text(finding: Finding, *, interval: bool = True, after: str = "") -> str:
    """What a fix saves: ``saves 3.15 ms (4.30 % of the step), 2.90 ms to 3.40 ms``. Where the text before
    it tells that time and share, it is ``3.15 ms`` alone.

    A bound is called one: a value that is its own upper end is `at most`. What is found by another rule already is not
    added to it, and says so; what costs memory and no time says how much memory.
    """
    gain = finding.recoverable
    if gain is None:
        is_artefact = finding.bottleneck is Bottleneck.PROFILER_OVERHEAD
        return "saves nothing without the profiler" if is_artefact else "not priced"
    most_ms = max(gain.value, gain.most)
    counted = _counted(finding)
    if most_ms < _NOTHING_MS:
        return counted or (_memory(finding) if finding.bottleneck in OF_MEMORY else _unsaid(finding))
    if gain.value < _NOTHING_MS:
        text = f"saves at most {_part(most_ms, finding, after)}, perhaps nothing"
    elif gain.high is not None and gain.value >= gain.high and gain.low != gain.high:
        low = f", at least {time_text(gain.low * NS_PER_MS)}" if gain.low else ""
        text = f"saves at most {_part(gain.value, finding, after)}{low if interval else ''}"
    else:
        text = f"saves {_part(gain.value, finding, after)}{_interval(gain) if interval else ''}"
    return f"{text}; {counted}" if counted and interval else text


def is_unpriced(finding: Finding) -> bool:
    """Whether a rule states a saving of nothing since its capture holds no time of a step."""
    gain = finding.recoverable
    return gain is not None and gain.most < _NOTHING_MS and gain.value < _NOTHING_MS and finding.priced_by == "stated"


def _unsaid(finding: Finding) -> str:
    return "not priced" if is_unpriced(finding) else "saves nothing"


def _memory(finding: Finding) -> str:
    """``concerns 1.24 GB of GPU memory``: the first fact, or its twin in bytes."""
    first = finding.evidence[0] if finding.evidence else None
    for fact in finding.evidence:
        if first is not None and fact.measured.unit == "bytes" and fact.label in (first.label, f"{first.label}, bytes"):
            return f"concerns {bytes_text(fact.measured.value)} of GPU memory"
    return "saves memory, not time"


def _part(value_ms: float, finding: Finding, after: str) -> str:
    """``3.15 ms (4.30 % of the step)``, ``7.55 ms (40.0 % of the longest window, 18.9 ms)``; ``3.15 ms`` where the
    text before it tells nearly that share."""
    time = time_text(value_ms * NS_PER_MS)
    if not finding.of_ms:
        return f"{time} per step" if finding.period == "step" else f"{time} of the recorded time"
    length = f", {time_text(finding.of_ms * NS_PER_MS)}" if finding.which == "longest" else ""
    period = f"{finding.which} {finding.period}{length}".lstrip()
    share = share_text(ratio := value_ms / finding.of_ms)
    if any(part in after and abs(part.ratio - ratio) <= _ALIKE * ratio for part in finding.parts):
        return time
    return f"{time} ({share} of the {period})"


def _interval(gain: Quantity) -> str:
    if gain.low is None and gain.high is None:
        return ""
    low, high = ("…" if end is None else time_text(end * NS_PER_MS) for end in (gain.low, gain.high))
    return f", {low} to {high}"


def _counted(finding: Finding) -> str:
    """Which finding has the time of this one, or part of it, already; '' where none has."""
    if finding.counted_in is None:
        return ""
    rule, share = finding.counted_in
    part = "" if share > _WHOLE else f"{share_text(share)} of "
    return f"{part}its time is counted in {rule}"


class LeftState(StrEnum):
    """What the findings of a diagnosis leave to do."""

    WORTH_FIXING = "worth_fixing"
    """a finding may win back the share that was asked for, or more"""
    NOT_PRICED = "not_priced"
    """no priced finding reaches it, but some findings have no price"""
    NOTHING_ABOVE = "nothing_above"
    """no finding reaches it"""
    UNKNOWN = "unknown"
    """the capture is damaged, or no rule could look"""


class Left(Record):
    """What is left at a share of the step: `looked` rules could decide, `blind` ones could not.

    `above` counts the findings that may win back `share` or more, by the upper end of their price.
    """

    state: LeftState
    share: float
    above: int
    unpriced: int
    looked: int
    blind: int

    @property
    def sentence(self) -> str:
        """The state in words that claim no more than was looked at."""
        rules = f"{self.looked} rules looked, {self.blind} could not"
        limit = f"{share_text(self.share)} of the step"
        if self.state is LeftState.UNKNOWN:
            return f"what is left cannot be said from this capture: {rules}"
        if self.state is LeftState.NOT_PRICED:
            return f"no priced finding reaches {limit}, and {self.unpriced} have no price: {rules}"
        if self.state is LeftState.NOTHING_ABOVE:
            return f"nothing above {limit} is left among what this capture shows: {rules}"
        return f"{self.above} {'finding' if self.above == 1 else 'findings'} may save {limit} or more: {rules}"


def what_is_left(diagnosis: Diagnosis, share: float) -> Left:
    """Whether a finding may win back `share` (0.01 is a hundredth) of the step or of the recorded window."""
    most = [_most(finding) for _, finding in diagnosis.findings]
    above = sum(ratio is not None and ratio >= share for ratio in most)
    unpriced = sum(ratio is None for ratio in most)
    looked = sum(isinstance(ruling.verdict, (Clear, Found)) for ruling in diagnosis.rulings)
    blind = sum(isinstance(ruling.verdict, Undecided) for ruling in diagnosis.rulings)
    if above:
        state = LeftState.WORTH_FIXING
    elif diagnosis.partial or not looked:
        state = LeftState.UNKNOWN
    else:
        state = LeftState.NOT_PRICED if unpriced else LeftState.NOTHING_ABOVE
    return Left(state, share, above, unpriced, looked, blind)


def _most(finding: Finding) -> float | None:
    """The upper end of a finding's price as a share of the step; None where it has none."""
    gain = finding.recoverable
    if gain is None or not finding.of_ms:
        return None
    return max(gain.value, gain.most) / finding.of_ms
