"""Edits that are an argument more in one call, a line more, or a line less: flags of loader, optimizer and PyTorch.

A call is found by the line at which the program made it. One that already has such an argument is left alone.

Batches: padded to their longest sample rather than to the longest there may be, and copied without waiting.
"""

import ast
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from timesink.edits import Proposal, Replacement, Source, calls_in, end_of, name_of, read_in, root_of

_MOST_WORKERS: Final = 8
LOADER_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "loader_workers": {
        "num_workers": max(1, min(_MOST_WORKERS, (os.cpu_count() or 2) - 1)),
        "persistent_workers": True,
    },
    "pin_memory": {"pin_memory": True},
}
"""What a loader is given, by the change that it makes."""
_REASONS: Final = {
    "loader_workers": "the training waits for batches, and few processes load them",
    "pin_memory": "batches lie in memory that can be paged out, so that their copies wait",
    "fused_optimizer": "the optimizer launches several kernels where one does",
    "foreach": "the optimizer goes through parameters one by one",
    "tf32": "matrix products run at full precision, without tensor cores",
    "benchmark_convolutions": "convolutions take the algorithm that cuDNN guesses",
    "bf16": "the model computes in 32 bits",
    "drop_debugging": "anomaly mode records where each operation was called, and looks for NaN after each",
    "frozen_garbage": "the loop looks through all objects for garbage in each step, which Python does when it must",
    "keep_memory": "the loop gives the GPU's free memory back in each step, and takes it anew",
}
_AFTER_IMPORT: Final = {
    "tf32": 'torch.set_float32_matmul_precision("high")',
    "benchmark_convolutions": "torch.backends.cudnn.benchmark = True",
}


def add_arguments(name: str, arguments: Mapping[str, Any], source: Source, line: int) -> Iterator[Proposal]:
    """After the last argument of the call that makes an object of a class (their names begin with a capital); a lower
    number that is given is raised, any other value is left."""
    calls = [call for call in calls_in(source.tree) if call.lineno <= line <= (call.end_lineno or call.lineno)]
    makers = [call for call in calls if name_of(call.func)[:1].isupper()]
    call = max(makers, key=lambda call: call.lineno, default=None)
    if call is None:
        return
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    last = max([*call.args, *given.values()], key=end_of, default=None)
    raised = {word for word, value in arguments.items() if word in given and _is_lower(given[word], value)}
    added = {word: value for word, value in arguments.items() if word not in given}
    if last is None or None in given or not (raised or added):  # **options, or another value of the same
        return
    text = "".join(f", {word}={value!r}" for word, value in added.items())
    more = (source.replace(given[word], repr(arguments[word])) for word in raised)
    yield Proposal(name, call.lineno, _REASONS[name], (Replacement(end_of(last), end_of(last), text), *more))


def _is_lower(given: ast.expr, wanted: object) -> bool:
    value = given.value if isinstance(given, ast.Constant) else None
    return type(value) is int and type(wanted) is int and value < wanted


def add_flag(name: str, source: Source, line: int) -> Iterator[Proposal]:
    """A line after the import of PyTorch, where the file that makes the model has one."""
    text = _AFTER_IMPORT[name]
    imports = (node for node in source.tree.body if isinstance(node, ast.Import))
    torch = [node for node in imports if any(one.name == "torch" and not one.asname for one in node.names)]
    if torch and text.partition("(")[0].partition(" =")[0] not in source.text:
        row = end_of(torch[0])[0]
        yield Proposal(name, row + 1, _REASONS[name], (source.insert(row + 1, f"{text}\n"),))


def add_autocast(name: str, source: Source, line: int) -> Iterator[Proposal]:
    """A `with` around the simple statement that calls the model."""
    simple = (node for node in ast.walk(source.tree) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)))
    statement = next((node for node in simple if node.lineno <= line <= (node.end_lineno or node.lineno)), None)
    if statement is not None and source.moves_whole(statement):
        opener = 'with torch.autocast("cuda", dtype=torch.bfloat16):'
        yield Proposal(name, statement.lineno, _REASONS[name], source.wrap([statement], opener))


def drop_anomaly_mode(source: Source, line: int) -> Iterator[Proposal]:
    """`torch.autograd.set_detect_anomaly(True)`, a statement of its own or what a `with` begins."""
    for call in calls_in(source.tree):
        name, first = name_of(call.func), getattr(call.args[0], "value", False) if call.args else None
        if (name, first) not in (("set_detect_anomaly", True), ("detect_anomaly", None)):
            continue
        if isinstance(source.parents[call], ast.withitem):
            off = source.replace(call, f"{source.said(call.func).replace(name, 'set_detect_anomaly')}(False)")
            yield Proposal("drop_debugging", call.lineno, _REASONS["drop_debugging"], (off,))
        else:
            yield from _drop(source, call, "drop_debugging")


def drop_in_loop(name: str, called: str, source: Source, line: int) -> Iterator[Proposal]:
    """Calls that a training loop makes in each step, for what the interpreter and PyTorch do by themselves."""
    for loop in source.step_loops():
        for statement in source.statements(loop):
            if isinstance(call := getattr(statement, "value", None), ast.Call) and source.said(call) == called:
                yield from _drop(source, call, name)


def _drop(source: Source, call: ast.Call, name: str) -> Iterator[Proposal]:
    statement = source.parents[call]
    if isinstance(statement, ast.Expr) and source.moves_whole(statement):
        yield Proposal(name, call.lineno, _REASONS[name], (source.drop(statement),))


