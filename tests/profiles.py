"""Where the public profiles with known answers are: the variable TIMESINK_TEST_PROFILES, else beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

PROFILES = Path(os.environ.get("TIMESINK_TEST_PROFILES") or Path(__file__).resolve().parents[2] / "shared" / "data")
ABSENT = "the public profiles are not on this machine (TIMESINK_TEST_PROFILES names their folder)"
