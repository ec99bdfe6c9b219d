"""Laws of the measures on wasted kernel time, on traces full of real kernel names; and the change that replays them."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples
from tests.strategies import frame, shifted
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.registry import find
from timesink.fixes import precisions
from timesink.fixes import replays as fixes
from timesink.fixes import work as layouts
from timesink.fixes.advised import DROP_CASTS, FP32
from timesink.knowledge.assumptions import machines
from timesink.measures.compile import broken_graphs
from timesink.measures.kernels.attainable import far_operators
from timesink.measures.kernels.conversions import cast_kernels, cast_pairs, layout_kernels
from timesink.measures.kernels.fusion import optimizer_kernels, pointwise_chains, unfused_attention
from timesink.measures.kernels.precision import four_byte_kernels, wide_kernels
from timesink.measures.kernels.shapes import misaligned_products
from timesink.measures.kernels.small_grids import serialized_streams, small_grids
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, RANGES
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.whatif import Case, Range, Selection
from timesink.whatif.changes.kernels import FuseOptimizer, ShortenKernels, shorten
from timesink.whatif.graph import Graph

NAMES = (
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256_32x3_nn_align1",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>",
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32",
    "void softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 9, false, false>",
    "void cunn_SoftMaxBackward<4, float, float, float, SoftMaxBackwardEpilogue>",
    "void cunn_SoftMaxForward<4, float, float, float, LogSoftMaxForwardEpilogue>",
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(float)>",
    "void at::native::elementwise_kernel<128, 4, gpu_kernel_impl_nocast<direct_copy_kernel_cuda(c10::BFloat16)>>",
    "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16>",
    "void at::native::vectorized_elementwise_kernel<8, BinaryFunctor<c10::BFloat16, MulFunctor>>",
    "void at::native::vectorized_elementwise_kernel<8, CUDAFunctor_add<c10::BFloat16>>",
    "void at::native::vectorized_elementwise_kernel<2, tanh_kernel_cuda::{lambda(double)#1}>",
    "void at::native::reduce_kernel<512, 1, ReduceOp<float, MeanOps<float>>>",
    "triton_poi_fused_add_cos_mul_sigmoid_0",
)
MEASURES: dict[str, Callable[[Trace], Iterable[ShortenKernels]]] = {
    "casts": lambda trace: map(DROP_CASTS.change, cast_kernels(trace)),
    "layouts": lambda trace: map(fixes.keep_layout, layout_kernels(trace)),
    "attention": lambda trace: map(fixes.fuse_attention, unfused_attention(trace)),
    "chains": lambda trace: map(fixes.fuse_pointwise, pointwise_chains(trace)),
    "alignment": lambda trace: map(fixes.align_products, misaligned_products(trace)),
    "grids": lambda trace: map(fixes.spread_grids, small_grids(trace)),
    "fp32": lambda trace: map(precisions.to_tf32, wide_kernels(trace)["fp32"]),
    "tf32": lambda trace: map(precisions.to_bf16, wide_kernels(trace)["tf32"]),
    "bf16": lambda trace: map(precisions.to_bf16, four_byte_kernels(trace)["bf16"]),
    "fp64": lambda trace: map(FP32.change, wide_kernels(trace)["fp64"]),
    "streams": lambda trace: [fixes.overlap_streams(part.kernels) for part in serialized_streams(trace)],
    "optimizer": lambda trace: [FuseOptimizer.of(part.unfused).kernels for part in optimizer_kernels(trace)],
    "far": lambda trace: [fixes.reach_bound(part.kernels) for part in far_operators(trace)],
    "graphs": lambda trace: [
        fixes.join_graphs(part.kernels, part.entries, part.beyond) for part in broken_graphs(trace)
    ],
}


@st.composite
def programs(draw: st.DrawFn) -> Trace:
    """Kernels on two streams, one after the other on each, most of them launched inside an optimizer's range."""
    ops, calls, now = [], [], {7: 0, 13: 0}
    for number in range(draw(st.integers(0, 14))):
        stream, wait, length = draw(st.tuples(st.sampled_from([7, 13]), st.integers(0, 30), st.integers(1, 60)))
        start = now[stream] + 1_000 * wait
        now[stream] = start + 1_000 * length
        call = {"rank": 0, "process": 1, "thread": 1, "name": "cudaLaunchKernel", "correlation": number}
        calls.append({**call, "start_ns": 100 * number - 9_000, "end_ns": 100 * number - 8_950})
        place = {"rank": 0, "device": 0, "process": 1, "stream": stream, "kind": "kernel", "correlation": number}
        shape = {
            "grid_x": draw(st.integers(1, 300)),
            "grid_y": 1,
            "grid_z": 1,
            "block_x": 256,
            "block_y": 1,
            "block_z": 1,
        }
        name = draw(st.sampled_from(NAMES))
        ops.append({**place, **shape, "name": name, "start_ns": start, "end_ns": now[stream]})
    place = {"rank": 0, "process": 1, "thread": 1, "kind": "push_pop", "depth": 0}
    ends = draw(st.integers(-9_400, -7_000))
    ranges = [{**place, "name": "Optimizer.step#SGD.step", "start_ns": -9_500, "end_ns": ends}]
    gpu = [{"rank": 0, "device": 0, "name": "NVIDIA H200", "sm_count": 132, "compute_major": 9, "compute_minor": 0}]
    tables = {DEVICE_OPS: ops, API_CALLS: calls, RANGES: ranges, DEVICES: gpu}
    return Trace("test", {table: frame(table, rows) for table, rows in tables.items()})


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURES)
@settings(max_examples=examples(50), deadline=None)
@given(trace=programs())
def test_what_goes_and_what_stays_make_up_the_kernels(name: str, trace: Trace) -> None:
    ops = trace[DEVICE_OPS]
    for part in MEASURES[name](trace):
        assert np.all(np.diff(part.rows) > 0)
        lengths = (ops["end_ns"] - ops["start_ns"]).to_numpy()[part.rows]
        whole, before = part.whole(trace).total_ns, 0
        for case in Case:
            keep = part.keep[case.value]
            assert keep.size == part.rows.size
            assert np.all((keep >= 0) & (keep <= 1))
            gone = part.saved(trace, case).total_ns
            assert before <= gone <= whole
            if name != "streams" and ops["stream"].n_unique() == 1:
                if part.floored:
                    keep = np.where(
                        keep > 0,
                        np.maximum(keep, np.minimum(machines.KERNEL_FLOOR_US.ns / np.maximum(lengths, 1), 1.0)),
                        0.0,
                    )
                assert gone + int(np.ceil(lengths * keep).sum()) == int(lengths.sum())
            before = gone


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURES)
@settings(max_examples=examples(25), deadline=None)
@given(trace=programs(), by_ns=st.integers(-(10**9), 10**9))
def test_a_later_clock_changes_nothing(name: str, trace: Trace, by_ns: int) -> None:
    def figures(of: Trace) -> list[tuple[list[int], list[list[float]]]]:
        return [(part.rows.tolist(), [share.tolist() for share in part.keep]) for part in MEASURES[name](of)]

    assert figures(shifted(trace, by_ns)) == figures(trace)


