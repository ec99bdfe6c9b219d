import json
from collections import Counter
from pathlib import Path

import jsonschema
import polars as pl
import pytest
from benchmarks.faults import slower
from benchmarks.pairs import score
from hypothesis import given, settings
from tests.laws import examples
from tests.strategies import traces
from tests.tables import trace_of

from timesink.capture.agent.settings import program_settings
from timesink.measures.steps.parts import step_kinds
from timesink.measures.steps.work import step_work
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.render import Format, render
from timesink.render.gate import explained, page
from timesink.render.schemas import schema
from timesink.verify.changes import explained_change
from timesink.verify.compare import compare_captures
from timesink.verify.counters import times_note
from timesink.verify.outcomes import ChangeKind, StepChange
from timesink.verify.suspects import suspects


@settings(deadline=None, max_examples=examples(25))
@given(traces())
def test_work_sums_to_the_steps(trace: Trace) -> None:
    work = step_work(trace)
    assert int(work.frame["total_ns"].sum()) == work.span_ns == sum(step_kinds(trace).values())
    assert work.frame["total_ns"].min() is None or work.frame["total_ns"].min() >= 0  # type: ignore[operator]


@settings(deadline=None, max_examples=examples(25))
@given(traces(), traces())
def test_changes_sum_to_the_change_of_the_mean_step_to_the_nanosecond(before: Trace, after: Trace) -> None:
    sides = step_work(before), step_work(after)
    means = [(2 * side.span_ns + side.step_count) // (2 * side.step_count) if side.step_count else 0 for side in sides]
    made = explained_change(*sides)
    for parts in (made.changes, made.contributions, made.budget):
        assert sum(one.delta_ns for one in parts) == means[1] - means[0]
    for parts in (made.contributions, made.budget):
        assert sum(one.before_ns for one in parts) == means[0]
    assert all(one.delta_ns == sum(work.delta_ns for work in one.works) for one in made.changes)


@settings(deadline=None, max_examples=examples(25))
@given(traces())
def test_nothing_changes_against_itself_nor_where_every_kernel_has_another_name(trace: Trace) -> None:
    alike = explained_change(step_work(trace), step_work(trace))
    assert not alike.changes
    assert not any(one.delta_ns or one.name.endswith(("(new)", "(vanished)")) for one in alike.contributions)
    renamed = trace[DEVICE_OPS].with_columns(
        pl.when(pl.col("kind") == "kernel")
        .then(pl.col("name").cast(pl.String) + "_2")
        .otherwise("name")
        .cast(pl.Categorical)
        .alias("name")
    )
    other = replace(trace, tables={**trace.tables, DEVICE_OPS: renamed})
    named = pl.DataFrame({"op": step_work(trace).frame.filter(pl.col("kind") == "compute")["op"]})
    if (
        named.height
        and (named["op"] != "").all()
        and step_work(other).frame["kind"].equals(step_work(trace).frame["kind"])
    ):
        assert explained_change(step_work(trace), step_work(other)).joined_ratio == 1.0


def program(*work: tuple[str, str, str, int], wait_us: int = 0, idle_us: int = 0) -> Trace:
    """Two marked steps of operators: name, shapes, its kernels, length of each in us. Then the program waits, or does
    nothing."""
    rows: dict[str, list[str]] = {"host_ops": [], "api_calls": [], "device_ops": [], "ranges": []}
    now, number = 0, 0
    for step in range(3):
        begun = now
        for name, shapes, kernel, length in work:
            of_it, since = kernel.split("+"), now
            for one in of_it:
                number += 1
                rows["api_calls"].append(f"| c{number} | cudaLaunchKernel | {now + 1} | {now + 3} | {number} |")
                rows["device_ops"].append(f"| k{number} | {one} | {now + 3} | {now + 3 + length} | {number} |")
                now += length + 4
            rows["host_ops"].append(f"| o{number} | {name} | {since} | {now - length} | {shapes} |")
        if wait_us:
            rows["api_calls"].append(f"| w{step} | cudaDeviceSynchronize | {now} | {now + wait_us} | 0 |")
        now += wait_us + idle_us
        rows["ranges"].append(f"| r{step} | ProfilerStep#{step} | {begun} | {now} |")
    heads = {
        "host_ops": "| host_ops | name | start_us | end_us | input_shapes |",
        "api_calls": "| api_calls | name | start_us | end_us | correlation |",
        "device_ops": "| device_ops | name | start_us | end_us | correlation |",
        "ranges": "| ranges | name | start_us | end_us |",
    }
    return trace_of("\n\n".join("\n".join([heads[table], *rows[table]]) for table in heads))


MM = ("aten::mm", "[[8,8],[8,8]]", "gemm_a", 100)
ADD = ("aten::add", "[[8,8]]", "pointwise", 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "kind", "named"),
    [(program(("aten::mm", MM[1], "gemm_b", 180), ADD), ChangeKind.OTHER_KERNELS, "aten::mm"),
     (program((*MM[:3], 180), ADD), ChangeKind.SLOWER, "aten::mm"),
     (program(("aten::mm", "[[16,8],[8,8]]", "gemm_a", 180), ADD), ChangeKind.OTHER_SHAPES, "aten::mm"),
     (program(MM, *[ADD] * 6), ChangeKind.LAUNCHES, "aten::add"),
     (program(MM, (*ADD[:2], "+".join(["pointwise"] * 6), 20)), ChangeKind.OTHER_KERNELS, "aten::add"),
     (program(MM, ("aten::add", "[[9,9]]", "+".join(["pointwise"] * 6), 20)), ChangeKind.OTHER_SHAPES, "aten::add"),
     (program(MM, ADD, ("aten::mul", "[[8,8]]", "times", 90)), ChangeKind.OTHER_OPERATORS, "aten::mul"),
     (program(MM, ADD, idle_us=100), ChangeKind.WAITING, ""),
     (program(("aten::miopen_mm", MM[1], "Cijk", 180), ADD), ChangeKind.OTHER_OPERATORS, "aten::miopen_mm")],
)  # fmt: skip
def test_a_planted_change_leads_under_its_name(after: Trace, kind: ChangeKind, named: str) -> None:
    result = compare_captures((program(MM, ADD), after))
    first = result.changes[0]
    assert first.kind is kind
    assert first.delta_ns * 2 > sum(one.delta_ns for one in result.changes) > 0
    assert not named or first.works[0].op == named
    assert named in page(result).title
    assert page(result).title.startswith("+")
    assert page(result).lede.startswith("? step time (mean)")
    assert page(result).sheets[0].key == "changes"
    jsonschema.validate(document := json.loads(render(result, Format.JSON)), schema("gate"))
    assert all(one["delta_ns"] == sum(work["delta_ns"] for work in one["works"]) for one in document["changes"])


