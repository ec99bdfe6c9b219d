"""What is built again and again. Constants and masks of a loop are built once before it, where all that they depend on
stays. Masks and tables of a module's forward pass are kept by the module, with what they were made of.

That is known where all that their values come from are sizes, devices and types of tensors, constants of the file, and
each other. Each module keeps its own, and makes them again for other sizes.
"""

import ast
from collections.abc import Iterator
from typing import Final

from timesink.recipes import Effort, Recipe
from timesink.recipes.reach import bound_to, is_read, only_read, stays
from timesink.recipes.source import Loop, Proposal, Source, bound_in, calls_in, mutated_in, name_of, read_in, root_of
from timesink.recipes.walking import walk

_GIVEN: Final = frozenset({"torch", "math", "float", "int", "bool", "range", "len", "min", "max", "True", "False"})
_REFUSED: Final = ("inference_mode", "torch.compile", "torch.jit", "torch.export", "CUDAGraph", "vmap", "fx.")


def find_rebuilt(source: Source, line: int) -> Iterator[Proposal]:
    """Neighbouring assignments of a `forward` that build the same tensors for the same sizes."""
    for function in walk(source.tree, ast.FunctionDef):
        if function.name != "forward" or not isinstance(source.parents[function], ast.ClassDef):
            continue
        sizes, held = _sizes(function), list[ast.Assign]()
        for statement in [*function.body, None]:
            if isinstance(statement, ast.Assign) and _is_made_of(source, function, statement, sizes, held):
                held.append(statement)
                continue
            if any(name_of(call.func) in BUILDS for one in held for call in calls_in(one)):
                yield _kept(source, function, held, sizes)
            held = []


def _sizes(function: ast.FunctionDef) -> set[str]:
    """Names that the function binds once, to sizes of tensors: `batch, length, _ = x.shape`."""
    found = set()
    for statement in (one for one in function.body if isinstance(one, ast.Assign)):
        value = statement.value.value if isinstance(statement.value, ast.Subscript) else statement.value
        is_size = isinstance(value, ast.Call) and name_of(value.func) in ("size", "len")
        if is_size or (isinstance(value, ast.Attribute) and value.attr == "shape"):
            found |= bound_in(statement)
    return {name for name in found if _times_bound(function, name) == 1}


def _times_bound(function: ast.FunctionDef, name: str) -> int:
    """How often the function binds the name; its own arguments count."""
    stores = (node for node in walk(function, ast.Name) if not isinstance(node.ctx, ast.Load))
    arguments = [one.arg for one in walk(function, ast.arg)]
    return sum(node.id == name for node in stores) + arguments.count(name)


def _facts(source: Source, node: ast.AST) -> dict[str, set[ast.AST]]:
    """The texts of `x.device` and `x.dtype` below it, each with the names in it."""
    found: dict[str, set[ast.AST]] = {}
    for one in walk(node):
        if isinstance(one, ast.Attribute) and one.attr in ("device", "dtype") and root_of(one) not in _GIVEN:
            found.setdefault(source.said(one), set()).update(walk(one))
    return found


def _is_made_of(
    source: Source, function: ast.FunctionDef, statement: ast.Assign, sizes: set[str], held: list[ast.Assign]
) -> bool:
    """Whether the assignment binds one name, once, to what nothing but sizes, constants and names of `held` make."""
    name, value = getattr(statement.targets[0], "id", ""), statement.value
    known = sizes | _GIVEN | _constants(source) | {name_of(one.targets[0]) for one in held}
    of_facts = set().union(*_facts(source, value).values())
    names = [one for one in walk(value, ast.Name) if one not in of_facts]
    is_plain = all(isinstance(one.ctx, ast.Load) and one.id in known for one in names)
    return (
        bool(name)
        and len(statement.targets) == 1
        and is_plain
        and source.moves_whole(statement)
        and bool(walk(value, ast.Call))
        and all(name_of(call.func) in PURE for call in calls_in(value))
        and not any(word.arg in ("requires_grad", "out") for call in calls_in(value) for word in call.keywords)
        and _times_bound(function, name) == 1
        and name not in mutated_in(function)
    )


