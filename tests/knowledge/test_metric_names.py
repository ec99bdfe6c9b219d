"""The linter of metric names: the wrong names of public tools, and nothing claimed of what is in no table."""

import re
from itertools import product
from pathlib import Path

import polars as pl
import pytest
from tests.readers.ncu_pages import REPORTS, reading_into

from timesink.knowledge.metric_names import CHIPS, Standing, _table, check_name
from timesink.model.tables import KERNEL_METRICS, KERNEL_PROFILES

HMMA = "sm__pipe_tensor_op_hmma_cycles_active"
LINES = "l1tex__lsu_writeback_active_mem"
PCT = "avg.pct_of_peak_sustained_elapsed"


@pytest.mark.parametrize(
    ("name", "chip", "standing", "instead"),
    [
        (
            "smsp__warps_issue_stalled_barrier_per_warp_active.pct",
            "sm_90",
            Standing.WRONG,
            "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
        ),
        (f"l2__throughput.{PCT}", "sm_80", Standing.WRONG, f"lts__throughput.{PCT}"),
        ("sm__throughput.avg_pct_of_peak_sustained_elapsed", "sm_90", Standing.WRONG, ""),
        (f"sm__throughput.{PCT}", "sm_70", Standing.EXISTS, ""),
        (f"gpu__dram_throughput.{PCT}", "sm_120", Standing.EXISTS, ""),
        ("dram__bytes_read.sum", "sm_90", Standing.EXISTS, ""),
        ("dram__bytes_read.sum", "sm_120", Standing.ABSENT, "dram__bytes.sum"),
        (
            f"sm__pipe_tensor_op_hmma_cycles_active.{PCT}",
            "sm_100",
            Standing.ABSENT,
            f"sm__pipe_tensor_cycles_active.{PCT}",
        ),
        (
            "l1tex__lsu_writeback_active_mem_lg.sum",
            "sm_90",
            Standing.ABSENT,
            "l1tex__lsu_writeback_active_mem_lgds.sum",
        ),
        ("lts__t_bytes_equiv_l1sectormiss_pipe_lsu.sum", "sm_89", Standing.ABSENT, "lts__t_sectors_srcunit_tex.sum"),
        ("l1tex__t_bytes_equiv_l1sectormiss_pipe_lsu.sum", "sm_80", Standing.WRONG, "lts__t_sectors_srcunit_tex.sum"),
        ("a__made_up_name.sum", "sm_90", Standing.UNKNOWN, ""),
        (f"sm__inst_executed_pipe_fp32.{PCT}", "sm_90", Standing.UNKNOWN, f"sm__inst_executed_pipe_fma.{PCT}"),
        (
            "smsp__warp_issue_stalled_memory_dependency_per_warp_active.pct",
            "sm_90",
            Standing.UNKNOWN,
            "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct",
        ),
        (
            "smsp__warp_issue_stalled_long_scorebord_per_warp_active.pct",
            "sm_90",
            Standing.UNKNOWN,
            "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct",
        ),
        ("sm__inst_executed_pipe_fp63.sum", "sm_90", Standing.UNKNOWN, ""),
        ("launch__occupancy_limit_registers", "sm_90", Standing.EXISTS, ""),
        ("launch__registers_per_thread", "sm_120", Standing.EXISTS, ""),
        ("launch__cluster_size", "sm_80", Standing.UNKNOWN, ""),
    ],
)
def test_a_name_has_its_standing_on_a_chip(name: str, chip: str, standing: Standing, instead: str) -> None:
    verdict = check_name(name, chip)
    assert (verdict.standing, verdict.instead) == (standing, instead)


def test_a_replacement_exists_where_it_is_recommended() -> None:
    for name, chip in (("dram__bytes_read.sum", "sm_120"), (f"sm__pipe_tensor_op_hmma_cycles_active.{PCT}", "sm_100")):
        assert check_name(check_name(name, chip).instead, chip).standing is Standing.EXISTS


def test_a_known_name_tells_since_when_it_exists() -> None:
    assert check_name("sm__inst_executed_pipe_tensor_op_gmma.sum", "sm_80").known_on == ("sm_90",)


@pytest.mark.parametrize("chip", CHIPS)
def test_names_timesink_relies_on_are_wrong_on_no_chip(chip: str) -> None:
    for name in ("gpu__time_duration.sum", "sm__cycles_elapsed.avg.per_second", f"sm__pipe_tensor_cycles_active.{PCT}"):
        assert check_name(name, chip).standing is not Standing.WRONG


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_every_name_of_a_report_exists_on_its_chip(path: Path, tmp_path: Path) -> None:
    trace = reading_into(tmp_path)(path)
    first = trace[KERNEL_PROFILES].row(0, named=True)
    chip = f"sm_{first['compute_major']}{first['compute_minor']}"
    names = trace[KERNEL_METRICS]["metric"].cast(pl.String).unique().to_list()
    assert len(names) > 200
    temporary = re.compile(r"^derived_tempMetric\d+$")  # ncu numbers them, no name of theirs can be asked for
    missing = {name for name in names if check_name(name, chip).standing is not Standing.EXISTS}
    assert {name for name in missing if not temporary.match(name)} == set()


MEANINGS = ("fp64", "fp32", "fp16", "dfma", "ffma", "hfma", "read", "write", "ld", "st", "global", "local", "shared")
REASONS = ("long_scoreboard", "short_scoreboard", "barrier", "membar", "wait", "lg_throttle", "mio_throttle")


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["sm_80", "sm_90"])
def test_no_other_format_direction_space_or_stall_is_proposed(chip: str) -> None:
    """Each known name with one of its words changed for another meaning: what is proposed keeps that meaning."""
    tried = 0
    for words in (MEANINGS, REASONS):
        for word, name in product(words, _table()):
            for other in {*words} - {word} if f"_{word}" in name else ():
                changed = re.sub(rf"(?<=_){word}(?=_|$)", other, name)
                if changed == name:
                    continue
                verdict = check_name(f"{changed}.sum", chip)
                if not verdict.known_on:
                    tried += 1
                    is_kept = other in verdict.instead or (other == "fp32" and "pipe_fma" in verdict.instead)
                    assert not verdict.instead or is_kept, (name, word, other, verdict.instead)
    assert tried > 500
