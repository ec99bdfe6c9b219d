"""The rules there are: every module `rules/<topic>/<name>.py` holds one `RULE`. The folder is the registry.

A module whose name begins with an underscore holds what the rules of a topic share.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from timesink.diagnosis.rule import Rule
from timesink.errors import UsageError


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, ordered by code."""
    package = import_module("timesink.rules")
    modules = pkgutil.walk_packages(package.__path__, prefix="timesink.rules.")
    names = [info.name for info in modules if not info.ispkg and not info.name.rpartition(".")[2].startswith("_")]
    rules = [import_module(name).RULE for name in names]
    return tuple(sorted(rules, key=lambda rule: rule.card.code))


def find(code_or_name: str) -> Rule:
    """The rule with that code or name, any case. `UsageError` lists the alternatives."""
    wanted = code_or_name.strip().lower()
    for rule in all_rules():
        if wanted in (rule.card.code.lower(), rule.card.name.lower()):
            return rule
    known = ", ".join(f"{rule.card.code} {rule.card.name}" for rule in all_rules())
    raise UsageError(f"no rule is called {code_or_name!r}", remedy=f"choose one of: {known}")
