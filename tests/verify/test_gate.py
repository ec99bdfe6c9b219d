from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.verify.runs_by_hand import row

from timesink.errors import UsageError
from timesink.records import replace
from timesink.verify import LONGEST_RUN_S, BrokenRecord, calibration, gate
from timesink.verify import baseline as baselines
from timesink.verify.baseline import Baseline, BaselineRun, Unusable
from timesink.verify.counters import Counter, compare_counter, gate_counters
from timesink.verify.environment import Command, Environment
from timesink.verify.gate import PerfTest, StoredGate, against_baseline, gate_step_time
from timesink.verify.outcomes import Better, GateResult, How, Outcome, Reason, RunRow
from timesink.verify.runs import Launcher, StepsFile

TODAY = date(2026, 11, 20)
HERE = Environment({"gpu": "NVIDIA H200", "driver major": "580"})
STORED = (1.0, 1.002, 0.998, 1.001, 0.999, 1.003, 0.997, 1.0)


def stored(means: tuple[float, ...] = STORED, age_days: int = 1, **changed: object) -> Baseline:
    day = (datetime(2026, 11, 20, tzinfo=UTC) - timedelta(days=age_days)).isoformat()
    runs = tuple(BaselineRun(mean, mean, 190, day, "abc") for mean in means)
    return replace(Baseline("suite", dict(HERE.hard), "w0", runs), **changed)  # type: ignore[arg-type]


def sets(*means: tuple[float, ...]) -> list[list[RunRow]]:
    return [[row(mean, "after", number) for number, mean in enumerate(group)] for group in means]


def test_new_runs_like_the_stored_ones_are_no_difference() -> None:
    gate_row, rows = gate_step_time(stored(), iter(sets((1.0, 1.001, 0.999))).__next__, TODAY, 0.02)
    assert gate_row.verdict.outcome is Outcome.NO_DIFFERENCE
    assert len(rows) == 3


def test_a_slow_down_fails_only_when_a_second_set_agrees() -> None:
    agreeing, rows = gate_step_time(stored(), iter(sets((1.1, 1.1, 1.1), (1.1, 1.09, 1.1))).__next__, TODAY, 0.02)
    assert (agreeing.verdict.outcome, agreeing.failed, len(rows)) == (Outcome.SLOWER, True, 6)
    alone, _ = gate_step_time(stored(), iter(sets((1.1, 1.1, 1.1), (1.0, 1.0, 1.0))).__next__, TODAY, 0.02)
    assert (alone.verdict.outcome, alone.verdict.reason, alone.failed) == (
        Outcome.INCONCLUSIVE,
        Reason.UNCONFIRMED,
        False,
    )


def test_the_prediction_interval_by_hand() -> None:
    """Two logs -0.01 and +0.01, four times: s = 0.01069, error = s sqrt(1/3 + 1/8) = 0.007237, t(.995, 7) = 3.4995."""
    verdict = against_baseline([0.990050, 1.010050] * 4, [1.0, 1.0, 1.0], 0.05)
    assert verdict.effect is not None
    assert verdict.effect.ratio == pytest.approx(1.0, abs=1e-5)
    assert np.log(verdict.effect.high) == pytest.approx(3.4995 * 0.007237, rel=1e-3)


@pytest.mark.parametrize("tail_df", [None, 3])
def test_the_two_of_two_rule_fails_an_unchanged_program_less_than_once_in_200(tail_df: int | None) -> None:
    """Nominal .5 % on the slow side for one set of three, less with the threshold and the second set."""
    rng = np.random.default_rng(8)
    draw = rng.standard_normal if tail_df is None else (lambda size: rng.standard_t(tail_df, size) / np.sqrt(3))
    failed = 0
    for _ in range(2000):
        old, new = np.exp(0.01 * draw(10)), np.exp(0.01 * draw((2, 3)))
        failed += all(against_baseline(old, group, 0.005).outcome is Outcome.SLOWER for group in new)
    assert failed / 2000 <= 0.005


