"""Every command that opens a file, with the lines it is tried with.

In a line FILE is the mutated input, OUT the beginning of a new file's name beside it, `@` the same kind of input as it
should be and `@KIND` another kind as it should be. The lines of a command that take a kind of input take turns: which
one an input gets follows from its bytes, so that a kept input runs as it did.
"""

from __future__ import annotations

import contextlib
import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from http.server import ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from unittest import mock

from benchmarks import shapes
from fuzz import answers, graphs, laws, records, seeds, written
from timesink.cli.serve import BadRequest, Server
from timesink.views.timeline.tiles import Tiles

TRACES = "kineto_json nsys_sqlite nsys_arrow"
REPORTS = "ncu_report ncu_csv nsys_stats"
SNAPSHOTS = "torch_snapshot torch_memory_timeline"
EVERY = f"{TRACES} {REPORTS} {SNAPSHOTS} torch_logs"
TO_REDACT = EVERY.replace("nsys_arrow ", "")
SETTINGS = "configuration manifest"  # read beside what is asked for

# command: (line, kinds of input) …
LINES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "doctor": (("doctor slow --from FILE -f json", f"{TRACES} diagnosis"), ("doctor slow --from FILE", "diagnosis")),
    "diagnose --start-up": (
        ("diagnose --start-up FILE -f json", TRACES),
        ("diagnose --start-up @graphs --capture FILE", "eager"),
    ),
    "doctor --checklist": (("doctor --checklist FILE -f json", TRACES), ("doctor --checklist FILE FILE", TRACES)),
    "kernels --next": (("kernels --next FILE -f json", TRACES),),
    "capture --redact": (("capture --redact FILE", TO_REDACT), ("capture --redact FILE --check -f json", TO_REDACT)),
    "diagnose": (
        ("diagnose FILE -f json", EVERY),
        ("diagnose FILE -v --steps auto", TRACES),
        ("diagnose FILE --window 1ms:20ms -f json", TRACES),
        ("diagnose FILE --unprofiled-step-ms 3 -f json", TRACES),
        ("diagnose @graphs --capture FILE -f json", "eager"),
        ("diagnose FILE --capture @eager -f json", "graphs"),
        ("diagnose FILE -f sarif -o OUT.json", TRACES),
        ("diagnose @kineto_json -f json", SETTINGS),
        ("diagnose @collectives @rank-0 -f json", "link-times"),
        ("diagnose FILE @rank-0 -f json", "collectives"),
    ),
    "report": (
        ("report FILE -o OUT.html", EVERY),
        ("report FILE --full -o OUT.html", TRACES),
        ("report @graphs --capture FILE -o OUT.html", "eager"),
    ),
    "show statement": (
        ("show statement FILE -f json", TRACES),
        ("show statement FILE --against @ -f md", TRACES),
        ("show statement @ --against FILE", TRACES),
        ("show statement @graphs --capture FILE", "eager"),
    ),
    "show steps": (
        ("show steps FILE -f json", EVERY),
        ("show steps FILE --tree --by-thread --kernels-of .", TRACES),
        ("show steps @graphs --capture FILE -f json", "eager"),
        ("show steps FILE -f csv -o OUT.csv", TRACES),
    ),
    "show start-up": (
        ("show start-up FILE -f json", TRACES),
        ("show start-up FILE --steps auto", TRACES),
        ("show start-up @graphs --capture FILE", "eager"),
    ),
    "show idle": (
        ("show idle FILE -f json", TRACES),
        ("show idle @graphs --capture FILE", "eager"),
        ("show idle FILE --steps auto", TRACES),
    ),
    "show lines": (
        ("show lines FILE --code . -f json", TRACES),
        ("show lines @graphs --capture FILE --code .", "eager"),
    ),
    "show compile": (
        ("show compile FILE -f json", "torch_logs kineto_json"),
        ("show compile FILE @kineto_json", "torch_logs"),
        ("show compile @graphs --capture FILE", "eager"),
    ),
    "kernels": (
        ("kernels FILE -f json", REPORTS),
        ("kernels FILE --name . -f json", REPORTS),
        ("kernels FILE --columns duration_ns,dram_pct,sm_pct,registers --sort dram_pct -f csv -o OUT.csv", REPORTS),
        ("kernels FILE --against @ -f json", REPORTS),
        ("kernels @ --against FILE --id 0", REPORTS),
        ("kernels @ncu_report --timeline FILE --id 0", "kineto_json"),
    ),
    "kernels --roofline": (
        ("kernels --roofline FILE -f json", REPORTS),
        ("kernels --roofline FILE -o OUT.svg", REPORTS),
        ("kernels --roofline @ --against FILE -o OUT.svg", REPORTS),
    ),
    "show ops": (
        ("show ops FILE -f json", f"{TRACES} {REPORTS}"),
        ("show ops FILE --gpu H200", TRACES),
        ("show ops @graphs --capture FILE -f json", "eager"),
        ("show ops --model-config FILE --gpu H200 -f json", "hugging-face memory-configuration"),
    ),
    "ranks": (("ranks FILE -f json", f"{TRACES} collectives"), ("ranks FILE @rank-0 -f json", "collectives")),
    "show ranges": (("show ranges FILE --tree -f json", TRACES), ("show ranges @graphs --capture FILE", "eager")),
    "show calls": (("show calls FILE --by-thread -f json", TRACES), ("show calls @graphs --capture FILE", "eager")),
    "show checks": (("show checks FILE -f json", TRACES), ("show checks @graphs --capture FILE", "eager")),
    "capture nccl-bench": (("capture nccl-bench --sizes-of FILE", "collectives"),),  # no launcher: refused then
    "ranks --pipeline": (
        ("ranks --pipeline FILE -f json", "stage-log kineto_json"),
        ("ranks --pipeline FILE --against @", "stage-log"),
        ("ranks --pipeline @ --against FILE -f json", "stage-log"),
        ("ranks --pipeline @stage-log --against @stage-log --calibration FILE", "calibration"),
    ),
    "memory show": (
        ("memory show FILE -f json", f"{SNAPSHOTS} kineto_json"),
        ("memory show FILE --svg OUT.svg", SNAPSHOTS),
    ),
    "memory plan": (
        ("memory plan FILE -f json", "memory-configuration"),
        ("memory plan --hf-config FILE -f json", "hugging-face"),
        ("memory plan @memory-configuration --against FILE", "torch_snapshot"),
    ),
    "memory diff": (("memory diff FILE @ -f json", SNAPSHOTS), ("memory diff @ FILE", SNAPSHOTS)),
    "query": (
        ("query FILE steps -f json", TRACES),
        ("query FILE top-kernels -f csv -o OUT.csv", TRACES),
        ("query FILE idle-by-cause -f json", TRACES),
        ("query @graphs steps --capture FILE -f json", "eager"),
    ),
    "report --open": (
        ("report --open FILE --no-browser --timeout 1", TRACES),
        ("report --open @graphs --capture FILE --no-browser", "eager"),
    ),
    "report --serve": (
        ("report --serve FILE --no-browser", TRACES),
        ("report --serve @graphs --capture FILE --no-browser", "eager"),
    ),
    "report --export FORMAT": (
        ("report --export perfetto FILE -o OUT.pftrace", TRACES),
        ("report --export speedscope FILE -o OUT.speedscope.json", TRACES),
        ("report --export collapsed FILE -o OUT.collapsed", TRACES),
        ("report --export table FILE --table device_ops -o OUT.csv", TRACES),
        ("report --export table FILE --table kernel_profiles -o OUT.csv", REPORTS),
        ("report --export table FILE --table device_ops -o OUT.parquet", TRACES),
        ("report --export perfetto @graphs --capture FILE -o OUT.pftrace", "eager"),
    ),
    "plan": (
        ("plan FILE -f json", TRACES),
        ("plan @graphs --capture FILE", "eager"),
        ("plan FILE --steps auto", TRACES),
    ),
    "plan --change CHANGE": (
        ("plan FILE --change remove-sync -f json", TRACES),
        ("plan @graphs --change remove-sync --capture FILE", "eager"),
    ),
    "compare": (
        ("compare FILE @ -f json", TRACES),
        ("compare @ FILE -f json", f"{TRACES} {REPORTS}"),
        ("compare FILE FILE", f"{TRACES} {REPORTS} {SNAPSHOTS}"),
        ("compare @kineto_json @kineto_json --calibration FILE", "calibration"),
    ),
    "verify --ledger show": (("verify --ledger show -f json", "ledger"), ("verify --ledger --root . show 1", "ledger")),
    "verify --ledger add": (("verify --ledger --root . add faster --finding CPY101", "ledger"),),
    "verify --ledger close": (("verify --ledger --root . close 1 --outcome faster", "ledger"),),
    "gate": (("gate --history FILE -f json", "history"),),
    "gate --limits": (
        ("gate --limits FILE --baseline @ --limit mean(kernels.mean_ns)<=1.5x -f json", TRACES),
        ("gate --limits @ --baseline FILE --limit sum(kernels.total_ns)<=1.5x", TRACES),
        ("gate --limits FILE --baseline @ --limit dram_pct>=0.95x -f json", REPORTS),
        ("gate --limits @ --baseline FILE --limit dram_pct>=0.95x", REPORTS),
    ),
    "gate baseline check": (("gate baseline check FILE -f json", "baseline configuration"),),
    "gate baseline show": (("gate baseline show --root . -f json", "baseline"),),
    "show tables": (("show tables FILE -f json", EVERY), ("show tables @graphs --capture FILE", "eager")),
    "mcp": (("mcp", f"{TRACES} {REPORTS} {SNAPSHOTS} torch_logs declared"),),
}

