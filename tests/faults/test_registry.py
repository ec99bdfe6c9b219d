"""The registry of planted faults: what it promises of every program, without running one."""

import ast
import json
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.faults import suite
from benchmarks.faults.plain import marked

from timesink.diagnosis.verdicts import Bottleneck

HOME = Path(suite.__file__).parent


def builders(topic: str) -> dict[str, str]:
    """The top-level functions of a topic's file and their docstrings."""
    tree = ast.parse(HOME.joinpath(*topic.split(".")).with_suffix(".py").read_text())
    return {node.name: ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("fault", suite.FAULTS, ids=lambda fault: fault.name)
def test_every_program_is_owed_a_bottleneck_and_has_a_builder_that_says_fault_and_fix(fault: suite.Fault) -> None:
    assert fault.bottleneck in set(Bottleneck)
    summary = builders(fault.topic)[fault.name].split("\n")[0]
    assert fault.healthy or fault.stacks or "; fixed, " in summary or "\nFixed, " in builders(fault.topic)[fault.name]


def test_names_are_used_once() -> None:
    names = [fault.name for fault in suite.FAULTS]
    assert len(names) == len(set(names))


def test_there_are_as_many_programs_as_were_asked_for() -> None:
    planted = [fault for fault in suite.FAULTS if not fault.healthy]
    assert len(planted) >= 28
    assert len(suite.FAULTS) - len(planted) >= 6


def test_about_a_third_is_held_back_and_the_choice_depends_on_the_name_alone() -> None:
    first = [fault for fault in suite.FAULTS if fault.part == 1]
    held_back = [fault.name for fault in first if fault.split == "evaluate"]
    assert 1 / 4 < len(held_back) / len(first) < 5 / 12
    assert suite.Fault("item_per_layer", "elsewhere", "none").split == suite.find("item_per_layer").split


def test_the_second_set_is_all_fresh_whatever_its_names_say_and_the_first_keeps_its_splits() -> None:
    fresh = [fault for fault in suite.FAULTS if fault.split == "fresh"]
    assert {fault.topic.startswith("second_") for fault in fresh} == {True}
    assert not [fault.name for fault in suite.FAULTS if fault.topic.startswith("second_") and fault not in fresh]
    assert sum(not fault.healthy for fault in fresh) == 14
    assert sum(fault.healthy for fault in fresh) == 4
    splits = Counter((fault.split, fault.healthy) for fault in suite.FAULTS if fault.part == 1)
    assert splits == {("tune", False): 32, ("tune", True): 6, ("evaluate", False): 15, ("evaluate", True): 2}


def test_the_third_set_keeps_the_split_that_was_written_down_before_its_captures() -> None:
    third = [fault for fault in suite.FAULTS if fault.part == 3]
    assert {fault.topic.startswith("third_") for fault in third} == {True}
    assert not [fault.name for fault in suite.FAULTS if fault.topic.startswith("third_") and fault not in third]
    assert {fault.name for fault in third if fault.split == "third_evaluate"} == {
        "exchanged_through_host", "attention_written_out_fp32", "trained_without_autocast", "experts_sliced_in_turn",
        "ddp_training",
    }  # fmt: skip
    splits = Counter((fault.split, fault.healthy) for fault in third)
    assert splits == {
        ("third_tune", False): 6, ("third_tune", True): 1, ("third_evaluate", False): 4, ("third_evaluate", True): 1
    }  # fmt: skip


def test_the_fifth_set_keeps_the_split_that_was_written_down_before_its_captures() -> None:
    fifth = suite.cases("fifth:")
    assert [case for case in suite.cases() if suite.find(case.fault).part == 5] == fifth
    assert {case.fault for case in suite.cases(split="fifth_evaluate")} == {
        "tokens_counted_by_one_rank", "wrapped_layers", "replicated_layers", "exchanged_behind_late_host",
        "sharded_per_microbatch", "validated_by_one_rank", "weights_gathered_one_by_one",
        "buffers_broadcast_one_by_one", "metrics_reduced_one_by_one", "exchanged_in_fp32",
    }  # fmt: skip
    faults = [suite.find(case.fault) for case in fifth]
    assert {(fault.gpus, fault.marked) for fault in faults} == {(2, False)}
    assert Counter((fault.split, fault.healthy) for fault in faults) == {
        ("fifth_tune", False): 22, ("fifth_tune", True): 6, ("fifth_evaluate", False): 8, ("fifth_evaluate", True): 2
    }  # fmt: skip


def test_the_sixth_set_is_unseen_as_a_whole() -> None:
    sixth = [suite.find(case.fault) for case in suite.cases("sixth:")]
    assert sixth == [fault for fault in suite.FAULTS if fault.part == 6]
    assert {(fault.gpus, fault.marked, fault.split) for fault in sixth} == {(2, False, "sixth")}
    assert Counter(fault.bottleneck for fault in sixth)["none"] == 1
    assert len(sixth) == 8


def test_the_seventh_set_keeps_the_split_that_was_written_down_before_its_captures() -> None:
    seventh = [suite.find(case.fault) for case in suite.cases("seventh:")]
    assert seventh == [fault for fault in suite.FAULTS if fault.part == 7]
    assert {(fault.gpus, fault.marked) for fault in seventh} == {(4, False)}
    assert {fault.name for fault in seventh if fault.split == "seventh_evaluate"} == {
        "sharded_on_four", "sums_in_pieces", "experts_uneven", "stages_of_three_and_one", "load_beside_one_rank",
        "more_sequences_on_one_rank", "buckets_of_a_parameter",
    }  # fmt: skip
    assert Counter((fault.split, fault.healthy) for fault in seventh) == {
        ("seventh_tune", False): 9, ("seventh_tune", True): 6,
        ("seventh_evaluate", False): 6, ("seventh_evaluate", True): 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "gpus", "counts"),
    [
        ("eighth", {1}, (9, 1, 6, 1)),
        ("ninth", {1}, (8, 2, 8, 1)),
        ("tenth", {1, 2}, (21, 6, 10, 1)),
        ("eleventh", {1}, (7, 3, 9, 1)),
        ("twelfth", {1}, (9, 1, 7, 3)),
        ("thirteenth", {2}, (4, 2, 5, 1)),
    ],
    ids=[
        "a third of the eighth",
        "half of the ninth",
        "a third of the tenth",
        "half of the eleventh",
        "half of the twelfth",
        "half of the thirteenth",
    ],
)
def test_later_sets_hold_no_marks_and_a_part_of_them_is_set_aside(
    name: str, gpus: set[int], counts: tuple[int, int, int, int]
) -> None:
    """`counts`: faults and healthy programs to tune on, and those set aside."""
    programs = [suite.find(case.fault) for case in suite.cases(f"{name}:")]
    assert {fault.gpus for fault in programs} == gpus
    assert not any(fault.marked for fault in programs)
    kinds = [(f"{name}_{part}", healthy) for part in ("tune", "evaluate") for healthy in (False, True)]
    assert Counter((fault.split, fault.healthy) for fault in programs) == dict(zip(kinds, counts, strict=True))


