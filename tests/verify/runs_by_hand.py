"""Runs with stated mean step times, for tests."""

from timesink.records import replace
from timesink.verify.outcomes import RunRow


def row(mean_s: float, side: str = "before", number: int = 0, **changed: object) -> RunRow:
    plain = RunRow(number, side, mean_s, mean_s, mean_s * 1.1, 200, 5, True, 0.0, check="7")
    return replace(plain, **changed)  # type: ignore[arg-type]


def pairs(*ratios: float, **changed: object) -> list[tuple[RunRow, RunRow]]:
    """One pair per ratio: 10 ms before, 10 ms x ratio after."""
    return [(row(0.01, "before", **changed), row(0.01 * ratio, "after", **changed)) for ratio in ratios]
