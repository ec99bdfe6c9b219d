"""Attention that is written out in a trace, told by how its products fit together."""

from collections.abc import Collection, Iterable
from typing import Any

from timesink.untrusted.plain_json import parsed

Sizes = tuple[int, ...]
RowsOfPass = tuple[list[int], list[int]]
"""Rows of the products of attention, and of what is between them."""


def written_out(kernels: Iterable[tuple[int, bool, str, bool]]) -> dict[Sizes, dict[bool, RowsOfPass]]:
    """Attention by its sizes, of its kernels in order: row, whether it is a product, its shapes, whether it is of a
    backward pass. Forward, two products belong together where the second takes the scores that the first makes."""
    found: dict[Sizes, dict[bool, RowsOfPass]] = {}
    known: dict[Sizes, Sizes] = {}
    first: tuple[int, Sizes] | None = None
    sizes: Sizes | None = None
    for row, is_product, shapes, backward in kernels:
        made = _product_sizes(shapes) if is_product else None
        if made is not None and not backward:
            heads, queries, inner, columns = made
            if first is not None and first[1][:2] == (heads, queries) and first[1][3] == inner:
                sizes = known[heads, *sorted(made[1:])] = heads, queries, inner, columns
                found.setdefault(sizes, {}).setdefault(False, ([], []))[0].extend([first[0], row])
                first = None
            else:
                first = row, made
                sizes = heads, queries, columns, inner
        elif made is not None:
            sizes = known.get((made[0], *sorted(made[1:])), sizes)
        if sizes is not None and (backward or made is None):
            found.setdefault(sizes, {}).setdefault(backward, ([], []))[made is None].append(row)
    return found


def copies_around(ordered: Iterable[tuple[int, bool, int]], elements: Collection[int]) -> list[int]:
    """Rows of what lays operands or the result of such attention out anew, which one kernel does not need: copies of so
    many `elements` next to it, and those of the device's own engine within it. Of a stream, in order: the row, whether
    it is of the attention, and how many elements a copy has, -1 of the engine's, 0 of what is no copy."""
    sequence = list(ordered)
    found: set[int] = set()
    for way in (sequence, sequence[::-1]):
        near = False
        for row, is_own, copied in way:
            near = is_own or (near and copied in elements)
            if near and not is_own:
                found.add(row)
    inside = zip(sequence, sequence[1:], sequence[2:], strict=False)
    found |= {
        row
        for (_, before, _), (row, is_own, copied), (_, after, _) in inside
        if before and after and not is_own and copied < 0
    }
    return sorted(found)


def is_square_mask(shapes: str | None, sizes: Sizes) -> bool:
    """Whether one mask of as many columns as rows, such as a causal one, is read for all sequences and heads."""
    _, queries, keys, _ = sizes
    sides = [side for side in json_list(shapes) if isinstance(side, list) and len(side) >= 2]
    return queries == keys and any(side[-2:] == [queries, keys] and set(side[:-2]) <= {1} for side in sides)


def _product_sizes(shapes: str | None) -> Sizes | None:
    """Of a batch of products: how many, rows, the inner size, columns; None where it is none."""
    sides = [side for side in json_list(shapes) if isinstance(side, list) and len(side) == 3]
    if len(sides) < 2 or not all(isinstance(size, int) for side in sides[-2:] for size in side):
        return None
    (heads, rows, inner), (_, _, columns) = sides[-2:]
    return heads, rows, inner, columns


def json_list(text: str | None) -> Any:
    """The list that a recorded text is; an empty one where it is none."""
    try:
        found = parsed(text) if text else []
    except ValueError:
        return []
    return found if isinstance(found, list) else []
