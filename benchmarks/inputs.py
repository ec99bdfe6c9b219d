"""Large traces grown from a real one, kept under benchmarks/.cache until the run is over."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.runs import ROOT, run

CACHE = ROOT / "benchmarks" / ".cache"
_KINETO = (
    ROOT.parent / "shared" / "data" / "public" / "kineto" / "ns_resolution_rank0.json.gz",
    ROOT / "src" / "timesink" / "cli" / "demo" / "gpt_before.json.xz",
)


def seed() -> Path:
    """The trace that is grown: a public one of data-parallel training where it is at hand, else the bundled demo."""
    return next(path for path in _KINETO if path.is_file())


def packed(text: Path) -> Path:
    """The same text, compressed the way a profiler would."""
    from isal import igzip

    target = text.with_suffix(".json.gz")
    if not target.exists():
        partial = target.with_suffix(".part")
        with text.open("rb") as source, igzip.open(partial, "wb", compresslevel=2) as stream:  # type: ignore[no-untyped-call]
            while window := source.read(8 << 20):
                stream.write(window)
        partial.rename(target)
    return target


def grown(megabytes: int, source: Path | None = None) -> Path:
    """The seed grown to that many megabytes of text, made once."""
    source = source or seed()
    CACHE.mkdir(exist_ok=True)
    text = CACHE / f"{source.name.split('.')[0]}_{megabytes}.json"
    if not text.exists():
        partial = text.with_suffix(".part")
        # In another process: a child's peak memory is at least what its parent held.
        run([sys.executable, "-m", "benchmarks.grow", str(source), str(partial), "--megabytes", str(megabytes)])
        partial.rename(text)
    return text


@contextmanager
def traces(*megabytes: int, keep: bool = False) -> Iterator[list[Path]]:
    """Grown and packed traces of those sizes; what was made is deleted afterwards unless it is to be kept."""
    before = set(CACHE.glob("*")) if CACHE.is_dir() else set()
    try:
        yield [packed(grown(size)) for size in megabytes]
    finally:
        if not keep:
            for path in set(CACHE.glob("*.json*")) - before:
                path.unlink()
