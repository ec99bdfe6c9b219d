"""Fixtures every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# A law is about values, not about how busy the machine is: no deadline per example.
settings.register_profile("laws", deadline=None, max_examples=50)
settings.load_profile("laws")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public profiles with known answers; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the public profiles (../shared/data) are not on this machine")
    return SHARED
