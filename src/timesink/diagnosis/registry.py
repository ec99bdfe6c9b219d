"""The rules there are. The folder is the registry: every module below `rules` holds its topic's `RULES`.

A module whose name begins with an underscore holds what the rules of a topic share, and is not asked for rules.
"""

import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from itertools import chain
from types import ModuleType

from timesink.diagnosis.rule import Rule, rule_texts
from timesink.errors import unknown
from timesink.knowledge.step_parts import Bottleneck


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
    """The rule with that code or name, or the first that finds the cause of that name, in any case and with spaces too.
    `UsageError` names the nearest ones."""
    wanted = "-".join(code_or_name.lower().replace("_", " ").split())
    cards = {rule: rule.card for rule in all_rules()}
    for rule, card in cards.items():
        if wanted in (card.code.lower(), card.name):
            return rule
    for rule, card in cards.items():
        if Bottleneck.__members__.get(wanted.replace("-", "_").upper()) in causes_of(card.name):
            return rule
    shown = {name: f"{card.code} {card.name}" for card in cards.values() for name in (card.code, card.name)}
    raise unknown("rule", code_or_name, shown, "timesink explain")


def causes_of(name: str) -> frozenset[Bottleneck]:
    """What the findings of the rule of that name can be called."""
    texts = rule_texts(name)
    told = (texts.said, *texts.variants.values())
    return frozenset(Bottleneck(said["bottleneck"]) for said in told if said.get("bottleneck") in set(Bottleneck))


def find_all(texts: Iterable[str]) -> tuple[Rule, ...]:
    """The rules meant by codes, names, and beginnings of codes (`KRN`, `KRN1`); commas separate too. `UsageError` as
    `find`.
    """
    found: dict[str, Rule] = {}
    for part in (part.strip() for text in texts for part in text.split(",") if part.strip()):
        several = [rule for rule in all_rules() if rule.code.startswith(part.upper())]
        found |= {rule.code: rule for rule in several or [find(part)]}
    return tuple(found.values())


def rules_of(module: ModuleType) -> tuple[Rule, ...]:
    """The rules of one module. `TypeError` where it holds none."""
    rules = getattr(module, "RULES", None) or (getattr(module, "RULE", None),)
    for rule in rules:
        if not isinstance(rule, Rule):
            what = "has no RULES" if rule is None else f"has a rule of type {type(rule).__name__}, not Rule"
            remedy = "begin its name with an underscore if it holds what rules share"
            raise TypeError(f"{module.__name__} {what}; {remedy}")
    return tuple(rules)
