"""Launches of one kernel with the same grid and block: what they take and what a cause of their time wins together."""

from collections.abc import Callable
from typing import Final

from timesink.measures.counters.causes import gain_ns, most_ns
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.records import Record

_BEHIND: Final = 0.999  # times the gain: just below the limiter, whose place that is


class LaunchGroup(Record):
    """Launches of one kernel with the same grid and block, and a cause of their time; `longest` is the one that is
    described, of those that have the limiter of most of the time."""

    longest: KernelLimits
    launches: tuple[KernelLimits, ...]
    cause: Cause

    @property
    def profiles(self) -> tuple[int, ...]:
        """The numbers of the launches in the report."""
        return tuple(launch.kernel.profile for launch in self.launches)

    @property
    def count(self) -> int:
        """How many launches they are."""
        return sum(launch.kernel.launches for launch in self.launches)

    @property
    def total_ns(self) -> float:
        """What the launches take together."""
        return sum(launch.kernel.total_ns or 0.0 for launch in self.launches)

    @property
    def gain_ns(self) -> float:
        """What is won together."""
        return self._won(gain_ns, self.cause)

    @property
    def most_ns(self) -> float:
        """What is won together at most."""
        return self._won(most_ns, self.cause)

    @property
    def behind(self) -> float:
        """The part of the gain that counts for its place among findings: no cause comes before the limiter."""
        own, of_limiter = self.gain_ns, self._won(gain_ns, self.longest.limiter)
        is_behind = self.cause is not self.longest.limiter and own and own >= of_limiter
        return _BEHIND * of_limiter / own if is_behind else 1.0

    def _won(self, of_one: Callable[[KernelLimits, Cause], float], cause: Cause) -> float:
        return sum(of_one(launch, cause) * launch.kernel.launches for launch in self.launches)


def launch_groups(measured: list[KernelLimits], cause: Cause) -> list[LaunchGroup]:
    """Launches by kernel, grid and block, the group with the largest gain first."""
    groups: dict[tuple[object, ...], list[KernelLimits]] = {}
    for limits in measured:
        groups.setdefault((limits.kernel.name, limits.kernel.grid, limits.kernel.block), []).append(limits)
    merged = [LaunchGroup(_described(group, cause), tuple(group), cause) for group in groups.values()]
    return sorted(merged, key=lambda group: (-group.gain_ns, group.profiles))


def _described(launches: list[KernelLimits], cause: Cause) -> KernelLimits:
    """The launch with the largest gain, of those that have the limiter of most of the time."""
    lengths = dict.fromkeys(Cause, 0.0)
    for launch in launches:
        lengths[launch.limiter] += launch.kernel.total_ns or 1.0
    usual = max(lengths, key=lambda limiter: lengths[limiter])
    alike = [launch for launch in launches if launch.limiter is usual]
    return max(alike, key=lambda launch: (gain_ns(launch, cause), launch.shares[cause], -launch.kernel.profile))
