"""What ranges are called: by PyTorch, by other frameworks and engines, and by people who annotate their programs.

Frameworks put ranges and operators of their own into traces; what people write stands beside them. A range may be a
step, a part of one (loading, forward, backward, optimizer), or host work that is neither (compiling, logging).
"""

from typing import TYPE_CHECKING, Final

from timesink.knowledge import Pattern, Patterns

_FILE: Final = Patterns(__file__, globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Pattern: ...
