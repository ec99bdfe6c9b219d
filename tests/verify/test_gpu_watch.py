"""Clocks, heat, throttling and other programs, read from nvidia-smi."""

import os
import time
from datetime import datetime
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from benchmarks.recorded_verdicts import KEPT, Recorded, neighbours, recorded
from benchmarks.rivals import mann_whitney, welch
from scipy import stats

from timesink.verify.environment import parse_gpus
from timesink.verify.experiment import ExperimentPlan
from timesink.verify.gpu_watch import GpuWatch, condense, parse_processes, parse_samples
from timesink.verify.outcomes import Outcome

SAMPLES = """\
2026/11/20 09:51:43.250, 0, GPU-aa, 345, 2619, 31, 76.20, 0x0000000000000001
2026/11/20 09:51:43.500, 0, GPU-aa, 1980, 2619, 44, 512.70, 0x0000000000000004
2026/11/20 09:51:43.750, 0, GPU-aa, 1755, 2619, 47, 690.10, 0x0000000000000048
2026/11/20 09:51:44.000, 0, GPU-aa, [N/A], [N/A], 47, [Not Supported], [N/A]
2026/11/20 09:51:44.250, 0, GPU-aa, 17
"""


FAKE = """#!/usr/bin/env python3
import datetime, sys, time
if "--query-compute-apps=gpu_uuid,pid,process_name" in sys.argv:
    print("GPU-aa, 4242, /usr/bin/other, really"); sys.exit()
if any("clocks_event_reasons" in a for a in sys.argv):
    print('Field "clocks_event_reasons.active" is not a valid field to query.', file=sys.stderr); sys.exit(2)
while True:
    now = datetime.datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
    print(now + ", 0, GPU-aa, 1980, 2619, 40, 300.0, 0x0", flush=True)
    time.sleep(0.02)
"""


def test_samples_are_parsed_and_cut_lines_left_out() -> None:
    samples = parse_samples(SAMPLES)
    assert [s.sm_mhz for s in samples] == [345, 1980, 1755, None]
    assert samples[0].time_s == datetime(2026, 11, 20, 9, 51, 43, 250_000).timestamp()
    assert samples[2].slowed_by == ("hardware slowdown", "hardware thermal slowdown")


def test_a_runs_state_leaves_idle_clocks_out_and_keeps_every_reason() -> None:
    state = condense(parse_samples(SAMPLES))
    assert (state.samples, state.sm_mhz, state.celsius) == (4, 1980, 47)
    assert state.slowed_by == ("hardware slowdown", "hardware thermal slowdown", "software power cap")


@pytest.mark.parametrize(
    "text", ["", "No devices were found\n", "NVIDIA-SMI has failed because ...\n", "a,b\n", "\x00\n"]
)
def test_text_that_is_no_sample_gives_none(text: str) -> None:
    assert parse_samples(text) == []
    assert parse_processes(text) == []
    assert parse_gpus(text) == ({"gpu": "none"}, "")


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def fake_smi(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(text)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_the_watch_falls_back_to_the_older_field_and_sees_each_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_smi(tmp_path, FAKE, monkeypatch)
    with GpuWatch(tmp_path) as watch:
        assert watch.absent == ""
        started, before = time.time(), lines(watch.log)
        while lines(watch.log) < before + 4:  # as long as a busy machine takes
            time.sleep(0.02)
        state = watch.state(started, time.time())
        later = watch.state(started, time.time())
        assert state.samples + later.samples <= lines(watch.log) - before + 1
        assert watch.foreign_processes() == ("/usr/bin/other (process 4242)",)
    assert state.samples >= 3
    assert (state.sm_mhz, state.celsius) == (1980, 40)


@pytest.mark.parametrize("text", ["#!/bin/sh\necho 'No devices were found'; exit 6\n", "#!/bin/sh\nexit 9\n"])
def test_no_gpu_is_stated_never_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    fake_smi(tmp_path, text, monkeypatch)
    with GpuWatch(tmp_path) as watch:
        assert "no GPU" in watch.absent
        assert watch.state(0, time.time()).samples == 0
        assert watch.foreign_processes() == ()


def test_no_nvidia_smi_is_stated_never_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with GpuWatch(tmp_path) as watch:
        assert "not on this machine" in watch.absent


def test_of_several_gpus_without_a_selection_nothing_is_held_against_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = FAKE.replace(
        '40, 300.0, 0x0", flush=True)',
        '40, 300.0, 0x8", flush=True)\n    print(now + ", 1, GPU-bb, 345, 2619, 30, 80.0, 0x1", flush=True)',
    )
    assert both != FAKE
    fake_smi(tmp_path, both, monkeypatch)
    for devices, slowed in ((None, ()), ("0", ("hardware slowdown",))):
        with GpuWatch(tmp_path, devices) as watch:
            started = time.time()
            time.sleep(0.3)
            state = watch.state(started, time.time(), ("other",))
            assert (state.slowed_by, state.sm_mhz) == (slowed, 1980)
            assert ("any of 2 GPUs" in watch.remark) is (devices is None)
            assert bool(state.foreign) is (devices is not None)


PLAN = ExperimentPlan(threshold_ratio=0.01)


@cache
def found() -> list[Recorded]:
    return recorded()


def test_an_unchanged_program_on_a_real_gpu_is_never_called_slower_or_faster() -> None:
    """The bound allows what chance would at 5 %; what was recorded needs none of it."""
    outcomes = [one.verdict(PLAN).outcome for one in found() if one.planted_ratio == 0]
    wrong = sum(outcome in (Outcome.SLOWER, Outcome.FASTER) for outcome in outcomes)
    assert len(outcomes) >= 13
    assert wrong <= stats.binom.ppf(0.999, len(outcomes), 0.05)
    assert wrong == 0


@pytest.mark.parametrize("planted", [0.02, 0.03, 0.05])
def test_every_planted_slow_down_on_a_real_gpu_is_found(planted: float) -> None:
    verdicts = [one.verdict(PLAN) for one in found() if one.planted_ratio == planted]
    assert len(verdicts) >= 3
    assert {verdict.outcome for verdict in verdicts} == {Outcome.SLOWER}


def test_the_same_recording_makes_common_rules_see_changes_that_are_none() -> None:
    before, after = neighbours(found(), 120)
    assert welch(before, after).mean() > 0.25
    assert mann_whitney(before, after).mean() > 0.25


def test_recorded_nvidia_smi_lines_are_all_read() -> None:
    text = Path(KEPT / "nvidia_smi.csv").read_text()
    samples = parse_samples(text)
    assert len(samples) == len(text.splitlines())
    state = condense(samples)
    assert (state.sm_mhz, state.slowed_by) == (1980, ())
    assert state.celsius is not None
    assert 30 < state.celsius < 60
    assert np.ptp([sample.time_s for sample in samples]) > 1
