"""Operations of tensor cores, got three ways from real reports, against each other and against their shapes."""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from benchmarks.kernels.known_shapes.trim import trimmed
from tests.measures.counters.kernel_counter_strategies import kernel

from timesink.knowledge.gpus import PER_OPCODE, Precision
from timesink.measures.counters import KernelCounters, kernel_counters
from timesink.measures.counters.machine_roofs import machine_roofs
from timesink.measures.counters.roofline import kernel_rooflines, roofline_of
from timesink.measures.counters.tensor import Counted, pipe_busy, tensor_work
from timesink.model.tables import KERNEL_PROFILES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.records import replace

SUITE = Path(__file__).resolve().parents[3] / "benchmarks" / "kernels" / "reports"
RESULTS = SUITE.parent / "known_shapes" / "results"
ROUNDS = 528 * 8 * 512 * 4 * 2 * 16**3  # blocks, warps, rounds and products of 16 x 16 x 16 of `wide_operands`


def unpacked(packed: Path, folder: Path) -> Trace:
    path = folder / packed.stem
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return read(path, cache=False)


def without(kernel_: KernelCounters, *, counters: bool = False, opcodes: bool = False) -> KernelCounters:
    values = {name: v for name, v in kernel_.values.items() if not (counters and name.startswith("sm__ops_path"))}
    return replace(kernel_, values=values, texts={} if opcodes else kernel_.texts)


def test_opcodes_count_what_the_counters_of_operations_count_and_cycles_no_less(tmp_path: Path) -> None:
    for kernel_ in kernel_counters(unpacked(SUITE / "tensor.ncu-rep.xz", tmp_path)):
        (counted,) = tensor_work(kernel_)
        (by_opcode,) = tensor_work(without(kernel_, counters=True))
        assert (counted.how, by_opcode.how) == (Counted.COUNTERS, Counted.OPCODES)
        assert counted.flops == by_opcode.flops == ROUNDS
        assert (counted.precision, counted.path) == (by_opcode.precision, by_opcode.path)
        named = replace(without(kernel_, counters=True, opcodes=True), name="half_kernel<__half>")
        line = roofline_of(named)
        assert line is not None
        (most,) = [roof for roof in line.compute if roof.how is Counted.CYCLES]
        assert most.precision is Precision.FP16
        assert (most.flops or 0) >= ROUNDS * 0.999


def test_cycles_of_an_unknown_format_are_a_share_and_no_operations() -> None:
    one = kernel({"sm__pipe_tensor_cycles_active": 60, "dram__bytes.sum": 1e6})
    line = roofline_of(one)
    assert line is not None
    assert [(roof.label, roof.flops, roof.share) for roof in line.compute] == [("tensor pipe", None, 0.6)]
    assert line.intensity("dram") is None
    assert "not counted" in (line.why_no_point or "")


def test_products_in_tensor_memory_are_counted_by_cycles(tmp_path: Path) -> None:
    """Of Blackwell no report is at hand: counters as its list of names has them, an opcode that names no shape."""
    values = {
        "sm__pipe_tensor_cycles_active": 80, "dram__bytes.sum": 1e9, "launch__sm_count": 148,
        "sm__cycles_elapsed.avg.per_second": 1.9e9,
    }  # fmt: skip
    one = kernel(values, name="nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT")
    one = replace(one, gpu="NVIDIA B200", compute_capability=(10, 0), texts={PER_OPCODE: "UTCHMMA.2CTA: 65536; NOP: 9"})
    line = roofline_of(one)
    assert line is not None
    (roof,) = line.compute
    assert (roof.label, roof.how) == ("bf16 tensor (tcgen05)", Counted.CYCLES)
    assert roof.flops == pytest.approx(0.8 * 8192 * 148 * 1.9e9 * 100e-6)
    assert line.why_no_point is None
    assert line.intensity("dram") == pytest.approx((roof.flops or 0) / 1e9)


