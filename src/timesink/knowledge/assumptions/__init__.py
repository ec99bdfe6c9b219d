"""Every assumed figure, one file per subject; `ALL` has them by name."""

from __future__ import annotations

import os
from typing import Final

from timesink.knowledge.assumption import VARIABLE, Assumption, named
from timesink.knowledge.assumptions import fixes, idle, kernels, machines, ranks, replay, steps

_MODULES: Final = {
    module.__name__.rpartition(".")[2]: module for module in (fixes, replay, machines, steps, idle, kernels, ranks)
}
SUBJECTS: Final = {subject: (module.__doc__ or "").partition("\n\n")[0] for subject, module in _MODULES.items()}
"""What each subject is about: the first paragraph of its file."""
ALL: Final[dict[str, Assumption]] = named(
    {subject: vars(module) for subject, module in _MODULES.items()}, os.environ.get(VARIABLE, "")
)


def changed() -> tuple[str, ...]:
    """What this run assumes otherwise than declared, one sentence each."""
    return tuple(
        f"{name} was taken for {assumption.value:g} {assumption.unit}, as {VARIABLE} says"
        for name, assumption in ALL.items()
        if assumption.changed
    )