def test_a_five_percent_slow_down_at_one_percent_noise_is_nearly_always_found() -> None:
    rng = np.random.default_rng(9)
    found = 0
    for _ in range(2000):
        old, new = np.exp(0.01 * rng.standard_normal(10)), 1.08 * np.exp(0.01 * rng.standard_normal((2, 3)))
        found += all(against_baseline(old, group, 0.02).outcome is Outcome.SLOWER for group in new)
    assert found / 2000 >= 0.9


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [((1.0,) * 7, (1.0,) * 3, Reason.INSUFFICIENT_BASELINE), ((1.0,) * 8, (1.0,) * 2, Reason.TOO_FEW_RUNS),
     ((1.0,) * 8, (1.0, float("nan"), 1.0), Reason.BAD_VALUES), ((1.0,) * 8, (1.0, np.inf, 1.0), Reason.BAD_VALUES),
     ((1.0,) * 7 + (0.0,), (1.0,) * 3, Reason.BAD_VALUES)],
)  # fmt: skip
def test_too_little_or_bad_data_is_inconclusive_with_a_way_out(old: tuple, new: tuple, reason: Reason) -> None:
    verdict = against_baseline(old, new, 0.02)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, reason)
    assert verdict.to_resolve


def test_a_canary_takes_the_machines_own_slow_down_out() -> None:
    assert against_baseline(STORED, [1.1] * 3, 0.02).outcome is Outcome.SLOWER
    assert against_baseline(STORED, [1.1] * 3, 0.02, canary_ratio=1.1).outcome is Outcome.NO_DIFFERENCE


def test_a_stale_baseline_runs_nothing_and_says_so_unless_a_canary_is_given() -> None:
    def never() -> list[RunRow]:
        raise AssertionError("a stale baseline is not run against")

    stale, rows = gate_step_time(stored(age_days=15), never, TODAY)
    assert (stale.verdict.reason, rows) == (Reason.STALE_BASELINE, ())
    fresh, _ = gate_step_time(stored(age_days=15), iter(sets((1.0,) * 3)).__next__, TODAY, canary_ratio=1.0)
    assert fresh.verdict.outcome is Outcome.NO_DIFFERENCE


def test_a_baseline_without_runs_is_not_old_but_too_small() -> None:
    empty, _ = gate_step_time(stored(()), iter(sets((1.0,) * 3)).__next__, TODAY)
    assert (empty.verdict.reason, empty.before) == (Reason.INSUFFICIENT_BASELINE, None)


def test_an_unusable_baseline_is_invalid_never_a_pass() -> None:
    unusable = Unusable(Reason.MISSING_BASELINE, "none", "make one")
    gate_row, _ = gate_step_time(unusable, list, TODAY)
    assert GateResult("s", "stored baseline", (gate_row,)).exit_code() == 4


def test_unsteady_or_shared_runs_against_a_baseline_are_inconclusive() -> None:
    for changed, reason in (({"settled": False}, Reason.NOT_STEADY), ({"foreign": ("x",)}, Reason.FOREIGN_PROCESS)):
        rows = [row(1.1, "after", number, **changed) for number in range(3)]
        assert gate_step_time(stored(), lambda rows=rows: rows, TODAY)[0].verdict.reason is reason


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [(Counter(812), Counter(812), Outcome.NO_DIFFERENCE), (Counter(812), Counter(813), Outcome.SLOWER),
     (Counter(812), Counter(811), Outcome.FASTER), (Counter(0), Counter(1), Outcome.SLOWER),
     (Counter(12345678), Counter(12345679), Outcome.SLOWER), (Counter(1 / 3), Counter(0.333333), Outcome.NO_DIFFERENCE),
     (Counter(5, better=Better.HIGHER), Counter(4, better=Better.HIGHER), Outcome.SLOWER),
     (Counter(5, "a"), Counter(5, "b"), Outcome.INVALID), (Counter(5), Counter(float("nan")), Outcome.INVALID)],
)  # fmt: skip
def test_counters_are_compared_exactly(before: Counter, after: Counter, outcome: Outcome) -> None:
    assert compare_counter(before, after, 0.0).outcome is outcome


