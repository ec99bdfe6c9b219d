"""Values of the GPU that a training loop reads in each step, and evaluations in each step: every N steps instead.

What is read only to be told is told every N steps. What is summed or listed stays on the GPU until the loop is over.
A value that anything else depends on is left alone: it may control the loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from timesink.edits.source import Loop, Proposal, Replacement, Source, bound_in, calls_in, name_of, root_of

EVERY: Final = 50  # steps
_READS: Final = frozenset({"item", "tolist", "cpu", "numpy"})
_TELLS: Final = frozenset({
    "print", "info", "debug", "warning", "log", "log_metrics", "add_scalar", "set_postfix", "set_description",
    "write",
})  # fmt: skip
_NEED_WAITS: Final = ("time()", "perf_counter", "elapsed", "record(", "non_blocking", "Stream", "numpy(", "Graph")
_EVALUATES: Final = frozenset({"eval", "evaluate", "evaluation", "validate", "validation", "test"})
_HARMLESS: Final = _READS | frozenset({
    "float", "int", "str", "len", "abs", "round", "format", "detach", "mean", "sum", "max", "min", "norm",
    "sqrt", "exp", "argmax", "any", "all", "size", "parameters",
})  # fmt: skip


def find_reads(source: Source, line: int) -> Iterator[Proposal]:
    """Reads in each step of a training loop, one proposal for all of a loop: they wait for the same work. Then waits
    without a read, of all the file: those of a model are in functions."""
    reason = f"the loop waits for the GPU in each step to read a value; it does so every {EVERY} steps"
    for loop in source.step_loops():
        told = _told(source, loop, _reads_device)
        kept = [made for statement in source.statements(loop) for made in _keep_on_device(source, loop, statement)]
        if changes := [*_guard(source, loop, told), *kept]:
            first = told[0].lineno if told else min(made.start[0] for made in changes) + 1
            yield Proposal("remove_sync", first, reason, tuple(changes))
    waits = [one for one in ast.walk(source.tree) if isinstance(one, ast.Expr) and _waits(source, one)]
    if waits:
        needed = next((word for word in _NEED_WAITS if word in source.text), "")
        doubt = f"the file has {needed}, and a wait may be for it" if needed else ""
        reason = "the program waits for all work of the GPU where nothing needs it"
        yield Proposal("remove_sync", waits[0].lineno, reason, tuple(map(source.drop, waits)), doubt)


def find_evaluations(source: Source, line: int) -> Iterator[Proposal]:
    """Evaluations in each step of a training loop whose result nothing but a message needs."""
    for loop in source.step_loops():
        if told := _told(source, loop, _evaluates):
            reason = f"the model is evaluated in each step of the training loop; it is every {EVERY} steps"
            yield Proposal("evaluate_rarely", told[0].lineno, reason, _guard(source, loop, told))


def _waits(source: Source, statement: ast.Expr) -> bool:
    """Whether it is a wait for the GPU in a function or a loop, by itself."""
    called = source.said(statement.value) in ("torch.cuda.synchronize()", "torch.cuda.synchronize(device)")
    holders = (ast.FunctionDef, ast.For, ast.While)
    return called and source.moves_whole(statement) and any(isinstance(one, holders) for one in source.above(statement))


def _reads_device(source: Source, loop: Loop, statement: ast.stmt) -> bool:
    """Whether it reads a device's value, and calls nothing that may do more than that."""
    losses = {root_of(call.func) for call in calls_in(loop) if name_of(call.func) == "backward"}
    call = getattr(statement, "value", None)
    tells = _tells(statement)
    inner = [one for one in calls_in(statement) if not (tells and one is call)]
    reads = any(name_of(one.func) in _READS and not one.args for one in inner)
    direct = tells and any(isinstance(n, ast.Name) and n.id in losses for n in ast.walk(statement))
    return (reads or direct) and all(name_of(one.func) in _HARMLESS for one in inner)


def _evaluates(source: Source, loop: Loop, statement: ast.stmt) -> bool:
    call = getattr(statement, "value", None)
    return isinstance(call, ast.Call) and bool(_EVALUATES & {*name_of(call.func).split("_")})


