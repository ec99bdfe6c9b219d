"""Parts that need no program: annotations, the manifest, checks of artefacts, process kinds."""

import gc
import gzip
import json
import sqlite3
import sys
import timeit
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timesink
from timesink.capture.agent import is_bystander
from timesink.capture.agent.marks import OneThatCounts
from timesink.capture.agent.recorders import GarbageMarks
from timesink.capture.agent.recording import rank_and_world
from timesink.capture.errors import CaptureError, missing
from timesink.capture.manifest import Capture, check, surroundings
from timesink.capture.processes import Setting, Watch, last_words, run
from timesink.capture.profilers import NcuOptions, Recording
from timesink.capture.running import find_doubts, is_python
from timesink.capture.schedule import AgentPlan, Mode, StepSchedule
from timesink.cli.capture import CaptureRun, find_hottest
from timesink.untrusted.masking import kept_variables, stored_command

DATA = Path(__file__).resolve().parents[1] / "data/capture/compiled"
TRACES = Path(__file__).resolve().parents[2] / "src/timesink/cli/demo/gpt_before.json.xz"  # has kernels


def test_an_idle_annotation_costs_hardly_more_than_a_block_that_does_nothing() -> None:
    """The least of many short rounds, beside each other: other work on the machine only ever adds."""

    class Nothing:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    def plain() -> None:
        with Nothing():
            pass

    def block() -> None:
        with timesink.annotate("idle"):
            pass

    @timesink.annotate("idle")
    def function() -> None:
        pass

    least_s = [min(timeit.repeat(called, number=1000, repeat=200)) for called in (plain, block, function)]
    assert max(least_s) < 4 * least_s[0]


def test_an_annotated_function_is_still_itself() -> None:
    @timesink.annotate("named")
    def double(x: int) -> int:
        """Twice."""
        return 2 * x

    assert (double(4), double.__name__, double.__doc__) == (8, "double", "Twice.")
    with pytest.raises(ZeroDivisionError), timesink.annotate("fails"):
        _ = 1 / 0


LISTED = (
    "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_", "OMP_", "MKL_", "PYTORCH_", "TORCH", "TRITON_", "SLURM_",
    "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK",
)  # fmt: skip
# Hypothesis draws strings of the source too, "WORLD_SIZE" among them.
unlisted = st.text(min_size=1, max_size=20).filter(lambda name: not name.startswith(LISTED))


@given(st.dictionaries(unlisted, st.text(max_size=20)))
def test_variables_that_are_not_on_the_list_are_never_kept(variables: dict[str, str]) -> None:
    wanted = {"CUDA_VISIBLE_DEVICES": "0,1", "NCCL_DEBUG": "INFO"}
    secrets = {
        "WANDB_API_KEY": "x",
        "NCCL_TOPO_FILE": "/home/ann/t.xml",
        "TORCH_NCCL_SECRET": "x",
        "TORCHINDUCTOR_CACHE_DIR": "/home/ann",
        "NCCL_SOCKET_ADDR": "10.0.0.1",
        "OMP_NUM_THREADS": "/etc/passwd",
    }
    assert kept_variables({**variables, **secrets, **wanted}) == wanted


def test_the_manifest_holds_no_secret_host_or_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    monkeypatch.setenv("MY_SECRET", "hunter2")
    config = tmp_path / "config.yaml"
    config.write_text("lr: 1")
    told = json.dumps(surroundings(["python", "train.py", "--api-key", "hunter2", "--token=hunter2"], [config]))
    assert "hunter2" not in told
    assert os.uname().nodename not in json.loads(told)["machine"].values()
    assert str(tmp_path) not in told
    assert "config.yaml" in told


def test_a_stored_command_can_be_repeated() -> None:
    import shlex

    words = ["python", "my train.py", "--lr", "1e-3", "a'b"]
    assert shlex.split(stored_command(words)) == words
    assert stored_command([str(Path.home() / "x.py")]) == "'~/x.py'"


def test_a_plan_survives_the_way_to_the_program() -> None:
    plan = AgentPlan(Mode.TORCH, "/a b", StepSchedule(1, 0, 3, 4), whole=True, stacks=True, early=True)
    assert AgentPlan.from_json(plan.to_json()) == plan
    with pytest.raises(CaptureError, match="0 active steps"):
        StepSchedule(active=0)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (1, 2)),
        ({"OMPI_COMM_WORLD_RANK": "5"}, (5, 6)),
        ({"RANK": "x"}, (0, 1)),
    ],
)
def test_launchers_tell_ranks(variables: dict[str, str], expected: tuple[int, int]) -> None:
    assert rank_and_world(variables) == expected


