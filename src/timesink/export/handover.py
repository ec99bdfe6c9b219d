"""A file for the Perfetto UI: served to one origin, under one path, once, on loopback."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import copyfileobj
from urllib.parse import urlencode, urlsplit

from timesink.errors import UsageError

HOST, PORT = "127.0.0.1", 9001  # the one port that the UI's content security policy lets it fetch from
PATH = "/trace.pftrace"


def checked_origin(origin: str) -> str:
    """The origin, if it is one: scheme and host without a path. `UsageError` otherwise."""
    parts = urlsplit(origin)
    is_origin = parts.scheme in ("https", "http") and parts.netloc and f"{parts.scheme}://{parts.netloc}" == origin
    if not is_origin:
        raise UsageError(f"{origin!r} is no origin", remedy="write it as https://ui.perfetto.dev")
    return origin


def deep_link(origin: str, window_ns: tuple[int, int] | None) -> str:
    """The UI's address that fetches the trace and shows a window of it, in the trace's own nanoseconds."""
    query = {"url": f"http://{HOST}:{PORT}{PATH}"}
    if window_ns is not None:
        query |= {"visStart": str(window_ns[0]), "visEnd": str(window_ns[1])}
    return f"{origin}/#!/?{urlencode(query)}"


def serve_once(
    file: Path, origin: str, timeout_s: float, *, port: int = PORT, on_ready: Callable[[], object] | None = None
) -> bool:
    """Answer requests until the file was fetched in full, or the time is over; whether it was fetched.

    Every other path is refused, and so is a page of another origin: it gets no permission to read the answer.
    """
    taken: list[bool] = []
    try:
        server = HTTPServer((HOST, port), _handler(file, origin, taken))
    except OSError as error:
        raise UsageError(f"cannot listen on {HOST}:{port}: {error.strerror}", remedy="end what uses it") from error
    with server:
        if on_ready is not None:
            on_ready()
        end = time.monotonic() + timeout_s
        while not taken and (left := end - time.monotonic()) > 0:
            server.timeout = left
            server.handle_request()
    return bool(taken)


def _handler(file: Path, origin: str, taken: list[bool]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            asked = self.headers.get("Origin")
            if self.path != PATH or self.headers.get("Host") != f"{HOST}:{self.server.server_port}":  # type: ignore[attr-defined]
                self.send_error(404)
                return
            if asked is not None and asked != origin:
                self.send_error(403)
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(file.stat().st_size))
            self.send_header("Access-Control-Allow-Origin", origin)
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            with file.open("rb") as stream:
                copyfileobj(stream, self.wfile)
            taken.append(True)

        def do_OPTIONS(self) -> None:
            """Browsers ask before a public page may fetch from this machine."""
            self.send_response(204)
            self.send_header("Access-Control-Allow-Origin", origin)
            self.send_header("Access-Control-Allow-Methods", "GET")
            self.send_header("Access-Control-Allow-Headers", "*")
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: requests are no concern of the terminal."""

    return Handler
