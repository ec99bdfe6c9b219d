"""Units: inside the program they are suffixes on names; here they become text for people.

Times are int64 nanoseconds, sizes are bytes, shares are 0 to 1. Decimal prefixes throughout (1 GB = 1e9 bytes), as
NVIDIA's and nccl-tests' bandwidth figures use them.
"""

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
S_PER_MINUTE = 60

# A normal distribution's standard deviation, of its median absolute deviation.
SIGMA_PER_MAD = 1.4826

_TIME_STEPS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "us"))
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_READS_AS_ONE = 0.9995  # of a unit: 999.6 us in three digits would read 1000 us


def time_text(value_ns: float) -> str:
    """A duration with the unit that leaves one to three digits before the point: ``12.3 ms``."""
    return _in_largest(value_ns, _TIME_STEPS) or f"{value_ns:.0f} ns"


def bytes_text(value_bytes: float) -> str:
    """A size in decimal units: ``25.5 GB``."""
    return _in_largest(value_bytes, _PREFIXES, "B") or f"{value_bytes:.0f} B"


def rate_text(value: float, unit: str) -> str:
    """A count per second with a decimal prefix: ``1.98 GHz``, ``627 TFLOP/s``."""
    return _in_largest(value, _PREFIXES, unit) or f"{_three_digits(value)} {unit}"


def share_text(ratio: float) -> str:
    """A share of 0 to 1 as a percentage: ``37.5 %``."""
    return f"{_three_digits(100 * ratio)} %"


def times_text(ratio: float) -> str:
    """A ratio of speeds as a factor, within 2 % of it: ``1.16×``, ``5.6×``, ``42×``."""
    return f"{ratio:.{2 if ratio < 3 else int(ratio < 30)}f}×"


def share_range_text(low: float, high: float) -> str:
    """Two shares as a range: ``64.0 to 92.0 %``; as one where they read the same."""
    one = share_text(low)
    return one if one == share_text(high) else f"{one[:-2]} to {share_text(high)}"


def ms(value_ns: float) -> float:
    """Nanoseconds to milliseconds, for the JSON contract."""
    return value_ns / NS_PER_MS


def _in_largest(value: float, units: tuple[tuple[float, str], ...], of: str = "") -> str:
    """The value in the largest of the units, which descend, that leaves a digit before the point; '' in none."""
    fits = ((size, name) for size, name in units if abs(value) >= _READS_AS_ONE * size)
    return next((f"{_three_digits(value / size)} {name}{of}" for size, name in fits), "")


def _three_digits(value: float) -> str:
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
