"""The parts of a stage as they are typed: ``encode=t_in..t_out,send=t_out..t_sent``. Reads no file."""

from timesink.errors import UsageError


def parts_named(columns: str) -> list[tuple[str, str, str]]:
    """Name, column of the begin and of the end of each part. Raises `UsageError` for what names none."""
    parts = []
    for text in filter(None, columns.split(",")):
        name, _, ends = text.partition("=")
        begin, _, end = (part.strip() for part in ends.partition(".."))
        if not (name.strip() and begin and end):
            raise UsageError(f"--columns: {text!r} is not a part", remedy="write NAME=BEGIN..END, several with commas")
        parts.append((name.strip(), begin, end))
    return parts
