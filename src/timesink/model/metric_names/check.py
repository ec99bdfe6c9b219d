"""Which profiler metrics exist on which chip. A profiler drops unknown names silently: a wrong one costs a run.

The table (`names.txt`) holds what real reports of GA100, GA102 and GH100 contain, and the differences between chips
that are known. It is no full list: of a name it does not hold, nothing is claimed.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files

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


@dataclass(frozen=True, slots=True)
class NameVerdict:
    """A name on a chip: its standing, why, the chips it is known on, and the name to use instead ("" where none is)."""

    name: str
    standing: Standing
    why: str
    known_on: tuple[str, ...] = ()
    instead: str = ""


_ROLLUPS = ("avg", "sum", "min", "max")
_SUBMETRICS = re.compile(
    r"^(per_second|per_cycle_(active|elapsed|in_frame|in_region)|peak_(sustained|burst)(_(active|elapsed|frame|region))?"
    r"(\.per_second)?|pct_of_peak_(sustained|burst)_(active|elapsed|frame|region))$"
)
_SOLE = ("pct", "ratio", "max_rate")
_STALL = re.compile(r"^smsp__warps_issue_stalled_(\w+?)_per_warp_active$")
_INVENTED = {
    "l2__throughput": "lts__throughput",
    "l2cache__hit_rate": "lts__t_sector_hit_rate",
    "ltc__throughput": "lts__throughput",
    "l1tex__t_bytes_equiv_l1sectormiss": "lts__t_sectors_srcunit_tex",
}
_DOUBTS = {
    "lts__t_bytes": "counts fabric hops twice on GA100 and GH100: for L2 traffic use l1tex__m_xbar2l1tex_read_bytes "
    "and l1tex__m_l1tex2xbar_write_bytes",
    "sm__pipe_tensor_op_hmma_cycles_active": "on GH100 it also moves for half2 arithmetic: tensor work is in "
    "sm__pipe_tensor_cycles_active",
    "dram__throughput": "no section collects it: gpu__dram_throughput is in every set",
}
_REPLACED = {
    "dram__bytes_read": "dram__bytes",
    "dram__bytes_write": "dram__bytes",
    "sm__pipe_tensor_op_hmma_cycles_active": "sm__pipe_tensor_cycles_active",
    "l1tex__lsu_writeback_active_mem_lg": "l1tex__lsu_writeback_active_mem_lgds",
    "l1tex__lsu_writeback_active_mem_lgds": "l1tex__lsu_writeback_active_mem_lg",
    "lts__t_bytes_equiv_l1sectormiss": "lts__t_sectors_srcunit_tex",
    "sm__inst_executed_pipe_fp16": "sm__inst_executed_pipe_fma_type_fp16",
    "sm__inst_executed_pipe_fma_type_fp16": "sm__inst_executed_pipe_fp16",
}


def checked(name: str, chip: str) -> NameVerdict:
    """What is known of the metric on the chip (``sm_90``). `chip` must be one of `CHIPS`."""
    base, suffix = _parts(name)
    wrong = _wrong(name, base, suffix)
    if wrong is not None:
        return wrong
    letter = CHIPS[chip][1]
    present, absent = _table().get(_root(base), ("", ""))
    known_on = tuple(sm for sm, (_, its) in CHIPS.items() if its in present)
    if letter in present:
        return NameVerdict(name, Standing.EXISTS, _DOUBTS.get(base, ""), known_on)
    if letter in absent:
        why = f"{CHIPS[chip][0]} has no such counter"
        return NameVerdict(name, Standing.ABSENT, why, known_on, _with(_REPLACED.get(_root(base), ""), suffix))
    near = difflib.get_close_matches(base, _table(), n=1, cutoff=0.85) if not known_on else []
    why = f"not known on {CHIPS[chip][0]}" if known_on else "in no report or table timesink knows"
    return NameVerdict(name, Standing.UNKNOWN, why, known_on, _with(near[0], suffix) if near else "")


def _wrong(name: str, base: str, suffix: str) -> NameVerdict | None:
    stall = _STALL.match(base)
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
    base, _, suffix = name.strip().removeprefix("breakdown:").partition(".")
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
    return suffix in _SOLE or (first in _ROLLUPS and (not rest or bool(_SUBMETRICS.match(rest))))


@cache
def _table() -> dict[str, tuple[str, str]]:
    """Base name to (letters of chips that have it, letters of chips known not to)."""
    text = files("timesink.model.metric_names").joinpath("names.txt").read_text(encoding="ascii")
    table = {}
    for line in text.splitlines():
        name, _, letters = line.partition(" ")
        present, _, absent = letters.partition("-")
        table[name] = (present, absent)
    return table
