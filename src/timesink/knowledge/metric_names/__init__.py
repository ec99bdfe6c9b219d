"""Names of Nsight Compute metrics: which chip has which, what replaces the wrong ones, what unit a name implies.

A profiler drops unknown names silently: a wrong one costs a run. The table (`names.txt`) holds what real reports of
GA100, GA102 and GH100 contain, and the differences between chips that are known. It is no full list: of a name it does
not hold, nothing is claimed.

Patterns sort metrics by what they count: a unit's time, the reason of a stall, the kind of tensor work; and read how a
limit on a number of a table is written: ``mean(kernels.mean_ns[name~gemm, device=0]) <= 1.05x``.
"""

import difflib
import re
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

from timesink.knowledge.metric_names.patterns import (
    COUNTED,
    NOUN,
    PERCENT,
    SAMPLED_IN,
    STALL,
    SUBMETRICS,
    UNITLESS,
)
from timesink.records import Record

# Compute capability, chip, and its letter in names.txt, oldest first.
CHIPS = {
    "sm_70": ("gv100", "v"),
    "sm_75": ("tu102", "t"),
    "sm_80": ("ga100", "a"),
    "sm_86": ("ga102", "g"),
    "sm_89": ("ad102", "d"),
    "sm_90": ("gh100", "h"),
    "sm_100": ("gb100", "b"),
    "sm_120": ("gb202", "x"),
}


class Standing(StrEnum):
    """What is known of a name on a chip."""

    EXISTS = "exists"
    ABSENT = "absent"
    WRONG = "wrong"
    UNKNOWN = "unknown"


class NameVerdict(Record):
    """A name on a chip: its standing, why, the chips it is known on, and the name to use instead ("" where none is)."""

    name: str
    standing: Standing
    why: str
    known_on: tuple[str, ...] = ()
    instead: str = ""


_ROLLUPS = ("avg", "sum", "min", "max")
_SOLE = ("pct", "ratio", "max_rate")
_DEVICE = "device__attribute_"
_ONE_WORD = 0.75  # two words are one, misspelt, where so much of them agrees
# Wrong names, doubtful ones, and words of other tools, each with what Nsight Compute counts in its place.
_INVENTED: Final = {  # exist on no chip
    "l2__throughput": "lts__throughput",
    "l2cache__hit_rate": "lts__t_sector_hit_rate",
    "ltc__throughput": "lts__throughput",
    "l1tex__t_bytes_equiv_l1sectormiss": "lts__t_sectors_srcunit_tex",
}
_REPLACED: Final = {  # renamed between chips
    "dram__bytes_read": "dram__bytes",
    "dram__bytes_write": "dram__bytes",
    "sm__pipe_tensor_op_hmma_cycles_active": "sm__pipe_tensor_cycles_active",
    "l1tex__lsu_writeback_active_mem_lg": "l1tex__lsu_writeback_active_mem_lgds",
    "l1tex__lsu_writeback_active_mem_lgds": "l1tex__lsu_writeback_active_mem_lg",
    "lts__t_bytes_equiv_l1sectormiss": "lts__t_sectors_srcunit_tex",
    "sm__inst_executed_pipe_fp16": "sm__inst_executed_pipe_fma_type_fp16",
    "sm__inst_executed_pipe_fma_type_fp16": "sm__inst_executed_pipe_fp16",
}
_DOUBTS: Final = {  # what they count instead
    "lts__t_bytes": (
        "counts fabric hops twice on GA100 and GH100: for L2 traffic use l1tex__m_xbar2l1tex_read_bytes and "
        "l1tex__m_l1tex2xbar_write_bytes"
    ),
    "sm__pipe_tensor_op_hmma_cycles_active": (
        "on GH100 it also moves for half2 arithmetic: tensor work is in sm__pipe_tensor_cycles_active"
    ),
    "dram__throughput": "no section collects it: gpu__dram_throughput is in every set",
}
_STALLS_OF_NVPROF: Final = {  # as nvprof called them
    "memory_dependency": "long_scoreboard",
    "exec_dependency": "wait",
    "execution_dependency": "wait",
    "constant_memory_dependency": "imc_miss",
    "memory_throttle": "lg_throttle",
    "pipe_busy": "math_pipe_throttle",
    "inst_fetch": "no_instruction",
    "instruction_fetch": "no_instruction",
    "sync": "barrier",
    "synchronization": "barrier",
    "texture": "tex_throttle",
}
_ELSEWHERE: Final = {
    "pipe_fp32": ("pipe_fma", "no pipe is called fp32: matmuls and sums of fp32 run on the fma pipe"),
    **{
        f"stalled_{word}": (f"stalled_{right}", f"nvprof's word for what Nsight Compute calls {right}")
        for word, right in _STALLS_OF_NVPROF.items()
    },
}


