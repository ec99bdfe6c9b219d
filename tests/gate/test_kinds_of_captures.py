"""Kinds of sentences that public captures showed to be false, each in several shapes that no capture here has."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.gate.programs import Program
from tests.gate.test_kinds_of_hosts import SGEMM, of_rule

from timesink import diagnose, read
from timesink.cli.app import run
from timesink.diagnosis.plan.ladder import plan
from timesink.diagnosis.verdicts import Bottleneck, Diagnosis, Undecided
from timesink.model.trace import Trace


def recorded(program: Program, profiler: str, folder: Path) -> Trace:
    return read(getattr(program, profiler)(folder), cache=False)


def noted(found: Diagnosis, words: str) -> str:
    return next((note.message for note in found.notes if words in note.message), "")


@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
@pytest.mark.parametrize(
    ("call", "load_us"),
    [
        ("cuLibraryLoadData", 1400),
        ("cuLibraryLoadFromFile", 2600),
        ("cudaLibraryLoadData", 900),
        ("hipLibraryLoadData", 4000),
        ("cuLibraryLoadData_v12000", 700),
    ],
)
def test_to_load_kernels_is_the_start_and_takes_no_memory(
    call: str, load_us: float, profiler: str, tmp_path: Path
) -> None:
    """A library of kernels was memory that is allocated or freed: most of a window of 5 ms."""
    program = Program(gpu="NVIDIA GeForce RTX 2060")
    program.copy("HtoD", 4096, 40)
    program.pause(300)
    program.call(call, load_us)
    for number in range(12):
        program.call("cudaMalloc", 20)
        program.launch(f"kernel_{number}(unsigned long*)", 60.0 + 11 * number)
    program.wait()
    found = diagnose(recorded(program, profiler, tmp_path))
    assert all(call not in finding.message for _, finding in found.findings)
    assert call in noted(found, "start-up, which happens once") or f"happens once: {call} keeps" in found.statement


@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
@pytest.mark.parametrize(
    ("launch", "first_us"),
    [
        ("cudaLaunchKernel", 575),
        ("cudaLaunchKernelExC", 230),
        ("cuLaunchKernel", 1800),
        ("hipLaunchKernel", 900),
        ("cudaLaunchCooperativeKernel", 150),
    ],
)
def test_a_long_first_launch_is_told_on_the_screen(
    launch: str, first_us: float, profiler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The dearest cause of a window was told with -v only, and as what no rule's limit lets pass."""
    program = Program()
    program.copy("HtoD", 3 << 20, 535, memory="Pageable")
    program.pause(540)
    program.call_us = first_us
    program.launch("add(int*)", 3, call=launch)
    program.call_us = 5.0
    for _ in range(12):
        program.launch("add(int*)", 3, call=launch)
    program.wait()
    assert run(["diagnose", str(getattr(program, profiler)(tmp_path))]) == 0
    said = " ".join(capsys.readouterr().out.split())
    share = re.search(
        r"([\d.]+) % of the (?:window|[\d.]+ [a-z]+ capture) is start-up, which happens once: (\w+) keeps the GPU", said
    )
    assert share is not None and float(share[1]) >= 5 and share[2] == launch
    assert "no rule found anything" not in said


