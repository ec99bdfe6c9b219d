"""A boxed run changes nothing of the user's, in each way that this machine allows, whatever the program does."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox import writing
from tests.sandbox.trees import changes, make_project, state

from timesink.sandbox.runs import WAYS, Grants, NoSandbox, Sandbox

WRITING = Path(writing.__file__)
FAIL_IN_A_LAYER = {"nested", "others_root"}
"""Ways of changing what is outside that fail for a program under layers, as they should."""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    root = tmp_path / "world"
    here = make_project(root, "")
    writing.make_things(root / "away")
    (root / "away" / "rows" / "rows.npy").write_text("rows")
    (root / "home").mkdir()
    (root / "home" / ".bashrc").write_text("mine\n")
    (here / "train.py").write_text(WRITING.read_text())
    return root


@pytest.fixture(params=WAYS)
def box(request: pytest.FixtureRequest, world: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    monkeypatch.setenv("HOME", str(world / "home"))
    try:
        made = Sandbox.open(world / "project", [request.param])
    except NoSandbox as why:
        pytest.skip(f"{request.param}: {why}")
    yield made
    made.close()
    assert not made.root.exists()


def answers(log: Path) -> dict[str, str]:
    return dict(json.loads(line) for line in log.read_text().splitlines() if line.startswith('["'))


def left(world: Path) -> list[str]:
    """Processes that speak of the world, but for this one."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found += [line] if str(world) in line else []
    return found


@pytest.mark.slow
def test_no_byte_outside_changes_in_any_way_of_writing(box: Sandbox, world: Path, tmp_path: Path) -> None:
    before, log = state(world), tmp_path / "log"
    with log.open("wb") as output:
        run = box.start([sys.executable, "train.py", str(world)], output=output.fileno())
        assert run.wait(120) == 0, log.read_text()
    told = answers(log)
    assert told.keys() == {*writing.WAYS, "all"} and len(told) > 50
    assert changes(before, state(world)) == [] and left(world) == []
    failed = {name for name, answer in told.items() if answer != "done"}
    if box.way == "overlay":
        assert failed <= FAIL_IN_A_LAYER, {name: told[name] for name in failed}
        written = {one.path for one in run.written()}
        assert {world / "project" / "best.pt", world / "home" / ".bashrc", world / "away/things/mapped"} <= written
    else:
        assert {"checkpoint", "history", "package", "own_source", "own_database"} & failed == set(), told
        assert {world / "project" / "best.pt", world / "project" / "history.csv"} <= {w.path for w in run.written()}
    assert run.found(Path("best.pt")).read_text() == "x"
    run.close()
    assert changes(before, state(world)) == []


