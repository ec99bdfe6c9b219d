"""Published figures come out of the planner: ZeRO, Korthikanti et al., Llama, and caches of public models."""

from typing import Any

import pytest
from tests.memory_plan.published_formulas import (
    gated_layer_bytes,
    korthikanti_layer_bytes,
    mixed_precision_adam_bytes,
    zero_bytes,
)

from timesink.memory_plan import Model, Parallel, Training, configuration, model_of
from timesink.memory_plan.blocks import Shapes, block, shapes_of
from timesink.memory_plan.step import MemoryCategory, kv_bytes_per_token, parameters, states

LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
GPT3 = Model("decoder", 96, 12288, 96, 4 * 12288, 51200, bias=True, fused_qkv=True, dropout=0.1)
STATES = (MemoryCategory.WEIGHTS, MemoryCategory.GRADIENTS, MemoryCategory.OPTIMIZER_STATE)


def state_bytes(**parallel: Any) -> int:
    """Model states of a model of exactly a thousand times 1024 parameters per rank."""
    given = {
        "model": {"kind": "decoder", "layers": 1, "hidden": 64, "heads": 1, "feedforward": 64, "vocab": 64},
        "train": {"batch": 1, "sequence": 1, "precision": "bf16", "optimizer": "adamw", "master_weights": True},
        "parallel": parallel,
    }
    return states(configuration(given)).total(*STATES)


def count() -> int:
    return parameters(Model("decoder", 1, 64, 1, 64, 64), Parallel()).total


def test_mixed_precision_adam_takes_sixteen_bytes_per_parameter() -> None:
    assert mixed_precision_adam_bytes(1_000_000_000) == 16_000_000_000
    assert state_bytes() == 16 * count()


@pytest.mark.parametrize(("stage", "sharding"), [(0, "none"), (1, "zero1"), (2, "zero2"), (3, "zero3")])
def test_zero_divides_what_its_paper_says(stage: Any, sharding: str) -> None:
    assert state_bytes(sharding=sharding, data=8) == pytest.approx(zero_bytes(count(), 8, stage), rel=1e-4)


def test_zero_papers_example_of_seven_and_a_half_billion_parameters_on_64_ranks() -> None:
    """Figure 1 of the paper: 120 GB, 31.4 GB, 16.6 GB, 1.88 GB."""
    found = [zero_bytes(7_500_000_000, 64, stage) / 1e9 for stage in (0, 1, 2, 3)]
    assert found == pytest.approx([120, 31.4, 16.6, 1.88], abs=0.06)


def test_pure_bf16_adam_takes_eight_and_autocast_sixteen_bytes_per_parameter() -> None:
    model = {"kind": "decoder", "layers": 1, "hidden": 64, "heads": 1, "feedforward": 64, "vocab": 64}
    for precision, expected in (("bf16", 8), ("amp", 16), ("fp32", 16)):
        train = {"batch": 1, "sequence": 1, "precision": precision, "optimizer": "adamw"}
        assert states(configuration({"model": model, "train": train})).total(*STATES) == expected * count()


def test_korthikanti_gives_the_papers_share_of_attention_for_gpt3() -> None:
    """Section 4.2: for GPT-3 (a=96, s=2048, h=12288) 5as/h is 80 beside 34."""
    assert korthikanti_layer_bytes(2048, 1, 12288, 96) == pytest.approx(2048 * 12288 * 114)
    assert korthikanti_layer_bytes(2048, 1, 12288, 96, 8, "selective") == pytest.approx(34 * 2048 * 12288 / 8)
    assert korthikanti_layer_bytes(2048, 1, 12288, 96, variant="full") == 2 * 2048 * 12288


def test_the_tape_keeps_what_korthikanti_counts_outside_of_attention_scores() -> None:
    """34 sbh holds for 16 bits with two dropout masks and the scores' inputs kept: q, k, v 6, output 2, the rest 26."""
    shapes = Shapes(batch=1, sequence=2048, compute=2, residual=2, amp=False)
    sbh = 2048 * 12288
    saved = block(GPT3, shapes).saved_bytes
    small = 4 * 96 * 2048 + 2 * 8 * 2048  # log-sum-exp, and mean and deviation of two norms
    # The paper's 34 counts both operands of each product; flash attention keeps none of the scores.
    assert saved - small == 34 * sbh


def test_sequence_parallelism_divides_the_tape_by_the_tensor_parallel_ranks() -> None:
    train = Training(1, 2048, "bf16")
    whole = block(GPT3, shapes_of(GPT3, train, Parallel())).saved_bytes
    plain = block(GPT3, shapes_of(GPT3, train, Parallel(tensor=8))).saved_bytes
    both = block(GPT3, shapes_of(GPT3, train, Parallel(tensor=8, sequence=True))).saved_bytes
    sbh = 2048 * 12288
    assert both == pytest.approx(whole / 8, rel=0.01)
    assert plain == pytest.approx(sbh * (10 + 24 / 8), rel=0.01)


def test_llama_8b_keeps_4_46_megabytes_per_token_over_32_layers() -> None:
    model = model_of(LLAMA_8B)
    by_formula = gated_layer_bytes(1, 4096, 8 / 32, 14336)
    assert by_formula == 139_264
    assert 32 * by_formula == pytest.approx(4.46e6, rel=0.001)
    saved = block(model, Shapes(1, 4096, 2, 2, amp=False)).saved()
    eager = sum(size for _, size in saved) / 4096
    silu = next(size for name, size in saved if name == "silu") / 4096
    statistics = sum(size for name, size in saved if name.endswith("statistics or mask")) / 4096
    assert eager - silu - statistics == by_formula


def test_llama_3_8b_has_its_published_number_of_parameters() -> None:
    assert parameters(model_of(LLAMA_8B), Parallel()).total == 8_030_261_248


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA_8B, 131_072),  # 2 x 32 x 8 x 128 x 2
        ({**LLAMA_8B, "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64}, 327_680),  # 70B
        (
            {
                "model_type": "llama",
                "hidden_size": 4096,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "intermediate_size": 11008,
                "vocab_size": 32000,
            },
            524_288,
        ),  # Llama-2-7B, every head its own: half a megabyte
        (
            {
                "model_type": "deepseek_v3",
                "hidden_size": 7168,
                "num_hidden_layers": 61,
                "num_attention_heads": 128,
                "num_key_value_heads": 128,
                "kv_lora_rank": 512,
                "qk_rope_head_dim": 64,
                "v_head_dim": 128,
                "intermediate_size": 18432,
                "moe_intermediate_size": 2048,
                "n_routed_experts": 256,
                "n_shared_experts": 1,
                "num_experts_per_tok": 8,
                "vocab_size": 129280,
            },
            70_272,
        ),  # 61 x (512 + 64) x 2: the 70 kB of the DeepSeek-V3 report
    ],
)
def test_caches_of_public_models_take_their_published_bytes_per_token(config: dict[str, Any], expected: int) -> None:
    assert kv_bytes_per_token(model_of(config), 2) == expected


def test_tensor_parallelism_divides_the_cache_down_to_one_head() -> None:
    model = model_of(LLAMA_8B)
    assert [kv_bytes_per_token(model, 2, t) for t in (1, 8, 32)] == [131_072, 16_384, 16_384]
