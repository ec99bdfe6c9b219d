"""Change one sign, comparison, constant or term of a module at a time, and see whether the module's own tests notice.

A module's tests are collected once; for every mutant a fork puts the changed code in place and runs them, quickest
first, until one fails: hundreds of mutants a minute. Tests that alone take long are left out. A mutant that lives is
either in `tools/mutate.json`, or it makes this fail: as `alive` (known, no test is there yet) or as `equivalent`, with
the reason why no test could tell. The share killed may only rise.

python tools/mutate.py                      every mutant of the known modules; prints those that live and are not known
python tools/mutate.py -m waste,clocks      of these modules
python tools/mutate.py --sample 30 --seed 7 so many of each of two modules, chosen by the seed (the day)
python tools/mutate.py --write              put what lives into tools/mutate.json, where enough are killed and no fewer
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "timesink"
KNOWN = Path(__file__).with_suffix(".json")
# Seconds of CPU of those tests that call what was changed, quickest first; more where none fails that is not known to.
TIMES_OF_TESTS = (3.0, 30.0)
TIME_OF_MUTANT = 15  # seconds of CPU, for each 3 of tests; then it hangs, which is noticed
BAR = 0.85
CASES = "rules/test_all_rules.py"  # of these, the cases of the rules whose codes are named behind it
MODULES = {
    "intervals": ("model/intervals.py", "model/test_intervals.py"),
    "pricing": ("whatif/pricing.py", "whatif/test_pricing.py whatif/test_calibration.py"),
    "statistics": ("verify/statistics.py", "verify/test_statistics.py"),
    "waste": (
        "measures/counters/waste.py",
        f"measures/counters/test_waste.py measures/counters/test_kernel_limiter.py {CASES}",
        "NCU",
    ),
    "budget": (
        "measures/timeline/__init__.py measures/steps/per_step.py diagnosis/budgets.py",
        "measures/test_cases.py measures/timeline/test_budget.py measures/steps/test_per_step.py",
    ),
    "changes": (
        "fixes/replays.py whatif/changes/kernels.py whatif/changes/host.py whatif/changes/transfers.py",
        "whatif/test_changes.py whatif/test_changes_by_hand.py whatif/test_changes_beside.py "
        "knowledge/test_figures_of_replays.py measures/kernels/test_wasted_kernels.py gate/test_managed_memory.py",
    ),
    "edit": ("whatif/edit.py", "whatif/test_edit.py whatif/test_changes.py"),
    "clocks": (
        "measures/communication/clocks.py",
        "measures/communication/test_clocks_by_hand.py measures/communication/test_clocks_in_rounds.py",
    ),
    "pieces": (
        "measures/idle/pieces.py",
        f"measures/idle/test_pieces.py measures/idle/test_touched_pages.py {CASES}",
        "IDL",
    ),
    "lateness": (
        "measures/ranks/lateness.py",
        f"measures/ranks/test_lateness.py measures/ranks/test_paces.py measures/communication/test_waits.py {CASES}",
        "COM103",
    ),
    "replay": ("measures/timeline/replay.py", "measures/timeline/test_replay.py"),
    "gate": ("verify/gate.py", "verify/test_gate.py"),
}
_OTHER = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.And: ast.Or,
    ast.Or: ast.And, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}  # fmt: skip
_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_TURNED = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt}
_NAMES = {
    "min": "max", "minimum": "maximum", "any": "all", "floor": "ceil", "min_horizontal": "max_horizontal",
    "first": "last", "cum_sum": "cum_max",
}  # fmt: skip
_NOT_COMPUTED = {"annotation", "returns", "decorator_list", "type_params", "bases"}
_NAMES |= {other: name for name, other in _NAMES.items()}


@dataclass(frozen=True)
class Mutant:
    """One changed module. `key` says where and what, and stays the same while other lines move."""

    path: Path
    owner: str
    key: str
    line: int
    tree: ast.Module
    place: tuple[ast.AST, str, int | None, ast.AST]

    def changed(self) -> ast.Module:
        """The tree with the change made in it, for good: called in a fork."""
        parent, field, index, other = self.place
        value = getattr(parent, field)
        ast.copy_location(other, value if index is None else value[index])
        if index is None:
            setattr(parent, field, other)
        else:
            value[index] = other
        return ast.fix_missing_locations(self.tree)

    @cached_property
    def module(self) -> str:
        return ".".join(("timesink", *self.path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def changes(node: ast.AST) -> Iterator[ast.AST]:  # noqa: PLR0912
    """What may stand in the place of a node."""
    match node:
        case ast.BinOp(left=left, op=op):
            if type(op) in _OTHER:
                yield ast.BinOp(left, _OTHER[type(op)](), node.right)
            if isinstance(op, ast.Add | ast.Sub | ast.Mult) and not isinstance(
                left, ast.Tuple | ast.List | ast.Constant
            ):
                yield left
        case ast.Compare(left=left, ops=[op], comparators=right):
            for others in (_OTHER, _BOUNDARY, _TURNED):
                if type(op) in others:
                    yield ast.Compare(left, [others[type(op)]()], right)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(_OTHER[type(op)](), values)
            yield from (
                values
                if len(values) == 2
                else (ast.BoolOp(op, values[:n] + values[n + 1 :]) for n in range(len(values)))
            )
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value - 1)
            yield ast.Constant(value + 1)
        case ast.IfExp(body=body, orelse=orelse):
            yield body
            yield orelse
        case ast.Attribute(value=value, attr=name) if name in _NAMES:
            yield ast.Attribute(value, _NAMES[name], node.ctx)
        case ast.Name(id="min" | "max" | "any" | "all" as name):
            yield ast.Name(_NAMES[name], node.ctx)


def places(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None, ast.AST, str]]:
    """(parent, field, index, node, function) of everything that is computed: no annotation, no decorator."""

    def within(parent: ast.AST, owner: str) -> Iterator[tuple[ast.AST, str, int | None, ast.AST, str]]:
        for field, value in ast.iter_fields(parent):
            if field in {"annotation", "returns", "decorator_list", "type_params", "bases"} or isinstance(
                parent, ast.JoinedStr
            ):
                continue
            if isinstance(parent, ast.ClassDef) and field == "keywords":
                continue
            for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(node, ast.AST) and not isinstance(node, ast.Raise):
                    yield parent, field, index, node, owner
                    named = isinstance(node, ast.FunctionDef | ast.ClassDef)
                    yield from within(node, f"{owner}.{node.name}".strip(".") if named else owner)  # type: ignore[attr-defined]

    return within(tree, "")


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its text."""
    tree, seen = ast.parse(path.read_text(encoding="utf-8")), Counter[str]()
    for parent, field, index, node, owner in places(tree):
        before = ast.unparse(node) if isinstance(node, ast.expr) else ""
        for other in changes(node) if isinstance(node, ast.expr) else ():
            after = ast.unparse(other)
            if after == before:
                continue
            where = f"{path.relative_to(SOURCE)}:{owner}: {_around(parent, before)} -> {after}"
            seen[where] += 1
            key = where if seen[where] == 1 else f"{where} ({seen[where]})"
            yield Mutant(path, owner, key, getattr(node, "lineno", 0), tree, (parent, field, index, other))