@pytest.mark.parametrize(
    ("recorded", "pairs"),
    [
        ('["float","c10::BFloat16","Scalar"]', [("BFloat16 to float", 1, 30_000)]),
        ('["float","float",""]', []),
        ('{"float":1,"c10::BFloat16":2}', []),
        ("5", []),
        ('["float"]', []),
    ],
)
def test_a_cast_is_named_by_two_recorded_types_and_by_nothing_else(
    recorded: str, pairs: list[tuple[str, int, int]]
) -> None:
    trace = trace_of(
        f"""
        | device_ops | name | start_us | end_us | correlation |
        | copy       | c    |       20 |     50 |           1 |

        | api_calls | name             | start_us | end_us | correlation |
        | launch    | cudaLaunchKernel |       10 |     15 |           1 |

        | host_ops | name        | start_us | end_us | input_dtypes |
        | copy     | aten::copy_ |        5 |     18 | {recorded}   |
        """
    )
    assert cast_pairs(trace, np.array([0])) == pairs


@pytest.mark.parametrize(("converted_us", "plain_us", "beside"), [(60, 50, True), (50, 50, False), (0, 50, None)])
def test_a_network_changes_its_layout_where_most_convolution_time_is_converted_for(
    converted_us: int, plain_us: int, beside: bool | None
) -> None:
    kernels = [*[("elementwise", 5)] * 3, ("volta_scudnn_128x64", plain_us), ("bn_fw_tr_1C11_kernel", 20)]
    if converted_us:
        around = [("nchwToNhwcKernel", 2), ("nchwToNhwcKernel", 2)], [("nhwcToNchwKernel", 2)]
        kernels = [
            *around[0],
            ("sm90_xmma_fprop_implicit_gemm_bf16", converted_us),
            *around[1],
            *kernels,
        ]
    ends = np.cumsum([length for _, length in kernels]).tolist()
    rows = "".join(
        f"| x | {name} | {end - length} | {end} |\n" for (name, length), end in zip(kernels, ends, strict=True)
    )
    found = layout_kernels(trace_of(f"| device_ops | name | start_us | end_us |\n{rows}"))
    assert ([part.beside is not None for part in found] or [None]) == [beside]


