"""What recomputation costs the host in the forward pass, by hand."""

import numpy as np
import pytest
from tests.tables import trace_of

from timesink.knowledge.assumptions import fixes
from timesink.measures.habits.extra_work import begun_alike
from timesink.measures.habits.repeated_passes import recomputed
from timesink.model.trace import Trace

NAMES = {
    "n": "void at::native::vectorized_layer_norm_kernel<float>",
    "G": "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "g": "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>",
    "a": "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<float>>",
    "s": "void at::native::cunn_SoftMaxBackward<4>",
    "x": "void indexSelectLargeIndex<float>",
}
LAYER = "nGgGa"


def trained(host: str = "") -> Trace:
    """Two layers, the second entered 100 us after the first's last launch, then the backward pass, which runs each of
    them again. The forward pass takes 10 us a launch, the backward pass 20 us, the layers that run again 5 us."""
    launches = [("x", 1, 0)]
    at = 0
    for gap in (100, 100):
        for place, letter in enumerate(LAYER):
            at += 10 if place else gap
            launches.append((letter, 1, at))
    for _ in range(2):
        for letter, step in (*(("s", 20) for _ in range(3)), *((letter, 5) for letter in LAYER)):
            at += step
            launches.append((letter, 2, at))
    ops = [f"| k | `{NAMES[name]}` | {at + 500} | {at + 505} | {n + 1} |" for n, (name, _, at) in enumerate(launches)]
    calls = [f"| c | cudaLaunchKernel | {who} | {at} | {at + 1} | {n + 1} |" for n, (_, who, at) in enumerate(launches)]
    tables = [
        ["| device_ops | name | start_us | end_us | correlation |", *ops],
        ["| api_calls | name | thread | start_us | end_us | correlation |", *calls],
    ]
    if host:
        tables.append(["| host_ops | name | thread | start_us | end_us |", f"| h | {host} | 1 | 0 | 400 |"])
    return trace_of("\n\n".join("\n".join(table) for table in tables))


def saving_us(trace: Trace) -> list[tuple[float, float]]:
    """The host's time of the forward pass that goes, from and to, in us."""
    (work,) = recomputed(trace) or ()
    (part,) = (part for (_, thread), part in work.host.items() if thread == 1)
    return [(begin / 1000, end / 1000) for begin, end in zip(part.start_ns, part.end_ns, strict=True)]


def test_layers_that_run_again_cost_the_forward_pass_their_entry_and_hooks() -> None:
    """A launch of the backward pass that nothing repeats takes 20 us, so that hooks fill the 10 us of every
    launch but those that enter a layer: of their 100 us a launch takes (2 x 100 + 8 x 10) / 10 = 28."""
    assert fixes.SAVING_HOOKS.value == 1.1
    entry = 100 - 28 + 1.1 * 20
    first, second = saving_us(trained())
    assert first == pytest.approx((100 - entry, 140))
    assert second == pytest.approx((240 - entry, 280))


def test_a_reentrant_checkpoint_has_no_hooks() -> None:
    first, second = saving_us(trained("CheckpointFunction"))
    assert first == pytest.approx((100 - 72, 100))
    assert second == pytest.approx((240 - 72, 240))


def test_a_run_begins_where_as_much_is_alike_as_the_shortest_goes() -> None:
    codes, elsewhere = (np.array([ord(letter) for letter in word]) for word in ("abcxabc", "zabcdzzabcz"))
    chosen = np.array([letter != "z" for letter in "zabcdzzabcz"])
    assert np.flatnonzero(begun_alike(codes, elsewhere, chosen)).tolist() == [0, 4]
    assert not begun_alike(codes, elsewhere, np.zeros(11, bool)).any()
    assert not begun_alike(codes[:2], elsewhere, chosen).any()
