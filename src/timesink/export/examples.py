"""Queries to begin with. Reads no trace."""

from collections.abc import Iterator
from importlib.resources import files

from timesink.errors import unknown
from timesink.records import Record


class Example(Record):
    """A question and its SQL; `name` is what the command takes in place of a query."""

    name: str
    question: str
    sql: str


def _examples() -> Iterator[Example]:
    """Those of `examples.sql`: a comment with name and question above each, a blank line below."""
    for block in files("timesink.export").joinpath("examples.sql").read_text(encoding="utf-8").split("\n\n"):
        head, *lines = block.strip().splitlines()
        name, _, question = head.removeprefix("-- ").partition(": ")
        yield Example(name, question, " ".join(lines))


EXAMPLES = tuple(_examples())


def query_named(asked: str) -> str:
    """The SQL that is asked: a word alone is the name of an example. `UsageError` where it is of none."""
    if len(asked.split()) > 1:
        return asked
    known = {one.name: one.sql for one in EXAMPLES}
    if asked not in known:
        raise unknown("example", asked, list(known), "timesink query")
    return known[asked]
