"""Fixtures every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A law is about values, not about how busy the machine is: no deadline per example.
settings.register_profile("laws", deadline=None, max_examples=50)
settings.load_profile("laws")

PROFILES = Path(os.environ.get("TIMESINK_TEST_PROFILES") or Path(__file__).resolve().parents[2] / "shared" / "data")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public profiles with known answers; tests that need it skip where it is absent."""
    if not PROFILES.is_dir():
        pytest.skip("the public profiles are not on this machine (TIMESINK_TEST_PROFILES names their folder)")
    return PROFILES
