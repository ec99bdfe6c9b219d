"""What must be said of a run before any of its figures: ranks that differ, are missing, or could not be read."""

from __future__ import annotations

from timesink.measures.collective_waits import CollectiveWaits
from timesink.measures.parity import differences, ranks_text
from timesink.ranks.run import Run

_NAMED = 8


def notes_of(run: Run, waits: CollectiveWaits) -> tuple[str, ...]:
    """Sentences, the differences between ranks first."""
    said = [f"ranks differ: {difference.text}" for difference in differences(run.job.parity)]
    if run.missing:
        said.append(f"no file holds {ranks_text(run.missing)}; waits are lower bounds where a rank is missing")
    said += [f"{path} is left out: {reason}" for path, reason in run.quarantined[:_NAMED]]
    if len(run.quarantined) > _NAMED:
        said.append(f"{len(run.quarantined) - _NAMED} more files could not be read")
    said += [f"{path} is left out: another file is rank {rank} too" for path, rank in run.duplicates[:_NAMED]]
    if run.assumed:
        said.append(run.assumed)
    if run.lost_count:
        said.append(f"{run.lost_count} damaged records were left out")
    if waits.clocks.assumed_shared:
        said.append("no file names its host; GPU numbers and offsets say that all ranks share one, and so a clock")
    wrong = [clock for clock in waits.clocks.clocks if not clock.consistent]
    if wrong:
        ranks = tuple(rank for clock in wrong for rank in clock.ranks)
        said.append(
            f"the collectives of {ranks_text(ranks)} contradict any constant clock: matched wrongly, or drifting"
        )
    return tuple(said)
