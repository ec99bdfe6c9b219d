"""Which send is which receive, what each waited for, and what messages say of clocks."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.jobs_by_hand import EPOCH_NS, Drift, calls_frame, job_of, on_clocks, rank_trace

from timesink.measures.communication import collectives
from timesink.measures.communication.clock_bounds import UNKNOWN, Visits, offset_bounds
from timesink.measures.communication.clocks import align_clocks
from timesink.measures.communication.matching import match_collectives, match_messages
from timesink.measures.communication.waits import channels, waits_of
from timesink.measures.ranks.job import Job, job
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.readers import read

HOST = dict.fromkeys(range(4), "node")


def message(
    sender: int, receiver: int, sent_us: int, begun_us: int, over_us: int, size: int = 8
) -> list[dict[str, object]]:
    """Both ends of one message; both are over at the same instant."""
    plain = {"group": "pp", "group_size": 4, "bytes": size, "holds": False}
    ends = (("send", sender, receiver, sent_us), ("recv", receiver, sender, begun_us))
    return [
        {**plain, "kind": kind, "rank": rank, "peer": peer, "start_ns": EPOCH_NS + 1_000 * start,
         "end_ns": EPOCH_NS + 1_000 * over_us}
        for kind, rank, peer, start in ends
    ]  # fmt: skip


def ends_of(found: pl.DataFrame) -> list[list[tuple[int, str, int]]]:
    """The ends of each pair: rank, kind and end in microseconds."""
    rows = found.select("instance", "rank", "kind", (pl.col("end_ns") - EPOCH_NS) // 1_000).rows()
    return [[row[1:] for row in rows if row[0] == at] for at in sorted({row[0] for row in rows})]


def test_each_send_is_the_receive_of_its_peer_whoever_else_sends_between() -> None:
    rows = [
        *message(0, 1, 0, 0, 10),
        *message(1, 2, 12, 12, 20),
        *message(0, 1, 22, 22, 30),
        *message(1, 0, 32, 32, 40),
    ]
    found = match_messages(calls_frame(rows))
    assert ends_of(found.calls) == [
        [(0, "send", 10), (1, "recv", 10)],
        [(1, "send", 20), (2, "recv", 20)],
        [(0, "send", 30), (1, "recv", 30)],
        [(0, "recv", 40), (1, "send", 40)],
    ]
    assert (found.call_count, found.unmatched_count) == (8, 0)


@pytest.mark.parametrize(
    ("late_us", "beside", "exposed_us"),
    [(0, 0, 30), (300, 0, 30), (9_000, 0, 30), (300, 1, 60), (300, 2, 90)],
)
def test_what_a_small_message_waits_for_its_other_end_is_no_transfer(
    late_us: int, beside: int, exposed_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage of a pipeline stands in each receive until its sender comes; of the messages that follow none waits."""
    rows = message(0, 1, late_us, 0, late_us + 30)
    for at in range(beside):
        rows += message(0, 1, late_us + 100 * (at + 1), late_us + 100 * (at + 1), late_us + 100 * (at + 1) + 30)
    held = calls_frame([{**row, "holds": True} for row in rows])
    monkeypatch.setattr(collectives, "collective_waits", lambda _: waits_of(job_of(held, HOST)))
    found = collectives.transfers(Trace("test", {}))
    taken = found.group_by("rank").agg((pl.col("end_ns") - pl.col("start_ns")).sum()).sort("rank")
    assert taken.rows() == [(0, 1_000 * exposed_us), (1, 1_000 * exposed_us)]


def test_a_message_whose_other_end_was_not_captured_is_stated() -> None:
    rows = [*message(0, 1, 0, 0, 10, size=64), *message(0, 1, 12, 12, 20, size=8), *message(1, 3, 22, 22, 30)]
    kept = [row for row in rows if not (row["rank"] == 1 and row["bytes"] == 64) and row["rank"] != 3]
    found = match_messages(calls_frame(kept))
    assert ends_of(found.calls) == [[(0, "send", 20), (1, "recv", 20)]]
    assert (found.call_count, found.unmatched_count) == (4, 2)
    assert found.unmatched_ratio == 0.5


