"""A table in the form that a program works with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from timesink.errors import UsageError, unknown

if TYPE_CHECKING:
    import polars as pl

Frames: TypeAlias = Literal["polars", "arrow", "pandas"]


def given_as(frame: pl.DataFrame, to: Frames) -> Any:
    """The rows as a Polars frame, a PyArrow table or a pandas frame, whose columns keep whole nanoseconds and nulls.

    `UsageError` for another form, and where pandas is not installed.
    """
    if to == "polars":
        return frame
    if to == "arrow":
        return frame.to_arrow()
    if to != "pandas":
        raise unknown("form of a table", str(to), ["polars", "arrow", "pandas"])
    try:
        return frame.to_pandas(use_pyarrow_extension_array=True)  # others hold times with nulls as float64
    except ModuleNotFoundError as error:
        raise UsageError("pandas is not installed", remedy="pip install pandas, or take polars or arrow") from error