def _constants(source: Source) -> set[str]:
    """Names in capitals that the file binds once, outside functions."""
    bound = [
        name for statement in source.tree.body if isinstance(statement, ast.Assign) for name in bound_in(statement)
    ]
    return {name for name in bound if name.isupper() and bound.count(name) == 1}


def _kept(source: Source, function: ast.FunctionDef, held: list[ast.Assign], sizes: set[str]) -> Proposal:
    used = sorted(set().union(*map(read_in, held)) & sizes)
    key = _tuple([*used, *sorted({text for one in held for text in _facts(source, one)})])
    made = [name_of(one.targets[0]) for one in held]
    name, indent = source.free_name("_kept"), source.indent(held[0])
    opener = f'if getattr(self, "{name}_for", None) != {key}:'
    after = f"{indent}    self.{name}_for, self.{name} = {key}, {_tuple(made)}\n{indent}{_tuple(made)} = self.{name}\n"
    row = held[-1].end_lineno or held[-1].lineno
    replacements = (*source.wrap(held, opener), source.insert(row, after))
    reason = "each forward pass builds the same tensors anew; the module keeps them for the sizes it has"
    return Proposal(held[0].lineno, reason, replacements, _doubt(source, function, held, set(made)))


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _doubt(source: Source, function: ast.FunctionDef, held: list[ast.Assign], made: set[str]) -> str:
    """Why what is kept may change, or not be there as it was: something else may write into it."""
    if word := next((word for word in _REFUSED if word in source.text), ""):
        return f"the file has {word}, beside which a module may keep no tensor"
    if not function.args.args or function.args.args[0].arg != "self":
        return "the first argument is not self"
    heirs = set(made)
    for node in walk(function):
        if isinstance(node, ast.Assign) and read_in(node.value) & heirs:
            heirs |= bound_in(node)
    if changed := sorted(heirs & mutated_in(function)):
        return f"{changed[0]} is changed in place, and may share memory with what is kept"
    for node in walk(function):
        if isinstance(node, ast.Name) and node.id in made and isinstance(node.ctx, ast.Load):
            above = list(source.above(node))
            if not is_read(source, node) and not any(one in held for one in above):
                return f"{node.id} is handed on in line {node.lineno}, where it may be changed"
    return ""


BUILDS: Final = frozenset({
    "ones", "zeros", "full", "ones_like", "zeros_like", "full_like", "arange", "eye", "linspace", "logspace",
    "tensor", "as_tensor", "triu_indices", "tril_indices", "from_numpy",
})  # fmt: skip
PURE: Final = BUILDS | frozenset({
    "triu", "tril", "to", "cuda", "bool", "float", "half", "double", "int", "long", "bfloat16", "type",
    "view", "repeat", "reshape", "unsqueeze", "squeeze", "expand", "flatten", "transpose", "permute",
    "masked_fill", "logical_not", "pow", "logical_and", "logical_or", "eq", "ne", "lt", "le", "gt", "ge",
    "exp", "log", "sin", "cos", "sqrt", "rsqrt", "outer", "div", "mul", "add", "sub", "neg", "cat", "stack",
    "where", "contiguous", "t", "abs", "clone", "size", "len", "range", "min", "max", "device", "normalize", "norm",
    "softmax", "sum", "mean",
})  # fmt: skip
_DRAWS: Final = frozenset({"rand", "randn", "randint", "randperm"})
_MOVES: Final = frozenset({"to", "cuda"})
_SETTINGS: Final = frozenset({"cfg", "config", "args", "opt", "options", "hparams", "params", "settings"})
FACTS: Final = frozenset({"device", "dtype", "shape", "ndim", "pi", "inf"})


def find_constants(source: Source, line: int) -> Iterator[Proposal]:
    """Assignments of a loop that build a tensor of the same values in each round."""
    for loop in source.loops():
        for statement in loop.body:
            if not isinstance(statement, ast.Assign) or not source.moves_whole(statement):
                continue
            name = getattr(statement.targets[0], "id", "")
            if name and len(statement.targets) == 1 and _is_same(source, loop, statement, name):
                yield _hoist(
                    source, loop, statement, _doubt_of(statement.value) or _doubt_of_reach(source, statement, name)
                )


