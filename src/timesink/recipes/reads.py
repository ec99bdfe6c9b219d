"""Values of the GPU that a training loop reads in each step, and evaluations in each step: every N steps instead.

What is read only to be told is told every N steps. What is summed or listed stays on the GPU until the loop is over.
A value that anything else depends on is left alone: it may control the loop.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Final

from timesink.recipes import Effort, Recipe, meters
from timesink.recipes.conditions import find_conditions
from timesink.recipes.numbers import find_evaluations_of_trainers, find_searched_losses
from timesink.recipes.proof import Replacement
from timesink.recipes.reach import GIVE_NEW, bound_to, is_heard_by_more, leaves_traces, needs_order
from timesink.recipes.source import (
    Loop,
    Proposal,
    Source,
    bound_in,
    calls_in,
    mutated_in,
    name_of,
    read_in,
    root_of,
)
from timesink.recipes.walking import walk

EVERY: Final = 50  # steps
_READS: Final = frozenset({"item", "tolist", "cpu", "numpy"})
_TELLS: Final = frozenset({
    "print", "info", "debug", "warning", "log", "log_metrics", "add_scalar", "set_postfix", "set_description",
    "write",
})  # fmt: skip
_DETACH: Final = ("detach", "cpu")
_STORES: Final = _TELLS - {"print", "set_postfix", "set_description"}
_EVALUATES: Final = frozenset({"eval", "evaluate", "evaluation", "validate", "validation", "test"})
_HARMLESS: Final = GIVE_NEW | _READS | frozenset({
    "float", "int", "str", "len", "abs", "round", "format", "detach", "parameters",
})  # fmt: skip


def find_reads(source: Source, line: int) -> Iterator[Proposal]:
    """Reads in each step of a training loop, one proposal for all of a loop: they wait for the same work. Then waits
    without a read, of all the file: those of a model are in functions."""
    reason = f"the loop waits for the GPU in each step to read a value; it does so every {EVERY} steps"
    for loop in source.step_loops():
        kept = [one for statement in source.statements(loop) if (one := _kept(source, loop, statement))]
        told = _told(source, loop, _reads_device, kept)
        if changes := [*_guard(source, loop, told, kept), *(made for one in kept for made in one.changes)]:
            first = told[0].lineno if told else min(made.start[0] for made in changes) + 1
            doubt = next((one.doubt for one in kept if one.doubt), "") or _doubt_of_told(source, told)
            yield Proposal(first, reason, tuple(changes), doubt)
    waits = [one for one in walk(source.tree, ast.Expr) if _waits(source, one)]
    if waits:
        needed = needs_order(source)
        doubt = f"the file has {needed}, and a wait may be for it" if needed else ""
        reason = "the program waits for all work of the GPU where nothing needs it"
        yield Proposal(waits[0].lineno, reason, tuple(map(source.drop, waits)), doubt)


def find_evaluations(source: Source, line: int) -> Iterator[Proposal]:
    """Evaluations in each step of a training loop whose result nothing but a message needs."""
    for loop in source.step_loops():
        if told := _told(source, loop, _evaluates):
            reason = f"the model is evaluated in each step of the training loop; it is every {EVERY} steps"
            evaluated = [call for one in told for call in calls_in(one) if _is_evaluation(call)]
            doubt = next((why for call in evaluated if (why := leaves_traces(source, call))), "")
            doubt = doubt or _doubt_of_told(source, told)
            yield Proposal(told[0].lineno, reason, _guard(source, loop, told), doubt)


def _doubt_of_told(source: Source, told: list[ast.stmt]) -> str:
    """Why more than a reader of the terminal may hear of what is told."""
    for statement in told:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if _tells(statement) and isinstance(call, ast.Call) and name_of(call.func) in _STORES:
            return f"what {name_of(call.func)} is told may be stored, and a series of it is a result"
        if is_heard_by_more(source, statement, lambda one: name_of(one.func) in _HARMLESS or _is_evaluation(one)):
            return f"line {statement.lineno} does more than tell"
    if any(word in source.text for word in ("redirect_stdout", "sys.stdout =")):
        return "what is printed goes elsewhere"
    return ""


def _is_evaluation(call: ast.Call) -> bool:
    return bool(_EVALUATES & {*name_of(call.func).split("_")})


def _waits(source: Source, statement: ast.Expr) -> bool:
    """Whether it is a wait for the GPU in a function or a loop, by itself."""
    called = source.said(statement.value) in ("torch.cuda.synchronize()", "torch.cuda.synchronize(device)")
    holders = (ast.FunctionDef, ast.For, ast.While)
    return called and source.moves_whole(statement) and any(isinstance(one, holders) for one in source.above(statement))


def _reads_device(source: Source, loop: Loop, statement: ast.stmt) -> bool:
    """Whether it reads a device's value, and calls nothing that may do more than that."""
    losses, call = _losses(loop), getattr(statement, "value", None)
    tells = _tells(statement)
    inner = [one for one in calls_in(statement) if not (tells and one is call)]
    reads = any(name_of(one.func) in _READS and not one.args for one in inner)
    direct = tells and any(n.id in losses for n in walk(statement, ast.Name))
    return (reads or direct) and all(name_of(one.func) in _HARMLESS for one in inner)


