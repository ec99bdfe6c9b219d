"""Which fixes a trace could use, and what each changes in its graph, given the others that are made."""

from __future__ import annotations

from typing import Final

from timesink.diagnosis.pricing import worth_ms
from timesink.diagnosis.verdicts import Card, Diagnosis, Finding
from timesink.fixes.fix import Beside, Fix, Offer, on_rank
from timesink.fixes.table import FIXES
from timesink.model.record import dataclass
from timesink.model.trace import Trace
from timesink.whatif.change import Change, Touches
from timesink.whatif.changes.kernels import ShortenKernels

Chosen = frozenset[str]


Named = tuple[Card, Finding]
_NO_CHANGE: Final = frozenset({"slow_steps", "profiler_overhead"})  # the cause, and its change, has another rule


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A fix, the findings that it repairs (none where only the replay says that it wins), and the rules that found
    anything."""

    fix: Fix
    findings: tuple[Named, ...]
    rules: frozenset[str] = frozenset()

    @property
    def is_replayed(self) -> bool:
        """Whether the fix itself says what it changes, and not the findings that ask for it."""
        return self.fix.offer is Offer.ALWAYS or (self.fix.offer is Offer.UNASKED and not self.findings)

    @property
    def mends_a_cause(self) -> bool:
        """Whether a finding asks for it that is no symptom of another."""
        return any(not card.symptom for card, _ in self.findings)

    @property
    def claims(self) -> bool:
        """Whether it does what its findings propose, by a replay, and nothing else."""
        own = [finding for _, finding in self.findings]
        return not self.fix.does_more and bool(own) and all(_is_replayed(f) and f.claim.total_ns for f in own)

    def parts(self, trace: Trace, rank: int, chosen: Chosen, eased: bool) -> tuple[Change, ...]:
        """What it changes on a rank beside the others (`Beside`); empty where its gain is stated or a bound."""
        if self.is_replayed:
            return on_rank(self.fix.replay(trace, Beside(chosen, eased, self.rules)), rank)
        own = self.on_rank(rank)
        return tuple(finding.change for finding in own if finding.change is not None)

    def on_rank(self, rank: int) -> tuple[Finding, ...]:
        """Its findings of a rank."""
        return tuple(finding for _, finding in self.findings if _on(finding, rank))

    def unreplayed(self, rank: int) -> tuple[Finding, ...]:
        """Findings of a rank whose gain no replay says."""
        if self.is_replayed:
            return ()
        return tuple(finding for finding in self.on_rank(rank) if finding.change is None)


def candidates(diagnosis: Diagnosis) -> tuple[Candidate, ...]:
    """Every fix of the table that repairs a finding or that a replay can price, then findings without one."""
    left = [named for named in diagnosis.findings if _rule_name(named[0]) not in _NO_CHANGE]
    rules = frozenset(_rule_name(card) for card, _ in diagnosis.findings)
    found = []
    for fix in FIXES:
        own = tuple(named for named in diagnosis.findings if _repairs(fix, named))
        left = [named for named in left if named not in own]
        if own or fix.offer is not Offer.ASKED:
            found.append(Candidate(fix, own, rules))
    by_rule: dict[str, list[Named]] = {}
    for named in left:
        if named[1].counted_in and not worth_ms(named[1]):
            continue  # a symptom of what another finding's change takes away
        by_rule.setdefault(_rule_name(named[0]), []).append(named)
    for name, own_findings in by_rule.items():
        words = own_findings[0][1].advice.partition(". ")[0].rstrip(".")
        found.append(Candidate(Fix(name, words, answers=(name,)), tuple(own_findings), rules))
    return tuple(found)


def _repairs(fix: Fix, named: Named) -> bool:
    card, finding = named
    return fix.repairs(_rule_name(card), "" if finding.fix is None else finding.fix.name)


def _rule_name(card: Card) -> str:
    return card.name.replace("-", "_")


def _is_replayed(finding: Finding) -> bool:
    """Whether a replay prices what it proposes; kernels that only get shorter are priced by their time."""
    change = finding.change
    return change is not None and not (isinstance(change, ShortenKernels) and change.touches is Touches.DEVICE)


def _on(finding: Finding, rank: int) -> bool:
    return (finding.where.rank or 0) == rank
