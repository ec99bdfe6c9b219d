"""Edits that are an argument more in one call, a line more, or a line less: flags of loader, optimizer and PyTorch.

A call is found by the line at which the program made it. One that already has such an argument is left alone.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from timesink.edits import Proposal, Replacement, Source, calls_in, end_of, name_of, root_of

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
