"""What a plan asks of a GPU, what answers make of its prices, and why there may be none."""

import json
import sys
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timesink
from timesink import notebook
from timesink.cli.app import run
from timesink.diagnosis.plan import Joint
from timesink.diagnosis.plan.ladder import changes_offered, plan
from timesink.fixes.measured import FALLBACKS, MeasuredKernels, MeasuredPrices
from timesink.knowledge.assumptions import ALL, fixes
from timesink.mcp.captures import OpenCapture
from timesink.mcp.figures import plan_document
from timesink.model.tables import HOST_OPS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.trials import prices as prices_of
from timesink.trials.asked import MACHINE, PRODUCTS, BenchQuestions, identity
from timesink.trials.attention import copies_around, is_square_mask, written_out
from timesink.trials.grid import by_grid, calls_of, figures_of
from timesink.trials.machine import Bench, MachineFile
from timesink.trials.prices import measured_prices, prices_on
from timesink.trials.shares import kept_prices, prices
from timesink.views.report import report_of
from timesink.whatif import Case, Range
from timesink.whatif.changes.host import FeedLoader
from timesink.whatif.changes.kernels import ShortenKernels, UnderAutocast

DEMO = min(Path(str(files("timesink.cli").joinpath("demo"))).glob("*before*.json.xz"))
H100 = "NVIDIA H100 80GB HBM3"
STEPS, LAYERS = 4, 6
KERNELS = {
    "aten::_softmax": "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false>(float*, float*)",
    "aten::gelu": "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)",
}
SHAPES = {"aten::mm": [[512, 256], [256, 512]], "aten::from_file": [[512, 256], [256, 512]]}


