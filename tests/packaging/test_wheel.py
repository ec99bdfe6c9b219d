"""A wheel of this machine, installed where nothing else is: three commands lead to an answer."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import check_wheel

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_three_commands_lead_from_the_wheel_to_an_answer(tmp_path: Path) -> None:
    built = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT]
    subprocess.run(built, check=True, timeout=900)
    (wheel,) = tmp_path.glob("timesink-*.whl")
    assert check_wheel.missing(wheel) == []
    assert check_wheel.used(wheel, tmp_path).startswith("input pipeline: GPU 0 is idle for")
    assert {name: one for name, one in check_wheel.sizes(wheel, tmp_path).items() if one[0] > one[1]} == {}


def test_the_page_on_installing_shows_those_three_commands() -> None:
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    assert "python3 -m venv env\nenv/bin/pip install timesink-*.whl\nenv/bin/timesink trace.json.gz\n" in page
