"""What every change has: a label, the side it touches, and figures that are known only as ranges."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from timesink.whatif.graph import Graph


class Case(Enum):
    """Which end of its ranges a change is replayed at: what wins least, what is expected, what wins most."""

    CAUTIOUS = 0
    EXPECTED = 1
    HOPEFUL = 2


class Touches(Enum):
    """Whose time a change takes away: that decides which bound holds and which claims a profiler's own cost forbids."""

    HOST = "host"
    DEVICE = "device"
    BOTH = "host and device"
    COMMUNICATION = "communication"


@dataclass(frozen=True, slots=True)
class Range:
    """A figure at each case."""

    cautious: float
    expected: float
    hopeful: float

    @classmethod
    def exact(cls, value: float) -> Range:
        """A figure that is known."""
        return cls(value, value, value)

    def at(self, case: Case) -> float:
        """The figure at a case."""
        return (self.cautious, self.expected, self.hopeful)[case.value]


class Change(Protocol):
    """A change that a graph can replay. `rewrite` leaves the graph it is given as it is."""

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        ...

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        ...

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        ...
