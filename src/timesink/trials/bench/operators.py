"""One operator as it was recorded and in other forms."""

import ast
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch

from timesink.trials.bench.timing import Question, is_sticky, on_gpu, tf32, timed_us

TYPES: Final = {
    "float": torch.float32, "double": torch.float64, "c10::BFloat16": torch.bfloat16, "c10::Half": torch.float16,
    "long int": torch.int64, "long": torch.int64, "int": torch.int32, "bool": torch.bool,
    "unsigned char": torch.uint8, "signed char": torch.int8, "short int": torch.int16,
}  # fmt: skip
_WRAPPED: Final = {"double": 0.5, "long int": 2}  # numbers of the program, which PyTorch takes for tensors
NARROW: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}
_STATISTICS: Final = frozenset({"mean", "rstd", "save_mean", "save_invstd", "save_var", "running_mean", "running_var"})
"""Arguments of normalizations that are in fp32 whatever the others are."""
_COLD_BYTES: Final = 200_000_000  # four times the cache of an H100
_MOST_COPIES: Final = 24 if torch.cuda.is_available() else 2
_MOST_BYTES: Final = 4_000_000_000  # of copies of operands
_MOST_ELEMENTS: Final = 1 << 31  # of an operand: a trace may say anything
_ALIGNED: Final = 8  # elements of 16 bits in 16 bytes


def tensor(shape: Sequence[int], strides: Sequence[int] | None, kind: torch.dtype) -> torch.Tensor:
    """Random normal numbers of that shape, type and layout."""
    where = "cuda" if on_gpu() else "cpu"
    strides = strides if strides and len(strides) == len(shape) else None
    if strides is None or not shape:
        room = 1
        for size in shape:
            room *= size
    else:
        room = 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True) if size)
    if room > _MOST_ELEMENTS:
        raise ValueError(f"an operand of {room} elements is not made")
    if kind.is_floating_point:
        flat = torch.randn(room, device=where, dtype=torch.float32).to(kind)
    else:
        flat = torch.zeros(room, device=where, dtype=kind)
    return flat.view(shape) if strides is None else flat.as_strided(tuple(shape), tuple(strides))


def arguments(question: Question) -> list[Any]:
    """The recorded arguments of an operator."""
    made: list[Any] = []
    for shape, kind, strides, text in zip(
        question["shapes"], question["types"], question["strides"], question["scalars"], strict=True
    ):
        if shape == [] and kind in _WRAPPED and text == "":
            made.append(_WRAPPED[kind])
        elif kind in TYPES and isinstance(shape, list) and (shape or text == ""):
            made.append(tensor(shape, strides, TYPES[kind]))
        elif text == "":
            made.append(None)
        else:
            made.append(ast.literal_eval(text.replace("inf", "1e38")))
    return made


