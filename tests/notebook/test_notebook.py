"""What a notebook shows: HTML without a script, names as text; and the tutorial, run cell by cell."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import lxml.html
import pytest
from tests.render.diagnoses import diagnosis
from tests.render.test_hostile_names import HOSTILE, page

from timesink.notebook.display import diagnosis_html, trace_html
from timesink.render.html.shell import page_fragment

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-look.ipynb"
TABLES = {"table", "caption", "thead", "tbody", "tr", "th", "td"}
ALLOWED = TABLES | {"div", "p", "b", "details", "summary", "span", "code", "ul", "li"}


@pytest.fixture(scope="module")
def outputs() -> list[tuple[str, str]]:
    """What Jupyter shows below each cell of the tutorial: the class of the value, and its HTML."""
    nbformat = pytest.importorskip("nbformat", reason="pip install nbclient ipykernel: the tutorial is run in Jupyter")
    client = pytest.importorskip("nbclient", reason="pip install nbclient ipykernel: the tutorial is run in Jupyter")
    notebook = nbformat.read(TUTORIAL, as_version=4)
    client.NotebookClient(notebook, timeout=120).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    values = [[one.data for one in cell.outputs if one.output_type == "execute_result"] for cell in cells]
    last = [found[-1] if found else {} for found in values]
    return [(re.split(r"\W", data.get("text/plain", "").strip("<"))[0], data.get("text/html", "")) for data in last]


@pytest.mark.slow
def test_every_cell_of_the_tutorial_runs(outputs: list[tuple[str, str]]) -> None:
    cells = [cell for cell in json.loads(TUTORIAL.read_text())["cells"] if cell["cell_type"] == "code"]
    assert len(outputs) == len(cells) >= 6
    assert all(not cell["outputs"] for cell in cells)


def test_a_timeline_shows_itself_in_a_frame_that_reaches_nothing(outputs: list[tuple[str, str]]) -> None:
    frame = lxml.html.fragment_fromstring(dict(outputs)["TimelinePicture"])
    assert frame.tag == "iframe"
    assert frame.get("sandbox") == "allow-scripts"  # neither the notebook's origin nor its forms
    page = frame.get("srcdoc")
    assert page.startswith("<!doctype html>")
    document = lxml.html.document_fromstring(page)
    assert "default-src 'none'" in document.xpath("//meta[@http-equiv]/@content")[0]
    assert not document.xpath("//@src | //@href")


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
    assert "What makes the difference" in shown
    assert "inconclusive" in shown
