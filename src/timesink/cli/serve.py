"""`timesink report --serve`: the report of a trace on this machine, with a timeline of every event.

The server has one page and answers about one timeline, on loopback, behind a random token. Whatever is asked is
compared with the few paths there are; no path opens a file and nothing can be changed. A browser sends requests in the
name of any page that is open in it, so a request must name this host (a page of another site that makes its name point
here does not) and, where it says which site it comes from, come from this one.
"""

import json
import secrets
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import numpy as np

from timesink.cli.output import working
from timesink.errors import TimesinkError, UsageError
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.untrusted import scrub
from timesink.untrusted.spending import OverBudget, watched
from timesink.views.figures import Timeline
from timesink.views.timeline import MOST_STRIPS, whole_timeline
from timesink.views.timeline.runs import LIVE_RUNS, fitted
from timesink.views.timeline.tiles import Place, Tile, Tiles

HOST: Final = "127.0.0.1"
_NAMES: Final = (HOST, "localhost")
_LONGEST: Final = 16_000  # characters of a request: the numbers of some thousand rows
_LONGEST_TEXT: Final = 300
_COLUMNS: Final = ("start_ns", "end_ns", "busy_ns", "from_ns", "count", "kind", "name", "detail", "from_lane")
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_LARGEST: Final = 1 << 60  # ns: times that can be added


class BadRequest(Exception):
    """A request that is answered with this status and nothing else."""


class _Shown(Record, eq=False):
    """A page, and what answers it."""

    page: bytes
    tiles: Tiles


class Server(ThreadingHTTPServer):
    """Serves `page` under `/TOKEN/`, and beside it what `tiles` answers. What is shown later has a token of its own, so
    that a page that is open keeps what it began with; asked whether it is `ready`, the server says where it is."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, token: str, page: str, tiles: Tiles) -> None:
        self.token = token
        self._shown = {token: _Shown(page.encode("utf-8"), tiles)}
        self._ready: Mapping[str, str] = {}
        super().__init__((HOST, port), _Handler)

    def show(self, token: str, page: str, tiles: Tiles) -> None:
        """Serve another page under its token, to which the first one leads."""
        self._shown[token] = _Shown(page.encode("utf-8"), tiles)
        self._ready = {"report": f"/{token}/"}

    def miss(self, why: str) -> None:
        """Say on the first page that there will be no other."""
        self._ready = {"failed": scrub(why)}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a page that is closed ends its requests."""

    @property
    def address(self) -> str:
        """What a browser opens."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def answer(self, path: str) -> tuple[str, bytes]:
        """The kind of content and the content for a path with its query; `BadRequest` for any other."""
        parts = urlsplit(path) if len(path) <= _LONGEST else None
        _, token, *rest = parts.path.split("/") if parts and parts.path.count("/") == 2 else ("", "", "")
        known = [shown for own, shown in tuple(self._shown.items()) if compare_digest(token.encode(), own.encode())]
        if parts is None or not known:
            raise BadRequest(404)
        if rest == [""]:
            return "text/html; charset=utf-8", known[0].page
        if rest == ["ready"]:
            return "application/json", json.dumps(self._ready).encode("ascii")
        asked = _ANSWERS.get(rest[0])
        if asked is None:
            raise BadRequest(404)
        try:
            query = {key: values[-1] for key, values in parse_qs(parts.query, max_num_fields=8).items()}
            content = asked(known[0].tiles, query)
        except (KeyError, ValueError, OverflowError):
            raise BadRequest(400) from None
        return "application/octet-stream" if rest[0] == "tile" else "application/json", content


def _tile(tiles: Tiles, query: Mapping[str, str]) -> bytes:
    pixel_ns = float(query["pixel"])
    if not 0 <= pixel_ns <= _LARGEST:
        raise ValueError
    return packed_tile(tiles, tiles.tile(_places(query["rows"]), *_stretch(query), pixel_ns))


def _search(tiles: Tiles, query: Mapping[str, str]) -> bytes:
    return _told(tiles, tiles.search(query["text"][:_LONGEST_TEXT]))


def _around(tiles: Tiles, query: Mapping[str, str]) -> bytes:
    place = _number(query["lane"]), _number(query["depth"])
    return _told(tiles, tiles.around(place, _number(query["start"])))


def _budget(tiles: Tiles, query: Mapping[str, str]) -> bytes:
    return _told(tiles, tiles.budget(_number(query["rank"]), _number(query["device"]), *_stretch(query)))


_ANSWERS: Final[Mapping[str, Callable[[Tiles, Mapping[str, str]], bytes]]] = {
    "tile": _tile, "search": _search, "around": _around, "budget": _budget,
}  # fmt: skip


def _told(tiles: Tiles, answer: Mapping[str, Any]) -> bytes:
    """The answer with the texts it speaks of."""
    events = [*answer.get("hits", ()), *answer.get("effects", ()), *answer.get("inside", ())]
    events += [answer["cause"]] if answer.get("cause") else []
    numbers = {number for event in events for number in (event["name"], event["detail"])}
    numbers |= {number for key in ("causes", "kernels") for number, *_ in answer.get(key, ())}
    return json.dumps({**answer, **_texts(tiles, numbers)}).encode("ascii")


class _Handler(BaseHTTPRequestHandler):
    timeout = 30
    server_version, sys_version = "timesink", ""
    server: Server

    def do_GET(self) -> None:
        try:
            self._check()
            with watched():
                kind, content = self.server.answer(self.path)
        except (BadRequest, OverBudget) as bad:
            self.send_error(bad.args[0] if isinstance(bad, BadRequest) else 503)
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _check(self) -> None:
        here = {f"{name}:{self.server.server_port}" for name in _NAMES}
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "none")
        foreign = origin is not None and origin not in {f"http://{host}" for host in here}
        if self.headers.get("Host") not in here or foreign or site not in ("same-origin", "none"):
            raise BadRequest(403)

    def end_headers(self) -> None:
        """With what every answer has."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: requests are no concern of the terminal."""


