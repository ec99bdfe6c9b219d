"""The two ladders: which change follows which, what names it, and how long the attainable step is.

A change goes from one set of flags to another. `kept` says whether later changes build on it; the others are tried and
measured beside the ladder.
"""

from __future__ import annotations

from dataclasses import dataclass

from timesink.knowledge.assumptions import machines

Flags = tuple[str, ...]
H200_TENSOR_FLOPS = 989.5e12
H200_DRAM_BYTES_PER_S = 4.8e12


@dataclass(frozen=True, slots=True)
class Change:
    """One change, and how its gain is predicted.

    The findings in `codes` predict it, all of them together; where none of them is found, the what-if change in
    `what_if`; where there is none, no gain is predicted, and at most what the operators in `slack_of` (a regular
    expression on names) lie above their bound.
    """

    name: str
    before: Flags
    after: Flags
    hypothesis: str
    codes: tuple[str, ...]
    what_if: str = ""
    slack_of: str = ""
    kept: bool = True
    steps: int = 300


@dataclass(frozen=True, slots=True)
class Example:
    """A program, its changes in the order they are measured, and how a capture counts its steps."""

    name: str
    changes: tuple[Change, ...]
    attainable_ms: float
    settle: int
    timed: int
    check_tolerance: str

    @property
    def states(self) -> tuple[Flags, ...]:
        """Every set of flags once: those on the ladder first, each before what is built on it."""
        kept = [change for change in self.changes if change.kept]
        others = [change for change in self.changes if not change.kept]
        return tuple(dict.fromkeys(flags for change in [*kept, *others] for flags in (change.before, change.after)))


def slug(flags: Flags) -> str:
    """Name of a set of flags in files and tables."""
    return "+".join(flag.removeprefix("--") for flag in flags) or "plain"


def layer_attainable_ms(tokens: int = 2048, hidden: int = 4096, inner: int = 11008) -> float:
    """Products and causal attention at the attainable rate of fp16 tensor cores, then the pointwise work's bytes once.

    Bytes: norm (read, write), add and norm (read two, write two), SiLU times up (read two, write one), add (read two,
    write one), two bytes an element.
    """
    flops = 2 * tokens * hidden * (4 * hidden + 3 * inner) + 2 * tokens**2 * hidden
    moved = 2 * tokens * ((2 + 4 + 3) * hidden + 3 * inner)
    return 1e3 * (
        flops / (H200_TENSOR_FLOPS * machines.TENSOR_SHARE.value)
        + moved / (H200_DRAM_BYTES_PER_S * machines.DRAM_SHARE.value)
    )


def gpt2_attainable_ms(tokens: int = 8192, length: int = 1024) -> float:
    """Products and causal attention, forward and backward, at the attainable bf16 rate, and AdamW's bytes once.

    Three products forward and backward per matrix; attention's backward is five products for two. AdamW reads weight,
    gradient and two moments and writes three of them: 28 bytes a parameter.
    """
    width, layers, vocabulary = 768, 12, 50257
    matrices = layers * 12 * width**2 + vocabulary * width
    parameters = matrices + layers * 13 * width + length * width + 2 * width
    attention = 3.5 * layers * 2 * tokens * length * width
    flops = 6 * tokens * matrices + attention
    return 1e3 * (
        flops / (H200_TENSOR_FLOPS * machines.TENSOR_SHARE.value)
        + 28 * parameters / (H200_DRAM_BYTES_PER_S * machines.DRAM_SHARE.value)
    )


FUSED = ("--fused",)
ONE = ("--fused", "--one-gemm")
PRODUCTS = r"aten::(mm|addmm|linear|matmul)$"
LAYER = Example(
    "layer",
    (
        Change("CUDA graph at the start", (), ("--graph",), "the layer's launches as one CUDA graph: no idle "
               "time between kernels", ("IDL103",), "cuda_graph", kept=False),
        Change("fused norms and activation", (), FUSED, "norms, residual and SiLU times up in one kernel each",
               ("KRN104", "KRN101"), "fuse_pointwise"),
        Change("gate and up on two streams", FUSED, ("--fused", "--streams"), "gate and up do not need each other, so "
               "they may run at once", ("STR101", "KRN107"), slack_of=PRODUCTS, kept=False),
        Change("gate and up as one product", FUSED, ONE, "one product of 22,016 columns has a shorter last wave than "
               "two of 11,008", ("KRN107", "KRN109"), slack_of=PRODUCTS),
        Change("products by cuBLASLt", ONE, (*ONE, "--lt"), "cuBLASLt may choose faster kernels",
               ("KRN109",), slack_of=PRODUCTS, kept=False),
        Change("matrices stored as [in, out]", ONE, (*ONE, "--transposed"), "another layout lets cuBLAS choose other "
               "kernels", ("KRN109", "KRN102"), slack_of=PRODUCTS, kept=False),
        Change("CUDA graph at the end", ONE, (*ONE, "--graph"), "fewer, longer kernels leave a graph less to win",
               ("IDL103",), "cuda_graph"),
    ),
    layer_attainable_ms(),
    settle=20,
    timed=60,
    check_tolerance="0",
)  # fmt: skip

_RUNGS = (
    ("--tf32", "products in TF32", "products of fp32 matrices on tensor cores", ("KRN106",), "tf32", 20),
    ("--bf16", "bf16", "products and pointwise work on half the bytes, products at twice the rate",
     ("KRN106",), "bf16", 40),
    ("--compile", "torch.compile", "pointwise chains and casts fused, block by block", ("KRN104", "KRN101", "IDL103"),
     "fuse_pointwise", 60),
    ("--flash", "attention in one kernel", "the scores of all pairs stay on the chip", ("KRN103",), "", 60),
    ("--pad", "padded vocabulary", "with 50,304 rows the table's products take aligned kernels", ("KRN105",), "", 60),
    ("--fused", "fused AdamW", "the optimizer's state is read and written once", ("KRN108",), "fused_optimizer", 60),
)  # fmt: skip


def _gpt2_changes() -> tuple[Change, ...]:
    flags: Flags = ()
    changes = []
    for flag, name, hypothesis, codes, what_if, steps in _RUNGS:
        slack_of = PRODUCTS if flag == "--pad" else ""
        changes.append(Change(name, flags, (*flags, flag), hypothesis, codes, what_if, slack_of, steps=steps))
        flags = (*flags, flag)
    return tuple(changes)


GPT2 = Example("gpt2", _gpt2_changes(), gpt2_attainable_ms(), settle=4, timed=10, check_tolerance="2%")
EXAMPLES = {example.name: example for example in (LAYER, GPT2)}
