"""Laws of larger batches: an item never takes longer, a step never less; what is of weights or leaves room stays."""

import numpy as np
import pytest
from tests.diagnosis.test_plan import climbed, joint

from timesink.diagnosis.plan import WORTH, batch
from timesink.measures.kernels.facts import kernel_facts, multiprocessors
from timesink.model.tables import DEVICE_OPS
from timesink.records import replace
from timesink.whatif import Case
from timesink.whatif.pricing import _host_only_ns

KEY = (0, 0)


def test_each_larger_batch_takes_longer_and_an_item_less() -> None:
    made = climbed()
    last, item_ms = made.rungs[-1].after_ms, made.rungs[-1].after_ms
    assert made.batches
    for one in made.batches:
        step, item = one.step, one.per_item
        assert (step.low or 0) <= step.value <= step.most <= one.factor * made.rungs[-1].after_ms + 1e-9
        assert step.value >= last
        assert item_ms - item.value >= WORTH.default * item_ms
        assert item.value == pytest.approx(step.value / one.factor)
        last, item_ms = step.value, item.value


@pytest.mark.parametrize("factor", [2, 8])
def test_kernels_grow_by_what_they_leave_idle(factor: int) -> None:
    """The longest kernels of each sort, worked out one by one."""
    trace = joint().trace
    change = batch._growing(trace, KEY)(factor)
    ops, count = trace[DEVICE_OPS], multiprocessors(trace)[KEY]
    cautious, expected, hopeful = (dict(zip(change.rows.tolist(), some, strict=True)) for some in change.grown)
    facts = kernel_facts(trace).on(KEY)
    for kernel in facts.sort("length", descending=True).head(60).iter_rows(named=True):
        row, length = kernel["row"], ops["end_ns"][kernel["row"]] - ops["start_ns"][kernel["row"]]
        if kernel["optimizer"]:
            assert cautious[row] == expected[row] == hopeful[row] == 1
            continue
        fill = min(kernel["blocks"] / count, 1)
        least_ns = min(1000, length)
        whole = (least_ns + (length - least_ns) * max(1, factor * fill)) / length
        assert expected[row] == pytest.approx((whole + hopeful[row]) / 2)
        assert cautious[row] == factor
        assert 1 <= hopeful[row] <= expected[row] <= factor


def test_a_replay_of_longer_kernels_keeps_the_host_and_adds_their_time() -> None:
    graph, change = joint().pricer.graph, batch._growing(joint().trace, KEY)(4)
    then = change.rewrite(graph, Case.CAUTIOUS)
    assert np.array_equal(then.network.edges.dst, graph.network.edges.dst)
    assert _host_only_ns(then, joint().pricer.anchors) == joint().pricer.host_ns
    assert then.replay().time_ns.max() > graph.replay().time_ns.max()


def test_a_program_that_waits_for_its_input_has_no_price_for_a_larger_batch() -> None:
    found, why = batch.larger_batches(joint(), (), joint().step_ms)
    assert found == ()
    assert "waits for batches" in why


def test_a_device_that_is_hardly_busy_says_nothing_of_larger_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    share = joint().pricer.busy_ns / joint().pricer.step_ns
    for limit, said in ((share * 1.01, True), (share * 0.99, False)):
        monkeypatch.setattr(batch, "BUSY", replace(batch.BUSY, default=limit))
        _, why = batch.larger_batches(joint(), ("loader_workers",), joint().step_ms)
        assert ("the GPU is busy for less than" in why) is said
