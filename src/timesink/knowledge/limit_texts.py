"""How a limit on a number of a table is written: ``mean(kernels.mean_ns[name~gemm, device=0]) <= 1.05x``."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.pattern import Pattern

LIMIT: Final = Pattern(
    r"^(?P<number>.+?)\s*(?P<sign><=|>=|==|\+-|±|<|>)"
    r"\s*(?P<amount>[-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*(?P<unit>[^\s\d<>=]*)$",
    "a number of a table, and what it keeps to",
    ("dram_pct >= 0.95x", "mean(steps.period_ns) <= 3 ms", "kernels.time_ratio[name=a] +- 2 points"),
    ("dram_pct", "dram_pct = 3", ">= 0.95x", "dram_pct >= 3 ms each"),
)
NUMBER: Final = Pattern(
    r"^(?:(?P<table>[a-z][a-z0-9_]*)\.)?(?P<column>\w[\w.]*)\s*(?:\[(?P<filters>.*)\])?$",
    "a column of a table, and filters of its rows",
    ("dram_pct", "kernels.mean_ns[name~gemm]", "kernels.dram__bytes.sum"),
    ("mean(kernels.mean_ns)", "kernels.mean_ns[name~gemm", ""),
)
FILTER: Final = Pattern(
    r'\s*(\w+)\s*(!~|!=|=|~)\s*(?:"([^"]*)"|([^,"\[\]]+?))\s*(?:,|$)',
    "one filter of rows: column, sign, text",
    ("name~gemm", "device=0,", 'name!~"[12]$, x"'),
    ("name", "name~", "name~[12]", 'name="open'),
)
NCU_METRIC: Final = Pattern(
    r"(?:^|: )[a-z0-9]+__\w+(?:\.[a-z]\w*)*$", "a metric of Nsight Compute, after its kernel or alone",
    ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "gemm: gpu__time_duration.sum"),
    ("tokens/s", "graph breaks"),
)  # fmt: skip
MORE_IS_BETTER: Final = Pattern(
    r"pct_of_peak|throughput|per_second|hit_rate|hit\.pct|warps_active", "metrics of which more is better",
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "dram__bytes.sum.per_second"), "gpu__time_duration.sum",
)  # fmt: skip