def test_the_ceiling_is_the_lower_roof_at_its_intensity(tmp_path: Path) -> None:
    line = kernel_rooflines(unpacked(RESULTS / "detailed.ncu-rep.xz", tmp_path))
    product, by_row = line[0], line[7]
    assert product is not None
    assert by_row is not None
    assert product.main is not None
    assert product.ceiling == product.main.peak_flops
    assert (product.intensity("dram") or 0) > (product.ridge or 0) > (by_row.intensity("dram") or 0)
    dram = by_row.memory_of("dram")
    assert dram is not None
    assert by_row.main is not None
    assert by_row.ceiling == pytest.approx((by_row.intensity("dram") or 0) * (dram.peak_bytes_per_s or 0), rel=1e-3)
    assert (by_row.main.flops or 0) / by_row.duration_ns * 1e9 / (by_row.ceiling or 1) == pytest.approx(dram.share)


def known(shared_data: Path) -> Iterator[Path]:
    yield from (shared_data / "own" / "ncu").glob("*.ncu-rep.xz")
    yield from (shared_data / "public" / "ncu").glob("a*.ncu-rep")


def test_warp_group_and_integer_products_by_opcode_are_their_pipes_cycles(shared_data: Path, tmp_path: Path) -> None:
    """What `wgmma` of bf16 and `mma` of int8 do is exactly the time their pipe is busy, times its peak."""
    seen = 0
    for path in known(shared_data):
        for kernel_ in kernel_counters(unpacked(path, tmp_path) if path.suffix == ".xz" else read(path, cache=False)):
            for roof in getattr(roofline_of(kernel_), "compute", ()):
                if roof.path in ("wgmma", "mma"):
                    assert roof.how is Counted.OPCODES
                    assert roof.share == pytest.approx(pipe_busy(kernel_), rel=1e-9)
                    seen += 1
    assert seen == 6


SHAPES = {  # launch of the report: operations of its shape, and of what its tiles cover
    0: (2 * 8192 * 8192 * 4096, 1.0),
    1: (2 * 1 * 8192 * 8192, 8.0),  # a row in tiles of eight
    7: (2 * 4 * 4 * 32 * 4096 * 4096 * 128 / 2 / 2, 33 / 32),  # causal: half, and the diagonal's tiles whole
    17: (2 * 8192**3, 1.0),
}


def test_products_of_known_shape_have_its_operations(shared_data: Path, tmp_path: Path) -> None:
    lines = kernel_rooflines(unpacked(shared_data / "own" / "ncu" / "h200_torch_kernels.ncu-rep.xz", tmp_path))
    for number, (flops, covered) in SHAPES.items():
        line = lines[number]
        assert line is not None
        main = max(line.compute, key=lambda roof: roof.share)
        assert main.flops == pytest.approx(flops * covered, rel=2e-4), number


TILES_OF_EIGHT = {"gemv_bf16": 8, "decode_bf16": 2}  # rows of their tile over rows of their shape


@pytest.mark.parametrize("page", ["detailed.ncu-rep", "full.ncu-rep", "detailed.raw.csv"])
def test_products_and_attention_on_a_gpu_have_the_operations_of_their_shapes(page: str, tmp_path: Path) -> None:
    """Thirteen shapes on an H100. A page names no range: its launches come in the order of the report's."""
    shapes = json.loads((RESULTS / "shapes.json").read_text())
    report = unpacked(RESULTS / f"{page.partition('.')[0]}.ncu-rep.xz", tmp_path)
    ranges = [str(name).rpartition("/")[2] for name in report[KERNEL_PROFILES]["nvtx"].cast(pl.String)]
    trace = unpacked(RESULTS / f"{page}.xz", tmp_path)
    flops: dict[str, float] = {}
    ways = set()
    for name, line in zip(ranges, kernel_rooflines(trace), strict=True):
        for roof in line.compute if line else ():
            is_main = roof.label == "fp32" if name == "gemm_fp32" else roof.path != "cuda"
            if is_main and roof.flops:
                flops[name] = flops.get(name, 0.0) + roof.flops
                ways.add(roof.how)
                assert roof.label.split()[0] == shapes[name]["precision"], name
    assert flops.keys() == {name for name in shapes if name != "gpu"}
    for name, found in flops.items():
        assert found / shapes[name]["flops"] == pytest.approx(TILES_OF_EIGHT.get(name, 1), rel=0.001), name
    by_page = {
        "detailed.ncu-rep": Counted.OPCODES,
        "full.ncu-rep": Counted.COUNTERS,
        "detailed.raw.csv": Counted.CYCLES,
    }
    assert by_page[page] in ways


