"""What a diagnosis takes, counted: it may rise with a rule, not by carelessness; `benchmarks.counts` shows where."""

from __future__ import annotations

from pathlib import Path

from benchmarks.counts import CALLS, GROWTH, MODULES, QUERIES, imported, once_and_twice


def test_a_diagnosis_takes_no_more_calls_and_queries_than_it_did_and_hardly_more_for_twice_the_events(
    tmp_path: Path,
) -> None:
    once, twice = once_and_twice(tmp_path)
    assert 1_000 < once.calls.total() <= CALLS
    assert 100 < once.queries <= QUERIES
    assert twice.calls.total() <= GROWTH * once.calls.total(), (twice.calls - once.calls).most_common(5)
    assert twice.queries <= GROWTH * once.queries


def test_help_imports_no_large_library_and_a_diagnosis_only_those_it_works_with() -> None:
    (helped, for_help), (diagnosed, for_diagnosis) = (imported(*words.split()) for words in MODULES)
    assert helped <= MODULES["--help"] and for_help == []
    assert diagnosed <= MODULES["diagnose nothing.json"] and for_diagnosis == ["numpy", "polars"]
