"""Every kind of figure, alone on a page: small ones of known content beside those of the bundled traces."""

import json
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from tests.browser.pages import KERNELS, SNAPSHOT, compare_report, demo_report, unpacked, until
from tests.measures.communication.pipeline_runs import logged, scheduled
from tests.render.diagnoses import diagnosis
from tests.tables import trace_of

from timesink.diagnosis.verdicts import StepBudget, StepPart
from timesink.records import replace
from timesink.render import Style
from timesink.render.html import render, render_page, timeline_page
from timesink.views import Page, Report
from timesink.views.figures import HeatChart, StepSeries
from timesink.views.kernel_comparison import moves_page
from timesink.views.memory import memory_page
from timesink.views.pipeline import PipelineGate, Staged, pipeline_page
from timesink.views.timeline import timeline_of


@cache
def pipeline_report() -> str:
    """Two stages on one clock, of 8 and 6 ms, that hand over six items."""
    return render_page(staged(), Style())


@cache
def staged() -> Page:
    """The page of that pipeline."""
    with tempfile.TemporaryDirectory() as folder:
        run = scheduled([[8_000_000] * 6, [6_000_000] * 6], depth=2, transfer_ns=1_000_000)
        return pipeline_page(Staged.logged(logged(run, Path(folder), one_clock=True)), PipelineGate(0.0))[0]


@cache
def strips_report() -> str:
    """The timeline of a job of more ranks than are drawn in full: each begins 1 us after the one before it."""
    rows = "\n".join(f"| k | gemm | {rank} | {rank} | {rank + 40} |" for rank in range(40))
    timeline = timeline_of(trace_of(f"| device_ops | name | rank | start_us | end_us |\n{rows}"))
    assert timeline is not None
    return timeline_page(timeline)


@cache
def ranks_report() -> str:
    """Three ranks of four steps, the last rank the slowest and the first one waiting for it."""
    ms, ranks, steps = 1_000_000, range(3), (0, 1, 2, 3)
    work, wait = [[(6 + 2 * rank) * ms] * len(steps) for rank in ranks], [[(5 - 2 * rank) * ms] * 4 for rank in ranks]
    return render(
        Report(
            diagnosis=diagnosis(),
            budgets=tuple(
                StepBudget(rank, 0, 4, 11.0 * ms, (StepPart("compute", work[rank][0]), StepPart("sync", wait[rank][0])))
                for rank in ranks
            ),
            series=tuple(
                StepSeries(
                    *(rank, steps, tuple(f"step {step}" for step in steps)),
                    *(tuple(map(sum, zip(work[rank], wait[rank], strict=True))), 11.0 * ms, None, None),
                    parts=(("compute", tuple(work[rank])), ("sync", tuple(wait[rank]))),
                )
                for rank in ranks
            ),
        )
    )


@cache
def pictures_report() -> str:
    """The pictures that the server draws: roofs with arrows, memory over time and by segment, late ranks."""
    kernels, memory = unpacked(KERNELS), memory_page(unpacked(SNAPSHOT), 10, None)
    late = HeatChart(
        *("waited for other ranks", "rank", "step", ("0", "1", "2"), ("0", "1", "2", "3")),
        ((1e6, 2e6, 3e6, 4e6), (0.0, None, 0.0, 2e6), (4e6, 0.0, 1e6, 0.0)),
    )
    over_time, segments = memory.charts
    charts = (*moves_page("gemm and itself", kernels, kernels).charts, replace(over_time, title="Memory"), segments)
    return render_page(Page("pictures", (), charts=(*charts, late, *staged().charts)), Style())


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "demo": demo_report, "compare": compare_report, "pictures": pictures_report, "ranks": ranks_report,
    "strips": strips_report,
}  # fmt: skip
FIGURES: Final[Mapping[str, Mapping[str, str]]] = {
    "demo": {
        "budget": "#budget svg.bar", "finding": "#finding-1 figure canvas", "timeline": "#timeline canvas[tabindex]",
        "overview": "#timeline canvas.mini", "flame-device": "[data-flame=device] canvas",
        "flame-idle": "[data-flame=idle] canvas", "flame-host": "[data-flame=host] canvas",
        "steps": "#step-plot .u-wrap", "areas": "#areas figure canvas", "shape": "#kernels details.shape svg",
        "plan": "#plan figure svg",
    },
    "compare": {
        "before": ".sides figure:nth-child(1) svg.bar", "after": ".sides figure:nth-child(2) svg.bar",
        "change-device": "[data-flame=device] canvas", "change-idle": "[data-flame=idle] canvas",
        "change-host": "[data-flame=host] canvas", "step-before": "[data-capture=capture-0] canvas[tabindex]",
        "step-after": "[data-capture=capture-1] canvas[tabindex]",
    },
    "pictures": {
        name: f"figure.picture:nth-of-type({at}) svg"
        for at, name in enumerate(("roofs", "memory", "segments", "late", "stages", "gantt"), 1)
    },
    "ranks": {"rank-steps": "#step-plot .u-wrap"},
    "strips": {"strips": "figure.timeline canvas[tabindex]"},
}  # fmt: skip
# Leaves nothing but those elements on a page, with what is folded in them open.
ALONE = """selectors => {
    const kept = selectors.map(one => document.querySelector(one)), around = new Set();
    for (const one of kept) for (let node = one; node; node = node.parentElement) around.add(node);
    for (const one of kept) if (one.closest("details")) one.closest("details").open = true;
    for (const node of around) if (!kept.includes(node)) for (const child of node.children)
        if (!around.has(child) && child.tagName !== "HEAD") child.style.display = "none"; // CSSOM: the policy allows it
}"""
DRAWN: Final = """[...document.querySelectorAll('figure.timeline')].every(
    f => !f.checkVisibility() || f.querySelector('canvas[data-tops]'))"""
