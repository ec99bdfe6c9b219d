"""The command that a measurement runs in a fresh process, and where: hosts, GPUs, packages, manifests of captures.

A command is split without a shell; past its time limit its process group is killed. Hard facts of two places must agree
before two measurements are compared; one change at a time can be judged.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from timesink.errors import MissingTool, ToolFailed, UsageError
from timesink.records import Record, field, replace
from timesink.sandbox.runs import BoxedRun, Grants, NoSandbox, Sandbox
from timesink.untrusted.masking import joined, masked_words, stored_command
from timesink.untrusted.nvidia_tools import ask
from timesink.untrusted.plain_json import document, parsed

if TYPE_CHECKING:
    from timesink.model.trace import Trace


_TAIL_BYTES = 2000


class Command(Record):
    """A program with its arguments and the environment variables to add; never a shell line."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Command:
        """Split as a POSIX shell would split words; leading NAME=value words become environment. No shell runs."""
        try:
            words = shlex.split(text)
        except ValueError as broken:
            raise UsageError(f"cannot split the command {text!r}: {broken}", remedy="balance its quotes") from broken
        added: dict[str, str] = {}
        while words and "=" in words[0]:
            name, _, value = words[0].partition("=")
            if not (name.isascii() and name.isidentifier()):
                break
            added[name] = value
            del words[0]
        if not words:
            raise UsageError(f"the command {text!r} names no program", remedy="give a program and its arguments")
        return cls(tuple(words), added)

    def with_environment(self, **added: str) -> Command:
        """The same command with more environment variables."""
        return replace(self, environment={**self.environment, **added})

    @property
    def text(self) -> str:
        """The command as one would type it, secrets taken out."""
        return stored_command([*(f"{name}={value}" for name, value in self.environment.items()), *self.argv])


class Finished(Record):
    """A process that ended with status 0: wall-clock bounds (seconds since the epoch), its output, and how long it ran
    by a clock that nobody sets.
    """

    started_s: float
    ended_s: float
    stdout: Path
    stderr: Path
    seconds: float = 0.0
    boxed: BoxedRun | None = None

    def found(self, path: Path) -> Path:
        """Where a file lies that the process wrote under that name."""
        return path if self.boxed is None else self.boxed.found(path)

    def close(self) -> None:
        """Forget what it wrote."""
        if self.boxed is not None:
            self.boxed.close()


@contextmanager
def boxes(allow_writes: bool = False) -> Iterator[Sandbox | None]:
    """A sandbox for runs in the current folder; none where the user lets them write. `UsageError` where none is had."""
    if allow_writes:
        yield None
        return
    try:
        box = Sandbox.open(Path.cwd())
    except NoSandbox as why:
        raise UsageError(
            f"this machine lets no program be run apart from your files ({why})",
            remedy="run it in a copy of the folder, and let it write there with --allow-writes",
        ) from why
    try:
        yield box
    finally:
        box.close()


