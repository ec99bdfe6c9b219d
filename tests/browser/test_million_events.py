"""A trace of a million events gives a report as small as one of a few thousand, and a browser opens it."""

import time
from collections.abc import Callable
from importlib.resources import as_file, files
from typing import Any

import pytest
from benchmarks.grow import grow
from tests.browser.gallery import DRAWN
from tests.browser.pages import until

from timesink.diagnosis.engine import diagnose
from timesink.readers import read
from timesink.render.html import html_report

pytestmark = pytest.mark.slow
Open = Callable[..., Any]
WIDE_S = 10.0  # the bar of 2 s is `python -m benchmarks.pages`'; a busy machine must not fail this test


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("million") / "million.json"
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as seed:
        grow(seed, path, 320)
    with path.open("rb") as stream:
        assert sum(line.count(b'"ph":') for line in stream) > 1_000_000
    trace = read(path, cache=False)
    path.unlink()
    return html_report(trace, diagnose(trace))


def test_its_report_stays_under_two_megabytes(million: str) -> None:
    assert len(million.encode()) < 2_000_000


def test_its_report_opens_with_every_timeline_drawn(opened: Open, million: str) -> None:
    began = time.perf_counter()
    page = opened(million).page
    until(page, DRAWN)
    assert time.perf_counter() - began < WIDE_S
    assert page.locator("figure.timeline").count() >= 3
