"""`StringIds`: the export keeps every name once and refers to it by number."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.readers.nsys.export import STRINGS, Export

UNNAMED = "<unnamed>"
_DENSE_UP_TO = 1 << 24
_RUNTIME_VERSION = re.compile(r"_v\d{4,5}$")


@dataclass(frozen=True, slots=True)
class Strings:
    """Distinct strings. Position 0 stands for a number that the export does not explain."""

    texts: tuple[str, ...]
    positions: npt.NDArray[np.uint32]
    ids: npt.NDArray[np.int64]

    def names(self, ids: pl.Series) -> pl.Series:
        """Categorical text of each id; `<unnamed>` where the export has none."""
        return self._gather(self.texts, ids)

    def call_names(self, ids: pl.Series) -> pl.Series:
        """As `names`, without the API version that CUPTI appends: `cudaLaunchKernel_v7000` is `cudaLaunchKernel`.

        Driver symbols keep their suffix (`cuMemcpyHtoDAsync_v2`), because it is part of their name.
        """
        return self._gather(tuple(_RUNTIME_VERSION.sub("", text) for text in self.texts), ids)

    def of(self, ids: pl.Series) -> pl.Series:
        """Plain text of each id; null where the export has none."""
        values = pl.Series([None, *self.texts[1:]], dtype=pl.String)
        return values.gather(self._positions_of(ids))

    def unexplained(self, ids: pl.Series) -> int:
        """How many of the ids are null or explained by no row of `StringIds`."""
        return int((self._positions_of(ids) == 0).sum())

    def _gather(self, texts: tuple[str, ...], ids: pl.Series) -> pl.Series:
        return pl.Series(texts, dtype=pl.Categorical()).gather(self._positions_of(ids))

    def _positions_of(self, ids: pl.Series) -> npt.NDArray[np.uint32]:
        """Position of each id, 0 where it is unknown. Small ids look themselves up in a table of all ids."""
        values = ids.fill_null(-1).to_numpy()
        if not len(self.ids) or not len(values):
            return np.zeros(len(values), dtype=np.uint32)
        largest = int(self.ids[-1])
        if self.ids[0] >= 0 and largest < _DENSE_UP_TO:
            table = np.zeros(largest + 3, dtype=np.uint32)  # one unknown place before the ids and one after
            table[self.ids + 1] = self.positions
            return table.take(values + 1, mode="clip")
        at = np.minimum(np.searchsorted(self.ids, values), len(self.ids) - 1)
        return np.where(self.ids[at] == values, self.positions[at], 0).astype(np.uint32)


def strings_of(export: Export) -> Strings:
    """The strings of an export; where two rows claim one id, the first counts."""
    frame = export.read(STRINGS).unique("id", keep="first", maintain_order=True).sort("id")
    distinct = dict.fromkeys((UNNAMED, *frame["value"].fill_null(UNNAMED)))
    at = {text: position for position, text in enumerate(distinct)}
    positions = np.array([at[text] if text else 0 for text in frame["value"].fill_null("")], dtype=np.uint32)
    return Strings(tuple(distinct), positions, frame["id"].to_numpy())