def drop_checkpoints(source: Source, line: int) -> Iterator[Proposal]:
    """`checkpoint(layer, x)` becomes `layer(x)`. Whether the activations fit, only a capture of the GPU tells."""
    own = {"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"}
    calls = [call for call in calls_in(source.tree) if _is_checkpoint(call) and len(call.args) > 1]
    made = []
    for call in calls:
        words = [f"{word.arg}={source.said(word.value)}" for word in call.keywords if word.arg not in own]
        given = ", ".join([*map(source.said, call.args[1:]), *words])
        function = source.said(call.args[0])
        held = f"({function})" if isinstance(call.args[0], ast.Lambda) else function
        made.append(source.replace(call, f"{held}({given})"))
    if made:
        why = "nothing says that the GPU has the memory which the activations take"
        reason = "activations are computed twice; they are stored"
        yield Proposal("no_recomputation", calls[0].lineno, reason, tuple(made), why)


def _is_checkpoint(call: ast.Call) -> bool:
    is_plain = not any(isinstance(argument, ast.Starred) for argument in call.args[:1])
    return is_plain and name_of(call.func) == "checkpoint" and root_of(call.func) in ("checkpoint", "torch", "utils")


_MASKED: Final = ("mask", "ignore_index", "padding_idx", "pad_sequence", "lengths")
_SHAPES: Final = ("view", "reshape", "unflatten", "Linear", "LayerNorm", "Conv1d", "expand")
_FIXED: Final = ("torch.compile", "CUDAGraph", "make_graphed_callables", "StaticCache", "pad_to_multiple_of")


def find_padding(source: Source, line: int) -> Iterator[Proposal]:
    """Functions that collate samples into a constant length, and tokenizers that pad to the longest allowed."""
    for function in (node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef)):
        batch = [argument.arg for argument in function.args.args if argument.arg != "self"]
        if len(batch) == 1 and _collates(source, function.name):
            yield from _filled(source, function, batch[0])
    for call in calls_in(source.tree):
        told = next((word for word in call.keywords if word.arg == "padding"), None)
        if told is not None and getattr(told.value, "value", None) == "max_length":
            yield _proposal(source, call.lineno, told.value, '"longest"')


def _collates(source: Source, name: str) -> bool:
    given = (word.value for call in calls_in(source.tree) for word in call.keywords if word.arg == "collate_fn")
    return any(name_of(value) == name for value in given)


def _filled(source: Source, function: ast.FunctionDef, batch: str) -> Iterator[Proposal]:
    """`torch.full((len(batch), LONGEST), PAD)`, whose rows are filled up to the length of each sample."""
    for call in calls_in(function):
        sizes = call.args[0] if call.args else None
        if (
            name_of(call.func) not in ("full", "zeros", "ones")
            or not isinstance(sizes, ast.Tuple)
            or len(sizes.elts) < 2
        ):
            continue
        longest = sizes.elts[1]
        is_constant = isinstance(longest, ast.Constant) or (isinstance(longest, ast.Name) and longest.id.isupper())
        if batch in read_in(sizes.elts[0]) and is_constant and (each := _length(source, function, batch)):
            yield _proposal(source, call.lineno, longest, f"max({each})")


def _length(source: Source, function: ast.FunctionDef, batch: str) -> str:
    """What gives the lengths of the samples: samples are sequences, or tuples that begin with one."""
    for loop in (node for node in ast.walk(function) if isinstance(node, ast.For)):
        targets = loop.target
        if root_of(loop.iter) != "enumerate" or batch not in read_in(loop.iter) or not isinstance(targets, ast.Tuple):
            continue
        each, said = targets.elts[-1], source.said(loop)
        first = each.elts[0] if isinstance(each, ast.Tuple) else each
        if isinstance(first, ast.Name) and f": len({first.id})]" in said:
            held = source.said(each)
            return f"len({first.id}) for {held.strip('()')} in {batch}"
    return ""


def _proposal(source: Source, line: int, node: ast.expr, text: str) -> Proposal:
    masked = any(word in source.text for word in _MASKED)
    fixed = next((word for word in _FIXED if word in source.text), "") or _shaped(source, source.said(node))
    doubt = "" if masked else "nothing in the file masks what is padded, so the results may depend on it"
    if fixed:
        doubt = f"{fixed} may need batches of one length"
    reason = "batches are padded to the longest sequence there may be; they are to the longest of the batch"
    return Proposal("pad_to_batch", line, reason, (source.replace(node, text),), doubt)


def _shaped(source: Source, longest: str) -> str:
    """The call that takes the padded length as a size, such as `view`, or a layer of that many inputs."""
    calls = (call for call in calls_in(source.tree) if name_of(call.func) in _SHAPES)
    return next((name_of(call.func) for call in calls if longest in map(source.said, call.args)), "")


def find_waiting_copies(source: Source, line: int) -> Iterator[Proposal]:
    """Copies of a loader's batch to the GPU that wait, where the loader pins its memory."""
    pins = any(word.arg == "pin_memory" and getattr(word.value, "value", None) is True
               for call in calls_in(source.tree) for word in call.keywords)  # fmt: skip
    for loop in source.step_loops() if pins else ():
        names = (
            {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
            if isinstance(loop, ast.For)
            else ()
        )
        copies = [
            call for call in calls_in(loop)
            if name_of(call.func) in ("to", "cuda") and isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name) and call.func.value.id in names
            and not any(word.arg == "non_blocking" for word in call.keywords) and "cpu" not in source.said(call)
        ]  # fmt: skip
        if copies:
            texts = [(call, source.said(call).removesuffix(")")) for call in copies]
            made = [
                source.replace(call, f"{t}{'' if t.endswith('(') else ', '}non_blocking=True)") for call, t in texts
            ]
            reason = "the loop waits for each batch to be copied to the GPU; from pinned memory it need not"
            yield Proposal("waiting_copies", copies[0].lineno, reason, tuple(made))
