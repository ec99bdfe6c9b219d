"""The guides' own capture commands: each flag is printed, reaches the profiler as it was printed, and is not there
without its option; a report that is kept and small is explained."""

import lzma
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.capture.stand_ins import NCU_HELP, NSYS_HELP, tool
from tests.guides.conftest import ROOT

from timesink.cli.app import run
from timesink.cli.parser import loaded
from timesink.knowledge.profiler_texts import SPELLED_HERE

# Both write down what they were called with; then nsys records and exports, and ncu reports, what $HELD names.
NOTED = 'for word in "$@"; do echo "$word" >> "$CALLED"; done\necho >> "$CALLED"\n'
NSYS = (
    NOTED
    + """
for word in "$@"; do case $word in --output=*) out=${word#--output=};; esac; done
if [ "$1" = export ]; then cp "$HELD" "$7"; else head -c 182000 /dev/zero > "$out.nsys-rep"; fi
"""
)
NCU = (
    NOTED
    + """
out=""; before=""
for word in "$@"; do [ "$before" = --export ] && out=$word; before=$word; done
case $out in *.ncu-rep) ;; *) out=$out.ncu-rep;; esac
cp "$HELD" "$out"
"""
)
WHOLE = "--whole --unprofiled none"
# What the guides type, as options here; flags that the profiler must be given; the option without which it is not.
COMMANDS = (
    ("nsys", f"{WHOLE}", "--trace=cuda,nvtx,osrt", ""),
    ("nsys", f"{WHOLE} --trace cuda,nvtx", "--trace=cuda,nvtx", "--trace cuda,nvtx"),
    ("nsys", f"{WHOLE} --trace cuda,nvtx,osrt,nccl", "--trace=cuda,nvtx,osrt,nccl", "--trace cuda,nvtx,osrt,nccl"),
    ("nsys", f"{WHOLE} --gpu-metrics", "--gpu-metrics-device=all", "--gpu-metrics"),
    ("nsys", "--unprofiled none --delay 5 --duration 10", "--delay=5 --duration=10", "--delay 5 --duration 10"),
    ("ncu", f"{WHOLE}", "--target-processes all", ""),
    ("ncu", f"{WHOLE} --set full", "--set full", "--set full"),
    ("ncu", f"{WHOLE} --set roofline", "--set roofline", "--set roofline"),
    ("ncu", f"{WHOLE} --kernels .*gemm.*", "--kernel-name regex:.*gemm.*", "--kernels .*gemm.*"),
    *(("ncu", f"{WHOLE} --launch-count {count}", f"--launch-count {count}", f"--launch-count {count}")
      for count in (1, 3, 5, 10)),
    ("ncu", f"{WHOLE} --launch-skip 20", "--launch-skip 20", "--launch-skip 20"),
    ("ncu", f"{WHOLE} --launch-skip 50", "--launch-skip 50", "--launch-skip 50"),
    ("ncu", f"{WHOLE} --replay application", "--replay-mode application", "--replay application"),
    ("ncu", f"{WHOLE} --metrics dram__bytes_read.sum", "--metrics dram__bytes_read.sum",
     "--metrics dram__bytes_read.sum"),
)  # fmt: skip


Called = Callable[[str, str], str]


@pytest.fixture
def called(hour: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Called:
    """What a profiler was called with by a capture with these options: stand-ins hand over captures of an H100."""
    held = {"nsys": hour / "lab_before/report.sqlite", "ncu": tmp_path / "held.ncu-rep"}
    held["ncu"].write_bytes(lzma.decompress((ROOT / "benchmarks/kernels/reports/coalescing.ncu-rep.xz").read_bytes()))
    helps = {"nsys": f"{NSYS_HELP} 'nccl'", "ncu": f"{NCU_HELP} --launch-skip --launch-count --replay-mode"}
    for name, does in (("nsys", NSYS), ("ncu", NCU)):
        (path := tmp_path / name).write_text(tool(f"NVIDIA {name}", helps[name], "2025.3.1", does))
        path.chmod(0o755)
    monkeypatch.setenv("CALLED", str(tmp_path / "called"))
    monkeypatch.chdir(tmp_path)

    def of(name: str, options: str) -> str:
        monkeypatch.setenv("HELD", str(held[name]))
        (tmp_path / "called").unlink(missing_ok=True)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        run(["capture", name, "--tool", f"./{name}", "-q", "-o", "out", *shlex.split(options), "--", "true"])
        return " ".join((tmp_path / "called").read_text().partition("\n\n")[0].split("\n"))

    return of


@pytest.mark.parametrize(("name", "options", "flags", "option"), COMMANDS)
def test_a_flag_of_the_guides_is_printed_and_reaches_the_profiler(
    name: str, options: str, flags: str, option: str,
    called: Called, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    given = called(name, options)
    assert f" {flags} " in f" {given} "
    capsys.readouterr()
    assert run(["capture", name, "--tool", f"./{name}", "--print", *shlex.split(options), "--", "true"]) == 0
    assert f" {flags} " in " ".join(shlex.split(capsys.readouterr().out))
    if option:
        without = options.replace(option, "") if "--delay" not in option else WHOLE
        assert f" {flags} " not in f" {called(name, without)} "


def test_a_small_report_that_is_kept_says_what_it_holds(called: Called, capsys: pytest.CaptureFixture[str]) -> None:
    """The lab takes a report below 0.5 MB for a run that was not profiled; that of eight steps has 182 kB."""
    for keep in (True, False):
        capsys.readouterr()
        called("nsys", f"{WHOLE} {'--keep-report' * keep}")
        said = " ".join(capsys.readouterr().out.split())
        told = "report.nsys-rep is 182 kB and holds 8 steps, 1344 CUDA API calls, 690 kernels" in said
        assert told is keep
        assert ("its size grows with the steps that --steps records" in said) is keep


# What the guides type to the profilers, and what is to be typed here.
OWN_OPTIONS = (
    ("ncu", "--set full --target-processes all", "nothing to type: always all"),
    ("ncu", "--kernel-name rmsnorm_fwd --launch-count 1", "--kernels"),
    ("ncu", "--replay-mode application", "--replay"),
    ("ncu", "--launch-count 3 --csv", "timesink kernels CAPTURE -f csv"),
    ("nsys", "-t cuda,nvtx,osrt", "--trace"),
    ("nsys", "--trace=cuda,nvtx,osrt --sample=cpu", "--cpu-samples"),
    ("nsys", "--trace=cuda,nvtx,osrt --stats=true", "timesink show"),
    ("nsys", "--gpu-metrics-device=all", "--gpu-metrics"),
    ("nsys", "--capture-range=cudaProfilerApi", "nothing to type for steps"),
)


@pytest.mark.parametrize(("name", "options", "here"), OWN_OPTIONS)
def test_an_option_of_the_profiler_is_answered_with_what_is_typed_here(
    name: str, options: str, here: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["capture", name, "--print", *shlex.split(options), "--", "python", "train.py"]) == 2
    said = capsys.readouterr().err
    assert f"of {name}: {here}" in said
    assert run(["diagnose", *shlex.split(options)[-1:], "--nonsense"]) == 2  # as of any other command
    assert "here, for" not in capsys.readouterr().err


def test_what_is_to_be_typed_for_a_profiler_s_option_can_be_typed() -> None:
    commands = loaded("capture").commands
    for name, options in SPELLED_HERE.items():
        known = {word for one in commands[name].params for word in one.opts}
        assert options.keys().isdisjoint(known), name
        assert {here for here in options.values() if here.startswith("--")} <= known, name
