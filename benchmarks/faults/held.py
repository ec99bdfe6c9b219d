"""Which test fails when an assumption is moved by a quarter: a plugin of pytest.

python -m pytest -p no:cacheprovider -p benchmarks.faults.held tests/measures tests/whatif tests/rules tests/knowledge

Each test that passes is repeated once as it is, and then with every assumption that it reads made a quarter smaller and
larger, until some test has failed for it. `held.json` keeps the first such test of each, for the page of assumptions.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.faults import sweep

from timesink.knowledge.assumptions import ALL

KEPT = Path(__file__).with_name("held.json")
TRIED_MOST = 30
"""Tests that are tried for one assumption."""
LONGEST_S = 2.0
"""A test that takes longer is not repeated."""
_before: dict[str, str] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}
_found = {name: test for name, test in _before.items() if name in ALL}
_tried: Counter[str] = Counter()


def passes(item: pytest.Item) -> bool:
    """Whether the test passes once more."""
    try:
        item.runtest()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - pytest's own outcomes are no exceptions of the usual kind
        return False
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """The test, then again with each assumption that it reads moved."""
    begin = time.perf_counter()
    with sweep.watched() as seen:
        outcome = yield
    names = [name for name in sorted(seen) if name in ALL and name not in _found and _tried[name] < TRIED_MOST]
    took_s = time.perf_counter() - begin
    if outcome.excinfo is not None or took_s > LONGEST_S or not names or not passes(item):  # type: ignore[attr-defined]
        return
    for name in names:
        _tried[name] += 1
        for factor in sweep.SIDES:
            with sweep.moved(name, factor):
                held = not passes(item)
            if held:
                _found[name] = item.nodeid.partition("[")[0]
                break


def pytest_sessionfinish() -> None:
    """Keep what was found, and what was known before."""
    KEPT.write_text(json.dumps(dict(sorted(_found.items())), indent=1) + "\n", encoding="utf-8")
