"""A file is replaced whole or stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from timesink.whole_file import whole_file


def test_a_new_file_stands_under_its_name_once_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "report.json.gz"
    with whole_file(target) as part:
        part.write_text("new")
        assert part.name == target.name and not target.exists()
    assert target.read_text() == "new" and [*tmp_path.iterdir()] == [target]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    target.write_text("old")
    with pytest.raises(ValueError, match="half"), whole_file(target) as part:
        part.write_text("half")
        raise ValueError("half")
    assert target.read_text() == "old" and [*tmp_path.iterdir()] == [target]


def test_mode_and_link_outlive_the_replacement(tmp_path: Path) -> None:
    target, link = tmp_path / "report.txt", tmp_path / "latest"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    with whole_file(link) as part:
        part.write_text("new")
    assert link.is_symlink() and target.read_text() == "new" and target.stat().st_mode & 0o777 == 0o640