# What opens no file of a stranger, and why.
_RUNS = "runs a program with the rights of whoever asks; the files that it writes are read as others are"
NOT_FUZZED: Mapping[str, str] = {
    **dict.fromkeys(("try", "fix"), "runs a program with the rights of whoever asks"),
    "show": "is its view of steps",
    "doctor SYMPTOM": "is `doctor` with words",
    **{f"capture {tool}": _RUNS for tool in ("torch", "nsys", "ncu")},
    **dict.fromkeys(("capture --loop", "verify", "gate calibrate", "gate baseline update"), _RUNS),
    **dict.fromkeys(("demo", "explain", "kernels --metrics", "plan machine"), "takes no file"),
}
# Options that write, and those that only count beside a program to run.
WRITES = ("--output", "--svg", "--junit-xml", "--comment", "--openmetrics", "--gitlab-codequality")
OF_RUNS = {"gate": ("--metrics", "--metrics-before", "--capture", "--capture-before", "--config-file", "--root")}

CODES = (0, 1, 2, 3, 4, 5)
# A line of our own; a file may quote either within one.
_FAULT = re.compile(r"^(?:Traceback \(most recent call last\):|timesink: interrupted)$", re.MULTILINE)


@cache
def kinds() -> Mapping[str, tuple[str, Callable[[], tuple[bytes, ...]]]]:
    """Of each kind of input: its file's name ("" is a folder), and its seeds."""
    small = {record.name: (record.file, partial(tuple, record.seeds)) for record in records.RECORDS}
    beside = {
        # Some with steps, causes and prices; the traps for the decoder alone are its reader's.
        "kineto_json": ("trace.json", lambda: (*seeds.kineto()[:7], *laws.programs())),
        "graphs": ("graphs.json", lambda: (graphs.replayed(),)),
        "eager": ("eager.json", lambda: (graphs.eager(), graphs.recorded())),
        "collectives": ("rank1.json", _collectives),
        "rank-0": ("rank0.json", _collectives),
        "diagnosis": ("diagnosis.json", _diagnosis),
        "configuration": ("pyproject.toml", lambda: (_CONFIGURATION,)),
        "declared": ("commands.toml", lambda: (b'[commands]\ntest = "pytest -q"\ntrain = ["python", "train.py"]\n',)),
    }
    return {kind: (file, cache(made)) for kind, (file, made) in {**small, **seeds.OF_FORMAT, **beside}.items()}