def converted(values: Sequence[Any], change: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
    """The same with each floating tensor changed."""
    return [change(v) if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in values]


def laid_out_last(value: torch.Tensor) -> torch.Tensor:
    """Pictures and filters with channels last."""
    return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value


def padded(values: Sequence[Any]) -> list[Any]:
    """Matrices with sizes rounded up to 8, in their layout."""

    def grown(value: torch.Tensor) -> torch.Tensor:
        shape = [-(-size // _ALIGNED) * _ALIGNED for size in value.shape[-2:]] if value.dim() > 1 else []
        shape = [*value.shape[: value.dim() - len(shape)], *shape]
        if value.dim() == 1:
            shape = [-(-value.shape[0] // _ALIGNED) * _ALIGNED]
        if value.dim() > 1 and value.stride(-1) != 1:
            return tensor([*shape[:-2], shape[-1], shape[-2]], None, value.dtype).transpose(-1, -2)
        return tensor(shape, None, value.dtype)

    return converted(values, grown)


def operator(name: str, values: Sequence[Any]) -> partial[Any]:
    """The operator of a recorded name, ``aten::mm``, in the variant that takes such values in the recorded order.
    `TypeError` where none does."""
    space, _, own = name.partition("::")
    family = getattr(getattr(torch.ops, space), own)
    why = "no variant takes as many values"
    for variant in family.overloads():
        call = getattr(family, variant)
        names = [argument.name for argument in call._schema.arguments]
        placed = sum(not argument.kwarg_only for argument in call._schema.arguments)
        if len(names) != len(values):
            continue

        usual = [
            argument.default_value if argument.has_default_value() and "Optional" not in str(argument.type) else None
            for argument in call._schema.arguments
        ]
        called = partial(_placed, call, names[placed:], usual, names)
        try:
            called(*values)
        except (RuntimeError, TypeError, ValueError) as error:
            if is_sticky(error):
                raise
            why = str(error)[:200]
            continue
        return called
    raise TypeError(why)


def _placed(call: Any, named: Sequence[str], usual: Sequence[Any], _names: Sequence[str], *values: Any) -> Any:
    """A call whose last values are given by name; texts, which no trace has, are the usual ones. All have names."""
    first = len(values) - len(named)
    given = [other if value is None else value for value, other in zip(values, usual, strict=True)]
    return call(*given[:first], **dict(zip(named, given[first:], strict=True)))


def copies_of(values: Sequence[Any]) -> list[list[Any]]:
    """So many sets of these arguments that the cache holds none of them by the time it is used again."""
    size = sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))
    count = min(_MOST_COPIES, -(-_COLD_BYTES // max(size, 1)), _MOST_BYTES // max(size, 1))
    return [list(values)] + [
        [v.clone() if isinstance(v, torch.Tensor) else v for v in values] for _ in range(int(count) - 1)
    ]


def warm_and_cold(call: Callable[..., Any], values: Sequence[Any]) -> list[float]:
    """Microseconds with operands in the cache, and not."""
    calls = [partial(call, *own) for own in copies_of(values)]
    warm = timed_us(calls[:1])
    return [warm, timed_us(calls) if len(calls) > 1 else warm]


def of_operator(question: Question) -> dict[str, Any]:
    """The forms of one operator; in 16 bits also what a cast of each argument takes, and of each result."""
    found: dict[str, Any] = {}
    with torch.no_grad():
        values = arguments(question)
        call = operator(question["name"], values)
        statistics = [name in _STATISTICS for name in call.args[3]]
        for form in ("recorded", *question["forms"]):
            own = in_form(form, values, "batch_norm" in question["name"], statistics)
            try:
                with tf32(question["tf32"] or form == "tf32"):
                    found[form] = warm_and_cold(call, own)
                if form in NARROW:
                    found[f"{form} casts"] = [_cast_us(one, NARROW[form]) for one in values]
                    made = call(*own)
                    results = made if isinstance(made, tuple) else (made,)
                    found[f"{form} results"] = [_cast_us(one, torch.float32) for one in results]
            except (RuntimeError, TypeError, ValueError) as error:
                if form == "recorded" or is_sticky(error):
                    raise
                found[f"{form} failed"] = str(error)[:200]
    return found


def in_form(form: str, values: Sequence[Any], is_norm: bool = False, kept: Sequence[bool] = ()) -> list[Any]:
    """The arguments as a form of the operator has them; those `kept` stay, as do weights of a norm over a batch."""
    if form in NARROW:
        kind = NARROW[form]
        made = converted(values, lambda value: value if is_norm and value.dim() == 1 else value.to(kind))
        return [
            own if stays else new for own, new, stays in zip(values, made, kept or [False] * len(made), strict=True)
        ]
    if form == "channels_last":
        return converted(values, laid_out_last)
    return padded(values) if form == "padded" else list(values)


def _cast_us(value: Any, kind: Any) -> float:
    """Microseconds of a cast of something, out of the cache; none of what is no floating tensor or is of that type."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dtype is kind:
        return 0.0
    key = value.shape, value.stride(), value.dtype, kind
    if key not in _CASTS_US:
        _CASTS_US[key] = warm_and_cold(lambda own: own.to(kind), [value])[1]
    return _CASTS_US[key]


_CASTS_US: Final[dict[Any, float]] = {}
"""Of those that were timed."""
