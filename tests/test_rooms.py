"""The house: which rooms there are, how large they may be, and that no file leads back to itself.

`import-linter` holds the floors; this holds what it does not see: circles of files, by lazy and type-only imports too.
"""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "timesink"
FILES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
FILES_IN_A_ROOM, LINES_OF_A_FILE = 25, 600


def imported(path: Path) -> Iterator[str]:
    """The package's own files that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in FILES)
        elif isinstance(node, ast.ImportFrom) and node.module in FILES:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in FILES else node.module


def in_order(imports: dict[str, set[str]]) -> None:
    tuple(TopologicalSorter(imports).static_order())


@pytest.mark.slow
def test_no_file_leads_back_to_itself() -> None:
    in_order({name: set(imported(path)) - {name} for name, path in FILES.items()})


def test_a_circle_is_seen() -> None:
    with pytest.raises(CycleError):
        in_order({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_no_room_and_no_file_is_too_large() -> None:
    rooms = {room: len(list(room.glob("*.py"))) for room in {path.parent for path in FILES.values()}}
    assert {room.name: files for room, files in rooms.items() if files > FILES_IN_A_ROOM} == {}
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in FILES.items()}
    assert {name: count for name, count in lines.items() if count > LINES_OF_A_FILE} == {}


def test_at_the_root_are_rooms_and_what_every_room_uses() -> None:
    loose = {path.name for path in PACKAGE.glob("*.py")}
    own = {"errors.py", "pytest_plugin.py", "records.py", "startup.py", "units.py"}
    assert loose == {"__init__.py", "__main__.py", *own}


def private_names(name: str, path: Path) -> Iterator[str]:
    """What a file takes from another room though an underscore says that it is that room's own."""
    room = name.split(".")[1] if name.count(".") else ""
    foreign: dict[str, str] = {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("timesink."):
            parts = [*str(node.module).split(".")[1:], ""]
            if parts[0] not in (room, "_native"):
                yield from (f"{node.module}.{one.name}" for one in node.names if _is_private(*parts[:-1], one.name))
                foreign |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    for node in ast.walk(tree):
        of = (
            foreign.get(node.value.id) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else None
        )
        if of in FILES and _is_private(node.attr):
            yield f"{of}.{node.attr}"


def _is_private(*names: str) -> bool:
    return any(name.startswith("_") and not name.startswith("__") for name in names)


def test_no_room_takes_what_is_private_in_another() -> None:
    found = {name: taken for name, path in FILES.items() if (taken := sorted(private_names(name, path)))}
    assert found == {}


def test_a_private_name_of_another_room_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "views.py"
    path.write_text(
        "from timesink.measures import steps\nfrom timesink.rules._x import y\nsteps._z()\n", encoding="utf-8"
    )
    assert sorted(private_names("timesink.views.page", path)) == ["timesink.measures.steps._z", "timesink.rules._x.y"]
    assert sorted(private_names("timesink.rules.page", path)) == ["timesink.measures.steps._z"]
