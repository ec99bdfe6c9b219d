"""A model's `config.json` from the Hugging Face Hub, read for what memory depends on. No code of the hub runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timesink.errors import UsageError
from timesink.memory_plan.config import Model
from timesink.plain_json import document

_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head"),
    "feedforward": ("intermediate_size", "n_inner", "ffn_dim", "d_ff"),
    "vocab": ("vocab_size",),
    "max_positions": ("max_position_embeddings", "n_positions"),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts"),
    "experts_per_token": ("num_experts_per_tok",),
    "shared_experts": ("n_shared_experts",),
    "kv_rank": ("kv_lora_rank",),
    "rope_width": ("qk_rope_head_dim",),
    "head_width": ("head_dim", "v_head_dim"),
    "patch": ("patch_size",),
    "image": ("image_size",),
}
_LEARNED = ("gpt2", "bert", "roberta", "opt", "vit", "clip_vision_model", "gpt_bigcode")
_PLAIN = ("gpt2", "bert", "roberta", "opt", "vit", "clip_vision_model", "gpt_bigcode", "gpt_neox", "falcon", "phi")
_ENCODERS = ("bert", "roberta", "distilbert", "electra", "modernbert")
_VISION = ("vit", "clip_vision_model", "deit", "dinov2")
_FUSED = ("gpt2", "gpt_neox", "gpt_bigcode", "phi3", "falcon")


def read_model(path: Path) -> Model:
    """The model in a Hugging Face `config.json`. `UsageError` names what it does not say."""
    try:
        given = document(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", remedy="check the path") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    if not isinstance(given, Mapping):
        raise UsageError(f"{path} is no JSON object")
    return model_of(given.get("text_config", given))


def model_of(given: Mapping[str, Any]) -> Model:
    """The model a parsed configuration describes.

    The feed-forward of a mixture is one expert's; layers that DeepSeek keeps dense count as mixtures, which puts the
    plan on the high side by their difference.
    """
    kind = str(given.get("model_type", ""))
    found = {name: _whole(given, keys) for name, keys in _KEYS.items()}
    for name in ("layers", "hidden", "heads"):
        if not found[name]:
            raise UsageError(f"the configuration has no {' or '.join(_KEYS[name])}", remedy="give a transformer's")
    plain = kind in _PLAIN
    experts = found["experts"]
    inner = (experts and _whole(given, ("moe_intermediate_size",))) or found["feedforward"] or 4 * found["hidden"]
    return Model(
        kind="vision" if kind in _VISION else "encoder" if kind in _ENCODERS else "decoder",
        layers=found["layers"],
        hidden=found["hidden"],
        heads=found["heads"],
        feedforward=inner,
        vocab=found["vocab"] or len(given.get("id2label", {})) or 1000,
        kv_heads=_whole(given, ("num_key_value_heads",)) or (1 if given.get("multi_query") else found["heads"]),
        head_width=found["head_width"],
        norm="layernorm" if plain else "rmsnorm",
        gated=not plain,
        bias=plain,
        tied=bool(given.get("tie_word_embeddings", kind == "gpt2")),
        fused_qkv=kind in _FUSED,
        positions="learned" if kind in _LEARNED else "rotary",
        max_positions=found["max_positions"] if kind in _LEARNED else 0,
        experts=experts,
        experts_per_token=max(found["experts_per_token"], 1),
        shared_experts=found["shared_experts"],
        kv_rank=found["kv_rank"],
        rope_width=found["rope_width"],
        patch=found["patch"],
        image=found["image"],
    )


def _whole(given: Mapping[str, Any], keys: tuple[str, ...]) -> int:
    for key in keys:
        value = given.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40:
            return value
    return 0
