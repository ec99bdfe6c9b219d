"""Autograd's work belongs to the range that waits for it, and is known to be caused by the range of its forward."""

from pathlib import Path

import polars as pl
import pytest
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in
from tests.profiles import swept
from tests.tables import trace_of

from timesink.knowledge.ranges import BACKWARD_PASS
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.autograd import backward_calls
from timesink.measures.timeline.host_times import range_times
from timesink.model.arrays import BoolArray
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.readers import read

CAPTURES = Path(__file__).resolve().parents[3] / "benchmarks" / "faults" / "captures"
SAMPLE = [CAPTURES / f"{name}.nsys.tar.xz" for name in ("printed_loss", "sgd_one_by_one", "compiled_gpt_training")]
BOTH = sorted(path for path in CAPTURES.glob("*.nsys.tar.xz") if Path(str(path).replace(".nsys.", ".torch.")).is_file())
POINTS = 0.01
TWO_LAYERS = """
| ranges | name     | thread | start_us | end_us |
| s      | step     |      1 |        0 |   1000 |
| f      | forward  |      1 |        0 |    100 |
| l1     | layer 1  |      1 |       10 |     40 |
| l2     | layer 2  |      1 |       50 |     90 |
| b      | backward |      1 |      200 |    500 |

| host_ops | name            | thread | start_us | end_us | sequence_number | forward_thread |
| outer    | aten::linear    |      1 |       12 |     30 |               7 |              0 |
| maker 1  | aten::addmm     |      1 |       14 |     28 |               7 |              0 |
| maker 2  | aten::relu      |      1 |       60 |     70 |               8 |              0 |
| back 2   | ReluBackward0   |      2 |      210 |    240 |               8 |              1 |
| back 1   | AddmmBackward0  |      2 |      250 |    290 |               7 |              1 |
| inside   | aten::mm        |      2 |      252 |    280 |                 |                |

| api_calls | name             | correlation | thread | start_us | end_us |
| c1        | cudaLaunchKernel |           1 |      1 |       15 |     16 |
| c2        | cudaLaunchKernel |           2 |      1 |       61 |     62 |
| c3        | cudaLaunchKernel |           3 |      2 |      212 |    213 |
| c4        | cudaLaunchKernel |           4 |      2 |      253 |    254 |
| other     | cudaLaunchKernel |           5 |      3 |      300 |    301 |

| device_ops | name | correlation | start_us | end_us |
| k1         | gemm |           1 |       20 |     50 |
| k2         | relu |           2 |       70 |     75 |
| k3         | relu |           3 |      220 |    226 |
| k4         | gemm |           4 |      260 |    330 |
| k5         | copy |           5 |      400 |    450 |
"""


def test_a_start_end_range_takes_what_its_thread_waits_for() -> None:
    times = range_times(trace_of(_crossing_step()))
    assert dict(times.select("name", "op_count").rows())["step"] == 4


def _crossing_step() -> str:
    """The same with a step that is no push/pop range."""
    lines = TWO_LAYERS.splitlines()
    kinds = {"ranges": "kind     ", "s": "start_end"}
    changed = []
    for number, line in enumerate(lines):
        label = line.split("|")[1].strip() if "|" in line else ""
        changed.append(f"{line} {kinds.get(label, 'push_pop ')} |" if number < 7 and label else line)
    return "\n".join(changed)


def _work(trace: Trace) -> tuple[pl.DataFrame, BoolArray]:
    """GPU work whose launch is known, and what of it autograd's operators launched. Copies through pageable memory are
    left out: how long they take differs from run to run."""
    call, ops = launch_links(trace).call, trace[DEVICE_OPS]
    pageable = ((ops["src_memory"] == "pageable") | (ops["dst_memory"] == "pageable")).fill_null(False)
    known = (call >= 0) & ~pageable.to_numpy()
    return ops.filter(pl.Series(known)), backward_calls(trace)[call[known]]


def by_sequence(trace: Trace) -> float:
    """Share of the GPU's busy time that operators with a forward one launched."""
    work, of_autograd = _work(trace)
    return Intervals.of(work.filter(pl.Series(of_autograd))).total_ns / max(Intervals.of(work).total_ns, 1)


def by_range(trace: Trace) -> float | None:
    """Share of the ranges called backward; None where there is none."""
    times = range_times(trace)
    backward = times.filter(matches(times["name"], BACKWARD_PASS))
    busy_ns = Intervals.of(_work(trace)[0]).total_ns
    return backward["device_ns"].sum() / max(busy_ns, 1) if backward.height else None


def check(archive: Path, folder: Path) -> int:
    """Of each program that trained under both profilers: the range's share against that by sequence numbers."""
    for path in (archive, archive.with_name(archive.name.replace(".nsys.", ".torch."))):
        unpacked(path, folder)
    compared = 0
    for capture, paths in captures_in(folder).items():
        reports, traces = ([path for path in paths if path.suffix == suffix] for suffix in (".sqlite", ".json"))
        share = by_range(read(reports[0], cache=False)) if len(reports) == len(traces) == 1 else None
        if share is not None:
            compared += 1
            assert share == pytest.approx(by_sequence(read(traces[0], cache=False)), abs=POINTS, rel=0), capture
    return compared


@pytest.mark.parametrize("archive", SAMPLE, ids=lambda path: path.name)
def test_the_range_backward_has_the_share_that_sequence_numbers_give(archive: Path, tmp_path: Path) -> None:
    assert check(archive, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("archive", swept(BOTH), ids=lambda path: path.name)
def test_it_has_in_every_capture(archive: Path, tmp_path: Path) -> None:
    check(archive, tmp_path)
