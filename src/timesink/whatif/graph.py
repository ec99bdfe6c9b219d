"""The dependency graph of one rank's trace, and its replay with one thing changed.

Daydream (ATC'20) and Lumos (MLSys'25) replay such graphs; here every edge carries an intrinsic cost, waiting re-emerges
from the maximum over predecessors, and what the maximum leaves unexplained stays with its node as a residual.

What every change has: a label, the side it touches, and figures that are known only as ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

import numpy as np
import polars as pl

from timesink.model.arrays import IntArray
from timesink.model.schema import Table
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.whatif.network import EdgeKind, Network, Replay
from timesink.whatif.program import Program


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A rank's program with its network. `graph.replay()` reproduces every observed time of an unchanged graph exactly.

    `kappa` is the factor that calibration put on profiled host time: 1 where none was made (R15); `slowdown` is the
    profiled step over the unprofiled one. `tables` are those of
    the trace the program was read from; where that was an excerpt, `op_rows` leads back to rows of the whole trace.
    """

    tables: Mapping[Table, pl.DataFrame]
    program: Program
    network: Network
    kappa: float = 1.0
    slowdown: float = 1.0
    op_rows: IntArray | None = None

    @classmethod
    def from_trace(cls, trace: Trace, rank: int | None = None) -> Graph:
        """The graph of one rank; `rank` may be left out where the trace has only one."""
        return cls.of(Program.read(trace, rank), trace.tables)

    @classmethod
    def of(cls, program: Program, tables: Mapping[Table, pl.DataFrame], op_rows: IntArray | None = None) -> Graph:
        """The graph of a program that was read before; `tables` are those of its trace, for the names in changes."""
        return cls(tables, program, Network.build(program.observed_ns, program.edges()), op_rows=op_rows)

    def rows_of_ops(self) -> IntArray:
        """The row of `device_ops`, in the whole trace, of each op of the program."""
        row = self.program.ops.row
        return row if self.op_rows is None else self.op_rows[row]

    def replay(self) -> Replay:
        """When every node happens."""
        return self.network.replay()

    def apply(self, change: Change, case: Case | None = None) -> Graph:
        """The graph with one thing changed; this one stays as it is. Changes may be applied one after another."""
        return change.rewrite(self) if case is None else change.rewrite(self, case)

    def edges_of(self, *kinds: EdgeKind) -> IntArray:
        """Numbers of the edges of these kinds."""
        chosen = np.zeros(len(self.network.edges), bool)
        for kind in kinds:
            chosen |= self.network.edges.kind == kind
        return np.flatnonzero(chosen)

    def block_of(self, node: IntArray) -> IntArray:
        """The block whose start or end a node is; negative for host points."""
        return (node - len(self.program.points)) // 2

    def names_of_ops(self) -> pl.Series:
        """The name of each op of the program, in its order; untrusted text."""
        return self.tables[DEVICE_OPS]["name"].gather(self.program.ops.row)

    def with_network(self, network: Network) -> Graph:
        """The same program with other costs or edges."""
        return replace(self, network=network)


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
