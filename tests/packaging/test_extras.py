"""Every extra has something that it is for, which runs; what the code asks of an extra comes with it."""

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools import check_extras

ROOT = Path(__file__).resolve().parents[2]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
NEEDS = {name: name for name in EXTRAS if name != "all"} | {
    "arrow": "pyarrow", "query": "duckdb", "remote": "fsspec", "dask": "distributed",
}  # fmt: skip


def named(extra: str) -> set[str]:
    """The libraries of an extra, without their versions."""
    return {line.partition(">")[0].partition("<")[0].partition("[")[0].lower() for line in EXTRAS[extra]}


def asked() -> list[tuple[str, str, str]]:
    """Each `extra(module, name)` in the source: the file, the module's package, the name."""
    found = []
    for path in sorted((ROOT / "src" / "timesink").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="extra"), args=[ast.Constant(value=str(module)), ast.Constant(value=str(name))]
                ):
                    found.append((path.name, module.partition(".")[0], name))
    return found


def test_what_the_code_asks_an_extra_for_is_in_it() -> None:
    assert len(asked()) > 5
    provided = packages_distributions()
    for file, package, extra in asked():
        assert extra in EXTRAS, f"{file}: there is no extra {extra!r}"
        assert {one.lower() for one in provided.get(package, [package])} & named(extra), f"{file}: {package}, {extra}"


def test_every_extra_is_installed_and_used_by_continuous_integration() -> None:
    assert {*check_extras.USES, "all"} == {*EXTRAS} and NEEDS.keys() == check_extras.USES.keys()
    assert EXTRAS["all"] == [f"timesink[{','.join(check_extras.ALL)}]"]
    job = (ROOT / ".github/workflows/ci.yml").read_text().partition("\n  extras:")[2].partition("\n  fuzz:")[0]
    assert "python tools/check_extras.py dist ${{ matrix.extra }}" in job
    assert sorted(job.partition("extra: [")[2].partition("]")[0].split(", ")) == sorted(EXTRAS)
    for extra in EXTRAS:
        assert f"`{extra}`" in (ROOT / "docs/how-to/install.md").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("extra", check_extras.USES)
def test_what_an_extra_is_for_runs(extra: str, tmp_path: Path) -> None:
    if find_spec(NEEDS[extra]) is None:
        pytest.skip(f"{NEEDS[extra]} is not installed")
    check_extras.use(Path(sys.executable), extra, tmp_path)


def test_what_fails_in_its_environment_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(check_extras.USES, "query", "import a_library_that_is_absent")
    with pytest.raises(subprocess.CalledProcessError):
        check_extras.use(Path(sys.executable), "query", tmp_path)
