"""Edits that are an argument more in one call, a line more, or a line less: flags of loader, optimizer and PyTorch.

A call is found by the line at which the program made it. One that already has such an argument is left alone.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from timesink.recipes.proof import Replacement
from timesink.recipes.source import Proposal, Source, calls_in, end_of, name_of
from timesink.recipes.walking import walk


def maker_at(source: Source, line: int) -> ast.Call | None:
    """The call in that line that makes an object of a class (their names begin with a capital)."""
    calls = [call for call in calls_in(source.tree) if call.lineno <= line <= (call.end_lineno or call.lineno)]
    makers = [call for call in calls if name_of(call.func)[:1].isupper()]
    return max(makers, key=lambda call: call.lineno, default=None)


def add_arguments(arguments: Mapping[str, Any], reason: str, source: Source, line: int) -> Iterator[Proposal]:
    """Arguments of the call that makes an object in that line."""
    call = maker_at(source, line)
    yield from () if call is None else give_arguments(arguments, reason, source, call)


def give_arguments(arguments: Mapping[str, Any], reason: str, source: Source, call: ast.Call) -> Iterator[Proposal]:
    """After its last argument; a lower number that is given is raised, any other value is left. What comes after the
    first goes with it, and is not given beside another value of it."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    last = max([*call.args, *given.values()], key=end_of, default=None)
    raised = {word for word, value in arguments.items() if word in given and _is_lower(given[word], value)}
    added = {word: value for word, value in arguments.items() if word not in given}
    if last is None or None in given or not {next(iter(arguments))} & {*raised, *added}:  # **options, or its own value
        return
    text = "".join(f", {word}={value!r}" for word, value in added.items())
    more = (source.replace(given[word], repr(arguments[word])) for word in raised)
    yield Proposal(call.lineno, reason, (Replacement(end_of(last), end_of(last), text, call), *more))


def _is_lower(given: ast.expr, wanted: object) -> bool:
    value = given.value if isinstance(given, ast.Constant) else None
    return type(value) is int and type(wanted) is int and value < wanted


def add_flag(text: str, reason: str, source: Source, line: int) -> Iterator[Proposal]:
    """A line after the import of PyTorch, where the file that makes the model has one."""
    imports = (node for node in source.tree.body if isinstance(node, ast.Import))
    torch = [node for node in imports if any(one.name == "torch" and not one.asname for one in node.names)]
    if torch and text.partition("(")[0].partition(" =")[0] not in source.text:
        row = end_of(torch[0])[0]
        yield Proposal(row + 1, reason, (source.insert(row + 1, f"{text}\n"),))


def add_autocast(reason: str, source: Source, line: int) -> Iterator[Proposal]:
    """A `with` around the simple statement that calls the model."""
    simple = walk(source.tree, ast.Assign, ast.AnnAssign, ast.Expr)
    statement = next((node for node in simple if node.lineno <= line <= (node.end_lineno or node.lineno)), None)
    if statement is not None and source.moves_whole(statement):
        opener = 'with torch.autocast("cuda", dtype=torch.bfloat16):'
        yield Proposal(statement.lineno, reason, source.wrap([statement], opener))


def drop_in_loop(called: str, reason: str, source: Source, line: int) -> Iterator[Proposal]:
    """Calls that a training loop makes in each step, for what the interpreter and PyTorch do by themselves."""
    for loop in source.step_loops():
        for statement in source.statements(loop):
            if isinstance(call := getattr(statement, "value", None), ast.Call) and source.said(call) == called:
                yield from drop_statement(source, call, reason)


def drop_statement(source: Source, call: ast.Call, reason: str) -> Iterator[Proposal]:
    """The statement that is that call alone goes."""
    statement = source.parents[call]
    if isinstance(statement, ast.Expr) and source.moves_whole(statement):
        yield Proposal(call.lineno, reason, (source.drop(statement),))
