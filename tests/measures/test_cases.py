"""Measures by hand: each case of `cases/` is a few rows of tables, and what measures make of them.

A case is written as one of a rule is (`tests.rules.case_tables`). A table whose head begins with ``=`` is what the
expression behind it gives: rows of a frame, records one after another, or one; heads are columns or attributes, and
`value` is what was found itself. Names in it are those of the modules that the file lists.
"""

import re
from ast import literal_eval
from collections.abc import Iterator
from fractions import Fraction
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.tables import trace_of

CASES = Path(__file__).with_name("cases")


def cases() -> Iterator[Any]:
    for file in sorted(CASES.glob("*.md")):
        head, *parts = file.read_text(encoding="utf-8").split("\n## ")
        modules = re.findall(r"[\w.]+", head.partition("- Of: ")[2])
        for part in parts:
            title, _, body = part.partition("\n")
            blocks = [block for block in re.split(r"\n\s*\n", body.strip()) if block.startswith("|")]
            yield pytest.param(modules, blocks, id=f"{file.stem}: {title}")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def written(cell: str) -> Any:
    if re.fullmatch(r"\d+/\d+", cell):
        return float(Fraction(cell))
    try:
        return literal_eval(cell) if cell else None
    except (SyntaxError, ValueError):
        return cell


def found(result: Any, heads: list[str]) -> list[list[Any]]:
    if isinstance(result, pl.DataFrame):
        result = result.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
        return [list(row) for row in result.select(heads).iter_rows()]
    several = result if isinstance(result, (list, tuple)) or hasattr(result, "__iter__") else [result]
    rows = [[one if head == "value" else attrgetter(head)(one) for head in heads] for one in several]
    return [[cell.tolist() if isinstance(cell, np.ndarray) else cell for cell in row] for row in rows]


@pytest.mark.parametrize(("modules", "blocks"), list(cases()))
def test_a_measure_of_tables_by_hand(modules: list[str], blocks: list[str]) -> None:
    names = {name: value for module in modules for name, value in vars(import_module(module)).items()}
    names["trace"] = trace_of("\n\n".join(block for block in blocks if not block.startswith("| =")))
    expected = [block.splitlines() for block in blocks if block.startswith("| =")]
    assert expected
    for head, _, *rows in expected:
        expression, *heads = cells(head.replace("| =", "|", 1))
        wanted = [[written(cell) for cell in cells(row)[1:]] for row in rows]
        result = eval(expression, names)
        assert found(result, heads) == [[_near(cell) for cell in row] for row in wanted], expression


def _near(cell: Any) -> Any:
    return pytest.approx(cell) if isinstance(cell, float) else cell
