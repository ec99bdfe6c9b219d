"""Take the picture of a report that the documentation shows: the demo's, in Chromium, at its top.

What its first lines say is kept in the picture, so that a test sees when the report says something else.

python tools/picture_report.py docs/images/report.png
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import sync_playwright

from timesink.cli.app import run

WIDTH, HEIGHT, COLOURS = 1100, 1150, 255
SAID = "Description"
CAPTURE = Path(__file__).resolve().parents[1] / "src" / "timesink" / "cli" / "demo" / "gpt_before.json.xz"


def main() -> int:
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        report = Path(folder) / "report.html"
        run(["report", str(CAPTURE), "-o", str(report)])
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(report.as_uri())
        page.wait_for_selector("figure.timeline canvas[data-to]", state="attached")
        said = page.locator("h1").inner_text()
        shown = page.screenshot()
        browser.close()
    picture = Image.open(BytesIO(shown)).convert("RGB")
    kept = PngInfo()
    kept.add_text(SAID, said)
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True, pnginfo=kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
