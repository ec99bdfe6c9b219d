"""PyTorch's own run on the meta device is the second opinion on the tape. Needs PyTorch; no GPU."""

from __future__ import annotations

from typing import Any

import pytest

from timesink.memory_plan import configuration
from timesink.memory_plan.plan import moments_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

SMALL = {"layers": 3, "hidden": 256, "heads": 4, "feedforward": 1024, "vocab": 5000}
GPT = {
    **SMALL,
    "kind": "decoder",
    "bias": True,
    "fused_qkv": True,
    "positions": "learned",
    "max_positions": 512,
    "tied": True,
}
LLAMA = {**SMALL, "kind": "decoder", "kv_heads": 2, "norm": "rmsnorm", "gated": True, "positions": "rotary"}


def both(model: dict[str, Any], **train: Any) -> tuple[dict[str, int], Any]:
    """Planned peaks by phase without workspaces and states, and what PyTorch did."""
    from benchmarks.memory.models import Transformer

    from timesink.memory_plan.module import module_memory

    recipe = {"batch": 4, "sequence": 512, "optimizer": "sgd", **train}
    config = configuration({"model": model, "train": recipe, "gpu": {"workspace_bytes": 0}})
    planned: dict[str, int] = {}
    for moment in moments_of(config):
        planned[moment.phase] = max(planned.get(moment.phase, 0), moment.total_bytes)
    with torch.device("meta"):
        module = Transformer(model, recipe.get("attention", "flash"), recipe.get("recompute", "none"))
        tokens = torch.empty(4, 512, dtype=torch.long)
    if recipe["precision"] == "bf16":
        module = module.to(torch.bfloat16)
    return planned, module_memory(module, (tokens, tokens.clone()), lambda x: x, autocast=recipe["precision"] == "amp")


@pytest.mark.parametrize("model", [GPT, LLAMA], ids=["gpt", "llama"])
@pytest.mark.parametrize(
    "train",
    [
        {"precision": "bf16"},
        {"precision": "amp"},
        {"precision": "bf16", "recompute": "full"},
        {"precision": "amp", "recompute": "full"},
        {"precision": "fp32", "attention": "math"},
    ],
    ids=lambda train: "-".join(map(str, train.values())),
)
def test_tape_and_pytorch_agree_within_two_per_cent(model: dict[str, Any], train: dict[str, Any]) -> None:
    if model is LLAMA and train.get("attention") == "math":
        pytest.skip("the measured Llama repeats no keys for unfused attention")
    planned, ran = both(model, **train)
    assert planned["forward"] == pytest.approx(ran.forward_peak_bytes, rel=0.02)
    assert planned["backward"] == pytest.approx(ran.backward_peak_bytes, rel=0.02)


def test_a_module_of_any_kind_by_hand() -> None:
    """Two linears of 64 x 64 and a ReLU, 1024 rows in fp32: ReLU's result and the input are kept, 256 KiB each."""
    from timesink.memory_plan.module import module_memory

    with torch.device("meta"):
        net = torch.nn.Sequential(
            torch.nn.Linear(64, 64, bias=False), torch.nn.ReLU(), torch.nn.Linear(64, 64, bias=False)
        )
        x = torch.empty(1024, 64)
    found = module_memory(net, (x,))
    assert (found.parameters, found.weights_bytes, found.gradients_bytes) == (8192, 32768, 32768)
    assert found.inputs_bytes == 1024 * 64 * 4
    assert found.activations_bytes == 1024 * 64 * 4 + 512  # ReLU's result, and the sum
    assert found.peak_bytes(8) == max(found.forward_peak_bytes, found.backward_peak_bytes) + 8 * 8192
