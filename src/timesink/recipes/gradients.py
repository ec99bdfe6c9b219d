"""Gradients that nobody uses: forwards of a frozen teacher, evaluations, zeros in place of none, exchanges too many."""

import ast
from collections.abc import Iterator
from typing import Final

from timesink.recipes import Effort, Recipe
from timesink.recipes.source import Loop, Proposal, Source, bound_in, calls_in, name_of, read_in, root_of
from timesink.recipes.walking import walk


def find_unused_gradients(source: Source, line: int) -> Iterator[Proposal]:
    """Calls of a model that no optimizer trains, on what no trained model made."""
    trained = _trained(source)
    if not trained:
        return
    for loop in source.step_loops():
        made = _derived(loop, trained)
        for statement in source.statements(loop):
            if not isinstance(statement, ast.Assign) or not source.moves_whole(statement):
                continue
            call = statement.value
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or _is_guarded(source, statement):
                continue
            model = call.func.id
            if model in trained or not _is_module(source, model) or read_in(statement) & (made | trained):
                continue
            reason = f"{model} is trained by no optimizer, yet its forward pass records what a backward pass needs"
            yield Proposal(
                statement.lineno, reason, source.wrap([statement], "with torch.no_grad():"),
                _doubt(source, model),
            )  # fmt: skip


def _trained(source: Source) -> set[str]:
    """Names that reach an optimizer: those in its arguments, and those of which these are made."""
    imported = {name for node in walk(source.tree) if isinstance(node, (ast.Import, ast.ImportFrom))
                for name in bound_in(node)}  # fmt: skip
    found = {name for call in calls_in(source.tree) if _is_optimizer(call) for name in read_in(call)}
    assigns = walk(source.tree, ast.Assign)
    for _ in assigns:
        more = {name for node in assigns if bound_in(node) & found for name in read_in(node.value)}
        if more <= found:
            break
        found |= more
    return found - imported


def _is_optimizer(call: ast.Call) -> bool:
    name = name_of(call.func)
    takes = any(name_of(one.func) in ("parameters", "named_parameters") for one in calls_in(call))
    return name[:1].isupper() and (takes or any(word.arg == "lr" for word in call.keywords))


def _derived(loop: Loop, trained: set[str]) -> set[str]:
    """Names of the loop that what is trained has made, by any number of steps."""
    made: set[str] = set()
    assigns = walk(loop, ast.Assign, ast.AugAssign)
    for _ in assigns:
        for node in assigns:
            if read_in(node.value) & (trained | made):
                made |= bound_in(node)
    return made


def _is_module(source: Source, name: str) -> bool:
    """Whether the name is a module by what the file calls of it, or by how it is made."""
    methods = {"eval", "requires_grad_", "parameters", "load_state_dict"}
    called = any(root_of(call.func) == name and name_of(call.func) in methods for call in calls_in(source.tree))
    made = [one.value for one in walk(source.tree, ast.Assign) if name in bound_in(one)]
    called |= any(name_of(call.func) in methods for one in made for call in calls_in(one))
    return called and not _bound_as_function(source, name)


def _bound_as_function(source: Source, name: str) -> bool:
    return any(node.name == name for node in walk(source.tree, ast.FunctionDef))


def _is_guarded(source: Source, statement: ast.stmt) -> bool:
    withs = (held for held in source.above(statement) if isinstance(held, ast.With))
    return any("no_grad" in source.said(item.context_expr) or "inference_mode" in source.said(item.context_expr)
               for held in withs for item in held.items)  # fmt: skip


_ASKED: Final = frozenset({"eval", "train", "requires_grad_", "load_state_dict", "state_dict", "to", "cuda", "half"})


def _doubt(source: Source, model: str) -> str:
    """Why its gradients may be used: something else holds the model, or takes more of it than its answers."""
    for node in walk(source.tree):
        if not (isinstance(node, ast.Name) and node.id == model and isinstance(node.ctx, ast.Load)):
            continue
        above = list(source.above(node))
        holder = above[0]
        if isinstance(holder, ast.Call) and (holder.func is node or name_of(holder.func) == "deepcopy"):
            continue
        if not isinstance(holder, ast.Attribute):
            return f"{model} is handed on in line {node.lineno}, where it may be trained"
        loop = next((one for one in above if isinstance(one, ast.For)), None)
        if holder.attr == "parameters" and loop is not None and loop.iter in above and ".grad" not in source.said(loop):
            continue
        if holder.attr not in _ASKED:
            return f"{model}.{holder.attr} is taken in line {node.lineno}, where it may be trained"
    return ""


def find_exchanges(source: Source, line: int) -> Iterator[Proposal]:
    """Backward passes of DistributedDataParallel in a loop that steps once in several rounds."""
    wrapped = {
        root_of(node.targets[0])
        for node in walk(source.tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        and name_of(node.value.func) in ("DistributedDataParallel", "DDP")
    }  # fmt: skip
    if not wrapped or "no_sync" in source.text:
        return
    for loop in source.step_loops():
        ifs = [one for one in loop.body if isinstance(one, ast.If) and _steps_when(one)]
        backs = [at for at, one in enumerate(loop.body) if any(name_of(c.func) == "backward" for c in calls_in(one))]
        models = [at for at, one in enumerate(loop.body) if read_in(one) & wrapped and at <= max(backs, default=-1)]
        if len(ifs) != 1 or len(backs) != 1 or not models or loop.body.index(ifs[0]) < backs[0]:
            continue
        held = loop.body[min(models) : backs[0] + 1]
        if not all(map(source.moves_whole, held)) or read_in(ifs[0].test) & set().union(*map(bound_in, held)):
            continue
        model, condition = min(read_in(loop.body[models[0]]) & wrapped), source.said(ifs[0].test)
        name = source.free_name("contextlib")
        opener = f"with {name}.nullcontext() if {condition} else {model}.no_sync():"
        reason = "gradients are exchanged in each micro-batch; they are in the last one before the optimizer's step"
        importing = source.insert(
            _first_row(source), f"import contextlib{'' if name == 'contextlib' else f' as {name}'}\n"
        )
        yield Proposal(held[0].lineno, reason, (importing, *source.wrap(held, opener)))


def _steps_when(statement: ast.If) -> bool:
    """Whether the optimizer steps in it, by a remainder."""
    has_rest = bool(walk(statement.test, ast.Mod))
    return has_rest and any(name_of(call.func) == "step" for call in calls_in(statement)) and not statement.orelse


def _first_row(source: Source) -> int:
    """The row of the first import that is not of the future."""
    imports = (node for node in source.tree.body if isinstance(node, (ast.Import, ast.ImportFrom)))
    return next((node.lineno - 1 for node in imports if getattr(node, "module", "") != "__future__"), 0)


NO_GRADIENTS: Final = Recipe(
    "no_gradients",
    "call a model that nobody trains under torch.no_grad()",
    Effort.LINES,
    drift="exact",
    edits=(find_unused_gradients,),
)
NO_SYNC: Final = Recipe(
    "no_sync",
    "exchange gradients once a step: no_sync() in the other micro-batches",
    Effort.LINES,
    drift="rounding",
    edits=(find_exchanges,),
)
