"""The rules by code, name and cause, as their files say. Reads no trace, and imports neither a rule nor a measure: what
is asked for is judged before what answers it is loaded."""

from collections.abc import Iterable, Mapping
from functools import cache

from timesink.diagnosis.rule import page_paths, rule_texts
from timesink.errors import unknown
from timesink.knowledge.step_parts import Bottleneck
from timesink.records import Record


class RuleName(Record, order=True):
    """A rule by its code, and by its name."""

    code: str
    name: str


@cache
def rule_names() -> tuple[RuleName, ...]:
    """Those of all rules, ordered by code."""
    return tuple(sorted(RuleName(rule_texts(name).declared["code"], name) for name in page_paths()))


@cache
def rules_of(cause: str) -> tuple[RuleName, ...]:
    """The rules whose findings are called so, ordered by code; where none is about that alone, those that see it among
    others."""
    own = [rule for rule in rule_names() if rule_texts(rule.name).said["bottleneck"] == cause]
    return tuple(own or (rule for rule in rule_names() if cause in causes_of(rule.name)))


@cache
def causes_of(name: str) -> frozenset[Bottleneck]:
    """What the findings of the rule of that name can be called."""
    texts = rule_texts(name)
    told = (texts.said, *texts.variants.values())
    return frozenset(Bottleneck(said["bottleneck"]) for said in told if said.get("bottleneck") in set(Bottleneck))


def rule_called(code_or_name: str) -> RuleName:
    """The rule with that code or name, or the first that finds the cause of that name, in any case and with spaces too.
    `UsageError` names the nearest ones."""
    wanted, rules = _plain(code_or_name), rule_names()
    exact = [rule for rule in rules if wanted in (rule.code.lower(), rule.name)]
    if meant := exact or rules_of(wanted.replace("-", "_")):
        return meant[0]
    shown = {name: f"{rule.code} {rule.name}" for rule in rules for name in (rule.code, rule.name)}
    raise unknown("rule", code_or_name, shown, "timesink explain")


def rules_called(texts: Iterable[str]) -> tuple[RuleName, ...]:
    """The rules meant by codes, beginnings of codes (`KRN`, `KRN1`) and names, a cause's for all that find it; commas
    separate too. `UsageError` as `rule_called`."""
    found: dict[RuleName, None] = {}
    for part in (part.strip() for text in texts for part in text.split(",") if part.strip()):
        several = [rule for rule in rule_names() if rule.code.startswith(part.upper())]
        found |= dict.fromkeys(several or [rule_called(part), *rules_of(_plain(part).replace("-", "_"))])
    return tuple(found)


def _plain(name: str) -> str:
    return "-".join(name.lower().replace("_", " ").split())


def limit_names() -> frozenset[str]:
    """`CODE.name` of every limit."""
    return frozenset(f"{rule.code}.{name}" for rule in rule_names() for name in rule_texts(rule.name).limits)


def check_limits(overrides: Mapping[str, float], more: frozenset[str] = frozenset()) -> None:
    """`UsageError` for a limit that no rule has; `more` are those of rules without a file."""
    known = limit_names() | more
    for name in sorted(set(overrides) - known):
        raise unknown("limit", name, sorted(known), "timesink explain")
