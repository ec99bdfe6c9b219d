"""Captures of the guides' hour on a GPU."""

import tarfile
from pathlib import Path

import pytest

CAPTURES = Path(__file__).resolve().parents[2] / "benchmarks/guides/captures"


@pytest.fixture(scope="session")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captures of one H100, unpacked; nobody writes there."""
    folder = tmp_path_factory.mktemp("hour")
    with tarfile.open(CAPTURES / "one.tar.xz") as opened:
        opened.extractall(folder, filter="data")
    return folder
