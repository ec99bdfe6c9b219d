"""Single traits that a kernel's name tells: a cast, a strided copy, a fused optimizer, an alignment."""

from typing import TYPE_CHECKING, Final

from timesink.knowledge import Pattern, Patterns

_FILE: Final = Patterns(__file__, globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Pattern: ...


GATE: Final = {"activates": _FILE.ACTIVATES, "multiplies": _FILE.MULTIPLIES}  # one after the other
