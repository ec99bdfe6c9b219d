"""What is left of work of which a part is used, by the tables of the rule's own cases."""

import polars as pl
import pytest
from tests.rules.cases import cases_of

from timesink.fixes.work import NO_RECORDING
from timesink.knowledge.assumptions import fixes
from timesink.knowledge.work import recorded_work
from timesink.measures.habits.unused_work import partly_used, recorded_in_vain
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
    ("name", "shapes", "types", "scalars", "added"),
    [
        ("index_add", "[[16,256],[],[1024],[1024,256],[]]", '["float","","long int","float",""]', "[]", 64.0),
        ("scatter_add_", "[[512,8],[],[1024,8],[1024,8]]", '["float","","long int","float"]', "[]", 2.0),
        ("index_add", "[[1],[],[1],[1],[]]", '["float","","long int","float",""]', "[]", 1.0),
        ("scatter_reduce", "[[4],[],[64],[64],[],[]]", '["float","","long int","float","",""]', "[]", 16.0),
        ("_index_put_impl_", "[[7,8],[],[70,8],[],[]]", '["half","","half","",""]', '["","","","True","True"]', 10.0),
        ("index_put_", "[[7,8],[],[70,8],[]]", '["half","","half",""]', '["","","","True"]', 10.0),
        ("index_put_", "[[7,8],[],[70,8],[]]", '["half","","half",""]', '["","","","False"]', None),
        ("index_put", "[[7,8],[],[],[]]", '["half","","half",""]', '["","","","True"]', None),
        ("embedding_dense_backward", "[[4,32,8],[4,32],[]]", '["float","long int",""]', '["","","16"]', 8.0),
        ("embedding_dense_backward", "[[4,32,8],[4,32],[]]", '["float","long int",""]', '["","",""]', None),
        ("index_add", "no shapes", "no types", "[]", None),
        ("mm", "[[16,256],[256,4]]", '["float","float"]', "[]", 0.0),
    ],
)
def test_rows_per_address_come_from_shapes(
    name: str, shapes: str, types: str, scalars: str, added: float | None
) -> None:
    work = recorded_work(f"aten::{name}", shapes, types, None, scalars)
    assert (work and work.per_address) == added


@pytest.mark.parametrize("number", [0, 7, -1, None])
def test_numbers_that_never_advance_record_nothing(number: int | None) -> None:
    """Every operator shows a number while gradients are on; only one that makes a node counts it on."""
    recorded = case("Inference that records gradients")
    ops = recorded[HOST_OPS].with_columns(sequence_number=pl.lit(number, pl.Int64))
    assert recorded_in_vain(replace(recorded, tables={**recorded.tables, HOST_OPS: ops})) == ()
