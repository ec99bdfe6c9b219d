"""A wheel of this machine, installed where nothing else is: three commands lead to an answer.

It is built as the container file builds it, from what that copies and nothing else.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.packaging.test_recipes import instructions

import timesink
from tools import check_wheel

ROOT = Path(__file__).resolve().parents[2]


def context(folder: Path) -> Path:
    """A folder with what the container file copies from the repository."""
    folder.mkdir()
    for rest in (rest for word, rest in instructions() if word == "COPY" and not rest.startswith("--from")):
        for name in rest.split()[:-1]:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, folder / name)
    return folder


@pytest.mark.slow
def test_three_commands_lead_from_the_wheel_to_an_answer(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (command,) = [rest for word, rest in instructions() if word == "RUN" and "pip wheel" in rest]
    words = [{"python": sys.executable, "/wheels": str(tmp_path)}.get(word, word) for word in command.split()]
    subprocess.run(words, check=True, timeout=900, cwd=context(tmp_path / "build"))
    (wheel,) = tmp_path.glob("timesink-*.whl")
    assert check_wheel.missing(wheel) == []
    assert check_wheel.used(wheel, tmp_path).startswith("input pipeline: GPU 0 is idle for")
    figures = check_wheel.sizes(wheel, tmp_path)
    for name, (value, most) in figures.items():
        record_property("figure", f"{name}: {value:.3g} (at most {most:g})")
    assert {name: one for name, one in figures.items() if one[0] > one[1]} == {}
    if find_spec("uv"):  # what `uvx` is short for
        words = [sys.executable, "-m", "uv", "tool", "run", "--from", str(wheel), "timesink", "--version"]
        said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=600).stdout
        assert said == f"timesink {timesink.__version__}\n"


def test_the_page_on_installing_shows_those_three_commands() -> None:
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    assert "python3 -m venv env\nenv/bin/pip install timesink-*.whl\nenv/bin/timesink trace.json.gz\n" in page
