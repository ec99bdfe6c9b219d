"""Launches of two reports, found again: by name, grid and order, and by their place where the names do not say."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timesink.cli.app import run
from timesink.measures.counters.comparison import Match, compare_reports
from timesink.model.trace import Trace
from timesink.readers import read

HEADER = (
    "ID,Process ID,Process Name,Host Name,Kernel Name,Context,Stream,Block Size,Grid Size,Device,CC,"
    "gpu__time_duration.sum,dram__cycles_active.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread\n"
    ",,,,,,,,,,,ns,%,register/thread\n"
)
Launches = Sequence[tuple[str, int]]


def written(path: Path, launches: Launches, time_ns: int = 2000, registers: int = 32) -> Path:
    rows = (
        f'{at},1,a,h,{name},1,7,"(64, 1, 1)","({grid}, 1, 1)",0,9.0,{time_ns},80.00,{registers}\n'
        for at, (name, grid) in enumerate(launches)
    )
    path.write_text(HEADER + "".join(rows))
    return path


def report(folder: Path, launches: Launches) -> Trace:
    return read(written(folder / f"{len(list(folder.iterdir()))}.csv", launches), cache=False)


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        ([("k", 8), ("k", 4)], [("k", 4), ("k", 8)], [(0, 1, Match.SAME), (1, 0, Match.SAME)]),
        ([("k", 8), ("k", 8)], [("k", 8), ("k", 8)], [(0, 0, Match.SAME), (1, 1, Match.SAME)]),
        ([("k", 8)], [("k", 16)], [(0, 0, Match.OTHER_GRID)]),
        (
            [("a", 1), ("k", 8), ("b", 1)],
            [("a", 1), ("l", 9), ("b", 1)],
            [(0, 0, Match.SAME), (1, 1, Match.OTHER_NAME), (2, 2, Match.SAME)],
        ),
        ([("a", 1), ("b", 2)], [("c", 1), ("d", 2)], [(0, 0, Match.OTHER_NAME), (1, 1, Match.OTHER_NAME)]),
        ([("a", 1), ("b", 2)], [("c", 3), ("d", 4)], []),
    ],
)
def test_launches_are_found_again(
    before: Launches, after: Launches, pairs: list[tuple[int, int, Match]], tmp_path: Path
) -> None:
    result = compare_reports(report(tmp_path, before), report(tmp_path, after))
    found = [(pair.before.profile, pair.after.profile, pair.match) for pair in result.pairs]
    assert found == pairs


def test_several_in_the_place_of_one_are_proposed_as_fused(tmp_path: Path) -> None:
    before = [("a", 1), ("add", 8), ("mul", 8), ("gelu", 8), ("b", 1)]
    result = compare_reports(report(tmp_path, before), report(tmp_path, [("a", 1), ("triton_fused", 4), ("b", 1)]))
    (group,) = result.regrouped
    assert group.is_fusion
    assert [kernel.profile for kernel in group.before] == [1, 2, 3]
    assert (result.only_before, result.only_after) == ((), ())


def test_launches_may_be_paired_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By name, in order, or by number; the rest is found as before. A name that none has is asked about."""
    before = report(tmp_path, [("basic", 1), ("tiled", 2), ("basic", 3)])
    after = report(tmp_path, [("warptiled", 4), ("tiled", 2), ("warptiled", 5)])
    result = compare_reports(before, after, [("basic", "warptiled")])
    found = [(pair.before.profile, pair.after.profile, pair.match) for pair in result.pairs]
    assert found == [(0, 0, Match.CHOSEN), (1, 1, Match.SAME), (2, 2, Match.CHOSEN)]
    old, new = (str(written(tmp_path / f"{name}.csv", [(name, 1), ("k", 8)])) for name in ("old", "new"))
    assert run(["kernels", old, "--against", new, "--pair", "0=k", "-f", "json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [(one["id"], one["id_after"]) for one in entries["pairs"]] == [(0, 1)]
    for wrong, said in (("ol=new", "did you mean old"), ("old", "write OLD=NEW")):
        assert run(["kernels", old, "--against", new, "--pair", wrong]) == 2
        assert said in capsys.readouterr().err


def test_rungs_of_a_ladder_are_no_parts_of_a_fused_kernel(tmp_path: Path) -> None:
    """Each does all the operations of the kernel in their place; parts would do some of them."""
    op = "sass_thread_inst_executed_op_ffma_pred_on.sum"
    counted = f"smsp__{op},sm__{op}.peak_sustained,sm__cycles_elapsed.avg.per_second"
    header = HEADER.replace("\n", f",{counted}\n", 1)
    header = header.replace("register/thread\n", "register/thread,inst,inst/cycle,hz\n")

    def made(name: str, work: Sequence[float]) -> Trace:
        rows = (
            f'{at},1,a,h,{name}_{at},1,7,"(64, 1, 1)","({at + 1}, 1, 1)",0,9.0,2000,80.00,32,{each},16896,1000000000\n'
            for at, each in enumerate(work)
        )
        path = tmp_path / f"{name}.csv"
        path.write_text(header + "".join(rows))
        return read(path, cache=False)

    assert compare_reports(made("rungs", [100, 100, 100]), made("best", [100])).regrouped == ()
    assert len(compare_reports(made("parts", [20, 30, 50]), made("fused", [100])).regrouped) == 1


launches = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 2)), min_size=1, max_size=6)


@example(
    before=[("a", 1), ("c", 1), ("a", 2), ("c", 1), ("a", 1), ("b", 1)], after=[("a", 2), ("a", 2), ("a", 1), ("a", 1)]
)
@given(before=launches, after=launches)
def test_every_launch_is_in_one_place_only(
    before: Launches, after: Launches, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("law")
    result = compare_reports(report(folder, before), report(folder, after))
    old = [pair.before.profile for pair in result.pairs] + [kernel.profile for kernel in result.only_before]
    new = [pair.after.profile for pair in result.pairs] + [kernel.profile for kernel in result.only_after]
    for group in result.regrouped:
        old += [kernel.profile for kernel in group.before]
        new += [kernel.profile for kernel in group.after]
    assert sorted(old) == list(range(len(before)))
    assert sorted(new) == list(range(len(after)))


def test_json_has_limiter_and_every_figure_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = written(tmp_path / "old.csv", [("k", 8)]), written(tmp_path / "new.csv", [("k", 8)], 1000, 24)
    assert run(["kernels", str(old), "--against", str(new), "--format", "json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["pairs"]
    assert pair["figures"]["duration_ns"] == {"before": 2000, "after": 1000, "difference": -1000, "ratio": 0.5}
    assert pair["verdict"]["limiter"]["before"] == pair["verdict"]["limiter"]["after"] == "memory_bound_kernel"
    assert pair["counts"] == {"registers per thread": {"before": 32, "after": 24}}
    assert run(["kernels", str(old), "--against", str(new), "--id", "0"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "duration (speed of light) 2 us 1 us -1 us (0.50 x)" in text
    assert "registers a thread (launch) 32 24 -8 (0.75 x)" in text


def test_chosen_columns_stand_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = written(tmp_path / "old.csv", [("k", 8), ("l", 8)]), written(tmp_path / "new.csv", [("k", 8)], 1000, 24)
    asked = ["kernels", str(old), "--against", str(new), "--columns", "duration_ns,registers", "--format", "csv"]
    assert run(asked) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header == "id,kernel,id_after,duration_ns_before,duration_ns_after,registers_before,registers_after"
    assert row == "0,k,0,2000.0,1000.0,32.0,24.0"