def run(
    command: Command, folder: Path, *, extra: Mapping[str, str], timeout_s: float, box: Sandbox | None = None
) -> Finished:
    """Run to the end with output in `folder`. `ToolFailed` on a status other than 0 or past the time limit."""
    stdout, stderr = folder / "stdout.txt", folder / "stderr.txt"
    environment = {**os.environ, **command.environment, **extra}
    started_s, began_s = time.time(), time.perf_counter()
    with stdout.open("wb") as out, stderr.open("wb") as err:
        boxed: BoxedRun | None = None
        process: subprocess.Popen[bytes] | BoxedRun
        try:
            if box is None:
                process = subprocess.Popen(
                    command.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment,
                    start_new_session=True,
                )  # fmt: skip
            elif not shutil.which(command.argv[0], path=environment.get("PATH")):
                raise FileNotFoundError
            else:
                asked = Grants(records=[folder])
                process = boxed = box.start(
                    command.argv, environment, output=out.fileno(), errors=err.fileno(), asked=asked
                )
        except FileNotFoundError as absent:
            raise MissingTool(f"no program {command.argv[0]!r}", remedy="check the path and the spelling") from absent
        except (OSError, NoSandbox) as refused:
            why = refused.strerror if isinstance(refused, OSError) else refused
            raise ToolFailed(f"{command.argv[0]!r} cannot be started: {why}") from refused
        status = _wait(process, timeout_s)
        seconds = time.perf_counter() - began_s
    finished = Finished(started_s, time.time(), stdout, stderr, seconds, boxed)
    if status != 0:
        finished.close()
    if status is None:
        raise ToolFailed(f"{command.text!r} ran past {timeout_s:g} s", remedy="raise --timeout or run fewer steps")
    if status != 0:
        what = f"{command.text!r} ended with status {status}: {last_line(stderr)!r}"
        is_denied = boxed is not None and boxed.denied(last_line(stderr))
        raise ToolFailed(what, remedy="let it write with --allow-writes" if is_denied else "make it run alone first")
    return finished


def _wait(process: subprocess.Popen[bytes] | BoxedRun, timeout_s: float) -> int | None:
    """The exit status, or None past the limit. Whatever ends the wait, nothing of the process group is left running."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def last_line(path: Path) -> str:
    """The last non-empty line of a text file, at most 300 characters: what a failed program had to say."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no error output"


_PROBES, _PROBE_LOOPS = 5, 60_000


