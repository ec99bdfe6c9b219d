"""The recipes there are, by name, and the edits that they propose. The folder is the registry."""

import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import unified_diff
from importlib import import_module
from pathlib import Path
from typing import Final

import timesink.recipes
from timesink.recipes import Recipe
from timesink.recipes.proof import rows_of
from timesink.recipes.source import Proposal, Source


def _declared() -> Iterator[Recipe]:
    names = (info.name for info in pkgutil.iter_modules(timesink.recipes.__path__))
    for name in (name for name in names if name != "table"):
        yield from (row for row in vars(import_module(f"timesink.recipes.{name}")).values() if isinstance(row, Recipe))


RECIPES: Final = {recipe.name: recipe for recipe in _declared()}
"""All of them, file by file."""
SWITCHES: Final = {name: recipe.switch for name, recipe in RECIPES.items() if recipe.switch}
"""The switches, in the order in which they are tried where nothing is foretold of them and all take as long."""
EDITS: Final = {name: recipe for name, recipe in RECIPES.items() if recipe.edits}
"""What can be written into a program, in the order in which that is tried where nothing is foretold of it."""
EXCLUDED_BY: Final = {
    name: frozenset(other for other, row in RECIPES.items() if other in RECIPES[name].excludes or name in row.excludes)
    for name in SWITCHES
}
"""For each switch those that cannot be on beside it."""


def proposals(
    files: Iterable[Path], names: Iterable[str], places: Mapping[str, str]
) -> Iterator[tuple[Source, Proposal]]:
    """What may be edited in these files for these changes. `places` are `file:line`, by what is made there."""
    sources = [source for file in files if (source := Source.read(file)) is not None]
    for recipe in (EDITS[name] for name in names if name in EDITS):
        file, _, line = places.get(recipe.where, "").rpartition(":")
        for source in sources:
            if not recipe.where or (file and Path(file).resolve() == source.path.resolve()):
                found = [one for finder in recipe.edits for one in finder(source, int(line or 0))]
                proven = {row for one in found if not one.unproven for row in one.rows}
                for one in found:
                    if not one.unproven or not one.rows & proven:  # no offer beside what can be proven
                        yield source, replace(one, fix=recipe.name)


def unified(source: Source, text: str) -> str:
    """What `patch -p1` makes of the file the text."""
    name = source.path.name
    before, after = ([row.decode() for row in rows_of(one)] for one in (source.text, text))
    return "".join(unified_diff(before, after, f"a/{name}", f"b/{name}"))
