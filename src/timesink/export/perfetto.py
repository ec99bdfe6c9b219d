"""A trace in Perfetto's own format, written with its official messages (docs.perfetto.dev, TrackEvent).

Perfetto's UI fetches the file from this machine: it is served to one origin, under one path, once, on loopback.
"""

import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any
from urllib.parse import urlencode

from timesink.diagnosis.verdicts import Diagnosis
from timesink.errors import UsageError, extra
from timesink.export.tracks import CounterTrack, SliceTrack, counter_tracks, edges, nesting_lanes, slice_tracks
from timesink.model.trace import Trace
from timesink.untrusted import scrub

SEQUENCE = 1  # one writer, so one sequence of packets
_CLEARED, _NEEDS_STATE = 1, 2  # TracePacket.SequenceFlags


def write_perfetto(trace: Trace, diagnosis: Diagnosis | None, file: IO[bytes]) -> int:
    """Write every track to a binary file; return the number of slices.

    Times are the trace's own nanoseconds, or count from its first moment where that is negative: the format knows no
    negative ones. Intervals of one track that cross share it no longer: the later one goes to a track of the same name.
    """
    writer = _Writer(file, -min((trace.extent_ns or (0, 0))[0], 0))
    written = 0
    for track in slice_tracks(trace, diagnosis):
        written += writer.slices(track)
    for counter in counter_tracks(trace):
        writer.counter(counter)
    return written


class _Writer:
    """Packets of one sequence: groups and tracks by number, names once."""

    def __init__(self, file: IO[bytes], later_ns: int) -> None:
        self._later_ns = later_ns
        self._messages = extra("perfetto.protos.perfetto.trace.perfetto_trace_pb2", "perfetto")
        self._file = file
        self._groups: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._tracks = 0
        first = self._packet()
        first.sequence_flags = _CLEARED
        self._write(first)

    def slices(self, track: SliceTrack) -> int:
        """The intervals of a track, as many lines of one name as they need."""
        begin, end = self._messages.TrackEvent.TYPE_SLICE_BEGIN, self._messages.TrackEvent.TYPE_SLICE_END
        for rows in nesting_lanes(track.start_ns, track.end_ns):
            uuid = self._track(track.group, track.label)
            for edge in edges(rows, track.start_ns, track.end_ns):
                packet = self._packet()
                packet.timestamp = max(edge.time_ns + self._later_ns, 0)
                packet.sequence_flags = _NEEDS_STATE
                event = packet.track_event
                event.track_uuid = uuid
                event.type = begin if edge.is_begin else end
                if edge.is_begin:
                    self._describe(packet, track, edge.row)
                self._write(packet)
        return len(track.start_ns)

    def counter(self, track: CounterTrack) -> None:
        """The values of a counter."""
        uuid = self._track(track.group, track.label, counter_unit=track.unit)
        for time_ns, value in zip(track.time_ns, track.value, strict=True):
            packet = self._packet()
            packet.timestamp = max(time_ns + self._later_ns, 0)
            packet.track_event.track_uuid = uuid
            packet.track_event.type = self._messages.TrackEvent.TYPE_COUNTER
            packet.track_event.counter_value = value
            self._write(packet)

    def _describe(self, packet: Any, track: SliceTrack, row: int) -> None:
        name = scrub(track.names[row])
        number = self._names.get(name)
        if number is None:
            number = self._names[name] = len(self._names) + 1
            entry = packet.interned_data.event_names.add()
            entry.iid, entry.name = number, name
        packet.track_event.name_iid = number
        packet.track_event.categories.append(track.table or "timesink")
        if track.flow[row]:
            packet.track_event.flow_ids.append(track.flow[row])

    def _track(self, group: str, label: str, counter_unit: str = "") -> int:
        """A new track under its group, which is described when first named."""
        parent = self._groups.get(group)
        if parent is None:
            parent = self._groups[group] = self._described(scrub(group), None, "")
        return self._described(scrub(label), parent, counter_unit)

    def _described(self, name: str, parent: int | None, counter_unit: str) -> int:
        self._tracks += 1
        packet = self._packet()
        descriptor = packet.track_descriptor
        descriptor.uuid, descriptor.name = self._tracks, name
        if parent is not None:
            descriptor.parent_uuid = parent
        if counter_unit:
            descriptor.counter.unit_name = counter_unit
        self._write(packet)
        return self._tracks

    def _packet(self) -> Any:
        packet = self._messages.TracePacket()
        packet.trusted_packet_sequence_id = SEQUENCE
        return packet

    def _write(self, packet: Any) -> None:
        """One field of the message `Trace`: its tag, the length as a base-128 number, the packet."""
        body = packet.SerializeToString()
        self._file.write(b"\x0a" + bytes(_base_128(len(body))) + body)


def _base_128(number: int) -> Iterator[int]:
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number


HOST, PORT = "127.0.0.1", 9001  # the one port that the UI's content security policy lets it fetch from
PATH = "/trace.pftrace"


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
