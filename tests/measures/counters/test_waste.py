"""The waste of a kernel, worked by hand with every coefficient other than zero."""

import pytest
from tests.measures.counters.kernel_counter_strategies import kernel

from timesink.measures.counters import ELAPSED, KernelCounters
from timesink.measures.counters.resources import Resource
from timesink.measures.counters.waste import Cause, access_of, active_lanes, executing_lanes, least_passes, waste_of
from timesink.records import replace

# 100 global sectors of which 40 would do, 20 requests; 10 atomics with 24 sectors; shared, local and all passes.
WHOLE = {
    "memory_l2_theoretical_sectors_global": 100,
    "memory_l2_theoretical_sectors_global_ideal": 40,
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 12,
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": 8,
    "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum": 3,
    "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum": 2,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum": 20,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum": 12,
    "memory_l1_wavefronts_shared": 60,
    "memory_l1_wavefronts_shared_ideal": 20,
    "smsp__inst_executed_op_shared_atom.sum": 3,
    "smsp__sass_inst_executed_op_shared.sum": 12,
    "l1tex__t_output_wavefronts_pipe_lsu_mem_local_op_ld.sum": 10,
    "l1tex__t_output_wavefronts_pipe_lsu_mem_local_op_st.sum": 6,
    "l1tex__data_pipe_lsu_wavefronts": 40,  # per cent of cycles
    "sm__inst_executed_pipe_lsu": 5,
    "sm__inst_executed": 25,
    "l1tex__cycles_elapsed.avg": 100,
    "launch__sm_count": 5,
    "smsp__inst_executed.sum": 50,
    "smsp__sass_inst_executed_op_local_ld.sum": 3,
    "smsp__sass_inst_executed_op_local_st.sum": 2,
    "smsp__thread_inst_executed_per_inst_executed.ratio": 24,
    "l1tex__m_xbar2l1tex_read_bytes.sum": 50 * 32,
    "l1tex__m_l1tex2xbar_write_bytes.sum": 30 * 32,
    "dram__bytes_read.sum": 40 * 32,
    "dram__bytes_write.sum": 10 * 32,
    "lts__t_sectors_srcunit_tex_op_atom.sum": 14,
    "lts__t_sectors_srcunit_tex_op_red.sum": 6,
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld_lookup_miss.sum": 5,
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": 3,
    "memory_l2_theoretical_sectors_local": 70,
    "smsp__inst_executed_op_ldgsts.sum": 4,
    "smsp__sass_inst_executed_op_tma_ld.sum": 3,
    "smsp__sass_inst_executed_op_global_ld.sum": 6,
}


def made(without: tuple[str, ...] = (), **changed: float) -> KernelCounters:
    """`WHOLE` with some counters changed, by the end of their names, and some left out."""
    values = {key: changed.get(key.replace(".", "_"), value) for key, value in WHOLE.items()}
    return kernel({key: value for key, value in values.items() if not key.startswith(without)} if without else values)


def test_every_share_by_hand() -> None:
    """Passes are 0.4 x 100 cycles x 5 SMs = 200, and 0.4 / (0.05 x 1) = 8 a request.

    Atomics touch (32 - 5 x 4) / (100 - 40) = 0.2 of the excess sectors, so that 0.8 of it is of loads and stores; of
    the passes (200 - 60 - 16 - max(40 / 4, 12 + 8)) / 200 = 0.52 are in excess. L2 moved 80 sectors, DRAM 50.
    """
    waste = waste_of(made())
    assert waste.access.wavefronts == pytest.approx(200)
    assert waste.access.wavefronts_per_request == pytest.approx(8)
    assert waste.access.excess_ratio == pytest.approx(0.6)
    assert waste.access.other_wavefronts == 76
    assert waste.of(Cause.UNCOALESCED, Resource.L1) == pytest.approx(0.8 * 0.52)
    assert waste.of(Cause.UNCOALESCED, Resource.L2) == pytest.approx(0.8 * (1 - 40 / 80))
    assert waste.of(Cause.UNCOALESCED, Resource.DRAM) == pytest.approx(0.8 * (1 - 40 / 50))
    assert waste.of(Cause.BANK_CONFLICTS, Resource.L1) == pytest.approx(40 / 200 * 0.75)
    assert waste.of(Cause.ATOMICS, Resource.L1) == pytest.approx(40 / 200 * 0.25)
    assert waste.of(Cause.ATOMICS, Resource.L2) == pytest.approx(20 / 80)
    assert waste.of(Cause.REGISTER_SPILLS, Resource.L1) == pytest.approx(16 / 200)
    assert waste.of(Cause.REGISTER_SPILLS, Resource.L2) == pytest.approx(8 / 80)
    assert waste.of(Cause.REGISTER_SPILLS, Resource.DRAM) == pytest.approx(8 / 80)
    assert waste.of(Cause.REGISTER_SPILLS, Resource.ISSUE) == pytest.approx(5 / 50)
    assert waste.of(Cause.DIVERGENCE, Resource.ISSUE) == pytest.approx(1 - 24 / 32)
    assert waste.of(Cause.DIVERGENCE, Resource.L1) == pytest.approx(0.25 / 8)
    assert waste.of(Cause.DIVERGENCE, Resource.TENSOR) == 0
    assert waste.atomic_requests == pytest.approx(5 / 25)
    assert waste.memory_instructions == pytest.approx(0.05 / (0.25 * 4))
    assert waste.local_instructions == pytest.approx(5 / 50)
    assert waste.active_lanes == 24
    assert waste.copies_ahead
    assert least_passes(waste.access) == pytest.approx((76 + 40 / 4) / 200)


