"""`timesink idle`: why each GPU waited."""

from __future__ import annotations

from typing import Annotated

from timesink.cli.options import PageOutput, Paths, Reading, Stepping, option
from timesink.cli.output import working


def command(
    paths: Paths,
    top: Annotated[int, option("--top", "N", "Rows of the table of places.", min=1)] = 15,
    *,
    writing: PageOutput,
    reading: Reading,
    stepping: Stepping,
) -> int:
    """Show what each GPU waited for while it was idle.

    Every gap is blamed whole and once; what nothing explains is called unexplained.
    """
    target = writing.sink(paths)
    trace = stepping.applied(reading.trace(paths))
    with working("blaming idle time"):
        from timesink.diagnosis.undiagnosable import check_device_work
        from timesink.views.summary import idle_page

        check_device_work(trace, "idle time")
        page = idle_page(trace, top)
    target.show(page)
    return 0
