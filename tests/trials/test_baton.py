"""Two runs side by side take turns, and whoever ends leaves the other one alone."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from math import inf
from pathlib import Path
from threading import Thread
from time import monotonic, perf_counter, sleep

import pytest

from timesink.capture.errors import CaptureError
from timesink.sandbox.runs import NoSandbox, Sandbox
from timesink.trials.apart import ProgramApart
from timesink.trials.baton import Baton, leave_alone, pipes_in
from timesink.trials.run import ProgramRuns

Blocks = list[tuple[float, float, str]]


def _works(name: str, pipes: tuple[str, ...], starts_s: float, lasts_s: float, blocks: Blocks) -> None:
    sleep(starts_s)
    baton, until_s = Baton(pipes, lambda: None), perf_counter() + 20
    worked_s = 0.0
    while worked_s < lasts_s:
        baton.take(until_s)
        began_s = perf_counter()
        sleep(0.02)
        blocks.append((began_s, perf_counter(), name))
        worked_s += blocks[-1][1] - began_s
    baton.leave(until_s)
    blocks.append((perf_counter(), inf, name))


@pytest.mark.parametrize("starts_s", [(0, 0), (0.6, 0), (0, 0.6)])
@pytest.mark.parametrize("lasts_s", [(1, 1), (0.1, 1), (1, 0.1)])
def test_two_take_turns_whoever_comes_later_or_ends_sooner(
    starts_s: tuple[float, float], lasts_s: tuple[float, float], tmp_path: Path
) -> None:
    blocks: Blocks = []
    with pipes_in(tmp_path) as pipes:
        both = [
            Thread(target=_works, args=(str(at), pipes[:: 1 - 2 * at], starts_s[at], lasts_s[at], blocks))
            for at in range(2)
        ]
        for one in both:
            one.start()
        for one in both:
            one.join(20)
    assert not list(tmp_path.iterdir())
    ends_s, ordered = [begin for begin, end, _ in blocks if end == inf], sorted(blocks)[:-2]
    assert max(ends_s) - min(ends_s) < 0.2, "one ended while the other worked"
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(ordered)), "both worked at once"
    assert ordered[0][2] == "0"
    turns = sum(earlier[2] != later[2] for earlier, later in pairwise(ordered))
    assert turns >= 2 * min(lasts_s) / 0.3 - 1
    for at, lasts in enumerate(lasts_s):
        assert sum(end - begin for begin, end, name in ordered if name == str(at)) >= lasts


def test_one_alone_waits_for_nothing(tmp_path: Path) -> None:
    began_s = perf_counter()
    Baton((), lambda: None).take(began_s + 60)
    with pipes_in(tmp_path) as pipes:
        leave_alone(pipes[0])
        Baton(pipes, lambda: None).take(began_s + 60)
        Baton(pipes, lambda: None).take(perf_counter() + 0.1)  # nobody came, and its time is over
    assert perf_counter() - began_s < 5


_STEPS = """
import json, sys, time, torch
from pathlib import Path
from part import NAME, LONG_S
weights = torch.nn.Linear(4, 4)
optimizer, times = torch.optim.SGD(weights.parameters(), lr=0.1), []
for step in range(1000):
    began = time.perf_counter()
    optimizer.zero_grad()
    loss = weights(torch.ones(2, 4)).square().mean()
    loss.backward()
    time.sleep(LONG_S)
    times.append((began, time.perf_counter()))
    optimizer.step()
    if NAME == "dies" and step == 60:
        raise SystemExit("it died")
    Path(sys.argv[1], NAME).write_text(json.dumps(times))
"""


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ProgramRuns, Path, Path]]:
    """Runs of the program with others beside them, the file that they are shown, and their folder for records."""
    pytest.importorskip("torch")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    here, records, part = tmp_path / "here", tmp_path / "records", tmp_path / "part.py"
    for folder in (here, records, records / "beside"):
        folder.mkdir()
    (here / "train.py").write_text(_STEPS)
    (here / "part.py").write_text("")
    try:
        box = Sandbox.open(here, ["overlay", "read-only"])
    except NoSandbox as why:
        pytest.skip(str(why))
    words = [sys.executable, "train.py", str(records / "beside")]
    runs, beside = (
        ProgramRuns(words, folder, "", here, ProgramApart(words, box, folder, lambda: {here / "part.py": part}))
        for folder in (records, records / "beside")
    )
    runs.beside = beside
    with closing(box), closing(runs):
        runs.until_s = monotonic() + 200
        yield runs, part, records / "beside"


def _told(name: str, long_s: float) -> str:
    return f"NAME, LONG_S = {name!r}, {long_s}\n"


@pytest.mark.slow
def test_both_sides_of_a_pair_run_at_once_and_time_their_steps_in_turns(
    both: tuple[ProgramRuns, Path, Path],
) -> None:
    runs, part, records = both
    part.write_text(_told("alone", 0.01))
    assert runs.fixed().may_stand_beside
    part.write_text(_told("before", 0.02))
    before, after = runs.side_by_side(lambda: part.write_text(_told("after", 0.03)))
    steps = [json.loads((records / name).read_text()) for name in ("before", "after")]
    assert steps[0][0][0] < steps[1][-1][1] and steps[1][0][0] < steps[0][-1][1], "one after the other"
    assert min(before.steps_ms) == pytest.approx(21, abs=4) and min(after.steps_ms) == pytest.approx(31, abs=4)
    timed = sorted((begin, end, at) for at, ran in enumerate(steps) for begin, end in ran[-50:])
    overlaps = sum(earlier[1] > later[0] for earlier, later in pairwise(timed))
    assert overlaps <= 4 and sum(a[2] != b[2] for a, b in pairwise(timed)) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("who", ["before", "after"])
def test_where_one_dies_the_pair_is_none_and_nothing_is_left_running(
    who: str, both: tuple[ProgramRuns, Path, Path]
) -> None:
    runs, part, records = both
    names = {"before": "before", "after": "after", who: "dies"}
    part.write_text(_told(names["before"], 0.01))
    with pytest.raises(CaptureError):
        runs.side_by_side(lambda: part.write_text(_told(names["after"], 0.01)))
    runs.close()
    alive = [one for one in Path("/proc").iterdir() if one.name.isdecimal() and str(records) in _words_of(one)]
    assert not alive


def _words_of(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""