def test_chips_with_half_of_the_load_store_lanes() -> None:
    waste = waste_of(replace(made(), compute_capability=(8, 6)))
    assert waste.access.wavefronts_per_request == pytest.approx(16)
    assert waste.memory_instructions == pytest.approx(0.025)
    unknown = waste_of(replace(made(), compute_capability=None))
    assert unknown.memory_instructions == pytest.approx(0.025)


def test_sectors_by_the_bytes_that_are_used_where_they_were_not_counted() -> None:
    """20 sectors loaded of which 8 of 32 bytes are used, 10 stored whole: 5 + 10 of 30 would do."""
    used = {
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 20.0, "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 10.0,
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 8.0,
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": 40.0,
    }  # fmt: skip
    access = access_of(kernel(used))
    assert (access.sectors, access.ideal_sectors) == (30, 15)
    assert (access.used_of_loads, access.used_of_stores) == (0.25, 1.0)
    assert access.excess_ratio == 0.5
    for missing in used:
        assert access_of(kernel({key: value for key, value in used.items() if key != missing})).sectors is None


@pytest.mark.parametrize("one", ["memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal"])
def test_one_count_of_sectors_without_the_other_is_none(one: str) -> None:
    access = access_of(kernel({one: 99}))
    assert (access.sectors, access.ideal_sectors, access.excess_ratio) == (None, None, None)
    assert replace(access, sectors=99.0).excess_ratio is None
    assert replace(access, sectors=0.0, ideal_sectors=0.0).excess_ratio is None


