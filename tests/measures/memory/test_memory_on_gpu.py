"""Snapshots of our own programs against what the programs knew: every known tensor is told right, every peak is met."""

import json
from pathlib import Path
from typing import Any

import pytest

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.registry import find
from timesink.diagnosis.verdicts import Found
from timesink.measures.memory import MemoryLedger, memory_ledger
from timesink.measures.memory.classes import Category
from timesink.memory_plan import configuration
from timesink.memory_plan.plan import plan
from timesink.readers import read

DATA = Path(__file__).resolve().parents[2] / "data" / "memory"
NAMES = ("gpt_bf16_adamw", "gpt_amp_ddp_rank0")
KINDS = {
    "weights": Category.WEIGHTS,
    "gradients": Category.GRADIENTS,
    "optimizer": Category.OPTIMIZER_STATE,
    "inputs": Category.INPUTS,
}


def known(name: str) -> dict[str, Any]:
    return json.loads((DATA / f"{name}.json").read_text())


def ledger_of(name: str) -> MemoryLedger:
    return memory_ledger(read(DATA / f"{name}.pickle.xz", cache=False))[0, 0]


@pytest.mark.parametrize("name", NAMES)
def test_categories_sum_to_the_byte_at_every_event(name: str) -> None:
    ledger = ledger_of(name)
    assert ledger.classes.lives.unpaired == 0
    assert (ledger.classes.lives.frame["address"] > 0).all()  # nothing the allocator counts is unaccounted for
    assert (ledger.live_bytes.sum(axis=0) == ledger.totals_bytes).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_peak_is_the_allocators_but_for_its_rounding(name: str) -> None:
    """The allocator counts blocks of whole 512 bytes, at times a larger remainder: never less than was asked."""
    peak, counted = ledger_of(name).peak_bytes, known(name)["peak_bytes"]
    assert 0 <= counted - peak < 0.002 * counted


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_the_program_knew_is_told_right(name: str) -> None:
    ledger, truth = ledger_of(name), known(name)["truth"]
    frame = ledger.classes.lives.frame
    last = {address: row for row, address in enumerate(frame["address"].to_list())}
    sizes = {(address, size): row for row, (address, size) in enumerate(frame.select("address", "bytes").iter_rows())}
    checked = 0
    for kind, entries in truth.items():
        for address, size in entries:
            assert address in last
            row = sizes[address, size]
            assert ledger.classes.of(KINDS[kind])[row], (kind, size)
            checked += 1
    assert checked > 400


@pytest.mark.parametrize("name", NAMES)
def test_less_than_a_tenth_is_unclassified(name: str) -> None:
    assert ledger_of(name).unclassified_ratio < 0.10


@pytest.mark.parametrize("name", NAMES)
def test_four_steps_ran(name: str) -> None:
    assert len(ledger_of(name).classes.phases.starts) == 4


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_meets_the_measured_peak_within_a_tenth(name: str) -> None:
    measured = known(name)
    peak = max(row["peak_bytes"] for row in measured["phases"] if row["step"] >= 1)
    assert plan(configuration(measured["config"])).peak_bytes == pytest.approx(peak, rel=0.10)


def test_ddp_without_bucket_views_holds_gradients_twice() -> None:
    trace = read(DATA / "gpt_amp_ddp_rank0.pickle.xz", cache=False)
    verdict = diagnose(trace, [find("MEM108")]).rulings[0].verdict
    assert isinstance(verdict, Found)
    sizes = {fact.label: fact.measured.value for fact in verdict.findings[0].evidence}
    truth = sum(size for _, size in known("gpt_amp_ddp_rank0")["truth"]["gradients"])
    assert sizes["gradients held twice, bytes"] == pytest.approx(truth, rel=0.01)
