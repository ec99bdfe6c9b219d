"""What a person asked for and may want written: as text, JSON, Markdown or HTML, and where it comes from.

The floor that writes is above the floors that answer, so it registers itself here when the public API is first used.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from timesink.errors import UsageError, extra, unknown
from timesink.records import Record

if TYPE_CHECKING:
    import polars as pl


class Origin(Record):
    """What answered, of which files: the envelope of every JSON document.

    `command` is the words after `timesink` (`memory plan`), or the function of the same name in Python; empty where
    neither was asked. `source` are the files and folders as they were given.
    """

    command: str = ""
    source: tuple[str, ...] = ()


UNASKED: Final = Origin()
"""The origin of a result that no command and no public function was asked for."""


class Presentable:
    """Gives a diagnosis, a page or a comparison its ways out. `writer` takes the result and the name of a format."""

    __slots__ = ()
    writer: ClassVar[Callable[[Any, str], str] | None] = None

    def to_text(self) -> str:
        """As the command line shows it, without colour.

        >>> print(timesink.diagnose("run.json.gz").to_text()[:15])
        input pipeline:
        """
        return self._written("text")

    def to_json(self) -> str:
        """The JSON of the command of that name, indented: a contract with a schema (see JSON)."""
        return self._written("json")

    def to_dict(self) -> dict[str, Any]:
        """What `to_json` writes, as plain values.

        >>> list(timesink.idle("run.json.gz").to_dict())
        ['schema_version', 'command', 'source', 'title', 'causes', 'places', 'notes']
        """
        document: dict[str, Any] = json.loads(self.to_json())
        return document

    def to_markdown(self) -> str:
        """For a ticket or a pull request.

        >>> timesink.idle("run.json.gz", top=1).to_markdown().splitlines()[0]
        '## Idle time of run.json.gz'
        """
        return self._written("md")

    def to_html(self) -> str:
        """One whole page that loads nothing.

        >>> timesink.summary("run.json.gz").to_html()[:15]
        '<!doctype html>'
        """
        return self._written("html")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self._written("notebook")

    def _written(self, form: str) -> str:
        if Presentable.writer is None:
            raise RuntimeError("nothing can be written yet; use a name of the package first, such as timesink.read")
        return Presentable.writer(self, form)


Frames: TypeAlias = Literal["polars", "arrow", "pandas"]


def given_as(frame: pl.DataFrame, to: Frames) -> Any:
    """The rows as a Polars frame, a PyArrow table or a pandas frame, whose columns keep whole nanoseconds and nulls.

    `UsageError` for another form, and where pandas or pyarrow is not installed.
    """
    if to == "polars":
        return frame
    if to in ("arrow", "pandas"):
        extra("pyarrow", "arrow")
    if to == "arrow":
        return frame.to_arrow()
    if to != "pandas":
        raise unknown("form of a table", str(to), ["polars", "arrow", "pandas"])
    try:
        return frame.to_pandas(use_pyarrow_extension_array=True)  # others hold times with nulls as float64
    except ModuleNotFoundError as error:
        raise UsageError("pandas is not installed", remedy="pip install pandas, or take polars or arrow") from error
