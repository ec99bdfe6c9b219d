"""Where the public profiles with known answers are: the variable TIMESINK_TEST_PROFILES, else beside the checkout."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

PROFILES = Path(os.environ.get("TIMESINK_TEST_PROFILES") or Path(__file__).resolve().parents[2] / "shared" / "data")
ABSENT = "the public profiles are not on this machine (TIMESINK_TEST_PROFILES names their folder)"

# Laws over every capture of the fault suite take half an hour: CI reads each tenth, `make sweep` all of them, and what
# takes minutes of a machine by itself.
EACH = 1 if os.environ.get("TIMESINK_SWEEP") == "all" else 10
takes_minutes = pytest.mark.skipif(EACH > 1, reason="minutes: make sweep runs it")


def swept(captures: Sequence[Path]) -> list[Path]:
    """The captures that this run reads."""
    return list(captures[::EACH])


def first_of(names: Iterable[str], count: int = 2) -> list[str]:
    """The first names, or all of them in a sweep: where each takes half a minute."""
    return list(names)[: None if EACH == 1 else count]
