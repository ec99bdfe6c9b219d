"""What a diagnosis takes, counted: it may rise with a rule, not by carelessness; `benchmarks.counts` shows where."""

import json
import sys
from pathlib import Path

import pytest
from benchmarks.counts import GROWTH, MODULES, MOST, counted, every_count, imported
from benchmarks.runs import run

from benchmarks import shapes
from timesink.diagnosis.engine import diagnose


def test_work_takes_no_more_calls_and_queries_than_it_did_and_hardly_more_for_twice_the_events(tmp_path: Path) -> None:
    for what, (once, twice) in every_count(tmp_path).items():
        calls, queries = MOST[what]
        assert calls / 2 < once.calls.total() <= calls, what
        assert queries / 2 < once.queries <= queries, what
        if twice:
            assert twice.calls.total() <= GROWTH * once.calls.total(), (twice.calls - once.calls).most_common(5)
            assert twice.queries <= GROWTH * once.queries, what


def test_help_and_a_refusal_import_no_large_library_and_a_diagnosis_only_those_it_works_with() -> None:
    large = {"--help": [], "diagnose nothing.json": [], "diagnose README.md": ["numpy", "polars"]}
    for words, most in MODULES.items():
        count, found = imported(*words.split())
        assert (count <= most, found) == (True, large[words]), words


def test_a_report_is_drawn_without_the_statistics_of_experiments() -> None:
    run([sys.executable, "-c", "import sys, timesink.render.html as _; assert 'scipy' not in sys.modules"])


@pytest.mark.slow
@pytest.mark.parametrize("shape", [shape for shape in shapes.SHAPES if shape != "plain"])
def test_an_event_takes_no_more_calls_and_queries_the_more_there_are(shape: str, tmp_path: Path) -> None:
    """However events nest, overlap, or spread over streams, threads, devices, groups and names."""
    found, least = [], 1_600 if shape == "collectives" else 400  # from where on it has all its findings
    for events in (least, least, 2 * least, 4 * least):  # the first of a process pays for what is kept
        shapes.write(shape, events, trace := tmp_path / f"{events}.json")
        found.append(counted(trace))
    _, less, some, more = ([one.calls.total(), one.queries] for one in found)
    for first, second, third in zip(less, some, more, strict=True):
        assert third - second <= 2 * GROWTH * max(second - first, 0) + 100


def ranks_of_a_job(folder: Path, count: int) -> list[Path]:
    """So many ranks of a job, a file each."""
    shapes.write("plain", 100, plain := folder / "plain.json")
    trace, files = json.loads(plain.read_text()), [folder / f"rank{rank}.json" for rank in range(count)]
    for rank, file in enumerate(files):
        trace["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": count}
        file.write_text(json.dumps(trace))
    return files


def devices_of_a_file(folder: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """So many devices in one file."""
    monkeypatch.setattr(shapes, "UNITS_OF_A_DEVICE", 10)
    shapes.write("devices", 40 * count, file := folder / f"{count}.json")
    return [file]


@pytest.mark.slow
@pytest.mark.parametrize("many", ["ranks", "devices"])
def test_no_function_is_called_more_than_twice_as_often_for_twice_as_many(
    many: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one rank or device costs does not grow with how many there are: nothing goes through all for each."""
    found = []
    for count in (8, 8, 16):  # the first of a process pays for what is kept
        files = ranks_of_a_job(tmp_path, count) if many == "ranks" else devices_of_a_file(tmp_path, count, monkeypatch)
        found.append(counted(files, diagnose).calls)
    _, some, more = found
    often = {name: (some[name], calls) for name, calls in more.items() if calls > 100 + 2.2 * some[name]}
    assert not often
