"""The figures of the scoreboard, by hand.

Floors of accuracy: what is worse than its floor is named, what is better passes, by hand.

The fourth set: each rule finds the fault that was planted for it, and is clear of the program that was mended.

A real capture with a known truth, scored from archive to figure.
"""

import json
import lzma
import tarfile
from pathlib import Path

import pytest
from benchmarks.faults import adopt, floors, score, suite
from benchmarks.faults.adopt import CAPTURES, merged
from benchmarks.faults.doubles import changes
from benchmarks.faults.pack import unpacked
from benchmarks.faults.scoring import Figures, Foretold, Observation, figures, formula_figures, named, top
from benchmarks.faults.trim import trim_torch

import timesink
from timesink.diagnosis.registry import find
from timesink.diagnosis.verdicts import Found
from timesink.records import replace

SYNC = Observation("a", "high", "fault", "torch", "tune", owed="host_sync", gain=0.20, verdict="host_sync")
CLEAN = Observation("h", "large", "fault", "torch", "tune", owed="none", gain=0.0, verdict="none")


def foretell(value: float) -> Foretold:
    return Foretold(value, low=value - 0.05, high=value + 0.05)


def test_only_costly_faults_are_owed_a_verdict() -> None:
    missed_but_free = replace(SYNC, gain=0.01, verdict="none")
    found = figures([SYNC, missed_but_free])
    assert (found.costly, found.top1) == (1, 1.0)


def test_top_three_counts_different_bottlenecks() -> None:
    findings = (("allocator", 0.3), ("allocator", 0.2), ("launch_bound", 0.1), ("host_sync", 0.1))
    late = replace(SYNC, verdict="allocator", findings=findings)
    assert top(late, 3)
    assert not top(late, 2)


def test_of_two_faults_either_is_right_and_each_change_worth_naming_counts() -> None:
    both = replace(SYNC, second="precision", changes=(("host_sync", 0.2), ("precision", 0.05), ("allocator", 0.04)))
    either = replace(both, verdict="precision", findings=(("precision", 0.1),))
    assert figures([both, either]).top1 == 1.0
    assert top(either, 1)
    assert named([both, either, replace(both, variant="fix")]) == (2, 4)
    assert figures([replace(both, verdict="allocator")]).top1 == 0.0


def test_a_fix_is_worth_what_it_wins_alone_or_after_the_other() -> None:
    double = suite.find("particles_read_and_in_fp32")
    times = {"fault_ms": [9.0, 10.0, 11.0], "fix_ms": [2.0], "first_fixed_ms": [9.5], "second_fixed_ms": [3.0]}
    assert changes(double, times) == [("host_sync", 0.1), ("precision", 0.75)]
    assert changes(suite.find("flows_in_float64"), {"fault_ms": [10.0], "fix_ms": [4.0]}) == [("precision", 0.6)]


def test_a_verdict_on_a_healthy_program_is_false() -> None:
    assert figures([CLEAN, replace(CLEAN, verdict="launch_bound")]).false_verdicts == 0.5
    open_one = figures([CLEAN, replace(CLEAN, verdict="undecided")])
    assert (open_one.false_verdicts, open_one.undecided_verdicts) == (0.0, 0.5)


def test_a_fault_not_found_is_a_gain_of_nothing() -> None:
    assert figures([SYNC]).mean_error_points == pytest.approx(20.0)
    assert figures([SYNC]).median_relative_error == pytest.approx(1.0)


def test_gain_errors_are_points_and_shares_of_the_measured_gain() -> None:
    near, far = replace(SYNC, foretold=foretell(0.25)), replace(SYNC, gain=0.10, foretold=foretell(0.30))
    found = figures([near, far])
    assert found.mean_error_points == pytest.approx((5 + 20) / 2)
    assert found.median_relative_error == pytest.approx((0.25 + 2.0) / 2)
    assert found.coverage == 0.5  # 0.20 lies in 0.20–0.30, 0.10 does not lie in 0.25–0.35


def test_a_gain_of_nothing_must_be_foretold_as_nothing() -> None:
    free = replace(SYNC, gain=0.005)
    found = figures([replace(free, foretold=foretell(0.01)), replace(free, foretold=foretell(0.05))])
    assert found.sign_right == 0.5