def test_shares_are_compared_in_points() -> None:
    shares = [Counter(value, "share", How.SHARE) for value in (0.10, 0.115, 0.13)]
    outcomes = [compare_counter(shares[0], share, 0.02).outcome for share in shares]
    assert outcomes == [Outcome.NO_DIFFERENCE, Outcome.NO_DIFFERENCE, Outcome.SLOWER]


def test_a_counter_that_vanished_is_invalid_and_a_new_one_inconclusive() -> None:
    rows = gate_counters(
        {"graph breaks": Counter(0), "old": Counter(1)}, {"graph breaks": Counter(0), "new": Counter(1)}
    )
    assert [(r.name, r.verdict.outcome) for r in rows] == [
        ("graph breaks", Outcome.NO_DIFFERENCE),
        ("new", Outcome.INCONCLUSIVE),
        ("old", Outcome.INVALID),
    ]


def saved(root: Path, baseline: Baseline, environment: Environment = HERE) -> Path:
    path = baselines.location(root, baseline.suite, environment)
    baselines.save(path, baseline, "0.1.0")
    return path


def test_a_saved_baseline_reads_back_and_saving_again_changes_no_byte(tmp_path: Path) -> None:
    made = stored(
        counters={"launches per step": Counter(812, "launches")},
        updates=(baselines.Update("2026-11-19", "first", "abc"),),
    )
    path = saved(tmp_path, made)
    first = path.read_bytes()
    assert baselines.find(tmp_path, "suite", HERE, "w0") == made
    saved(tmp_path, baselines.read(path))
    assert path.read_bytes() == first
    assert list(tmp_path.rglob(".writing*")) == []


def reason_of(found: Baseline | Unusable) -> Reason:
    assert isinstance(found, Unusable)
    assert found.to_resolve
    return found.reason


def test_no_baseline_another_machine_and_other_work_are_told_apart(tmp_path: Path) -> None:
    assert reason_of(baselines.find(tmp_path, "suite", HERE, "w0")) is Reason.MISSING_BASELINE
    saved(tmp_path, stored())
    there = Environment({**HERE.hard, "gpu": "NVIDIA A100"})
    foreign = baselines.find(tmp_path, "suite", there, "w0")
    assert reason_of(foreign) is Reason.OTHER_ENVIRONMENT
    assert isinstance(foreign, Unusable)
    assert foreign.differences == {"gpu": ("NVIDIA H200", "NVIDIA A100")}
    assert isinstance(baselines.find(tmp_path, "suite", there, "w0", allowed=["gpu"]), Baseline)
    assert reason_of(baselines.find(tmp_path, "suite", HERE, "w1")) is Reason.OTHER_WORK


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", '{"schema_version": 2}', '{"schema_version": 1}', ("0.998", "NaN"), ("0.998", "-1"),
     ("0.998", '"x"'),
     ("MSER-5", "MSER-9"), ('"runs"', '"ruins"'), ("+00:00", "+zz")],
)  # fmt: skip
def test_a_damaged_baseline_is_corrupt_never_missing_and_never_a_pass(tmp_path: Path, damage: str | tuple) -> None:
    path = saved(tmp_path, stored())
    text = damage if isinstance(damage, str) else path.read_text().replace(*damage)
    assert text != path.read_text()
    path.write_text(text)
    assert reason_of(baselines.find(tmp_path, "suite", HERE, "w0")) is Reason.CORRUPT_BASELINE


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x" * 81])
def test_a_suite_is_a_plain_file_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="not a name for a suite"):
        baselines.location(tmp_path, name, HERE)


def test_numbers_are_stored_with_six_digits_and_sorted_keys(tmp_path: Path) -> None:
    path = saved(tmp_path, stored((1 / 3,) * 8))
    text = path.read_text()
    assert '"mean": 0.333333,' in text
    assert text.index('"counters"') < text.index('"environment"') < text.index('"runs"')