def test_the_thirteenth_set_is_owed_what_was_written_down_before_its_captures() -> None:
    owed = json.loads((HOME / "thirteenth" / "owed.json").read_text())
    programs = [fault for fault in suite.FAULTS if fault.part == 13]
    assert {fault.name for fault in programs} == owed.keys()
    for fault in programs:
        said = owed[fault.name]
        assert said["kinds"][0] == fault.bottleneck
        assert set(said["kinds"]) <= set(Bottleneck)
        assert said["split"] == fault.split
        assert fault.healthy == (not said["cause"])


def test_programs_of_two_ranks_have_two_severities_and_healthy_ones_three_sizes() -> None:
    jobs = [fault for fault in suite.FAULTS if fault.gpus > 1 and fault.part == 3]
    assert sum(not fault.healthy for fault in jobs) == 6
    assert {fault.severities for fault in jobs if not fault.healthy} == {("high", "low")}
    assert [fault.severities for fault in jobs if fault.healthy] == [suite.SIZES] * 2


def test_cases_are_chosen_by_split() -> None:
    parts = [suite.cases(split=split) for split in suite.SPLITS]
    assert sorted(case for part in parts for case in part) == sorted(suite.cases())
    assert {suite.find(case.fault).split for case in suite.cases(split="fresh")} == {"fresh"}
    with pytest.raises(SystemExit, match="in fresh"):
        suite.cases("item_per_layer", "fresh")


def test_cases_are_chosen_by_name_severity_and_topic() -> None:
    assert suite.cases("item_per_layer/low") == [suite.Case("item_per_layer", "low")]
    assert [case.severity for case in suite.cases("item_per_layer")] == ["high", "low", "harmless"]
    assert {case.fault for case in suite.cases("optimizers:")} == {"adamw_one_by_one", "sgd_one_by_one"}


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(SystemExit, match="item_per_layer"):
        suite.cases("no_such_program")


@pytest.mark.parametrize("fault", [fault for fault in suite.FAULTS if fault.part in {11, 12} and not fault.healthy])
def test_every_fault_of_two_sets_has_its_line(fault: suite.Fault) -> None:
    file, lines = marked(fault.name)
    assert lines and (HOME / fault.folder / file).exists()