def test_an_operator_of_one_library_is_the_one_that_was_asked_for() -> None:
    def convolved(library: str, kernel: str) -> Trace:
        return trace_of(f"""
            | host_ops | name                      | start_us | end_us | input_shapes |
            | a        | aten::convolution         | 0        | 20     | [[1,3,8,8]]  |
            | b        | aten::{library}_convolution | 1      | 19     | [[1,3],[]]   |

            | api_calls | name             | start_us | end_us | correlation |
            | c         | cudaLaunchKernel | 5        | 6      | 1           |

            | device_ops | name     | start_us | end_us | correlation |
            | k          | {kernel} | 10       | 60     | 1           |
            """)

    sides = step_work(convolved("cudnn", "implicit_gemm")), step_work(convolved("miopen", "Cijk_gfx942"))
    made = explained_change(*sides)
    assert made.joined_ratio == 1.0
    kinds = {one.kind for one in made.changes if one.works[0].op}
    assert kinds <= {ChangeKind.SLOWER, ChangeKind.OTHER_KERNELS}


def test_settings_that_could_do_it_stand_first() -> None:
    differing = {"git": ("a", "b"), "ranks.0.torch": ("2.10", "2.11"), "hostname": ("x", "y")}
    made = (StepChange(ChangeKind.OTHER_KERNELS, "", 1, ()),)
    assert [(one.name, one.can_cause) for one in suspects(differing, made)] == [
        ("ranks.0.torch", True), ("git", False), ("hostname", False),
    ]  # fmt: skip
    assert [one.can_cause for one in suspects(differing, ())] == [False] * 3