def check_name(name: str, chip: str) -> NameVerdict:
    """What is known of the metric on the chip (``sm_90``). `chip` must be one of `CHIPS`."""
    base, suffix = _parts(name)
    wrong = _find_wrong(name, base, suffix)
    if wrong is not None:
        return wrong
    letter = CHIPS[chip][1]
    present, absent, _ = _table().get(_root(base), ("", "", ""))
    known_on = tuple(sm for sm, (_, its) in CHIPS.items() if its in present)
    if letter in present:
        return NameVerdict(name, Standing.EXISTS, _DOUBTS.get(base, ""), known_on)
    if letter in absent:
        why = f"{CHIPS[chip][0]} has no such counter"
        return NameVerdict(name, Standing.ABSENT, why, known_on, _with(_REPLACED.get(_root(base), ""), suffix))
    if base.startswith(_DEVICE):
        return NameVerdict(name, Standing.EXISTS, "an attribute of the GPU, in every report", tuple(CHIPS))
    if known_on and base.startswith("launch__") and "cluster" not in base:
        return NameVerdict(name, Standing.EXISTS, "describes the launch, which no chip counts", known_on)
    why, instead = (f"not known on {CHIPS[chip][0]}", "") if known_on else _find_meant(base)
    return NameVerdict(name, Standing.UNKNOWN, why, known_on, _with(instead, suffix))


NOT_KNOWN: Final = "n/a: no such metric"
"""What a page shows of a metric that ncu does not have."""

INVOCATIONS: Final = "Invocations"
"""Of a page's summary, which is no metric: of how many launches its figures are the means."""


@cache
def meant_by(name: str) -> str:
    """The metric that is meant by a name that no chip has, or how its unit's begin; "" for one that some chip has, and
    for one that means nothing."""
    base, suffix = _parts(name)
    if _root(base) in _table():
        return ""
    wrong = _find_wrong(name, base, suffix)
    if wrong is not None and wrong.instead:
        return wrong.instead
    meant = _find_meant(base)[1]
    return _with(meant, suffix) if meant else _unit_meant(base)


def _unit_meant(base: str) -> str:
    """How metrics of the unit begin whose name is misspelt; "" where the unit is known, or none is like it."""
    units = {name.partition("__")[0] for name in _table()}
    unit = base.partition("_")[0]
    near = [] if unit in units else difflib.get_close_matches(unit, sorted(units), n=1, cutoff=_ONE_WORD)
    return f"{near[0]}__..." if near else ""


def _find_meant(base: str) -> tuple[str, str]:
    """Why a name is in no table, and the known name that is meant, "" where that cannot be told."""
    for word, (right, why) in _ELSEWHERE.items():
        meant = re.sub(rf"(?<=_){word}(?=_|$)", right, base)
        if meant != base and meant in _table():
            return why, meant
    return "in no report or table timesink knows", _find_misspelt(base)


def _find_misspelt(base: str) -> str:
    """The known name that differs by a slip in one word; "" where words differ by what they mean: `fp32` is no slip for
    `fp64`, nor `memory_dependency` for `membar`; a word of another known name is no slip at all."""
    if base.replace("__", "_") in _by_words():
        return _by_words()[base.replace("__", "_")]
    known = _words().intersection(base.split("_"))
    fitting = [name for name in _table() if known.issubset(name.split("_"))]
    for near in difflib.get_close_matches(base, fitting, n=3, cutoff=0.85):
        left = [word for word in base.split("_") if word[1:] and word not in near.split("_")]
        right = [word for word in near.split("_") if word[1:] and word not in base.split("_")]
        if len(left) == len(right) and all(map(_alike, left, right)):
            return near
    return ""


@cache
def _by_words() -> dict[str, str]:
    """Every known name by itself with single underscores."""
    return {name.replace("__", "_"): name for name in _table()}


@cache
def _words() -> frozenset[str]:
    """Every word of every known name."""
    return frozenset(word for name in _table() for word in name.split("_"))


def _alike(one: str, other: str) -> bool:
    """Whether two words are one word, misspelt."""
    digits = [re.findall(r"\d+", word) for word in (one, other)]
    return digits[0] == digits[1] and difflib.SequenceMatcher(None, one, other).ratio() >= _ONE_WORD


