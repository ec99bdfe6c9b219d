"""Changes of the model: precision, compilation, layout, attention, recomputation."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal

from timesink.recipes import Effort, Recipe, Switch, Undo
from timesink.recipes.arguments import add_autocast, add_flag
from timesink.recipes.program import RunningProgram
from timesink.recipes.source import Proposal, Source, calls_in, name_of, root_of
from timesink.recipes.switching import (
    Refusal,
    convert_tensors,
    lasting_modules,
    modules_of,
    parameters_of,
    roots_of,
    set_attributes,
    torch_on_gpu,
    undo_all,
)


def _capability(torch: Any) -> tuple[int, int]:
    found: tuple[int, int] = torch.cuda.get_device_capability()
    return found


def _floats(program: RunningProgram) -> set[Any]:
    return {p.dtype for p in parameters_of(program) if p.dtype.is_floating_point}


def allow_tf32(program: RunningProgram) -> Undo:
    """In matrix products and convolutions."""
    torch = torch_on_gpu(program)
    if _capability(torch) < (8, 0):
        raise Refusal(f"{torch.cuda.get_device_name()} has no TF32")
    if torch.float32 not in _floats(program):
        raise Refusal("the model has no float32 parameters")
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if matmul.allow_tf32 and cudnn.allow_tf32:
        raise Refusal("TF32 is allowed already")
    return undo_all(set_attributes(matmul, allow_tf32=True), set_attributes(cudnn, allow_tf32=True))


def autocast_model(name: Literal["bf16", "fp16"], program: RunningProgram) -> Undo:
    """Around the calls of root modules; results are cast back to what the program expects. Where a program only infers,
    what was cast of its weights lasts from call to call, as it does in one autocast around the loop."""
    import torch

    kinds, device = _floats(program), parameters_of(program)[0].device.type
    if torch.float32 not in kinds:
        raise Refusal(f"the model is in {', '.join(sorted(str(kind) for kind in kinds))}, not in float32")
    if program.autocasts:
        raise Refusal("the program runs autocast itself")
    has_bf16 = device == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "bf16" and not has_bf16:
        raise Refusal(f"{torch.cuda.get_device_name()} computes no bf16")
    if name == "fp16" and has_bf16:
        raise Refusal("bf16 runs here, and needs no loss scaler")
    if name == "fp16" and program.step_optimizer is not None:
        raise Refusal("training in fp16 needs a loss scaler in the program")
    kind = torch.bfloat16 if name == "bf16" else torch.float16

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(module: Any, *args: Any, **kwargs: Any) -> Any:
            with torch.autocast(device, dtype=kind):
                result = call(module, *args, **kwargs)
            return _as_float32(torch, result)

        return called

    program.around[name] = wrap
    return undo_all(lambda: program.around.pop(name, None), *_keep_casts(torch, program))


def _keep_casts(torch: Any, program: RunningProgram) -> list[Undo]:
    """Autocast forgets what it has cast at the end of the outermost region: one is open until the change is undone."""
    if program.step_optimizer is not None or torch.is_grad_enabled():
        return []
    torch.autocast_increment_nesting()
    return [torch.clear_autocast_cache, torch.autocast_decrement_nesting]


def _as_float32(torch: Any, result: Any) -> Any:
    return convert_tensors(
        lambda value: value.float() if value.dtype in (torch.float16, torch.bfloat16) else value, result
    )


def begin_graphs_anew() -> None:
    """The results of the step before may be overwritten."""
    import torch

    torch.compiler.cudagraph_mark_step_begin()


def compile_model(mode: str | None, program: RunningProgram) -> Undo:
    """Each root module as a whole."""
    return _compiled(program, roots_of(program), mode)


def _compiled(
    program: RunningProgram, modules: list[Any], mode: str | None = None, dynamic: bool | None = None
) -> Undo:
    """Each module's `forward` compiled: once, and used whenever it is switched on again."""
    import torch

    marks = ("_orig_mod", "_torchdynamo_orig_callable", "_compiled_call_impl")
    if any(getattr(module, mark, None) is not None for module in lasting_modules(program) for mark in marks):
        raise Refusal("the model is compiled already")
    key = (mode, *map(id, modules))
    ready = program.prepare(
        key, lambda: [torch.compile(module.forward, mode=mode, dynamic=dynamic) for module in modules]
    )
    return undo_all(*map(_set_forward, modules, ready))


def _set_forward(module: Any, forward: Any) -> Undo:
    had_own = "forward" in module.__dict__
    before = module.forward
    module.forward = forward

    def undo() -> None:
        if had_own:
            module.forward = before
        else:
            with suppress(AttributeError):
                del module.forward

    return undo


