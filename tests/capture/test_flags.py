"""Command lines of nsys and ncu follow what the installed version's own help names."""

import re
from pathlib import Path

import pytest
from tests.capture.stand_ins import NCU_HELP, NSYS_HELP

from timesink.capture.errors import CaptureError
from timesink.capture.profilers import (
    NO_COMMUNICATION,
    RULE_SECTIONS,
    NcuOptions,
    NsysOptions,
)
from timesink.capture.tools import Tool

PROGRAM = ["python", "a b.py"]
OUT = Path("/out put")


def tool(name: str, helping: str) -> Tool:
    return Tool(name, Path(f"/bin/{name}"), (2025, 3), frozenset(re.findall(r"--[\w-]+", helping)), helping)


def test_nsys_leaves_symbols_and_samples_out_and_opens_by_range() -> None:
    argv = NsysOptions().command(tool("nsys", NSYS_HELP), OUT, PROGRAM, by_range=True)
    for word in (
        "--resolve-symbols=false",
        "--sample=none",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
    ):
        assert word in argv
    assert argv[-2:] == PROGRAM
    assert "--output=/out put/report" in argv


def test_cpu_samples_of_a_python_program_come_with_its_own_stacks() -> None:
    known = tool("nsys", f"{NSYS_HELP} --python-sampling= --python-backtrace= --cudabacktrace=")
    stacks = ["--python-sampling=true", "--python-backtrace=cuda", "--cudabacktrace=kernel:0,memory:0,sync:0"]
    options = NsysOptions(cpu_samples=True)

    def asked_of(options: NsysOptions, tool: Tool, program: list[str]) -> list[str]:
        words = options.command(tool, OUT, program, by_range=program is PROGRAM)
        return [word for word in words if word.startswith(("--python", "--cudabacktrace", "--resolve"))]

    # Python's stacks need no symbols of libraries, which are gigabytes of a PyTorch program; a native program's do.
    assert asked_of(options, known, PROGRAM) == [*stacks, "--resolve-symbols=false"]
    assert asked_of(options, known, ["./solver"]) == []
    assert asked_of(NsysOptions(), known, PROGRAM) == ["--resolve-symbols=false"]
    assert asked_of(options, tool("nsys", f"{NSYS_HELP} --python-sampling="), PROGRAM) == [
        stacks[0],
        "--resolve-symbols=false",
    ]
    assert asked_of(options, tool("nsys", NSYS_HELP), PROGRAM) == []


def test_an_old_nsys_gets_only_what_it_knows() -> None:
    old = tool("nsys", "--output --trace --sample --cpuctxsw --stop-on-range-end cuda nvtx osrt")
    argv = NsysOptions().command(old, OUT, PROGRAM, by_range=True)
    assert "--stop-on-range-end=true" in argv
    assert not [word for word in argv if word.startswith(("--resolve", "--cuda-graph", "--capture-range-end"))]
    with pytest.raises(CaptureError, match="no option --gpu-metrics-device "):
        NsysOptions(gpu_metrics=True).command(old, OUT, PROGRAM, by_range=False)


def test_gpu_metrics_are_asked_for_by_either_name() -> None:
    for name in ("--gpu-metrics-device", "--gpu-metrics-devices"):
        known = tool("nsys", f"{name} cuda nvtx osrt")
        argv = NsysOptions(gpu_metrics=True).command(known, OUT, PROGRAM, by_range=False)
        assert f"{name}=all" in argv


def test_a_server_is_recorded_by_time() -> None:
    options = NsysOptions(delay_s=60, duration_s=10)
    argv = options.command(tool("nsys", NSYS_HELP), OUT, PROGRAM, by_range=False)
    assert {"--delay=60", "--duration=10"} <= set(argv)
    assert not [word for word in argv if word.startswith("--capture-range")]


def test_ncu_leaves_clocks_alone_and_collectives_out() -> None:
    argv = NcuOptions().command(tool("ncu", NCU_HELP), OUT, PROGRAM, by_range=True)
    assert argv[argv.index("--clock-control") + 1] == "none"
    assert argv[argv.index("--kernel-name") + 1] == NO_COMMUNICATION
    assert argv[argv.index("--profile-from-start") + 1] == "off"
    assert argv[-2:] == PROGRAM
    pattern = re.compile(NO_COMMUNICATION.removeprefix("regex:"))
    for name, profiled in (("ncclDevKernel_AllReduce", False), ("nvshmem_barrier", False), ("softmax", True)):
        assert bool(pattern.search(name)) is profiled


def test_metrics_go_before_sections_before_the_set() -> None:
    known = tool("ncu", NCU_HELP)
    asked = NcuOptions(metrics=("a.sum", "b.avg")).command(known, OUT, PROGRAM, by_range=False)
    assert asked[asked.index("--metrics") + 1] == "a.sum,b.avg"
    assert "--set" not in asked
    rules = NcuOptions("rules").command(known, OUT, PROGRAM, by_range=False)
    assert [rules[n + 1] for n, word in enumerate(rules) if word == "--section"] == list(RULE_SECTIONS)


def test_one_launch_of_each_shape_is_counted_by_ncu() -> None:
    argv = NcuOptions(launch_count=1, each_shape=True).command(tool("ncu", NCU_HELP), OUT, PROGRAM, by_range=True)
    assert (
        argv[argv.index("--filter-mode") + 1] == "per-launch-config" and argv[argv.index("--launch-count") + 1] == "1"
    )


@pytest.mark.parametrize("wrong", [{"replay": "fast"}, {"clock_control": "high"}, {"cache_control": "warm"}])
def test_a_choice_ncu_does_not_have_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(CaptureError, match="cannot be") as caught:
        NcuOptions(**wrong)  # type: ignore[arg-type]
    assert "choose from" in caught.value.remedy