def test_an_artefact_is_owed_only_where_the_profiler_dominates_and_is_never_priced() -> None:
    artefact = replace(SYNC, owed="profiler_overhead", gain=0.0, verdict="launch_bound", slowdown=3.0)
    assert (figures([artefact]).top1, figures([artefact]).priced) == (0.0, 0)
    assert figures([replace(artefact, slowdown=1.1)]).costly == 0


def test_what_processes_measure_differently_is_named_but_not_priced() -> None:
    found = figures([replace(SYNC, settled=False)])
    assert (found.top1, found.priced, found.mean_error_points) == (1.0, 0, None)


def test_mended_programs_are_neither_priced_nor_owed_the_fault() -> None:
    found = figures([replace(SYNC, variant="fix", verdict="none")])
    assert (found.costly, found.priced) == (0, 0)


def test_a_formula_is_scored_on_the_same_cases() -> None:
    points, relative, _ = formula_figures([replace(SYNC, formulas={"sum of idle": 0.5})], "sum of idle")
    assert (points, relative) == (pytest.approx(30.0), pytest.approx(1.5))


def test_measurements_of_several_calls_are_one_median_over_all_processes() -> None:
    one = {"a/high": {"fault_ms": [10.0, 12.0], "fix_ms": [8.0, 8.0], "receipts_equal": [True, True], "failed": []}}
    two = {"a/high": {"fault_ms": [11.0], "fix_ms": [9.0], "receipts_equal": [True], "failed": ["late"]}}
    case = merged([one, two])["a/high"]
    assert case["fault_ms"] == [10.0, 12.0, 11.0]
    assert case["gain_share"] == pytest.approx(1 - 8 / 11, abs=1e-5)
    assert case["failed"] == ["late"]


TODAY = Figures(
    costly=70, top1=0.942857, top3=0.985714, healthy=18, false_verdicts=0.0, undecided_verdicts=0.0, priced=93,
    mean_error_points=3.3, median_relative_error=0.08, sign_right=0.91, coverage=0.77,
)  # fmt: skip
FLOORS = floors.rows([("tune", "torch", TODAY)])


def held(**changes: float | None) -> list[str]:
    return floors.breaches([("tune", "torch", replace(TODAY, **changes))], FLOORS)


def test_the_figures_of_today_are_no_breach() -> None:
    assert held() == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"top1": 65 / 70}, "top1"), ({"top3": 68 / 70}, "top3"), ({"coverage": 0.75}, "coverage"),
     ({"costly": 69}, "costly"), ({"false_verdicts": 1 / 18}, "false_verdicts"),
     ({"undecided_verdicts": 1 / 18}, "undecided_verdicts"),
     ({"mean_error_points": 3.36}, "mean_error_points"),
     ({"coverage": None}, "coverage")],
)  # fmt: skip
def test_one_case_less_is_a_breach(changes: dict[str, float | None], name: str) -> None:
    lines = held(**changes)
    assert [line.split()[2] for line in lines] == [name]


def test_better_figures_and_a_hair_of_error_are_no_breach() -> None:
    assert held(top1=1.0, coverage=0.9, mean_error_points=3.34, priced=94) == []


def test_a_split_that_was_not_scored_is_a_breach_and_one_without_floors_is_none() -> None:
    assert len(floors.breaches([], FLOORS)) == len(FLOORS["tune torch"])
    assert floors.breaches([("tune", "torch", TODAY), ("third", "torch", replace(TODAY, top1=0.0))], FLOORS) == []


def test_keeping_one_split_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "FLOORS", tmp_path / "floors.json")
    floors.keep([("tune", "torch", TODAY)])
    floors.keep([("fresh", "nsys", TODAY), ("all", "nsys", TODAY)])
    assert sorted(json.loads((tmp_path / "floors.json").read_text())) == ["fresh nsys", "tune torch"]
    assert floors.splits() == {"tune", "fresh"}


ARCHIVES = [
    pytest.param(fault, archive, id=archive.name)
    for fault in suite.FAULTS
    if fault.part == 4
    for tool in score.TOOLS
    if (archive := CAPTURES / f"{fault.name}.{tool}.tar.xz").exists()
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "archive"), ARCHIVES)
def test_a_planted_habit_is_found_and_its_fix_is_clear(fault: suite.Fault, archive: Path, tmp_path: Path) -> None:
    unpacked(archive, tmp_path)
    rule = find(fault.bottleneck.replace("_", "-"))
    captures = score.captures_in(tmp_path)
    assert f"{fault.name}.high.fault" in captures
    for name, (path,) in captures.items():
        trace = timesink.read(path).with_settings(score.settings_beside(path))
        assert isinstance(rule.verdict(trace), Found) == name.endswith(".fault"), name


