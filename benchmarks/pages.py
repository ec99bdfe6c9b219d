"""What a report of a large trace weighs and how long a browser takes to show it.

    python -m benchmarks.pages [--runs 5]

The trace is the bundled one grown to a little over a million events. A page counts as open when every timeline on it is
drawn; the browser is Debian's Chromium, started before the clock, a fresh context for each load. Frames are counted
while the timeline of `report --full`, which holds every event by itself, moves to and fro. `serve` is ready when its
page can be asked for; its timeline counts as open when it shows what the server sent for its width.
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

from benchmarks.inputs import grown, traces
from benchmarks.runs import ENVIRONMENT, ROOT, TIMESINK, Row, Run, at_most, noted, run, show

NAME = "report"
SEED = ROOT / "src" / "timesink" / "cli" / "demo" / "gpt_before.json.gz"
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
        full = Path(folder) / "full.html"
        made = run([*TIMESINK, "report", "--full", "--no-cache", str(trace), "-o", str(full)])
        yield noted(NAME, "`report --full`, every event by itself", made)
        yield Row(NAME, "the full report", f"{full.stat().st_size / 1e6:.1f} MB")
        with served(trace) as (address, ready):
            yield noted(NAME, f"`timesink serve` until its page is there, {what}", ready)
            try:
                opened_s, asked_s, whole, near = shown(page.as_uri(), address, full.as_uri(), runs)
            except (ImportError, FileNotFoundError) as absent:
                print(f"the report was not opened: {absent}", file=sys.stderr)
                return
        yield at_most(NAME, "opening it in Chromium, every timeline drawn", opened_s, OPEN_S, "s")
        yield at_most(NAME, "opening the page of `timesink serve`, findings made meanwhile", asked_s, OPEN_S, "s")
        for what, frames in (("all of it", whole), ("an eighth of it", near)):
            rate = f"{frames:.0f} frames a second"
            bar = f">= {FRAMES_PER_S} frames a second"
            yield Row(NAME, f"moving a timeline of every event, {what} in view", rate, bar, frames >= FRAMES_PER_S)


@contextmanager
def served(trace: Path) -> Iterator[tuple[str, Run]]:
    """The address of `timesink serve` of a trace, and what it took until that was printed."""
    began = perf_counter()
    command = [*TIMESINK, "serve", "--no-browser", "--no-cache", str(trace)]
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


def shown(page: str, live: str, full: str, runs: int) -> tuple[float, float, float, float]:
    """The median time of that many loads of `page` and of `live`, and the frames a second of `full` with all and an
    eighth in view; `ImportError` or `FileNotFoundError` where there is no browser to ask."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        raise FileNotFoundError("there is no Chromium on this machine")
    taken_s: dict[str, list[float]] = {}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for address in [page, live] * runs + [full]:
            context = browser.new_context(offline=address != live)
            tab = context.new_page()
            began = perf_counter()
            tab.goto(address)
            tab.wait_for_selector(SENT if address == live else "#timeline canvas[data-to]")
            while not tab.evaluate(DRAWN):
                tab.wait_for_timeout(5)
            taken_s.setdefault(address, []).append(perf_counter() - began)
            if address == full:
                whole = tab.evaluate(MOVED, [["0"], SHOTS])
                for _ in range(3):
                    tab.locator("#timeline").get_by_role("button", name="zoom in").click()
                near = tab.evaluate(MOVED, [["d", "a"], SHOTS])
            context.close()
        browser.close()
    return statistics.median(taken_s[page]), statistics.median(taken_s[live]), whole, near


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