def _tells(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and name_of(call.func) in _TELLS


def _told(source: Source, loop: Loop, wanted: object) -> list[ast.stmt]:
    """Statements of each round that `wanted` accepts and of which nothing but a message hears."""
    assert callable(wanted)
    found: list[ast.stmt] = []
    names: dict[str, ast.stmt] = {}
    for statement in source.statements(loop):
        if not source.moves_whole(statement):
            continue
        is_call = isinstance(statement, ast.Expr) and (_tells(statement) or wanted is _evaluates)
        if is_call and (wanted(source, loop, statement) or _names_of(statement) & names.keys()):
            found.append(statement)
        elif isinstance(statement, ast.Assign) and wanted(source, loop, statement):
            target = statement.targets[0]
            if len(statement.targets) == 1 and isinstance(target, ast.Name):
                names[target.id] = statement
                found.append(statement)
    while unheard := [name for name, one in names.items() if not _only_told(source, loop, name, one, found)]:
        found = [one for one in found if one not in {names[name] for name in unheard} and not _hears(one, unheard)]
        names = {name: one for name, one in names.items() if name not in unheard}
    return found


def _hears(statement: ast.stmt, names: list[str]) -> bool:
    """Whether a message reads a name that stays: it does not wait, unless it reads the GPU itself."""
    own = any(name_of(call.func) in _READS for call in calls_in(statement))
    return not own and bool(_names_of(statement) & set(names))


def _names_of(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _only_told(source: Source, loop: Loop, name: str, bound: ast.stmt, told: list[ast.stmt]) -> bool:
    """Whether only the statements of `told` hear of the name, and nothing else binds it in the loop."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and node.id == name:
            holders = [node, *source.above(node)]
            if not any(one in told for one in holders) and (isinstance(node.ctx, ast.Load) or loop in holders):
                return False
    return sum(name in bound_in(statement) for statement in loop.body) == 1 or bound in loop.body


def _guard(source: Source, loop: Loop, told: list[ast.stmt]) -> tuple[Replacement, ...]:
    """An `if` around the statements that is true every N rounds; a counter where the loop has none."""
    if not told:
        return ()
    counter, made = _counter(source, loop)
    order = list(source.statements(loop))
    places = sorted(told, key=order.index)
    runs = [[one for _, one in group] for _, group in groupby(enumerate(places), lambda at: order.index(at[1]) - at[0])]
    for run in runs:
        made += source.wrap(run, f"if {counter} % {EVERY} == 0:")
    return tuple(made)


def _counter(source: Source, loop: Loop) -> tuple[str, list[Replacement]]:
    """The name that counts the rounds, and what makes it where there is none. In a loop of loops rounds count on."""
    name = source.free_name("step_index")
    loops = [loop, *(one for one in source.above(loop) if isinstance(one, Loop))]
    outer = [one for one in loops if source.scope(one) is source.scope(loop)][-1]
    if isinstance(loop, ast.While) or outer is not loop:
        before = source.insert(outer.lineno - 1, f"{source.indent(outer)}{name} = -1\n")
        first = source.insert(loop.body[0].lineno - 1, f"{source.indent(loop.body[0])}{name} += 1\n")
        return name, [before, first]
    called = name_of(loop.iter.func) if isinstance(loop.iter, ast.Call) else ""
    counts = {"range": loop.target, "enumerate": getattr(loop.target, "elts", [None])[0]}.get(called)
    if isinstance(counts, ast.Name) and all(counts.id not in bound_in(statement) for statement in loop.body):
        return counts.id, []
    target, each = source.said(loop.target), source.said(loop.iter)
    held = f"({target})" if isinstance(loop.target, ast.Tuple) and not target.startswith("(") else target
    return name, [
        source.replace(loop.target, f"{name}, {held}"),
        source.replace(loop.iter, f"enumerate({each})"),
    ]


def _keep_on_device(source: Source, loop: Loop, statement: ast.stmt) -> Iterator[Replacement]:
    """`total += loss.item()` and `losses.append(loss.item())`: what is summed or listed is read after the loop."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        name, value, after = root_of(statement.target), statement.value, "{0} = float({0})"
        is_plain = isinstance(statement.target, ast.Name)
    elif isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call) and len(call.args) == 1:
        name, value, after = root_of(call.func), call.args[0], "{0}[:] = [float(each) for each in {0}]"
        is_plain = name_of(call.func) == "append" and isinstance(getattr(call.func, "value", None), ast.Name)
    else:
        return
    reads = [call for call in calls_in(value) if name_of(call.func) == "item" and not call.args]
    others = [call for call in calls_in(value) if call not in reads and name_of(call.func) not in ("size", "len")]
    if not is_plain or len(reads) != 1 or others or not _stays(source, loop, name, statement):
        return
    read = reads[0]
    if isinstance(read.func, ast.Attribute):
        yield source.replace(read, f"{source.said(read.func.value)}.detach().clone()")
        row = loop.end_lineno or loop.lineno
        yield source.insert(row, f"{source.indent(loop)}{after.format(name)}\n")


def _stays(source: Source, loop: Loop, name: str, statement: ast.stmt) -> bool:
    """Whether nothing else of the loop, and no other function, hears of the name."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and node.id == name:
            above = list(source.above(node))
            if source.scope(node) is not source.scope(loop) or (loop in above and statement not in above):
                return False
    return True