def test_a_prediction_with_unequal_counts_by_hand() -> None:
    """Logs of +-0.01 around log 2, eight times; new runs of 2.2, 2.2, 2.3 and 2.5 on a machine 1.1 times as slow.

    s = 0.0106904, error = s sqrt(1/4 + 1/8) = 0.00654651, t(.995, 7) = 3.499483; their mean log is
    (2 log 2.2 + log 2.3 + log 2.5) / 4 - log 1.1, less log 2: 0.0430802.
    """
    stored = [2 * np.exp(0.01), 2 * np.exp(-0.01)] * 4
    verdict = against_baseline(stored, [2.2, 2.2, 2.3, 2.5], 0.01, canary_ratio=1.1)
    assert verdict.effect is not None
    logs = np.log([verdict.effect.low, verdict.effect.ratio, verdict.effect.high])
    middle = (2 * np.log(2.2) + np.log(2.3) + np.log(2.5)) / 4 - np.log(1.1) - np.log(2)
    half = 3.499483 * 0.01 * np.sqrt(8 / 7) * np.sqrt(3 / 8)
    assert logs.tolist() == pytest.approx([middle - half, middle, middle + half], rel=1e-5)
    assert (verdict.outcome, verdict.to_resolve) == (Outcome.SLOWER, "")
    assert verdict.explanation == "4 new runs against 8 stored"
    assert verdict.run_sd_ratio == pytest.approx(0.01 * np.sqrt(8 / 7))


def test_an_undecided_prediction_says_what_to_do() -> None:
    verdict = against_baseline([0.990050, 1.010050] * 4, [1.02, 1.02, 1.02], 0.02)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, Reason.TOO_NOISY)
    assert "crosses a threshold" in verdict.explanation
    assert "timesink verify" in verdict.to_resolve


@pytest.mark.parametrize(("canary", "value"), [(0.0, 1.0), (-1.0, 1.0), (float("inf"), 1.0), (1.0, -1.0), (1.0, 0.0)])
def test_no_mean_and_no_canary_may_be_nothing(canary: float, value: float) -> None:
    assert against_baseline(STORED, [1.0, 1.0, value], 0.02, canary_ratio=canary).reason is Reason.BAD_VALUES


@pytest.mark.parametrize(("days", "reason"), [(14, None), (15, Reason.STALE_BASELINE)])
def test_a_baseline_may_be_as_old_as_its_limit(days: int, reason: Reason | None) -> None:
    gate_row, rows = gate_step_time(stored(age_days=days), iter(sets((1.0,) * 3)).__next__, TODAY)
    assert (gate_row.verdict.reason, len(rows)) == (reason, 0 if reason else 3)
    assert gate_row.before == pytest.approx(1.0, abs=1e-3)


def test_the_canary_counts_in_both_sets_of_runs() -> None:
    """Runs of 1.1 and then of 1.3 on a machine 1.1 times as slow: no difference; of 1.3 twice: slower by 1.18."""
    once, _ = gate_step_time(stored(), iter(sets((1.1,) * 3)).__next__, TODAY, 0.02, canary_ratio=1.1)
    assert once.verdict.outcome is Outcome.NO_DIFFERENCE
    twice, rows = gate_step_time(stored(), iter(sets((1.3,) * 3, (1.1,) * 3)).__next__, TODAY, 0.02, canary_ratio=1.1)
    assert (twice.verdict.reason, len(rows)) == (Reason.UNCONFIRMED, 6)
    assert "first 3 runs" in twice.verdict.explanation
    assert "next 3" in twice.verdict.explanation
    assert twice.after == pytest.approx((1.3 * 1.1) ** 0.5)


@pytest.mark.parametrize(("unsettled", "reason"), [(2, None), (3, Reason.NOT_STEADY)])
def test_half_of_the_runs_must_settle(unsettled: int, reason: Reason | None) -> None:
    rows = [row(1.0, "after", number, settled=number >= unsettled) for number in range(4)]
    assert gate_step_time(stored(), lambda: rows, TODAY)[0].verdict.reason is reason


