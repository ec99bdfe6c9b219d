"""What every reader owes, whatever its format: a new reader is under this test as soon as it has samples to fuzz."""

from pathlib import Path
from unittest import mock

import pytest
from fuzz.targets import LIMITS, Target, targets

from timesink.errors import MissingTool, UnreadableTrace, UsageError
from timesink.model.tables import SOURCES
from timesink.model.trace import NoteKind, Trace
from timesink.readers import Reader, WindowReader, head_of, read, reader_of, readers

READERS = {reader.format: reader for reader in readers()}
SAMPLES = [(name, number) for name in READERS for number, _ in enumerate(targets()[name].seeds()[:4])]
# A log or a page that ends at a line is whole for all its reader can tell, and may be cut anywhere.
BY_LINES = ("torch_logs", "ncu_csv", "nsys_stats")
every_sample = pytest.mark.parametrize(("name", "number"), SAMPLES)


def placed(name: str, number: int, folder: Path, share: float = 1.0) -> Path:
    """A sample of the format, or its beginning, under a name of the format."""
    target: Target = targets()[name]
    data = target.seeds()[number]
    path = target.placed(data, folder)
    for file in [path] if path.is_file() else path.iterdir():
        content = file.read_bytes()
        file.write_bytes(content[: int(len(content) * share)])
    return path


def read_by(reader: Reader, path: Path) -> Trace:
    """The trace; a report of Nsight Systems is read where its tool is, and only there."""
    with mock.patch("timesink.readers.nsys.find_nsys", return_value=None):
        try:
            return reader.read(path, LIMITS)
        except MissingTool:
            pytest.skip("reads through nsys, hidden here on purpose; tests/capture/test_real_nsys.py has a real one")


@pytest.mark.parametrize("name", READERS)
def test_a_reader_says_what_it_reads(name: str) -> None:
    reader = READERS[name]
    assert reader.kind in ("trace", "companion")
    assert reader.priority in (0, 1, 2)


@every_sample
def test_no_reader_takes_what_another_was_asked_for_before(name: str, number: int, tmp_path: Path) -> None:
    path = placed(name, number, tmp_path)
    taking = [reader for reader in readers() if reader.recognises(path, head_of(path))]
    assert reader_of(path) is taking[0] is READERS[name]
    assert all(reader.priority > READERS[name].priority for reader in taking[1:])


@every_sample
def test_what_is_read_obeys_the_tables_declarations(name: str, number: int, tmp_path: Path) -> None:
    trace = read_by(READERS[name], placed(name, number, tmp_path))
    assert set(trace[SOURCES]["format"]) == {name}
    for table in trace:
        table.check(trace[table])


@every_sample
@pytest.mark.parametrize("share", [0.02, 0.5, 0.95])
def test_the_beginning_of_a_file_is_read_with_a_note_or_refused(
    name: str, number: int, share: float, tmp_path: Path
) -> None:
    path = placed(name, number, tmp_path, share)
    try:
        trace = read_by(READERS[name], path)
    except UnreadableTrace as refusal:
        assert str(path.name) in str(refusal)
        assert refusal.remedy
    else:
        for table in trace:
            table.check(trace[table])
        assert name in BY_LINES or any(note.kind is NoteKind.DAMAGE for note in trace.notes)


@every_sample
def test_a_window_is_read_or_refused_in_so_many_words(name: str, number: int, tmp_path: Path) -> None:
    path = placed(name, number, tmp_path)
    if isinstance(READERS[name], WindowReader):
        whole = read_by(READERS[name], path)
        first, last = whole.extent_ns or (0, 0)
        window = read(path, window=f"0ns:{last - first + 1}ns", cache=False)
        assert set(window.tables) == set(whole.tables)
    else:
        with pytest.raises(UsageError, match="cannot be read through a window"):
            read(path, window="0s:1s", cache=False)
