"""The parts of a kernel's name: what it is called, and the template arguments that it was made with.

`void at::native::reduce_kernel<512, at::native::ReduceOp<float>>(T1)` is called `at::native::reduce_kernel`. What a
kernel does, it is called after: an argument may name anything that the code around it can do (`NoPermute` of a matrix
product). Two kinds of kernels are called after neither: launchers, whose first argument is the operation, and kernels
that apply any function, which stands among their arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from timesink.knowledge import Pattern
from timesink.records import Record

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
_LAUNCHER: Final = Pattern(
    r"(?:^|::)(?:Kernel2?|device_kernel|kentry|[kK]ernel|\w*_kernel_agent|trampoline_kernel|enable_\w+)$",
    "runs the operation that its first argument is (CUTLASS, Composable Kernel, xmma, Thrust, rocPRIM)",
    ("cutlass::Kernel2", "cutlass::device_kernel", "ck_tile::kentry"),
    ("flash_fwd_kernel", "at::native::reduce_kernel"),
)
_APPLIER: Final = Pattern(
    r"elementwise_kernel|kernelPointwiseApply\d|_kernel_agent|static_kernel|transform_kernel|OpTensorKernel"
    r"|gpu_kernel_impl|multi_tensor_apply|(?:^|::)reduce_kernel|nvfuser_",
    "applies a function, which its arguments name, to elements (ATen, Thrust, CUB, cuDNN, nvFuser)",
    ("at::native::vectorized_elementwise_kernel", "at::native::reduce_kernel"), "flash_fwd_kernel",
)
_CASTS: Final = Pattern(
    r"\((?:unsigned )?(?:int|long|long long|bool|char|short|unsigned)\)(?=[-\d])",
    "the type before a number, which some demanglers write",
    ("(int)128", "(unsigned int)4"), ("(int)x", "(float)1"),
)
_CLONE: Final = Pattern(
    r"\s*(?:\[clone [^\]]*\]|\.kd)\s*$", "what a compiler adds to the name of a copy of a function",
    ("gemm [clone .kd]", "gemm.kd"), "kd",
)
_MANGLED: Final = Pattern(
    r"^_Z(?:N|S[0-9A-Z]*_|St|K|L|r|V)*(?=\d)", "how a name begins that nobody demangled",
    ("_ZN2at6native", "_Z4gemm"), "_Zgemm",
)
_LITERAL: Final = Pattern(
    r"^(?:\(?[\d\-]|\([\w: ]+\)|true$|false$|(?:unsigned |signed )?(?:int|long|bool|char|short)\b)",
    "an argument that is a value, or a type of values alone",
    ("128", "(int)4", "true", "unsigned int"), ("float", "c10::Half"),
)
_QUALIFIED: Final = Pattern(
    "(?: const)?[ *&]*$", "what stands after a type and makes no other of it",
    ("float const*", "float &"), (),
)
# fmt: on
_UNNAMED: Final = ("(anonymous namespace)::", "<unnamed>::")
_DEEPEST: Final = 6


class Symbol(Record):
    """`path` is the function with its namespaces, `arguments` those of its template as written, else its parameters."""

    path: str
    arguments: tuple[str, ...] = ()

    @property
    def types(self) -> list[str]:
        """The arguments that are types, without const, pointers and references."""
        return [_QUALIFIED.sub("", text) for text in self.arguments if not _LITERAL.match(text)]

    @property
    def applies(self) -> bool:
        """Whether its arguments say what it does to elements."""
        return bool(_APPLIER.search(self.path))

    def operations(self) -> Iterator[Symbol]:
        """Itself; and of a launcher the operation that it runs, and so on."""
        symbol: Symbol | None = self
        for _ in range(_DEEPEST):
            if symbol is None:
                return
            yield symbol
            operation = next(iter(symbol.types), "")
            symbol = symbol_of(operation) if operation and _LAUNCHER.search(symbol.path) else None


@lru_cache(maxsize=65536)
def symbol_of(name: str) -> Symbol:
    """The symbol of a demangled, mangled or bare name; of a name that was cut off, of what there is."""
    if mangled := _MANGLED.match(name):
        return _mangled(name[mangled.end() :])
    for unnamed in _UNNAMED:
        name = name.replace(unnamed, "")
    path, arguments, depth = "", list[str](), 0
    for place, letter in enumerate(name := _CLONE.sub("", name).strip()):
        if letter in "<(":
            if depth == 0 and letter == "(" and any(arguments):
                break
            depth += 1
            if depth == 1:
                arguments.append("")
                continue
        elif letter in ">)" and depth and name[place - 1] != "-":
            depth -= 1
        if depth == 0:
            if letter == " ":  # what came before it is the return type
                path, arguments = "", []
            elif letter not in ">)":
                path += letter
        elif letter == "," and depth == 1:
            arguments.append("")
        else:
            arguments[-1] += letter
    return Symbol(path, tuple(text for each in arguments if (text := each.strip())))


def _mangled(text: str) -> Symbol:
    """Identifiers stand after their lengths, and arguments after an I."""
    names = []
    while length := re.match(r"\d+", text):
        begin, size = length.end(), int(length[0][:4])
        names.append(text[begin : begin + size])
        text = text[begin + size :]
    return Symbol("::".join(names), (f"_Z{text[1:]}",) if text.startswith("I") else ())


def function_name(demangled: str) -> str:
    """The bare name: without return type, namespaces, template arguments and parameters."""
    if demangled.startswith("_Z"):
        return demangled
    return symbol_of(demangled).path.split("::")[-1] or demangled


def plain_name(demangled: str) -> str:
    """The whole name with the differences between demanglers removed: casts before numbers, blanks, unnamed scopes."""
    name = _CASTS.sub("", demangled)
    for unnamed in _UNNAMED:
        name = name.replace(unnamed, "")
    return re.sub(r"\s+", "", name)
