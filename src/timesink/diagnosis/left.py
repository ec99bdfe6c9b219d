"""Whether anything is left to win: the state that a loop of captures and changes ends on."""

from __future__ import annotations

from enum import StrEnum

from timesink.diagnosis.verdicts import Clear, Diagnosis, Finding, Found, Undecided
from timesink.model.record import dataclass
from timesink.units import share_text


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


@dataclass(frozen=True, slots=True)
class Left:
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
