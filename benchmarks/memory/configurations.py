"""The programs that are measured, in the words of `timesink memory plan`: each is a whole configuration file."""

from __future__ import annotations

from typing import Any

GPT = {
    "kind": "decoder",
    "layers": 12,
    "hidden": 1024,
    "heads": 16,
    "feedforward": 4096,
    "vocab": 50304,
    "norm": "layernorm",
    "bias": True,
    "fused_qkv": True,
    "positions": "learned",
    "max_positions": 1024,
    "tied": True,
}
LLAMA = {
    "kind": "decoder",
    "layers": 8,
    "hidden": 2048,
    "heads": 16,
    "kv_heads": 4,
    "feedforward": 5632,
    "vocab": 32000,
    "norm": "rmsnorm",
    "gated": True,
    "positions": "rotary",
}
ENCODER = {
    **GPT,
    "kind": "encoder",
    "hidden": 768,
    "heads": 12,
    "feedforward": 3072,
    "vocab": 30522,
    "max_positions": 512,
}
VISION = {
    "kind": "vision",
    "layers": 12,
    "hidden": 768,
    "heads": 12,
    "feedforward": 3072,
    "vocab": 1000,
    "norm": "layernorm",
    "bias": True,
    "fused_qkv": True,
    "patch": 16,
    "image": 224,
    "positions": "learned",
    "max_positions": 196,
}


def train(batch: int, sequence: int, precision: str, optimizer: str, **more: Any) -> dict[str, Any]:
    return {"batch": batch, "sequence": sequence, "precision": precision, "optimizer": optimizer, **more}


def configuration(name: str, model: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "model": model, **sections}


CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    configuration("gpt-amp-adamw-b8", GPT, train=train(8, 1024, "amp", "adamw")),
    configuration("gpt-amp-fused-b8", GPT, train=train(8, 1024, "amp", "adamw-fused")),
    configuration("gpt-amp-fused-b4", GPT, train=train(4, 1024, "amp", "adamw-fused")),
    configuration("gpt-amp-fused-b16", GPT, train=train(16, 1024, "amp", "adamw-fused")),
    configuration("gpt-amp-fused-b16-full", GPT, train=train(16, 1024, "amp", "adamw-fused", recompute="full")),
    configuration("gpt-bf16-fused-b16", GPT, train=train(16, 1024, "bf16", "adamw-fused")),
    configuration("gpt-bf16-adamw-b2", GPT, train=train(2, 1024, "bf16", "adamw")),
    configuration("gpt-amp-math-b4", GPT, train=train(4, 1024, "amp", "adamw-fused", attention="math")),
    configuration("gpt-fp32-sgd-b4", GPT, train=train(4, 1024, "fp32", "sgd-momentum", attention="math")),
    configuration("gpt-amp-dropout-b8", {**GPT, "dropout": 0.1}, train=train(8, 1024, "amp", "adamw-fused")),
    configuration("llama-bf16-fused-b4", LLAMA, train=train(4, 2048, "bf16", "adamw-fused")),
    configuration("llama-bf16-fused-b8", LLAMA, train=train(8, 2048, "bf16", "adamw-fused")),
    configuration("llama-bf16-adamw-b4", LLAMA, train=train(4, 2048, "bf16", "adamw")),
    configuration("llama-bf16-fused-b8-full", LLAMA, train=train(8, 2048, "bf16", "adamw-fused", recompute="full")),
    configuration("llama-amp-fused-b4", LLAMA, train=train(4, 2048, "amp", "adamw-fused")),
    configuration("encoder-amp-adamw-b32", ENCODER, train=train(32, 512, "amp", "adamw")),
    configuration("vision-amp-fused-b128", VISION, train=train(128, 196, "amp", "adamw-fused")),
    configuration("llama-serve-b16", LLAMA, serve={"batch": 16, "prompt": 2048, "context": 4096, "precision": "bf16"}),
    configuration("gpt-serve-b64", GPT, serve={"batch": 64, "prompt": 512, "context": 1024, "precision": "bf16"}),
    configuration(
        "gpt-amp-fused-ddp2", GPT, train=train(8, 1024, "amp", "adamw-fused"), parallel={"data": 2, "sharding": "ddp"}
    ),
    configuration(
        "gpt-amp-fused-ddp2-view",
        GPT,
        train=train(8, 1024, "amp", "adamw-fused"),
        parallel={"data": 2, "sharding": "ddp", "gradient_as_bucket_view": True},
    ),
    configuration(
        "llama-amp-fused-fsdp2",
        LLAMA,
        train=train(4, 2048, "amp", "adamw-fused"),
        parallel={"data": 2, "sharding": "fsdp2"},
    ),
    configuration(
        "llama-bf16-fused-fsdp2-full",
        LLAMA,
        train=train(4, 2048, "bf16", "adamw-fused", recompute="full"),
        parallel={"data": 2, "sharding": "fsdp2"},
    ),
)
