"""What the shell offers on TAB for values that timesink knows: rules, tables, examples, suites, formats.

Each function is asked with the beginning of a word and returns values, or values with a word about each; typer leaves
out those that do not begin so. What it needs is imported when it is asked.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import typer


def rules(incomplete: str) -> list[tuple[str, str]]:
    """Codes, or names where the word is no beginning of a code."""
    from timesink.diagnosis.registry import all_rules

    cards = [rule.card for rule in all_rules()]
    done, comma, last = incomplete.rpartition(",")
    codes = [(card.code, card.name) for card in cards if card.code.startswith(last.upper())]
    found = codes or [(card.name, card.summary) for card in cards]
    begun = f"{done}{comma}"
    return [(f"{begun}{_in_case_of(name, last)}", about) for name, about in found]


def switches(incomplete: str) -> list[tuple[str, str]]:
    """The changes that a running program can be switched to."""
    from timesink.recipes.table import SWITCHES

    return _listed(SWITCHES, incomplete)


def edits(incomplete: str) -> list[tuple[str, str]]:
    """The changes that can be written into a program."""
    from timesink.recipes.table import EDITS

    return _listed(EDITS, incomplete)


def _listed(names: Iterable[str], incomplete: str) -> list[tuple[str, str]]:
    from timesink.recipes.table import RECIPES

    done, comma, _ = incomplete.rpartition(",")
    return [(f"{done}{comma}{name}", RECIPES[name].title) for name in names]


def limits(incomplete: str) -> list[tuple[str, str]]:
    """`CODE.name=` of every limit."""
    from timesink.diagnosis.registry import all_rules

    named = [(f"{rule.code}.{name}=", limit.why) for rule in all_rules() for name, limit in sorted(rule.limits.items())]
    return [(_in_case_of(name, incomplete), about) for name, about in named]


def tables() -> list[str]:
    """The tables a trace may have."""
    from timesink.model.tables import ALL

    return [table.name for table in ALL]


def examples() -> list[tuple[str, str]]:
    """The example queries."""
    from timesink.export.sql import EXAMPLES

    return [(one.name, one.question) for one in EXAMPLES]


def suites(context: typer.Context) -> list[str]:
    """The suites that have baselines under `--root`."""
    folder = Path(context.params.get("root") or ".timesink") / "baselines"
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def gpus() -> list[str]:
    """The GPUs whose peaks are known."""
    from timesink.knowledge.gpus import ENTRIES

    return [entry.product for _, entry in ENTRIES]


def chips() -> list[str]:
    """The chips whose metrics are known."""
    from timesink.knowledge.metric_names import CHIPS

    return list(CHIPS)


def one_of(*values: str) -> Callable[[], list[str]]:
    """These values."""
    return lambda: list(values)


def _in_case_of(name: str, begun: str) -> str:
    """The name as the user began it: `krn` is completed to `krn101`."""
    return begun + name[len(begun) :] if name.lower().startswith(begun.lower()) else name
