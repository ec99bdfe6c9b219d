"""Programs whose pages of unified memory move one by one: kernels that wait for them, and a CPU that reads results."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.gate.programs import Program
from tests.gate.test_kinds_of_captures import noted, recorded
from tests.gate.test_kinds_of_hosts import of_rule

from timesink import diagnose

FEW = {"grid": [16, 1, 1], "block": [256, 1, 1]}


def touching(first_us: float, pages: int, rest_us: float, kernel: str, **facts: list[int]) -> Callable[[Program], None]:
    """A kernel that has to wait before its first page comes, then works on what came."""

    def work(program: Program) -> None:
        length_us = first_us + 6 * pages + rest_us
        program.launch(kernel, length_us, **facts or FEW)
        begun = program.work[-1]["at"] + first_us
        for number in range(pages):
            program.page(begun + 6 * number, 4)
        program.wait()

    return work


@pytest.mark.parametrize(
    "work",
    [
        touching(390.0, 2, 24.0, "vadd(float*)"),
        touching(200.0, 2, 10.0, "add(int, float*, float*)", grid=[1, 1, 1], block=[128, 1, 1]),
        touching(380.0, 1, 60.0, "scale(double*)", grid=[4, 1, 1], block=[1024, 1, 1]),
        touching(300.0, 6, 30.0, "saxpy(float*)"),
        touching(150.0, 3, 5.0, "gather(int*)", grid=[8, 1, 1], block=[64, 1, 1]),
    ],
)
def test_a_kernel_that_waits_for_its_first_page_is_no_small_grid(
    work: Callable[[Program], None], tmp_path: Path
) -> None:
    """A kernel of 469 us that got its first page after 437 had too few blocks: more of them bring no page sooner."""
    program = Program()
    work(program)
    found = diagnose(recorded(program, "nsys", tmp_path))
    assert found.findings[0][0].code == "CPY101", found.statement
    assert "prefetch" in found.findings[0][1].advice.lower()
    few, moved = of_rule(found, "KRN107"), of_rule(found, "CPY101")
    most = few.recoverable.most if few and few.recoverable else 0.0
    assert moved is not None and moved.recoverable is not None and most < moved.recoverable.most / 2


@pytest.mark.parametrize(
    "work",
    [
        touching(10.0, 2, 460.0, "vadd(float*)"),
        touching(5.0, 4, 900.0, "add(int, float*, float*)", grid=[1, 1, 1], block=[128, 1, 1]),
        touching(2000.0, 1, 2000.0, "reduce(double*)", grid=[4, 1, 1], block=[1024, 1, 1]),
    ],
)
def test_one_that_works_long_beside_a_page_is_one(work: Callable[[Program], None], tmp_path: Path) -> None:
    program = Program()
    work(program)
    found = diagnose(recorded(program, "nsys", tmp_path))
    assert found.findings[0][0].code == "KRN107", found.statement


def reading(pages: int, gap_us: float, way: str = "pages out") -> Callable[[Program], None]:
    def work(program: Program) -> None:
        at = max(program.free.values()) + 20
        for number in range(pages):
            program.page(at + number * (gap_us + 5), 5, way=way)
        program.pause(pages * (gap_us + 5))

    return work


READS = [reading(40, 300), reading(8, 900), reading(200, 60), reading(20, 2000), reading(60, 150, "pages in")]


@pytest.mark.parametrize("reads", READS)
def test_what_the_cpu_reads_after_the_last_kernel_is_told_as_that(
    reads: Callable[[Program], None], tmp_path: Path
) -> None:
    """Of three quarters of a window it was said that no rule passes its limit: the GPU had nothing left to do."""
    program = Program()
    program.launch("add(int, float*, float*)", 400, **FEW)
    program.wait()
    reads(program)
    found = diagnose(recorded(program, "nsys", tmp_path))
    said = f"{found.statement} {noted(found, 'page migrations')}"
    assert (
        said.count("after the last kernel") + said.count("the CPU only reads results") == 1 and "no rule" not in said
    ), said


@pytest.mark.parametrize("reads", READS[:3])
def test_what_it_reads_between_kernels_is_not(reads: Callable[[Program], None], tmp_path: Path) -> None:
    program = Program()
    for _ in range(3):
        program.launch("add(int, float*, float*)", 4, **FEW)
        program.wait()
        reads(program)
    program.launch("add(int, float*, float*)", 4, **FEW)
    program.wait()
    found = diagnose(recorded(program, "nsys", tmp_path))
    assert not noted(found, "after the last kernel")
    moved = of_rule(found, "CPY101")
    assert moved is not None and "and the waits before them" in moved.message
