"""Memory planned before a GPU is booked: per-rank bytes by category, with the formula and source of every term.

What is planned is the model, how it is trained or served, how it is spread over ranks, and the GPU it should fit. It is
read from a JSON file of our own, or, for the model alone, from the `config.json` of a model on the Hugging Face Hub; no
code of the hub runs. Standard library only, so that it runs on a machine with nothing installed; `module` alone needs
PyTorch.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from timesink.errors import UsageError
from timesink.untrusted.plain_json import document

Kind = Literal["decoder", "encoder", "vision"]
Precision = Literal["fp32", "amp", "bf16", "fp8"]
Recompute = Literal["none", "selective", "full"]
Sharding = Literal["none", "ddp", "zero1", "zero2", "zero3", "fsdp2"]
OptimizerName = Literal[
    "sgd", "sgd-momentum", "adam", "adam-fused", "adamw", "adamw-fused", "adamw-8bit", "adafactor", "lion", "muon"
]

_HUGE = 1 << 40
# The most that a model has of each, and at least one: a plan walks over each layer and divides by the others.
_MOST = {"layers": 10_000, "heads": 10_000, **dict.fromkeys(("hidden", "feedforward", "vocab", "width"), _HUGE)}


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer. `kv_heads` below `heads` is grouped-query attention; `kv_rank` above 0 is latent attention (MLA).

    `experts` above 0 makes the feed-forward a mixture, `feedforward` being one expert's width. `image` and `patch`
    are pixels; a vision model's `vocab` is its number of classes.
    """

    kind: Kind
    layers: int
    hidden: int
    heads: int
    feedforward: int
    vocab: int
    kv_heads: int = 0
    head_width: int = 0
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    gated: bool = False
    bias: bool = False
    tied: bool = False
    fused_qkv: bool = False
    positions: Literal["learned", "rotary", "none"] = "none"
    max_positions: int = 0
    dropout: float = 0.0
    experts: int = 0
    experts_per_token: int = 1
    shared_experts: int = 0
    expert_capacity: float = 1.0
    kv_rank: int = 0
    rope_width: int = 0
    patch: int = 0
    image: int = 0

    def __post_init__(self) -> None:
        most_of = dict(_MOST)
        if self.experts:
            most_of["experts_per_token"] = self.experts
        if self.patch and self.kind == "vision":
            most_of |= {"image": _HUGE, "patch": self.image}
        for name, most in most_of.items():
            if not 1 <= getattr(self, name) <= most:
                raise UsageError(f"model.{name} is {getattr(self, name)}", remedy=f"at least 1 and at most {most:,}")

    @property
    def width(self) -> int:
        """Width of one head."""
        return self.head_width or self.hidden // self.heads

    @property
    def kv(self) -> int:
        """Width of all key heads together."""
        return (self.kv_heads or self.heads) * self.width

    @property
    def query(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.width


@dataclass(frozen=True, slots=True)
class Training:
    """One rank's micro-batch (`batch` sequences of `sequence` tokens) and the recipe of its step."""

    batch: int
    sequence: int
    precision: Precision = "amp"
    optimizer: OptimizerName = "adamw-fused"
    recompute: Recompute = "none"
    attention: Literal["flash", "math"] = "flash"
    loss: Literal["eager", "chunked", "fused"] = "eager"
    chunks: int = 8
    micro_batches: int = 1
    master_weights: bool = False


@dataclass(frozen=True, slots=True)
class Parallel:
    """How many ranks share each dimension. `data` counts the ranks that sharding spreads over."""

    data: int = 1
    sharding: Sharding = "none"
    gradient_as_bucket_view: bool = False
    tensor: int = 1
    sequence: bool = False
    pipeline: int = 1
    stage: int = 0
    schedule: Literal["1f1b", "gpipe", "zero-bubble"] = "1f1b"
    context: int = 1
    expert: int = 1


@dataclass(frozen=True, slots=True)
class Serving:
    """A served batch: `prompt` tokens are prefilled at once, the cache holds `context` tokens of every sequence."""

    batch: int
    prompt: int
    context: int
    precision: Literal["fp32", "bf16", "fp8"] = "bf16"
    kv_bytes: float = 0.0
    block: int = 0
    speculative_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Gpu:
    """The device: its memory, and what its context and libraries take before a tensor is made.

    Defaults are an H200 as measured (docs/explanation/memory-accuracy.md): cuBLAS takes a workspace of 32 MiB per
    thread on Hopper and 8.125 MiB before it. `communicator_bytes` come on top where ranks talk (NCCL).
    """

    memory_bytes: int = 150_000_000_000
    context_bytes: int = 800_000_000
    communicator_bytes: int = 900_000_000
    workspace_bytes: int = 32 << 20


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything a plan rests on; exactly one of `train` and `serve` is there."""

    model: Model
    train: Training | None = None
    serve: Serving | None = None
    parallel: Parallel = Parallel()
    gpu: Gpu = Gpu()
    name: str = ""

    @property
    def outside_bytes(self) -> int:
        """What the device holds beyond tensors: context and modules, and a communicator where ranks talk."""
        spread = self.parallel
        talks = max(spread.data, spread.tensor, spread.pipeline, spread.context, spread.expert) > 1
        return self.gpu.context_bytes + (self.gpu.communicator_bytes if talks else 0)

    @property
    def training(self) -> Training:
        """How it is trained; `UsageError` for a served model."""
        if self.train is None:
            raise UsageError("a served model has no training settings")
        return self.train

    @property
    def serving(self) -> Serving:
        """How it is served; `UsageError` for a model in training."""
        if self.serve is None:
            raise UsageError("a model in training has no serving settings")
        return self.serve

    def with_train(self, **changes: Any) -> Self:
        """The same with other training settings."""
        return replace(self, train=replace(self.training, **changes))

    def with_serve(self, **changes: Any) -> Self:
        """The same served in another way."""
        return replace(self, serve=replace(self.serving, **changes))

    def with_parallel(self, **changes: Any) -> Self:
        """The same spread in another way."""
        return replace(self, parallel=replace(self.parallel, **changes))


Part = TypeVar("Part")
_PARTS = {"train": Training, "serve": Serving, "parallel": Parallel, "gpu": Gpu}


def _document(path: Path, remedy: str = "") -> Any:
    """The JSON in a file; `UsageError` where there is none."""
    try:
        return document(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", remedy="check the path") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}", remedy=remedy) from error


def stored_configuration(path: Path) -> dict[str, Any]:
    """What a JSON file says of a configuration, which may leave some out. `UsageError` where it is none."""
    given: Any = _document(path, "see docs/how-to/memory.md for an example")
    if not isinstance(given, dict) or not all(isinstance(part, (dict, str)) for part in given.values()):
        raise UsageError(f"{path} is not a configuration: a JSON object of objects")
    return given


def configuration(given: Any) -> Configuration:
    """A configuration from plain dicts, checked field by field."""
    if not isinstance(given, Mapping):
        raise UsageError("a configuration is a JSON object with model and train or serve")
    unknown = set(given) - {"name", "model", *_PARTS}
    if unknown or "model" not in given:
        what = f"unknown part {min(unknown)!r}" if unknown else "no part 'model'"
        raise UsageError(f"the configuration has {what}", remedy=f"its parts are name, model, {', '.join(_PARTS)}")
    parts: dict[str, Any] = {name: _part(kind, given[name], name) for name, kind in _PARTS.items() if name in given}
    config = Configuration(_part(Model, given["model"], "model"), name=str(given.get("name", "")), **parts)
    return checked(config)


def checked(config: Configuration) -> Configuration:
    """The configuration, or `UsageError` where its parts contradict one another."""
    model, parallel = config.model, config.parallel
    if (config.train is None) == (config.serve is None):
        raise UsageError("a configuration has either train or serve", remedy="leave one of them out")
    divides = (
        (model.heads, parallel.tensor, "heads by tensor"),
        (model.layers, parallel.pipeline, "layers by pipeline"),
        (model.experts, parallel.expert, "experts by expert"),
    )
    for whole, parts, what in divides:
        if parts < 1 or (parts > 1 and whole % parts):
            raise UsageError(f"{whole} cannot be split {what}: {parts}", remedy="choose a divisor")
    if not 0 <= parallel.stage < parallel.pipeline:
        raise UsageError(f"there is no pipeline stage {parallel.stage} of {parallel.pipeline}")
    if parallel.sharding in ("zero1", "zero2", "zero3", "fsdp2", "ddp") and parallel.data < 1:
        raise UsageError("data counts at least one rank")
    return config


def json_object(given: Any, where: str) -> Mapping[str, Any]:
    """The part of a configuration that stands there; `UsageError` where it is something else."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{where} is no JSON object", remedy="see docs/how-to/memory.md for an example")
    return given


