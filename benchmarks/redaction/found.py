# ruff: noqa: E501 (a table with a kind a line)
"""Plant sixty new kinds of secrets where real files hold texts and numbers, redact, and count what can be found again.

    python -m benchmarks.redaction.found [--round N] [--set-aside] [--one-in N] [--show]

No place is written down: each text, number, key, cell and line of small captures, pages and files around a job is one,
by its way through the file. 250 of them are drawn by a digest, and nine of ten pairs of a kind and a place are set
aside by another. Kinds and places were written before the cleaner was tried on any.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

from benchmarks.redaction import found_places, fresh
from benchmarks.redaction.found_kinds import FIRST, SECOND
from benchmarks.redaction.found_places import Planting
from benchmarks.redaction.fresh_kinds import FOURTH, THIRD
from benchmarks.redaction.unseen import _found

from timesink.capture.errors import CaptureError
from timesink.capture.redaction import redact

ROUNDS = (FIRST, SECOND, THIRD, FOURTH)
"""Each was written before the cleaner was tried on it, and scored once before anything was mended."""
_PLACES = 250
_SET_ASIDE = 9  # of ten


@cache
def _pool(number: int) -> dict[str, tuple[str, Planting]]:
    return found_places.pool() if number <= 2 else fresh.pool()


@cache
def places(number: int = 1) -> dict[str, tuple[str, Planting]]:
    """By title the name of the file and how it is made: 250 of all there are for each round, by a digest."""
    every, at = _pool(number), _PLACES * ((number - 1) % 2)
    drawn = sorted(every, key=lambda title: hashlib.sha256(f"place/{title}".encode()).digest())
    return {title: every[title] for title in sorted(drawn[at : at + _PLACES])}


def is_set_aside(place: str, kind: str) -> bool:
    """Whether nobody looks at the pair."""
    return hashlib.sha256(f"found/{place}/{kind}".encode()).digest()[0] % 10 < _SET_ASIDE


def outcome(place: str, kind: str, folder: Path, number: int = 1, seed: int = 0) -> str:
    """ "gone", "survives", "refused", or "" where the text stands in the file without being planted."""
    (file, plant), secret = (
        places(number)[place],
        ROUNDS[number - 1][kind](Random(f"{place}/{kind}/{seed}" if seed else f"{place}/{kind}")),
    )
    without, full = plant("none"), plant(secret.text)
    if any(_found(without, part) for part in secret.parts) or not all(_found(full, part) for part in secret.parts):
        return ""
    source = folder / file
    source.write_bytes(full)
    try:
        left = redact(source, folder / f"copy-{file}").path.read_bytes()
    except CaptureError:
        return "refused"
    return "survives" if any(_found(left, part) for part in secret.parts) else "gone"


def main() -> int:
    """0 where nothing survives and nothing is refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set-aside", action="store_true", help="the pairs set aside, not the others")
    parser.add_argument("--one-in", type=int, default=1, help="every Nth pair")
    parser.add_argument("--round", type=int, default=1, choices=range(1, 5), help="of kinds and places")
    parser.add_argument("--seed", type=int, default=0, help="other values of the same kinds")
    parser.add_argument("--show", action="store_true", help="say which survived, of those not set aside")
    options = parser.parse_args()
    chosen = places(options.round)
    pairs = [
        (place, kind)
        for place in chosen
        for kind in ROUNDS[options.round - 1]
        if is_set_aside(place, kind) == options.set_aside
    ]
    ends: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        for place, kind in pairs[:: options.one_in]:
            end = outcome(place, kind, Path(name), options.round, options.seed)
            ends.setdefault(place.partition("/")[0], Counter())[end] += 1
            if options.show and not options.set_aside and end in ("survives", "refused"):
                print(f"{place}: {kind} {end}")
    total = sum(ends.values(), Counter())
    for title, counts in [*ends.items(), (f"all of {len(chosen)} places", total)]:
        print(
            f"{title:24} {sum(counts.values()) - counts['']:6} planted, {counts['survives']} survive, {counts['refused']} refused"
        )
    return 1 if total["survives"] or total["refused"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
