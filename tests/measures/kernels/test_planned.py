"""The operators of a Llama layer of 8 billion parameters against a table written by hand from its shapes.

Products of (M, K) by (K, N) take 2 M N K operations and 2 (M K + K N + M N) bytes. A causal mask leaves 2,098,176 of
2048 x 2048 pairs, with four operations for each of the 128 values of 32 heads; eight heads of keys and values are read
once. Attainable are 80 % of 989.4 TFLOP/s, 93 % of 3.352 (H100) and 4.8 TB/s (H200), and a microsecond at least.
"""

import pytest

from timesink.errors import UsageError
from timesink.knowledge.gpus import Precision, candidates, peaks
from timesink.measures.kernels.attainable import attainable_ridge
from timesink.measures.kernels.planned import Batch, backward_operators, forward_operators
from timesink.memory_plan import Model
from timesink.records import replace

LLAMA = Model(
    "decoder", 32, 4096, 32, 14336, 128256, kv_heads=8, head_width=128, norm="rmsnorm", gated=True, positions="rotary"
)
BATCHES = {"prefill": Batch(1, 2048, 2048), "decode 1": Batch(1, 1, 2048), "decode 4": Batch(4, 1, 2048)}
# Of one layer: operations, bytes, what bounds it, and its least time in us on an H100 and on an H200.
TABLE = {
    "prefill": {
        "norm": (67_108_864, 33_562_624, "memory", 10.77, 7.52),
        "q projection": (68_719_476_736, 67_108_864, "compute", 86.82, 86.82),
        "k projection": (17_179_869_184, 29_360_128, "compute", 21.7, 21.7),
        "v projection": (17_179_869_184, 29_360_128, "compute", 21.7, 21.7),
        "rotary": (10_485_760, 41_943_040, "memory", 13.45, 9.4),
        "attention": (34_376_515_584, 41_943_040, "compute", 43.43, 43.43),
        "output projection": (68_719_476_736, 67_108_864, "compute", 86.82, 86.82),
        "residual": (8_388_608, 50_331_648, "memory", 16.15, 11.28),
        "gate projection": (240_518_168_576, 192_937_984, "compute", 303.87, 303.87),
        "up projection": (240_518_168_576, 192_937_984, "compute", 303.87, 303.87),
        "activation": (29_360_128, 117_440_512, "memory", 37.67, 26.31),
        "gate x up": (29_360_128, 176_160_768, "memory", 56.51, 39.46),
        "down projection": (240_518_168_576, 192_937_984, "compute", 303.87, 303.87),
    },
    "decode 1": {
        "norm": (32_768, 24_576, "latency", 1.0, 1.0),
        "q projection": (33_554_432, 33_570_816, "memory", 10.77, 7.52),
        "k projection": (8_388_608, 8_398_848, "memory", 2.69, 1.88),
        "v projection": (8_388_608, 8_398_848, "memory", 2.69, 1.88),
        "rotary": (5_120, 20_480, "latency", 1.0, 1.0),
        "attention": (33_554_432, 8_404_992, "memory", 2.7, 1.88),
        "output projection": (33_554_432, 33_570_816, "memory", 10.77, 7.52),
        "residual": (4_096, 24_576, "latency", 1.0, 1.0),
        "gate projection": (117_440_512, 117_477_376, "memory", 37.68, 26.32),
        "up projection": (117_440_512, 117_477_376, "memory", 37.68, 26.32),
        "activation": (14_336, 57_344, "latency", 1.0, 1.0),
        "gate x up": (14_336, 86_016, "latency", 1.0, 1.0),
        "down projection": (117_440_512, 117_477_376, "memory", 37.68, 26.32),
    },
    "decode 4": {
        "norm": (131_072, 73_728, "latency", 1.0, 1.0),
        "q projection": (134_217_728, 33_619_968, "memory", 10.78, 7.53),
        "k projection": (33_554_432, 8_429_568, "memory", 2.7, 1.89),
        "v projection": (33_554_432, 8_429_568, "memory", 2.7, 1.89),
        "rotary": (20_480, 81_920, "latency", 1.0, 1.0),
        "attention": (134_217_728, 33_619_968, "memory", 10.78, 7.53),
        "output projection": (134_217_728, 33_619_968, "memory", 10.78, 7.53),
        "residual": (16_384, 98_304, "latency", 1.0, 1.0),
        "gate projection": (469_762_048, 117_587_968, "memory", 37.72, 26.34),
        "up projection": (469_762_048, 117_587_968, "memory", 37.72, 26.34),
        "activation": (57_344, 229_376, "latency", 1.0, 1.0),
        "gate x up": (57_344, 344_064, "latency", 1.0, 1.0),
        "down projection": (469_762_048, 117_587_968, "memory", 37.72, 26.34),
    },
}


