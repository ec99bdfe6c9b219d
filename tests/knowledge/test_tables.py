"""A damaged row of a table that people edit is an error that names the file, the line and the way out."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from timesink.errors import UsageError
from timesink.knowledge import assumptions, gpus


def assumed(table: Path) -> None:
    assumptions.read_assumptions(table, {key: type(subject)() for key, subject in assumptions.SUBJECTS.items()})


def peaks(table: Path) -> None:
    tuple(gpus.read_peaks(table))


READERS: dict[str, Callable[[Path], None]] = {"assumptions.txt": assumed, "gpus.txt": peaks}
ROWS = [
    (name, at)
    for name in READERS
    for at in range(len(Path(gpus.__file__).with_name(name).read_text(encoding="utf-8").splitlines()))
]


def refused(tmp_path: Path, name: str, at: int, row: str) -> UsageError:
    """The error that a table gives with another row in one line."""
    lines = Path(gpus.__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    table = tmp_path / name
    table.write_text("\n".join([*lines[:at], row, *lines[at + 1 :]]) + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match=re.escape(f"{table}, line {at + 1}: ")) as error:
        READERS[name](table)
    assert error.value.remedy
    return error.value


def row_of(name: str, at: int) -> list[str]:
    return re.split(" {2,}", Path(gpus.__file__).with_name(name).read_text(encoding="utf-8").splitlines()[at])


@pytest.mark.parametrize("name", READERS)
def test_the_tables_are_read_as_they_are(name: str) -> None:
    READERS[name](Path(gpus.__file__).with_name(name))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "at"), ROWS)
def test_a_row_that_lacks_any_one_of_its_cells_is_refused(name: str, at: int, tmp_path: Path) -> None:
    cells = row_of(name, at)
    for dropped in range(len(cells)):
        refused(tmp_path, name, at, "  ".join(cells[:dropped] + cells[dropped + 1 :]))


@pytest.mark.parametrize(("name", "at"), [(name, at) for name, at in ROWS if at == 0 or name == "assumptions.txt"])
def test_a_row_under_a_misspelled_key_is_refused(name: str, at: int, tmp_path: Path) -> None:
    cells = row_of(name, at)
    for at_key in range(len(cells) if at == 0 else 1):
        word = f"{cells[at_key]}x"
        assert repr(word) in str(refused(tmp_path, name, at, "  ".join([*cells[:at_key], word, *cells[at_key + 1 :]])))


@pytest.mark.parametrize(
    ("name", "column", "cell", "says"),
    [
        ("assumptions.txt", "value", "x", "'x' is no value"),
        ("assumptions.txt", "value", "nan", "'nan' is no value"),
        ("assumptions.txt", "value", "-5", "-5 does not lie between"),
        ("assumptions.txt", "why", "-", "'-' is no why"),
        ("assumptions.txt", "rules", "KRN1O3", "'KRN1O3' is no rules"),
        ("assumptions.txt", "set on", "tunes", "'tunes' is no set on"),
        ("gpus.txt", "chip", "9", "'9' is no chip"),
        ("gpus.txt", "SMs", "-", "'-' is no SMs"),
        ("gpus.txt", "fp16", "98o", "'98o' is no fp16"),
        ("gpus.txt", "driver's name", "H100(", "is no driver's name"),
        ("gpus.txt", "source", "-", "'-' is no source"),
    ],
)
def test_a_cell_that_its_column_cannot_hold_is_refused(
    name: str, column: str, cell: str, says: str, tmp_path: Path
) -> None:
    cells = row_of(name, 1)
    cells[row_of(name, 0).index(column)] = cell
    assert says in str(refused(tmp_path, name, 1, "  ".join(cells)))


def test_an_assumption_without_a_row_and_one_with_two_are_refused(tmp_path: Path) -> None:
    name = "assumptions.txt"
    lines = Path(gpus.__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    table = tmp_path / name
    table.write_text("\n".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(UsageError, match="no row for") as error:
        READERS[name](table)
    assert str(table) in str(error.value) and "take the name out" in error.value.remedy
    table.write_text("\n".join([*lines, lines[1]]), encoding="utf-8")
    with pytest.raises(UsageError, match=rf"line {len(lines) + 1}: assumption .* stands there twice"):
        READERS[name](table)