def probe_host() -> float:
    """Seconds that a fixed computation takes on this host now, of about 3 ms: the median of five."""
    taken = []
    for _ in range(_PROBES):
        started = time.perf_counter()
        for _ in range(_PROBE_LOOPS):
            pass
        taken.append(time.perf_counter() - started)
    return sorted(taken)[_PROBES // 2]


_GPU_FIELDS = ("name", "memory.total", "mig.mode.current", "power.limit", "driver_version", "compute_cap")
_PACKAGES = (
    "torch", "triton", "jax", "nvidia-cudnn", "nvidia-nccl", "nvidia-cublas", "transformer-engine", "flash-attn"
)  # fmt: skip
_ASK_PACKAGES = (
    "import importlib.metadata as m, json, sys; "
    "print(json.dumps({'python': '%d.%d' % sys.version_info[:2], **{(d.metadata['Name'] or '').lower(): d.version "
    "for d in m.distributions()}}))"
)


class Environment(Record):
    """Hard facts: a difference forbids a comparison."""

    hard: Mapping[str, str]

    @property
    def key(self) -> str:
        """Short hash of the hard facts: the name of baselines and calibrations made here."""
        return short_hash(dict(self.hard))


def environment(command: Command | None = None) -> Environment:
    """Where a command would run: this machine's GPUs, and the packages of the command's own interpreter."""
    variables = {**os.environ, **(command.environment if command else {})}
    packages = _packages(command)
    gpus, driver = _gpus(variables.get("CUDA_VISIBLE_DEVICES"))
    hard = {"arch": platform.machine(), "driver major": driver.partition(".")[0], **gpus}
    hard |= {f"package {name}": version for name, version in packages.items() if name.startswith(_PACKAGES)}
    if "python" in packages:
        hard["python"] = packages["python"]
    return Environment(dict(sorted(hard.items())))


def workload(command: Command, files: Iterable[Path] = (), declared: Mapping[str, str] | None = None) -> str:
    """Short hash of what is run: arguments, configuration files, declared facts such as shapes or world size."""
    contents = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    return short_hash([list(command.argv), dict(command.environment), contents, dict(declared or {})])


def accepting(names: Iterable[str]) -> str:
    """The options with which these facts may differ."""
    return " ".join(f"--allow-env-diff {shlex.quote(name)}" for name in names)


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Facts whose values differ, with both values; a fact on one side only differs from "absent"."""
    names = sorted({*one, *other})
    pairs = {name: (one.get(name, "absent"), other.get(name, "absent")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def command_differences(before: Command, after: Command) -> dict[str, tuple[str, str]]:
    """What two commands differ in, secrets taken out: each variable, each run of words, and the packages of their
    interpreters where those differ."""
    found = {}
    for name, pair in differences(before.environment, after.environment).items():
        old, new = (masked_words([f"{name}={value}"])[0].partition("=")[2] for value in pair)
        found[f"variable {name}"] = (old, new)
    masked = masked_words(before.argv), masked_words(after.argv)
    for kind, *at in SequenceMatcher(None, before.argv, after.argv, autojunk=False).get_opcodes():
        if kind != "equal":
            words = masked[0][at[0] : at[1]], masked[1][at[2] : at[3]]
            old, new = (joined(some) or "absent" for some in words)
            found[f"argument {at[0]}" if at[0] else "program"] = (old, new)
    if before.argv[0] != after.argv[0]:
        found |= differences(environment(before).hard, environment(after).hard)
    return found


def not_one_change(differing: Mapping[str, tuple[str, str]]) -> list[str]:
    """A note where more than one thing differs between two sides."""
    several = f"not one change: {len(differing)} facts differ, so no one of them explains the difference alone"
    return [several] if len(differing) > 1 else []


def short_hash(content: object) -> str:
    """Twelve hexadecimal digits of the content's canonical JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _gpus(visible: str | None) -> tuple[dict[str, str], str]:
    """Hard facts of the visible GPUs, and the driver's version; no GPU is a fact too."""
    tool = shutil.which("nvidia-smi")
    if tool is None or visible == "":
        return {"gpu": "none"}, ""
    chosen = ["-i", visible] if visible else []
    asked = [tool, *chosen, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    answer = ask(asked, else_="late")
    return ({"gpu": "unknown: nvidia-smi does not answer"}, "") if answer == "late" else parse_gpus(answer)


def parse_gpus(text: str) -> tuple[dict[str, str], str]:
    """Facts from nvidia-smi's answer, one line per GPU."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) == len(_GPU_FIELDS)]
    if not rows:
        return {"gpu": "none"}, ""
    facts = {"gpu": 0, "gpu memory MiB": 1, "gpu MIG": 2, "gpu power limit W": 3, "gpu compute capability": 5}
    hard = {name: " + ".join(sorted({row[column] for row in rows})) for name, column in facts.items()}
    return {**hard, "gpu count": str(len(rows))}, rows[0][4]


def _packages(command: Command | None) -> dict[str, str]:
    """Versions in the interpreter that will run the command; nothing where it is no Python program."""
    interpreter = sys.executable if command is None else _interpreter(command.argv[0])
    if not interpreter:
        return {}
    try:
        versions = parsed(ask([interpreter, "-c", _ASK_PACKAGES]))
    except ValueError:
        return {}
    return {name: str(version) for name, version in versions.items()} if isinstance(versions, dict) else {}


def _interpreter(program: str) -> str:
    """The Python that runs a program: the program itself, or the one in its first line (torchrun, console scripts)."""
    path = shutil.which(program)
    if path is None:
        return ""
    if Path(path).name.startswith("python"):
        return path
    with Path(path).open("rb") as file:
        first = file.readline(300).decode("utf-8", "replace")
    words = first[2:].split() if first.startswith("#!") else []
    named = [word for word in words if Path(word).name.startswith("python")]
    return (shutil.which(named[0]) or "") if named else ""


# What differs between any two captures and says nothing: when, which process, where the output went, how long it took.
_INCIDENTAL = frozenset((
    "date", "time", "started", "finished", "ended", "duration", "seconds", "pid", "output", "outputs", "path",
    "paths", "file", "files", "sha", "digest", "size", "bytes", "uuid", "id", "session", "created",
))  # fmt: skip
# Of a manifest of ours: what a run measured, and what its trace tells already.
_MEASURED: Final = (
    "timesink_manifest", "made", "missing", "doubts", "unprofiled", "steps.", "facts.", "tool.plan.steps.",
    "tool.plan.folder", "ranks.", "gpus.index", "gpus.name", "gpus.clocks.sm", "gpus.clocks.mem", "gpus.power.draw",
    "gpus.utilization", "gpus.temperature",
)  # fmt: skip
_VERSIONS: Final = "ranks.software."
# Without these two captures are no measurements of the same thing.
HARD = ("trace format", "ranks", "gpus", "gpu")


def find_manifest(capture: Path) -> Path | None:
    """The manifest of a capture: ``<capture>.manifest.json``, or ``manifest.json`` in its folder."""
    near = [capture.with_name(f"{capture.name}.manifest.json"), capture.with_suffix(".manifest.json")]
    near.append((capture if capture.is_dir() else capture.parent) / "manifest.json")
    return next((path for path in near if path.is_file()), None)


def read_manifest(path: Path) -> dict[str, str]:
    """Its facts as flat text, without what is incidental."""
    try:
        content = document(path)
    except (OSError, ValueError) as broken:
        what = f"{path} is not a readable manifest: {broken}"
        raise UsageError(what, remedy="leave it away or make it anew") from broken
    flat = {name: value for name, value in _flat(content).items() if not _is_incidental(name)}
    if "timesink_manifest" not in flat:
        return flat
    kept = (name for name in flat if name.startswith(_VERSIONS) or not name.startswith(_MEASURED))
    return {name.removeprefix(_VERSIONS): flat[name] for name in kept}


def _is_incidental(name: str) -> bool:
    words = name.lower().replace(".", " ").replace("_", " ").split()
    return any(word.rstrip("0123456789") in _INCIDENTAL for word in words)


def trace_facts(trace: Trace) -> dict[str, str]:
    """What the trace itself says of how and where it was made, and what its author said of its run."""
    from timesink.model.tables import DEVICES, SOURCES

    sources, devices = trace.get(SOURCES), trace.get(DEVICES)
    formats, tools = sources["format"].unique().sort(), sources["tool_version"].drop_nulls().unique().sort()
    names = devices["name"].drop_nulls().unique().sort()
    facts = {
        **trace.facts,
        "trace format": ", ".join(formats),
        "profiler version": ", ".join(tools),
        "ranks": str(sources["rank"].n_unique()),
        "gpus": str(devices.height),
        "gpu": ", ".join(names),
    }
    return {name: value for name, value in facts.items() if value}


def capture_facts(paths: tuple[Path, Path], traces: tuple[Trace, Trace]) -> tuple[dict[str, str], dict[str, str]]:
    """What is known of both captures: what the traces say, and their manifests where each has one of its own."""
    before, after = trace_facts(traces[0]), trace_facts(traces[1])
    one, other = find_manifest(paths[0]), find_manifest(paths[1])
    if one is None or other is None or one == other:
        return before, after
    return {**read_manifest(one), **before}, {**read_manifest(other), **after}


def _flat(content: Any, prefix: str = "") -> dict[str, str]:
    """Values by dotted name; of a list of records, such as ranks, what each says, told once where they agree."""
    if isinstance(content, dict):
        parts = [_flat(value, f"{prefix}.{key}" if prefix else str(key)) for key, value in content.items()]
        return {name: value for part in parts for name, value in part.items()}
    if isinstance(content, list) and content and all(isinstance(one, dict) for one in content):
        told: dict[str, dict[str, None]] = {}
        for name, value in (pair for one in content for pair in _flat(one, prefix).items()):
            told.setdefault(name, {})[value] = None
        return {name: ", ".join(values) for name, values in told.items()}
    return {prefix: json.dumps(content, sort_keys=True) if isinstance(content, list) else str(content)}
