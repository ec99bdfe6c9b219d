"""The rules there are: every module `rules/<topic>/<name>.py` that holds a `RULE`. The folder is the registry."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

import timesink.rules
from timesink.errors import UsageError
from timesink.rule import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, ordered by code."""
    modules = pkgutil.walk_packages(timesink.rules.__path__, prefix="timesink.rules.")
    rules = [import_module(info.name).RULE for info in modules if not info.ispkg]
    return tuple(sorted(rules, key=lambda rule: rule.card.code))


def find(code_or_name: str) -> Rule:
    """The rule with that code or name, any case. `UsageError` lists the alternatives."""
    wanted = code_or_name.strip().lower()
    for rule in all_rules():
        if wanted in (rule.card.code.lower(), rule.card.name.lower()):
            return rule
    known = ", ".join(f"{rule.card.code} {rule.card.name}" for rule in all_rules())
    raise UsageError(f"no rule is called {code_or_name!r}", remedy=f"choose one of: {known}")
