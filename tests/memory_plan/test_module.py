"""PyTorch's own run on the meta device is the second opinion on the tape. Needs PyTorch; no GPU.

The tape against arithmetic by hand.
"""

from typing import Any

import pytest

from timesink.memory_plan import configuration
from timesink.memory_plan.blocks import Tape, Value
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


@pytest.mark.slow
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


def chain() -> Tape:
    """x -> a (100 bytes, keeps x) -> b (10 bytes, keeps its result)."""
    tape, x = Tape(), Value("x", 40)
    a = tape.op("a", (x,), 100, saves=(x,))
    tape.op("b", (a,), 10, saves_output=True)
    return tape


def test_saved_storages_count_once_however_many_operators_keep_them() -> None:
    tape, x = Tape(), Value("x", 40)
    for name in ("q", "k", "v"):
        tape.op(name, (x,), 10, saves=(x,))
    assert tape.saved_bytes == 40
    assert tape.saved() == [("x", 40)]


def test_forward_holds_what_is_saved_and_what_is_still_used() -> None:
    """x 40 is kept; a 100 and b 10 are there together when b is made: 150."""
    assert chain().forward_peak_bytes() == 150


def test_without_training_the_input_belongs_to_the_caller_and_nothing_is_kept() -> None:
    assert chain().forward_peak_bytes(is_trained=False) == 110


def test_backward_peaks_where_a_wide_gradient_meets_the_next() -> None:
    """Gradient of b 10, of a 100 beside it: 110; then b's 10 and its saved 10 go, and x's 40 comes: 130."""
    assert chain().backward_peak_bytes() == 130


def test_an_addition_hands_its_gradient_on() -> None:
    """y = x + f(x): x's gradient is y's own storage, so only f's gradient is allocated, and added in place."""
    tape, x = Tape(), Value("x", 8)
    f = tape.op("f", (x,), 8, saves=(x,))
    tape.op("add", (x, f), 8, passes_grad=True)
    # y's gradient 8, f's 8; going through f makes another 8 for x, to be added: 24.
    assert tape.backward_peak_bytes() == 24


def test_a_weight_gradient_stays_and_its_extra_goes() -> None:
    tape, x = Tape(), Value("x", 8)
    tape.op("linear", (x,), 8, weight_grad_bytes=100, backward_extra_bytes=50)
    assert tape.backward_peak_bytes() == 8 + 8 + 150