@pytest.mark.parametrize(
    ("names", "starts"),
    [
        (["python"], "python train.py"),
        (["python3.13", "[NSys]"], "python train.py"),
        (["[NSys]", "torchrun"], "python train.py"),
        (["ipython3"], "python train.py"),
        (["softmax", "cuda-EvtHandlr"], "./program"),
        (["pythonic_tool"], "./program"),
    ],
)
def test_a_program_is_started_as_its_threads_say(
    names: list[str], starts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program of Python that launched nothing was started as ./program, and nsys had lost what it did."""
    program = Program(gpu="NVIDIA RTX A5000")
    program.call("cudaGetDeviceProperties", 1)
    assert run(["diagnose", str(program.nsys(tmp_path, threads=names))]) == 2
    said = capsys.readouterr().err
    assert "none of which launches or copies" in said and "find out why" not in said
    assert f"record the part of the run that launches work: timesink capture nsys -- {starts}" in said


def paged(gap_us: float, page_us: float, kernel: str, count: int = 40) -> Callable[[Program], float]:
    """A kernel that asks for pages one after another: the time that it may wait for them, and behind the last for one
    that nothing moves to."""
    first_us = 10.0

    def work(program: Program) -> float:
        program.launch(kernel, count * (page_us + gap_us) + 30)
        begun = program.work[-1]["at"] + first_us
        for number in range(count):
            program.page(begun + number * (page_us + gap_us), page_us)
        program.wait()
        return first_us + count * page_us + (count - 1) * min(gap_us, 200.0) + min(20 + gap_us, 50.0)

    return work


@pytest.mark.parametrize(
    "work",
    [
        paged(2.75, 3.0, "add(int, float*, float*)"),
        paged(9.0, 3.0, "saxpy(float*, float*)"),
        paged(20.0, 2.0, "stencil(double*)", 25),
        paged(5.0, 30.0, "reduce(float*)", 12),
        paged(60.0, 8.0, "gather(int*)", 10),
        paged(900.0, 30.0, "add(int, float*, float*)"),
    ],
)
def test_a_kernel_may_wait_for_each_page_as_long_as_a_fault_takes(
    work: Callable[[Program], float], tmp_path: Path
) -> None:
    """What a prefetch wins at most was the time in which pages move: each is asked for before, and the kernel waits."""
    program = Program()
    program.launch("init(float*)", 20)
    asked_us = work(program)
    program.launch("check(float*)", 20)
    program.wait()
    moved = of_rule(diagnose(recorded(program, "nsys", tmp_path)), "CPY101")
    assert moved is not None and moved.recoverable is not None
    assert moved.recoverable.most == pytest.approx(asked_us / 1000, rel=0.02)
    assert "and the waits before them" in moved.message


def waits_of(wait: str, copy: str | None, *, blocking: bool = False) -> Callable[[Program], None]:
    def step(program: Program) -> None:
        program.launch(SGEMM, 60)
        program.pause(20)
        if copy is not None:
            program.copy(copy, 4000, 3, call="cudaMemcpy" if blocking else "cudaMemcpyAsync", blocking=blocking)
        program.wait(wait)
        program.pause(60)

    return step


@pytest.mark.slow
@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
@pytest.mark.parametrize(
    ("step", "is_read"),
    [
        (waits_of("cudaStreamSynchronize", "HtoD"), False),
        (waits_of("cuStreamSynchronize", None), False),
        (waits_of("hipStreamSynchronize", "DtoD"), False),
        (waits_of("cudaEventSynchronize", None), False),
        (waits_of("cuEventSynchronize", "HtoD"), False),
        (waits_of("cudaStreamSynchronize", "DtoH"), True),
        (waits_of("cuStreamSynchronize", "DtoH"), True),
        (waits_of("hipStreamSynchronize", "DtoH"), True),
        (waits_of("cudaEventSynchronize", "DtoH"), True),
    ],
)
def test_only_waits_behind_a_copy_back_read_values(
    step: Callable[[Program], None], is_read: bool, profiler: str, tmp_path: Path
) -> None:
    """One copy back at the end of a program made each of its thousand waits one that reads values."""
    program = Program(gpu="Tesla V100-SXM2-32GB", call_us=8.0)
    for _ in range(60):
        step(program)
    program.copy("DtoH", 1 << 20, 50)
    program.wait()
    waits = of_rule(diagnose(recorded(program, profiler, tmp_path)), "IDL102")
    assert waits is not None
    assert waits.advice.startswith(
        "Read values" if is_read else "Remove the synchronization where nothing reads its result"
    )


@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
@pytest.mark.parametrize(
    ("streams", "us", "taken_us", "wait"),
    [
        (4, 900, 250, "cudaDeviceSynchronize"),
        (8, 2000, 250, "cuCtxSynchronize"),
        (24, 600, 40, "cudaDeviceSynchronize"),
        (3, 700, 250, "cuCtxSynchronize"),
        (12, 800, 250, "hipDeviceSynchronize"),
    ],
)
def test_kernels_that_fill_the_gpu_share_it(
    streams: int, us: float, taken_us: float, wait: str, profiler: str, tmp_path: Path
) -> None:
    """Kernels of 4 ms, each on a stream of its own, were to run at once in a graph: 4.08 ms became 159 us."""
    program = Program(gpu="Tesla T4")
    for number in range(24):
        stream = 20 + number % streams
        with program.range(f"ProfilerStep#{number}"):
            for _ in range(4):
                program.call("cudaMallocAsync", taken_us)
                program.copy("HtoD", 50_000, 12, memory="Pageable", stream=stream)
            program.launch("set_scheduled_kernel(int const*)", us, stream=stream)
            program.wait("cudaStreamSynchronize")
            program.wait(wait)
    made = plan(recorded(program, profiler, tmp_path))
    assert made.rungs
    assert all(rung.after.value >= 0.98 * us / 1000 for rung in made.rungs)


@pytest.mark.slow
@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
@pytest.mark.parametrize("copies_us", [[40.0], [15.0, 15.0], [8.0] * 6, [120.0], [60.0, 5.0]])
def test_copies_within_the_gpu_have_a_line(copies_us: list[float], profiler: str, tmp_path: Path) -> None:
    """Exposed copies of 13 % of a step, from the GPU to itself, were in the bar alone."""
    program = Program(call_us=2.0)
    for _ in range(40):
        program.launch(SGEMM, 200)
        for us in copies_us:
            program.copy("DtoD", int(us * 400_000), us)
    found = diagnose(recorded(program, profiler, tmp_path))
    share = sum(copies_us) / (200 + sum(copies_us))
    told = re.search(r"([\d.]+) % of the \w+ is copies within GPU memory", noted(found, "within GPU"))
    assert told is not None and float(told[1]) == pytest.approx(100 * share, rel=0.1)


@pytest.mark.parametrize(
    ("gap_us", "call"),
    [
        (900, "cudaLaunchKernel"),
        (2000, "cuLaunchKernel"),
        (700, "hipLaunchKernel"),
        (5000, "cudaLaunchKernelExC"),
        (1200, "cudaLaunchKernel_v7000"),
    ],
)
def test_work_that_starts_late_once_tells_nothing_of_the_gpu_meanwhile(
    gap_us: float, call: str, tmp_path: Path
) -> None:
    """What was launched before the recording may run unrecorded: the GPU was called idle."""
    program = Program()
    for number in range(30):
        program.launch(f"{SGEMM}_{number}", 40.0 + number, call=call, late_us=gap_us if number == 9 else None)
    program.wait()
    found = diagnose(recorded(program, "kineto", tmp_path))
    said = next(ruling.verdict for ruling in found.rulings if ruling.card.name == "late-start")
    assert isinstance(said, Undecided)
    assert said.why.startswith("GPU 0 starts ") and "late once" in said.why


@pytest.mark.parametrize("pages", [3, 40, 200])
@pytest.mark.parametrize("kernels", [1, 2])
def test_what_the_cpu_reads_after_the_last_kernel_is_no_loss(pages: int, kernels: int, tmp_path: Path) -> None:
    """Gaps before pages that the CPU reads when the GPU has nothing left to do led the answer."""
    program = Program(gpu="NVIDIA A100-SXM4-40GB")
    for _ in range(kernels):
        program.launch("add(int*)", 300)
        program.wait()
    done = program.now
    for number in range(pages):
        program.page(done + 400 * (number + 1), 10, way="pages out")
    program.now = done + 400 * (pages + 2)
    found = diagnose(recorded(program, "nsys", tmp_path))
    moved = of_rule(found, "CPY101")
    assert moved is None or (moved.recoverable and moved.recoverable.most <= 1.02 * pages * 10 / 1000)
    assert found.bottleneck is not Bottleneck.HOST_PYTHON


@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
@pytest.mark.parametrize(
    ("rounds", "us", "copy_us"),
    [(50, 4200, 330_000), (30, 900, 40_000), (80, 300, 90_000), (20, 7000, 200_000), (200, 50, 15_000)],
)
def test_a_short_loop_between_long_copies_is_not_all_of_a_program(
    rounds: int, us: float, copy_us: float, profiler: str, tmp_path: Path
) -> None:
    """A loop of two fifths of what the GPU ran was the whole program: no bottleneck, while copies took the rest."""
    program = Program(gpu="Tesla T4", call_us=4.0)
    program.copy("HtoD", 1 << 30, copy_us / 2, blocking=True)
    for _ in range(rounds):
        program.launch("nvkernel_solve_F1L210_2", us)
    program.copy("DtoH", 1 << 29, copy_us / 2, blocking=True)
    found = diagnose(recorded(program, profiler, tmp_path))
    assert found.bottleneck is not Bottleneck.NONE


@pytest.mark.parametrize("threads", [[], ["python3"]])
@pytest.mark.parametrize(("launches", "first_us"), [(21, 109_000), (12, 3_000), (40, 20_000), (5, 900), (9, 50_000)])
def test_of_lost_kernels_nobody_says_that_the_gpu_waited(
    launches: int, first_us: float, threads: list[str], tmp_path: Path
) -> None:
    """Kernels had no record, and their first launch was said to keep the GPU waiting for all of the window."""
    program = Program(gpu="NVIDIA GeForce RTX 4090 D")
    program.copy("HtoD", 1 << 22, 700, memory="Pageable")
    program.wait()
    program.call("cudaLaunchKernel", first_us)
    for _ in range(launches - 1):
        program.call("cudaLaunchKernel", 4)
    program.copy("DtoH", 1 << 22, 1500, memory="Pageable", blocking=True)
    found = diagnose(read(program.nsys(tmp_path, threads=threads), cache=False))
    assert found.bottleneck is Bottleneck.UNDECIDED
    assert f"the file lacks the GPU's side of {launches} of {launches + 2} launches and copies" in found.statement
    assert "keeps the GPU waiting" not in " ".join([found.statement, *(note.message for note in found.notes)])
    assert found.statement.endswith(f"timesink capture nsys -- {'python train.py' if threads else './program'}.")