@pytest.mark.slow
def test_without_a_sandbox_each_way_changes_something(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law is about ways that do write: of each, all that it changes is seen."""
    monkeypatch.setenv("HOME", str(world / "home"))
    safe = [name for name in writing.WAYS if name not in {"nested", "others_root", "background", "orphan"}]
    idle = []
    for name in safe:
        before = state(world)
        ran = subprocess.run(
            [sys.executable, str(WRITING), str(world), name],
            cwd=world / "project",
            capture_output=True,
            text=True,
            check=False,
        )
        if not changes(before, state(world)):
            idle.append((name, ran.stdout))
    assert idle == []


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["tool", "program"])
def test_a_kill_leaves_nothing_running_and_nothing_changed(box: Sandbox, world: Path, killed: str) -> None:
    before = state(world)
    names = ["written", "background", "orphan", "own_source", "mapped"]
    tool = (
        "import sys, os; from pathlib import Path; from timesink.sandbox.runs import Sandbox; import dataclasses\n"
        "box = Sandbox(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4] == 'True')\n"
        "os.environ['STAYS'] = '1'\n"
        "run = box.start([sys.executable, 'train.py', *sys.argv[5:]], output=1); print(run.pid, flush=True); run.wait()"
    )
    words = [sys.executable, "-c", tool, str(box.here), str(box.root), box.way, str(box.pids), str(world), *names]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    while '"all"' not in lines[-1] and lines[-1]:
        lines.append(process.stdout.readline())
    pid = next(int(line) for line in lines if line.strip().isdigit())
    os.kill(process.pid if killed == "tool" else pid, signal.SIGKILL)
    process.wait(20)
    until = time.monotonic() + 10
    while left(world) and time.monotonic() < until:
        time.sleep(0.05)
    assert left(world) == []
    time.sleep(0.3)
    assert changes(before, state(world)) == []


@pytest.mark.slow
def test_each_run_begins_with_what_the_user_has(box: Sandbox, world: Path) -> None:
    for _ in range(2):
        line = "import os; assert open('best.pt').read() == 'weights'; open('best.pt', 'w').write('mine')"
        run = box.start([sys.executable, "-c", line])
        assert run.wait(30) == 0
        run.close()


def test_files_are_shown_with_another_content_and_records_come_out(box: Sandbox, world: Path, tmp_path: Path) -> None:
    other, records = tmp_path / "other.py", tmp_path / "records"
    other.write_text("print('edited')")
    records.mkdir()
    line = f"exec(open('own/parts.py').read()); open('{records}/told.json', 'w').write('1')"
    with (tmp_path / "log").open("wb") as output:
        shown = {world / "project" / "own" / "parts.py": other}
        run = box.start([sys.executable, "-c", line], output=output.fileno(), asked=Grants(shown, [records]))
        assert run.wait(30) == 0, (tmp_path / "log").read_text()
    assert (tmp_path / "log").read_text() == "edited\n" and (records / "told.json").read_text() == "1"
    assert run.written() == []
    run.close()


@pytest.mark.slow
@pytest.mark.parametrize(("line", "status"), [("exit 7", 7), ("kill -9 $$", -9), ("kill -TERM $$", -15), ("true", 0)])
def test_the_status_is_the_programs(box: Sandbox, line: str, status: int) -> None:
    run = box.start(["sh", "-c", line])
    assert run.wait(30) == status
    run.close()


@pytest.mark.slow
def test_an_interrupt_reaches_the_program_and_its_answer_counts(box: Sandbox, tmp_path: Path) -> None:
    line = "import time\ntry:\n print('on', flush=True); time.sleep(60)\nexcept KeyboardInterrupt: raise SystemExit(9)"
    with (tmp_path / "log").open("wb") as output:
        run = box.start([sys.executable, "-c", line], output=output.fileno())
        until = time.monotonic() + 20
        while not (tmp_path / "log").read_text() and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(run.pid, signal.SIGINT)
        assert run.wait(20) == 9
    run.close()


@pytest.mark.slow
def test_a_refused_write_is_told(box: Sandbox, world: Path, tmp_path: Path) -> None:
    if box.way == "overlay":
        pytest.skip("overlay: nothing of the user's own is refused")
    with (tmp_path / "log").open("wb") as output:
        run = box.start([sys.executable, "-c", f"open('{world}/away/other_name', 'w')"], output=output.fileno())
        assert run.wait(30) == 1
    (line,) = run.denied((tmp_path / "log").read_text())
    assert "other_name" in line
    run.close()


def test_a_program_that_is_not_there_is_told(box: Sandbox) -> None:
    with pytest.raises(NoSandbox, match="there is no program 'no-such-program'"):
        box.start(["no-such-program"])


@pytest.mark.slow
def test_where_nothing_can_be_had_each_way_says_why(world: Path) -> None:
    """User namespaces switched off inside of a namespace, where that can be done."""
    ask = (
        "import sys; from pathlib import Path; from timesink.sandbox.runs import *\n"
        "try: box = Sandbox.open(Path(sys.argv[1]), sys.argv[2].split(','))\n"
        "except NoSandbox as why: print('REFUSED', why)\nelse: print('USED', box.way, box.missed); box.close()"
    )
    off = ["unshare", "-Urm", "sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "x"]
    said = {}
    for ways in (",".join(WAYS), "overlay,read-only"):
        words = [*off, sys.executable, "-c", ask, str(world / "project"), ways]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        if "USED" not in ran.stdout and "REFUSED" not in ran.stdout:
            pytest.skip(f"user namespaces cannot be switched off here: {ran.stderr[-200:]}")
        said[ways] = ran.stdout
    assert said["overlay,read-only"].startswith("REFUSED") and "unshare" in said["overlay,read-only"]
    assert said[",".join(WAYS)].startswith(("USED landlock", "REFUSED")) and "unshare" in said[",".join(WAYS)]


@pytest.mark.slow
def test_what_a_start_costs(box: Sandbox) -> None:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        run = box.start(["/bin/true"])
        assert run.wait(30) == 0
        run.close()
        times.append(time.perf_counter() - began)
    told = (
        f"{box.way}: start and end {min(times) * 1e3:.0f} ms at best, {sorted(times)[2] * 1e3:.0f} ms in the middle\n"
    )
    sys.stdout.write(told)
    assert min(times) < 20
