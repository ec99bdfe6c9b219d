"""The action for GitHub, the template for GitLab and the hook for pre-commit, run as those services run them."""

import json
import lzma
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.packaging.actions import Job
from tests.verify.test_commands import PROGRAM

from timesink.cli.commands import resolve
from timesink.cli.parser import loaded

yaml = pytest.importorskip("yaml", reason="pip install pyyaml: it reads the files of services")
ROOT = Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "tests" / "data" / "compile" / "print_break.broken.json.xz"
BUDGETS = '[tool.timesink.suites.train]\nthreshold = "2%"\nlimits = ["mean(steps.period_ns) <= 100 us"]\n'
# `gh` as the action uses it: lists the comments of a file, and writes down what is asked of it.
GH = """#!/bin/sh
if [ "$2" = --paginate ]; then cat comments.json; else echo "$3 $4" >> asked.txt; fi
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout with budgets, a capture, and the programs that a job calls."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "pyproject.toml").write_text(BUDGETS)
    (tmp_path / "run.json").write_bytes(lzma.decompress(CAPTURE.read_bytes()))
    (tmp_path / "comments.json").write_text("[]")
    tools = tmp_path / "bin"
    tools.mkdir()
    # Three pairs decide here; what runs nothing takes no number of pairs.
    own = f'case "$*" in *--before*) set -- "$@" --pairs 3;; esac\nexec {sys.executable} -m timesink "$@"\n'
    for name, text in (("gh", GH), ("timesink", f"#!/bin/sh\n{own}")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return tmp_path


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "TIMESINK_", "CI_"))}
    return kept | {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_REPOSITORY": "o/r",
        "TIMESINK_CACHE_DIR": str(folder / "cache"),
    }


@pytest.fixture
def act(folder: Path, environment: dict[str, str]) -> Callable[..., tuple[Job, dict[str, str]]]:
    def act(event: str = "push", **given: str) -> tuple[Job, dict[str, str]]:
        known = {"github.event_name": event, "github.event.pull_request.number": "7", "github.token": "secret"}
        job = Job(folder, environment, known)
        return job, job.run(yaml.safe_load((ROOT / "action.yml").read_text()), {"install": "false", **given})

    return act


def test_the_action_installs_its_own_source_which_no_index_has_to_hold() -> None:
    """What `timesink==0.1.0` of an index names may not be published; the action's own folder is always there."""
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    assert [step for step in steps if "pip" in step.get("run", "")] == [
        {
            "if": "inputs.install == 'true'",
            "shell": "bash",
            "run": 'python -m pip install --quiet "$GITHUB_ACTION_PATH"',
        }
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "code"), [("1", 0), ("1.2", 1)])
def test_the_action_times_both_builds_and_hands_on_the_exit_code(act: Any, folder: Path, scale: str, code: int) -> None:
    program = f"{sys.executable} program.py"
    job, outputs = act(suite="train", before=program, after=f"SCALE={scale} {program}")
    assert (job.failed, outputs) == (code, {"exit-code": str(code), "sarif": ""})
    assert (folder / "timesink-gate" / "comment.md").read_text().startswith("<!-- timesink:train -->")
    ((action, given),) = job.used
    assert re.fullmatch(r"actions/upload-artifact@[0-9a-f]{40}", action)
    assert given == {"name": "timesink-gate-train", "path": "timesink-gate"}
    assert not (folder / "asked.txt").exists()


@pytest.mark.slow
def test_the_action_holds_a_capture_to_its_budgets_reports_it_and_keeps_one_comment(act: Any, folder: Path) -> None:
    if subprocess.run(["sh", "-c", "command -v jq"], capture_output=True, check=False).returncode:
        pytest.skip("no jq: runners of GitHub have it")
    job, outputs = act("pull_request", suite="train", capture="run.json")
    assert (job.failed, outputs["exit-code"]) == (1, "1")
    assert json.loads((folder / outputs["sarif"]).read_text())["runs"][0]["results"]
    assert "uPlot" in (folder / "timesink-gate" / "report.html").read_text()
    assert (folder / "asked.txt").read_text() == "POST repos/o/r/issues/7/comments\n"
    body = (folder / "timesink-gate" / "comment.md").read_text()
    others = [{"id": 5, "body": "thanks"}, {"id": 6, "body": body}]
    (folder / "comments.json").write_text(json.dumps(others))
    (commenting,) = [
        step
        for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
        if "GH_TOKEN" in step.get("env", {})
    ]
    job.step(commenting)
    assert (folder / "asked.txt").read_text().splitlines()[1:] == ["PATCH repos/o/r/issues/comments/6"]
    job, outputs = act("pull_request", suite="train", capture="no-such-file", comment="false")
    assert (job.failed, outputs["exit-code"]) == (2, "2")


@pytest.mark.slow
def test_the_template_of_gitlab_writes_every_report_that_it_declares(folder: Path, environment: dict[str, str]) -> None:
    job = yaml.safe_load((ROOT / "packaging" / "gitlab-ci.yml").read_text())[".timesink-gate"]
    given = job["variables"] | {"SUITE": "train", "CAPTURE": "run.json"}
    script = "\n".join(job["script"])
    ran = subprocess.run(["sh", "-e", "-c", script], cwd=folder, env=environment | given, check=False, timeout=300)
    assert ran.returncode == 1
    reports = {kind: (folder / path).read_text() for kind, path in job["artifacts"]["reports"].items()}
    assert reports["junit"].startswith("<?xml")
    assert reports["metrics"].endswith("# EOF\n")
    assert json.loads(reports["codequality"])[0]["check_name"] == "timesink CMP101"


def test_the_hook_calls_a_command_on_the_files_that_it_checks() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {"id", "name", "entry", "language", "files"} <= set(hook)
    program, *words = shlex.split(hook["entry"])
    name, entry, rest = resolve(words)
    assert (program, name) == ("timesink", "gate baseline")
    assert rest[0] in loaded(entry).commands
    for path in ("pyproject.toml", "a/pyproject.toml", ".timesink/baselines/train/0a1b.json"):
        assert re.search(hook["files"], path)
    for path in ("notpyproject.toml", "src/a.json", ".timesink/ledger.jsonl"):
        assert not re.search(hook["files"], path)


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("github-actions", "action.yml"),
        ("gitlab-ci", "packaging/gitlab-ci.yml"),
        ("github-workflows", ".github/workflows/release.yml"),
    ],
)
def test_the_services_take_the_files_by_their_own_schemas(kind: str, file: str) -> None:
    pytest.importorskip("check_jsonschema", reason="pip install check-jsonschema: it brings the schemas of services")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{kind}", str(ROOT / file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
