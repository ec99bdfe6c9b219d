"""A browser without a network, pages to open in it, and what the tests of this folder ask of one."""

import lzma
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
from tests.render.diagnoses import diagnosis
from tests.render.test_hostile_names import HOSTILE

from timesink.cli.app import run
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import StepBudget, StepPart
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.render.html import html_report, render
from timesink.views import Report, sheet_of
from timesink.views.figures import Lane, MarkedWindow, StepSeries, Timeline, TimelineWindow
from timesink.views.timeline.runs import single

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "benchmarks" / "kernels" / "reports" / "gemm.ncu-rep.xz"
SNAPSHOT = ROOT / "tests" / "data" / "memory" / "gpt_bf16_adamw.pickle.xz"
PATIENCE_S = 30.0
FONT = "DejaVu Sans"
"""All that pages are shown in, so that they look alike on every machine that has it: the widest of the usual fonts."""
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd"><fontconfig>
<dir>{folder}</dir><cachedir>{cache}</cachedir><selectfont><rejectfont><glob>*</glob></rejectfont>
<acceptfont><glob>{folder}/DejaVuSans.ttf</glob><glob>{folder}/DejaVuSans-Bold.ttf</glob>
<glob>{folder}/DejaVuSansMono.ttf</glob><glob>{folder}/DejaVuSansMono-Bold.ttf</glob></acceptfont></selectfont>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias></fontconfig>
"""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@cache
def folder_of_font() -> Path | None:
    """Where the font lies; None where it is not on this machine."""
    asked = ["fc-list", f"{FONT}:style=Book", "file"]
    listed = subprocess.run(asked, capture_output=True, text=True, check=False) if shutil.which("fc-list") else None
    found = listed.stdout.partition(":")[0] if listed else ""
    return Path(found).parent if found else None


def needs_browser(*, font: bool = False) -> None:
    """Skip the test where Chromium, what drives it, or the font of pictures is absent."""
    if shutil.which("chromium") is None:
        pytest.skip("Chromium is not on this machine (Debian: apt-get install chromium)")
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
    if font and folder_of_font() is None:
        pytest.skip(f"{FONT} is not on this machine (Debian: apt-get install fonts-dejavu-core fontconfig)")


@contextmanager
def launched(profile: str) -> Iterator[Any]:
    """Debian's Chromium, offline, with an empty profile. `ImportError` or a failure where it is not installed."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver, tempfile.TemporaryDirectory() as own:
        environment: dict[str, str | float | bool] = dict(os.environ)
        if folder := folder_of_font():
            fonts = Path(own) / "fonts.conf"
            fonts.write_text(FONTS.format(folder=folder, cache=own), encoding="utf-8")
            environment["FONTCONFIG_FILE"] = str(fonts)
        browser = driver.chromium.launch_persistent_context(
            profile,
            executable_path=shutil.which("chromium"),
            headless=True,
            args=list(FLAGS),
            env=environment,
            offline=True,
            viewport={"width": 1280, "height": 900},
        )
        yield browser
        browser.close()


def until(page: Any, expression: str) -> None:
    """Wait until it is true. What Playwright repeats in the page itself, the page's policy forbids."""
    last = monotonic() + PATIENCE_S
    while not page.evaluate(expression):
        assert monotonic() < last, expression
        page.wait_for_timeout(30)


def violations(shown: Any) -> list[str]:
    """The rules of axe that the page breaks."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    return [found["id"] for found in axe.Axe().run(shown.page).response["violations"]]


def hostile(name: str) -> Report:
    """A report in which every text that can come from a trace is `name`."""
    made = diagnosis(name)
    first, last = np.array([0, 100]), np.array([90, 900])
    runs = single(first, last, kind=0, name=0, detail=0)
    lanes = (
        Lane("finding", name, 0, 0, (runs,)),
        Lane("stream", name, 0, 0, (runs,)),
        Lane("range", name, 0, None, (runs,)),
    )
    return Report(
        diagnosis=made,
        budgets=(StepBudget(0, 0, 2, 100.0, (StepPart("compute", 60.0), StepPart(name, 40.0))),),
        series=(StepSeries(0, (0, 1), ("step 0", "step 1"), (100, 110), 105.0, None, None, ((1, name),)),),
        timeline=Timeline(0, 0, 1000, (name,), {0: name}, (name,), lanes, 5, (name,)),
        windows={0: MarkedWindow(TimelineWindow(0, 0, 0, 1000, 0, 90), 0, 0, ((name, name, 0, 90),))},
        kernels=sheet_of("kernels", "Kernels", ((name, name, 1),) * 2, "name: kernel [kernel], work [text], count"),
    )


class Pages(dict[str, str]):
    """Pages by name, each made when it is first asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], str]]) -> None:
        super().__init__()
        self._makers = makers

    def __missing__(self, name: str) -> str:
        self[name] = self._makers[name]()
        return self[name]


@cache
def demo_report() -> str:
    """The report of the bundled trace."""
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        trace = read(path, cache=False)
    return html_report(trace, diagnose(trace))


@cache
def compare_report() -> str:
    """The comparison of the bundled traces."""
    with (
        as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as before,
        as_file(files("timesink.cli").joinpath("demo/gpt_after.json.xz")) as after,
        tempfile.TemporaryDirectory() as folder,
    ):
        page = Path(folder) / "compare.html"
        assert run(["compare", str(before), str(after), "-o", str(page), "--no-cache"]) == 0
        return page.read_text(encoding="utf-8")


@cache
def hostile_report() -> str:
    """The hostile page with markup for a name."""
    return render(hostile(next(name for name in HOSTILE if name.startswith("<script>"))))


@cache
def unpacked(packed: Path) -> Trace:
    """A capture of the repository that is packed with xz."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / packed.stem
        plain.write_bytes(lzma.decompress(packed.read_bytes()))
        return read(plain, cache=False)


def unpacked_report(packed: Path) -> str:
    """The report of such a capture."""
    trace = unpacked(packed)
    return html_report(trace, diagnose(trace))


@cache
def kernels_report() -> str:
    """The report of a Nsight Compute file."""
    return unpacked_report(KERNELS)
