"""Kernels with chosen or with any counters."""

from collections.abc import Mapping

from hypothesis import strategies as st

from timesink.measures.counters import ELAPSED, KernelCounters

LEAVES = (
    "dram__cycles_active",
    "lts__t_sectors",
    "lts__t_tag_requests",
    "lts__xbar2lts_cycles_active",
    "l1tex__data_pipe_lsu_wavefronts",
    "l1tex__lsuin_requests",
    "sm__inst_executed",
    "sm__inst_executed_pipe_lsu",
    "sm__pipe_fma_cycles_active",
    "sm__pipe_alu_cycles_active",
    "sm__pipe_tensor_cycles_active",
    "sm__inst_executed_pipe_xu",
)
COUNTS = (
    "memory_l2_theoretical_sectors_global",
    "memory_l2_theoretical_sectors_global_ideal",
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
    "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1tex__m_l1tex2xbar_write_bytes.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "l1tex__cycles_elapsed.avg",
    "launch__sm_count",
    "smsp__inst_executed.sum",
    "smsp__sass_inst_executed_op_local_ld.sum",
    "smsp__sass_inst_executed_op_local_st.sum",
    "smsp__inst_executed_op_shared_atom.sum",
    "smsp__sass_inst_executed_op_shared.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "lts__t_sectors_srcunit_tex_op_red.sum",
    "sm__cycles_active.avg",
    "sm__cycles_elapsed.max",
)
STALLS = ("long_scoreboard", "barrier", "wait", "mio_throttle", "lg_throttle", "selected", "not_selected")


def kernel(values: Mapping[str, float], *, name: str = "k", duration_ns: float | None = 1e5) -> KernelCounters:
    """A launch of `name` with these counters; utilisations of units may be written without their suffix."""
    whole = {key + ELAPSED if key in LEAVES else key: float(value) for key, value in values.items()}
    return KernelCounters(
        rank=0,
        profile=0,
        name=f"void {name}(float *)",
        function=name,
        gpu="NVIDIA Test GPU",
        compute_capability=(9, 0),
        grid=(1, 1, 1),
        block=(32, 1, 1),
        duration_ns=duration_ns,
        values=whole,
        texts={},
        failed=frozenset(),
    )


@st.composite
def kernels(draw: st.DrawFn) -> KernelCounters:
    """Any counters, as far as they may be: some missing, some zero, none consistent with any other."""
    busy = draw(st.dictionaries(st.sampled_from(LEAVES), st.floats(0, 100), min_size=1))
    counts = draw(st.dictionaries(st.sampled_from(COUNTS), st.one_of(st.just(0.0), st.floats(1, 1e12))))
    stalls = draw(st.dictionaries(st.sampled_from(STALLS), st.floats(0, 50)))
    values = {**busy, **counts}
    values |= {f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio": v for name, v in stalls.items()}
    if draw(st.booleans()):
        values["smsp__thread_inst_executed_per_inst_executed.ratio"] = draw(st.floats(0, 32))
    if draw(st.booleans()):
        values["sm__warps_active.avg.pct_of_peak_sustained_active"] = draw(st.floats(0, 100))
    return kernel(values)
