"""Programs whose CPU and GPU use the same memory in turn: no plan takes their waits away. Where nothing moves in most
steps, or only copies between memories of their own, the waits may go. What the CPU reads behind the last kernel is said
first, where it is most of the time; a kernel may wait before its pages and once behind the last.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.gate.programs import Program
from tests.gate.test_siblings import steps

from timesink import read
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan.ladder import plan
from timesink.fixes.replays import waits_that_may_go
from timesink.measures.timeline.copies import awaited_pages

Moves = Callable[[Program, int], None]


def pages(way: str) -> Moves:
    return lambda program, _: program.copy(way, 1 << 20, 50, memory="Managed")


def asked(call: str) -> Moves:
    return lambda program, _: program.call(call)


def first_only(moves: Moves) -> Moves:
    """In the first three of eight steps: what was set up moved then."""
    return lambda program, number: moves(program, number) if number < 3 else None


def two_of_three(moves: Moves) -> Moves:
    return lambda program, number: moves(program, number) if number % 3 else None


def looped(moves: Moves, gpu: str = "NVIDIA A100-SXM4-80GB", wait: str = "cudaDeviceSynchronize") -> Program:
    """A kernel, a wait, and work of the CPU, in each of eight steps."""
    program, number = Program(gpu), iter(range(8))

    def step() -> None:
        moves(program, next(number))
        program.launch("add(int*)", 2000)
        program.wait(wait)
        program.pause(900)

    return steps(program, step)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profiler", "moves", "wait"),
    [
        ("nsys", pages("pages in"), "cudaDeviceSynchronize"),
        ("nsys", pages("pages out"), "cudaStreamSynchronize"),
        ("nsys", two_of_three(pages("pages in")), "cuCtxSynchronize"),
        ("nsys", asked("cudaMemPrefetchAsync"), "cudaDeviceSynchronize"),
        ("nsys", asked("cuMemPrefetchAsync_v2"), "cuStreamSynchronize"),
        ("kineto", asked("hipMemPrefetchAsync"), "hipDeviceSynchronize"),
        ("kineto", pages("HtoD"), "cudaDeviceSynchronize"),
        ("kineto", two_of_three(pages("DtoH")), "hipStreamSynchronize"),
    ],
)
def test_waits_for_memory_that_both_use_stay(profiler: str, moves: Moves, wait: str, tmp_path: Path) -> None:
    trace = read(getattr(looped(moves, wait=wait), profiler)(tmp_path), cache=False)
    assert waits_that_may_go(trace) == ()
    made = plan(trace)
    assert "remove_sync" not in made.singles or not made.singles["remove_sync"].value
    assert "host_python" not in made.singles, "to sample what the CPU does is no change"


@pytest.mark.parametrize(
    ("profiler", "moves"),
    [
        ("nsys", first_only(pages("pages in"))),
        ("kineto", first_only(asked("hipMemPrefetchAsync"))),
        ("nsys", lambda program, _: program.copy("HtoD", 1 << 20, 50)),
        ("kineto", lambda program, _: program.copy("DtoH", 1 << 20, 50, memory="Pageable")),
        ("kineto", lambda *_: None),
    ],
)
def test_other_waits_may_go(profiler: str, moves: Moves, tmp_path: Path) -> None:
    trace = read(getattr(looped(moves), profiler)(tmp_path), cache=False)
    assert len(waits_that_may_go(trace)) == 1


def read_by_the_cpu(kernel_us: int, sent: int, pages: int, apart_us: int, last_us: int = 0) -> Program:
    """Data that is sent, a kernel, and so many pages that the CPU reads; maybe another kernel."""
    program = Program()
    for _ in range(sent):
        program.copy("HtoD", 1 << 20, 500)
    program.launch("add(int*)", kernel_us)
    program.wait()
    for number in range(pages):
        program.page(program.now + apart_us * (number + 1), 10, way="pages out")
    program.pause((pages + 1) * apart_us)
    if last_us:
        program.launch("last(int*)", last_us)
        program.wait()
    return program


@pytest.mark.parametrize(
    ("does", "share"),
    [
        ((500, 4, 40, 400), "84.3 %"),
        ((500, 0, 40, 400), "94.5 %"),
        ((5_000, 1, 30, 300), "60.0 %"),
        ((2_000, 2, 4, 2_000), "72.4 %"),
        ((2_000, 2, 40, 400), "82.1 %"),
        ((500, 4, 40, 400, 300), None),  # the next kernel waits for the CPU
        ((9_000, 2, 10, 300), None),  # a fifth of the time
        ((9_000, 2, 0, 300), None),
    ],
)
def test_what_the_cpu_reads_behind_the_last_kernel_is_said(
    does: tuple[int, ...], share: str | None, tmp_path: Path
) -> None:
    trace = read(read_by_the_cpu(*does).nsys(tmp_path), cache=False)
    told = diagnose(trace)
    said = f"In the last {share} of the window the CPU only reads results"
    assert said in told.statement if share else "the CPU only reads results" not in told.statement
    assert not share or not any("the GPU waits for nothing" in note.message for note in told.notes)


@pytest.mark.parametrize(
    ("kernel_us", "pages", "waited_us"),
    [
        (900, ((150, 10), (180, 10), (800, 10)), 150 + 20 + 200 + 50),
        (900, ((150, 10),), 150 + 50),
        (470, ((400, 4), (436, 4)), 400 + 32 + 30),
        (2_000, ((1_000, 10), (1_500, 300)), 450 + 200 + 50),
        (60, ((20, 10),), 20 + 30),
        (900, ((700, 200),), 450),  # to its end
    ],
)
def test_a_kernel_may_wait_before_its_pages_and_once_behind_the_last(
    kernel_us: float, pages: tuple[tuple[float, float], ...], waited_us: float, tmp_path: Path
) -> None:
    """It is the first to touch some page, of its results, to which nothing moves."""
    program = Program()
    program.launch("add(int*)", kernel_us)
    begun = program.work[-1]["at"]
    for at, us in pages:
        program.page(begun + at, us)
    program.pause(kernel_us + 500)
    program.launch("last(int*)", 100)
    program.wait()
    trace = read(program.nsys(tmp_path), cache=False)
    assert awaited_pages(trace, (0, 0)).total_ns == pytest.approx(1_000 * waited_us, abs=50)