def packed_tile(tiles: Tiles, tile: Tile) -> bytes:
    """A length, a header in JSON, and columns: times as doubles from the timeline's start, then the others as int32.

    The header has the place and size of each row in the order of the columns, and the texts that are spoken of. It is
    padded, so that the columns begin at a multiple of eight bytes.
    """
    runs = [rows for _, rows in tile.rows]
    columns = {key: np.concatenate([np.zeros(0, np.int64), *(getattr(rows, key) for rows in runs)]) for key in _COLUMNS}
    numbers = set(np.unique(np.concatenate([columns["name"], columns["detail"]])).tolist())
    rows = [(*place, rows.start_ns.size) for place, rows in tile.rows]
    head = json.dumps({"rows": rows, "whole": tile.is_whole, **_texts(tiles, numbers)}).encode("ascii")
    head += b" " * (-(len(head) + 4) % 8)
    for key in ("start_ns", "end_ns", "from_ns"):
        columns[key] = columns[key] - tiles.timeline.start_ns
    times = b"".join(columns[key].astype("<f8").tobytes() for key in _COLUMNS[:4])
    return (
        struct.pack("<I", len(head))
        + head
        + times
        + b"".join(columns[key].astype("<i4").tobytes() for key in _COLUMNS[4:])
    )


def _texts(tiles: Tiles, numbers: set[int]) -> dict[str, dict[int, str]]:
    found = {number: tiles.text(number) for number in sorted(numbers) if number >= 0}
    return {
        "texts": {number: scrub(text) for number, (text, _) in found.items()},
        "short": {number: scrub(short) for number, (_, short) in found.items() if short},
    }


def _places(text: str) -> Iterator[Place]:
    """`3.2` as the first two rows of lane 3, and others after a comma."""
    for some in text.split(","):
        lane, rows = map(_number, some.split("."))
        if rows > MOST_STRIPS:
            raise ValueError
        yield from ((lane, depth) for depth in range(rows))


def _stretch(query: Mapping[str, str]) -> tuple[int, int]:
    start, end = _number(query["from"]), _number(query["to"])
    if end < start:
        raise ValueError
    return start, end


def _number(text: str) -> int:
    """A whole number of at most 18 digits."""
    if len(text) > 19 or not text.removeprefix("-").isdecimal() or not text.isascii():
        raise ValueError
    return max(-_LARGEST, min(int(text), _LARGEST))


def serve_trace(paths: Sequence[Path], trace: Callable[[], Trace], port: int, no_browser: bool) -> None:
    """Serve the timeline and the report of a trace until somebody ends it."""
    import webbrowser

    from timesink.diagnosis.undiagnosable import check_device_work
    from timesink.render.html import timeline_page

    with watched(), working("drawing the timeline"):
        read = trace()
        check_device_work(read, "timeline")
        whole = _drawn(whole_timeline(read))
        page, tiles = timeline_page(fitted(whole, LIVE_RUNS), live=True, awaits=True), Tiles(whole)
    try:
        server = Server(port, secrets.token_urlsafe(32), page, tiles)
    except OSError as error:
        raise UsageError(f"cannot listen on {HOST}:{port}: {error.strerror}", remedy="choose another --port") from error
    with server:
        sys.stdout.write(f"{server.address}\nCtrl-C ends it\n")
        sys.stdout.flush()
        Thread(target=_add_report, args=(server, read, paths), daemon=True).start()
        if not no_browser:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stdout.write("\n")


def _add_report(server: Server, trace: Trace, paths: Sequence[Path]) -> None:
    """Make the report, to which the page that is served already leads."""
    from timesink.diagnosis.engine import diagnose
    from timesink.render.html import render
    from timesink.views.report import live_report

    try:
        with watched(paths):
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
