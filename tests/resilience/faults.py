"""Every command that writes, stopped or refused at each of its writes, and killed at any moment. A script: FOLDER KILLS
SEED; prints what was found.

One process imports what the commands need and forks for every fault, so that a fault costs milliseconds. A child counts
what it does to files (opens for writing, renames, folders made and removed) and meets its fault at the n-th of them.
"""

import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

TOUCHES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "fcntl.flock")
MOST = 5  # places of one command that are tried: its first and last, and some between
EVENT = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 7, "tid": 8, "ts": 1, "dur": 2}
NAMES = {"old": "abcabc", "new": "xyzxyz"}  # traces of equal size


@dataclass(frozen=True)
class Job:
    """A command on a folder, for old or for new content, and the file that it replaces."""

    name: str
    work: Callable[[Path, str], Any]
    target: str


def trace(folder: Path, age: str) -> str:
    path = folder / f"{age}.json"
    if not path.exists():
        kernel = {"cat": "kernel", "name": NAMES[age], "args": {"device": 0, "stream": 7, "correlation": 1}}
        events = [{**EVENT, "name": name, "ts": 10 * at} for at, name in enumerate(NAMES[age])]
        path.write_text(json.dumps({"traceEvents": [*events, {**EVENT, **kernel, "ts": 100}]}))
    return str(path)


def command(*arguments: str) -> Callable[[Path, str], int]:
    def work(folder: Path, age: str) -> int:
        from timesink.cli.app import run

        given = {"TRACE": trace(folder, age), "OUT": str(folder / "out")}
        return run(
            [
                word.replace("OUT", given["OUT"]) if word.startswith("OUT") else given.get(word, word)
                for word in arguments
            ]
        )

    return work


def baseline(folder: Path, age: str) -> int:
    from timesink import verify as records

    records.write(folder / "out.json", {"schema_version": 1, "runs": [age] * 4000})
    return 0


def redacted_folder(folder: Path, age: str) -> int:
    from timesink.cli.app import run

    source, target = folder / f"{age}s", folder / "out.d"
    if target.exists():  # no command writes over a folder
        shutil.rmtree(target)
    if not source.exists():
        source.mkdir()
        for number in range(3):
            (source / f"rank{number}.json").write_bytes(Path(trace(folder, age)).read_bytes())
    return run(["capture", "--redact", str(source), "-o", str(target)])


def noted(folder: Path, age: str) -> int:
    from timesink.errors import UsageError
    from timesink.verify import ledger

    try:
        ledger.add(folder / "out.jsonl", f"{age} " * 90)
    except UsageError as error:
        sys.stderr.write(str(error))
        return 2
    return 0


JOBS = (
    Job("report", command("report", "TRACE", "-o", "OUT.html", "--no-cache"), "out.html"),
    Job(
        "export",
        command("report", "--export", "table", "TRACE", "-o", "OUT.csv", "--table", "host_ops", "--no-cache"),
        "out.csv",
    ),
    Job("redact", command("capture", "--redact", "TRACE", "-o", "OUT.json"), "out.json"),
    Job("baseline", baseline, "out.json"),
    Job("ledger", noted, "out.jsonl"),
)
MORE = (  # killed at any moment, beside the others
    Job(
        "perfetto", command("report", "--export", "perfetto", "TRACE", "-o", "OUT.pftrace", "--no-cache"), "out.pftrace"
    ),
    Job("diagnosis", command("diagnose", "TRACE", "--format", "json", "-o", "OUT.json", "--no-cache"), "out.json"),
    Job("folder", redacted_folder, "out.d"),
)


def forked(work: Callable[[], int]) -> tuple[int, str]:
    """The exit status of the work in a fork, negative for a signal, and what it wrote."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        code = 99
        try:
            for number in (1, 2):
                os.dup2(write, number)
            code = work()
            sys.stdout.flush()
        except KeyboardInterrupt:  # what is called without the command line, as that takes it
            code = 130
        except OSError:
            code = 2
        except BaseException:  # noqa: BLE001  # whatever it is: that is the finding
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(write)
    with os.fdopen(read, errors="replace") as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def at_touch(number: int, fault: Callable[[], object]) -> Callable[[], int]:
    """Meet the fault at that touch of a file; returns a function that says how many there were."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in TOUCHES:
            count += 1
            if count == number:
                fault()

    sys.addaudithook(hook)
    return lambda: count


def small_files(size: int, action: Any) -> None:
    signal.signal(signal.SIGXFSZ, action)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def faults(kind: str, touches: int) -> Iterator[tuple[int, Callable[[], object]]]:
    """What is done to a command, and a number that says which."""
    places = sorted({1 + round(at * (touches - 1) / (MOST - 1)) for at in range(MOST)}) if touches else []
    match kind:
        case "killed":
            yield from ((n, lambda n=n: at_touch(n, lambda: os.kill(os.getpid(), signal.SIGKILL))) for n in places)
            yield from ((size, lambda size=size: small_files(size, signal.SIG_DFL)) for size in (0, 150))
        case "interrupted":
            yield from ((n, lambda n=n: at_touch(n, lambda: signal.raise_signal(signal.SIGINT))) for n in places)
        case "full":
            yield from ((size, lambda size=size: small_files(size, signal.SIG_IGN)) for size in (0, 150))


def imported_by(jobs: tuple[Job, ...], folder: Path) -> dict[str, int]:
    """Import here what the jobs import, without doing what starts threads; how often each touches a file."""
    touches = {}
    for job in jobs:
        place, listed = folder / job.name, folder / f"{job.name}.modules"
        place.mkdir()

        def once(job: Job = job, place: Path = place, listed: Path = listed) -> int:
            job.work(place, "old")
            count = at_touch(0, int)
            code = job.work(place, "new")
            listed.write_text(json.dumps([count(), sorted(sys.modules)]))
            return code

        code, said = forked(once)
        assert code == 0, (job.name, code, said)
        touches[job.name], modules = json.loads(listed.read_text())
        for name in modules:
            if name.startswith("timesink") and name not in sys.modules:
                __import__(name)
    return touches