def program(*ops: str, **left_out: str) -> dict[str, Any]:
    """A trace of steps of products in fp32 that the GPU is busy with."""
    events: list[dict[str, Any]] = []

    def put(cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> None:
        pid = 0 if cat == "kernel" else 9
        events.append({"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args})

    for step in range(STEPS):
        begin = 1000.0 + step * 1300.0
        put("user_annotation", f"ProfilerStep#{step}", begin, 1290.0)
        for layer in range(LAYERS):
            op = ops[layer % len(ops)]
            at, number = begin + layer * 15.0, step * LAYERS + layer + 1
            dims = {"Input Dims": SHAPES["aten::mm"], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
            dims |= {"Input Strides": [[256, 1], [512, 1]]}
            dims = {name: value for name, value in dims.items() if name not in left_out.values()}
            put("cpu_op", op, at, 10.0, **{"External id": number}, **dims)
            put("cuda_runtime", "cudaLaunchKernel", at + 4, 4.0, correlation=number, **{"External id": number})
            shape = {"grid": [132, 1, 1], "block": [256, 1, 1], "device": 0, "stream": 7, "context": 1}
            kernel = {"correlation": number, "External id": number, **shape}
            put("kernel", KERNELS.get(op, "ampere_sgemm_128x128_nn"), begin + 20 + layer * 200.0, 200.0, 7, **kernel)
        put("cuda_runtime", "cudaDeviceSynchronize", begin + 200, 1085.0, correlation=10_000 + step)
    device = {"id": 0, "name": H100, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    return {"schemaVersion": 1, "deviceProperties": [device], "record_shapes": 1, "traceEvents": events}


def read(folder: Path, op: str = "aten::mm", *others: str, **changed: str) -> Trace:
    file = folder / "trace.json"
    file.write_text(json.dumps(program(op, *others, **changed)))
    return timesink.read(file)


def offered(trace: Trace, measured: MeasuredPrices | None = None) -> Joint:
    joint = changes_offered(trace, timesink.diagnose(trace), measured)
    assert isinstance(joint, Joint)
    return joint


def answered(asked: BenchQuestions, told: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {identity(question): told(question) for question in asked.questions}


def times(recorded: float = 200.0, tf32: float = 60.0, bf16: float = 40.0, cold: float = 1.0) -> dict[str, Any]:
    """What a bench may say of a product."""
    forms = {"recorded": recorded, "tf32": tf32, "bf16": bf16}
    casts = {"bf16 casts": [2.0, 2.0], "bf16 results": [3.0]}
    return {name: [warm, warm * cold] for name, warm in forms.items()} | casts


def test_a_product_is_asked_for_once_in_every_form_that_a_change_gives_it(tmp_path: Path) -> None:
    (question,) = BenchQuestions(offered(read(tmp_path))).questions
    assert question["name"] == "aten::mm" and question["shapes"] == SHAPES["aten::mm"]
    assert {"bf16", "tf32"} <= set(question["forms"]) and not question["tf32"]
    again = BenchQuestions(offered(read(tmp_path))).questions
    assert identity(again[0]) == identity(question)


def test_an_operator_that_does_more_than_compute_is_not_asked_for(tmp_path: Path) -> None:
    assert BenchQuestions(offered(read(tmp_path, op="aten::from_file"))).questions == []


def test_what_autocast_computes_in_fp32_from_16_bits_takes_a_cast_more(tmp_path: Path) -> None:
    """Of a product, an activation, a softmax and a product, the softmax reads what comes from the first, in 16 bits;
    the last reads fp32."""
    asked = BenchQuestions(offered(read(tmp_path, "aten::mm", "aten::gelu", "aten::_softmax")))
    reads = dict(asked.kernels.group_by("op").agg(pl.col("reads").drop_nulls().unique()).iter_rows())
    assert reads == {"aten::mm": [False], "aten::gelu": [True], "aten::_softmax": [True]}
    assert set(asked.widened["op"]) == {"aten::_softmax"}
    machine = {identity({"kind": "machine"}): {"dram_bandwidth": 2e6}}
    measured = prices(asked, {**answered(asked, lambda _: times()), **machine}, "measured here")
    kept = dict(zip(measured.kernels["bf16"].rows.tolist(), measured.kernels["bf16"].keep[1].tolist(), strict=True))
    cast_us = 6 * 512 * 256 / 2e6
    assert [kept[row] for row in asked.widened["row"]] == pytest.approx([1 + max(cast_us, 1.5) / 200.0] * 2 * STEPS)
    beside = measured.beside["bf16", "compile"].rows.tolist()  # where a compiler fuses casts
    assert not set(beside) & set(asked.widened["row"])


def test_a_measured_price_is_replayed_with_what_was_measured(tmp_path: Path) -> None:
    trace = read(tmp_path)
    asked = BenchQuestions(offered(trace))
    measured = prices(asked, answered(asked, lambda _: times(tf32=100.0)), "measured here")
    gain = offered(trace, measured).gain({"tf32"})
    assert gain is not None and gain.value == pytest.approx(0.6, abs=0.03)  # half of six products of 200 us
    (form,) = (form for form in measured.forms if form.fix == "tf32")
    assert form.scale == pytest.approx(1.0) and form.changed_ns == pytest.approx(form.traced_ns / 2)
    slower = prices(asked, answered(asked, lambda _: times(tf32=300.0)), "measured here")
    worse = offered(trace, slower).gain({"tf32"})
    assert worse is not None and worse.value < 0


@pytest.mark.parametrize("recorded", [90.0, 450.0])
def test_a_bench_that_does_not_take_what_the_trace_did_tells_nothing(recorded: float, tmp_path: Path) -> None:
    trace = read(tmp_path)
    asked = BenchQuestions(offered(trace))
    far = prices(asked, answered(asked, lambda _: times(recorded, 1.0, 1.0)), "measured here")
    assert far.kernels == {} and offered(trace, far).gain({"tf32"}) == offered(trace).gain({"tf32"})


def test_what_was_not_measured_stays_assumed(tmp_path: Path) -> None:
    trace = read(tmp_path)
    asked = BenchQuestions(offered(trace))
    failed = prices(asked, answered(asked, lambda _: {"failed": "out of memory"}), "measured here")
    assert failed.kernels == {} and failed.forms == ()
    assert offered(trace, failed).gain({"bf16"}) == offered(trace).gain({"bf16"})


@given(st.floats(110.0, 390.0), *[st.floats(1.0, 500.0)] * 2, st.floats(0.5, 4.0))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_no_case_wins_less_than_a_more_cautious_one(recorded: float, tf32: float, bf16: float, cold: float) -> None:
    asked = BenchQuestions(offered(_read_once()))
    measured = prices(asked, answered(asked, lambda _: times(recorded, tf32, bf16, cold)), "measured here")
    for found in (*measured.kernels.values(), *measured.beside.values()):
        cautious, expected, hopeful = found.keep
        assert (cautious >= expected).all() and (expected >= hopeful).all() and (hopeful >= 0).all()
        assert (np.diff(found.rows) > 0).all()


@cache
def _read_once() -> Trace:
    from tempfile import mkdtemp

    return read(Path(mkdtemp()))


def test_attention_is_recognised_by_how_its_products_fit() -> None:
    scores, values, grad = "[[8,64,16],[8,16,96]]", "[[8,64,96],[8,96,16]]", "[[8,96,64],[8,64,16]]"
    kernels = [(0, True, scores, False), (1, False, "", False), (2, False, "", False), (3, True, values, False)]
    kernels += [(4, True, grad, True), (5, False, "", True), (6, True, grad, True)]
    found = written_out(kernels)
    assert found == {(8, 64, 96, 16): {False: ([0, 3], [1, 2]), True: ([4, 6], [5])}}
    assert written_out([(0, True, "[[64,16],[16,96]]", False), (1, False, "", False)]) == {}


def test_copies_next_to_attention_go_with_it() -> None:
    own, laid_out, other = (True, 0), (False, 8), (False, 5)
    rows = [other, laid_out, laid_out, own, (False, -1), own, own, laid_out, other, laid_out]
    ordered = [(number, *row) for number, row in enumerate(rows)]
    assert copies_around(ordered, {8}) == [1, 2, 4, 7]  # and not the last, which another kernel keeps apart


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([-1, 0, 5, 8])), max_size=30))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_only_copies_of_its_sizes_go_with_attention(rows: list[tuple[bool, int]]) -> None:
    ordered = [(number, *row) for number, row in enumerate(rows)]
    found = copies_around(ordered, {8})
    assert all(not rows[at][0] and rows[at][1] in (8, -1) for at in found)
    assert found == sorted(
        {len(rows) - 1 - at for at in copies_around([(n, *r) for n, r in enumerate(rows[::-1])], {8})}
    )


def test_a_mask_that_all_sequences_share_may_be_causal() -> None:
    sizes = (8, 64, 64, 16)
    assert is_square_mask("[[2,4,64,64],[64,64],[]]", sizes) and is_square_mask("[[2,4,64,64],[1,1,64,64]]", sizes)
    assert not is_square_mask("[[2,4,64,64],[2,1,1,64],[]]", sizes)
    assert not is_square_mask("[[2,4,64,96],[64,96]]", (8, 64, 96, 16))
    assert not is_square_mask(None, sizes)


def test_launches_go_with_kernels_that_go_and_with_no_others() -> None:
    def kept(*shares: float) -> tuple[np.ndarray[Any, Any], ...]:
        return (np.array(shares),) * 3

    part = ShortenKernels((0, 0), np.array([4, 6]), kept(0.5, 0.5), launches_saved=Range.exact(0.7))
    found = MeasuredKernels((0, 0), np.array([3, 4, 8]), kept(0.0, 0.2, 0.9))
    own, gone, shorter = MeasuredPrices({"fix": found}).applied("fix", (part,), ())
    assert isinstance(own, ShortenKernels) and own.keep[1].tolist() == [0.2, 0.5]
    assert isinstance(gone, ShortenKernels) and gone.rows.tolist() == [3] and gone.launches_saved == part.launches_saved
    assert isinstance(shorter, ShortenKernels) and shorter.rows.tolist() == [8]
    assert shorter.launches_saved == Range.exact(0.0)


def test_the_host_is_told_in_place_of_assumptions_and_only_meanwhile() -> None:
    machine = {"graph_20": [20.0, 24.0, 30.0], "graph_220": [100.0, 124.0, 200.0]}
    figures = figures_of({**machine, "pageable_bandwidth": 6.0, "copy_bandwidth": 20.0})
    assert figures["fixes.graph_kernel_us"][1] == pytest.approx(0.5)
    assert figures["fixes.graph_replay_us"][1] == pytest.approx(14.0)
    assert figures["fixes.pinned_time"][1] == pytest.approx(0.3)
    far = figures_of({"pageable_bandwidth": 1.0, "copy_bandwidth": 1000.0})
    assert far["fixes.pinned_time"][1] == min(fixes.PINNED_TIME.low, fixes.PINNED_TIME.high)
    before = fixes.PINNED_TIME.value
    with MeasuredPrices(figures=figures).assumed():
        assert fixes.PINNED_TIME.value == pytest.approx(0.3)
    assert fixes.PINNED_TIME.value == before and not fixes.PINNED_TIME.changed


@given(st.floats(0.0, 5e3), st.floats(0.0, 500.0))
def test_batches_of_workers_cost_this_host_a_part_each_and_a_part_by_size(fetch: float, megabyte: float) -> None:
    fetched = [[size, fetch + megabyte * size / 1e6] for size in (1_000_000, 16_000_000)]
    calls = calls_of({"fetched": fetched}, {}, is_trained=True)
    assert calls["fetch"].expected == pytest.approx(fetch, abs=1e-6)
    assert calls["megabyte"].expected == pytest.approx(megabyte, abs=1e-6)
    told = MeasuredPrices(calls=calls).applied("loader_workers", (FeedLoader(),), ())
    assert told == (FeedLoader(fetch_us=calls["fetch"], megabyte_us=calls["megabyte"]),)


@given(st.lists(st.floats(1.0, 1e4), min_size=3, max_size=3).map(sorted))
def test_calls_are_as_far_apart_as_their_turns_at_least(turns: list[float]) -> None:
    found = calls_of({"blocks": 1, "trained_cast more": turns}, {}, is_trained=True)["cast"]
    assert found.hopeful <= turns[0] / 12 * (1 + 1e-9) and found.cautious >= turns[2] / 12 * (1 - 1e-9)
    assert found.hopeful < found.expected < found.cautious


def test_a_fallback_is_an_assumption_and_each_price_says_where_it_comes_from() -> None:
    assert all(f"fixes.{name}" in ALL for names in FALLBACKS.values() for name in names)
    known = {"fixes.graph_kernel_us": (1.0, 0.5, 0.2)}
    measured = MeasuredPrices(figures=known, calls={"region": Range.exact(100.0)})
    origins = [measured.origin(fix) for fix in ("cuda_graph", "compile", "bf16", "pin_memory")]
    assert origins == ["measured for this GPU", "CPU measured, kernels assumed", "assumed", "assumed"]


def test_what_casts_and_regions_take_is_told_in_microseconds_of_the_host() -> None:
    machine: dict[str, Any] = {
        "blocks": 6,
        "trained_cast more": [1, 720.0, 2],
        "trained_convolved_cast more": [1, 54.0, 2],
    }
    regions = {"blocks": 6, "trained": [1, 1000.0, 2], "trained_compiled more": [1, 480.0, 2]}
    calls = calls_of(machine, regions, True)
    assert calls["cast"].at(Case.EXPECTED) == pytest.approx(10.0)  # twelve in each of six layers
    assert calls["convolution"].at(Case.EXPECTED) == pytest.approx(2.0)
    assert calls["region"].at(Case.EXPECTED) == pytest.approx(100.0)  # and what the replay saves: 20 us
    assert all(one.at(Case.CAUTIOUS) > one.at(Case.EXPECTED) > one.at(Case.HOPEFUL) for one in calls.values())
    assert calls_of(machine, regions, False) == {}
    asked = BenchQuestions(offered(_read_once()))
    parts = asked.joint.parts({"bf16"})
    told = MeasuredPrices(calls=calls).applied("bf16", parts, ())
    (cast,) = (part for part in told if isinstance(part, UnderAutocast))
    assert cast.cast_us == calls["cast"] and cast.convolved_us == calls["convolution"]


def test_the_optimizer_of_the_demo_is_asked_for_by_its_tensors() -> None:
    asked = BenchQuestions(offered(timesink.read(DEMO)))
    (question,) = asked.questions
    assert question["kind"] == "optimizer" and question["name"] == "AdamW" and len(question["sizes"]) > 10
    own = asked.altered["fused_optimizer"].tolist()
    traced_us = sum(asked.lengths[row] for row in own) / asked.step_count / 1000
    answer = {"recorded": [traced_us, 1, 2000.0, 1], "fused": [traced_us / 3, 1, 90.0, 1]}
    measured = prices(asked, answered(asked, lambda _: answer), "measured here")
    assert measured.kernels["fused_optimizer"].keep[1] == pytest.approx(1 / 3)
    assert measured.kernels["fused_optimizer"].host_us is not None
    made = plan(asked.trace, measured=measured)
    slow = prices(asked, answered(asked, lambda _: {**answer, "fused": answer["recorded"]}), "measured here")
    assert made.singles["fused_optimizer"].value > plan(asked.trace, measured=slow).singles["fused_optimizer"].value


@pytest.mark.parametrize(
    ("bench", "words"),
    [
        ("no Python here has PyTorch: install it", "no Python here has PyTorch"),
        (Bench("python", "2.11", "", ""), "this machine has no GPU"),
        (Bench("python", "2.11", "NVIDIA L4", "580"), f"the trace is of {H100}, this machine has NVIDIA L4"),
    ],
)
def test_where_nothing_can_be_measured_it_says_why(
    bench: Bench | str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prices_of, "find_bench", lambda: bench)
    refused = measured_prices(read(tmp_path))
    assert words in refused.refused and refused.kernels == {}


def test_of_a_trace_without_shapes_or_operators_the_host_alone_is_measured(tmp_path: Path) -> None:
    trace = read(tmp_path, a="Input Dims", b="Input type", c="Input Strides", d="Concrete Inputs")
    bare = replace(trace, tables={table: frame for table, frame in trace.tables.items() if table != HOST_OPS})
    for lacking, words in ((trace, "no shapes of operators"), (bare, "no operators")):
        found = prices_on(BenchQuestions(offered(lacking)), child(tmp_path), tmp_path / "kept")
        assert words in found.notes[0] and not found.refused and found.kernels == {} and found.forms == ()
        assert found.figures["fixes.graph_kernel_us"][1] == pytest.approx(0.5)


CHILD = """#!{python}
import json, sys
given, told = sys.argv[-3:-1]
questions = json.load(open(given))
answers = {{}}
for question in questions:
    if {breaks!r} in (question["kind"], "all"):
        json.dump({{"answers": answers, "now": question["id"]}}, open(told, "w"))
        print("CUDA error: unspecified launch failure")
        sys.exit(3)
    kind = question["kind"]
    graphs = {{"graph_20": [20, 24, 30], "graph_220": [100, 124, 200]}}
    answers[question["id"]] = {{"recorded": [200, 200], "tf32": [100, 100]}} if kind == "operator" else graphs
    json.dump({{"answers": answers, "now": ""}}, open(told, "w"))
"""


def child(folder: Path, breaks: str = "") -> Bench:
    """A bench whose Python answers by itself."""
    file = folder / "python"
    file.write_text(CHILD.format(python=sys.executable, breaks=breaks))
    file.chmod(0o755)
    return Bench(str(file), "2.11", H100, "580")


def test_what_was_answered_once_is_not_asked_again(tmp_path: Path) -> None:
    asked, cache_of = BenchQuestions(offered(read(tmp_path))), tmp_path / "kept"
    first = prices_on(asked, child(tmp_path), cache_of)
    assert first.forms and {form.origin for form in first.forms} == {"measured here"}
    gone = replace_python(child(tmp_path), "/nowhere/python")
    second = prices_on(asked, gone, cache_of)
    assert {form.origin for form in second.forms} == {"measured for this GPU"}
    assert [form.changed_ns for form in first.forms] == [form.changed_ns for form in second.forms]
    other = prices_on(asked, Bench("/nowhere/python", "2.12", H100, "580"), cache_of)
    assert not other.forms and "cannot be started" in " ".join(other.notes) + "cannot be started"


def replace_python(bench: Bench, python: str) -> Bench:
    return Bench(python, bench.torch, bench.gpu, bench.driver)


def test_a_question_that_breaks_the_gpu_leaves_the_others_their_answers(tmp_path: Path) -> None:
    asked = BenchQuestions(offered(read(tmp_path)))
    found = prices_on(asked, child(tmp_path, breaks="machine"), tmp_path / "kept")
    assert {form.fix for form in found.forms} == {"tf32"}
    assert any("have no answer" in note for note in found.notes)


def test_a_damaged_cache_is_no_cache(tmp_path: Path) -> None:
    asked, bench = BenchQuestions(offered(read(tmp_path))), child(tmp_path)
    for text in ("", "[]", "{", '{"a": 1}'):
        (tmp_path / "kept").mkdir(exist_ok=True)
        (tmp_path / "kept" / f"{bench.key}.json").write_text(text)
        assert MachineFile.of_gpu([H100], tmp_path / "kept") is None
        assert prices_on(asked, bench, tmp_path / "kept").forms


SIDES = (64, 256, 1024, 4096)


def grid(**us_of_a_gigaflop: float) -> dict[str, Any]:
    """Products that take as long as their operations, by type."""
    sizes = [rows * columns * inner for rows in SIDES for columns in SIDES for inner in SIDES]
    rates = {"fp32": 40.0, "tf32": 5.0, "bf16": 2.5, "fp16": 2.5} | us_of_a_gigaflop
    return {"sides": list(SIDES)} | {kind: [2e-9 * size * rate for size in sizes] for kind, rate in rates.items()}


@given(*[st.integers(64, 40_000)] * 3, st.floats(1.0, 100.0))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_between_and_beyond_the_sizes_of_the_grid_operations_take_what_they_do_on_it(
    rows: int, columns: int, inner: int, rate: float
) -> None:
    question = {"name": "aten::mm", "shapes": [[rows, inner], [inner, columns]], "types": ["float"] * 2, "tf32": False}
    asked = {**question, "forms": ["bf16"]}
    found = by_grid([asked], {"dram_bandwidth": 2e6}, grid(fp32=rate))[identity(asked)]
    assert found["recorded"][0] == pytest.approx(2e-9 * rows * columns * inner * rate)
    assert found["bf16"][0] == pytest.approx(2e-9 * rows * columns * inner * 2.5)


def keep(folder: Path | None, gpu: str = H100) -> None:
    """A machine's file by which these products take half as long as TF32."""
    product_us = 2e-9 * 512 * 256 * 256
    known = {identity(MACHINE): {"dram_bandwidth": 2e6, "graph_20": [20, 24, 30], "graph_220": [100, 124, 200]}}
    known |= {identity(PRODUCTS): grid(fp32=200.0 / product_us, tf32=100.0 / product_us)}
    bench = Bench("/nowhere/python", "2.11", gpu, "580")
    MachineFile.of(bench, folder).add(known, bench)


def test_a_machines_file_prices_a_plan_without_running_anything(tmp_path: Path) -> None:
    trace, folder = read(tmp_path), tmp_path / "kept"
    assert kept_prices(trace, folder=folder) is None
    keep(folder)
    found = kept_prices(trace, folder=folder)
    assert found is not None and found.figures["fixes.graph_kernel_us"][1] == pytest.approx(0.5)
    assert {form.origin for form in found.forms} == {"measured for this GPU"}
    gain = offered(trace, found).gain({"tf32"})
    assert gain is not None and gain.value == pytest.approx(0.6, abs=0.03)
    keep(tmp_path / "other", "NVIDIA L4")
    assert kept_prices(trace, folder=tmp_path / "other") is None


def test_every_door_uses_the_machines_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trace, measured = read(tmp_path), "measured for this GPU"

    def said() -> list[bool]:
        diagnosis = timesink.diagnose(trace)
        server = plan_document(OpenCapture("cap_0", (), trace, diagnosis))["rungs"]
        report = next(one.page for one in report_of(trace, diagnosis).sections if one.key == "plan")
        assert run(["plan", str(tmp_path / "trace.json"), "--no-cache"]) == 0
        pages = report, notebook.plan(tmp_path / "trace.json")
        rows = (str([sheet.rows for sheet in page.sheets]) for page in pages)
        return [measured in text for text in (capsys.readouterr().out, str(server), *rows)]

    assert said() == [False] * 4
    keep(None)
    assert said() == [True] * 4


def test_the_machine_is_measured_by_its_own_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prices_of, "find_bench", lambda: child(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert run(["plan", "machine"]) == 0 and "a CUDA graph of 20 kernels" in capsys.readouterr().out
    assert kept_prices(read(tmp_path)) is not None
    monkeypatch.setattr(prices_of, "find_bench", lambda: child(tmp_path, "all"))
    assert run(["plan", "machine"]) == 5 and "unspecified launch failure" in capsys.readouterr().err
    monkeypatch.setattr(prices_of, "find_bench", lambda: "no Python here has PyTorch: install it")
    assert run(["plan", "machine"]) == 5


def test_the_plan_is_printed_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(tmp_path)
    trace = str(tmp_path / "trace.json")
    assert run(["plan", trace, "--measure", "--no-cache"]) == 0
    said = capsys.readouterr().out
    assert "What to change, in this order" in said and "nothing was measured" in said and "assumed" in said
    assert run(["plan", trace, "--measure", "--change", "fused_attention"]) == 2
    assert run(["plan"]) == 0
    assert "Changes that can be priced" in capsys.readouterr().out
