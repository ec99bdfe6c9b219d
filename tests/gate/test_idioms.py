"""A fix that only a program of PyTorch can take is offered to such programs alone: in words, in plans, at each door."""

from pathlib import Path

import polars as pl
import pytest
from tests.gate.answers import answers_of
from tests.gate.test_gate import CAPTURES, SAMPLE, captured
from tests.gate.words import IDIOM, told_in_its_idioms
from tests.tables import trace_of

from timesink.diagnosis.plan.candidate import candidates
from timesink.fixes import Fix
from timesink.fixes.table import FIXES, fixes_of
from timesink.knowledge.programs import ProgramKind
from timesink.measures.timeline.known import program_kind
from timesink.model.tables import (
    DEVICE_OPS,
    FRAMES,
    HOST_OPS,
    HOST_STACKS,
    KERNEL_PROFILES,
    MEMORY_EVENTS,
    MEMORY_SEGMENTS,
    RANGES,
    THREADS,
)
from timesink.model.trace import Trace
from timesink.records import replace

OTHERS = [kind for kind in ProgramKind if kind is not ProgramKind.PYTORCH]
OF_PYTORCH = (HOST_OPS, FRAMES, HOST_STACKS, MEMORY_SEGMENTS, MEMORY_EVENTS, THREADS)
SIGN = r"\b(?:at|c10)::|^(?:void )?triton_|^aten::|^ProfilerStep#"


def as_written_without(trace: Trace) -> Trace:
    """The same work of a program that nothing shows to be of PyTorch."""
    tables = {table: frame for table, frame in trace.tables.items() if table not in OF_PYTORCH}
    for table in (DEVICE_OPS, RANGES, KERNEL_PROFILES):
        if table in tables:
            name = pl.col("name").cast(pl.String).str.replace_all(SIGN, "own_")
            tables[table] = tables[table].with_columns(name.cast(tables[table].schema["name"]))
    return replace(trace, tables=tables)


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.name)
def test_a_fix_is_of_pytorch_or_has_words_for_other_programs(fix: Fix) -> None:
    for program in OTHERS:
        (told,) = (one for one in fixes_of(program) if one.name == fix.name) if not fix.of_pytorch else (None,)
        assert told is None or IDIOM.findall(told.title + told.costs) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "tool"), [(program, ("torch", "nsys")[at % 2]) for at, program in enumerate(SAMPLE)]
)
def test_the_same_work_of_another_program_is_told_no_idiom(program: str, tool: str, tmp_path: Path) -> None:
    for name, trace, paths in captured(CAPTURES / f"{program}.{tool}.tar.xz", tmp_path):
        if name.endswith("high.fault"):
            of = answers_of("capture", as_written_without(trace), tuple(Path("capture.json") for _ in paths))
            assert program_kind(of.trace) is not ProgramKind.PYTORCH
            assert list(told_in_its_idioms(of)) == []
            offered = candidates(of.diagnosis, program_kind(of.trace))
            assert [one.fix.name for one in offered if one.fix.of_pytorch] == []


BUSY = """
| kernel_profiles | profile | name       | duration_us | metrics | failed_metrics |
| the launch      |       0 | `{kernel}` | 100         | 8       | 0              |

| kernel_metrics | profile | metric                                                            | value |
| tensor cores   |       0 | `sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed` | 90    |
| DRAM           |       0 | `dram__cycles_active.avg.pct_of_peak_sustained_elapsed`           | 20    |
"""


@pytest.mark.parametrize(
    ("kernel", "is_of_pytorch"),
    [
        ("multiply(__half const*, __half const*, float*)", False),
        ("gemm_fusion_dot_5", False),
        ("matmul_kernel", False),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", False),
        ("nvkernel_main_F1L34_2", False),
        ("triton_tem_fused_mm_0", True),
        ("void at::native::reduce_kernel<512>", True),
    ],
)
def test_other_tiles_are_those_of_the_program_that_launches_the_kernel(kernel: str, is_of_pytorch: bool) -> None:
    of = answers_of("report", trace_of(BUSY.format(kernel=kernel)))
    for text in (of.diagnosis.findings[0][1].advice, of.doors["kernels"], of.doors["json"], of.page):
        assert ("max-autotune" in text) is is_of_pytorch
        assert "cuBLASLt" in text