@pytest.mark.parametrize(
    ("blocks", "norm_us", "convolution_us"),
    [(10, 4000, 5000), (1, 400, 5000), (64, 3000, 300), (200, 900, 9000), (10, 0, 7000), (3, 8000, 800)],
)
def test_no_more_is_won_than_is_claimed_where_kernels_beside_get_shorter(
    blocks: int, norm_us: int, convolution_us: int
) -> None:
    """What conversions win at best is claimed: their own time, that of normalizations beside, a convolution's part."""
    kernels = [
        ("nchwToNhwcKernel<__nv_bfloat16>", 1000, 1000),
        ("at::native::batch_norm_collect_statistics_kernel<at::native::InvStd>", norm_us, blocks),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x128x64", convolution_us, 1000),
    ]
    kernels, at, rows = [kernel for kernel in kernels if kernel[1]], 0, ""
    for name, length, grid in kernels:
        rows += f"| k | `void {name}` | {at} | {at + length} | {grid} | 1 | 1 |\n"
        at += length
    table = f"| device_ops | name | start_us | end_us | grid_x | grid_y | grid_z |\n{rows}"
    trace = trace_of(f"{table}\n| devices | device | name | sm_count |\n| gpu | 0 | NVIDIA H100 | 100 |\n")
    ((_, found),) = diagnose(trace, [find("KRN102")]).findings
    (change,) = layouts.CHANNELS_LAST.replay(trace)
    most_ns = change.gone(trace, Case.HOPEFUL).total_ns
    assert most_ns > change.saved(trace, Case.HOPEFUL).total_ns
    assert found.claim.total_ns == most_ns
    assert (found.recoverable.value or 0.0) * 1e6 <= most_ns + 1


def test_a_row_of_two_groups_keeps_the_smaller_share() -> None:
    kernels = Selection((0, 0), {"one": np.array([3]), "both": np.array([3, 5])})
    part = shorten(kernels, one=Range.exact(0.5), both=Range(1.0, 0.8, 0.2))
    assert part.rows.tolist() == [3, 5]
    assert [share.tolist() for share in part.keep] == [[0.5, 1.0], [0.5, 0.8], [0.2, 0.2]]


def test_a_kernel_that_stays_takes_a_microsecond_at_least() -> None:
    trace = trace_of(
        """
        | device_ops | name | start_us | end_us |
        | short      | a    |        0 |      4 |
        | long       | b    |        4 |     44 |
        | gone       | c    |       44 |     48 |
        """
    )
    kernels = Selection((0, 0), {"stays": np.array([0, 1]), "goes": np.array([2])})
    part = shorten(kernels, floored=True, stays=Range.exact(0.1), goes=Range.exact(0.0))
    assert part.saved(trace, Case.EXPECTED).total_ns == 3_000 + 36_000 + 4_000


