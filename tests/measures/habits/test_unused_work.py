"""What is left of work of which a part is used, by the tables of the rule's own cases."""

import polars as pl
import pytest
from tests.rules.cases import cases_of

from timesink.fixes.work import NO_RECORDING
from timesink.knowledge.assumptions import fixes
from timesink.measures.habits.unused_work import partly_used, recorded_in_vain
from timesink.measures.kernels.attainable import added_per_address
from timesink.model.tables import HOST_OPS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.whatif import Case, Target


def case(title: str) -> Trace:
    return next(one.trace for one in cases_of("work-unused") if one.title.startswith(title))


def test_a_top_k_reads_what_it_searches_four_times() -> None:
    assert [fixes.TOPK_PASSES.at(at) for at in Case] == [8.0, 4.0, 2.0]
    (found,) = partly_used(case("The best hundred"))
    most, usual, least = found.remains
    assert (found.of, found.kept, found.operator) == (100_000, 100, "aten::sort")
    assert (most, least) == pytest.approx((2 * usual, usual / 2))


def test_a_gather_moves_the_rows_that_are_picked_once() -> None:
    (found,) = partly_used(case("Rows of a table"))
    assert (found.kind, found.of, found.work.rows.size) == ("one_hot", 4096, 30)
    assert found.remains[1] == pytest.approx(found.remains[0] / 2)


def test_without_recording_three_quarters_of_the_time_are_left() -> None:
    assert fixes.RECORDING_LEFT.value == 0.75
    (blamed,) = recorded_in_vain(case("Inference that records gradients"))
    assert NO_RECORDING.change(Target("windows", windows=blamed.host)).factor is fixes.RECORDING_LEFT
    assert recorded_in_vain(case("Inference that records nothing")) == ()


@pytest.mark.parametrize(
    ("name", "shapes", "added"),
    [
        ("aten::index_add", "[[16,256],[],[1024],[1024,256],[]]", 64.0),
        ("aten::scatter_add_", "[[512,8],[],[1024,8],[1024,8]]", 2.0),
        ("aten::index_add", "[[],[],[1],[1],[]]", 1.0),
        ("aten::index_add", "no shapes", 0.0),
        ("aten::mm", "[[16,256],[256,4]]", 0.0),
    ],
)
def test_rows_per_address_come_from_shapes(name: str, shapes: str, added: float) -> None:
    assert added_per_address(name, shapes) == added


@pytest.mark.parametrize("number", [0, 7, -1, None])
def test_numbers_that_never_advance_record_nothing(number: int | None) -> None:
    """Every operator shows a number while gradients are on; only one that makes a node counts it on."""
    recorded = case("Inference that records gradients")
    ops = recorded[HOST_OPS].with_columns(sequence_number=pl.lit(number, pl.Int64))
    assert recorded_in_vain(replace(recorded, tables={**recorded.tables, HOST_OPS: ops})) == ()
