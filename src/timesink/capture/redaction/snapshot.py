"""Memory snapshots of PyTorch: unpickled with nothing but containers allowed, cleaned, and pickled again."""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any, Never

from timesink.capture.errors import refused
from timesink.capture.redaction.cleaner import Cleaner
from timesink.capture.redaction.packed import Unpacked, writing

_MOST_BYTES = 1 << 30
_MOST_NODES = 50_000_000
_PROTOCOL = 4
_REMEDY = "dump the snapshot again"


class _ContainersOnly(pickle.Unpickler):
    """Builds containers, text and numbers; everything else is refused."""

    def find_class(self, module: str, name: str) -> Never:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}"[:200])

    def persistent_load(self, _: object) -> Never:
        raise pickle.UnpicklingError("it asks for an object by persistent id")


def redact_snapshot(source: Path, target: Path, cleaner: Cleaner) -> list[str]:
    """Write the snapshot with members whose names are words of software, texts word by word."""
    unpacked = Unpacked(source)
    content = unpacked.whole()
    if len(content) > _MOST_BYTES or unpacked.damage:
        raise refused(f"{source.name} {unpacked.damage or 'is too large'}", _REMEDY)
    try:
        _look_through(content, cleaner)
        root = _ContainersOnly(io.BytesIO(content)).load()
        cleaned = _Shared(cleaner).value(root)
    except (pickle.UnpicklingError, EOFError, RecursionError, MemoryError, ValueError, TypeError, KeyError, IndexError,
            AttributeError, OverflowError) as error:  # fmt: skip
        raise refused(f"{source.name} is no memory snapshot: {error}", _REMEDY) from error
    with writing(target) as file:
        pickle.dump(cleaned, file, protocol=_PROTOCOL)
    return cleaner.summary()


def _look_through(content: bytes, cleaner: Cleaner) -> None:
    """Learn from each text. Refuse a number of a memo beyond the file's bytes: the unpickler makes room for as many."""
    texts: set[str] = set()
    for opcode, argument, _ in pickletools.genops(content):
        if isinstance(argument, str):
            texts.add(argument)
        if opcode.name in ("LONG_BINPUT", "PUT") and isinstance(argument, int) and argument > len(content):
            raise ValueError("its memo is larger than the file")
    cleaner.learn_from("\n".join(sorted(texts)))


class _Shared:
    """Cleans a value whose parts may occur often: each part once."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner, self._done, self._alive = cleaner, dict[int, Any](), list[Any]()

    def value(self, value: Any, key: str = "") -> Any:
        if not isinstance(value, (dict, list, tuple)):
            return self._cleaner.value(value, key)
        if id(value) in self._done:
            return self._done[id(value)]
        self._alive.append(value)
        if len(self._alive) > _MOST_NODES:
            raise ValueError("it has too many parts")
        made: Any
        if isinstance(value, dict):
            made = self._done[id(value)] = {}
            made |= {name: self.value(inner, str(name)) for name, inner in value.items() if self._cleaner.keeps(name)}
        elif isinstance(value, list):
            made = self._done[id(value)] = []
            made += [self.value(inner, key) for inner in value]
        else:
            made = self._done[id(value)] = tuple(self.value(inner, key) for inner in value)
        return made