def _find_wrong(name: str, base: str, suffix: str) -> NameVerdict | None:
    stall = STALL.match(base)
    if stall:
        right = f"smsp__average_warps_issue_stalled_{stall.group(1)}_per_issue_active.ratio"
        return NameVerdict(
            name, Standing.WRONG, "exists on no chip (warp is singular before per_warp_active)", (), right
        )
    if _root(base) in _INVENTED:
        return NameVerdict(name, Standing.WRONG, "exists on no chip", (), _with(_INVENTED[_root(base)], suffix))
    if suffix and not _is_suffix(suffix):
        return NameVerdict(name, Standing.WRONG, f"no roll-up or sub-metric is called .{suffix}", (), "")
    return None


def _parts(name: str) -> tuple[str, str]:
    base, _, suffix = SAMPLED_IN.sub("", name.strip().removeprefix("breakdown:")).partition(".")
    return base, suffix


def _root(base: str) -> str:
    """Counters of bytes are the same name with what they are split by: the family decides."""
    for family in ("lts__t_bytes_equiv_l1sectormiss", "l1tex__t_bytes_equiv_l1sectormiss"):
        if base.startswith(family):
            return family
    return base


def _with(base: str, suffix: str) -> str:
    return f"{base}.{suffix}" if base and suffix else base


def _is_suffix(suffix: str) -> bool:
    first, _, rest = suffix.partition(".")
    return suffix in _SOLE or (first in _ROLLUPS and (not rest or bool(SUBMETRICS.match(rest))))


@cache
def _table() -> dict[str, tuple[str, str, str]]:
    """By base name the letters of chips that have it, of chips known not to, and of those whose throughput breakdowns
    list it as a unit."""
    table = {}
    for line in Path(__file__).with_name("names.txt").read_text(encoding="ascii").splitlines():
        name, letters, *units = line.split(" ")
        present, _, absent = letters.partition("-")
        table[name] = (present, absent, *(units or ("",)))
    return table


@cache
def units_of(capability: tuple[int, int] | None) -> tuple[str, ...]:
    """Base names of the units in the chip's throughput breakdowns, as its reports list them; of a chip
    without reports, those of all chips."""
    chip = "" if capability is None else "sm_{}{}".format(*capability)
    letter = CHIPS.get(chip, ("", ""))[1]
    listed = tuple((name, letters) for name, (_, _, letters) in _table().items() if letters)
    of_chip = tuple(name for name, letters in listed if letter and letter in letters)
    return of_chip or tuple(name for name, _ in listed)


def base_unit(metric: str) -> str | None:
    """The unit a report's value of that metric has, as far as its name tells; None where it does not.

    Reports store no units. `.per_second` gives ``/s``, `.per_cycle_*` gives ``/cycle``; cycles per second are ``Hz``.
    """
    base = metric.rpartition(":")[2]
    if PERCENT.search(metric):
        return "%"
    if "time_duration" in base:
        return "ns"
    if base.startswith("launch__"):
        return "bytes" if "_mem_" in base and "limit" not in base else None
    return None if UNITLESS.search(metric) else _counted_unit(base)


def _counted_unit(base: str) -> str | None:
    counted = next((unit for unit, pattern in COUNTED.items() if pattern.search(base.split(".", maxsplit=1)[0])), None)
    if counted is not None and ".per_second" in base:
        return "Hz" if counted == "cycle" else f"{counted}/s"
    if counted is not None and (".per_cycle" in base or base.endswith(".peak_sustained")):
        return f"{counted}/cycle"
    return counted


_PREFIX = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SECONDS = {"nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_PER_TIME = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0, "nsecond": 1e9, "usecond": 1e6, "msecond": 1e3, "second": 1.0}


def normalised(unit: str) -> tuple[str | None, float]:
    """A printed unit as timesink spells it, and the factor from printed values to it.

    Both spellings of ncu are taken: ``Gbyte/second``, ``nsecond``, ``cycle/nsecond`` up to 2024; ``Gbyte/s``, ``ns``,
    ``Ghz`` since 2025. An unknown unit stays as it is, with factor 1.
    """
    if not unit:
        return None, 1.0
    if unit in _SECONDS:
        return "ns", _SECONDS[unit]
    top, _, bottom = unit.partition("/")
    name, factor = _noun(top)
    if not bottom:
        return name, factor
    if bottom in _PER_TIME:
        per_second = factor * _PER_TIME[bottom]
        return ("Hz" if name == "cycle" else f"{name}/s"), per_second
    below, below_factor = _noun(bottom)
    return f"{name}/{below}", factor / below_factor


def _noun(word: str) -> tuple[str, float]:
    found = NOUN.match(word)
    if not found:
        return word, 1.0
    noun = "Hz" if found.group(2).lower() == "hz" else "bytes"
    return noun, _PREFIX[found.group(1)]
