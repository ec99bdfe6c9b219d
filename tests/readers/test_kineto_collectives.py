"""Collectives: kernels, calls, and which kernel belongs to which call."""

import json
from pathlib import Path
from typing import Any

import pytest

from timesink.model.tables import COLLECTIVES
from timesink.readers import read
from timesink.readers.kineto.collectives import collective_kind

SAID = {"Collective name": "all_gather_into_tensor", "dtype": "BFloat16", "In msg nelems": 10, "Out msg nelems": 40}
SAID |= {"Group size": 4, "Process Group Name": "3", "Process Group Ranks": "[0, 1, 2, 3]", "Seq": 12}
COLUMNS = ("kind", "start_ns", "device", "stream", "group", "group_size", "sequence", "in_bytes", "out_bytes")


def event(cat: str, name: str, ts: int, dur: int, **args: Any) -> dict[str, Any]:
    where = {"pid": 0, "tid": 9} if cat == "kernel" else {"pid": 7, "tid": 8}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args, **where}


def kernel(ts: int, correlation: int, **args: Any) -> dict[str, Any]:
    name = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return event("kernel", name, ts, 5, device=2, stream=9, correlation=correlation, **args)


def rows(tmp_path: Path, *events: dict[str, Any]) -> list[tuple[Any, ...]]:
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    return read(tmp_path / "trace.json", cache=False)[COLLECTIVES].select(COLUMNS).rows()


WHOLE = ("allgather", 50_000, 2, 9, "3", 4, 12, 20, 80)


def test_a_kernel_that_carries_its_arguments_needs_no_call(tmp_path: Path) -> None:
    assert rows(tmp_path, kernel(50, 1, **SAID)) == [WHOLE]


def test_a_call_and_its_kernel_are_one_collective(tmp_path: Path) -> None:
    call = event("cpu_op", "record_param_comms", 10, 20, **{"External id": 33, **SAID})
    by_id = kernel(50, 1, **{"External id": 33})
    by_launch = kernel(50, 1, **{"External id": 34})
    launch = event("cuda_runtime", "cudaLaunchKernelExC", 15, 2, correlation=1)
    assert rows(tmp_path, call, by_id) == [WHOLE]
    assert rows(tmp_path, call, by_launch, launch) == [WHOLE]
    assert rows(tmp_path, call, kernel(50, 1, **{"External id": 33, **SAID})) == [WHOLE]


def test_a_launch_outside_the_call_is_not_of_the_call(tmp_path: Path) -> None:
    call = event("cpu_op", "record_param_comms", 10, 5, **{"External id": 33, **SAID})
    launch = event("cuda_runtime", "cudaLaunchKernelExC", 15, 2, correlation=1)
    found = rows(tmp_path, call, kernel(50, 1), launch)
    assert found == [
        ("allgather", 10_000, None, None, "3", 4, 12, 20, 80),
        ("allgather", 50_000, 2, 9, None, None, None, None, None),
    ]


def test_a_send_and_a_receive_name_their_peer(tmp_path: Path) -> None:
    said = {**SAID, "Collective name": "send", "Dst Rank": 3}
    got = {**SAID, "Collective name": "recv", "Src Rank": 2}
    events = [kernel(50, 1, **said), kernel(60, 2, **got), kernel(70, 3, **SAID)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    found = read(tmp_path / "trace.json", cache=False)[COLLECTIVES]
    assert found.select("kind", "peer").rows() == [("send", 3), ("recv", 2), ("allgather", None)]


def test_the_call_that_closes_a_batch_does_not_name_its_kernel(tmp_path: Path) -> None:
    call = event(
        "cpu_op", "record_param_comms", 10, 20, **{"External id": 33, **SAID, "Collective name": "endCoalescing"}
    )
    found = rows(tmp_path, call, kernel(50, 1, **{"External id": 33}))
    assert [row[0] for row in found] == ["allgather"]


def test_calls_that_move_nothing_are_no_collectives(tmp_path: Path) -> None:
    wait = event("cpu_op", "record_param_comms", 10, 5, **{**SAID, "Collective name": "wait"})
    other = event("kernel", "gemm", 20, 5, device=2, stream=7)
    assert rows(tmp_path, wait, other) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", "allreduce"),
        ("_allgather_base", "allgather"),
        ("_reduce_scatter_base", "reducescatter"),
        ("all_to_allv", "alltoall"),
        ("reduce", "reduce"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "sendrecv"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reducescatter"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", "reduce"),
        ("ncclDevKernel_Broadcast_RING_LL(x)", "broadcast"),
        ("ncclKernel_AllReduce", "allreduce"),
    ],
)
def test_kinds_of_collectives(name: str, kind: str) -> None:
    assert collective_kind(name) == kind


def test_the_eight_ranks_of_dlrm_hold_five_exchanges_and_three_reductions(shared_data: Path) -> None:
    first = {}
    for file in sorted((shared_data / "public" / "kineto" / "dlrm_8rank").glob("worker*")):
        trace = read(file, cache=False)
        found = trace[COLLECTIVES]
        assert found["kind"].cast(str).sort().to_list() == ["allreduce"] * 3 + ["sendrecv"] * 5
        exchange = found.filter(found["kind"] == "sendrecv").row(0, named=True)
        first[exchange["rank"]] = (exchange["end_ns"] - exchange["start_ns"]) // 1000
    assert [first[rank] for rank in range(8)] == [2146, 7635, 518, 6132, 4882, 4679, 514, 10]
