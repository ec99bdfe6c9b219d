"""`timesink doctor`: versions, and what would keep a capture from working."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from timesink.cli import options
from timesink.cli.output import sink

if TYPE_CHECKING:
    from timesink.cli.probes import Probe
    from timesink.views.page import Sheet

LIBRARIES = ("polars", "numpy", "scipy", "pyarrow", "adbc-driver-sqlite", "isal", "typer", "rich", "torch")


def command(form: options.Form = None, output: options.Output = None, no_color: options.NoColor = False) -> int:
    """Show versions and which profilers work here.

    Reading and diagnosing traces needs none of the tools; they are for captures and for .nsys-rep files.
    """
    from timesink.cli.probes import container_probe, disk_probes, gpu_probes, sampling_probe, tool_probes
    from timesink.views.page import Page

    target = sink(form, output, no_color)
    tools = (*tool_probes(), *gpu_probes(), sampling_probe(), container_probe(), *disk_probes())
    target.page(Page("timesink doctor", (_tools(tools), _to_do(tools), _versions())))
    return 0


def _tools(probes: tuple[Probe, ...]) -> Sheet:
    from timesink.views.page import Column, Sheet

    columns = (
        Column("tool", "tool"),
        Column("ready", "ready"),
        Column("found", "found"),
        Column("place", "place", is_name=True),
    )
    rows = tuple((probe.name, probe.is_ready, probe.found or "nothing", probe.place or None) for probe in probes)
    return Sheet("tools", "Tools and permissions", columns, rows)


def _to_do(probes: tuple[Probe, ...]) -> Sheet:
    from timesink.views.page import Column, Sheet

    columns = (Column("tool", "tool"), Column("remedy", "to do"))
    rows = tuple((probe.name, probe.remedy) for probe in probes if probe.remedy)
    return Sheet("to_do", "To make captures work here", columns, rows)


def _versions() -> Sheet:
    from timesink.views.page import Column, Sheet

    rows = [("timesink", _installed("timesink"), _native()), ("Python", platform.python_version(), sys.executable)]
    rows.append(("system", platform.system(), platform.release()))
    rows += [(name, _installed(name), "") for name in LIBRARIES]
    columns = (Column("name", "name"), Column("version", "version"), Column("detail", "detail"))
    return Sheet("versions", "Versions", columns, tuple(rows))


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _native() -> str:
    from timesink import _native

    return f"compiled part {_native.__file__}"