def compile_blocks(program: RunningProgram) -> Undo:
    """Each of the blocks that the model repeats, by itself. Alike ones are one compilation; that others have other
    widths says nothing of shapes that change from call to call."""
    import torch

    blocks = _repeated_blocks(lasting_modules(program))
    if not blocks:
        raise Refusal("the model repeats no block")
    limits, kinds = torch._dynamo.config, {tuple(p.shape for p in block.parameters()) for block in blocks}
    raised = set_attributes(limits, recompile_limit=max(limits.recompile_limit, len(kinds) + 8))
    return undo_all(raised, _compiled(program, blocks, dynamic=False if len(kinds) > 1 else None))


def _repeated_blocks(modules: list[Any]) -> list[Any]:
    """The outermost modules with modules of their own whose class occurs again among the parts of lists and sequences;
    a sequence is one only where what it holds is none."""
    from torch.nn import ModuleList, Sequential

    held = [part for module in modules if isinstance(module, (ModuleList, Sequential)) for part in module]
    parts = [part for part in held if part is not None]  # libraries leave places of a list empty
    counts = Counter(map(type, parts))
    repeated = [part for part in dict.fromkeys(parts) if counts[type(part)] > 1 and any(True for _ in part.children())]
    own = [part for part in repeated if not isinstance(part, (ModuleList, Sequential))]
    blocks = own or [part for part in repeated if isinstance(part, Sequential)]
    inner = {inside for block in blocks for inside in block.modules() if inside is not block}
    return [block for block in blocks if block not in inner]


def lay_channels_last(program: RunningProgram) -> Undo:
    """Weights of convolutions, and what is given to root modules."""
    import torch

    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    convolutions = torch.nn.Conv2d, torch.nn.Conv3d
    weights = [module.weight for module in lasting_modules(program) if isinstance(module, convolutions)]
    if not weights:
        raise Refusal("the model has no convolution over two or three dimensions")
    ranks = {weight.dim() for weight in weights}
    if len(ranks) > 1:
        raise Refusal("the model has convolutions over two and over three dimensions")
    rank = ranks.pop()
    if all(weight.is_contiguous(memory_format=layouts[rank]) and not weight.is_contiguous() for weight in weights):
        raise Refusal("the model is in channels-last already")

    def lay_out(kind: Any) -> None:
        """By `to`, which unlike `contiguous` also gives a kernel of 1 x 1 the strides that its gradient will have: the
        optimizer works on lists only where all layouts agree."""
        for parameter in parameters_of(program):
            if parameter.dim() == rank:
                parameter.data = parameter.data.to(memory_format=kind)
        for state in (state for optimizer in program.optimizers for state in optimizer.state.values()):
            for name, value in state.items():
                if getattr(value, "ndim", 0) == rank:
                    state[name] = value.to(memory_format=kind)

    def convert(value: Any) -> Any:
        return value.to(memory_format=layouts[rank]) if value.dim() == rank else value

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(module: Any, *args: Any, **kwargs: Any) -> Any:
            given = [convert_tensors(convert, value) for value in args]
            return call(module, *given, **{name: convert_tensors(convert, value) for name, value in kwargs.items()})

        return called

    lay_out(layouts[rank])
    program.around["channels_last"] = wrap

    def undo() -> None:
        program.around.pop("channels_last", None)
        lay_out(torch.contiguous_format)

    return undo


def skip_recomputation(program: RunningProgram) -> Undo:
    """What a program wraps in a checkpoint is called plainly."""
    if not program.uses_checkpoints:
        raise Refusal("no activation is recomputed: torch.utils.checkpoint is not called")
    return set_attributes(program, skips_checkpoints=True)


def benchmark_convolutions(program: RunningProgram) -> Undo:
    """cuDNN times its algorithms at each new shape."""
    torch = torch_on_gpu(program)
    if not any(isinstance(m, torch.nn.modules.conv._ConvNd) for m in modules_of(program)):
        raise Refusal("the model has no convolution")
    if torch.backends.cudnn.benchmark:
        raise Refusal("cuDNN tries its algorithms already")
    return set_attributes(torch.backends.cudnn, benchmark=True)


def fuse_attention(program: RunningProgram) -> Undo:
    """Models of Hugging Face's libraries name their attention in `config`."""
    inner = next((m for m in lasting_modules(program) if hasattr(m, "set_attn_implementation")), None)
    if inner is None:
        raise Refusal("the model's library has no switch for its attention")
    before = getattr(inner.config, "_attn_implementation", None)
    if before != "eager":
        raise Refusal(f"attention is {before!r} already")
    inner.set_attn_implementation("sdpa")
    return lambda: inner.set_attn_implementation(before)