class Launched:
    """A launcher whose runs take as long as is said, in turn."""

    watch = SimpleNamespace(remark="the GPU was shared")

    def __init__(self, *means: float) -> None:
        self.means, self.numbers, self.asked = iter(means), list[int](), list[Any]()

    def launch(self, side: str, number: int) -> RunRow:
        self.numbers.append(number)
        return row(next(self.means), side, number)


@pytest.mark.parametrize(
    ("kept", "measured", "names"),
    [({"launches": Counter(3)}, {"launches": Counter(4)}, ["step time (mean)", "launches"]),
     ({}, {}, ["step time (mean)"]),
     ({}, {"new": Counter(1)}, ["step time (mean)", "new"]), ({"old": Counter(1)}, {}, ["step time (mean)", "old"])],
)  # fmt: skip
def test_a_stored_gate_warms_up_once_and_holds_runs_and_counters_against_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: dict, measured: dict, names: list[str]
) -> None:
    monkeypatch.setattr("timesink.verify.gate.environment", lambda _: HERE)
    day = datetime.now(UTC).isoformat()
    saved(tmp_path, stored(counters=kept, runs=tuple(BaselineRun(mean, mean, 190, day, "abc") for mean in STORED)))
    launcher = Launched(9.0, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2)
    said: list[str] = []
    stored_gate = StoredGate(tmp_path, "suite", 0.02, 0.02, None)
    command = Command(("program",))
    result = stored_gate.run(command, "w0", launcher, measured, allowed=[], progress=said.append)  # type: ignore[arg-type]
    assert launcher.numbers == [1, 2, 3, 4, 5, 6, 7]
    assert said[1] == "run 2: 1200 ms per step"
    assert [one.name for one in result.rows] == names
    assert (result.rows[0].verdict.outcome, result.notes) == (Outcome.SLOWER, ("the GPU was shared",))


def test_a_gate_without_a_baseline_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timesink.verify.gate.environment", lambda _: HERE)
    launcher, command = Launched(), Command(("python", "t.py"))
    launcher.watch = SimpleNamespace(remark="")
    result = StoredGate(tmp_path, "suite", 0.02, 0.02, None).run(
        command, "w0", launcher, {}, allowed=[], progress=print  # type: ignore[arg-type]
    )  # fmt: skip
    assert (launcher.numbers, result.rows[0].verdict.reason, result.notes) == ([], Reason.MISSING_BASELINE, ())
    assert (
        "timesink gate baseline update --suite suite --reason '...' -- python t.py" in result.rows[0].verdict.to_resolve
    )


@pytest.fixture
def perf_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[PerfTest, Launched]]:
    """A test that is run by hand: its launcher's runs take what is said."""

    def made(*means: float) -> tuple[PerfTest, Launched]:
        launched = Launched(*means)
        monkeypatch.setattr(gate, "GpuWatch", lambda *_: nullcontext(launched.watch))
        monkeypatch.setattr(gate, "Launcher", lambda *given: launched.asked.append(given) or launched)
        return gate.PerfTest("tests/test_perf.py::test_step", Command(("pytest",)), tmp_path, 0.02, HERE), launched

    return made


def test_a_test_without_a_baseline_says_how_to_make_one_and_its_first_run_is_discarded(perf_test: Any) -> None:
    test, launched = perf_test(*[9.0] * 40)
    row, ran = test.compare()
    assert (row.verdict.reason, row.name, ran) == (Reason.MISSING_BASELINE, test.test_id, ())
    assert row.verdict.to_resolve == "run pytest --gpuperf-update-new-only on the trunk and commit the file"
    assert launched.numbers == []
    test, launched = perf_test(9.0, *STORED, 9.0, *STORED)
    path = test.update(8, "first", new_only=True)
    assert path is not None and launched.numbers == [*range(1, 10)]  # the first warms up
    assert [run.mean for run in baselines.read(path).runs] == list(STORED)
    asked = Launcher(*launched.asked[0])
    assert asked.timeout_s == 600.0 and asked.box is not None
    assert test.update(8, "again", new_only=True) is None
    assert test.update(8, "more", new_only=False) == path
    assert len(baselines.read(path).runs) == 16
    path.write_text("{")
    row, _ = test.compare()
    assert (
        row.verdict.to_resolve == "run pytest --gpuperf-update --gpuperf-reason '...' on the trunk and commit the file"
    )