def _part(kind: type[Part], given: Any, where: str) -> Part:
    hints, given = get_type_hints(kind), json_object(given, where)
    unknown = sorted(set(given) - set(hints))
    if unknown:
        raise UsageError(f"{where} has no {unknown[0]!r}", remedy=f"choose from {', '.join(hints)}")
    missing = [f.name for f in fields(kind) if f.name not in given and f.default is MISSING]  # type: ignore[arg-type]
    if missing:
        raise UsageError(f"{where} lacks {missing[0]!r}")
    return kind(**{name: _value(hints[name], value, f"{where}.{name}") for name, value in given.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UsageError(f"{where} is {value!r}", remedy=f"choose from {', '.join(map(str, get_args(hint)))}")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise UsageError(f"{where} is {value!r}, which is not of type {hint.__name__}")
    if hint in (int, float) and (value < 0 or value > 1 << 50):
        raise UsageError(f"{where} is {value!r}, which is out of range")
    return value


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
    given = _document(path)
    if not isinstance(given, Mapping):
        raise UsageError(f"{path} is no JSON object")
    return model_of(given.get("text_config", given))


def model_in(path: Path) -> Model:
    """The model of either kind of file: a configuration of ours, or a Hugging Face `config.json`."""
    given = _document(path)
    if isinstance(given, Mapping) and isinstance(given.get("model"), Mapping):
        model: Model = _part(Model, given["model"], "model")
        return model
    return read_model(path)


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
    plain, learned = kind in _PLAIN, kind in _LEARNED
    expert_width = found["experts"] and _whole(given, ("moe_intermediate_size",))
    kv_heads = _whole(given, ("num_key_value_heads",)) or (1 if given.get("multi_query") else found["heads"])
    stated = {
        **found,
        "feedforward": expert_width or found["feedforward"] or 4 * found["hidden"],
        "vocab": found["vocab"] or len(given.get("id2label", {})) or 1000,
        "max_positions": found["max_positions"] if learned else 0,
        "experts_per_token": max(found["experts_per_token"], 1),
    }
    return Model(
        kind="vision" if kind in _VISION else "encoder" if kind in _ENCODERS else "decoder",
        kv_heads=kv_heads,
        norm="layernorm" if plain else "rmsnorm",
        gated=not plain,
        bias=plain,
        tied=bool(given.get("tie_word_embeddings", kind == "gpt2")),
        fused_qkv=kind in _FUSED,
        positions="learned" if learned else "rotary",
        **stated,
    )


def _whole(given: Mapping[str, Any], keys: tuple[str, ...]) -> int:
    for key in keys:
        value = given.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40:
            return value
    return 0
