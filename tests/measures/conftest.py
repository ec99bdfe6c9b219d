"""The public profiles as traces, each read once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from timesink.model.trace import Trace
from timesink.readers import read

Load = Callable[[str], Trace]


@cache
def _read(path: Path) -> Trace:
    return read(path, cache=False)


@pytest.fixture
def load(shared_data: Path) -> Load:
    """Read `kind/name.suffix` of the public or own profiles: `load("public/kineto/simple_add.json.gz")`."""
    return lambda name: _read(shared_data / name)