@pytest.mark.parametrize(
    ("words", "bystander"),
    [
        (["python", "train.py"], False),
        (["python", "-u", "train.py", "torchrun"], False),
        (["python", "-m", "benchmarks.capture_programs", "ddp"], False),
        (["python", "/usr/bin/torchrun", "train.py"], True),
        (["python", "-m", "torch.distributed.run", "train.py"], True),
        (["python", "-c", "from multiprocessing.resource_tracker import main;main(5)"], True),
        (["python", "/x/torch/_inductor/compile_worker/__main__.py", "--workers=2"], True),
    ],
)
def test_launchers_and_helpers_are_left_alone(words: list[str], bystander: bool) -> None:
    assert is_bystander(words) is bystander


@pytest.mark.parametrize(
    ("program", "python"),
    [
        (["python3.12", "x.py"], True),
        (["srun", "-n", "2", "python", "x.py"], True),
        (["torchrun", "x.py"], True),
        (["./train.py"], True),
        ([sys.executable, "-c", "1"], True),
        (["sleep", "1"], False),
        (["no-such-program"], False),
    ],
)
def test_a_command_line_tells_whether_it_is_python(program: list[str], python: bool) -> None:
    assert is_python(program) is python


def test_artefacts_are_counted_and_damage_is_said(tmp_path: Path) -> None:
    whole = check(DATA / "torch/rank0.json.gz")
    assert whole.missing(("steps", "kernels", "operators", "CUDA API calls")) == []
    assert whole.counts["steps"] == 6
    cut = tmp_path / "rank0.json.gz"
    cut.write_bytes((DATA / "torch/rank0.json.gz").read_bytes()[:2000])
    assert "it is damaged" in check(cut).missing(("steps",))[0]
    empty = tmp_path / "empty.json"
    empty.touch()
    assert check(empty).missing(()) == ["empty.json: it is empty"]
    assert check(tmp_path / "absent.json").missing(()) == ["absent.json: it was not written"]
    wrong = tmp_path / "k.ncu-rep"
    wrong.write_bytes(b"nothing of the kind")
    assert "does not begin as an ncu report" in check(wrong).missing(())[0]


def test_without_a_name_a_quick_pass_names_the_kernels_that_take_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = []

    def make(recording: Recording) -> Capture:
        wanted.append(recording.settings)
        return Capture(TRACES, (), {})

    monkeypatch.setattr(Recording, "make", make)
    run = CaptureRun(program=["python", "train.py"])
    found = find_hottest(run, tmp_path / "out", 2)
    assert found["kernels"].startswith("^(") and found["each_shape"] and found["launch_count"] == 1
    assert wanted[0].out == tmp_path / "out-steps" and wanted[0].steps.timed == 0
    assert "% of the kernels' time is in" in capsys.readouterr().err


def test_a_program_without_pytorch_has_no_quick_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(_: Recording) -> Capture:
        raise missing("python has no PyTorch", "")

    monkeypatch.setattr(Recording, "make", make)
    assert find_hottest(CaptureRun(program=["python", "train.py"]), tmp_path / "out", 3) == {}
    assert find_hottest(CaptureRun(program=["./native"]), tmp_path / "out", 3) == {}


def test_a_report_without_kernels_says_where_none_was_found() -> None:
    options = NcuOptions(kernels="layer_norm", launch_skip=50)
    assert options.nothing_profiled(by_range=False) == (
        "no kernel that matches layer_norm was launched after the first 50 (--launch-skip) in the program"
    )
    assert NcuOptions(kernels="layer_norm").nothing_profiled(by_range=True) == (
        "no kernel that matches layer_norm was launched in the recorded steps (--whole looks at the whole program)"
    )
    assert NcuOptions().nothing_profiled(by_range=False) == "no kernel was launched in the program"


@given(st.integers(0, 30), st.integers(1, 400))
def test_records_are_counted_whatever_the_chunks(kernels: int, padding: int) -> None:
    """By a slower obvious method: parse the document."""
    import tempfile

    from timesink.capture.redaction import packed

    events = [{"ph": "X", "cat": "kernel", "name": "k" * padding, "ts": n} for n in range(kernels)]
    events += [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n % 3}", "ts": n} for n in range(kernels)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(packed, "_PIECE_BYTES", 97)
        path = Path(folder) / "t.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
        counts = check(path).counts
    assert counts["kernels"] == kernels
    assert counts["steps"] == len({event["name"] for event in events if event["cat"] == "user_annotation"})


def test_steps_in_an_export_are_counted_by_name(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        db.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, textId INTEGER)")
        db.execute("INSERT INTO StringIds VALUES (7, 'step 2')")
        rows = [(0, 1, "step 1", None), (1, 2, None, 7), (2, 3, "forward", None), (3, None, "mark", None)]
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?)", rows)
    counts = check(path).counts
    assert (counts["steps"], counts["NVTX ranges"], counts["kernels"]) == (2, 3, 0)


