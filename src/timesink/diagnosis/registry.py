"""The rules there are. The folder is the registry: every module below `rules` holds its topic's `RULES`.

A module whose name begins with an underscore holds what the rules of a topic share, and is not asked for rules.
"""

import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from itertools import chain
from types import ModuleType

from timesink.diagnosis.rule import Rule
from timesink.diagnosis.rule_names import rule_called, rules_called


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, ordered by code. `TypeError` names a module that holds none."""
    return tuple(sorted(chain.from_iterable(map(rules_of, rule_modules())), key=lambda rule: rule.code))


@cache
def rule_modules(topic: str = "") -> tuple[ModuleType, ...]:
    """The modules of the rules of one topic (a file or a folder under `rules`), or of all topics."""
    package = import_module(f"timesink.rules.{topic}".rstrip("."))
    if not hasattr(package, "__path__"):
        return (package,)
    infos = pkgutil.walk_packages(package.__path__, prefix=f"{package.__name__}.")
    names = [info.name for info in infos if not info.ispkg and not info.name.rpartition(".")[2].startswith("_")]
    return tuple(map(import_module, names))


def find(code_or_name: str) -> Rule:
    """The rule of that code, name or cause (`rule_names.rule_called`)."""
    return _by_code()[rule_called(code_or_name).code]


def find_all(texts: Iterable[str]) -> tuple[Rule, ...]:
    """The rules meant by codes, names, and beginnings of codes (`rule_names.rules_called`)."""
    return tuple(_by_code()[rule.code] for rule in rules_called(texts))


@cache
def _by_code() -> dict[str, Rule]:
    return {rule.code: rule for rule in all_rules()}


def rules_of(module: ModuleType) -> tuple[Rule, ...]:
    """The rules of one module. `TypeError` where it holds none."""
    rules = getattr(module, "RULES", None) or (getattr(module, "RULE", None),)
    for rule in rules:
        if not isinstance(rule, Rule):
            what = "has no RULES" if rule is None else f"has a rule of type {type(rule).__name__}, not Rule"
            remedy = "begin its name with an underscore if it holds what rules share"
            raise TypeError(f"{module.__name__} {what}; {remedy}")
    return tuple(rules)