def test_recordings_without_steps_are_not_said_to_be_steps() -> None:
    sides = [trace_of(f"""
        | device_ops | name | start_us | end_us |
        | k          | gemm | 10       | {end}  |
        """) for end in (50, 90)]  # fmt: skip
    told = page(compare_captures((sides[0], sides[1])))
    assert (
        told.title == "+40.0 us in all that was recorded. Largest part, +40.0 us: the same kernels take longer (gemm)"
    )
    assert "a step" not in told.sheets[0].note


def test_without_operators_other_data_of_one_launch_size_is_said_to_look_alike() -> None:
    def kernels(end: int) -> Trace:
        return trace_of(f"""
            | device_ops | name | start_us | end_us |
            | k          | gemm | 10       | {end}  |
            """)

    doubt = "other data of one launch size would look the same"
    told = page(compare_captures((kernels(50), kernels(90))))
    assert doubt in told.sheets[0].note
    assert doubt not in page(compare_captures((program(MM), program((*MM[:3], 180))))).sheets[0].note
    assert doubt not in page(compare_captures((program(MM), program(MM, idle_us=400)))).sheets[0].note


def test_where_no_step_was_taken_apart_the_start_leads() -> None:
    host = trace_of("""
        | host_ops | name     | start_us | end_us |
        | a        | aten::mm | 0        | 20     |
        """)
    sides = [host.with_start_up(((0, "imports", "torch", seconds * 10**9),)) for seconds in (20, 2)]
    told = page(compare_captures((sides[0], sides[1])))
    assert told.title == "-18.0 s before the first steady step: -18.0 s of imports: torch"
    assert told.lede.startswith("? step time (mean) inconclusive")
    assert not page(compare_captures((host, host))).title.startswith("+")
    steps = program(MM, ADD), program(MM, ADD, idle_us=400)
    started = [side.with_start_up(sides[at].start_up) for at, side in enumerate(steps)]
    assert "a step" in page(compare_captures((started[0], started[1]))).title


def test_counts_of_captures_say_that_the_step_they_do_not_judge_grew() -> None:
    usual, longer = program(MM, ADD, idle_us=30), program((*MM[:3], 400), ADD, idle_us=30)
    (told,) = times_note(usual, longer)
    assert told.startswith("steps took 158 us before and 458 us after, which counts do not judge")
    assert times_note(usual, usual) == ()
    assert times_note(usual, trace_of("| device_ops | name | start_us | end_us |\n| k | gemm | 10 | 50 |")) == ()


def test_every_setting_that_a_capture_keeps_could_do_something_and_none_could_do_all() -> None:
    kept = (*program_settings(), "threads", "anomaly_mode", "deterministic", "cudnn_deterministic", "cudnn_benchmark",
            "compiled_graphs", "attention", "matmul_precision", "ranks_here", "others_busy")  # fmt: skip
    for name in kept:
        could = [suspects({name: ("a", "b")}, (StepChange(kind, "", 1, ()),))[0].can_cause for kind in ChangeKind]
        assert 0 < sum(could) < len(could), name


def test_a_profiler_that_slows_one_side_more_is_told_beside_the_change() -> None:
    sides = program(MM, ADD, idle_us=400), program(MM, ADD)
    assert "without the profiler" not in page(compare_captures(sides)).title
    told = sides[0].with_unprofiled_step(130_000.0), sides[1].with_unprofiled_step(150_000.0)
    assert page(compare_captures(told)).title.startswith(
        "-400 us a step (+20.0 us without the profiler). Largest part, -400 us: "
    )
    alike = sides[0].with_unprofiled_step(530_000.0), sides[1].with_unprofiled_step(140_000.0)
    assert "without the profiler" not in page(compare_captures(alike)).title
    assert "step without the profiler" in [row.name for row in compare_captures(alike).rows]
    assert "step without the profiler" not in [row.name for row in compare_captures((sides[0], told[1])).rows]


