"""A file is replaced whole or stays as it was."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from timesink.untrusted.whole_file import whole_file, write_whole


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


def test_a_text_is_replaced_in_utf_8(tmp_path: Path) -> None:
    write_whole(tmp_path / "report.txt", "one")
    write_whole(tmp_path / "report.txt", "µs\n")
    assert (tmp_path / "report.txt").read_bytes() == b"\xc2\xb5s\n" and len([*tmp_path.iterdir()]) == 1


def test_two_writers_of_one_file_write_apart_and_the_last_to_end_stays(tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    with whole_file(target) as first:
        first.write_text("first")
        with whole_file(target) as second:
            second.write_text("second")
            assert second != first and first.read_text() == "first"
        assert target.read_text() == "second"
        with whole_file(target) as third:
            third.write_text("third")
            assert first.read_text() == "first"
    assert target.read_text() == "first" and [*tmp_path.iterdir()] == [target]


KILLED = """
import os, signal, sys; from pathlib import Path; from timesink.untrusted.whole_file import whole_file
with whole_file(Path(sys.argv[1])) as part:
    part.write_text("half")
    part.with_name("journal").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_writer_left_is_not_taken_over_and_goes_with_the_next(tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    target.write_text("old")
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", KILLED, target], check=False).returncode == -signal.SIGKILL
        assert target.read_text() == "old" and len([*tmp_path.iterdir()]) == 2
    with whole_file(target) as part:
        assert [*part.parent.iterdir()] == []
        part.write_text("new")
    assert target.read_text() == "new" and [*tmp_path.iterdir()] == [target]


def test_a_folder_of_another_maker_is_left_alone(tmp_path: Path) -> None:
    open_to_all, elsewhere = tmp_path / ".writing-a", tmp_path / "elsewhere"
    for folder in (open_to_all, elsewhere):
        folder.mkdir()
        folder.chmod(0o755)
        (folder / "kept").write_text("kept")
    (tmp_path / ".writing-b").symlink_to(elsewhere)
    (tmp_path / ".writing-c").write_text("a file")
    for name in "abc":
        write_whole(tmp_path / name, "new")
        assert (tmp_path / name).read_text() == "new"
    assert (open_to_all / "kept").exists() and (elsewhere / "kept").exists()
    assert len([*tmp_path.iterdir()]) == 4 + 3


def test_a_name_as_long_as_names_may_be_is_written(tmp_path: Path) -> None:
    write_whole(tmp_path / ("n" * 255), "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


WRITING = """
import sys; from pathlib import Path; from timesink.untrusted.whole_file import write_whole
for number in range(300):
    write_whole(Path(sys.argv[1]), sys.argv[2] * 1000)
"""


@pytest.mark.slow
def test_many_writers_at_once_leave_one_whole_text(tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    writers = [subprocess.Popen([sys.executable, "-c", WRITING, target, letter]) for letter in "abcd"]
    assert [writer.wait() for writer in writers] == [0] * 4
    text = target.read_text()
    assert len(text) == 1000 and len(set(text)) == 1 and [*tmp_path.iterdir()] == [target]
