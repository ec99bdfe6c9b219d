"""Who can reach a value, and what may hear of it: lists of what is allowed, for edits that are made and not offered.

What is not on a list is not known, and an edit beside it is offered. A tensor is only read where it is an operand, an
index, or handed to a function of PyTorch that gives a new one; a view of it is followed to where it is read.
"""

import ast
import builtins
from collections.abc import Callable, Iterator
from typing import Final

from timesink.recipes.source import Source, bound_in, calls_in, mutated_in, name_of
from timesink.recipes.walking import walk

_FACTS: Final = frozenset({"shape", "device", "dtype", "ndim", "is_cuda", "requires_grad"})
GIVE_NEW: Final = frozenset({
    "matmul", "mm", "bmm", "einsum", "where", "softmax", "log_softmax", "cross_entropy", "nll_loss", "mse_loss",
    "l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "smooth_l1_loss",
    "scaled_dot_product_attention", "linear", "embedding", "cat", "stack", "exp", "log", "sin", "cos", "sqrt",
    "rsqrt", "sum", "mean", "add", "mul", "sub", "div", "pow", "gather", "index_select", "dot", "outer", "triu",
    "tril", "masked_fill", "eq", "ne", "lt", "le", "gt", "ge", "any", "all", "max", "min", "argmax", "abs", "neg",
    "logical_not", "logical_and", "logical_or", "item", "tolist", "clone", "norm", "clamp", "sigmoid", "tanh",
    "size", "numel", "dim", "repeat", "masked_select", "allclose", "equal", "repeat_interleave", "maximum",
    "minimum", "cumsum", "addmm", "baddbmm", "lerp", "unique", "nonzero", "count_nonzero", "bincount", "topk", "std",
    "var", "median", "quantile", "prod", "logsumexp", "isnan", "isinf", "isfinite", "argmin",
})  # fmt: skip
"""Methods and functions of PyTorch whose result shares no memory with what they are given."""
_VIEWS: Final = frozenset({
    "view", "reshape", "unsqueeze", "squeeze", "expand", "expand_as", "view_as", "transpose", "permute", "t",
    "flatten", "to", "float", "half", "double", "int", "long", "bool", "bfloat16", "type", "cuda", "contiguous",
    "detach", "chunk", "type_as", "broadcast_to",
})  # fmt: skip
"""Those whose result may be what they are given."""
_ROOTS: Final = frozenset({"torch", "F", "functional", "math"})
_NUMBERS: Final = frozenset({"int", "float", "len", "min", "max", "round", "abs", "size", "dim", "numel", "device"})
SETTINGS: Final = frozenset({"cfg", "config", "args", "opt", "options", "hparams", "params", "settings"})
_SEES_NAMES: Final = frozenset({"globals", "locals", "vars", "eval", "exec", "getattr", "setattr"})
_DEEPEST: Final = 4

_QUIET_MODULES: Final = frozenset({
    "torch", "torchvision", "math", "random", "argparse", "os", "sys", "json", "dataclasses", "typing",
    "collections", "functools", "itertools", "pathlib", "abc", "copy", "__future__", "gc", "transformers",
})  # fmt: skip
"""Modules that take what PyTorch computes only as PyTorch hands it out, in order."""
_NEED_ORDER: Final = (
    "stream", "event", "record", "elapsed", "non_blocking", "data_ptr", "dlpack", "graph", "numpy", "pin_memory",
    "share", "cuda_array", "time", "clock", "tick", "bench", "profil", "put", "send", "ipc", "distributed",
    "multiprocessing", "rpc", "load_library", "cpp_extension", "custom", "kernel", "cudart", "notify", "thread",
    "pool", "ops", "external", "nvtx", "lap", "start", "stop", "handle", "pointer", "set",
)  # fmt: skip
"""Parts of names of what may see the GPU's work out of order, or take the time of it."""
_ORDERLY: Final = frozenset({
    "set_to_none", "set_default_device", "set_float32_matmul_precision", "Dataset", "TensorDataset", "dataset",
    "Subset", "reset_parameters", "get_device_properties", "set_device", "set_grad_enabled", "offset", "offsets",
    "setattr", "set",
})  # fmt: skip


