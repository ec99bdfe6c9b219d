"""Where the public profiles with known answers are: the variable TIMESINK_TEST_PROFILES, else beside the checkout."""

import os
from collections.abc import Sequence
from pathlib import Path

PROFILES = Path(os.environ.get("TIMESINK_TEST_PROFILES") or Path(__file__).resolve().parents[2] / "shared" / "data")
ABSENT = "the public profiles are not on this machine (TIMESINK_TEST_PROFILES names their folder)"

# Laws over every capture of the fault suite take half an hour: CI reads each tenth, `make sweep` all of them.
EACH = 1 if os.environ.get("TIMESINK_SWEEP") == "all" else 10


def swept(captures: Sequence[Path]) -> list[Path]:
    """The captures that this run reads."""
    return list(captures[::EACH])
