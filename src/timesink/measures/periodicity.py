"""Steps of a trace without marks: a kernel that comes back at a steady distance, with alike kernels between.

A token is a kernel's name and grid. In a loop every token occurs a whole multiple of the number of steps, give or take
the step cut off at each end of the window; the largest such number is the step count (layers inside a step occur more
often, but not every token then fits). The anchor is the token of that count whose distances, counted in kernels, vary
least. Neighbouring segments must hold nearly the same kernels, else there is no period. (After FALCON, arXiv
2410.12588, which asks the same of the sequence of communication calls.)
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

Counts = npt.NDArray[np.int64]

FITTING_SHARE: Final = 0.9  # of kernels whose token count must fit the step count
ALIKE: Final = 0.95  # median similarity of neighbouring segments, FALCON's limit on its auto-correlation
REPEATS: Final = 3


def anchors(kernels: pl.DataFrame) -> Counts:
    """Row numbers of `kernels` (name, grid_x, grid_y, grid_z; one stream, in order) that begin a period; maybe none."""
    tokens = _tokens(kernels)
    if tokens.size < 2 * REPEATS:
        return np.empty(0, np.int64)
    counts = np.bincount(tokens)
    for period_count in _step_counts(counts):
        best = _steadiest(tokens, np.flatnonzero(counts == period_count))
        if _alike(tokens, best) >= ALIKE:
            return best
    return np.empty(0, np.int64)


def _tokens(kernels: pl.DataFrame) -> Counts:
    token = pl.struct("name", "grid_x", "grid_y", "grid_z").rank("dense") - 1
    frame = kernels.select(pl.col("name").to_physical(), "grid_x", "grid_y", "grid_z")
    return frame.select(token.cast(pl.Int64)).to_series().to_numpy()


def _step_counts(counts: Counts) -> list[int]:
    """Token counts that could be the number of steps, most steps first."""
    candidates = np.unique(counts[counts >= REPEATS])[::-1]
    weight = counts.sum()
    fitting = []
    for candidate in candidates:
        times = np.rint(counts / candidate)
        fits = (times >= 1) & (np.abs(counts - times * candidate) <= times)
        if counts[fits].sum() >= FITTING_SHARE * weight:
            fitting.append(int(candidate))
    return fitting


def _steadiest(tokens: Counts, candidates: Counts) -> Counts:
    """Positions of the candidate token whose distances vary least; the earliest one of equals."""
    best, best_variation = np.empty(0, np.int64), np.inf
    for token in candidates:
        positions = np.flatnonzero(tokens == token)
        distances = np.diff(positions)
        variation = float(distances.std() / distances.mean())
        if variation < best_variation or (variation == best_variation and positions[0] < best[0]):
            best, best_variation = positions, variation
    return best


def _alike(tokens: Counts, positions: Counts) -> float:
    """Median over neighbouring segments of 2 * common tokens / all tokens, tokens counted with their repeats."""
    segment = np.searchsorted(positions, np.arange(tokens.size), side="right") - 1
    inside = (segment >= 0) & (segment < positions.size - 1)
    if positions.size < REPEATS:
        return 0.0
    width = int(tokens.max()) + 1
    cells, held = np.unique(segment[inside] * width + tokens[inside], return_counts=True)
    following = np.searchsorted(cells, cells + width)
    has_next = following < cells.size
    has_next[has_next] = cells[following[has_next]] == cells[has_next] + width
    common = np.bincount(
        cells[has_next] // width, np.minimum(held[has_next], held[following[has_next]]), minlength=positions.size - 1
    )[:-1]
    sizes = np.bincount(segment[inside], minlength=positions.size - 1)
    return float(np.median(2 * common / (sizes[:-1] + sizes[1:])))