def pairs() -> Iterator[tuple[str, str]]:
    """Every command with every kind of input it is tried with."""
    for command, lines in LINES.items():
        yield from ((command, kind) for kind in dict.fromkeys(kind for _, of in lines for kind in of.split()))


def line_of(command: str, kind: str, data: bytes) -> str:
    """The line that an input gets."""
    lines = [line for line, kinds in LINES[command] if kind in kinds.split()]
    return lines[zlib.crc32(data) % len(lines)]


def work_of(command: str, kind: str) -> Callable[[Path], None]:
    """Run the command on the input, and hold its answer to the invariants of answers."""

    def work(path: Path) -> None:
        if command == "mcp":
            from fuzz.agent import asked

            asked(path, kind)
        else:
            commanded(path, line_of(command, kind, _bytes(path)), kind)

    return work


def commanded(path: Path, line: str, kind: str) -> int:
    """The code a line ends with: it may refuse its input, and neither break nor say that somebody interrupted it."""
    from timesink.cli.app import run

    if line.startswith("gate baseline show"):
        suite = path.parent / "baselines" / "default"
        suite.mkdir(parents=True)
        (suite / path.name).write_bytes(path.read_bytes())
    words = [_word(word, path, kind) for word in line.split()]
    said, errors = io.StringIO(), io.StringIO()
    with contextlib.chdir(path.parent), contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors), _alone():
        code = run(words)
    answer = said.getvalue() + errors.getvalue()
    if code not in CODES or is_fault(errors.getvalue()):
        raise AssertionError(f"{line} ends with {code}: {answer[-300:]}")
    answers.check_text(errors.getvalue())
    if "json" in words and "-o" not in words:
        answers.checked_json(said.getvalue())
    else:
        answers.check_text(said.getvalue())
    for made in {*path.parent.glob("out.*"), *path.parent.rglob("*.html")}:
        written.check_file(made)
    return code


