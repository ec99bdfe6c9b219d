"""Rows of a data set in memory: a batch's rows are taken at once, where a loader takes and stacks them one by one."""

import ast
from collections.abc import Iterator
from typing import Final

from timesink.recipes import Effort, Recipe
from timesink.recipes.arguments import maker_at
from timesink.recipes.proof import Replacement
from timesink.recipes.reach import bound_to
from timesink.recipes.source import Proposal, Source, end_of, name_of
from timesink.recipes.walking import walk

_HELPER: Final = '''from torch.utils.data import Dataset, default_convert


class {name}(Dataset):
    """A data set whose rows lie in memory: those of a batch are taken at once."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        return self.rows[at]

    def __getitems__(self, many):
        return [self.rows[many]]

    @staticmethod
    def collated(batches):
        return default_convert(batches[0])


'''
_KNOWN: Final = frozenset({
    "batch_size", "shuffle", "sampler", "num_workers", "pin_memory", "drop_last", "timeout", "worker_init_fn",
    "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers", "pin_memory_device", "in_order",
})  # fmt: skip
_POSITIONS: Final = ("dataset", "batch_size", "shuffle", "sampler")
_CASTS: Final = frozenset({"float", "long", "double", "half", "int", "bool", "astype", "to"})
_TENSORS: Final = frozenset({"tensor", "as_tensor", "from_numpy"})


def find_rows(source: Source, line: int) -> Iterator[Proposal]:
    """A `DataLoader` of PyTorch over a `TensorDataset`, or over a class of the file whose `__getitem__` gives rows."""
    call = maker_at(source, line)
    if call is None or not _is_loader(source, call) or len(call.args) > len(_POSITIONS):
        return
    given = dict(zip(_POSITIONS, call.args, strict=False)) | {word.arg or "": word.value for word in call.keywords}
    data, size = given.pop("dataset", None), given.get("batch_size")
    is_one = size is None or (isinstance(size, ast.Constant) and size.value in (None, 1))
    if data is None or is_one or not given.keys() <= _KNOWN or not _has_rows(source, data):
        return
    name = source.free_name("RowsAtOnce")
    top = [held for held in source.above(call) if held in source.tree.body][-1]
    first = min([top.lineno, *(one.lineno for one in getattr(top, "decorator_list", ()))])
    last = max([*call.args, *(word.value for word in call.keywords)], key=end_of)
    more = Replacement(end_of(last), end_of(last), f", collate_fn={name}.collated", call)
    made = (
        source.insert(first - 1, _HELPER.format(name=name)),
        source.replace(data, f"{name}({source.said(data)})"),
        more,
    )
    yield Proposal(call.lineno, "the loader takes the rows of a batch one by one, and stacks them", made)


def _is_loader(source: Source, call: ast.Call) -> bool:
    """Whether it makes a loader of PyTorch itself: others of that name collate in their own way."""
    if isinstance(call.func, ast.Attribute):
        return source.said(call.func) in ("torch.utils.data.DataLoader", "data.DataLoader", "data_utils.DataLoader")
    imports = [one for one in walk(source.tree, ast.ImportFrom) if any(two.name == "DataLoader" for two in one.names)]
    return name_of(call.func) == "DataLoader" and [one.module for one in imports] == ["torch.utils.data"]


def _has_rows(source: Source, data: ast.expr) -> bool:
    """Whether an item of the data set is a row of each of its arrays, so that several places give several rows."""
    made = bound_to(source, data.id) if isinstance(data, ast.Name) else data
    name = name_of(made.func) if isinstance(made, ast.Call) else ""
    classes = [one for one in walk(source.tree, ast.ClassDef) if one.name == name]
    if not classes:
        return name == "TensorDataset"
    methods = {one.name: one for one in classes[0].body if isinstance(one, ast.FunctionDef)}
    is_plain = len(classes) == 1 and all(name_of(base).endswith("Dataset") for base in classes[0].bases)
    item = methods.get("__getitem__")
    return is_plain and item is not None and "__getitems__" not in methods and _gives_rows(item)


def _gives_rows(item: ast.FunctionDef) -> bool:
    """Whether a method only takes rows of its object's arrays, of other types perhaps, and returns them."""
    names = [one.arg for one in item.args.args]
    *before, last = item.body
    if len(names) != 2 or item.decorator_list or not isinstance(last, ast.Return) or last.value is None:
        return False
    rows = set[str]()
    for statement in before:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return False
        targets, values = _parts(statement.targets[0]), _parts(statement.value)
        are_rows = all(isinstance(to, ast.Name) for to in targets) and all(_is_row(one, names, rows) for one in values)
        if not are_rows or len(targets) != len(values):
            return False
        rows |= set(map(name_of, targets))
    return names[1] not in rows and all(_is_row(one, names, rows) for one in _parts(last.value))


def _parts(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.Dict):
        is_named = all(isinstance(key, ast.Constant) for key in value.keys)
        return value.values if is_named else [value]
    return value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]


def _is_row(value: ast.expr, names: list[str], rows: set[str]) -> bool:
    """Whether it is `self.array[at]`, or one of the rows, perhaps of another type."""
    if isinstance(value, ast.Name):
        return value.id in rows
    if isinstance(value, ast.Subscript):
        array, at = value.value, value.slice
        is_own = isinstance(array, ast.Attribute) and isinstance(array.value, ast.Name) and array.value.id == names[0]
        return is_own and isinstance(at, ast.Name) and at.id == names[1]
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    is_made = name_of(value.func) in _TENSORS and isinstance(value.func.value, ast.Name)
    of, *types = [*value.args] if is_made else [value.func.value, *value.args]
    types += [word.value for word in value.keywords if word.arg == "dtype"]
    is_cast = is_made or name_of(value.func) in _CASTS
    are_types = all(isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) for one in types)
    return is_cast and are_types and len(types) <= 1 and _is_row(of, names, rows)


BATCHED_ROWS: Final = Recipe(
    "batched_rows",
    "take the rows of a batch at once, not one by one",
    Effort.LINES,
    drift="exact",
    where="loader",
    edits=(find_rows,),
    priced_as="loader_workers",
)