def only_read(source: Source, name: str, scope: ast.AST, but: ast.AST, depth: int = 0) -> bool:
    """Whether nothing that the file shows can change or keep the value of a name, or part of it: each place that reads
    it in `scope` is on the list. The statement `but` binds it."""
    for node in walk(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SEES_NAMES:
            return False
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            return False
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            if any(one is but for one in source.above(node)) or _is_own(source, node, scope):
                continue
            if not is_read(source, node, depth):
                return False
    return True


def _is_own(source: Source, node: ast.Name, scope: ast.AST) -> bool:
    """Whether a function within the scope has a name of its own of that kind."""
    for held in source.above(node):
        if held is scope:
            return False
        if isinstance(held, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            own = {one.arg for one in walk(held.args, ast.arg)}
            if node.id in own | (bound_in(held) if not isinstance(held, ast.Lambda) else set()):
                return True
    return False


def is_read(source: Source, node: ast.AST, depth: int = 0) -> bool:
    """Whether the value is read where it stands, and neither kept nor changed."""
    above = source.parents[node]
    if isinstance(above, (ast.BinOp, ast.Compare, ast.UnaryOp, ast.FormattedValue)):
        return True
    if isinstance(above, ast.Subscript):
        return above.slice is node or (isinstance(above.ctx, ast.Load) and is_read(source, above, depth))
    if isinstance(above, ast.Attribute):
        call = source.parents[above]
        is_called = isinstance(call, ast.Call) and call.func is above and not _asks_for_place(call)
        is_view = above.attr in _VIEWS and is_called and is_read(source, call, depth)
        return above.attr in _FACTS or is_view or (above.attr in GIVE_NEW and is_called)
    holder = source.parents[above] if isinstance(above, (ast.keyword, ast.List, ast.Tuple)) else above
    if isinstance(above, (ast.List, ast.Tuple)):  # x[:, held], torch.cat((a, held))
        is_index = isinstance(holder, ast.Subscript) and holder.slice is above
        return is_index or (isinstance(holder, ast.Call) and _gives_new(holder))
    word = above.arg if isinstance(above, ast.keyword) else None
    return isinstance(holder, ast.Call) and _reads_argument(source, holder, node, word, depth)


def _asks_for_place(call: ast.Call) -> bool:
    return any(word.arg in ("out", "inplace", None) for word in call.keywords)


def _gives_new(call: ast.Call) -> bool:
    is_torch = isinstance(call.func, ast.Attribute)
    return is_torch and name_of(call.func) in GIVE_NEW and not _asks_for_place(call)


def _reads_argument(source: Source, call: ast.Call, node: ast.AST, word: str | None, depth: int) -> bool:
    """Whether a call only reads this argument: a function of PyTorch or a method that gives a new tensor, `print`, or a
    function of the file that only reads it, too."""
    if _gives_new(call):
        return True
    if isinstance(call.func, ast.Name) and call.func.id == "print":
        return word is None
    function, bound = _called(source, call)
    if function is None or depth >= _DEEPEST or function.decorator_list:
        return False
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)][bound:]
    at = next((at for at, one in enumerate(call.args) if one is node), None)
    given = word or (names[at] if at is not None and at < len(names) else None)
    if given is None or given in bound_in(function) | mutated_in(function):
        return False
    return only_read(source, given, function, call, depth + 1)


def _called(source: Source, call: ast.Call) -> tuple[ast.FunctionDef | None, int]:
    """The function of the file that is called, and how many arguments it has already: a function by its name, or the
    forward pass of a class of the file, of which a name was made once."""
    if not isinstance(call.func, ast.Name):
        return None, 0
    functions = walk(source.tree, ast.FunctionDef, ast.ClassDef)
    named = [one for one in functions if one.name == call.func.id]
    if len(named) == 1 and isinstance(named[0], ast.FunctionDef) and _times_bound(source, call.func.id) == 1:
        return (named[0], 0) if named[0] in source.tree.body else (None, 0)
    made = bound_to(source, call.func.id)
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in _VIEWS | {"eval"}:
        made = made.func.value
    name = name_of(made.func) if isinstance(made, ast.Call) else ""
    classes = [one for one in functions if isinstance(one, ast.ClassDef) and one.name == name]
    if len(classes) != 1 or any("hook" in name_of(one.func) for one in calls_in(source.tree)):
        return None, 0
    forwards = [one for one in classes[0].body if isinstance(one, ast.FunctionDef) and one.name == "forward"]
    has_call = any(isinstance(one, ast.FunctionDef) and one.name == "__call__" for one in classes[0].body)
    return (forwards[0], 1) if len(forwards) == 1 and not has_call else (None, 0)


def _times_bound(source: Source, name: str) -> int:
    return sum(name in bound_in(one) for one in walk(source.tree, ast.stmt) if not _holds(one))


def _holds(statement: ast.stmt) -> bool:
    return hasattr(statement, "body") and not isinstance(statement, (ast.FunctionDef, ast.ClassDef))


def bound_to(source: Source, name: str) -> ast.expr | None:
    """What the file binds the name to, where it does so once, by an assignment."""
    found = [
        one
        for one in walk(source.tree)
        if isinstance(one, ast.Assign) and any(name in bound_in(target) for target in one.targets)
    ]
    others = [
        one
        for one in walk(source.tree)
        if (isinstance(one, ast.Name) and one.id == name and not isinstance(one.ctx, ast.Load))
        or (isinstance(one, ast.arg) and one.arg == name)
        or (isinstance(one, (ast.FunctionDef, ast.ClassDef)) and one.name == name)
    ]
    is_once = len(found) == 1 and len(others) == 1 and isinstance(found[0].targets[0], ast.Name)
    return found[0].value if is_once else None


