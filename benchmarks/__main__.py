"""Every speed benchmark in one run and one table.

    python -m benchmarks.peers                                          # once: libraries and tools to stand beside
    python -m benchmarks [--hta PYTHON] [--tracelens PYTHON] [--runs 3] [--quick] [--only NAME]

`--hta` and `--tracelens` name Python interpreters in which those are installed; without one the rival's recorded
figures stand in, and the table says so. `--quick` grows inputs a hundred times smaller: it shows that everything runs;
its figures mean nothing. Needs about 12 GB of disk under benchmarks/.cache, which it clears, and about 20 minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import chain

from benchmarks.inputs import traces
from benchmarks.ranks import scale
from benchmarks.runs import Row, show

from benchmarks import counts, decode, end_to_end, pages, shapes, sqlite, startup, window

SIZES = (125, 500, 2000)
QUICK_SIZES = (15, 30)


def plans(runs: int, quick: bool, hta: str, tracelens: str) -> dict[str, Callable[[], Iterator[Row]]]:
    """The benchmarks by name, in the order of the table."""
    if quick:
        return {  # without what a test of its own counts
            shapes.NAME: lambda: shapes.rows((200, 200, 400), ("nested",)),
            startup.NAME: lambda: startup.rows(1),
            decode.NAME: lambda: decode.rows(1, QUICK_SIZES[0]),
            end_to_end.NAME: lambda: end_to_end.rows(1, QUICK_SIZES),
            sqlite.NAME: lambda: chain(
                sqlite.rows(1, 20_000, 40_000), sqlite.growth(8_000, 16_000), sqlite.beside_nsys_ai(4_000, 8_000)
            ),
            window.NAME: lambda: window.rows(1, QUICK_SIZES[0], 20_000),
            scale.NAME: lambda: scale.growth(2_000, (2, 4)),
            pages.NAME: lambda: pages.rows(1, QUICK_SIZES[0]),
        }
    return {
        counts.NAME: counts.rows,
        shapes.NAME: shapes.rows,
        startup.NAME: lambda: startup.rows(2 * runs + 1),
        decode.NAME: lambda: decode.rows(runs),
        end_to_end.NAME: lambda: end_to_end.rows(runs, SIZES, hta, tracelens),
        sqlite.NAME: lambda: chain(
            sqlite.rows(runs), sqlite.growth(4_000_000, 8_000_000), sqlite.beside_nsys_ai(250_000, 500_000)
        ),
        window.NAME: lambda: window.rows(runs),
        scale.NAME: lambda: scale.growth(200_000, (16, 64, 128)),
        pages.NAME: lambda: pages.rows(2 * runs + 1),
    }


def everything(chosen: dict[str, Callable[[], Iterator[Row]]]) -> Iterator[Row]:
    """The rows of all benchmarks, their common inputs made once."""
    with traces():
        for rows in chosen.values():
            yield from rows()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--hta", default="", metavar="PYTHON")
    parser.add_argument("--tracelens", default="", metavar="PYTHON")
    parser.add_argument("--only", choices=list(plans(1, False, "", "")), action="append")
    options = parser.parse_args()
    known = plans(options.runs, options.quick, options.hta, options.tracelens)
    show(everything({name: rows for name, rows in known.items() if not options.only or name in options.only}))
