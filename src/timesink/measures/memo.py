"""Measures build on measures: each is taken once per trace, however many others ask for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from timesink.model.trace import Trace

Result = TypeVar("Result")


def remembered(measure: Callable[[Trace], Result]) -> Callable[[Trace], Result]:
    """`measure`, computed at most once per trace and forgotten with it. A result must not hold the trace itself."""
    known: WeakKeyDictionary[Trace, Result] = WeakKeyDictionary()

    @wraps(measure)
    def recall(trace: Trace) -> Result:
        if trace not in known:
            known[trace] = measure(trace)
        return known[trace]

    return recall
