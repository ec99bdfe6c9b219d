"""What the shell offers on TAB for values that timesink knows: rules, tables, examples, suites, formats.

Each function is asked with the command's context and the beginning of a word, and returns values, or values with a word
about each; those that do not begin so are left out by whoever asks. What it needs is imported when it is asked.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import click

from timesink.errors import UsageError


def rules(context: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Codes, or names where the word is no beginning of a code."""
    from timesink.diagnosis.registry import all_rules

    cards = [rule.card for rule in all_rules()]
    done, comma, last = incomplete.rpartition(",")
    codes = [(card.code, card.name) for card in cards if card.code.startswith(last.upper())]
    found = codes or [(card.name, card.summary) for card in cards]
    begun = f"{done}{comma}"
    return [(f"{begun}{_in_case_of(name, last)}", about) for name, about in found]


def switches(context: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """The changes that a running program can be switched to."""
    from timesink.recipes.table import SWITCHES

    return _listed(SWITCHES, incomplete)


def edits(context: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """The changes that can be written into a program."""
    from timesink.recipes.table import EDITS

    return _listed(EDITS, incomplete)


def _listed(names: Iterable[str], incomplete: str) -> list[tuple[str, str]]:
    from timesink.recipes.table import RECIPES

    done, comma, _ = incomplete.rpartition(",")
    return [(f"{done}{comma}{name}", RECIPES[name].title) for name in names]


def limits(context: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """`CODE.name=` of every limit."""
    from timesink.diagnosis.registry import all_rules

    named = [(f"{rule.code}.{name}=", limit.why) for rule in all_rules() for name, limit in sorted(rule.limits.items())]
    return [(_in_case_of(name, incomplete), about) for name, about in named]


def tables(context: click.Context, incomplete: str) -> list[str]:
    """The tables a trace may have."""
    from timesink.model.tables import ALL

    return [table.name for table in ALL]


def examples(context: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """The example queries."""
    from timesink.export.examples import EXAMPLES

    return [(one.name, one.question) for one in EXAMPLES]


def suites(context: click.Context, incomplete: str) -> list[str]:
    """The suites that have baselines under `--root`."""
    folder = Path(context.params.get("root") or ".timesink") / "baselines"
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def gpus(context: click.Context, incomplete: str) -> list[str]:
    """The GPUs whose peaks are known."""
    from timesink.knowledge.gpus import ENTRIES

    return [entry.product for _, entry in ENTRIES]


def chips(context: click.Context, incomplete: str) -> list[str]:
    """The chips whose metrics are known."""
    from timesink.knowledge.metric_names import CHIPS

    return list(CHIPS)


def _in_case_of(name: str, begun: str) -> str:
    """The name as the user began it: `krn` is completed to `krn101`."""
    return begun + name[len(begun) :] if name.lower().startswith(begun.lower()) else name


SCRIPTS = {
    "bash": ("~/.bash_completions/timesink.sh", "~/.bashrc", "source '{file}'"),
    "zsh": ("~/.zfunc/_timesink", "~/.zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": ("~/.config/fish/completions/timesink.fish", "", ""),
}
"""By shell: the file of the completion, the file that begins a shell, and the line there that reads it."""


def script() -> tuple[str, str]:
    """The shell that runs, and its completion. `UsageError` for a shell that none is known of."""
    from click.shell_completion import get_completion_class

    shell = Path(os.environ.get("SHELL", "")).name
    made = get_completion_class(shell) if shell in SCRIPTS else None
    if made is None:
        raise UsageError(f"no completion is known for the shell {shell!r}", remedy=f"use {', '.join(SCRIPTS)}")
    return shell, made(click.Group("timesink"), {}, "timesink", "_TIMESINK_COMPLETE").source()


def install() -> str:
    """Write the completion of the shell that runs where it is read; what was done, in a sentence."""
    shell, text = script()
    place, start, line = SCRIPTS[shell]
    file = Path(place).expanduser()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    if start:
        begins, wanted = Path(start).expanduser(), line.format(file=file)
        known = begins.read_text(encoding="utf-8") if begins.exists() else ""
        if wanted not in known:
            begins.write_text(f"{known.rstrip()}\n\n{wanted}\n".lstrip(), encoding="utf-8")
    return f"{shell} completion installed in {file}; it begins with the next shell"
