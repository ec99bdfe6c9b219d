"""What CI runs exists, and the list of parts names what is vendored."""

import importlib.util
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import check_pins

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
    parts, publish, release = (RELEASE.partition(f"\n  {job}:")[2] for job in ("parts", "publish", "release"))
    assert "mv dist/*.cdx.json out/" in parts.partition("\n  publish:")[0]
    assert "needs: [wheels, source, parts]" in publish and "needs: [publish]" in release
    assert re.search(r"pattern: \"dist-\*\".*gh release create \S+ dist/\*", release, re.DOTALL)


def locked() -> dict[str, tuple[str, int]]:
    """The version of each package that builds a release, and how many hashes pin it."""
    text = (ROOT / "packaging/builders.txt").read_text()
    pinned = re.findall(r"^([a-z0-9-]+)==(\S+)((?:[^\n]*\\\n)+[^\n]*)", text, re.MULTILINE)
    assert len(pinned) == len(re.findall("^[a-z]", text, re.MULTILINE)), "a line without a version or a hash"
    return {name: (version, len(re.findall("--hash=sha256:[0-9a-f]{64}", rest))) for name, version, rest in pinned}


def test_what_builds_a_release_is_pinned_by_hash() -> None:
    project, lock = tomllib.loads((ROOT / "pyproject.toml").read_text()), locked()
    asked = (ROOT / "packaging/builders.in").read_text().splitlines()
    wanted = [Requirement(line) for line in asked if not line.startswith("#")]
    for one in [*wanted, *map(Requirement, project["build-system"]["requires"])]:
        assert one.specifier.contains(lock[one.name][0]), one
    assert all(hashes for _, hashes in lock.values())
    wheels = project["tool"]["cibuildwheel"]
    assert "--require-hashes -r {project}/packaging/builders.txt" in wheels["before-build"]
    assert wheels["build-frontend"]["args"] == ["--no-isolation"], "an environment of its own takes what is newest"


def test_jobs_that_make_what_is_published_install_nothing_else() -> None:
    for job, after in (("wheels", "source"), ("source", "parts")):
        steps = RELEASE.partition(f"\n  {job}:")[2].partition(f"\n  {after}:")[0]
        assert re.findall("pip install (.*)", steps) == ["--require-hashes -r packaging/builders.txt"], job
        assert "make " not in steps and ("-m build" not in steps or "--no-isolation" in steps)


def test_pins_of_actions_are_held_against_tags(tmp_path: Path) -> None:
    """With a repository of its own in place of github.com: tags of both kinds, pins of neither."""
    repository = tmp_path / "owner" / "action"
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    repository.mkdir(parents=True)
    for line in ("init -q", "commit -q --allow-empty -m x", "tag v1", "tag -a v1.2 -m x"):
        subprocess.run([*git, *line.split()], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    place = f"{tmp_path}/{{}}"
    right = {("owner/action", commit, "v1"), ("owner/action/part", commit, "v1.2")}
    assert check_pins.wrong(right, place) == []
    other = commit[:20] + commit[:20][::-1]
    bad = [(other, "v1"), (commit, "v1.1"), ("main", "v1"), (commit, "")]
    assert len(check_pins.wrong({("owner/action", *pin) for pin in bad}, place)) == len(bad)


def test_every_action_is_pinned_to_a_commit_and_the_pins_are_checked() -> None:
    used = check_pins.pins()
    assert len(used) >= 6
    assert all(re.fullmatch("[0-9a-f]{40}", commit) and tag.startswith("v") for _, commit, tag in used)
    assert len({name for name, _, _ in used}) == len(used), "one version of an action in all workflows"
    assert "tools/check_pins.py" in (ROOT / ".github/workflows/ci.yml").read_text()


def test_each_system_that_a_release_builds_on_is_tried_dry_in_ci() -> None:
    made, tried = ((ROOT / f".github/workflows/{name}.yml").read_text() for name in ("release", "ci"))
    systems = re.findall(r"[\w.-]+", made.partition("os: [")[2].partition("]")[0])
    of_runner = {"ubuntu-24.04": "linux/x86_64", "ubuntu-24.04-arm": "linux/aarch64", "macos-14": "macos/arm64"}
    loop = re.search(r"for on in (.*); do\n.*--print-build-identifiers \| grep cp314\n", tried)
    assert loop is not None and loop[1].split() == [of_runner[system] for system in systems]
