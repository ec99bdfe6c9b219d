"""Every capture of the fault suite and every public profile is diagnosed on one screen; what one must know is on it."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.faults.score import captures_in
from tests.profiles import ABSENT, PROFILES, swept

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Diagnosis
from timesink.errors import TimesinkError
from timesink.readers import read
from timesink.render import Format, render
from timesink.render.parts import grouped

ARCHIVES = sorted((Path(__file__).resolve().parents[2] / "benchmarks" / "faults" / "captures").glob("*.tar.xz"))
SAMPLED = (0, 60, 130)  # a fault by torch, one by nsys, and one of several ranks or not
READ_ALONE = (".json", ".gz", ".sqlite", ".ncu-rep", ".pickle", ".log", ".csv", ".nsys-rep")
RANKS = PROFILES / "public" / "kineto" / "dlrm_8rank"
PUBLIC = sorted(path for path in PROFILES.rglob("*") if path.suffix in READ_ALONE and path.is_file())
COMMAND = ("next: timesink ", "      timesink ")


def faults_of(found: Diagnosis, width: int = 80) -> list[str]:
    """What is wrong with the screen."""
    lines = render(found, Format.TEXT, width=width).rstrip("\n").split("\n")
    rows = sum(-(-max(len(line), 1) // width) for line in lines)
    faults = [f"{rows} rows"] if rows > 24 else []
    faults += [f"too wide: {line}" for line in lines if len(line) > width and not line.startswith(COMMAND)]
    text = " ".join(" ".join(lines).split())
    groups = grouped(found)
    told = [group for group in groups if f" {group.card.name} " in f"{text} "]
    more = next((int(line.split()[0]) for line in lines if " more (-v): " in line), 0)
    if len(groups) > len(told) + more:
        faults.append(f"{len(groups) - len(told)} findings are neither shown nor counted")
    if groups and groups[0] not in told:
        faults.append("the first finding is not shown")
    if groups and f"next: timesink explain {groups[0].card.code}" not in text:
        faults.append("no next command")
    if any(budget.period_ns for budget in found.budgets) and not re.search(
        r"[█▓▒░]{20}.*\(of the (step|recorded)", text
    ):
        faults.append("no bar of the step")
    if any("--unprofiled-step-ms" in note.message for note in found.notes) and "--unprofiled-step-ms" not in text:
        faults.append("the profiler's cost is not told")
    if any(note.kind == "data_loss" for note in found.notes) and "lost: " not in text:
        faults.append("what was lost is not told")
    return faults


def faults_in(archive: Path, folder: Path, most: int | None = None) -> dict[str, Sequence[str]]:
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    some = list(captures_in(folder).items())[:most]
    return {name: faults for name, paths in some if (faults := faults_of(diagnose(read(paths, cache=False))))}


@pytest.mark.parametrize("archive", [ARCHIVES[at] for at in SAMPLED], ids=lambda path: path.name)
def test_a_capture_of_the_fault_suite_is_diagnosed_on_one_screen(archive: Path, tmp_path: Path) -> None:
    assert faults_in(archive, tmp_path, most=1) == {}


@pytest.mark.slow
@pytest.mark.parametrize("archive", swept(ARCHIVES), ids=lambda path: path.name)
def test_every_capture_of_the_fault_suite_is_diagnosed_on_one_screen(archive: Path, tmp_path: Path) -> None:
    assert faults_in(archive, tmp_path) == {}


@pytest.mark.slow
@pytest.mark.skipif(not PUBLIC, reason=ABSENT)
def test_every_public_profile_is_diagnosed_on_one_screen() -> None:
    faults = {}
    for path in [*PUBLIC, RANKS]:
        try:
            found = diagnose(read(path, cache=False))
        except TimesinkError:  # what is no profile
            continue
        if wrong := faults_of(found):
            faults[path.name] = wrong
    assert faults == {}
