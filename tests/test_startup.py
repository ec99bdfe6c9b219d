"""Stand-ins that make a command begin sooner change no answer, and stand in one file."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import timesink
from timesink import startup

PACKAGE = Path(timesink.__file__).parent
TRACE = PACKAGE / "cli" / "demo" / "gpt_before.json.xz"
ALONE = ("capture", "memory_plan", "recipes", "sandbox", "trials", "untrusted", "errors.py", "records.py")
PATCHES = ("sys.modules.update", "POLARS_MAX_THREADS", "gc.set_threshold", "_runtime_param")


def answer(*words: str, plain: bool) -> tuple[int, str]:
    environment = {**os.environ, "TIMESINK_PLAIN_IMPORTS": str(int(plain)), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "timesink", *words]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("diagnose", "--no-cache", "--format", "json", str(TRACE)),
        ("plan", "--no-cache", str(TRACE)),
        ("report", "--no-cache", "--output", "-", str(TRACE)),
        ("explain", "IDL101"),
        ("diagnose", "--top", "none", str(TRACE)),
        ("doctor", "--help"),
    ],
    ids=lambda words: words[0],
)
def test_a_command_answers_the_same_without_stand_ins(words: tuple[str, ...]) -> None:
    assert answer(*words, plain=True) == answer(*words, plain=False)


def test_the_switch_takes_every_stand_in_away() -> None:
    program = """
import gc, re, sys
before = gc.get_threshold()
from timesink import startup
from pathlib import Path
startup.collect_rarely()
startup.start_small([Path("none.json")])
assert startup.regex is re.compile
assert gc.get_threshold() == before and "polars.io.delta" not in sys.modules
"""
    environment = {**os.environ, "TIMESINK_PLAIN_IMPORTS": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert startup.PLAIN is (os.environ.get("TIMESINK_PLAIN_IMPORTS") == "1")


def test_only_one_file_patches_libraries() -> None:
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        if str(place) == "startup.py":
            continue
        text = path.read_text()
        assert not [patch for patch in PATCHES if f"{patch}(" in text or f".{patch} =" in text], place


def test_records_are_of_one_kind() -> None:
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        if place.parts[0] not in ALONE:
            imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
            names = [one.name for node in imports if node.module == "dataclasses" for one in node.names]
            assert "dataclass" not in names, f"{place} makes records of another kind"
