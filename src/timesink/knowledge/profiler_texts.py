"""How profilers write what is no name of a program: copies, versions, numbers of a locale, what was lost."""

from typing import TYPE_CHECKING, Final

from timesink.knowledge import Pattern, Patterns

_FILE: Final = Patterns(__file__, globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Pattern: ...


STAGE_RUN: Final = 2
"""So many items are timed one after another, where a log times some: a period begins where the item before ended."""
KINETO_EVENTS: Final = _FILE.kind("KINETO_EVENTS")
"""How events are spelled, for counts without parsing."""


STALL_WORDS: Final = _FILE.kind("STALL_WORDS")
"""What a warp is stalled for, by how the rule says it."""