def content_of(path: Path) -> bytes:
    """What a file holds, or the files of a folder one after the other; nothing where there is none."""
    if path.is_dir():
        return b"".join(part.name.encode() + part.read_bytes() for part in sorted(path.iterdir()))
    return path.read_bytes() if path.exists() else b""


def state(job: Job, folder: Path, known: dict[str, bytes]) -> str:
    """Whether the target is as it was, as it was to become, or neither. A ledger keeps old entries."""
    path = folder / job.target
    found = content_of(path)
    if job.name == "ledger":
        from timesink.verify import ledger

        ages = [entry.hypothesis.split()[0] for entry in ledger.read(path)]
        return "old" if ages == ["old"] else "new" if ages[:1] == ["old"] and set(ages[1:]) == {"new"} else str(ages)
    return next((age for age, content in known.items() if content == found), f"neither: {found[:80]!r}")


def tried(kind: str, folder: Path, touches: Mapping[str, int]) -> Iterator[dict[str, object]]:
    """Each job under each fault of a kind; then once more without one, over whatever the faults left behind."""
    for job in JOBS:
        place = folder / job.name / kind
        place.mkdir()
        known = {}
        for age in ("new", "old"):
            (place / job.target).unlink(missing_ok=True)
            forked(partial(job.work, place, age))
            known[age] = (place / job.target).read_bytes()
        for number, fault in faults(kind, touches[job.name]):

            def met(job: Job = job, place: Path = place, fault: Callable[[], object] = fault) -> int:
                fault()
                return int(job.work(place, "new"))

            code, said = forked(met)
            yield {"job": job.name, "at": number, "code": code, "said": said, "state": state(job, place, known)}
            if job.name != "ledger":
                (place / job.target).write_bytes(known["old"])
        code, _ = forked(partial(job.work, place, "new"))
        left = [path.name for path in place.iterdir() if path.name.startswith((".writing", ".new"))]
        yield {"job": job.name, "at": -1, "code": code, "said": "", "state": state(job, place, known), "left": left}


def together(folder: Path) -> Iterator[dict[str, object]]:
    """Eight processes write to one baseline and one ledger, all at once."""
    for job in JOBS[3:]:
        place = folder / job.name / "together"
        place.mkdir()
        trace(place, "new")
        forked(partial(job.work, place, "old"))
        children = []
        for _ in range(8):
            children.append(os.fork())
            if not children[-1]:
                code = 99
                try:
                    code = max(job.work(place, "new") for _ in range(4))
                finally:
                    os._exit(code)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        content = (place / job.target).read_bytes()
        yield {"job": job.name, "at": -1, "code": max(codes), "said": "", "lines": content.count(b"\n"),
               "state": state(job, place, {"new": content})}  # fmt: skip


def set_to(job: Job, place: Path, content: bytes) -> None:
    """The target as it was before; of a folder nothing, for no command writes over one."""
    path = place / job.target
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if content:
        path.write_bytes(content)


def at_any_moment(folder: Path, kills: int, seed: int) -> Iterator[dict[str, object]]:
    """Each job in turn, killed so long after its start as chance has it, up to a little more than it takes."""
    drawn, jobs, known, takes_s = Random(seed), (*JOBS, *MORE), dict[str, dict[str, bytes]](), dict[str, float]()
    for job in jobs:
        place = folder / job.name / "moment"
        place.mkdir()
        for age in ("new", "old"):
            set_to(job, place, b"")
            begun = time.monotonic()
            assert forked(partial(job.work, place, age))[0] == 0, job.name
            takes_s[job.name] = time.monotonic() - begun
            known[job.name] = {**known.get(job.name, {}), age: content_of(place / job.target)}
        if (place / job.target).is_dir():
            known[job.name]["old"] = b""
    for number in range(kills):
        job = jobs[number % len(jobs)]
        place = folder / job.name / "moment"
        if job.name != "ledger":
            set_to(job, place, known[job.name]["old"])
        begun = time.monotonic()
        code = killed(partial(job.work, place, "new"), 1.1 * takes_s[job.name] * drawn.random())
        if code == 0:  # the machine may be busier than it was
            takes_s[job.name] = time.monotonic() - begun
        yield {"job": job.name, "at": number, "code": code, "said": "", "state": state(job, place, known[job.name])}
    for job in jobs:
        place = folder / job.name / "moment"
        set_to(job, place, known[job.name]["old"])
        code, _ = forked(partial(job.work, place, "new"))
        left = [path.name for path in place.iterdir() if path.name.startswith((".writing", ".new"))]
        yield {
            "job": job.name,
            "at": -1,
            "code": code,
            "said": "",
            "state": state(job, place, known[job.name]),
            "left": left,
        }


def killed(work: Callable[[], int], after_s: float) -> int:
    """The exit status of the work in a fork that is killed after so long, if it is still there."""
    child = os.fork()
    if not child:
        code = 99
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            for number in (1, 2):
                os.dup2(null, number)
            code = work()
        finally:
            os._exit(code)
    time.sleep(after_s)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    where, kills, seed = Path(sys.argv[1]), *map(int, sys.argv[2:4])
    counted = imported_by((*JOBS, *MORE), where)
    every = {kind: list(tried(kind, where, counted)) for kind in ("killed", "interrupted", "full")}
    every["at any moment"] = list(at_any_moment(where, kills, seed))
    sys.stdout.write(json.dumps(every | {"together": list(together(where))}))
