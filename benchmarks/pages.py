"""What a report of a large trace weighs and how long a browser takes to show it.

    python -m benchmarks.pages [--runs 5]

The trace is the bundled one grown to a little over a million events. A page counts as open when every timeline on it is
drawn; the browser is Debian's Chromium, started before the clock, a fresh context for each load.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.inputs import grown, traces
from benchmarks.runs import ROOT, TIMESINK, Row, at_most, noted, run, show

NAME = "report"
SEED = ROOT / "src" / "timesink" / "cli" / "demo" / "gpt_before.json.gz"
MEGABYTES = 320
SIZE_MB, OPEN_S = 2, 2
DRAWN = "[...document.querySelectorAll('figure.timeline')].every(f => f.querySelector('canvas[data-to]'))"


def rows(runs: int, megabytes: int = MEGABYTES) -> Iterator[Row]:
    """The making of the report, its size, and the time to open it."""
    with traces(), TemporaryDirectory() as folder:
        trace = grown(megabytes, SEED)
        page = Path(folder) / "report.html"
        made = run([*TIMESINK, "report", "--no-cache", str(trace), "-o", str(page)])
        what = f"{_events(trace):,} events, {trace.stat().st_size / 1e6:,.0f} MB"
        yield noted(NAME, f"`timesink report`, {what}", made)
        yield at_most(NAME, "the report", page.stat().st_size / 1e6, SIZE_MB, "MB")
        opened = opening_s(page, runs)
        if opened is None:
            print("the report was not opened: no Chromium or no playwright here", file=sys.stderr)
        else:
            yield at_most(NAME, "opening it in Chromium", opened, OPEN_S, "s")


def opening_s(page: Path, runs: int) -> float | None:
    """The median of that many loads; None where there is no browser to ask."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    taken_s = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(runs):
            context = browser.new_context(offline=True)
            shown = context.new_page()
            began = perf_counter()
            shown.goto(page.as_uri())
            shown.wait_for_function(DRAWN)
            taken_s.append(perf_counter() - began)
            context.close()
        browser.close()
    return statistics.median(taken_s)


def _events(trace: Path) -> int:
    """How many events the text holds, by their phase."""
    count = 0
    with trace.open("rb") as stream:
        tail = b""
        while window := stream.read(8 << 20):
            text = tail + window
            count += text.count(b'"ph":')
            tail = text[-4:]
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    show(rows(parser.parse_args().runs))