PLACES: Final = """selectors => selectors.map(one => {
    const { left, top, right, bottom } = document.querySelector(one).getBoundingClientRect();
    return [Math.max(left, 0), top + scrollY, Math.min(right, innerWidth), bottom + scrollY].map(Math.round);
})"""
PLANTED: Final = """css => {
    const own = new CSSStyleSheet();
    own.replaceSync(css);
    document.adoptedStyleSheets = [own];
}"""
WIDTHS: Final = (1280, 768, 390)
SCHEMES: Final = ("light", "dark")


def opened_alone(page: Any, name: str) -> None:
    """Leave the drawings of an open page, and nothing else."""
    selectors = list(FIGURES[name].values())
    until(page, DRAWN)
    until(page, f"{json.dumps(selectors)}.every(one => document.querySelector(one))")
    page.evaluate(ALONE, selectors)
    until(page, DRAWN)


def pictures(page: Any, name: str, width: int, scheme: str, planted: str = "") -> dict[str, Image.Image]:
    """The drawings of a page at a width; `planted` is a style that comes once they are drawn, and goes."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(100)  # the canvases follow the size
    page.set_viewport_size({"width": width, "height": page.evaluate("document.documentElement.scrollHeight")})
    page.wait_for_timeout(150)
    places = page.evaluate(PLACES, list(FIGURES[name].values()))
    page.evaluate(PLANTED, planted)
    whole = Image.open(BytesIO(page.screenshot())).convert("RGB")
    page.evaluate(PLANTED, "")
    return {figure: small(whole.crop(place)) for figure, place in zip(FIGURES[name], places, strict=True)}


def small(picture: Image.Image) -> Image.Image:
    """An eighth of the size."""
    size = max(picture.width // SMALL, 2), max(picture.height // SMALL, 2)
    return picture.resize(size, Image.Resampling.BOX)


SMALL: Final = 8
FOLDER: Final = Path(__file__).parent / "goldens"


def path_of(width: int, scheme: str) -> Path:
    """All drawings of a width and scheme, one below the other."""
    return FOLDER / f"figures-{width}-{scheme}.png"


def kept(width: int, scheme: str) -> dict[str, Image.Image]:
    """The drawings as a person last looked at them."""
    sheet = Image.open(path_of(width, scheme))
    sizes: dict[str, tuple[int, int, int]] = json.loads(sheet.text["figures"])  # type: ignore[attr-defined]
    whole = sheet.convert("RGB")
    return {name: whole.crop((0, top, wide, top + tall)) for name, (top, wide, tall) in sizes.items()}


def keep(width: int, scheme: str, drawn: Mapping[str, Image.Image]) -> None:
    """Keep them as they are now."""
    sheet = Image.new("RGB", (max(one.width for one in drawn.values()), sum(one.height for one in drawn.values())))
    top, sizes = 0, {}
    for name, one in drawn.items():
        sheet.paste(one, (0, top))
        sizes[name] = top, one.width, one.height
        top += one.height
    facts = PngInfo()
    facts.add_text("figures", json.dumps(sizes))
    coloured = sheet.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=10, dither=Image.Dither.NONE)
    coloured.save(path_of(width, scheme), optimize=True, pnginfo=facts)
