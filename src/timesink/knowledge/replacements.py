"""The assumed figures that the environment variable `TIMESINK_ASSUMPTIONS` replaces for one run."""

import math
from typing import Final

from timesink.errors import UsageError

VARIABLE: Final = "TIMESINK_ASSUMPTIONS"


def read_replacements(text: str) -> dict[str, tuple[float, ...]]:
    """The figures by name that the environment variable gives; `UsageError` where it cannot be read."""
    replaced = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, figures = part.partition("=")
        try:
            numbers = tuple(float(figure) for figure in figures.split(":"))
        except ValueError:
            numbers = ()
        if not equals or len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
            raise UsageError(
                f"{VARIABLE}: {part!r} is not an assumption",
                remedy="write name=value or name=low:value:high, such as fixes.loading_left=0.2",
            )
        replaced[name.strip().lower()] = numbers
    return replaced