def _around(parent: ast.AST, text: str) -> str:
    """The text of a constant with what it stands in: alone it says nothing."""
    whole = ast.unparse(parent) if isinstance(parent, ast.expr | ast.keyword) else text
    return whole if len(text) < 4 and len(whole) < 90 else text


def put_in_place(mutant: Mutant) -> None:
    """Give the functions of the imported module the mutant's code, and its names the mutant's values."""
    module = importlib.import_module(mutant.module)
    made = types.ModuleType(mutant.module)
    made.__dict__.update({"__file__": str(mutant.path), "__package__": mutant.module.rpartition(".")[0]})
    sys.modules[mutant.module], kept = made, module
    try:
        exec(compile(mutant.changed(), str(mutant.path), "exec"), made.__dict__)
    finally:
        sys.modules[mutant.module] = kept
    _exchange(vars(module), vars(made), mutant.module)


def _exchange(old: Any, new: Any, module: str) -> None:
    for name, value in list(new.items()):
        mine = old.get(name)
        if isinstance(value, type) and value.__module__ == module and isinstance(mine, type):
            _exchange(vars(mine), vars(value), module)
        elif isinstance(old, dict) and _is_plain(value, module) and not name.startswith("__"):
            old[name] = value
        else:
            for was, now in zip(_functions(mine), _functions(value), strict=False):
                if was.__module__ == module and len(was.__code__.co_freevars) == len(now.__code__.co_freevars):
                    was.__code__, was.__defaults__, was.__kwdefaults__ = (
                        now.__code__,
                        now.__defaults__,
                        now.__kwdefaults__,
                    )


