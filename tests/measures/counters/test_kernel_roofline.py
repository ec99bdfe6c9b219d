"""The roofline against published check numbers, and the sides of ordinary transformer operations."""

import lzma
from pathlib import Path

import pytest
from tests.measures.counters.kernel_counter_strategies import kernel

from timesink.knowledge.gpus import Precision
from timesink.measures.counters import kernel_counters
from timesink.measures.counters.roofline import instructions, kernel_rooflines, roofline_of
from timesink.readers import read
from timesink.records import replace

SUITE = Path(__file__).resolve().parents[3] / "benchmarks" / "kernels" / "reports"
OP = "smsp__sass_thread_inst_executed_op_"


def v100(**more: float) -> dict[str, float]:
    """The counters of a V100-SXM2 held at 1312 MHz that give its peaks."""
    return {
        "sm__cycles_elapsed.avg.per_second": 1.312e9,
        "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained": 80 * 32,
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 80 * 64,
        "dram__bytes.sum.peak_sustained": 1024,
        "dram__cycles_elapsed.avg.per_second": 877e6,
        "launch__sm_count": 80,
        **more,
    }


def test_the_gpp_kernel_on_v100_reaches_the_published_shares() -> None:
    """Yang (arXiv 2008.11326): peak 6.7 TFLOP/s, kernel 3.7: 55 %; 58 % fused instructions, 70 % of their ceiling."""
    total = 1e12
    fma, rest = 0.58 * total, 0.42 * total
    seconds = (2 * fma + rest) / 3.7e12
    values = v100(**{f"{OP}dfma_pred_on.sum": fma, f"{OP}dadd_pred_on.sum": rest})
    line = roofline_of(kernel(values, duration_ns=seconds * 1e9))
    assert line is not None
    (roof,) = line.compute
    assert roof.precision is Precision.FP64
    assert roof.peak_flops == pytest.approx(6.7e12, rel=0.005)
    assert roof.share == pytest.approx(0.55, abs=0.005)
    assert roof.fused_ratio == pytest.approx(0.58)
    assert roof.share * (roof.peak_flops or 0) / roof.mix_share == pytest.approx(5.3e12, rel=0.01)
    assert roof.mix_share == pytest.approx(0.70, abs=0.005)


@pytest.mark.parametrize(
    ("bytes_per_cycle", "clock", "wanted"),
    [(1024, 877e6, 898e9), (1280, 1.215e9, 1555e9), (1504, 3.2e9, 4813e9)],
)
def test_dram_peak_is_bytes_per_cycle_times_clock(bytes_per_cycle: float, clock: float, wanted: float) -> None:
    values = {"dram__bytes.sum.peak_sustained": bytes_per_cycle, "dram__cycles_elapsed.avg.per_second": clock}
    line = roofline_of(kernel({**values, "dram__bytes.sum": 1e9}))
    assert line is not None
    roof = line.memory_of("dram")
    assert roof is not None
    assert roof.peak_bytes_per_s == pytest.approx(wanted, rel=0.002)


def test_half_instructions_count_their_pairs() -> None:
    values = v100(**{f"{OP}hfma_pred_on.sum": 10, f"{OP}hadd_pred_on.sum": 5, f"{OP}hmul_pred_on.sum": 5})
    line = roofline_of(kernel(values))
    assert line is not None
    assert [roof.flops for roof in line.compute] == [4 * 10 + 2 * 5 + 2 * 5]


def test_the_ridge_divides_the_sides() -> None:
    ridge = (2 * 80 * 64 * 1.312e9) / (1024 * 877e6)
    for factor, is_memory in ((0.9, True), (1.1, False)):
        flops = ridge * factor * 1e6
        values = v100(**{f"{OP}ffma_pred_on.sum": flops / 2, "dram__bytes.sum": 1e6})
        line = roofline_of(kernel(values))
        assert line is not None
        assert line.is_memory_side is is_memory
        assert line.intensity("dram") == pytest.approx(ridge * factor)


def test_bytes_without_operations_are_memory_and_nothing_counted_is_neither() -> None:
    line = roofline_of(kernel(v100(**{f"{OP}ffma_pred_on.sum": 0, "dram__bytes.sum": 1e6})))
    bare = roofline_of(kernel({"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 50}))
    assert line is not None
    assert bare is not None
    assert (line.is_memory_side, bare.is_memory_side) == (True, None)


def test_a_kernel_without_time_has_no_roofline() -> None:
    assert roofline_of(kernel(v100(), duration_ns=None)) is None


def test_a_datasheet_stands_in_and_is_named() -> None:
    one = replace(kernel({f"{OP}ffma_pred_on.sum": 1e6}), gpu="NVIDIA H200")
    line = roofline_of(one)
    assert line is not None
    assert line.source.startswith("datasheet: NVIDIA H200")
    assert [roof.peak_flops for roof in line.compute] == pytest.approx([66.9e12])


def test_instruction_counts_from_rates_are_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "arithmetic.ncu-rep"
    path.write_bytes(lzma.decompress((SUITE / "arithmetic.ncu-rep.xz").read_bytes()))
    by_name = {one.function: one for one in kernel_counters(read(path, cache=False))}
    threads, rounds, chains = 132 * 2048 * 4, 256, 4
    fused = instructions(by_name["unfused_multiply_fix"], "ffma")
    split = instructions(by_name["unfused_multiply_fault"], "fmul")
    assert fused == pytest.approx(threads * rounds * chains, rel=1e-6)
    assert split == pytest.approx(threads * rounds * chains, rel=1e-6)


def test_tensor_work_is_counted_by_format_and_path_against_the_dense_peak_of_its_path(tmp_path: Path) -> None:
    """528 blocks of 8 warps, 512 rounds of 4 products of 16^3; mma.sync on Hopper does 8192 / 3 per SM and cycle."""
    path = tmp_path / "tensor.ncu-rep"
    path.write_bytes(lzma.decompress((SUITE / "tensor.ncu-rep.xz").read_bytes()))
    trace = read(path, cache=False)
    flops = 528 * 8 * 512 * 4 * 2 * 16**3
    for kernel_, line in zip(kernel_counters(trace), kernel_rooflines(trace), strict=True):
        assert line is not None
        tensor = [roof for roof in line.compute if roof.path == "mma"]
        wanted = Precision.TF32 if kernel_.function == "wide_operands_fault" else Precision.FP16
        assert [(roof.precision, roof.flops) for roof in tensor] == [(wanted, pytest.approx(flops))]
        per_cycle = (tensor[0].peak_flops or 0) / (line.clock_hz or 1) / 132
        assert per_cycle == pytest.approx(8192 / 3 / (2 if wanted is Precision.TF32 else 1))


SIDES = {
    0: False,  # bf16 GEMM of a prefill
    1: True,  # GEMV of a decode
    2: True,  # layer norm
    3: True,  # GELU
    4: True,  # softmax
    5: True,  # residual addition
    7: False,  # attention over a long context
    17: False,  # fp32 GEMM
}


def test_transformer_operations_lie_on_their_sides_of_the_ridge(shared_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "h200.ncu-rep"
    path.write_bytes(lzma.decompress((shared_data / "own" / "ncu" / "h200_torch_kernels.ncu-rep.xz").read_bytes()))
    lines = kernel_rooflines(read(path, cache=False))
    sides = {number: line.is_memory_side for number, line in enumerate(lines) if line is not None}
    assert {number: sides[number] for number in SIDES} == SIDES