def _losses(loop: Loop) -> set[str]:
    backward = [call for call in calls_in(loop) if name_of(call.func) == "backward"]
    return {root_of(node) for call in backward for node in (call.func, *call.args)}


def _evaluates(source: Source, loop: Loop, statement: ast.stmt) -> bool:
    call = getattr(statement, "value", None)
    return isinstance(call, ast.Call) and _is_evaluation(call)


def _tells(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and name_of(call.func) in _TELLS


def _told(
    source: Source, loop: Loop, wanted: Callable[[Source, Loop, ast.stmt], bool], sums: Sequence["_Kept"] = ()
) -> list[ast.stmt]:
    """Statements of each round that `wanted` accepts and of which nothing but a message hears, nor one of the `sums`
    that are kept on the device; and the messages that tell such a sum."""
    found: list[ast.stmt] = []
    kept = [one.statement for one in sums]
    of_sums = {told for one in sums for told in one.told}
    names: dict[str, ast.stmt] = {}
    for statement in source.statements(loop):
        if not source.moves_whole(statement):
            continue
        is_call = isinstance(statement, ast.Expr) and (_tells(statement) or wanted is _evaluates)
        if statement in of_sums or (is_call and (wanted(source, loop, statement) or read_in(statement) & names.keys())):
            found.append(statement)
        elif isinstance(statement, ast.Assign) and wanted(source, loop, statement):
            target = statement.targets[0]
            is_fresh = isinstance(target, ast.Name) and target.id not in read_in(statement.value)  # no sum of all steps
            if len(statement.targets) == 1 and isinstance(target, ast.Name) and is_fresh:
                names[target.id] = statement
                found.append(statement)
    while unheard := [name for name, one in names.items() if not _only_told(source, loop, name, one, [*found, *kept])]:
        found = [one for one in found if one not in {names[name] for name in unheard} and not _hears(one, unheard)]
        names = {name: one for name, one in names.items() if name not in unheard}
    return found


def _hears(statement: ast.stmt, names: list[str]) -> bool:
    """Whether a message reads a name that stays: it does not wait, unless it reads the GPU itself."""
    own = any(name_of(call.func) in _READS for call in calls_in(statement))
    return not own and bool(read_in(statement) & set(names))


def _only_told(source: Source, loop: Loop, name: str, bound: ast.stmt, told: list[ast.stmt]) -> bool:
    """Whether only the statements of `told` hear of the name, and nothing else binds it in the loop."""
    for node in walk(source.tree):
        if isinstance(node, ast.Name) and node.id == name:
            holders = [node, *source.above(node)]
            if not any(one in told for one in holders) and (isinstance(node.ctx, ast.Load) or loop in holders):
                return False
    return sum(name in bound_in(statement) for statement in loop.body) == 1 or bound in loop.body


def _guard(source: Source, loop: Loop, told: list[ast.stmt], sums: Sequence["_Kept"] = ()) -> tuple[Replacement, ...]:
    """An `if` around the statements that is true every N rounds, in which the sums that they tell are read first; a
    counter where the loop has none."""
    if not told:
        return ()
    counter, made = _counter(source, loop)
    order = list(source.statements(loop))
    places = sorted(told, key=order.index)
    runs = [[one for _, one in group] for _, group in groupby(enumerate(places), lambda at: order.index(at[1]) - at[0])]
    for run in runs:
        lines = (one.line for one in sums if any(told in run for told in one.told))
        inner = "".join(f"\n{source.indent(run[0])}    {line}" for line in dict.fromkeys(lines))
        made += source.wrap(run, f"if {counter} % {EVERY} == 0:{inner}")
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
    counts = {"range": loop.target, "enumerate": getattr(loop.target, "elts", [None])[0]}.get(_counted_by(source, loop))
    if isinstance(counts, ast.Name) and all(counts.id not in bound_in(statement) for statement in loop.body):
        return counts.id, []
    target, each = source.said(loop.target), source.said(loop.iter)
    is_bare = isinstance(loop.target, ast.Tuple) and loop.target.elts[0].col_offset == loop.target.col_offset
    held = f"({target})" if is_bare else target
    return name, [
        source.replace(loop.target, f"{name}, {held}"),
        source.replace(loop.iter, f"enumerate({each})"),
    ]


def _counted_by(source: Source, loop: ast.For) -> str:
    """What a loop goes through, `range` or `enumerate`, below the bars that show its progress; empty for all else."""
    given: ast.expr | None = loop.iter
    for _ in range(_DEEPEST):  # `batches = tqdm(batches)` leads to itself
        if isinstance(given, ast.Name):
            given = bound_to(source, given.id)
        elif isinstance(given, ast.Call):
            if (name := name_of(given.func)) in _COUNT:
                return _COUNT[name]
            given = given.args[0] if name in _BARS and given.args else None
    return ""


_COUNT: Final = {"range": "range", "trange": "range", "enumerate": "enumerate"}
_BARS: Final = ("tqdm", "track")
_DEEPEST: Final = 4  # names and bars


@dataclass(frozen=True, slots=True)
class _Kept:
    """A statement that sums or lists what it reads, and what keeps that on the device; `doubt` says who may see it.

    `told` are the messages of each round that tell it: told every N steps, after the `line` that reads it.
    """

    statement: ast.stmt
    changes: list[Replacement]
    line: str
    told: Sequence[ast.stmt]
    doubt: str


def _kept(source: Source, loop: Loop, statement: ast.stmt) -> _Kept | None:
    """`total += loss.item()`, `losses.append(loss.item())`, `meter.update(loss.item())`: read after the loop, and where
    it looks now and then."""
    place: ast.expr
    doubt = ""
    listed = "each", "{0}[:] = [{1} for each in {0}]"
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        place, value, (number, after) = statement.target, statement.value, ("{0}", "{0} = {1}")
        if isinstance(value, (ast.List, ast.Tuple)):
            (number, after), value = listed, value.elts[0] if len(value.elts) == 1 else value
    elif (added := _added(source, statement)) is not None:
        (place, value), number, after = added, "{0}", "{0} = {1}"
    elif (
        isinstance(statement, ast.Expr)
        and isinstance(call := statement.value, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and (call.func.attr, len(call.args)) == ("append", 1)
    ):
        place, value, (number, after) = call.func.value, call.args[0], listed
    elif (given := meters.handed(source, statement)) is not None:
        (place, value), number, after = given, "{0}", meters.AS_NUMBERS
        doubt = meters.who_has(source, given[0])
    else:
        return None
    losses = _losses(loop)
    read = _one_read(source, loop, statement, value, losses)
    messages = [one for one in source.statements(loop) if _tells(one) and source.moves_whole(one)]
    looks = _looks(source, loop, place, statement, messages)
    if read is None or looks is None:
        return None
    is_loss = root_of(read[1]) in losses
    once = "float({0})" if is_loss else "{0}.item() if hasattr({0}, 'item') else {0}"
    said = source.said(place)
    line = after.format(said, once.format(number.format(said)))
    changes = [source.replace(read[0], f"{source.said(read[1])}.detach().clone()")]
    changes.append(source.insert(loop.end_lineno or loop.lineno, f"{source.indent(loop)}{line}\n"))
    told = [one for one in looks if one in messages]
    changes += [source.insert(one.lineno - 1, f"{source.indent(one)}{line}\n") for one in looks if one not in told]
    if isinstance(place, ast.Attribute):
        doubt = f"another file may look at {said} in the loop"
    return _Kept(statement, changes, line, told, doubt)


def _added(source: Source, statement: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
    """The target of `total = total + value`, and the value."""
    total = statement.value if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if isinstance(statement, ast.Assign) and isinstance(total, ast.BinOp) and isinstance(total.op, ast.Add):
        for own, value in ((total.left, total.right), (total.right, total.left)):
            if source.said(own) == source.said(statement.targets[0]):
                return statement.targets[0], value
    return None


def _one_read(
    source: Source, loop: Loop, statement: ast.stmt, value: ast.expr, losses: set[str]
) -> tuple[ast.expr, ast.expr] | None:
    """What stands for the one value of the device that a number is made of, and the value: `loss.item()`, or a name
    that this round has given it. None where it reads others, calls what may do more, or makes no number of it."""
    reads: list[tuple[ast.expr, ast.expr]] = []
    order = list(source.statements(loop))
    for node in walk(value, ast.expr):
        bound = [one for one in order if isinstance(node, ast.Name) and node.id in bound_in(one)]
        is_given = len(bound) == 1 and isinstance(bound[0], ast.Assign) and statement in order[order.index(bound[0]) :]
        call = bound[0].value if is_given and isinstance(bound[0], ast.Assign) else node
        if isinstance(call, ast.Call) and (tensor := _read_of(call, losses)) is not None:
            since = order[order.index(bound[0]) + 1 : order.index(statement)] if is_given else []
            if any(read_in(tensor) & (bound_in(one) | mutated_in(one)) for one in since):
                return None
            reads.append((node, tensor))
    if len(reads) != 1:
        return None
    stands, tensor = reads[0]
    while isinstance(tensor, ast.Call) and isinstance(tensor.func, ast.Attribute) and tensor.func.attr in _DETACH:
        tensor = tensor.func.value
    inside = {name_of(call.func) for call in calls_in(tensor)}
    around = {name_of(call.func) for call in calls_in(value) if call not in walk(stands)}
    is_plain = inside <= _HARMLESS - _READS and around <= {"size", "len"}
    holders = takewhile(lambda node: node is not source.parents[value], source.above(stands))
    is_number = all(isinstance(node, (ast.BinOp, ast.UnaryOp)) for node in holders)  # no text, no pair
    return (stands, tensor) if is_plain and is_number else None


def _read_of(call: ast.Call, losses: set[str]) -> ast.expr | None:
    """The tensor of `x.item()` and `float(loss)`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "item" and not call.args:
        return call.func.value
    only = call.args[0] if name_of(call.func) == "float" and len(call.args) == 1 else None
    return only if isinstance(only, ast.Name) and only.id in losses else None


def _looks(
    source: Source, loop: Loop, place: ast.expr, statement: ast.stmt, messages: list[ast.stmt]
) -> list[ast.stmt] | None:
    """The first statements of the blocks, run every so many rounds, that look at the place, and the `messages` that do;
    None where anything else of the loop does, or of another function."""
    root = root_of(place)
    key = place.slice if isinstance(place, ast.Subscript) else None
    if isinstance(place, ast.Subscript) and not (isinstance(place.value, ast.Name) and isinstance(key, ast.Constant)):
        return None
    if isinstance(place, ast.Attribute) and (root != "self" or walk(loop, ast.Return)):
        return None
    rare = [one for one in source.statements(loop) if isinstance(one, ast.If) and _is_rare(source, one)]
    firsts: dict[ast.stmt, None] = {}
    for node in walk(source.tree):
        if isinstance(place, ast.Attribute):
            if not (isinstance(node, ast.Attribute) and node.attr == place.attr):
                continue
        elif not (isinstance(node, ast.Name) and node.id == root):
            continue
        above = [node, *source.above(node)]
        if isinstance(node, ast.Name) and _is_another(source, node, loop):
            continue
        looks = next((one.body[0] for one in rare if any(held in above for held in one.body)), None)
        looks = looks or next((one for one in messages if one in above), None)
        if statement in above or (isinstance(key, ast.Constant) and _has_other_key(above[1], key)):
            continue
        if loop in above and looks is not None:
            firsts[looks] = None
        elif loop in above or (
            source.scope(node) is not source.scope(loop) and not isinstance(getattr(node, "ctx", None), ast.Store)
        ):
            return None
    return list(firsts)


def _is_another(source: Source, node: ast.Name, loop: Loop) -> bool:
    """Whether the name is that of another function, which binds it itself, and has nothing to do with the loop's."""
    ours = [*source.above(loop)]
    for held in (one for one in source.above(node) if isinstance(one, ast.FunctionDef)):
        shared = [name for one in walk(held) if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names]
        if held in ours or node.id in shared:
            return False
        if node.id in {*bound_in(held), *(one.arg for one in held.args.args)}:
            return True
    return False


def _is_rare(source: Source, statement: ast.If) -> bool:
    """Whether a remainder decides on a block of lines of its own."""
    has_rest = bool(walk(statement.test, ast.Mod))
    return has_rest and source.moves_whole(statement.body[0])


def _has_other_key(node: ast.AST, key: ast.Constant) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value != key.value


REMOVE_SYNC: Final = Recipe(
    "remove_sync",
    "keep values on the GPU; read them every N steps",
    Effort.LINES,
    drift="exact",
    edits=(find_reads, find_conditions, find_searched_losses),
    ends_waits=True,
)
EVALUATE_RARELY: Final = Recipe(
    "evaluate_rarely",
    "evaluate every N steps",
    Effort.LINES,
    drift="exact",
    edits=(find_evaluations, find_evaluations_of_trainers),
)