@pytest.mark.parametrize(("gpu", "place"), [("NVIDIA H100 80GB HBM3", 3), ("NVIDIA H200", 4)])
@pytest.mark.parametrize("phase", TABLE)
def test_a_llama_layer_is_classified_as_by_hand(phase: str, gpu: str, place: int) -> None:
    sheet = peaks(gpu)
    assert sheet is not None
    layer = [one for one in forward_operators(LLAMA, BATCHES[phase], sheet) if one.part != "head"]
    assert [one.name for one in layer if one.part == "attention"] == [*TABLE[phase]][:8]
    for one in layer:
        hand = TABLE[phase][one.name]
        assert (one.work.flops, one.work.bytes, one.bound.limiter, one.count) == (*hand[:3], 32), one.name
        assert one.bound.bound_ns / one.count / 1e3 == pytest.approx(hand[place], abs=0.006), one.name
        assert one.intensity == pytest.approx(hand[0] / hand[1])


def test_backward_takes_two_products_for_one_and_five_for_two_of_attention() -> None:
    sheet = peaks("NVIDIA H200")
    assert sheet is not None
    batch = BATCHES["prefill"]
    forward = {one.name: one.work.flops for one in forward_operators(LLAMA, batch, sheet) if one.part != "head"}
    backward: dict[str, float] = {}
    for one in backward_operators(LLAMA, batch, sheet):
        if one.part != "head":
            name = one.name.partition(",")[0]
            backward[name] = backward.get(name, 0.0) + one.work.flops
    products = [name for name in forward if name.endswith("projection")]
    assert len(products) == 7
    assert all(backward[name] == 2 * forward[name] for name in products)
    assert backward["attention"] == 2.5 * forward["attention"]


def test_the_ridge_of_an_h100_is_that_of_its_peaks_and_the_attainable_one_is_below() -> None:
    (h100,) = candidates("H100 SXM")
    assert h100.ridge(Precision.BF16) == pytest.approx(295.2, abs=0.1)
    assert attainable_ridge(h100, Precision.BF16) == pytest.approx(295.2 * 0.8 / 0.93, abs=0.1)


def test_a_mixture_reads_the_experts_that_its_tokens_reach() -> None:
    sheet = peaks("NVIDIA H200")
    assert sheet is not None
    mixture = replace(LLAMA, experts=64, experts_per_token=2, feedforward=1024)
    few = {one.name: one.work for one in forward_operators(mixture, Batch(1, 1, 128), sheet) if one.part == "mlp"}
    many = {one.name: one.work for one in forward_operators(mixture, Batch(1, 512, 512), sheet) if one.part == "mlp"}
    assert few["gate projection"].flops == 2 * 2 * 4096 * 1024
    assert few["gate projection"].bytes == pytest.approx(2 * 2 * 4096 * 1024, rel=0.01)
    assert many["gate projection"].flops == 2 * 2 * 512 * 4096 * 1024
    assert many["gate projection"].bytes > 2 * 64 * 4096 * 1024


def test_names_of_gpus_that_leave_a_doubt_name_them_all_and_other_models_are_refused() -> None:
    assert {gpu.product for gpu in candidates("H100")} == {"H100 PCIe", "H100 SXM5"}
    assert [gpu.product for gpu in candidates("h200")] == ["H200 SXM"]
    assert candidates("no such") == candidates("") == ()
    (h200,) = candidates("H200")
    with pytest.raises(UsageError, match="latent attention"):
        forward_operators(replace(LLAMA, kv_rank=512), BATCHES["prefill"], h200)
