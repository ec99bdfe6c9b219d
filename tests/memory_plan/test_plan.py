"""The plan's laws: terms sum to the peak, and more of anything never needs less."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink.errors import UsageError
from timesink.memory_plan import Configuration, configuration, stored_configuration
from timesink.memory_plan.plan import moments_of, peak_bytes, plan, terms_of
from timesink.memory_plan.step import MemoryCategory
from timesink.records import replace

GPT = {"kind": "decoder", "layers": 4, "hidden": 128, "heads": 4, "feedforward": 512, "vocab": 1000}


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """Small models of every kind, trained or served in every way."""
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    model = {
        **GPT,
        "kind": pick("decoder", "encoder", "vision"),
        "kv_heads": pick(0, 1, 2),
        "norm": pick("layernorm", "rmsnorm"),
        "gated": draw(st.booleans()),
        "bias": draw(st.booleans()),
        "tied": draw(st.booleans()),
        "fused_qkv": draw(st.booleans()),
        "positions": pick("learned", "rotary", "none"),
        "max_positions": 64,
        "dropout": pick(0.0, 0.1),
        "experts": pick(0, 8),
        "experts_per_token": pick(1, 2),
        "shared_experts": pick(0, 1),
        "kv_rank": pick(0, 32),
        "patch": 8,
        "image": 64,
    }
    given_: dict[str, Any] = {"model": model}
    if draw(st.booleans()):
        given_["train"] = {
            "batch": draw(st.integers(1, 9)),
            "sequence": pick(16, 128, 500),
            "precision": pick("fp32", "amp", "bf16", "fp8"),
            "optimizer": pick("sgd", "sgd-momentum", "adamw", "adamw-fused", "adamw-8bit", "lion", "muon"),
            "recompute": pick("none", "selective", "full"),
            "attention": pick("flash", "math"),
            "loss": pick("eager", "chunked", "fused"),
            "micro_batches": draw(st.integers(1, 4)),
            "master_weights": draw(st.booleans()),
        }
        given_["parallel"] = {
            "data": pick(1, 2, 8),
            "sharding": pick("none", "ddp", "zero1", "zero2", "zero3", "fsdp2"),
            "gradient_as_bucket_view": draw(st.booleans()),
            "tensor": pick(1, 2),
            "sequence": draw(st.booleans()),
            "pipeline": pick(1, 2),
            "context": pick(1, 2),
            "schedule": pick("1f1b", "gpipe"),
        }
    else:
        given_["serve"] = {"batch": draw(st.integers(1, 9)), "prompt": 64, "context": 256, "block": pick(0, 16)}
    return configuration(given_)


@given(configurations())
def test_terms_sum_to_every_moment_category_by_category(config: Configuration) -> None:
    for moment in moments_of(config):
        terms = terms_of(config, moment)
        sums = {part: sum(term.size_bytes for term in terms if term.part is part) for part in MemoryCategory}
        assert {part: size for part, size in sums.items() if size} == moment.parts
        assert all(term.size_bytes >= 0 and term.formula and term.source for term in terms)


@given(configurations())
def test_a_larger_batch_never_needs_less(config: Configuration) -> None:
    if config.train:
        larger = config.with_train(batch=config.train.batch + 1)
    else:
        assert config.serve
        larger = replace(config, serve=replace(config.serve, batch=config.serve.batch + 1))
    assert peak_bytes(larger) >= peak_bytes(config)


@given(configurations())
def test_what_fits_fits_and_one_more_does_not(config: Configuration) -> None:
    tight = replace(config, gpu=replace(config.gpu, memory_bytes=2_000_000_000))
    found = plan(tight)

    def needs(batch: int) -> int:
        other = (
            tight.with_train(batch=batch) if tight.train else replace(tight, serve=replace(tight.serve, batch=batch))  # type: ignore[type-var]
        )
        return peak_bytes(other) + tight.outside_bytes

    assert found.most_batch == 0 or needs(found.most_batch) <= 2_000_000_000
    assert needs(found.most_batch + 1) > 2_000_000_000
    assert found.fits == (found.device_bytes <= 2_000_000_000)


@given(configurations())
def test_a_change_frees_exactly_the_difference_of_two_plans(config: Configuration) -> None:
    found = plan(config)
    assert all(change.freed_bytes > 0 for change in found.changes)
    assert [change.freed_bytes for change in found.changes] == sorted(
        (change.freed_bytes for change in found.changes), reverse=True
    )
    if config.train and config.train.recompute != "full":
        freed = found.peak_bytes - peak_bytes(config.with_train(recompute="full"))
        named = {change.label: change.freed_bytes for change in found.changes}
        assert named.get("recompute every block", 0) == max(freed, 0)


def test_a_gpt_block_by_hand_in_pure_bf16() -> None:
    """4 blocks of 32 sbh: input 2, norm 2, qkv 6, attention 2, sum 2, norm 2, up 8, gelu 8; plus statistics."""
    given_ = {
        "model": {**GPT, "fused_qkv": True},
        "train": {"batch": 2, "sequence": 64, "precision": "bf16", "optimizer": "sgd"},
    }
    config = configuration(given_)
    moment = next(one for one in moments_of(config) if one.what == "last block")
    tokens, statistics = 128, 4 * 4 * 128 + 2 * 8 * 128
    assert moment.parts[MemoryCategory.ACTIVATIONS] == 4 * (32 * tokens * 128 + statistics)
    parameters = 2 * 1000 * 128 + 4 * (12 * 128 * 128 + 4 * 128) + 2 * 128
    assert moment.parts[MemoryCategory.WEIGHTS] == 2 * parameters


def test_a_fused_loss_over_images_keeps_one_row_per_image() -> None:
    """64 patches: each of 4 blocks keeps its input; the norm its input and 2 statistics; the head the mean, one row."""
    model = {**GPT, "kind": "vision", "bias": False, "max_positions": 64, "patch": 8, "image": 64}
    train = {"batch": 1, "sequence": 16, "precision": "fp32", "optimizer": "sgd", "recompute": "full", "loss": "fused"}
    config = configuration({"model": model, "train": train})
    moment = next(one for one in moments_of(config) if (one.phase, one.what) == ("forward", "loss"))
    blocks, ends = 4 * 64 * 128 * 4, 64 * 128 * 4 + 2 * 4 * 64 + 128 * 4
    assert moment.parts[MemoryCategory.ACTIVATIONS] == blocks + ends
    activations = [term.size_bytes for term in terms_of(config, moment) if term.part is MemoryCategory.ACTIVATIONS]
    assert activations == [blocks, ends]


def test_full_recomputation_keeps_two_sbh_per_block() -> None:
    train = {"batch": 2, "sequence": 64, "precision": "bf16", "recompute": "full"}
    config = configuration({"model": GPT, "train": train})
    moment = next(one for one in moments_of(config) if one.what == "last block")
    assert moment.parts[MemoryCategory.ACTIVATIONS] == 4 * 2 * 128 * 128


def test_the_first_stage_of_1f1b_holds_as_many_micro_batches_as_there_are_stages() -> None:
    train = {"batch": 1, "sequence": 64, "micro_batches": 8}

    def activations(stage: int, schedule: str = "1f1b") -> int:
        parallel = {"pipeline": 4, "stage": stage, "schedule": schedule}
        config = configuration({"model": GPT, "train": train, "parallel": parallel})
        return next(one for one in moments_of(config) if one.what == "last block").parts[MemoryCategory.ACTIVATIONS]

    assert activations(0) == 4 * activations(3)
    assert activations(0, "gpipe") == 8 * activations(3)


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"model": GPT}, "either train or serve"),
        ({"train": {}}, "no part 'model'"),
        ({"model": {**GPT, "colour": 1}, "train": {"batch": 1, "sequence": 1}}, "no 'colour'"),
        ({"model": GPT, "train": {"batch": 1}}, "lacks 'sequence'"),
        ({"model": GPT, "train": {"batch": -1, "sequence": 1}}, "out of range"),
        ({"model": GPT, "train": {"batch": True, "sequence": 1}}, "not of type int"),
        ({"model": GPT, "train": {"batch": 1, "sequence": 1, "precision": "int3"}}, "int3"),
        ({"model": GPT, "train": {"batch": 1, "sequence": 1}, "parallel": {"tensor": 3}}, "cannot be split"),
        ([], "JSON object"),
        *(
            ({"model": {**GPT, **sizes}, "train": {"batch": 1, "sequence": 1}}, f"model.{name} is {value}")
            for sizes in (
                {"layers": 0},
                {"hidden": 0},
                {"heads": 0},
                {"feedforward": 0},
                {"vocab": 0},
                {"layers": 10_001},
                {"experts": 4, "experts_per_token": 0},
                {"experts": 4, "experts_per_token": 5},
                {"kind": "vision", "patch": 16, "image": 0},
                {"kind": "vision", "image": 8, "patch": 16},
            )
            for name, value in [list(sizes.items())[-1]]
        ),
        ({"model": {**GPT, "hidden": GPT["heads"] - 1}, "train": {"batch": 1, "sequence": 1}}, "model.width is 0"),
    ],
)
def test_a_wrong_configuration_is_named(given_: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        configuration(given_)


def test_a_configuration_file_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model": GPT, "train": {"batch": 3, "sequence": 7}}))
    assert configuration(stored_configuration(path)).training.batch == 3
    path.write_text("{")
    with pytest.raises(UsageError, match="no JSON"):
        stored_configuration(path)