def _is_same(source: Source, loop: Loop, statement: ast.Assign, name: str) -> bool:
    """Whether each round binds the name once, before it reads it, to what only names from before the loop make."""
    value, others = statement.value, [one for one in loop.body if one is not statement]
    before = loop.body[: loop.body.index(statement)]
    bound = set().union(*(bound_in(one) for one in others), bound_in(loop.target) if isinstance(loop, ast.For) else ())
    reads = read_in(value)
    builds = any(name_of(call.func) in BUILDS and root_of(call.func) in ("torch", "np") for call in calls_in(value))
    return (
        (builds or _is_of_made(source, statement))
        and not any(_is_object(source, call.func.id) for call in calls_in(value) if isinstance(call.func, ast.Name))
        and not reads & (bound | {name} | mutated_in(loop))
        and name not in bound | mutated_in(loop)
        and not any(name in read_in(one) for one in before)
        and not (isinstance(loop, ast.While) and name in read_in(loop.test))
        and not walk(value, ast.Await, ast.NamedExpr, ast.Yield)
        and not any(word.arg == "requires_grad" for call in calls_in(value) for word in call.keywords)
    )


def _is_object(source: Source, name: str) -> bool:
    """Whether a name that is called is no function of the file or of a library, but a value: a model, which trains."""
    is_bound = any(one.id == name and isinstance(one.ctx, ast.Store) for one in walk(source.tree, ast.Name))
    return is_bound or any(one.arg == name for one in walk(source.tree, ast.arg))


def _is_of_made(source: Source, statement: ast.Assign) -> bool:
    """Whether it is computed, by what is known to compute the same, of tensors alone that `_made_before` knows."""
    made = _made_before(source, statement)
    return bool(made) and not _doubt_of(statement.value) and not stays(source, statement.value, made)


def _made_before(source: Source, statement: ast.Assign) -> set[str]:
    """Names of the value that stand for tensors which PyTorch made once, without gradients, and nothing changes: what
    is cast or normed of them is the same in each round. None where nothing is called."""
    names = set[str]()
    for name in read_in(statement.value) if walk(statement.value, ast.Call) else ():
        made = bound_to(source, name)
        while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and name_of(made.func) in _MOVES:
            made = made.func.value
        is_new = isinstance(made, ast.Call) and root_of(made) == "torch" and name_of(made.func) in BUILDS | _DRAWS
        words = {word.arg for word in made.keywords} if isinstance(made, ast.Call) else {None}
        if is_new and not words & {"requires_grad", "out", None} and only_read(source, name, source.tree, statement):
            names.add(name)
    return names


def _doubt_of(value: ast.expr) -> str:
    """What of the expression its pattern cannot tell: a call that may do more, an attribute that may change."""
    for node in walk(value):
        if isinstance(node, ast.Call) and name_of(node.func) not in PURE:
            return f"{name_of(node.func) or 'a call'} may give another value in each round"
        if isinstance(node, ast.Attribute) and root_of(node) not in ({"torch", "np", "math"} | _SETTINGS):
            is_method = name_of(node) in PURE
            if not is_method and node.attr not in FACTS:
                return f"the attribute {node.attr} may change in the loop"
    return ""


def _doubt_of_reach(source: Source, statement: ast.Assign, name: str) -> str:
    """Who may change what each round builds, or see that it is no new one."""
    if moving := stays(source, statement.value, _made_before(source, statement)):
        return f"{moving} may be another in each round"
    if sum(isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
           for one in walk(source.scope(statement))) > 1:  # fmt: skip
        return f"{name} is bound elsewhere, too"
    is_read = only_read(source, name, source.tree, statement)
    return "" if is_read else f"{name} is kept or handed on, where it may be changed"


def _hoist(source: Source, loop: Loop, statement: ast.Assign, doubt: str) -> Proposal:
    rows = source.rows[statement.lineno - 1 : statement.end_lineno]
    inner, outer = source.indent(statement), source.indent(loop)
    text = "".join(outer + row.decode().removeprefix(inner) for row in rows)
    reason = "the loop builds the same tensor in each round; it is built once before it"
    moved = (source.insert(loop.lineno - 1, text), source.drop(statement))
    return Proposal(statement.lineno, reason, moved, doubt)


BUILD_ONCE: Final = Recipe(
    "build_once",
    "build masks and positions once and hand them to the layers",
    Effort.LINES,
    "the memory of what is kept",
    drift="exact",
    edits=(find_constants, find_rebuilt),
)