def test_kernels_without_a_label_are_paired_between_two_ranks_and_not_among_more() -> None:
    mute = {"kind": "sendrecv", "labelled": False, "group": None, "peer": None, "bytes": None}
    two = [{**row, **mute} for row in [*message(0, 1, 0, 0, 10), *message(0, 1, 12, 12, 20)]]
    found = match_messages(calls_frame(two))
    assert [(len(pair), {row[2] for row in pair}) for pair in ends_of(found.calls)] == [(2, {10}), (2, {20})]
    assert not found.calls["rigorous"].any()  # who sends is not known
    more = [*two, {**message(1, 2, 22, 22, 30)[1], **mute}, {**message(1, 2, 22, 22, 30)[0], **mute}]
    assert (match_messages(calls_frame(more)).calls.height, match_messages(calls_frame(more)).unmatched_count) == (0, 6)


def test_a_receiver_waits_for_its_sender_and_a_sender_for_its_receiver() -> None:
    """The first receive stands 30 us before its sender comes, the second send 5 us; then 10 us of transfer each."""
    rows = [*message(0, 1, 30, 0, 40, size=1000), *message(0, 1, 50, 55, 65, size=1000)]
    waits = waits_of(job_of(calls_frame(rows), HOST))
    assert waits.pairs.select("rank", "wait_ns", "transfer_ns").rows() == [
        (0, 0, 10_000), (1, 30_000, 10_000), (0, 5_000, 10_000), (1, 0, 10_000),
    ]  # fmt: skip
    line = channels(waits).row(0, named=True)
    assert (line["sender"], line["receiver"], line["count"], line["wait_ns"]) == (0, 1, 2, 35_000)
    assert (line["transfer_ns"], line["gb_per_s"]) == (10_000, 0.1)


def test_a_send_that_is_over_before_its_receiver_comes_waited_for_nobody() -> None:
    send, receive = message(0, 1, 0, 20, 25)
    send["end_ns"] = EPOCH_NS + 4_000
    pairs = waits_of(job_of(calls_frame([send, receive]), HOST)).pairs
    assert pairs.select("rank", "wait_ns", "transfer_ns").rows() == [(0, 0, 4_000), (1, 0, 5_000)]


def test_messages_both_ways_limit_a_clock_and_one_way_only_on_one_side() -> None:
    """Rank 1 receives from 100 to 200 us what is sent at 100, and sends at 300 what is received by 400."""
    there, back = message(0, 1, 100, 100, 200), message(1, 0, 300, 300, 400)
    shown = on_clocks(calls_frame([*there, *back]), {1: Drift(offset_ns=7_000_000)})
    clock = align_clocks(match_collectives(shown).calls, job_of(shown).members, match_messages(shown).calls).clocks[1]
    assert clock.error_ns is not None
    assert abs(clock.offset_ns - 7_000_000) <= clock.error_ns
    assert clock.error_ns <= 100_000 + 500e-6 * 300_000 + 1
    one_way = on_clocks(calls_frame(there), {1: Drift(offset_ns=7_000_000)})
    clocks = align_clocks(match_collectives(one_way).calls, job_of(one_way).members, match_messages(one_way).calls)
    assert clocks.clocks[1].error_ns is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400), st.integers(0, 400)), min_size=1, max_size=8),
       st.integers(-(10**9), 10**9))  # fmt: skip
def test_no_true_offset_lies_outside_the_limits_of_messages(sent: list[tuple[bool, int, int]], offset: int) -> None:
    """Messages either way between two clocks, each received some time after it was sent."""
    rows = []
    for at, (forth, late, took) in enumerate(sent):
        begin = 10_000 * at
        sender, receiver = (0, 1) if forth else (1, 0)
        rows.append((sender, at, begin, begin + took, True, False))
        rows.append((receiver, at, begin + late - 200, begin + took, False, True))
    clock, instance, start, end, holds, held = (np.array(column) for column in zip(*rows, strict=True))
    moved = np.where(clock == 1, offset, 0)
    low, high = offset_bounds(Visits(clock, instance, start + moved, end + moved, holds, held), 0.0)
    mine = clock == 1
    assert (low[mine] <= offset).all()
    assert (high[mine] >= offset).all()
    assert (high[mine].max() < UNKNOWN) == any(forth for forth, _, _ in sent)
    assert (low[mine].min() > -UNKNOWN) == any(not forth for forth, _, _ in sent)