QUEUED = """
    | device_ops | name | start_us | end_us | correlation |
    | one        | a    |      100 |    200 |           1 |
    | two        | b    |      200 |    300 |           2 |
    | three      | c    |      300 |    400 |           3 |

    | api_calls | name             | start_us | end_us | correlation |
    | launch    | cudaLaunchKernel |       80 |     85 |           1 |
    | launch    | cudaLaunchKernel |       85 |     90 |           2 |
    | launch    | cudaLaunchKernel |       90 |     95 |           3 |
"""


@pytest.mark.parametrize(("keep", "ends_us"), [(0.5, [200, 250, 350]), (0.0, [200, 200, 300]), (1.0, [200, 300, 400])])
def test_shorter_kernels_let_queued_ones_start_sooner(keep: float, ends_us: list[int]) -> None:
    graph = Graph.from_trace(trace_of(QUEUED))
    share = np.array([keep])
    replay = ShortenKernels((0, 0), np.array([1]), (share, share, share)).rewrite(graph).replay()
    program = graph.program
    ends = replay.time_ns[program.end_node(program.ops.block)]
    assert sorted((ends // 1_000).tolist()) == ends_us


LATE = """
    | device_ops | name | start_us | end_us | correlation |
    | one        | a    |      100 |    110 |           1 |
    | two        | b    |      245 |    345 |           2 |
    | three      | c    |      345 |    445 |           3 |

    | api_calls | name             | start_us | end_us | correlation |
    | launch    | cudaLaunchKernel |       80 |     85 |           1 |
    | launch    | cudaLaunchKernel |      230 |    240 |           2 |
    | launch    | cudaLaunchKernel |      240 |    245 |           3 |
"""


def test_launches_that_go_with_their_kernels_save_host_time() -> None:
    graph = Graph.from_trace(trace_of(LATE))
    stays = np.array([1.0])
    change = ShortenKernels((0, 0), np.array([1]), (stays, stays, stays), launches_saved=Range.exact(0.5))
    block = graph.program.end_node(graph.program.ops.block)
    moved = graph.replay().time_ns[block] - change.rewrite(graph).replay().time_ns[block]
    # A kernel follows the start of its launch: from the end of the first (85 us) to that (230 us), half of 145 us.
    assert sorted(moved.tolist()) == [0, 72_500, 72_500]


def kept(change: ShortenKernels) -> list[list[float]]:
    """What each kernel keeps, per case."""
    return [share.round(6).tolist() for share in change.keep]


def test_what_a_fix_leaves_worked_by_hand() -> None:
    """Products whose bound is 45 % of their time reach nine tenths of it: 50 %; cautiously half of the way, 75 %."""
    two = np.array([3, 8])
    known = Selection((0, 0), {"named": two}, best=np.array([0.45, np.nan]))
    assert kept(fixes.align_products(known)) == [[0.75, 0.8], [0.5, 0.45], [0.45, 0.3]]
    ratio = Selection((0, 0), {"fp32": two}, best=np.array([0.2, np.nan]))
    assert kept(precisions.to_tf32(ratio)) == [[0.6, 0.45], [0.23, 0.1725], [0.12, 0.09]]
    moving = replace(ratio, usual=np.array([0.3, np.nan]))  # bytes of the first take 30 % of its time, in any type
    assert kept(precisions.to_tf32(moving)) == [[0.6, 0.45], [0.3, 0.1725], [0.3, 0.09]]
    no_peaks = replace(moving, best=np.empty(0))
    assert kept(precisions.to_bf16(no_peaks)) == [[0.3, 0.3], [0.15, 0.12], [0.15, 0.05]]  # half of them
    assert kept(precisions.to_bf16(moving)) == [[0.6, 0.3], [0.23, 0.12], [0.15, 0.05]]  # peaks five times apart
    filled = Selection((0, 0), {"small": two}, best=np.array([0.1, 0.6]))
    assert kept(fixes.spread_grids(filled)) == [[0.6, 1.0], [0.2, 1.0], [0.1, 0.6]]
    turns = Selection((0, 0), {"second": two}, np.array([0.5, 1.0]), np.array([0.25, 0.75]))
    assert kept(fixes.overlap_streams(turns)) == [[0.8, 1.0], [0.5, 1.0], [0.25, 0.75]]
    far = Selection((0, 0), {"kernel": two}, best=np.array([0.35, 1.2]))
    assert kept(fixes.reach_bound(far)) == [[0.75, 1.0], [0.5, 1.0], [0.35, 1.0]]
    pieces = Selection((0, 0), {"piece": two}, np.array([0.6, 1.0]), np.array([0.4, 1.0]))
    joined = fixes.join_graphs(pieces, two, beyond=0.5)
    assert kept(joined) == [[0.8, 1.0], [0.6, 1.0], [0.5, 1.0]]
    assert joined.launches_saved == Range(0.25, 0.5, 0.5)


@pytest.mark.parametrize(
    ("norms", "role"), [("bn_fw_tr_1C11", "converter"), ("GroupNormKernelImplInternal", "grouped")]
)
def test_converters_beside_normalisations_over_groups_stay(norms: str, role: str) -> None:
    """PyTorch lays out anew what such a normalisation reads, whatever the network's layout is."""
    names = ["nchwToNhwcKernel<float>", "sm90_xmma_fprop_implicit_gemm_nhwc", "nhwcToNchwKernel<float>", norms]
    rows = [f"| k | kernel | `{name}` | {10 * at} | {10 * at + 9} |" for at, name in enumerate(names)]
    trace = trace_of("\n".join(["| device_ops | kind | name | start_us | end_us |", *rows]))
    (found,) = layout_kernels(trace)
    assert {name: rows.tolist() for name, rows in found.groups.items() if rows.size} == {role: [0, 2]}


@pytest.mark.parametrize(("moving_us", "priced_by"), [(0, "kernel_time"), (1_000, "bound")])
def test_a_kernel_that_waits_for_pages_of_unified_memory_is_bounded_and_not_priced(
    moving_us: int, priced_by: str
) -> None:
    name = "Unified memory Memcpy HtoD (Managed -> Device)" if moving_us else "Memcpy HtoD (Pinned -> Device)"
    page = f"| page | {name} | copy | 100 | {100 + max(moving_us, 1)} | | | | 8 |"
    found = diagnose(
        trace_of(
            f"""
            | device_ops | name | kind | start_us | end_us | grid_x | grid_y | grid_z | stream |
            |---|---|---|---|---|---|---|---|---|
            | add | add | kernel | 0 | 5000 | 1 | 1 | 1 | 7 |
            {page}
            | matmul | gemm | kernel | 5000 | 10000 | 132 | 1 | 1 | 7 |

            | devices | device | name | sm_count |
            |---|---|---|---|
            | gpu | 0 | NVIDIA H200 | 132 |
            """
        ),
        [find("KRN107")],
    )
    assert [finding.priced_by for _, finding in found.findings] == [priced_by]


@pytest.mark.parametrize(
    ("gpu", "kept"),
    [
        ("NVIDIA H200", [1.0, 0.8, 0.5]),
        ("NVIDIA A100-SXM4-80GB", [1.0, 0.8, 0.5]),
        ("NVIDIA B200", [0.7, 0.48, 0.3]),  # its tensor cores run fp64 at half of fp32
        ("Tesla V100-SXM2-32GB", [0.7, 0.48, 0.3]),  # which has none for fp64
        ("NVIDIA GeForce RTX 4090", [0.7, 0.48, 0.3]),
    ],
)
def test_fp64_products_keep_their_rate_where_tensor_cores_have_it(gpu: str, kept: list[float]) -> None:
    """The product, and a kernel that is none beside it."""
    trace = trace_of(f"""
        | devices | rank | device | name  |
        | a       |    0 |      0 | {gpu} |

        | device_ops | name                                                                   | start_us | end_us |
        | matmul    | void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x32_16x4_tn_align1> |      0 |    100 |
        | other      | void vectorized_elementwise_kernel<2, tanh_kernel_cuda::{{lambda(double)#1}}> |  100 |    200 |
    """)
    (change,) = MEASURES["fp64"](trace)
    assert [list(keep) for keep in change.keep] == [
        [share, other] for share, other in zip(kept, [0.7, 0.48, 0.3], strict=True)
    ]
