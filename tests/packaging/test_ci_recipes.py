"""The recipes of `how-to/ci-recipes`, as a reader copies them: the shell steps run in a repository with a change.

What a service or a registry would do is stood for: `pip` writes down what it is asked for, `capture torch` hands out a
capture that is there. Everything else is typed as it stands.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.packaging.actions import Job
from tests.packaging.test_services import CAPTURE, ROOT
from tests.verify.test_commands import PROGRAM

yaml = pytest.importorskip("yaml", reason="pip install pyyaml: it reads the recipes")
PAGE = (ROOT / "docs" / "how-to" / "ci-recipes.md").read_text(encoding="utf-8")
GITHUB, GITLAB, CONTAINER = map(yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
LIMITS = '[tool.timesink.suites.train]\nthreshold = "2%"\npairs = "3"\nlimits = ["mean(steps.period_ns) <= 100 us"]\n'


def sh(words: str, folder: Path, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", words], cwd=folder, env=environment, capture_output=True, text=True,
        check=False, timeout=600, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def change(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A clone whose branch makes the program a fifth slower than that of `origin/main`, and what to type in."""
    tools = tmp_path / "bin"
    tools.mkdir()
    unpack = f"{sys.executable} -c 'import lzma, sys; sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())'"
    shims = {
        "python": f'exec "{sys.executable}" "$@"\n',
        "pip": 'echo "$@" >> "$PIP_ASKED"\n',
        "timesink": 'if [ "$1 $2" = "capture torch" ]; then\n'
        f'  mkdir -p "$4" && {unpack} {CAPTURE} > "$4/trace.json"\n'
        f'else\n  exec "{sys.executable}" -m timesink "$@"\nfi\n',
    }
    for name, body in shims.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}")
        (tools / name).chmod(0o755)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI_", "TIMESINK_"))}
    environment = own | {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PIP_ASKED": str(tmp_path / "asked.txt"),
        "TIMESINK_CACHE_DIR": str(tmp_path / "cache"), "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b", "GITHUB_REPOSITORY": "o/r",
    }  # fmt: skip
    trunk, work = tmp_path / "trunk", tmp_path / "work"
    trunk.mkdir()
    (trunk / "train.py").write_text(PROGRAM)
    (trunk / "pyproject.toml").write_text(LIMITS)
    made = "git init -q -b main && git add -A && git commit -qm one"
    assert sh(made, trunk, environment).returncode == 0
    assert (
        sh(f"git clone -q {trunk} {work} && cd {work} && git switch -qc change", tmp_path, environment).returncode == 0
    )
    (work / "train.py").write_text(f"import os\nos.environ['SCALE'] = '1.2'\n{PROGRAM}")
    assert sh("git commit -qam slower", work, environment).returncode == 0
    return work, environment


@pytest.mark.slow
def test_the_job_of_github_fails_a_change_that_is_slower(change: tuple[Path, dict[str, str]]) -> None:
    work, environment = change
    environment |= {"GITHUB_BASE_REF": "main", "GITHUB_STEP_SUMMARY": str(work / "summary.md")}
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    ours, asked = None, Path(environment["PIP_ASKED"])
    for step in GITHUB["jobs"]["gate"]["steps"]:
        if "run" in step:
            ran = sh(step["run"], work, environment)
            assert ran.returncode == 0, f"{step['run']}\n{ran.stderr}"
        elif step["uses"].startswith("timesink/timesink@"):
            given = {name: str(value) for name, value in step["with"].items()}
            job = Job(work, environment, {"github.event_name": "push", "github.token": "x", "github.action_path": "."})
            ours = job.run(action, {**given, "install": "false"})
    assert ours == {"exit-code": "1", "sarif": "timesink-gate/findings.sarif"}
    assert re.fullmatch(r"install git\+https://github.com/timesink/timesink@v[\d.]+\n", asked.read_text())
    assert "slower" in (work / "timesink-gate" / "comment.md").read_text()
    last = GITHUB["jobs"]["gate"]["steps"][-1]
    assert (
        last["if"] == "always() && steps.timesink.outputs.sarif != ''" and (work / ours["sarif"]).stat().st_size > 200
    )


@pytest.mark.slow
def test_the_job_of_gitlab_fails_a_change_that_is_slower(change: tuple[Path, dict[str, str]]) -> None:
    work, environment = change
    (included,) = GITLAB["include"]
    file = ROOT / included["remote"].partition("/raw/")[2].partition("/")[2]
    template, job = yaml.safe_load(file.read_text()), GITLAB["performance"]
    whole: dict[str, Any] = {**template[job["extends"]], **job}
    given = {**template[job["extends"]]["variables"], **job["variables"], "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
    ran = sh("\n".join([*whole["before_script"], *whole["script"]]), work, {**environment, **given})
    assert ran.returncode == 1, ran.stderr
    reports = whole["artifacts"]["reports"]
    assert all((work / path).stat().st_size > 100 for path in reports.values())
    assert "slower" in (work / "timesink-gate" / "comment.md").read_text()


def test_the_job_in_a_container_runs_without_it(change: tuple[Path, dict[str, str]]) -> None:
    """What stands behind the image's name is typed to its entry, in the folder that is its volume."""
    work, environment = change
    assert (
        sh(
            "timesink capture torch -o run -- python train.py && cp run/trace.json run.json", work, environment
        ).returncode
        == 0
    )
    words = shlex.split(CONTAINER["script"])
    assert words[:3] == ["docker", "run", "--rm"] and "--volume" in words
    line = shlex.join(words[words.index("timesink") :]).replace("run.json.gz", "run.json")
    ran = sh(line, work, environment)
    assert ran.returncode == 1 and "mean(steps.period_ns)" in ran.stdout, ran.stderr
