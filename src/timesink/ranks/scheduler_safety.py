"""Which Dask scheduler is meant, and a warning where whoever reaches it could run programs on its workers."""

from __future__ import annotations

import ipaddress
import warnings
from pathlib import Path
from urllib.parse import urlsplit

from timesink.errors import UsageError
from timesink.plain_json import document


class PlaintextScheduler(UserWarning):
    """A scheduler is spoken to without TLS over a network."""


def client_arguments(scheduler: str) -> dict[str, str]:
    """What a client needs to reach it. Warns of a plain-text address that leaves this machine."""
    parts = urlsplit(scheduler)
    if parts.scheme not in ("tcp", "tls", ""):
        raise UsageError(f"{scheduler!r} is no scheduler", remedy="give tcp://host:port, tls://host:port or a file")
    if parts.scheme:
        _warn_if_open(parts.scheme, parts.hostname or "")
        return {"address": scheduler}
    path = Path(scheduler)
    if not path.is_file():
        raise UsageError(f"no scheduler file {scheduler}", remedy="start one: dask scheduler --scheduler-file FILE")
    try:
        said = urlsplit(str(document(path)["address"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{scheduler} is no scheduler file: {error}", remedy="let dask scheduler write it") from error
    _warn_if_open(said.scheme, said.hostname or "")
    return {"scheduler_file": scheduler}


def _warn_if_open(scheme: str, host: str) -> None:
    if scheme == "tls" or _is_loopback(host):
        return
    message = f"the scheduler at {host} is reached without TLS: whoever else reaches it can run programs on its workers"
    warnings.warn(message, PlaintextScheduler, stacklevel=2)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