def _is_plain(value: Any, module: str) -> bool:
    """Whether it is a constant that holds nothing of the module's own classes."""
    inside = (
        [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, tuple | frozenset) else ()
    )
    plain = isinstance(value, int | float | str | dict | tuple | frozenset) and type(value).__module__ != module
    return plain and all(type(one).__module__ != module for one in inside)


def _functions(value: Any) -> list[types.FunctionType]:
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, classmethod | staticmethod | cached_property):
        value = value.func if isinstance(value, cached_property) else value.__func__
    value = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
    return [value] if isinstance(value, types.FunctionType) else []


class Runner:
    """A plugin of pytest: instead of running the tests once, run them in a fork for each mutant."""

    def __init__(self, mutants: list[Mutant], codes: str, known: frozenset[str]) -> None:
        self.mutants, self.codes, self.known = mutants, codes, known
        self.alive: list[Mutant] = []
        self.times: dict[str, float] = {}
        self.trouble = ""
        self.called: dict[str, list[str]] | None = {}
        self.paths = {str(mutant.path) for mutant in mutants}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Of all rules' cases, keep the verdicts of these."""
        items[:] = [item for item in items if CASES not in item.nodeid or f"states[{self.codes}" in item.nodeid]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Note which functions of the module a test calls, where that is asked for."""
        if self.called is None:
            return (yield)
        found: set[str] = set()

        def note(frame: types.FrameType, event: str, _: object) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename in self.paths:
                found.add(code.co_qualname.replace(".<locals>", ""))

        began = time.process_time()
        sys.setprofile(note)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            self.times[item.nodeid] = time.process_time() - began
            self.called[item.nodeid] = sorted(found)

    def pytest_runtestloop(self, session: Any) -> bool:
        with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as told:
            if _forked(lambda: self._all(session, told), 20 * TIME_OF_MUTANT):
                self.trouble = "the tests fail as they are"
                return True
            told.seek(0)
            self.times, called = json.load(told)
        self.called = None
        every = sorted(session.items, key=lambda item: self.times.get(item.nodeid, 0.0))
        for mutant in self.mutants:
            able = [item for item in every if mutant.owner in ("", *called[item.nodeid])]
            limits = TIMES_OF_TESTS[:1] if mutant.key in self.known else TIMES_OF_TESTS
            if all(self._lives(session, mutant, able, limit) for limit in limits):
                self.alive.append(mutant)
        return True

    def _lives(self, session: Any, mutant: Mutant, able: list[Any], limit: float) -> bool:
        """Whether none of the tests fails that are done within so many seconds."""
        spent = accumulate(self.times[item.nodeid] for item in able)
        session.items[:] = [item for item, so_far in zip(able, spent, strict=True) if so_far <= limit]
        seconds = int(TIME_OF_MUTANT * limit / TIMES_OF_TESTS[0])
        return not _forked(lambda: (put_in_place(mutant), _run(session))[1], seconds)

    def _all(self, session: Any, told: Any) -> bool:
        _run(session)
        json.dump((self.times, self.called), told)
        told.flush()
        return bool(session.testsfailed)


def _run(session: Any) -> bool:
    """Run the session's tests until one fails; whether one did."""
    for number, item in enumerate(session.items):
        following = session.items[number + 1] if number + 1 < len(session.items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return True
    return False


def _forked(work: Any, seconds: int = TIME_OF_MUTANT) -> bool:
    """Whether the work, done in a fork, found a failure: a false return is the only way not to."""
    child = os.fork()
    if not child:
        failed = True
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            failed = bool(work())
        finally:
            os._exit(int(failed))
    deadline = time.monotonic() + 10 * seconds  # one that waits for ever uses no CPU
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def lives(name: str, mutants: list[Mutant], known: frozenset[str], answer: Any) -> None:
    """In a process of its own: put the keys and lines of the mutants that live into the queue."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.environ.pop("PYTEST_ADDOPTS", None)
    _, tests, *codes = MODULES[name]
    runner = Runner(mutants, "".join(codes), known)
    paths = [str(ROOT / "tests" / test) for test in tests.split()]
    options = ["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=quick", "--hypothesis-seed=0"]
    code = pytest.main([*options, *paths], plugins=[runner])
    if code not in (0, 5) and not runner.trouble:
        runner.trouble = f"pytest ended with {code}"
    answer.put((runner.trouble, [(mutant.key, mutant.line) for mutant in runner.alive]))


def survivors(name: str, mutants: list[Mutant], known: frozenset[str]) -> list[tuple[str, int]]:
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    process = context.Process(target=lives, args=(name, mutants, known, answer))
    process.start()
    trouble, alive = answer.get()
    process.join()
    if trouble:
        raise SystemExit(f"{name}: {trouble}")
    return list(alive)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("-m", "--modules", default="", help="names, with commas [default: those in tools/mutate.json]")
    parser.add_argument("--sample", type=int, help="so many of each of two modules, chosen by the seed")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()) // 86_400, help="of the sample; the day if not given"
    )
    parser.add_argument("--write", action="store_true", help="put what lives into tools/mutate.json")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT)]
    known = json.loads(KNOWN.read_text(encoding="utf-8")) if KNOWN.is_file() else {}
    names = arguments.modules.split(",") if arguments.modules else list(known)
    drawn = random.Random(arguments.seed)
    if arguments.sample:
        print(f"seed {arguments.seed}")
        names = drawn.sample([name for name in names if name in known], k=2)
    failed = False
    for name in names:
        mutants = [mutant for path in MODULES[name][0].split() for mutant in mutants_of(SOURCE / path)]
        if arguments.sample:
            mutants = drawn.sample(mutants, k=min(arguments.sample, len(mutants)))
        failed |= _judge(name, mutants, known, arguments)
    if arguments.write and not failed:
        KNOWN.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(failed)


def _judge(name: str, mutants: list[Mutant], known: dict[str, Any], arguments: argparse.Namespace) -> bool:
    """Try these mutants of one module and print what lives; whether that is worse than what is known."""
    began = time.monotonic()
    of_module = known.setdefault(name, {"killed": 0.0, "equivalent": {}, "alive": []})
    known = frozenset((*of_module["equivalent"], *of_module["alive"]))
    alive = [(key, line) for key, line in survivors(name, mutants, known) if key not in of_module["equivalent"]]
    could = sum(mutant.key not in of_module["equivalent"] for mutant in mutants)
    share = 1 - len(alive) / could if could else 1.0
    print(f"{name}: {could - len(alive)} of {could} killed, {100 * share:.1f} % ({time.monotonic() - began:.0f} s)")
    fresh = [(key, line) for key, line in alive if key not in of_module["alive"]]
    for key, line in sorted(fresh, key=lambda pair: pair[1]):
        print(f"  lives, line {line}: {key}")
    if not arguments.write:
        return bool(fresh)
    if round(share, 3) < max(of_module["killed"], BAR):
        print(f"  too few: {max(of_module['killed'], BAR):.3f} is the least")
        return True
    of_module |= {"killed": round(share, 3), "alive": sorted(key for key, _ in alive)}
    return False


if __name__ == "__main__":
    sys.exit(main())
