"""Which fixes a trace could use: they repair a finding, or a replay can price them; and findings without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from timesink.diagnosis.pricing import worth_ms
from timesink.diagnosis.verdicts import Card, Diagnosis, Finding
from timesink.fixes import Beside, Fix, Offer, on_rank
from timesink.fixes.table import fixes_of
from timesink.knowledge.programs import ProgramKind
from timesink.knowledge.step_parts import Bottleneck
from timesink.model.trace import Trace
from timesink.recipes import Words
from timesink.records import Record
from timesink.whatif import Change, Touches
from timesink.whatif.changes.kernels import ShortenKernels

Chosen = frozenset[str]
"""Names of fixes."""
Named = tuple[Card, Finding]
"""A finding and the rule's card."""
_NO_CHANGE: Final = frozenset({"slow_steps", "profiler_overhead"})  # the cause, and its change, has another rule
_UNKNOWN: Final = frozenset({Bottleneck.UNRECORDED_CODE, Bottleneck.LATE_START})


def to_look_into(finding: Finding) -> bool:
    """Whether nobody knows yet what to change: of a Python program that is known, though not where."""
    return finding.bottleneck in _UNKNOWN and finding.fix is None


class Candidate(Record, eq=False):
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

    def parts(self, trace: Trace, rank: int, minded: Chosen, eased: bool) -> tuple[Change, ...]:
        """What it changes on a rank beside the others (`Beside`); empty where its gain is stated or a bound."""
        if self.is_replayed:
            return on_rank(self.fix.replay(trace, Beside(minded, eased, self.rules)), rank)
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


def candidates(diagnosis: Diagnosis, program: ProgramKind) -> tuple[Candidate, ...]:
    """Every fix of the table, of those that can be made in a kind of program and in its words, that repairs a finding
    or that a replay can price; then findings without one."""
    left = [
        (card, finding)
        for card, finding in diagnosis.findings
        if _rule_name(card) not in _NO_CHANGE and not to_look_into(finding)
    ]
    rules = frozenset(_rule_name(card) for card, _ in diagnosis.findings)
    found = []
    for fix in fixes_of(program):
        own = tuple(named for named in diagnosis.findings if _repairs(fix, named))
        left = [named for named in left if named not in own]
        if own or fix.offer is not Offer.ASKED:
            found.append(Candidate(fix, own, rules))
    by_name: dict[str, list[Named]] = {}
    for named in left:
        if named[1].counted_in and not worth_ms(named[1]):
            continue  # a symptom of what another finding's change takes away
        own_fix = named[1].fix
        name = own_fix.name if own_fix is not None and not own_fix.title else named[1].bottleneck.value
        by_name.setdefault(name, []).append(named)
    mended: dict[str, Sequence[Named]] = {**{one.fix.name: one.findings for one in found}, **by_name}
    for name, own_findings in by_name.items():
        words = own_findings[0][1].advice.partition(". ")[0].rstrip(".")
        answers = tuple(dict.fromkeys(_rule_name(card) for card, _ in own_findings))
        parts = tuple(part for part, of_it in mended.items() if _are_causes(of_it, own_findings))
        found.append(Candidate(Fix(Words(name, words), answers=answers, subsumes=parts), tuple(own_findings), rules))
    return tuple(found)


def _are_causes(parts: Sequence[Named], wholes: Sequence[Named]) -> bool:
    """Whether all of these findings are causes of others, on the same rank: who mends those has mended these."""
    causes = {(finding.cause, finding.where.rank) for _, finding in wholes}
    return bool(parts) and all((card.name, finding.where.rank) in causes for card, finding in parts)


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
