"""Fixtures every test may use."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.laws import USUAL
from tests.profiles import ABSENT, PROFILES

# A law is about values, not about how busy the machine is: no deadline per example.
# `make test` and CI draw the same examples each time: red means a change. `make test-all` draws most, and new ones.
settings.register_profile("laws", deadline=None, max_examples=USUAL)
settings.register_profile("ci", deadline=None, max_examples=15, derandomize=True)
settings.register_profile("quick", deadline=None, max_examples=12, derandomize=True)


def pytest_configure(config: pytest.Config) -> None:
    """Laws, unless the command line asks for another profile."""
    if config.getoption("--hypothesis-profile", default=None) is None:
        settings.load_profile("laws")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is left with one of them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public profiles with known answers; tests that need it skip where it is absent."""
    if not PROFILES.is_dir():
        pytest.skip(ABSENT)
    return PROFILES


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Has a folder filled by whichever worker of a run comes first, for all of them."""
    own = tmp_path_factory.getbasetemp()
    place = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def make(name: str, fill: Callable[[Path], object]) -> Path:
        folder, filled = place / name, place / f"{name}.filled"
        with (place / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not filled.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of one that failed
                folder.mkdir()
                fill(folder)
                filled.touch()
        return folder

    return make


@pytest.fixture
def port_of_perfetto() -> Iterator[None]:
    """The one port that `timesink report --open` serves from, held against the tests of other processes."""
    with (Path(tempfile.gettempdir()) / "timesink-tests-port-9001").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests counted and measured (`record_property("figure", ...)`), by whichever worker: CI prints it so."""
    reports = [report for kept in terminalreporter.stats.values() for report in kept]
    told = [text for report in reports for name, text in getattr(report, "user_properties", ()) if name == "figure"]
    if told:
        terminalreporter.section("figures")
        terminalreporter.write("".join(f"{text}\n" for text in dict.fromkeys(map(str, told))))
