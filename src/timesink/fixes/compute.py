"""What computes faster: precision, compilation, graphs, attention and optimizers in fewer kernels."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from timesink.fixes import BenchForm, Fix, Offer, aimed, everything, of
from timesink.fixes.precisions import autocast, to_bf16, to_tf32
from timesink.fixes.replays import (
    capture_beside,
    compile_model,
    compile_to_graph,
    fuse_attention,
    fuse_attention_beside,
    graph_refused,
    named_kernels,
    named_to_cast,
    to_16_bits_beside,
)
from timesink.knowledge.kernels import PRODUCTS
from timesink.knowledge.operators import CONVOLVES
from timesink.measures.kernels.fusion import optimizer_kernels, unfused_attention
from timesink.measures.kernels.precision import four_byte_kernels, wide_kernels
from timesink.model.names import matches
from timesink.model.tables import HOST_OPS
from timesink.model.trace import Trace
from timesink.recipes import Effort, Words, model, training
from timesink.whatif import Change, Selection, Target
from timesink.whatif.changes.host import CaptureGraph
from timesink.whatif.changes.kernels import FuseOptimizer


def no_convolution(trace: Trace) -> str:
    """Why no convolution can be another; '' where one is recorded, and where no operator is."""
    ops = trace.get(HOST_OPS)
    none = ops.height and not matches(ops["name"], CONVOLVES).any()
    return "the recorded steps have no convolution" if none else ""


def unfused_steps(trace: Trace) -> Iterator[Selection]:
    """Kernels of optimizers that are not fused."""
    return (step.unfused for step in optimizer_kernels(trace) if step.takes_fused)


def single_steps(trace: Trace) -> Iterator[Selection]:
    """Those of optimizers that go from parameter to parameter."""
    return (step.unfused for step in optimizer_kernels(trace) if step.one_by_one and step.takes_fused)


def fuse_named_optimizer(trace: Trace, target: Target) -> Iterator[Change]:
    """The kernels that a target names, as one fused optimizer step."""
    return (FuseOptimizer.of(part, target) for part in named_kernels("unfused", trace, target))


TF32: Final = Fix(
    model.TF32,
    elsewhere="allow TF32 in matmuls; cuBLAS takes CUBLAS_TF32_TENSOR_OP_MATH",
    answers=("precision/tf32",),
    find=of(wide_kernels, "fp32"),
    aim=aimed(partial(named_kernels, "fp32"), to_tf32),
    change=to_tf32,
    offer=Offer.ALWAYS,
    bench=BenchForm("tf32", PRODUCTS),
)
BF16: Final = Fix(
    model.BF16,
    elsewhere="run matmuls in bf16, with casts around them",
    answers=("precision/bf16_weights", "precision/tf32"),
    subsumes=("tf32",),
    minds=("compile", "compile_graph", "padding", "drop_debugging"),
    find=of(four_byte_kernels, "bf16"),
    aim=aimed(partial(named_to_cast, "fp32"), autocast),
    change=autocast,
    beside=partial(to_16_bits_beside, kind="bf16"),
    offer=Offer.ALWAYS,
    does_more=True,
    bench=BenchForm("bf16", PRODUCTS, call="cast", makes="bf16"),
)
BF16_WEIGHTS: Final = Fix(
    Words(
        "bf16_weights",
        "keep the model in bf16, where it trains with an optimizer that holds fp32 copies",
        Effort.LINES,
        "8 bits of mantissa, and where it trains the memory of fp32 copies",
    ),
    elsewhere="keep weights in bf16, in training with fp32 copies for the optimizer",
    answers=("precision/bf16_weights",),
    excludes=("bf16",),
    subsumes=("tf32",),
    memory="unknown",
    change=to_bf16,
    bench=BenchForm("bf16", (*PRODUCTS, "norm", "softmax", "loss")),
)
FP16: Final = Fix(
    model.FP16,
    elsewhere="run matmuls in fp16, with casts around them, in training with a scaled loss",
    answers=("precision/fp16",),
    excludes=("bf16", "bf16_weights"),
    minds=("compile", "compile_graph", "padding", "drop_debugging"),
    find=of(four_byte_kernels, "fp16"),
    aim=aimed(partial(named_to_cast, "fp16"), autocast),
    change=autocast,
    beside=partial(to_16_bits_beside, kind="fp16"),
    does_more=True,
    bench=BenchForm("fp16", PRODUCTS, call="cast", makes="fp16"),
)
BENCHMARK_CONVOLUTIONS: Final = Fix(model.BENCHMARK_CONVOLUTIONS, preconditions=(no_convolution,), of_pytorch=True)
COMPILE: Final = Fix(
    model.COMPILE,
    answers=("pointwise_unfused", "tiny_kernels", "launch_bound/cuda_graph", "eager_islands"),
    subsumes=("padding",),
    beside=compile_model,
    offer=Offer.ALWAYS,
    of_pytorch=True,
    does_more=True,
    of_launches=True,
    bench=BenchForm(call="region", makes="compile"),
)
COMPILE_GRAPH: Final = Fix(
    model.COMPILE_GRAPH,
    answers=("launch_bound/cuda_graph", "tiny_kernels"),
    after=("remove_sync", "keep_memory"),
    subsumes=("compile", "cuda_graph", "padding"),
    memory="working",
    beside=compile_to_graph,
    preconditions=(graph_refused,),
    offer=Offer.ALWAYS,
    of_pytorch=True,
    does_more=True,
    of_launches=True,
    bench=BenchForm(call="region", makes="compile"),
)
CUDA_GRAPH: Final = Fix(
    Words(
        "cuda_graph",
        "capture the step in a CUDA graph",
        Effort.LINES,
        "the memory of a graph's own pool, and shapes that stay the same",
    ),
    answers=("launch_bound/cuda_graph",),
    after=("remove_sync", "keep_memory"),
    excludes=("compile",),
    memory="working",
    find=everything,
    change=CaptureGraph,
    beside=capture_beside,
    preconditions=(graph_refused,),
    offer=Offer.ALWAYS,
    of_launches=True,
    same_kernels=True,
    bench=BenchForm(figure="fixes.graph_kernel_us"),
)
FUSED_ATTENTION: Final = Fix(
    model.FUSED_ATTENTION,
    elsewhere="compute attention in one kernel, which keeps no scores",
    answers=("attention_unfused",),
    minds=("bf16", "bf16_weights", "fp16"),
    find=unfused_attention,
    change=fuse_attention,
    beside=fuse_attention_beside,
    offer=Offer.ALWAYS,
)
FUSED_OPTIMIZER: Final = Fix(
    training.FUSED_OPTIMIZER,
    elsewhere="update all parameters in one kernel",
    answers=("optimizer_unfused",),
    subsumes=("foreach",),
    find=unfused_steps,
    aim=fuse_named_optimizer,
    change=FuseOptimizer.of,
    offer=Offer.ALWAYS,
    bench=BenchForm("fused"),
)
FOREACH: Final = Fix(
    training.FOREACH,
    answers=("optimizer_unfused",),
    memory="unknown",
    find=single_steps,
    change=FuseOptimizer.over_lists,
    offer=Offer.ALWAYS,
    of_pytorch=True,
    does_more=True,
    bench=BenchForm("foreach"),
)
