"""Fixtures of the readers' tests."""

from pathlib import Path
from typing import Any

import pytest
from tests.readers.nsys_exports import write_sqlite

from timesink.model.trace import Trace
from timesink.readers import read


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Writes text or bytes as a trace file and reads it."""

    def write(content: str | bytes, name: str = "trace.json", **options: Any) -> Trace:
        file = tmp_path / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return read(file, cache=False, **options)

    return write


@pytest.fixture
def export(tmp_path: Path) -> Any:
    """Writes tables as an Nsight Systems export and reads it."""

    def reading(*texts: str) -> Trace:
        return read(write_sqlite(tmp_path / "export.sqlite", "\n\n".join(texts)), cache=False)

    return reading