DEMO = Path(timesink.__file__).parent / "cli" / "demo"
# Unprofiled step of the demo program, whose batches are sorted on the host (fault) or kept on the GPU (fix).
MEASURED = {"batch_prepared_in_line/high": {"fault_ms": [10.6], "fix_ms": [8.7], "receipts_equal": [True]}}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's two captures, trimmed to six steps and packed as the suite packs its own."""
    folder = tmp_path_factory.mktemp("captures")
    with tarfile.open(folder / "batch_prepared_in_line.torch.tar.xz", "w:xz", preset=0) as archive:
        for demo, variant in (("gpt_before", "fault"), ("gpt_after", "fix")):
            raw, small = folder / f"{demo}.json", folder / f"batch_prepared_in_line.high.{variant}.json"
            raw.write_bytes(lzma.decompress((DEMO / f"{demo}.json.xz").read_bytes()))
            trim_torch(raw, small, steps=6)
            archive.add(small, arcname=small.name)
    return folder


@pytest.fixture
def captures(packed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(adopt, "CAPTURES", packed)
    return packed


@pytest.mark.slow
def test_a_capture_is_diagnosed_and_held_against_the_measured_gain(captures: Path) -> None:
    fault, fix = score.archive_observed(score.Job("batch_prepared_in_line", "torch", MEASURED))
    assert (fault.variant, fix.variant) == ("fault", "fix")
    assert fault.gain == pytest.approx(1.9 / 10.6)
    for item, unprofiled_ms in ((fault, 10.6), (fix, 8.7)):
        trace = timesink.read(captures / f"batch_prepared_in_line.high.{item.variant}.json")
        diagnosis = timesink.diagnose(trace, unprofiled_step_ms=unprofiled_ms)
        assert item.verdict == diagnosis.bottleneck
        assert [name for name, _ in item.findings] == [finding.bottleneck for _, finding in diagnosis.findings]
        assert all(0 <= share < 1 for _, share in item.findings)
    assert fault.foretold is not None
    assert 0 <= fault.foretold.low <= fault.foretold.value <= fault.foretold.high < 1
    assert (figures([fault, fix]).costly, figures([fault, fix]).priced) == (1, 1)
    assert all(0 <= price <= 1 for price in fault.formulas.values())


def test_a_case_without_equal_receipts_is_not_scored(captures: Path) -> None:
    unequal = {"batch_prepared_in_line/high": {**MEASURED["batch_prepared_in_line/high"], "receipts_equal": [False]}}
    assert score.archive_observed(score.Job("batch_prepared_in_line", "torch", unequal)) == []


def test_files_of_ranks_are_one_capture(tmp_path: Path) -> None:
    names = ("a.high.fault.rank0.json", "a.high.fault.rank1.json", "a.high.fix.json", "rank1.low.fault.sqlite")
    for name in names:
        (tmp_path / name).touch()
    found = {capture: [path.name for path in paths] for capture, paths in score.captures_in(tmp_path).items()}
    assert found == {
        "a.high.fault": list(names[:2]), "a.high.fix": [names[2]], "rank1.low.fault": [names[3]]
    }  # fmt: skip


def seen(split: str, tool: str) -> Observation:
    return Observation("a", "high", "fault", tool, split, owed="host_sync", gain=0.2, verdict="host_sync")


def test_totals_are_printed_for_every_split_and_for_all_of_them() -> None:
    tune, fresh, other = seen("tune", "torch"), seen("fresh", "torch"), seen("fresh", "nsys")
    assert list(score.groups([fresh, tune, other])) == [
        ("tune", "torch", [tune]),
        ("fresh", "torch", [fresh]),
        ("fresh", "nsys", [other]),
        ("all", "torch", [fresh, tune]),
        ("all", "nsys", [other]),
    ]


def test_the_third_set_is_printed_apart() -> None:
    parts = [seen(split, "torch") for split in ("third_evaluate", "third_tune", "tune")]
    assert [(split, len(part)) for split, _, part in score.groups(parts)] == [
        ("tune", 1), ("third_tune", 1), ("third_evaluate", 1), ("all", 3)
    ]  # fmt: skip


def test_one_split_alone_is_its_own_total() -> None:
    only = [seen("fresh", "torch")]
    assert list(score.groups(only)) == [("fresh", "torch", only)]
