"""Programs whose CPU and GPU use the same memory in turn: no plan takes their waits away. Where nothing moves in most
steps, or only copies between memories of their own, the waits may go."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.gate.programs import Program
from tests.gate.test_siblings import steps

from timesink import read
from timesink.diagnosis.plan.ladder import plan
from timesink.fixes.replays import waits_that_may_go

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
