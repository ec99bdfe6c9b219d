"""What a report says of the session: machine, versions, command line, devices."""

from __future__ import annotations

from dataclasses import dataclass, field

from timesink.readers.ncu.wire import BYTES, FIXED32, FIXED64, Field, count, fields, real, text

_TOOL, _CUDA, _DRIVER = "Nsight Compute Target", "CUDA Version", "Display Driver Version"


@dataclass(slots=True)
class Session:
    """The session details of a report, gathered over its blocks."""

    host: str | None = None
    command: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    devices: dict[int, dict[str, float | str]] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)

    @property
    def tool_version(self) -> str | None:
        """Version of Nsight Compute, as in ``2025.3.1.0``."""
        words = self.versions.get(_TOOL, "").split()
        return words[0] if words else None

    @property
    def cuda_version(self) -> str | None:
        """CUDA version of the driver."""
        return self.versions.get(_CUDA)

    @property
    def driver_version(self) -> str | None:
        """Version of the display driver."""
        return self.versions.get(_DRIVER)


def take_session(data: bytes, details: Field, session: Session) -> None:
    """Add what one SessionDetails message says."""
    for part in fields(data, details.start, details.end):
        if part.wire != BYTES:
            continue
        match part.number:
            case 3 | 4:
                names = {one.number: text(data, one) for one in fields(data, part.start, part.end) if one.wire == BYTES}
                session.host = names.get(5) or session.host
            case 6:
                _take_device(data, part, session)
            case 8:
                pair = {one.number: text(data, one) for one in fields(data, part.start, part.end) if one.wire == BYTES}
                if 1 in pair:
                    session.versions[pair[1]] = pair.get(2, "")
            case 11:
                session.command = text(data, part) or session.command
            case _:
                pass


def take_process(data: bytes, process: Field, session: Session) -> None:
    """Add what one Process message says: its id and its executable."""
    number, name = None, ""
    for part in fields(data, process.start, process.end):
        if part.number == 1:
            number = part.value
        elif part.number == 3 and part.wire == BYTES:
            name = text(data, part)
    if number is not None:
        session.processes[number] = name


def _take_device(data: bytes, part: Field, session: Session) -> None:
    """A device{1: ordinal, 2: product name, 3: attribute{1: name, 2: value{...}}}."""
    ordinal, attributes = 0, dict[str, float | str]()
    for one in fields(data, part.start, part.end):
        if one.number == 1:
            ordinal = count(one)
        elif one.number == 2 and one.wire == BYTES:
            attributes["device__attribute_display_name"] = text(data, one)
        elif one.number == 3 and one.wire == BYTES:
            name, value = _attribute(data, one)
            if name and value is not None:
                attributes.setdefault(name, value)
    session.devices[ordinal] = attributes


def _attribute(data: bytes, part: Field) -> tuple[str, float | str | None]:
    name: str = ""
    value: float | str | None = None
    for one in fields(data, part.start, part.end):
        if one.number == 1 and one.wire == BYTES:
            name = text(data, one)
        elif one.number == 2 and one.wire == BYTES:
            for choice in fields(data, one.start, one.end):
                if choice.wire == BYTES:
                    value = text(data, choice)
                else:
                    value = real(data, choice) if choice.wire in (FIXED32, FIXED64) else float(choice.value)
    return name, value