def test_a_slow_test_fails_once_a_second_set_of_fresh_runs_agrees(perf_test: Any) -> None:
    test, _ = perf_test(9.0, *STORED)
    test.update(8, "first", new_only=True)
    test, launched = perf_test(9.0, *[1.2] * 6)
    row, runs = test.compare()
    assert (row.verdict.outcome, row.name, len(runs)) == (Outcome.SLOWER, test.test_id, 6)
    assert launched.numbers == [1, 2, 3, 4, 5, 6, 7]
    assert [run.number for run in runs] == [2, 3, 4, 5, 6, 7]


def test_the_suite_of_a_test_is_the_end_of_its_name_and_a_hash_of_it_all() -> None:
    long = PerfTest("a/" * 60 + "test_x.py::test_step[-1-]", Command(()), Path(), 0.02, HERE)
    name, _, mark = long.suite.rpartition("-")
    assert len(mark) == 6 and name.endswith("test_x.py-test_step--1") and len(name) in (58, 59, 60)
    other = replace(long, test_id="b/" * 60 + "test_x.py::test_step[-1-]")
    assert other.suite != long.suite and other.work != long.work
    assert replace(long, test_id="::").suite.startswith("test-")
    whole = replace(long, test_id="x" * 100)
    assert whole.suite.rpartition("-")[0] == "x" * 60


@pytest.mark.parametrize("allow_writes", [True, False])
def test_the_folder_of_runs_goes_and_runs_are_boxed_unless_they_may_write(
    allow_writes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "GpuWatch", lambda *_: nullcontext())
    made = []
    for _ in range(2):
        with gate.launching({}, StepsFile(), allow_writes=allow_writes) as launcher:
            assert launcher.timeout_s == LONGEST_RUN_S
            made.append(launcher.folder)
            if launcher.box is not None:
                assert launcher.box.here == Path.cwd()
                made.append(launcher.box.root)
            assert all(folder.is_dir() for folder in made[-1 if allow_writes else -2 :])
    assert len(set(made)) == (2 if allow_writes else 4)
    assert not any(folder.exists() for folder in made)


def test_a_calibration_is_the_deviation_of_log_means_over_all_sessions(tmp_path: Path) -> None:
    here = Environment({"gpu": "x"})
    path = calibration.location(tmp_path, here, "w")
    first = calibration.store(path, here, "cmd", [row(mean) for mean in (1.0, 1.01, 0.99, 1.0, 1.02)])
    both = calibration.store(path, here, "cmd", [row(mean) for mean in (1.1, 1.11)])
    assert (first.df, both.sessions, both.df) == (4, 2, 6)
    assert both.run_sd_ratio == pytest.approx(np.log([1.0, 1.01, 0.99, 1.0, 1.02, 1.1, 1.11]).std(ddof=1), rel=1e-5)


def test_calibration_discards_the_first_run() -> None:
    rows = calibration.calibrate(lambda number: row(1.0 + number), 5)
    assert [r.mean_s for r in rows] == [3.0, 4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 1, "environment": {}, "sessions": [{}]}',
                                  '{"schema_version": 1, "environment": {}, "sessions": [{"run_means_s": [1, 0]}]}',
                                  '{"schema_version": 1, "environment": {}, "sessions": []}'])  # fmt: skip
def test_a_damaged_calibration_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(BrokenRecord):
        calibration.read(path)