def stays(source: Source, value: ast.expr, known: set[str]) -> str:
    """The first name or part of an expression whose value may be another, or be changed in place, in a later round;
    empty where there is none: numbers, sizes, devices, types and settings stay, and what is `known` to."""
    for node in walk(value):
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.Starred)):
            return "a comprehension"
        given = node.args if isinstance(node, ast.Call) and name_of(node.func) in _COPIES else []
        if not all(isinstance(one, _LITERAL) for argument in given for one in walk(argument)):
            return "what a tensor is made of"
        if isinstance(node, ast.Name) and node.id not in known and not _is_number(source, node, 0):
            return node.id
    return ""


_COPIES: Final = ("tensor", "as_tensor", "from_numpy")
_LITERAL: Final = (ast.Constant, ast.List, ast.Tuple, ast.UnaryOp, ast.USub, ast.Load)


def _is_number(source: Source, node: ast.Name, depth: int) -> bool:
    """Whether a name is a module's, stands for a size, device, type or setting, or is bound once to such a value."""
    above = source.parents[node]
    is_fact = isinstance(above, ast.Attribute) and (above.attr in _FACTS | _NUMBERS or node.id in SETTINGS)
    if is_fact or node.id in _ROOTS | {"np", "numpy"} or hasattr(builtins, node.id):
        return True
    value = bound_to(source, node.id)
    return value is not None and depth < _DEEPEST and _makes_number(source, value, depth + 1)


def _makes_number(source: Source, value: ast.expr, depth: int) -> bool:
    calls = walk(value, ast.Call)
    if any(name_of(one.func) not in _NUMBERS | {"is_available"} for one in calls):
        return False
    if isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp)):
        return False
    names = walk(value, ast.Name)
    return all(_is_number(source, one, depth) for one in names)


def needs_order(source: Source) -> str:
    """What of a file may need the GPU's work to be over, or take the time of it; empty where all that the file names is
    on the list of what waits by itself, or runs behind."""
    for node in walk(source.tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            if isinstance(node, ast.ImportFrom) and node.level:
                return "a module of its own"
            if other := next((one for one in modules if one.partition(".")[0] not in _QUIET_MODULES), ""):
                return other
        for said in _names_in(node):
            if said not in _ORDERLY and any(part in said.lower() for part in _NEED_ORDER):
                return said
    defined = {name for one in walk(source.tree) for name in (bound_in(one) if _defines(one) else ())}
    parameters = {one.arg for one in walk(source.tree, ast.arg)}
    for call in calls_in(source.tree):
        if isinstance(call.func, ast.Name) and call.func.id in parameters - defined and call.func.id not in _MODELS:
            return f"{call.func.id}, which is handed over,"
    return ""


_MODELS: Final = frozenset(
    {"model", "net", "network", "module", "layer", "block", "loss_fn", "criterion", "activation"}
)


def _defines(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom))


def _names_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield node.attr
    if isinstance(node, ast.Name):
        yield node.id
    if isinstance(node, ast.keyword) and node.arg:
        yield node.arg
    if isinstance(node, ast.alias):
        yield from node.name.split(".")
        yield node.asname or ""


def is_heard_by_more(source: Source, statement: ast.stmt, harmless: Callable[[ast.Call], bool]) -> bool:
    """Whether a message does more than tell: it binds a name, calls what may do anything, or writes to a file."""
    if any(
        isinstance(one, (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await, ast.Lambda)) for one in walk(statement)
    ):
        return True
    outer = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    if isinstance(outer, ast.Call) and any(word.arg in ("file", None) for word in outer.keywords):
        return True
    return any(one is not outer and not harmless(one) for one in calls_in(statement))


def leaves_traces(source: Source, call: ast.Call) -> str:
    """Why an evaluation may do more than give a result; empty where it is a function of the file that binds names of
    its own only, and calls nothing that writes."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    found = [one for one in walk(source.tree, ast.FunctionDef) if one.name == name]
    if len(found) != 1:
        return f"{name or 'what evaluates'} is not in the file, and may do more"
    function = found[0]
    own = bound_in(function)
    if walk(function, ast.Global, ast.Nonlocal, ast.Yield, ast.NamedExpr):
        return f"{name} sets names of others"
    if changed := mutated_in(function) - own:
        return f"{name} changes {min(changed) or 'what it is given'}"
    if other := next((name_of(one.func) for one in calls_in(function) if name_of(one.func) in _WRITES), ""):
        return f"{name} calls {other}"
    modes = {name_of(one.func) for one in calls_in(function)} & {"eval", "train"}
    return f"{name} leaves the model in another mode" if len(modes) == 1 else ""


_WRITES: Final = frozenset({
    "print", "save", "write", "dump", "savez", "to_csv", "savefig", "log", "info", "add_scalar", "open", "put",
    "send", "step", "backward", "append", "update", "add", "seed", "manual_seed", "tick", "save_pretrained",
    "push_to_hub",
})  # fmt: skip
