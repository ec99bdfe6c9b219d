"""Joins by number: where an id stands first. Correlations, process by process, are such ids."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

_DENSE = 8  # a look-up table may be this many times longer than what it serves; sparser ids are searched instead


def first_places(wanted: Numbers, known: Numbers) -> Numbers:
    """For each wanted id, the first place in `known` that holds it; -1 where none does, and for negative ids."""
    held = np.flatnonzero(known >= 0)
    if not held.size or not wanted.size:
        return np.full(wanted.size, -1, np.int64)
    low, high = int(known[held].min()), int(known[held].max())
    if high - low < _DENSE * (known.size + wanted.size):
        table = np.full(high - low + 1, -1, np.int64)
        table[known[held[::-1]] - low] = held[::-1]
        inside = (wanted >= low) & (wanted <= high)
        return np.where(inside, table[np.where(inside, wanted - low, 0)], -1)
    ids, first = np.unique(known[held], return_index=True)
    at = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
    return np.where(ids[at] == wanted, held[first[at]], -1)
