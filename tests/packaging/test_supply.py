"""What CI runs exists, and the list of parts names what is vendored."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_target_that_a_workflow_makes_is_one() -> None:
    targets = set(re.findall(r"^([a-z][\w -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {name for names in targets for name in names.split()}
    workflows = [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / ".ci" / "run"]
    made = {
        word
        for path in workflows
        for line in re.findall(r"(?:run: |^)make ([^#\n]*)", path.read_text(), re.MULTILINE)
        for word in line.split()
        if re.fullmatch(r"[a-z][a-z-]*", word)
    }
    assert made >= {"test-all", "fuzz", "sbom", "audit", "nightly", "lowest"}
    assert made <= known


def test_the_list_of_parts_names_the_vendored_library() -> None:
    spec = importlib.util.spec_from_file_location("write_sbom", ROOT / "tools" / "write_sbom.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    part = tool.vendored()
    assert part["purl"] == "pkg:npm/uplot@1.6.32"
    assert (ROOT / "src" / "timesink" / "render" / "html" / "assets" / "uPlot-LICENSE.txt").is_file()
