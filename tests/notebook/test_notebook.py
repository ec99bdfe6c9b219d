"""What a notebook shows: HTML without a script, names as text; and the tutorial, run cell by cell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import lxml.html
import pytest
from tests.render.diagnoses import diagnosis
from tests.render.test_hostile_names import HOSTILE, page

from timesink.notebook import diagnosis_html, trace_html
from timesink.render.html.shell import page_fragment

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-look.ipynb"
RUN = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
shell = InteractiveShell.instance()
shown = []
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] != "code":
        continue
    with capture_output():
        result = shell.run_cell("".join(cell["source"]))
    result.raise_error()
    data, _ = shell.display_formatter.format(result.result)
    shown.append([type(result.result).__name__, data.get("text/html", "")])
print(json.dumps(shown))
"""
TABLES = {"table", "caption", "thead", "tbody", "tr", "th", "td"}
ALLOWED = TABLES | {"div", "p", "b", "details", "summary", "span", "code", "ul", "li"}


@pytest.fixture(scope="module")
def outputs() -> list[tuple[str, str]]:
    pytest.importorskip("IPython", reason="IPython is not installed")
    ran = subprocess.run([sys.executable, "-c", RUN, str(TUTORIAL)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return [tuple(pair) for pair in json.loads(ran.stdout.splitlines()[-1])]


def test_every_cell_of_the_tutorial_runs(outputs: list[tuple[str, str]]) -> None:
    cells = [cell for cell in json.loads(TUTORIAL.read_text())["cells"] if cell["cell_type"] == "code"]
    assert len(outputs) == len(cells) >= 6
    assert all(not cell["outputs"] for cell in cells)


def test_a_trace_and_a_diagnosis_show_themselves(outputs: list[tuple[str, str]]) -> None:
    shown = dict(reversed(outputs))
    assert "device_ops" in shown["Trace"]
    assert "input pipeline" in shown["Diagnosis"]


def elements(html: str) -> list[Any]:
    return list(lxml.html.fragment_fromstring(html).iter())


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name: str) -> None:
    for html in (diagnosis_html(diagnosis(name)), page_fragment(page(name))):
        assert {element.tag for element in elements(html)} <= ALLOWED
        assert not {
            attribute for element in elements(html) for attribute in element.attrib if attribute.startswith("on")
        }


def test_a_trace_lists_its_tables() -> None:
    from tests.tables import trace_of

    html = trace_html(trace_of("| device_ops | name | start_us | end_us |\n| a | gemm | 0 | 30 |"))
    cells = [element.text_content().strip() for element in elements(html) if element.tag == "td"]
    assert cells[:2] == ["device_ops", "1"]


def test_without_a_notebook_ipython_is_not_imported() -> None:
    code = "import sys, timesink; timesink.read; sys.exit('IPython' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_comparison_shows_what_moved(outputs: list[tuple[str, str]]) -> None:
    shown = dict(outputs)["GateResult"]
    assert "What the change is made of" in shown
    assert "inconclusive" in shown


def test_any_front_end_finds_the_html_of_what_the_public_names_return() -> None:
    code = (
        "import timesink; from importlib.resources import files\n"
        "trace = timesink.read(str(files('timesink.cli') / 'demo' / 'gpt_after.json.gz'), cache=False)\n"
        "for made in (trace, timesink.diagnose(trace), timesink.compare(trace, trace)):\n"
        "    assert made._repr_html_().startswith('<div class=\"timesink\">'), type(made)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
