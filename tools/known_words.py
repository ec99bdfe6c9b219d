"""Write the words that `capture --redact` leaves standing: those of our own sources, of PyTorch and of NVIDIA's tools.

    python tools/known_words.py SITE_PACKAGES     # where torch is installed

A word is in the list because software says it: no list of names has to be complete. Words that are also first or last
names, or begin a usual password, are taken out unless an operator or a metric is called so.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/timesink/capture/redaction/words.txt"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{1,}")
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAMED = re.compile(r"^\s*(?:def|class)\s+(\w+)|^\s*- func: (\w+)", re.MULTILINE)
_FIRST_AND_LAST = """
ann anna alice bob john smith jones hunter peter paul mary tom tim jim joe dan dave david mike michael chris
james robert sam alex andrew martin thomas george henry jack jason jeff kate kevin laura lee lisa luke maria nick
oliver patrick philip richard sarah scott simon steve steven susan victor walter wang wei zhang chen liu yang
huang zhao kumar singh patel gupta mueller schmidt keller weber meyer fischer johnson williams brown davis miller
wilson moore taylor anderson jackson thompson garcia martinez robinson clark lewis walker hall allen young king
wright hill ruth jdoe doe somebody nid dgx acme eric ben max-planck brian carl charles daniel donald edward frank
gary harry ian ivan jane jonathan julia karl ken kim larry linda leo louis marcus matt nancy neil nina otto pedro
ralph roger ron russell stefan ted tina tony vincent will wolfgang nguyen tran kowalski ivanov rossi silva santos
anijain jansel voz
"""
_OF_SECRETS = "secret secrets password passwords passwd folder folders username hostname passphrase"
_NAMES = frozenset((_FIRST_AND_LAST + _OF_SECRETS).split())
_FOLDERS = (
    "_dynamo",
    "_inductor",
    "nn",
    "optim",
    "utils/data",
    "cuda",
    "distributed",
    "profiler",
    "autograd",
    "_logging",
)


def _pieces(text: str) -> Iterator[str]:
    for identifier in _IDENTIFIER.findall(text):
        yield from (piece.lower() for piece in _PIECE.findall(identifier))


def _ours() -> Iterator[str]:
    for path in sorted((ROOT / "src/timesink").rglob("*")):
        if path.suffix in (".py", ".json", ".md") and "private_texts" not in path.name:
            yield from _pieces(path.read_text())
    for path in sorted((ROOT / "native").rglob("*.[ch]pp")):
        yield from _pieces(path.read_text())


def _torch(site: Path) -> Iterator[str]:
    root = site / "torch"
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            yield from _pieces(path.stem)
            text = path.read_text(errors="replace")
            for names in _NAMED.findall(text):
                yield from _pieces(" ".join(names))
            if folder == "_dynamo":
                yield from _pieces(text)


def _operators(site: Path) -> Iterator[str]:
    sys.path.insert(0, str(site))
    import torch

    for schema in torch._C._jit_get_all_schemas():
        yield from _pieces(schema.name.replace("::", " "))


def main() -> int:
    """0 once the list is written."""
    site = Path(sys.argv[1])
    operators = set(_operators(site))
    counts = Counter([*_torch(site)])
    ours = Counter([*_ours()])
    kept = (
        operators
        | {word for word, count in counts.items() if count >= 7}
        | {word for word, n in ours.items() if n >= 2}
    )
    kept = {word for word in kept if 2 <= len(word) <= 16 and word not in _NAMES}
    more = set((ROOT / "tools/known_words.txt").read_text().split())
    TARGET.write_text("\n".join(_filled(sorted(kept | more))) + "\n")
    print(len(kept | more), TARGET.stat().st_size)
    return 0


def _filled(words: list[str]) -> Iterator[str]:
    line = ""
    for word in words:
        if len(line) + len(word) > 118:
            yield line
            line = ""
        line += (" " if line else "") + word
    yield line


if __name__ == "__main__":
    sys.exit(main())
