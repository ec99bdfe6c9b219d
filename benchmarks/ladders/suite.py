"""The registry: which programs, which changes, and which of them are set aside."""

from __future__ import annotations

import hashlib
import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SEED = "ladders:"
ASIDE = 4
STEPS = 5
"""Steps recorded, without any mark between them."""
KEPT = 3
"""How many of them are kept, for the sake of size."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """One program and its changes. Losses of the first steps agree with the base within the relative `tolerance`."""

    module: str
    name: str
    kind: str
    changes: tuple[str, ...]
    tolerance: float

    def builder(self) -> Callable[[Any], Callable[[], Any]]:
        return getattr(importlib.import_module(f"benchmarks.ladders.{self.module}"), self.name)

    def variants(self) -> list[tuple[str, ...]]:
        """Every set of changes, the base first: so every rung of every order is measured."""
        counts = range(len(self.changes) + 1)
        return [chosen for count in counts for chosen in itertools.combinations(self.changes, count)]


_WAV2VEC = ("drop_debugging", "no_recomputation", "bf16", "fused_attention")
_RECOMMENDER = ("loader_workers", "pin_memory", "batch_small_calls", "fused_optimizer")
_CONVNEXT = ("loader_workers", "bf16", "channels_last", "fused_optimizer")
_EXPERTS = ("batch_small_calls", "fused_optimizer", "pin_memory", "tf32")
_MOBILENET = ("loader_workers", "channels_last", "bf16", "fused_optimizer")
_BERT = ("no_recomputation", "bf16", "fused_attention", "fused_optimizer")
_POLICY = ("list_operations", "fused_optimizer", "compile", "cuda_graph")
FIRST = (
    Ladder("images", "convnext_training", "training", _CONVNEXT, 2e-2),
    Ladder("images", "mixer_training", "training", ("bf16", "compile", "fused_optimizer", "list_operations"), 2e-2),
    Ladder("images", "dcgan_training", "training", ("remove_sync", "channels_last", "bf16", "fused_optimizer"), 5e-2),
    Ladder("speech", "speech_serving", "serving", ("bf16", "fused_attention", "compile", "pin_memory"), 2e-2),
    Ladder("speech", "wav2vec_finetuning", "fine-tuning", _WAV2VEC, 2e-2),
    Ladder("speech", "transducer_decoding", "decoding", ("remove_sync", "cuda_graph", "compile", "bf16"), 5e-2),
    Ladder("others", "t5_finetuning", "fine-tuning", ("bf16", "compile", "fused_attention", "fused_optimizer"), 2e-2),
    Ladder("others", "recommender_training", "training", _RECOMMENDER, 2e-2),
    Ladder("others", "graph_training", "training", ("compile", "tf32", "remove_sync", "pin_memory"), 2e-2),
    Ladder("others", "dit_sampling", "sampling", ("batch_small_calls", "bf16", "compile", "cuda_graph"), 2e-2),
)
LATER = (
    Ladder("vision", "resnet_training", "training", ("loader_workers", "channels_last", "bf16", "compile"), 2e-2),
    Ladder("vision", "unet_segmentation", "training", ("bf16", "channels_last", "pin_memory", "remove_sync"), 2e-2),
    Ladder("vision", "clip_serving", "serving", ("bf16", "fused_attention", "compile", "cuda_graph"), 2e-2),
    Ladder("sequences", "gpt_training", "training", ("fused_optimizer", "fused_attention", "bf16", "compile"), 2e-2),
    Ladder("sequences", "chat_decoding", "decoding", ("remove_sync", "cuda_graph", "compile", "bf16"), 5e-2),
    Ladder("sequences", "experts_training", "training", _EXPERTS, 2e-2),
)
"""All of them to tune on."""
RELATIVES = (
    Ladder("scenes", "mobilenet_training", "training", _MOBILENET, 2e-2),
    Ladder("scenes", "pointcloud_training", "training", ("compile", "tf32", "remove_sync", "pin_memory"), 2e-2),
    Ladder("scenes", "vae_training", "training", ("list_operations", "bf16", "channels_last", "compile"), 2e-2),
    Ladder("scenes", "detector_serving", "serving", ("bf16", "channels_last", "compile", "remove_sync"), 2e-2),
    Ladder("records", "caption_decoding", "decoding", ("remove_sync", "cuda_graph", "compile", "bf16"), 5e-2),
    Ladder("records", "click_training", "training", _RECOMMENDER, 2e-2),
    Ladder("records", "bert_finetuning", "fine-tuning", _BERT, 2e-2),
    Ladder("records", "policy_training", "training", _POLICY, 2e-2),
)
"""These too."""
LADDERS = FIRST + LATER + RELATIVES


def rank(name: str) -> str:
    return hashlib.sha256((SEED + name).encode()).hexdigest()


SET_ASIDE = frozenset(sorted((ladder.name for ladder in FIRST), key=rank)[:ASIDE])
SPLITS = ("tune", "aside")


def split(name: str) -> str:
    return "aside" if name in SET_ASIDE else "tune"


def find(name: str) -> Ladder:
    return next(ladder for ladder in LADDERS if ladder.name == name)


def slug(changes: tuple[str, ...]) -> str:
    """A set of changes as the measurements call it."""
    return "+".join(changes) or "base"


def of_slug(name: str) -> tuple[str, ...]:
    """The changes of a set by what the measurements call it."""
    return () if name == "base" else tuple(name.split("+"))