def drop_checkpoints(source: Source, line: int) -> Iterator[Proposal]:
    """`checkpoint(layer, x)` becomes `layer(x)`. Whether the activations fit, only a capture of the GPU tells."""
    own = {"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"}
    calls = [call for call in calls_in(source.tree) if _is_checkpoint(call) and len(call.args) > 1]
    made = []
    for call in calls:
        words = [
            f"{word.arg}={source.said(word.value)}" if word.arg else f"**{source.said(word.value)}"
            for word in call.keywords
            if word.arg not in own
        ]
        given = ", ".join([*map(source.said, call.args[1:]), *words])
        function = source.said(call.args[0])
        held = f"({function})" if isinstance(call.args[0], ast.Lambda) else function
        made.append(source.replace(call, f"{held}({given})"))
    if made:
        why = "nothing says that the GPU has the memory which the activations take"
        reason = "activations are computed twice; they are stored"
        yield Proposal(calls[0].lineno, reason, tuple(made), why)


def _is_checkpoint(call: ast.Call) -> bool:
    is_plain = not any(isinstance(argument, ast.Starred) for argument in call.args[:1])
    return is_plain and name_of(call.func) == "checkpoint" and root_of(call.func) in ("checkpoint", "torch", "utils")


_COMPILED: Final = "seconds to minutes at the first step and at each new shape: not in its price"
BF16: Final = Recipe(
    "bf16",
    "run in bf16 under torch.autocast",
    Effort.LINES,
    "casts, which are in its price, and 8 bits of mantissa",
    drift="lower precision",
    where="model",
    on_gpu=True,
    switch=Switch(partial(autocast_model, "bf16"), 3),
    edits=(partial(add_autocast, "the model computes in 32 bits"),),
)
FP16: Final = Recipe(
    "fp16",
    "run in fp16 under torch.autocast, with a GradScaler in training",
    Effort.LINES,
    "casts, which are in its price, and 5 bits of exponent: gradients are scaled",
    drift="lower precision",
    where="model",
    switch=Switch(partial(autocast_model, "fp16"), 3),
)
_TF32_ON: Final = 'torch.set_float32_matmul_precision("high")'
TF32: Final = Recipe(
    "tf32",
    f"allow TF32: {_TF32_ON}",
    Effort.FLAG,
    "10 bits of mantissa in matmuls",
    drift="lower precision",
    where="model",
    on_gpu=True,
    switch=Switch(allow_tf32),
    edits=(partial(add_flag, _TF32_ON, "matmuls run at full precision, without tensor cores"),),
)
CHANNELS_LAST: Final = Recipe(
    "channels_last",
    "keep one memory layout (channels_last for convolutions)",
    Effort.LINES,
    drift="rounding",
    where="model",
    switch=Switch(lay_channels_last, 4),
)
FUSED_ATTENTION: Final = Recipe(
    "fused_attention",
    "call scaled_dot_product_attention",
    Effort.LINES,
    drift="rounding",
    where="model",
    switch=Switch(fuse_attention),
)
NO_RECOMPUTATION: Final = Recipe(
    "no_recomputation",
    "store activations rather than compute them twice",
    Effort.FLAG,
    "the memory of the activations",
    drift="exact",
    switch=Switch(skip_recomputation),
    edits=(drop_checkpoints,),
)
_BENCHMARKS: Final = "torch.backends.cudnn.benchmark = True"
BENCHMARK_CONVOLUTIONS: Final = Recipe(
    "benchmark_convolutions",
    f"let cuDNN try its algorithms: {_BENCHMARKS}",
    Effort.FLAG,
    drift="rounding",
    where="model",
    on_gpu=True,
    switch=Switch(benchmark_convolutions, 4),
    edits=(partial(add_flag, _BENCHMARKS, "convolutions take the algorithm that cuDNN guesses"),),
)
COMPILE: Final = Recipe(
    "compile",
    "torch.compile the model",
    Effort.LINES,
    _COMPILED,
    drift="rounding",
    where="model",
    switch=Switch(partial(compile_model, None), 4, 3, 20.0),
)
COMPILE_GRAPH: Final = Recipe(
    "compile_graph",
    'torch.compile with mode="reduce-overhead"',
    Effort.LINES,
    "the memory of a graph's own pool, and shapes that stay the same",
    drift="rounding",
    where="model",
    excludes=("compile",),
    switch=Switch(partial(compile_model, "reduce-overhead"), 6, 4, 25.0, each_step=begin_graphs_anew),
)
COMPILE_BLOCKS: Final = Recipe(
    "compile_blocks",
    "torch.compile each repeated block by itself",
    Effort.LINES,
    _COMPILED,
    drift="rounding",
    where="model",
    excludes=("compile", "compile_graph"),
    switch=Switch(compile_blocks, 4, 3, 15.0),
)
