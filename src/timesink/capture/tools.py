"""An installed nsys or ncu: its place, its version, and the options it knows, read from its own help."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from timesink.capture.errors import CaptureError, Fault, failure, refused
from timesink.knowledge.profiler_texts import TOOL_OPTION
from timesink.untrusted.nvidia_tools import find_tool
from timesink.untrusted.plain_text import numbers_in, stated_version

_PATIENCE_S = 60.0
_PACKAGES = {
    "nsys": "install Nsight Systems (package nsight-systems) or Nsight Compute, which carries one, or give --nsys PATH",
    "ncu": "install Nsight Compute (package nsight-compute), or give --ncu PATH",
}
_HELP = {"nsys": ("profile", "--help"), "ncu": ("--help",)}


@dataclass(frozen=True, slots=True)
class Tool:
    """`version` has as many parts as the tool states; `options` are those of `nsys profile` or of `ncu`, None where no
    tool was asked: then it is taken for the newest."""

    name: str
    path: Path
    version: tuple[int, ...]
    options: frozenset[str] | None
    help_text: str

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} {'.'.join(map(str, self.version))}"

    def knows(self, option: str) -> bool:
        """Whether this version has the option (`--name`, without a value)."""
        return self.options is None or option in self.options

    def require(self, option: str, why: str) -> str:
        """The option, or `CaptureError` where this version does not have it."""
        if not self.knows(option):
            raise refused(f"{self.title} has no option {option} ({why})", f"leave it out, or use a newer {self.name}")
        return option


def installed_tool(name: str, given: Path | None = None) -> Tool:
    """The tool given, or the one found. `CaptureError` where there is none, or it does not run."""
    path = given.absolute() if given is not None else find_tool(name)
    if path is None:
        raise CaptureError(Fault.MISSING, f"{name} is not on this machine", remedy=_PACKAGES[name])
    if not path.is_file():
        raise CaptureError(Fault.MISSING, f"there is no {name} at {path}", remedy="check the path")
    version = stated_version(asked(path, "--version")).partition("-")[0]
    words = asked(path, *_HELP[name])
    options = frozenset(re.findall(TOOL_OPTION, words))
    return Tool(name, path, numbers_in(version) or (0,), options, words)


def tool_to_show(name: str, given: Path | None = None) -> Tool:
    """The tool whose command line is to be shown: the installed one, else the newest as its documentation has it."""
    if given is None and find_tool(name) is None:
        return Tool(name, Path(name), (), None, "")
    return installed_tool(name, given)


def asked(path: Path, *arguments: str) -> str:
    """What the tool prints when asked; `CaptureError` where it cannot be asked."""
    try:
        done = subprocess.run(
            [str(path), *arguments], capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or "no answer in time"
        raise failure(f"{path} does not run: {why}", "check the installation") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise failure(
            f"{path} {' '.join(arguments)} ended with status {done.returncode}: {said[-1][:200] if said else ''}",
            "check the installation",
        )
    return done.stdout
