"""Types of NumPy arrays by what an element is. The docstring of each function says what a dimension means."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
Int8Array = npt.NDArray[np.int8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
IntArray = npt.NDArray[np.signedinteger[Any]]  # of any width
Float64Array = npt.NDArray[np.float64]
