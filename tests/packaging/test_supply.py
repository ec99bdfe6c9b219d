"""What CI runs exists, and the list of parts names what is vendored."""

import importlib.util
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RELEASE = (ROOT / ".github/workflows/release.yml").read_text()


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


@pytest.mark.parametrize(("tag", "code"), [("v{}", 0), ("v{}.1", 1), ("v9{}", 1), ("{}-rc1", 1), ("v", 1), ("main", 1)])
def test_a_release_is_of_the_version_that_its_tag_names(tag: str, code: int) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (check,) = re.findall(r"- run: (grep .*GITHUB_REF_NAME.*)", RELEASE)
    named = {**os.environ, "GITHUB_REF_NAME": tag.format(project["version"])}
    assert subprocess.run(["bash", "-ec", check], cwd=ROOT, env=named, check=False).returncode == code


def test_a_release_publishes_the_list_of_parts_with_its_wheels() -> None:
    source, publish, release = (RELEASE.partition(f"\n  {job}:")[2] for job in ("source", "publish", "release"))
    assert "mv dist/*.tar.gz dist/*.cdx.json out/" in source.partition("\n  publish:")[0]
    assert "needs: [wheels, source]" in publish and "needs: [publish]" in release
    assert re.search(r"pattern: \"dist-\*\".*gh release create \S+ dist/\*", release, re.DOTALL)
