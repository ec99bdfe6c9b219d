"""One name means one thing: no two public classes of the package share one."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "timesink"

SHARED: set[str] = set()
"""Names that still have two meanings. The list may only shrink."""


@pytest.mark.slow
def test_no_two_public_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(PACKAGE).as_posix())
    shared = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in SHARED} == {}


def test_no_two_headers_declare_one_type_each() -> None:
    """Two of one name are the same to the linker, which may take the one's destructor for the other's."""
    places = defaultdict(list)
    for path in sorted((ROOT / "native").glob("*.h")):
        for name in re.findall(r"^(?:struct|class) (\w+)\s*[:{]", path.read_text(encoding="utf-8"), re.MULTILINE):
            places[name].append(path.name)
    assert len(places) > 20
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
