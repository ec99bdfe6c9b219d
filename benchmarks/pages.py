"""What a report of a large trace weighs and how long a browser takes to show it.

    python -m benchmarks.pages [--runs 5]

The trace is the bundled one grown to a little over a million events. A page counts as open when every timeline on it is
painted; the browser is Debian's Chromium, started before the clock, a fresh context for each load. The files are opened
before the server starts. Frames are counted while the timeline of `report --full`, which holds every event by itself,
moves to and fro. `serve` is ready when its page can be asked for; its timeline counts as open when it shows what the
server sent for its width.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from benchmarks.inputs import grown, traces
from benchmarks.runs import ENVIRONMENT, ROOT, TIMESINK, Row, Run, at_most, noted, run, show

NAME = "report"
SEED = ROOT / "src" / "timesink" / "cli" / "demo" / "gpt_before.json.xz"
MEGABYTES = 320
SIZE_MB, OPEN_S, FRAMES_PER_S = 2, 1, 30
SHOTS = 60
MOVED = """async ([keys, shots]) => {
    const canvas = document.querySelector("#timeline canvas[data-to]"), began = performance.now();
    for (let at = 0; at < shots; at += 1) {
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key: keys[at % keys.length] }));
        await new Promise(requestAnimationFrame);
    }
    return (1000 * shots) / (performance.now() - began);
}"""
SENT = "#timeline canvas[data-tile]"
DRAWN = "[...document.querySelectorAll('figure.timeline')].every(f => f.querySelector('canvas[data-tops]'))"


def rows(runs: int, megabytes: int = MEGABYTES) -> Iterator[Row]:
    """The making of the report, its size, and the time to open it."""
    with traces(), TemporaryDirectory() as folder:
        trace = grown(megabytes, SEED)
        page = Path(folder) / "report.html"
        made = run([*TIMESINK, "report", "--no-cache", str(trace), "-o", str(page)])
        what = f"{_events(trace):,} events, {trace.stat().st_size / 1e6:,.0f} MB"
        yield noted(NAME, f"`timesink report`, {what}", made)
        yield at_most(NAME, "the report", page.stat().st_size / 1e6, SIZE_MB, "MB")
        full = Path(folder) / "full.html"
        made = run([*TIMESINK, "report", "--full", "--no-cache", str(trace), "-o", str(full)])
        yield noted(NAME, "`report --full`, every event by itself", made)
        yield Row(NAME, "the full report", f"{full.stat().st_size / 1e6:.1f} MB")
        with browser() as chromium:
            if chromium:
                opened_s = opening_s(chromium, page.as_uri(), runs)
                yield at_most(NAME, "opening it in Chromium, every timeline drawn", opened_s, OPEN_S, "s")
                yield from _moving(chromium, full.as_uri())
            with served(trace) as (address, ready):
                yield noted(NAME, f"`timesink report --serve` until its page is there, {what}", ready)
                if chromium:
                    asked_s = opening_s(chromium, address, runs, shows=SENT)
                    what = "opening the page of `timesink report --serve`, findings made meanwhile"
                    yield at_most(NAME, what, asked_s, OPEN_S, "s")


@contextmanager
def served(trace: Path) -> Iterator[tuple[str, Run]]:
    """The address of `timesink report --serve` of a trace, and what it took until that was printed."""
    began = perf_counter()
    command = [*TIMESINK, "report", "--serve", "--no-browser", "--no-cache", str(trace)]
    with Popen(command, stdout=PIPE, stderr=DEVNULL, cwd=ROOT, env=ENVIRONMENT, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            yield address, Run(perf_counter() - began, *_used(process.pid))
        finally:
            process.kill()


def _used(pid: int) -> tuple[float, float]:
    """Processor seconds and peak megabytes of a running process."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK"), int(peak.split()[1]) * 1024 / 1e6


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium; None, and a word of why, where there is none to ask."""
    chromium = shutil.which("chromium")
    try:
        if chromium is None:
            raise ImportError("there is no Chromium on this machine")
        from playwright.sync_api import sync_playwright
    except ImportError as absent:
        print(f"no page was opened: {absent}", file=sys.stderr)
        yield None
        return
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


def opening_s(chromium: Any, address: str, runs: int, shows: str = "#timeline canvas[data-to]") -> float:
    """The median time of that many loads."""
    taken_s = []
    for _ in range(runs):
        with chromium.new_context(offline=address.startswith("file:")) as context:
            taken_s.append(_opened(context.new_page(), address, shows))
    return statistics.median(taken_s)


def _opened(tab: Any, address: str, shows: str) -> float:
    began = perf_counter()
    tab.goto(address)
    tab.wait_for_selector(shows)
    while not tab.evaluate(DRAWN):
        tab.wait_for_timeout(5)
    return perf_counter() - began


def _moving(chromium: Any, full: str) -> Iterator[Row]:
    """The frames a second of a timeline with all and with an eighth in view."""
    with chromium.new_context(offline=True) as context:
        tab = context.new_page()
        _opened(tab, full, "#timeline canvas[data-to]")
        for what, keys, zooms in (("all of it", ["0"], 0), ("an eighth of it", ["d", "a"], 3)):
            for _ in range(zooms):
                tab.locator("#timeline").get_by_role("button", name="zoom in").click()
            frames = tab.evaluate(MOVED, [keys, SHOTS])
            rate, bar = f"{frames:.0f} frames a second", f">= {FRAMES_PER_S} frames a second"
            yield Row(NAME, f"moving a timeline of every event, {what} in view", rate, bar, frames >= FRAMES_PER_S)


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
