"""An edit changes exactly the node that it names, whatever the file looks like, and all other bytes are kept."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from timesink.recipes.proof import Replacement, Unproven, decoded, edited, rows_of
from timesink.recipes.source import Source
from timesink.recipes.table import proposals

LOOP = """import gc
{odd}
def save(m): pass
for step in range(3):
    save(step)
    gc.collect()
    loss = step
    optimizer.step()
# the end{mark}
"""
SEPARATORS = {"form feed": "\f", "vertical tab": "\x0b", "file": "\x1c", "group": "\x1d", "record": "\x1e",
              "next line": "\x85", "line": "\u2028", "paragraph": "\u2029"}  # fmt: skip
ODD: dict[str, bytes] = {
    **{f"{name} in a comment": LOOP.format(odd=f"# a{sign}b", mark="").encode() for name, sign in SEPARATORS.items()},
    **{f"{name} in a text": LOOP.format(odd=f"t = 'a{sign}b'", mark="").encode() for name, sign in SEPARATORS.items()},
    "form feed in a row of its own": LOOP.format(odd="\f", mark="").encode(),
    "form feed before a statement": LOOP.format(odd="\fx = 1", mark="").encode(),
    "line ends of Windows": LOOP.format(odd="x = 1", mark="").replace("\n", "\r\n").encode(),
    "old line ends": LOOP.format(odd="x = 1", mark="").replace("\n", "\r").encode(),
    "mixed line ends": LOOP.format(odd="x = 1\r\ny = 2\rz = 3", mark="").encode(),
    "tabs": LOOP.format(odd="if 1:\n\tx = 1", mark="").replace("    ", "\t").encode(),
    "a mark": b"\xef\xbb\xbf" + LOOP.format(odd="x = 'ä'", mark="").encode(),
    "latin-1": b"# -*- coding: latin-1 -*-\n" + LOOP.format(odd="x = 'ä'", mark="ß").encode("latin-1"),
    "cp1251": b"# coding: cp1251\n" + LOOP.format(odd="x = 'я'", mark="я").encode("cp1251"),
    "shift_jis": b"# vim: set fileencoding=shift_jis :\n" + LOOP.format(odd="x = '表'", mark="").encode("shift_jis"),
    "wide signs before it": LOOP.format(odd="x = '😀表'; y = 2", mark="").encode(),
    "no end of line": LOOP.format(odd="x = 1", mark="").rstrip("\n").encode(),
    "texts over rows": LOOP.format(odd="x = '''a\n    gc.collect()\nb'''", mark="").encode(),
    "a continued row": LOOP.format(odd="x = 1 + \\\n  2", mark="").encode(),
}
"""Files whose rows are other than `str.splitlines` has them, or whose bytes are not UTF-8."""


@pytest.mark.parametrize("name", ODD)
def test_the_statement_that_is_named_goes_and_no_other_byte(name: str, tmp_path: Path) -> None:
    raw = ODD[name]
    (tmp_path / "train.py").write_bytes(raw)
    source = Source.read(tmp_path / "train.py")
    assert source is not None and source.encoded(source.text) == raw
    (call,) = [one for one in ast.walk(source.tree) if isinstance(one, ast.Expr) and "collect" in ast.unparse(one)]
    new = source.encoded(source.edited([source.drop(call)]))
    assert b"save(step)" in new
    before, after = ast.dump(ast.parse(raw)), ast.dump(ast.parse(new))
    gone = ast.dump(call)
    assert before.replace(f"{gone}, ", "", 1) == after
    assert len(raw) - len(new) in {len("    gc.collect()\n") + extra for extra in (-3, -2, 0, 1)}


@pytest.mark.parametrize("name", ODD)
def test_finders_see_the_same_rows_as_pythons_parser(name: str, tmp_path: Path) -> None:
    text = decoded(ODD[name])[2]
    rows = rows_of(text)
    assert "".join(row.decode() for row in rows) == text
    for node in (one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Name)):
        assert rows[node.lineno - 1][node.col_offset :].decode().startswith(node.id)


def whole(node: ast.AST, text: str) -> Replacement:
    assert isinstance(node, (ast.expr, ast.stmt))
    start, end = (node.lineno - 1, node.col_offset), ((node.end_lineno or 0) - 1, node.end_col_offset or 0)
    return Replacement(start, end, text, node)


WRONG: dict[str, tuple[str, Callable[[str], tuple[ast.Module, list[Replacement]]]]] = {}


def wrong(name: str, text: str) -> Callable[[Callable[[ast.Module], list[Replacement]]], None]:
    def add(make: Callable[[ast.Module], list[Replacement]]) -> None:
        def both(text: str) -> tuple[ast.Module, list[Replacement]]:
            tree = ast.parse(text)
            return tree, make(tree)

        WRONG[name] = text, both

    return add


def calls(tree: ast.AST) -> list[ast.Call]:
    return [one for one in ast.walk(tree) if isinstance(one, ast.Call)]


@wrong("brackets lost", "y = f(a) * 2\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [whole(calls(tree)[0], "a + b")]


@wrong("a statement smuggled in", "y = f(a)\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [whole(calls(tree)[0], "a; z = 1")]


@wrong("a comment that swallows", "y = g(f(a), 2)\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [whole(calls(tree)[1], "a # ")]


@wrong("another row", "save(m)\nf(a)\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [Replacement((0, 0), (1, 0), "", tree.body[1])]


@wrong("two rows", "save(m)\nf(a)\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [Replacement((0, 0), (2, 0), "", tree.body[1])]


@wrong("a neighbour in the row", "x = 1; f(a)\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [Replacement((0, 0), (1, 0), "", tree.body[1])]


@wrong("a neighbour behind it in the row", "f(a); x = 1\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [Replacement((0, 0), (1, 0), "", tree.body[0])]


@wrong("the only statement of a block", "if x:\n    f(a)\ny = 1\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [Replacement((1, 0), (2, 0), "", tree.body[0].body[0])]  # type: ignore[attr-defined]


@wrong("nothing named", "f(a)\ny = 1\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [Replacement((0, 0), (1, 0), "")]


@wrong("text into a row without a node", "f(a)\ny = 1\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [Replacement((1, 4), (1, 4), "2 + ")]


@wrong("a row that takes the next into its block", "f(a)\ny = 1\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [Replacement((1, 0), (1, 0), "if x: z = '''\n")]


@wrong("a docstring that appears", "def f():\n    g()\n    'text'\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [Replacement((1, 0), (2, 0), "", tree.body[0].body[0])]  # type: ignore[attr-defined]


@wrong("rows moved out of their block", "for a in b:\n    f(a)\n    g(a)\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [Replacement((2, 0), (2, 0), "if 1:\n    pass\n")]


@wrong("the future after something", "from __future__ import annotations\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [Replacement((0, 0), (0, 0), "import torch\n")]


@wrong("a return out of a function", "x = 1\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [Replacement((0, 0), (0, 0), "return\n")]


@wrong("changes that overlap", "y = f(g(a))\n")
def _(tree: ast.Module) -> list[Replacement]:
    return [whole(one, "b") for one in calls(tree)]


@pytest.mark.parametrize("name", WRONG)
def test_what_changes_more_than_it_names_is_not_given_out(name: str) -> None:
    text, make = WRONG[name]
    tree, replacements = make(text)
    with pytest.raises(Unproven):
        edited(text, tree, replacements)


def test_bytes_that_an_encoding_does_not_keep_and_what_is_no_python_are_not_read(tmp_path: Path) -> None:
    for raw in (b"# coding: utf-7\nx = '+AGE-'\n", b"x = '\xff'\n", b"# coding: nonsense\n", b"x = \n", b"x = 1\0\n"):
        (tmp_path / "a.py").write_bytes(raw)
        assert Source.read(tmp_path / "a.py") is None


def test_an_edit_of_a_file_from_windows_changes_its_row_alone(tmp_path: Path) -> None:
    text = (
        "import gc\r\nimport torch\r\nfor step in range(3):\r\n    loss.backward()\r\n    gc.collect()\r\n    x = 1\r\n"
    )
    (tmp_path / "train.py").write_bytes(text.encode())
    ((source, found),) = list(proposals([tmp_path / "train.py"], ["frozen_garbage"], {}))
    assert source.encoded(source.edited(found.replacements)).decode() == text.replace("    gc.collect()\r\n", "")


@pytest.mark.parametrize(
    ("told", "is_flat"),
    [
        ("f'{x:.3f} | '\n    f'{y:.3f} | '\n    f'{x}'", True),
        ("'a'\n    f'{x}' 'b'\n    'c'", True),
        ("f'{x:{y}}'\n    r'\\d'", True),
        ('f"""{x}\n    {y}"""', False),
        ('"""a\n    b"""', False),
        ("'a'\n    '''b\n    c'''", False),
        ("f'{x}' '''b\n    {c}'''", False),
    ],
)
def test_strings_side_by_side_may_be_indented_and_one_over_rows_not(told: str, is_flat: bool, tmp_path: Path) -> None:
    """From Python 3.12 on a part of one f-string may begin in the string before it."""
    (tmp_path / "train.py").write_text(f"while 1:\n    print(\n    {told}\n    )\n")
    source = Source.read(tmp_path / "train.py")
    assert source is not None
    (loop,) = source.loops()
    assert source.moves_whole(loop.body[0]) is is_flat