def _word(word: str, path: Path, kind: str) -> str:
    if word == "FILE":
        return str(path)
    if word.startswith("@"):
        return str(_whole(word[1:] or kind, path.parent))
    return word.replace("OUT", str(path.with_name("out")))


def _whole(kind: str, folder: Path) -> Path:
    """An input of that kind as it should be, beside the mutated one."""
    file, made = kinds()[kind]
    path = folder / f"whole.{file or kind}"
    if file:
        path.write_bytes(made()[0])
    else:
        path.mkdir(exist_ok=True)
        for name, content in seeds.files_of(made()[0]).items():
            (path / name).write_bytes(content)
    return path


def is_fault(errors: str) -> bool:
    """Whether what a command said beside its answer tells of an exception, or that somebody interrupted it."""
    return _FAULT.search(errors) is not None


def ready(command: str, kind: str) -> None:
    """Make what the lines of a command need besides its input, before anything is watched."""
    if command == "mcp":
        import_module("fuzz.agent")
        import_module("timesink.mcp.server")
    for line, of in LINES[command]:
        for word in line.split():
            if word.startswith("@") and kind in of.split():
                kinds()[word[1:] or kind][1]()


def _bytes(path: Path) -> bytes:
    """What an input holds; of a folder, its files in order."""
    if not path.is_dir():
        return path.read_bytes()
    return b"".join(file.read_bytes() for file in sorted(path.iterdir()))


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """No socket, no other process: servers answer here, a query is asked here."""
    with (
        mock.patch("timesink.cli.serve.Server", _Asked),
        mock.patch("timesink.cli.serve.Thread", _AtOnce),
        mock.patch("timesink.export.perfetto.serve_once", return_value=True),
        mock.patch("timesink.export.sql.apart", lambda work, seconds, memory_bytes: work()),
        mock.patch("tempfile.tempdir", str(Path.cwd())),
    ):
        yield


class _AtOnce(Thread):
    """Work beside the server, done before it is asked, so that what breaks is seen."""

    def start(self) -> None:
        self.run()


class _Asked(Server):
    """The server of `timesink report --serve`, asked here for what a browser asks for, and for what makes no sense."""

    def __init__(self, port: int, token: str, page: str, tiles: Tiles) -> None:  # without a socket
        with mock.patch.object(ThreadingHTTPServer, "__init__", lambda *_: None):
            super().__init__(port, token, page, tiles)
        self.server_port = port

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """One round of requests to each page."""
        for token, shown in self._shown.items():
            start, end = shown.tiles.timeline.start_ns, shown.tiles.timeline.end_ns
            for asked in (
                "", "ready", "search?text=a", "around?lane=0&depth=0&start=0", f"around?lane=1&depth=0&start={start}",
                f"tile?rows=0.3,1.1&from={start}&to={end}&pixel=1e5", f"budget?rank=0&device=0&from={start}&to={end}",
                "tile?rows=9.9&from=-9&to=9&pixel=nan", "search?text=%00",
                f"budget?rank=0&device=7&from={end}&to={1 << 62}", "around?lane=-1&depth=0&start=9", "nothing",
            ):  # fmt: skip
                with contextlib.suppress(BadRequest):
                    _check_answer(*self.answer(f"/{token}/{asked}"))

    def server_close(self) -> None:
        """Nothing was opened."""


def _check_answer(kind: str, content: bytes) -> None:
    if kind.startswith("text/html"):
        written.check_page(content.decode("utf-8"))
    else:
        head = content[4 : 4 + int.from_bytes(content[:4], "little")] if kind.endswith("octet-stream") else content
        written.check_strings(answers.checked_json(head.decode("ascii")))


def _diagnosis() -> tuple[bytes, ...]:
    """A diagnosis as JSON, as `which --from` takes it."""
    from timesink.diagnosis.engine import diagnose
    from timesink.readers import read
    from timesink.render import render

    return (render(diagnose(read(seeds.demos()[0], cache=False)), "json").encode(),)


def _collectives() -> tuple[bytes, ...]:
    """A trace of collectives of sixteen groups of two ranks."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        shapes.write("collectives", 400, path)
        return (path.read_bytes(),)


_CONFIGURATION = b"""[project]
name = "model"
[tool.timesink]
skip = ["KRN"]
[tool.timesink.limits]
"IDL101.idle_ratio" = 0.2
[tool.timesink.suites.train]
threshold = "3%"
"""