def altered(trace: Trace, **columns: object) -> Trace:
    """The trace with something else in place of its collectives."""
    ops = trace[DEVICE_OPS]
    there = pl.col("stream") == 20
    changed = ops.with_columns(
        pl.when(there).then(pl.lit(value)).otherwise(pl.col(name).cast(pl.String)).cast(ops.schema[name]).alias(name)
        for name, value in columns.items()
    )
    return Trace(trace.source, {**trace.tables, DEVICE_OPS: changed}, trace.notes)


@pytest.mark.parametrize("name", ["void vllm::cross_device_reduce_1stage<float>(x)", "one_shot_lamport_kernel"])
def test_custom_all_reduce_kernels_are_collectives_matched_by_order(name: str) -> None:
    found = match_collectives(Job.merged(job(altered(rank_trace(rank), name=name)) for rank in (0, 1)).calls)
    assert (found.calls.height, found.by_order_count, found.unmatched_ratio) == (8, 8, 0.0)
    assert set(found.calls["kind"]) == {"allreduce"}


def test_copies_between_gpus_are_summed_up_and_match_nothing() -> None:
    """Four copies of 3 us a rank: another GPU's engine takes no part, so there is no counterpart to look for."""
    copied = job(altered(rank_trace(0), name="Memcpy PtoP", kind="copy", copy_kind="p2p"))
    assert copied.members.select("peer_copy_ns", "peer_copy_bytes").row(0) == (12_000, 0)
    assert (copied.calls.height, match_collectives(copied.calls).call_count) == (0, 0)


def batched(rank: int, begin_us: int) -> str:
    """A rank that sends right and receives from the left in one batch: two calls, then one kernel without a label."""
    said = {"dtype": "Float", "In msg nelems": 250, "Out msg nelems": 250, "Group size": 3, "Process Group Name": "0"}
    host = {"ph": "X", "pid": 7, "tid": 8}
    calls = [
        {**host, "cat": "cpu_op", "name": "record_param_comms", "ts": begin_us + at, "dur": 2,
         "args": {"External id": 10 + at, "Collective name": kind, word: (rank + step) % 3, **said}}
        for at, (kind, word, step) in enumerate((("send", "Dst Rank", 1), ("recv", "Src Rank", 2)))
    ]  # fmt: skip
    launch = {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "ts": begin_us + 5, "dur": 2}
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv(x)", "ts": begin_us + 10, "pid": 0, "tid": 9}
    where = {"device": 0, "stream": 9, "correlation": 1, "External id": 99}
    events = [*calls, {**launch, "args": {"correlation": 1}}, {**kernel, "dur": 100 - begin_us, "args": where}]
    return json.dumps({"distributedInfo": {"rank": rank, "world_size": 3}, "host_name": "a", "traceEvents": events})


def test_a_batch_is_told_into_its_messages(tmp_path: Path) -> None:
    """Three ranks in a ring come at 10, 20 and 40 us and leave at 110: each message waits for the later of its two."""
    for rank, begin_us in enumerate((0, 10, 30)):
        (tmp_path / f"rank{rank}.json").write_text(batched(rank, begin_us))
    waits = waits_of(job(read([tmp_path], cache=False)))
    assert (waits.paired.call_count, waits.paired.unmatched_count) == (6, 0)
    assert waits.pairs.select("kind", "rank", "peer", "wait_ns", "transfer_ns").sort("kind", "rank").rows() == [
        ("recv", 0, 2, 30_000, 70_000), ("recv", 1, 0, 0, 90_000), ("recv", 2, 1, 0, 70_000),
        ("send", 0, 1, 10_000, 90_000), ("send", 1, 2, 20_000, 70_000), ("send", 2, 0, 0, 70_000),
    ]  # fmt: skip
    assert channels(waits).select("sender", "receiver", "bytes").sort("sender").rows() == [
        (0, 1, 1000), (1, 2, 1000), (2, 0, 1000),
    ]  # fmt: skip
