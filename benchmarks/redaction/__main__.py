"""Plant secrets in every format, redact, and count those that can still be found.

    python -m benchmarks.redaction [--set-aside | --whole] [--seed N] [--show]

A kind is a place of a format with a value. About a third of the kinds is set aside, by a digest of place and value:
every kind whose place, or whose value, no one looks at while the redaction is written. `--whole` instead reads every
capture of the fault suite and compares its diagnosis before and after.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.redaction.places import FORMATS
from benchmarks.redaction.values import VALUES, Secret

from timesink.capture.errors import CaptureError
from timesink.capture.redaction import redact

_SPLIT = "planted-2"
_VALUES_A_PLACE = 6
_ONE_IN = 5  # of the places, and of the values; together a little over a third of the kinds
_KINDS_A_FILE = 12


@dataclass(frozen=True, slots=True)
class Kind:
    """A place of a format, with a value."""

    document: type
    place: str
    value: str

    @property
    def is_set_aside(self) -> bool:
        """Whether nobody looks at it before the end."""
        return _falls(f"{self.document.__name__}/{self.place}") or _falls(self.value)

    def __str__(self) -> str:
        return f"{self.document.name}, {self.place}: {self.value}"  # type: ignore[attr-defined]


def _falls(name: str) -> bool:
    return int.from_bytes(hashlib.sha256(f"{_SPLIT}/{name}".encode()).digest()[:4]) % _ONE_IN == 0


def kinds() -> list[Kind]:
    """Every place, each with six values, which its digest chooses."""
    made = []
    for document, places in FORMATS.items():
        for place in places:
            rng = Random(f"{_SPLIT}/{document.__name__}/{place}")
            made += [Kind(document, place, value) for value in rng.sample(sorted(VALUES), _VALUES_A_PLACE)]
    return made


def planted(chosen: list[Kind], seed: int) -> Iterator[tuple[bytes, str, list[tuple[Kind, Secret]]]]:
    """Files, their names, and what each holds."""
    for document in FORMATS:
        mine = [kind for kind in chosen if kind.document is document]
        for at in range(0, len(mine), _KINDS_A_FILE):
            opened, empty, held = document(), document(), []
            for kind in mine[at : at + _KINDS_A_FILE]:
                rng = Random(f"{seed}/{kind}")
                secret = VALUES[kind.value](rng)
                beside = rng.getstate()
                FORMATS[document][kind.place](opened, secret.text, rng)
                rng.setstate(beside)
                FORMATS[document][kind.place](empty, f"none{len(held)}", rng)
                held.append((kind, secret))
            by_chance = empty.written()  # five digits may stand in a time or a key of the file itself
            held = [(kind, one) for kind, one in held if not any(_found(by_chance, part) for part in one.parts)]
            yield opened.written(), document.file, held  # type: ignore[attr-defined]


def survivors(content: bytes, file: str, held: list[tuple[Kind, Secret]], folder: Path) -> list[tuple[Kind, str]]:
    """What can be found in the redacted file. Everything, where it was refused: a refusal is no redaction."""
    source = folder / file
    source.write_bytes(content)
    for kind, secret in held:  # it was planted at all
        assert all(_found(content, part, escaped=kind.place == "escapes") for part in secret.parts), (
            f"{kind}: not planted"
        )
    try:
        out = redact(source, folder / f"out-{file}").path.read_bytes()
    except CaptureError as error:
        return [(kind, f"refused: {error}") for kind, _ in held]
    return [(kind, part) for kind, secret in held for part in secret.parts if _found(out, part)]


def _found(content: bytes, part: str, escaped: bool = False) -> bool:
    small = content.lower()
    spelled = "".join(f"\\u{ord(letter):04x}" for letter in part).lower()
    forms = {part.lower(), part.lower().replace("\\", "\\\\"), part.lower().replace("/", "\\/"), spelled}
    forms |= {form.replace("'", "''") for form in forms} | {html.escape(form) for form in forms}
    forms |= {json.dumps(form)[1:-1] for form in forms}
    return escaped or any(form.encode() in small or form.encode("utf-16-le") in small for form in forms)


def count(chosen: list[Kind], seed: int, show: bool) -> tuple[int, int]:
    """Secrets planted, and secrets that survived."""
    lived: Counter[str] = Counter()
    total = 0
    for content, file, held in planted(chosen, seed):
        with tempfile.TemporaryDirectory() as folder:
            left = survivors(content, file, held, Path(folder))
        total += len(held)
        for kind in {kind for kind, _ in left}:
            lived[kind.document.name] += 1  # type: ignore[attr-defined]
        if show:
            print(*(f"{kind}: {part}" for kind, part in left), sep="\n")
    for document in FORMATS:
        tried = sum(kind.document is document for kind in chosen)
        print(f"{document.name:16} {tried:4} planted, {lived[document.name]} survived")  # type: ignore[attr-defined]
    return total, sum(lived.values())


def main() -> int:
    """0 where nothing survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set-aside", action="store_true", help="the kinds set aside, not the others")
    parser.add_argument("--whole", action="store_true", help="diagnose all captures before and after")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="say which survived")
    options = parser.parse_args()
    if options.whole:
        from benchmarks.redaction.same import compared

        return compared()
    chosen = [kind for kind in kinds() if kind.is_set_aside == options.set_aside]
    total, lived = count(chosen, options.seed, options.show and not options.set_aside)
    print(f"{total} planted, {lived} survived")
    return 1 if lived else 0


if __name__ == "__main__":
    sys.exit(main())
