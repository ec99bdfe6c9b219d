"""Changes to a program that a graph can replay: one class for each kind, and several at once."""

from __future__ import annotations

from timesink.model.record import dataclass
from timesink.whatif.change import Case, Change, Touches
from timesink.whatif.graph import Graph


@dataclass(frozen=True, slots=True)
class Together:
    """Changes made one after another. What they win together is less than the sum where they win the same time."""

    changes: tuple[Change, ...]

    @property
    def label(self) -> str:
        """The changes in one line."""
        return "all together: " + ", ".join(change.label for change in self.changes)

    @property
    def touches(self) -> Touches:
        """Whose time they take away: both sides', unless all take the same side's."""
        sides = {change.touches for change in self.changes}
        return sides.pop() if len(sides) == 1 else Touches.BOTH

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after all of them."""
        for change in self.changes:
            graph = change.rewrite(graph, case)
        return graph