@pytest.mark.parametrize(
    ("op", "sectors", "used"), [("st", 5, 1.0), ("st", None, 1.0), ("ld", 0, 1.0), ("ld", 5, None), ("ld", None, None)]
)
def test_no_byte_of_a_sector_is_none_wasted_but_of_loads_that_touched_some(
    op: str, sectors: float | None, used: float | None
) -> None:
    """ncu writes 0 bytes a sector where it counted none: asynchronous copies are loads whose sectors alone it has."""
    counted = {f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio": 0.0}
    if sectors is not None:
        counted[f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum"] = sectors
    access = access_of(kernel(counted))
    assert (access.used_of_loads, access.used_of_stores) == ((used, None) if op == "ld" else (None, used))


def test_atomics_are_split_by_requests_where_their_sectors_were_not_counted() -> None:
    waste = waste_of(made(("l1tex__t_sectors_pipe_lsu_mem_global_op",)))
    assert waste.of(Cause.UNCOALESCED, Resource.L1) == pytest.approx((1 - 5 / 25) * 0.52)


@pytest.mark.parametrize(
    ("changed", "without", "l1", "l2", "dram"),
    [
        # the coalesced kernel's own requests take more passes than its sectors: (200 - 76 - 20) / 200; none measured
        ({"memory_l2_theoretical_sectors_global": 400}, (), 0.52, 0.5, 0.2),
        ({"memory_l2_theoretical_sectors_global_ideal": 100}, (), 0.0, 0.0, 0.0),
        ({"memory_l2_theoretical_sectors_global_ideal": 100, "dram__bytes_read_sum": 1e6}, (), 0.0, 0.0, 0.0),
        ({"memory_l2_theoretical_sectors_global_ideal": 2}, ("l1tex__t_req",), (200 - 76 - 0.5) / 200, 0.975, 0.96),
        ({"memory_l2_theoretical_sectors_global_ideal": 88}, (), (200 - 76 - 22) / 200, 0.0, 0.0),
        ({"dram__bytes_read_sum": 1e6}, (), 0.52, 0.5, 1 - 0.4 / 2),
        ({"dram__bytes_read_sum": 1e6, "l1tex__m_xbar2l1tex_read_bytes_sum": 1e6}, (), 0.52, 0.6, 0.8),
        ({}, ("l1tex__m_",), 0.52, 0.6, 0.2),
        ({}, ("l1tex__m_", "dram"), 0.52, 0.6, 0.0),
        ({}, ("l1tex__cycles",), 0.6, 0.5, 0.2),
    ],
)
def test_excess_of_each_level_by_hand(
    changed: dict[str, float], without: tuple[str, ...], l1: float, l2: float, dram: float
) -> None:
    """Without atomics; of DRAM's pairs of sectors half is excess for a lone one: at most 1 - (1 - 0.6) / 2."""
    atomics = tuple(
        f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}" for what in ("requests", "sectors") for op in ("a", "r")
    )
    shares = waste_of(made((*atomics, *without), **changed)).shares[Cause.UNCOALESCED]
    assert [shares[level] for level in (Resource.L1, Resource.L2, Resource.DRAM)] == pytest.approx([l1, l2, dram])


@pytest.mark.parametrize(("each", "shared", "waste"), [(16, 0, 0.75), (16, 1, None), (4, 0, None), (5, 0, 0.2)])
def test_passes_per_request_where_sectors_were_not_counted(each: float, shared: float, waste: float | None) -> None:
    """No coalesced request takes more than four passes; with shared memory a kernel's passes say nothing."""
    found = waste_of(
        kernel({
            "l1tex__data_pipe_lsu_wavefronts": 5 * each, "sm__inst_executed_pipe_lsu": 5,
            "launch__shared_mem_per_block_static": 0, "launch__shared_mem_per_block_dynamic": shared,
        })
    )  # fmt: skip
    assert found.shares[Cause.UNCOALESCED].get(Resource.L1) == (waste if waste is None else pytest.approx(waste))


@pytest.mark.parametrize(("sectors", "ideal"), [(0, 40), (100, 0), (0, 0)])
def test_passes_tell_the_waste_where_sectors_say_nothing(sectors: float, ideal: float) -> None:
    """Eight passes a request, of which a coalesced kernel takes four."""
    found = waste_of(
        kernel({
            "memory_l2_theoretical_sectors_global": sectors, "memory_l2_theoretical_sectors_global_ideal": ideal,
            "l1tex__data_pipe_lsu_wavefronts": 40, "sm__inst_executed_pipe_lsu": 5,
        })
    )  # fmt: skip
    assert found.shares[Cause.UNCOALESCED] == {Resource.L1: pytest.approx(0.5)}


def test_passes_without_conflicts_are_those_counted_less_the_conflicts() -> None:
    counted = {
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 50, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 30,
    }  # fmt: skip
    assert access_of(kernel(counted)).ideal_shared_wavefronts == 20
    assert access_of(kernel(counted | {"memory_l1_wavefronts_shared": 10})).ideal_shared_wavefronts == 0
    assert access_of(kernel({"memory_l1_wavefronts_shared": 10})).ideal_shared_wavefronts is None
    ideal_alone = access_of(kernel(counted | {"memory_l1_wavefronts_shared_ideal": 7}))
    assert (ideal_alone.shared_wavefronts, ideal_alone.ideal_shared_wavefronts) == (50, 20)


def test_what_was_counted_of_one_kind_of_memory_alone_is_all_there_is() -> None:
    """16 passes are for local memory; 300 of them are no more than all; of L2's 80 sectors none is atomic unless it was
    counted so; of 0.4 x 500 passes the 50 without conflicts of atomics' 3 of 12 instructions are three quarters."""
    assert access_of(made(("memory_l1_wavefronts_shared",))).other_wavefronts == 16
    crowded = made(l1tex__t_output_wavefronts_pipe_lsu_mem_local_op_ld_sum=300)
    assert waste_of(crowded).of(Cause.REGISTER_SPILLS, Resource.L1) == 1.0
    assert waste_of(made(("lts__t_sectors_srcunit",))).of(Cause.ATOMICS, Resource.L2) == 0.0


@pytest.mark.parametrize(("every", "of_atomics"), [(None, 40), (0, 40), (40, None)])
def test_conflicts_of_atomics_go_by_instructions_where_they_are_not_counted_apart(
    every: float | None, of_atomics: float | None
) -> None:
    """3 of 12 shared instructions are atomic: so many of the 40 of 200 passes."""
    conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
    counted = {f"{conflicts}.sum": every, f"{conflicts}_op_atom.sum": of_atomics}
    waste = waste_of(kernel(WHOLE | {key: value for key, value in counted.items() if value is not None}))
    assert waste.of(Cause.ATOMICS, Resource.L1) == pytest.approx(40 / 200 * 3 / 12)


@pytest.mark.parametrize(
    ("copies", "loads", "ahead"), [(1, None, True), (None, None, False), (7, 6, True), (6, 6, False), (5, 6, False)]
)
def test_copies_run_ahead_where_they_are_more_than_loads(
    copies: float | None, loads: float | None, ahead: bool
) -> None:
    counted = {"smsp__inst_executed_op_ldgsts.sum": copies, "smsp__sass_inst_executed_op_global_ld.sum": loads}
    assert waste_of(kernel({key: n for key, n in counted.items() if n is not None})).copies_ahead is ahead


@pytest.mark.parametrize(("requests", "every", "share"), [(5, 50, 0.025), (100, 10, 1.0), (40, 10, 1.0), (20, 10, 0.5)])
def test_load_store_instructions_of_all(requests: float, every: float, share: float) -> None:
    """Of one a cycle and of four a cycle: 5 % of one are 0.05, 50 % of four are 2."""
    waste = waste_of(kernel({"sm__inst_executed_pipe_lsu": requests, "sm__inst_executed": every}))
    assert waste.memory_instructions == pytest.approx(share)


def test_what_was_not_collected_is_no_waste() -> None:
    waste = waste_of(kernel({}))
    assert all(share == 0 for parts in waste.shares.values() for share in parts.values())
    assert (waste.access.excess_ratio, waste.access.wavefronts, waste.access.uses_shared) == (None, None, False)
    assert (waste.active_lanes, waste.memory_instructions, waste.copies_ahead) == (None, 0.0, False)
    assert least_passes(waste.access) == 0


def test_lanes_are_counted_where_no_ratio_says_them() -> None:
    assert active_lanes(kernel({"thread_inst_executed": 120, "inst_executed": 5})) == 24
    assert active_lanes(kernel({"thread_inst_executed": 120, "inst_executed": 0})) is None
    assert active_lanes(kernel({"inst_executed": 5})) is None
    newer = {"smsp__thread_inst_executed_pred_on_per_inst_executed.ratio": 16}
    both = {"thread_inst_executed_true": 90, "inst_executed": 5}
    assert [executing_lanes(kernel(counted)) for counted in (both, newer, newer | both)] == [18, 16, 16]
    older = {"thread_inst_executed": 120, "inst_executed": 5, "sass__inst_executed_local_loads": 1}
    waste = waste_of(kernel({**older, "sass__inst_executed_local_stores": 1}))
    assert waste.of(Cause.REGISTER_SPILLS, Resource.ISSUE) == pytest.approx(2 / 5)
    assert waste.access.local_wavefronts == 2


def test_atomic_sectors_by_their_parts_and_theoretical_spills() -> None:
    parts = {f"lts__t_sectors_srcunit_tex_op_{part}.sum": count for part, count in
             (("atom_dot_alu", 5), ("atom_dot_cas", 7), ("red", 0))}  # fmt: skip
    waste = waste_of(made(("lts__t_sectors", "l1tex__t_sectors_pipe_lsu_mem_local")))
    assert waste.of(Cause.REGISTER_SPILLS, Resource.L2) == pytest.approx(70 / 80)
    moved = {"l1tex__m_xbar2l1tex_read_bytes.sum": 48 * 32, "l1tex__m_l1tex2xbar_write_bytes.sum": 0}
    assert waste_of(kernel(parts | moved)).of(Cause.ATOMICS, Resource.L2) == pytest.approx(12 / 48)


STALLED = {
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": 8.0,
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": 1.0,
    "smsp__thread_inst_executed_per_inst_executed.ratio": 32,
    "smsp__inst_executed.sum": 100,
    "sm__inst_executed" + ELAPSED: 25.0,
    "sm__inst_executed_pipe_lsu" + ELAPSED: 60.0,
}


@pytest.mark.parametrize(
    ("executing", "seen", "l1", "issue"),
    [(16, 6, 0.5 / 0.6, 0.5), (16, 18, 0.7, 0.5), (24, 12, 0.25 / 0.6, 0.25), (16, 60, 0.0, 0.5), (32, 12, 0.0, 0.0)],
)
def test_instructions_that_no_lane_executes_by_hand(executing: float, seen: int, l1: float, issue: float) -> None:
    """0.6 of 100 instructions are load-store: 60, of which `seen` access memory; lanes off are 1 - executing / 32."""
    accesses = {f"smsp__sass_inst_executed_op_{kind}.sum": seen / 6 * share for kind, share in
                (("shared", 1), ("global_ld", 2), ("global_st", 1), ("local_ld", 2))}  # fmt: skip
    predicated = {"smsp__thread_inst_executed_pred_on_per_inst_executed.ratio": executing}
    waste = waste_of(kernel(STALLED | accesses | predicated))
    assert waste.of(Cause.LATENCY, Resource.L1) == pytest.approx(l1)
    assert waste.of(Cause.LATENCY, Resource.ISSUE) == pytest.approx(issue)
    other = {"smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": 9.0}
    assert not waste_of(kernel(STALLED | accesses | predicated | other)).shares[Cause.LATENCY]
    assert not waste_of(kernel(STALLED | accesses)).shares[Cause.LATENCY]


def test_no_instruction_is_empty_where_more_lanes_execute_than_are_counted_or_none_was_counted() -> None:
    every = STALLED | {"smsp__sass_inst_executed_op_shared.sum": 5}
    lanes = {
        "smsp__thread_inst_executed_per_inst_executed.ratio": 24,
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio": 32,
    }
    assert set(waste_of(kernel(every | lanes)).shares[Cause.LATENCY].values()) == {0.0}
    uncounted = {key: value for key, value in every.items() if key != "smsp__inst_executed.sum"}
    half = {"smsp__thread_inst_executed_pred_on_per_inst_executed.ratio": 16}
    assert waste_of(kernel(uncounted | half)).of(Cause.LATENCY, Resource.L1) == 0.0


def test_a_loop_that_compares_and_swaps_conflicts_in_its_swaps_alone() -> None:
    """Half of the shared accesses are loads without a conflict: 40 of 200 passes are conflicts, all of atomics."""
    conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
    counted = kernel({**WHOLE, f"{conflicts}.sum": 40, f"{conflicts}_op_atom.sum": 40})
    assert waste_of(counted).of(Cause.ATOMICS, Resource.L1) == pytest.approx(40 / 200)
    assert waste_of(counted).of(Cause.BANK_CONFLICTS, Resource.L1) == 0


EVERY = WHOLE | STALLED | {
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio": 14,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 40,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum": 10,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 8,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": 48,
}  # fmt: skip
COUNTED = (
    "smsp__inst_executed_op_shared_atom.sum",
    "smsp__sass_inst_executed_op_shared.sum",
    "smsp__sass_inst_executed_op_global_ld.sum",
    "smsp__inst_executed_op_ldgsts.sum",
    "memory_l1_wavefronts_shared",
    "smsp__inst_executed.sum",
)


@pytest.mark.parametrize("scaled", [(), ("memory_l2_theoretical_sectors_global_ideal",), ("smsp__thread_inst",)])
def test_whatever_was_not_collected_shares_are_shares(scaled: tuple[str, ...]) -> None:
    """One or two counters are missing; ideal sectors may exceed those touched, and lanes those of a warp."""
    values = {key: 7 * value if key.startswith(scaled or ("-",)) else value for key, value in EVERY.items()}
    names = [*values]
    for at, first in enumerate(names):
        for second in names[at : at + 5]:
            waste = waste_of(kernel({key: value for key, value in values.items() if key not in (first, second)}))
            shares = [share for parts in waste.shares.values() for share in parts.values()]
            shares += [waste.access.excess_ratio or 0.0, waste.atomic_requests, waste.memory_instructions]
            assert all(0 <= share <= 1 for share in [*shares, waste.access.shared_atomic_share])
            assert waste.access.other_wavefronts >= 0 and 0 <= least_passes(waste.access) <= 1


@pytest.mark.parametrize("counter", COUNTED)
def test_a_count_that_is_missing_is_a_count_of_none(counter: str) -> None:
    missing = waste_of(kernel({key: value for key, value in EVERY.items() if key != counter}))
    none = waste_of(kernel(EVERY | {counter: 0}))
    assert missing.copies_ahead == none.copies_ahead
    assert missing.access.other_wavefronts == none.access.other_wavefronts
    assert missing.access.shared_atomic_share == none.access.shared_atomic_share
    assert {c: dict(parts) for c, parts in missing.shares.items()} == {c: dict(p) for c, p in none.shares.items()}


@pytest.mark.parametrize(
    ("pipes", "of_instructions", "product"),
    [
        ({}, 0.05, False), ({"fma": 30.0}, 0.05, False), ({"tensor": 30.0}, 1.0, True),
        ({"tensor": 0.5}, 0.05, False), ({"tensor": 0.0}, 0.05, False), ({"fma": 30.0, "tensor": 20.0}, 0.05, True),
        ({"fma": 20.0, "tensor": 30.0}, 1.0, True), ({"alu": 30.0, "tensor": 0.0, "fma": 5.0}, 0.05, False),
    ],
)  # fmt: skip
def test_larger_tiles_take_fewer_instructions_of_every_kind_where_tensor_cores_do_most(
    pipes: dict[str, float], of_instructions: float, product: bool
) -> None:
    """Else only load-store instructions are of memory: 5 % of their peak of 1 in 4 issues, of 25 % of all issues. That
    the pipe is busy for less than 5 % of the time of a kernel of no such name is no product."""
    busy = {f"sm__pipe_{pipe}_cycles_active": share for pipe, share in pipes.items()}
    waste = waste_of(kernel(WHOLE | busy | {"l1tex__t_requests_pipe_lsu": 0}))
    assert waste.memory_instructions == pytest.approx(of_instructions)
    assert waste.is_product is product


def test_operations_of_tensor_cores_alone_say_nothing_of_what_is_busiest() -> None:
    counted = {"sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum": 1e9}
    waste = waste_of(kernel(counted | {"smsp__inst_executed.sum": 50}))
    assert (
        waste.is_product
        and waste.memory_instructions == waste_of(kernel({"smsp__inst_executed.sum": 50})).memory_instructions
    )


@pytest.mark.parametrize(
    ("block", "filled"), [((64, 1, 1), 1.0), ((8, 2, 3), 0.75), ((1, 1, 1), 1 / 32), ((0, 0, 0), 1.0)]
)
def test_lanes_that_the_threads_of_a_block_fill(block: tuple[int, int, int], filled: float) -> None:
    assert waste_of(replace(made(), block=block)).filled_lanes == pytest.approx(filled)


@pytest.mark.parametrize(
    ("counted", "sectors"),
    [
        ({"write_sectors_mem_global_op_atom": 9, "read_sectors_mem_global_op_atom": 8}, 20),
        ({"write_sectors_mem_global_op_atom": 9, "read_sectors_mem_global_op_atom": 14}, 23),
        ({"write_sectors_mem_global_op_red": 21}, 21), ({"write_sectors_mem_global_op_red": 19}, 20),
        ({"write_sectors_mem_global_op_atom": 9, "read_sectors_mem_global_op_atom": 14,
          "write_sectors_mem_global_op_red": 4}, 27),
    ],
)  # fmt: skip
def test_atomic_sectors_are_counted_both_ways_where_that_is_more(counted: dict[str, int], sectors: int) -> None:
    """Of 80 sectors of L2; 14 and 6 are counted once."""
    ways = {"write": "l1tex2xbar_write", "read": "xbar2l1tex_read"}
    both = {
        f"l1tex__m_{ways[way]}_{rest}.sum": n for key, n in counted.items() for way, _, rest in [key.partition("_")]
    }
    assert waste_of(kernel(WHOLE | both)).of(Cause.ATOMICS, Resource.L2) == pytest.approx(sectors / 80)


def test_passes_for_global_memory_by_hand() -> None:
    """200 passes, 60 of them for shared and 16 for local memory. Without atomics no more of the other 124 are for
    global memory than it has sectors, 100."""
    atomics = tuple(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}" for op in ("atom", "red"))
    assert waste_of(made()).global_share == pytest.approx(124 / 200)
    assert waste_of(made(atomics)).global_share == pytest.approx(100 / 200)
    assert waste_of(made((*atomics, "memory_l2_theoretical_sectors_global"))).global_share == pytest.approx(124 / 200)
    crowded = made(atomics, memory_l1_wavefronts_shared=190)
    assert waste_of(crowded).global_share == 0.0
    assert waste_of(made(("l1tex__data_pipe_lsu_wavefronts",))).global_share is None
