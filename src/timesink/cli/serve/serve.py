"""`timesink serve`: the report of a trace on this machine, with a timeline of every event however many there are."""

from __future__ import annotations

import secrets
import sys
from threading import Thread
from typing import TYPE_CHECKING, Annotated

from timesink.cli.options import Paths, PricedReading, flag, option
from timesink.cli.output import working
from timesink.errors import TimesinkError, UsageError

if TYPE_CHECKING:
    from timesink.cli.serve.server import Server
    from timesink.model.trace import Trace
    from timesink.views.figures import Timeline


def command(
    paths: Paths,
    port: Annotated[int, option("--port", "PORT", "The port on 127.0.0.1; 0 for any.", min=0, max=65535)] = 0,
    no_findings: Annotated[bool, flag("--no-findings", "Leave the diagnosis out of the timeline.")] = False,
    no_browser: Annotated[bool, flag("--no-browser", "Print the link; start no browser.")] = False,
    *,
    reading: PricedReading,
) -> int:
    """Show a report whose timeline holds every event.

    For traces too large for one file. The page asks this machine for what it shows: the timeline at once, and the
    report with its findings when it is made. Only 127.0.0.1 is listened on, only the printed link is answered, and
    nothing can be changed. Ctrl-C ends it.
    """
    import webbrowser

    from timesink.cli.serve.server import HOST, Server
    from timesink.diagnosis.undiagnosable import check_device_work
    from timesink.render.html import timeline_page
    from timesink.views.timeline.lanes import whole_timeline
    from timesink.views.timeline.runs import LIVE_RUNS, fitted
    from timesink.views.timeline.tiles import Tiles

    trace = reading.trace(paths)
    check_device_work(trace, "timeline")
    with working("drawing the timeline"):
        whole = _drawn(whole_timeline(trace))
        page, tiles = timeline_page(fitted(whole, LIVE_RUNS), live=True, awaits=not no_findings), Tiles(whole)
    try:
        server = Server(port, secrets.token_urlsafe(32), page, tiles)
    except OSError as error:
        raise UsageError(f"cannot listen on {HOST}:{port}: {error.strerror}", remedy="choose another --port") from error
    with server:
        sys.stdout.write(f"{server.address}\nCtrl-C ends it\n")
        sys.stdout.flush()
        if not no_findings:
            Thread(target=_add_report, args=(server, trace), daemon=True).start()
        if not no_browser:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stdout.write("\n")
    return 0


def _add_report(server: Server, trace: Trace) -> None:
    """Make the report, to which the page that is served already leads."""
    from timesink.diagnosis.engine import diagnose
    from timesink.render.html import render
    from timesink.views.report import live_report
    from timesink.views.timeline.tiles import Tiles

    try:
        report, whole = live_report(trace, diagnose(trace))
        server.show(secrets.token_urlsafe(32), render(report, live=True), Tiles(_drawn(whole)))
    except TimesinkError as error:
        server.miss(f"there is no diagnosis: {error}")
    except Exception:
        server.miss("there is no diagnosis; timesink's terminal says why")
        raise


def _drawn(timeline: Timeline | None) -> Timeline:
    if timeline is None:
        raise UsageError("nothing ran on a GPU, so there is no timeline", remedy="record a run that uses one")
    return timeline