@pytest.mark.parametrize(
    ("before", "after"),
    [("h100_Falconsai_nsfw_image_detection", "mi300_Falconsai_nsfw_image_detection"),
     ("h100_gaunernst_bert-small-uncased", "mi300_gaunernst_bert-small-uncased")],
)  # fmt: skip
def test_one_model_of_two_vendors_is_joined_by_operator_and_shapes(shared_data: Path, before: str, after: str) -> None:
    from timesink.readers import read

    folder = shared_data / "public" / "kineto"
    sides = [step_work(read([folder / f"{name}.json.gz"])) for name in (before, after)]
    ratio = explained_change(sides[0], sides[1]).joined_ratio
    assert ratio is not None
    assert ratio >= 0.95


SMALL = ("tf32_off", "adamw_one_by_one", "pageable_batch", "words_counted_by_one_rank", "bucket_of_everything")


def held(pairs: list[slower.Compared]) -> float:
    """Every view of a pair sums to its change; the share of those that show their fault in which it leads."""
    for pair in pairs:
        change_ns = pair.after_ns - pair.before_ns
        document = json.loads(render(pair.result, Format.JSON))
        totals = [sum(one["delta_ns"] for one in document[part]) for part in ("changes", "contributions", "budget")]
        totals += [sum(one["delta_ns"] for change in document["changes"] for one in change["works"])]
        totals += [sum(row[-1] for row in explained.works(pair.result).rows)]  # type: ignore[misc]
        assert all(abs(total - change_ns) <= 2 for total in totals), (pair.program, pair.tool, change_ns, totals)
        assert [one.kind for one in pair.result.changes][:1] == [ChangeKind[kind] for kind in pair.kinds[:1]]
        assert page(pair.result).title == explained.lead(pair.result) or not pair.kinds
        assert "unexplained" in explained.changes(pair.result).note
    shown = [pair.is_right for pair in pairs if pair.is_shown]
    return sum(shown) / len(shown)


@pytest.mark.slow
def test_planted_faults_lead_the_comparison_with_their_fix() -> None:
    pairs = list(slower.all_pairs(SMALL))
    assert len(pairs) == 9
    assert held(pairs) == 1.0


@pytest.mark.slow
def test_of_all_pairs_of_the_suite_nine_in_ten_lead_with_their_cause() -> None:
    pairs = list(slower.all_pairs())
    assert len(pairs) == 58
    assert held(pairs) >= 0.9
    assert held([pair for pair in pairs if slower.side_of(pair.program) == "aside"]) >= 0.9


def test_new_pairs_lead_with_their_cause_and_suspect_the_setting_that_was_changed() -> None:
    pairs = list(score.all_scored("tune", ("deterministic_on", "length_grown", "precision_up")))
    assert [one.name for one in pairs if one.is_right and one.apart_ratio < 0.02] == [
        "deterministic_on", "length_grown", "precision_up",
    ]  # fmt: skip
    assert [one.is_suspected for one in pairs] == [True, None, None]


def test_new_pairs_of_nsys_lead_with_their_cause() -> None:
    (pair,) = [one for one in score.all_scored("tune", ("nodes_pooled_by_index_add",)) if one.tool == "nsys"]
    assert pair.is_right
    assert pair.apart_ratio < 0.02
    assert pair.lead.endswith("other operators (indexFuncLargeIndex fp32 is new)")


@pytest.mark.slow
def test_of_all_new_pairs_nine_in_ten_lead_with_their_cause() -> None:
    shown = [one for one in score.all_scored() if one.is_shown]
    assert Counter(one.tool for one in shown) == {"torch": 29, "nsys": 15}
    aside = [one for one in shown if score.SIDE_OF[one.name] == "aside"]
    assert len({one.name for one in aside}) >= 16
    for part in (shown, aside):
        assert sum(one.is_right for one in part) >= 0.9 * len(part)
    assert all(one.apart_ratio < 0.02 and one.is_suspected is not False for one in shown)
    own_work = {"gradients_checked", "beams_kept_in_lists"}  # which the change adds, or the other side has
    alike = [one for one in shown if one.is_one_model]
    assert len(alike) == 18
    assert all((one.result.joined_ratio or 0) >= 0.95 for one in alike if one.name not in own_work)
    assert all((one.result.joined_ratio or 0) + (one.result.alone_ratio or 0) >= 0.95 for one in alike)
