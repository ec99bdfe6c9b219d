"""Kernel names for people: short, and saying what the kernel does.

`void at::native::vectorized_elementwise_kernel<8, at::native::AUnaryFunctor<c10::BFloat16, ...>` is an
`elementwise Mul bf16`, `cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1` a `gemm bf16 align1 128×128
(cutlass)`. A short name says the work, the arithmetic type, the tile and the library, as far as the full name does;
names that nobody knows keep their function's name. `short_names` keeps the kernels of one table apart.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from timesink.knowledge import Patterns
from timesink.knowledge.kernel_symbols import function_name, symbol_of
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.startup import regex

_MOST_READ: Final = 2_000  # characters of a name: what tells kernels apart for people stands before that
_MOST_SHOWN: Final = 80
_WORDS_APART = 3
_LONGEST_WORD = 24

_FILE: Final = Patterns(__file__)
_OF_WORDS: Final = sorted(_FILE.words["FUSED_OPERATORS"], key=len, reverse=True)
_OPERATOR: Final = regex(rf"(?P<name>(?:{'|'.join(_OF_WORDS)}|_?[A-Za-z0-9]+)(?:_backward(?:_data)?)?)(?:_|$)")
_TRITON_WORK: Final = {"poi": "fused", "red": "fused reduce", "per": "fused reduce", "tem": "fused gemm"}
_TYPES: Final = {
    "float": "fp32", "double": "fp64", "BFloat16": "bf16", "Half": "fp16", "__nv_bfloat16": "bf16",
    **{name: name for name in ("long", "bool", "int", "short", "unsigned", "signed", "char")},
}  # fmt: skip
_WORD: Final = regex(r"\w+")
_PART: Final = regex(r"[A-Za-z0-9]+")


@lru_cache(maxsize=65536)
def short_name(name: str) -> str:
    """The work of a kernel in a few words: `gemm bf16 128×128 (nvjet)`. Two kernels may share it: `short_names`."""
    read = name[:_MOST_READ]
    form = _gemm if read.startswith("void cutlass::") else _FORMS.get(decode(read).family)
    short = (form(read) if form else "") or _triton(read) or _by_function(read)
    return short if len(short) <= _MOST_SHOWN else f"{short[: _MOST_SHOWN - 1]}…"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """The short name of each kernel of a table. Different kernels get different ones: where two would share one, the
    words that only one of them has are added, and a number where there is no such word."""
    named: dict[str, str] = {}
    for short, group in _group_by_text((short_name(name), name) for name in sorted(set(names))):
        named.update(_tell_apart(short, group, _WORDS_APART))
    for text, group in _group_by_text((text, name) for name, text in named.items()):
        if len(group) > 1:
            named.update((name, f"{text} #{number}") for number, name in enumerate(group, start=1))
    return named


def _tell_apart(short: str, group: list[str], words_left: int) -> dict[str, str]:
    """The short name with the first word that not all of the group have, and so on while some still share theirs."""
    if len(group) == 1 or not words_left:
        return dict.fromkeys(group, short)
    words = {name: list(dict.fromkeys((*_details(name), *_words(name[:_MOST_READ])))) for name in group}
    common = set.intersection(*map(set, words.values()))
    own = ((next((word for word in words[name] if word not in common), ""), name) for name in group)
    named: dict[str, str] = {}
    for word, alike in _group_by_text(own):
        named.update(_tell_apart(_join_words(short, word[:_LONGEST_WORD]), alike, words_left - 1))
    return named


def _group_by_text(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """The second of each pair by the first, both in order."""
    groups: dict[str, list[str]] = {}
    for text, name in pairs:
        groups.setdefault(text, []).append(name)
    return list(groups.items())


def _words(name: str) -> list[str]:
    """The identifiers of a declaration; of a bare name its parts."""
    words = (_WORD if "<" in name or "::" in name else _PART).findall(name)
    return [word for word in words if not word.endswith("elementwise_kernel")]


def _details(name: str) -> list[str]:
    """What people would name first to tell two kernels of the same work apart."""
    details = ["scalar"] if _FILE.SCALAR.search(name) else []
    if layout := _FILE.LAYOUT.search(name):
        details.append((layout[1] or layout[2]).lower())
    if "elementwise_kernel" in name:
        details.append(next((word for word in ("unrolled", "vectorized") if f"{word}_elementwise" in name), "strided"))
    return details


def _join_words(*words: str | None) -> str:
    return " ".join(word for word in words if word)


def library_of(name: str) -> str:
    """The library whose naming the kernel follows: cublas, cutlass, nvjet, ...; '' where that is not known."""
    return next((library for library, pattern in _FILE.kind("LIBRARIES").items() if pattern.search(name)), "")


def _tile(name: str) -> str:
    tile = decode(name).tile or next(
        ((m[1], m[2]) for pattern in _FILE.kind("TILES").values() if (m := pattern.search(name))), None
    )
    return f"{tile[0]}×{tile[1]}" if tile else ""


def _product(name: str, work: str) -> str:
    """A matrix product or convolution of a library; '' where no library is known."""
    if not (library := library_of(name)):
        return ""
    aligned = _FILE.ALIGNED.search(name)
    return _join_words(work, decode(name).math, aligned and f"align{aligned[1]}", _tile(name), f"({library})")


def _gemm(name: str) -> str:
    if "splitkreduce" in name.lower():
        return _join_words("gemm split-k reduce", decode(name).math)
    return _product(name, "gemm") if "gemm" in name.lower() or name.startswith(("nvjet", "Cijk")) else ""


def _convolution(name: str) -> str:
    work = next((word for word, pattern in _FILE.kind("DIRECTIONS").items() if pattern.search(name)), "")
    return _product(name, work) if work else ""


def _attention(name: str) -> str:
    library = next((word for word, pattern in _FILE.kind("ATTENTION").items() if pattern.search(name)), "")
    if not library or "fusion::" in name:
        return ""
    direction = "backward" if _FILE.BACKWARD.search(name) else "forward"
    return _join_words("attention", direction, decode(name).math, _tile(name), f"({library})")


def _elementwise(name: str) -> str:
    if "elementwise" not in name or "::" not in name:
        return ""
    applied = (next(filter(None, match.groups())) for match in _FILE.APPLIED.finditer(name))
    work = next((word for word in applied if not _FILE.WRAPPERS.search(word)), "")
    return _join_words("elementwise", work.removeprefix("direct_"), _type(name)) if work else ""


def _filled(name: str) -> str:
    return _join_words("fill", _type(name)) if "FillFunctor" in name else ""


def _reduced(name: str) -> str:
    if "reduce_kernel<" not in name:
        return ""
    match = _FILE.REDUCED.search(name, name.index("reduce_kernel<"))
    return _join_words("reduce", match and next(filter(None, match.groups())), _type(name))


def _foreach(name: str) -> str:
    match = _FILE.FOREACH.search(name)
    return _join_words("foreach", match and next(filter(None, match.groups())), _type(name))


def _softmax(name: str) -> str:
    if "softmax" not in name.lower() or "triton" in name:
        return ""
    work = "log_softmax" if _FILE.LOG_SOFTMAX.search(name) else "softmax"
    return _join_words(work, "backward" if _FILE.BACKWARD.search(function_name(name)) else "forward", decode(name).math)


def _concat(name: str) -> str:
    if "CatArray" not in name:
        return ""
    opaque = _FILE.OPAQUE.search(name)
    return _join_words("concat", f"{opaque[1]}-byte" if opaque else _type(name))


def _communication(name: str) -> str:
    function = function_name(name)
    return f"nccl {function.split('_', 1)[1]}" if re.match(r"nccl(?:Dev)?Kernel_\w", function) else ""


def _triton(name: str) -> str:
    """TorchInductor names its kernels after what it fused, and numbers them in its code."""
    match = _FILE.TRITON.match(name)
    if not match:
        return ""
    words = ", ".join(fused_operators(name)) or match["rest"]
    return f"{_TRITON_WORK[match['kind']]} {match['number']}{': ' if words else ''}{words} (triton)"


def fused_operators(name: str) -> tuple[str, ...]:
    """The operators in the name of a kernel that TorchInductor generated; none where they cannot be told apart.

    It sorts them: a list that is not in order was read wrongly.
    """
    match = _FILE.TRITON.match(name)
    rest, operators = match["rest"] if match else "", list[str]()
    while rest and (found := _OPERATOR.match(rest)) is not None:
        operators.append(found["name"])
        rest = rest[found.end() :]
    return tuple(operators) if not rest and operators == sorted(operators) else ()


def _by_function(name: str) -> str:
    """The function without what every kernel's name ends in, and the arithmetic type where it does not say it."""
    function = symbol_of(name).path.split("::")[-1].split("[")[0] or function_name(name)
    bare = _FILE.ENDS.sub("", function) or function
    math = decode(name).math
    return _join_words(bare, None if math is None or math in bare else math)


def _type(name: str) -> str:
    """The type of the elements, else the arithmetic type that the name speaks of anywhere."""
    for match in _FILE.ELEMENTS.finditer(name):
        if match[1] in _TYPES:
            return _TYPES[match[1]]
    return decode(name).math or ""


_FORMS: Final[dict[KernelFamily, Callable[[str], str]]] = {
    KernelFamily.GEMM: _gemm,
    KernelFamily.CONVOLUTION: _convolution,
    KernelFamily.ATTENTION: _attention,
    KernelFamily.POINTWISE: _elementwise,
    KernelFamily.COPY: _elementwise,
    KernelFamily.LOSS: _elementwise,
    KernelFamily.INDEX: _elementwise,
    KernelFamily.RANDOM: _elementwise,
    KernelFamily.NORM: _elementwise,
    KernelFamily.FILL: _filled,
    KernelFamily.REDUCTION: _reduced,
    KernelFamily.FOREACH: _foreach,
    KernelFamily.SOFTMAX: _softmax,
    KernelFamily.CONCAT: _concat,
    KernelFamily.COMMUNICATION: _communication,
}