def test_two_sets_of_one_kernel_have_the_same_share_of_l2(tmp_path: Path) -> None:
    """Bytes that several multiprocessors receive at once are sent once."""
    detailed, full = (
        kernel_rooflines(unpacked(RESULTS / f"{one}.ncu-rep.xz", tmp_path)) for one in ("detailed", "full")
    )
    shares = [
        [roof.share for line in lines if line is not None and (roof := line.memory_of("l2"))]
        for lines in (detailed, full)
    ]
    assert len(shares[0]) == 21
    assert shares[0] == pytest.approx(shares[1], rel=0.06, abs=0.01)


def test_every_kernel_has_a_point_or_says_why_not(shared_data: Path, tmp_path: Path) -> None:
    packed = [*SUITE.glob("*.ncu-rep.xz"), *RESULTS.glob("*.ncu-rep.xz"), *(path for path in known(shared_data))]
    points = 0
    for path in packed:
        trace = unpacked(path, tmp_path) if path.suffix == ".xz" else read(path, cache=False)
        for line in kernel_rooflines(trace):
            if line is None:  # its counters failed
                continue
            assert (line.intensity("dram") is None) == (line.why_no_point is not None)
            assert all(0 <= roof.share < 1.02 for roof in (*line.memory, *line.compute))
            points += line.why_no_point is None
    assert len(packed) >= 11
    assert points >= 60


def test_the_roofs_of_a_report_are_those_of_the_datasheet_at_boost(tmp_path: Path) -> None:
    roofs = {roof.label: roof for roof in machine_roofs(unpacked(SUITE / "tensor.ncu-rep.xz", tmp_path))}
    for label in ("fp32", "fp64", "fp64 tensor (mma)"):
        assert roofs[label].boost == pytest.approx(roofs[label].specified, rel=2e-3)
    bf16 = roofs["bf16 tensor (wgmma)"]
    assert bf16.boost == pytest.approx(4096 * 132 * 1.98e9)
    assert bf16.specified == 989.4e12  # at 1.83 GHz
    assert (bf16.profiled or 0) < (bf16.boost or 0)
    assert roofs["DRAM"].boost == pytest.approx(4.8e12, rel=0.005)
    assert all(
        roofs[label].measured == pytest.approx(roofs[label].boost, rel=2e-3) for label in ("DRAM", "fp32", "fp64")
    )
    assert roofs["L1"].profiled == pytest.approx((roofs["fp32"].profiled or 0) / 2)


def vars_of(one: KernelCounters) -> tuple[object, ...]:
    return one.name, one.duration_ns, one.grid, one.values, one.texts, one.failed


def test_a_trimmed_report_tells_the_same(tmp_path: Path) -> None:
    packed = SUITE / "tensor.ncu-rep.xz"
    small = trimmed(lzma.decompress(packed.read_bytes()))
    assert len(small) < 400_000
    (tmp_path / "small.ncu-rep").write_bytes(small)
    whole, part = unpacked(packed, tmp_path), read(tmp_path / "small.ncu-rep", cache=False)
    assert [vars_of(one) for one in kernel_counters(part)] == [vars_of(one) for one in kernel_counters(whole)]
