"""Lines of source files that a trace names: below one folder only, and of source files only."""

from __future__ import annotations

from pathlib import Path

import pytest

from timesink.views.lines import source_line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work" / "pkg").mkdir(parents=True)
    (tmp_path / "work" / "pkg" / "model.py").write_text("def f():\n    return 1  " + "x" * 200 + "\n")
    (tmp_path / "work" / "key.pem").write_text("secret\n")
    (tmp_path / "outside.py").write_text("secret\n")
    (tmp_path / "work" / "link.py").symlink_to(tmp_path / "outside.py")
    return tmp_path / "work"


@pytest.mark.parametrize("file", ["pkg/model.py", "/home/else/pkg/model.py"])
def test_a_line_is_found_by_its_path_or_a_tail_of_it(folder: Path, file: str) -> None:
    text = source_line(folder, file, 2)
    assert text is not None and text.startswith("return 1") and len(text) == 100


@pytest.mark.parametrize(
    "file", ["../outside.py", "link.py", "key.pem", "pkg", "none.py", "a\0.py", "x/" * 3000 + "y.py"]
)
def test_nothing_else_is_shown(folder: Path, file: str) -> None:
    assert source_line(folder, file, 1) is None


@pytest.mark.parametrize("line", [None, 0, -1, 99])
def test_a_line_that_is_not_there_is_not_shown(folder: Path, line: int | None) -> None:
    assert source_line(folder, "pkg/model.py", line) is None
