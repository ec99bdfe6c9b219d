"""Numbers that a program is given: in how many micro-batches a step comes, how often a Trainer evaluates and saves.

Another number is another program, if often as good a one: so all of these are offered.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from timesink.recipes import Effort, Recipe
from timesink.recipes.proof import Replacement
from timesink.recipes.source import Proposal, Source, calls_in, end_of, name_of, number_of
from timesink.recipes.walking import walk

_COUNTS: Final = frozenset({
    "gradient_accumulation_steps", "gradient_accumulate_every", "gradient_accumulation", "grad_accumulation_steps",
    "accumulation_steps", "accumulate_grad_batches", "accum_steps", "grad_accum_steps", "grad_accum", "accum_iter",
    "accumulate_steps", "num_accumulation_steps", "update_freq",
})  # fmt: skip
_SIZES: Final = frozenset({
    "batch_size", "micro_batch_size", "train_batch_size", "per_device_train_batch_size", "batch_size_per_gpu",
    "device_batch_size", "per_gpu_train_batch_size", "train_micro_batch_size_per_gpu",
})  # fmt: skip
_MEAN: Final = (
    "it is right where a loss is the mean of its batch, nothing draws or norms by batch, and all fit in memory"
)
_FEW, _OFTEN = 5, 500  # steps between two evaluations: as few as that are a test, up to those are often
_RARER: Final = "the numbers of fewer evaluations are written, and the best checkpoint is chosen from fewer"
_HIDDEN: Final = "the log shows a loss that is not a number, which is left out of it now"


def find_micro_batches(source: Source, line: int) -> Iterator[Proposal]:
    """The number of micro-batches and the size of one, given in one place: arguments of a call, defaults of a function
    or a class, names of a block, options of a command."""
    for group in _groups(source):
        counts = [(name, value) for name, value in group.items() if name in _COUNTS and (number_of(value) or 0) > 1]
        sizes = [(name, value) for name, value in group.items() if name in _SIZES and number_of(value)]
        if len(counts) != 1 or len(sizes) != 1:
            continue
        (_, count), (_, size) = counts[0], sizes[0]
        whole = (number_of(count) or 1) * (number_of(size) or 1)
        reason = (
            f"a step takes {number_of(count)} passes of {number_of(size)}; one pass of {whole} launches fewer kernels"
        )
        yield Proposal(count.lineno, reason, (source.replace(count, "1"), source.replace(size, str(whole))), _MEAN)


def _groups(source: Source) -> Iterator[Mapping[str, ast.expr]]:
    """Names that are given values in one place, and the values."""
    options: dict[str, ast.expr] = {}
    for node in walk(source.tree):
        if isinstance(node, ast.Call):
            words = {word.arg: word.value for word in node.keywords if word.arg}
            flag = node.args[-1] if node.args else None
            if name_of(node.func) == "add_argument" and isinstance(flag, ast.Constant) and "default" in words:
                options[str(flag.value).lstrip("-").replace("-", "_")] = words["default"]
            yield words
        elif isinstance(node, ast.arguments):
            every = [*node.posonlyargs, *node.args]
            given = dict(zip(every[len(every) - len(node.defaults) :], node.defaults, strict=True))
            given |= {one: value for one, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value}
            yield {one.arg: value for one, value in given.items()}
        elif isinstance(node, ast.Dict):
            keys = [one.value if isinstance(one, ast.Constant) else None for one in node.keys]
            yield {key: value for key, value in zip(keys, node.values, strict=True) if isinstance(key, str)}
        elif isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield _assigned(node)
    yield options


def _assigned(block: ast.Module | ast.ClassDef | ast.FunctionDef) -> Mapping[str, ast.expr]:
    """What the statements of a block bind names to, once each."""
    bound: list[tuple[str, ast.expr]] = []
    for one in block.body:
        if isinstance(one, ast.Assign):
            bound += [(name_of(target).lower(), one.value) for target in one.targets]
        elif isinstance(one, ast.AnnAssign) and one.value is not None:
            bound.append((name_of(one.target).lower(), one.value))
    names = [name for name, _ in bound]
    return {name: value for name, value in bound if name and names.count(name) == 1}


def find_evaluations_of_trainers(source: Source, line: int) -> Iterator[Proposal]:
    """A Trainer of Hugging Face that evaluates every few steps: once an epoch, and so does it save; ten or a
    hundred times as rarely where its length is in steps."""
    for call, given in _arguments_of_trainers(source):
        asked = [given.get(name) for name in ("eval_strategy", "evaluation_strategy")]
        is_by_steps = any(isinstance(one, ast.Constant) and one.value == "steps" for one in asked)
        steps = number_of(given["eval_steps"]) if "eval_steps" in given else None
        if not is_by_steps or steps is None or not _FEW < steps <= _OFTEN:
            continue
        numbers = [given[name] for name in ("eval_steps", "save_steps") if name in given and number_of(given[name])]
        if "max_steps" in given:
            rarer = 10 if 10 * steps > _OFTEN else 100
            made = [source.replace(one, str(rarer * (number_of(one) or 1))) for one in numbers]
        else:
            words = ("eval_strategy", "evaluation_strategy", "save_strategy")
            by_steps = [given[name] for name in words if name in given and getattr(given[name], "value", "") == "steps"]
            made = [source.replace(one, '"epoch"') for one in by_steps]
        reason = f"the Trainer evaluates every {steps} steps; it does so rarely"
        yield Proposal(call.lineno, reason, tuple(made), _RARER)


def find_searched_losses(source: Source, line: int) -> Iterator[Proposal]:
    """A Trainer of Hugging Face that reads in each step whether its loss is a number."""
    for call, given in _arguments_of_trainers(source):
        last = max([*call.args, *given.values()], key=end_of, default=None)
        if last is not None and "logging_nan_inf_filter" not in given:
            more = Replacement(end_of(last), end_of(last), ", logging_nan_inf_filter=False", call)
            yield Proposal(
                call.lineno, "the Trainer waits in each step to see if its loss is a number", (more,), _HIDDEN
            )


def _arguments_of_trainers(source: Source) -> Iterator[tuple[ast.Call, Mapping[str, ast.expr]]]:
    """Calls that make the arguments of a Trainer, and these by name; not where more come from elsewhere."""
    for call in calls_in(source.tree):
        if name_of(call.func).endswith("TrainingArguments") and all(word.arg for word in call.keywords):
            yield call, {word.arg or "": word.value for word in call.keywords}


ONE_PASS: Final = Recipe(
    "one_pass",
    "take the micro-batches of a step in one pass",
    Effort.FLAG,
    "the memory of all micro-batches at once",
    drift="rounding",
    edits=(find_micro_batches,),
)
