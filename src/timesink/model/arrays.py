"""Types of NumPy arrays by what an element is. The docstring of each function says what a dimension means."""

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from timesink._native import numbered

BoolArray = npt.NDArray[np.bool_]
Int8Array = npt.NDArray[np.int8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
IntArray = npt.NDArray[np.signedinteger[Any]]  # of any width
Float64Array = npt.NDArray[np.float64]
AT_ONCE: Final = 1 << 17
"""Rows that `slices` takes at a time."""
WEIGHTY: Final = 1 << 21
"""Rows of which the freed memory is given back between steps: that of fewer is soon asked for again."""
Width = TypeVar("Width", bound=np.signedinteger[Any])


def found_at(values: npt.NDArray[Width], index: IntArray) -> npt.NDArray[Width]:
    """The value at each index; -1 for index -1. [5, 6] at [1, -1, 0] is [6, -1, 5]."""
    if not values.size:
        return none_of(index.size, values.dtype)
    found = values[index]
    found[index < 0] = -1
    return found


def distinct(values: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The different values in order, and the place of each one among them: `np.unique`, which sorts all of them."""
    number, first = numbered([values])
    order = np.argsort(values[first])
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return values[first[order]], place[number]


def flag_at(flags: BoolArray, index: IntArray) -> BoolArray:
    """The flag at each index; False for index -1. [True, False] at [0, -1, 1] is [True, False, False]."""
    return np.asarray(np.append(flags, False)[index], np.bool_)


def slices(first: int, last: int) -> Iterator[slice]:
    """Rows `first` to `last` - 1, so many at a time: what is worked out on the way to an answer then fits the
    processor's caches, and a long trace takes no more memory for it than a short one."""
    for low in range(first, last, AT_ONCE):
        yield slice(low, min(low + AT_ONCE, last))


def none_of(size: int, dtype: npt.DTypeLike = np.int32) -> npt.NDArray[Any]:
    """So many entries of -1, which take no memory and cannot be changed."""
    return np.broadcast_to(np.array(-1, dtype), size)


def median(values: npt.ArrayLike, *, overwrite_input: bool = False) -> float:
    """The middle of some values, of which there is one at least and none is NaN; of an even number the mean of the two
    in the middle. As `np.median`, which takes five times as long for a few hundred and loads masked arrays.
    """
    parted = np.asarray(values) if overwrite_input else np.array(values)
    low, high = (parted.size - 1) // 2, parted.size // 2
    parted.partition((low, high))
    return (float(parted[low]) + float(parted[high])) / 2