def test_steps_that_are_too_short_raise_a_doubt() -> None:
    def rank(alone: list[float], recorded: list[float]) -> dict[str, object]:
        return {"rank": 0, "unprofiled": {"steps_ms": alone}, "profiled": {"steps_ms": recorded}}

    assert find_doubts([rank([30, 30, 30], [3, 3, 100])]) == []
    assert find_doubts([rank([30, 30, 30], [31, 29, 30])]) == []
    (doubt,) = find_doubts([rank([30, 30, 30], [3, 4, 5])])
    assert "raise --warm-up" in doubt


def test_only_collections_of_older_generations_between_start_and_stop_are_marked() -> None:
    said: list[str] = []

    def open() -> Callable[[], None]:
        said.append("begin")
        return lambda: said.append("end")

    marks = GarbageMarks(open)
    gc.collect()
    marks.start()
    gc.collect(0)
    gc.collect(1)
    gc.collect()
    marks.stop()
    marks.stop()
    gc.collect()
    assert said == ["begin", "end"] * 2


def test_without_a_way_to_open_ranges_nothing_is_hooked() -> None:
    before = len(gc.callbacks)
    marks = GarbageMarks()
    marks.start()
    assert len(gc.callbacks) == before
    marks.stop()


def test_a_program_that_replays_graphs_runs_no_operators(tmp_path: Path) -> None:
    trace = tmp_path / "rank0.json"
    kernel = '{"cat": "kernel", "name": "gemm"}'
    trace.write_text(f'{{"traceEvents": [{kernel}, {{"cat": "cuda_runtime", "name": "cudaGraphLaunch"}}]}}')
    assert check(trace).missing(("operators", "kernels", "steps")) == ["rank0.json holds no steps"]
    trace.write_text(f'{{"traceEvents": [{kernel}, {{"cat": "cuda_runtime", "name": "cudaLaunchKernel"}}]}}')
    assert check(trace).missing(("operators", "kernels")) == ["rank0.json holds no operators"]


_ENDED = """
import sys, time
print("trained", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("KeyboardInterrupt", file=sys.stderr)
"""


def test_what_a_program_says_as_it_is_told_to_end_stays_in_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.txt"
    ended = run(
        [sys.executable, "-c", _ENDED], log, setting=Setting(), timeout_s=50.0,
        watch=Watch(lambda: log.exists() and b"trained" in log.read_bytes(), grace_s=0.0, signal_s=20.0),
    )  # fmt: skip
    assert ended.status == 0 and "KeyboardInterrupt" in ended.said()
    assert capfd.readouterr().err == "trained\n"


_LAST = [
    ("begun\nTraceback (most recent call last):\n  File x\nValueError: lost", "ValueError: lost"),
    ("ValueError: first\nDuring handling of that\nOutOfMemoryError: CUDA", "OutOfMemoryError: CUDA"),
    ("[rank3]: KeyError: 'x'\nE1129 torchrun: sending SIGTERM\nE1129 failed", "[rank3]: KeyError: 'x'"),
    ("RuntimeError: Error in loading:\nMissing\n[W1] chatter", "RuntimeError: Error in loading: / Missing"),
    ("terminate called\nAborted", "terminate called / Aborted"),
    ("Errors were ignored\nErrorless end", "Errors were ignored / Errorless end"),
    ("", "it said nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "words"), _LAST)
def test_the_last_words_of_a_program_are_its_error(said: str, words: str) -> None:
    """A traceback goes before it and the noise of other processes behind."""
    assert last_words(said.splitlines(), 2)[: len(words)] == words
    assert "Traceback" not in last_words(said.splitlines(), 2)


class Stepper:
    """Stands for an optimizer."""


def test_what_counts_is_the_first_as_long_as_the_program_has_it_and_uses_it() -> None:
    counted, first, second = OneThatCounts(), Stepper(), Stepper()
    assert counted.counts(first) and not counted.counts(second) and counted.counts(first)
    del first
    assert counted.counts(second)  # nobody else held the first
    third = Stepper()
    turns = [counted.counts(third) for _ in range(300)]
    assert turns.index(True) == 200 and all(turns[200:])  # the second is there, and has no turn any more
    assert not counted.counts(second)


def test_of_optimizers_made_anew_each_has_its_turns() -> None:
    counted, kept = OneThatCounts(), Stepper()
    for _ in range(5):
        made = Stepper()
        assert counted.counts(made) and counted.counts(made)
        assert not counted.counts(kept)
        del made


def test_what_cannot_be_watched_counts_too() -> None:
    counted, rows = OneThatCounts(), [1, 2]  # a list has no weak reference
    assert counted.counts(rows) and not counted.counts([3]) and counted.counts(rows)
