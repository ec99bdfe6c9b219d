"""What holds of redaction as a whole: its size, what its proof is made of, and what goes of pages and folders."""

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from timesink.capture.redaction import redact
from timesink.capture.redaction.proof import stays_as

ROOT = Path(__file__).resolve().parents[2] / "src/timesink"
MOST_LINES = 1_620
"""Three fifths of the 2,700 that there were; code and lists together."""


def test_code_and_lists_are_three_fifths_of_what_they_were(record_property: Callable[[str, object], None]) -> None:
    lists = [ROOT / "knowledge" / name for name in ("kept_texts.py", "private_texts.py")]
    parts = [path for path in (ROOT / "capture/redaction").iterdir() if path.suffix in (".py", ".txt")]
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in [*parts, *lists])
    record_property("figure", f"redaction: {lines} lines of code and lists, at most {MOST_LINES}")
    assert len(parts) >= 10 and lines <= MOST_LINES


def test_the_proof_shares_lists_with_the_cleaner_and_nothing_that_judges() -> None:
    tree = ast.parse((ROOT / "capture/redaction/proof.py").read_text("utf-8"))
    taken = {
        f"{node.module}.{name.name}".removeprefix("timesink.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("timesink")
        for name in node.names
    }
    lists = {"capture.redaction.lists", "knowledge.kept_texts", "knowledge.nsys_tables"}
    assert taken == lists | {"capture.redaction.packed.Unpacked", "untrusted.masking", "untrusted.read_rows"}


OF_OTHERS = (
    "<style>.kernel{color:red}</style>", "<style>:root{--bg:#fff}</style>", "<script>kernel(step)</script>",
    "<style>@media print{table{color:#2f74c0}}</style>", "<script>/* uPlot */ step</script>",
)  # fmt: skip


@pytest.mark.parametrize("part", OF_OTHERS)
def test_a_style_or_a_script_of_others_goes_though_its_words_are_known(tmp_path: Path, part: str) -> None:
    (tmp_path / "page.html").write_text(f"<p>forward</p>{part}<p>step</p>")
    done = redact(tmp_path / "page.html")
    inner = part.partition(">")[2].rpartition("</")[0]
    copy = done.path.read_text("utf-8")
    assert inner not in copy and "<p>forward</p>" in copy and "<p>step</p>" in copy
    assert any("not this version's" in what for what in done.removed)


@pytest.mark.parametrize("cut", [30, 50, 70, 90, 110])
def test_a_folder_says_that_a_file_in_it_was_cut_as_the_file_does(tmp_path: Path, cut: int) -> None:
    whole = json.dumps(
        {"traceEvents": [{"ph": "X", "name": f"step{number}", "ts": 1, "dur": 1} for number in range(9)]}
    )
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "rank0.json").write_text(whole)
    (tmp_path / "job" / "rank1.json").write_text(whole[:cut])
    alone = redact(tmp_path / "job" / "rank1.json", tmp_path / "alone.json").removed[0]
    assert "what follows the damage is left out" in alone
    assert alone in redact(tmp_path / "job", tmp_path / "copies").removed


@pytest.mark.parametrize("text", ["LDG.E.128", "HMMA.16816.F32.BF16", "MOV", "UIADD3.X", "LDG.JSMITH"])
def test_an_instruction_is_made_of_listed_parts_alone(text: str) -> None:
    assert (stays_as(text) != "") == ("JSMITH" not in text)
