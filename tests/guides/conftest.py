"""Captures of the guides' hour on a GPU."""

from pathlib import Path

import pytest
from benchmarks.faults.pack import unpacked

CAPTURES = Path(__file__).resolve().parents[2] / "benchmarks/guides/captures"


@pytest.fixture(scope="session")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captures of one H100, unpacked; nobody writes there."""
    folder = tmp_path_factory.mktemp("hour")
    unpacked(CAPTURES / "one.tar.xz", folder)
    return folder
