"""Write the words that `capture --redact` leaves standing and that this program's own texts do not say often enough.

    python tools/known_words.py SITE_PACKAGES     # where torch is installed

They are those of PyTorch's operators and of the kernels in its headers, and `known_words.txt`: what kernels, calls and
messages of profilers in our captures say besides.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from timesink.capture.redaction import lists

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/timesink/capture/redaction/words.txt"
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAMED = re.compile(r"(?:__global__\s+void|struct|class)\s+(\w+)|\b(\w+_kernel\w*|\w+Functor|\w+Op|\w+Kernel)\b")
_WIDTH = 118


def _operators(site: Path) -> Iterator[str]:
    sys.path.insert(0, str(site))
    import torch

    yield from (schema.name for schema in torch._C._jit_get_all_schemas())


def _kernels(site: Path) -> Iterator[str]:
    for path in sorted((site / "torch/include/ATen").rglob("*.cuh")):
        yield from (name for names in _NAMED.findall(path.read_text(errors="replace")) for name in names)


def main() -> int:
    """0 once the list is written."""
    site = Path(sys.argv[1])
    found = Counter(word.lower() for name in (*_operators(site), *_kernels(site)) for word in _PIECE.findall(name))
    kept = {word for word in found if 2 <= len(word) <= 16} | {*(ROOT / "tools/known_words.txt").read_text().split()}
    TARGET.write_text("\n".join(textwrap.wrap(" ".join(sorted(kept - lists.said())), _WIDTH)) + "\n")
    print(len(kept), TARGET.stat().st_size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
