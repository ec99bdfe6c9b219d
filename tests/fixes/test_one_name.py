"""One table of names: cause, finding, change, verb. Each door takes the names that every other door prints.

The sources are `step_parts.Bottleneck` (causes), the texts of rules (findings), `fixes.table` (changes) and the recipes
(what `try` switches and `fix` edits); nothing else may hold a name of its own.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from importlib.resources import files

import pytest

import write_pages
from timesink.cli.trial import chosen_names
from timesink.diagnosis.registry import all_rules, find
from timesink.diagnosis.rule import page_paths, rule_texts
from timesink.diagnosis.rule_names import causes_of, rules_called
from timesink.fixes.table import BY_NAME, EDITS, FIXES, fixes_of, parse_change
from timesink.knowledge.programs import ProgramKind
from timesink.knowledge.step_parts import IDLE_WORDS, Bottleneck
from timesink.recipes.table import EDITS as EDITED
from timesink.recipes.table import RECIPES, SWITCHES

CAUSES = [cause for cause in Bottleneck if cause not in (Bottleneck.NONE, Bottleneck.UNDECIDED)]
BAR_ONLY = {
    *("staging of copies", "compilation", "checkpoint", "optimizer on the CPU", "logging", "framework dispatch"),
    *("launch latency", "waits for communication", "waits for a copy", "waits for another stream", "unexplained"),
    *("gaps between queued kernels", "gaps inside CUDA graphs", "gaps before page migrations"),
}
"""Parts of idle time that several causes have, or that the device makes by itself: no finding is called so."""


def found_by() -> dict[str, set[str]]:
    """The causes that the texts of rules name, each with the rules."""
    rules = defaultdict[str, set[str]](set)
    for name in page_paths():
        texts = rule_texts(name)
        for said in (texts.said, *texts.variants.values()):
            if "bottleneck" in said:
                rules[said["bottleneck"]].add(name)
    return rules


def names() -> Iterator[str]:
    yield from (cause.value for cause in CAUSES)
    yield from (fix.name for fix in (*FIXES, *EDITS))


def test_every_cause_is_found_by_a_rule_and_no_rule_finds_another() -> None:
    """But `engine-late`, whose findings are of what its engine waits for."""
    assert found_by().keys() - {"engine_late"} == {cause.value for cause in CAUSES}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_is_typed_as_it_is_printed(cause: Bottleneck) -> None:
    """In the words of the verdict, of the row and of JSON: for `explain`, and for `plan --change`."""
    for spelled in (cause.value, cause.value.replace("_", "-")):
        assert find(spelled).code
        assert parse_change(spelled).fix.name == cause.value or parse_change(spelled).fix in FIXES


def test_a_rule_is_called_as_its_only_cause() -> None:
    """With a word behind it where another rule finds the same: `graph-breaks-logged`."""
    of_one = {name: {*causes_of(name)} for name in page_paths() if len(causes_of(name)) == 1}
    assert len(of_one) > 60
    for name, (cause,) in of_one.items():
        assert name == (called := cause.replace("_", "-")) or (name.startswith(f"{called}-") and called in page_paths())


def test_what_a_finding_is_called_chooses_all_rules_that_find_it() -> None:
    """`--only` and `--skip` take the name of a row as it is printed."""
    for name in page_paths():
        for cause in causes_of(name):
            chosen = {rule.name for rule in rules_called([cause.replace("_", "-")])}
            assert chosen
            if rule_texts(name).said["bottleneck"] == cause:
                assert name in chosen
    assert {rule.code for rule in rules_called(["graph-breaks"])} == {"CMP101", "CMP102"}
    assert {rule.code for rule in rules_called(["recompilation"])} == {"CMP103", "IDL107"}
    assert {rule.code for rule in rules_called(["Host to device copy"])} == {"CPY101", "CPY102"}
    assert {"CPY101", "CPY102"} < {rule.code for rule in rules_called(["device_to_host_copy"])}
    assert find("device-to-host-copy").code == "CPY101"


GIVEN = {"scale": " op:x 0.5", "scale_host": " op:x 0.5", "drop": " op:x", "streams": " 2"}


@pytest.mark.parametrize("name", sorted({*names()}))
def test_a_change_is_typed_as_a_plan_prints_it(name: str) -> None:
    for spelled in (name, name.replace("_", "-")):
        assert parse_change(f"{spelled}{GIVEN.get(name, '')}").fix.name == name


def test_what_is_tried_and_edited_is_a_change_of_the_table() -> None:
    assert {*SWITCHES, *EDITED} <= {*RECIPES} <= {*BY_NAME}
    assert len({fix.name for fix in FIXES}) == len(FIXES)
    assert chosen_names(["bf16,tf32", "cuda_graph"]) == ["bf16", "tf32", "cuda_graph"]
    for kind in ProgramKind:
        assert {fix.name for fix in fixes_of(kind)} <= {*BY_NAME}


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.name)
def test_a_change_answers_findings_that_there_are(fix: object) -> None:
    named = {rule.card.name.replace("-", "_") for rule in all_rules()}
    for answered in BY_NAME[fix.name].answers:  # type: ignore[attr-defined]
        assert answered.partition("/")[0] in named, answered
    for other in (*BY_NAME[fix.name].needs, *BY_NAME[fix.name].after, *BY_NAME[fix.name].excludes):  # type: ignore[attr-defined]
        assert other in BY_NAME


def test_the_bar_has_the_words_of_causes_and_no_near_ones() -> None:
    words = {cause.value.replace("_", " ") for cause in CAUSES}
    own = {said for said in IDLE_WORDS.values() if said.lower() not in words}
    assert own == BAR_ONLY
    assert {said.lower() for said in IDLE_WORDS.values()} - {said.lower() for said in BAR_ONLY} <= words


def test_the_schema_of_json_has_the_same_causes() -> None:
    schema = json.loads(files("timesink.render.schemas").joinpath("diagnosis.schema.json").read_text())
    lists = [found for found in _enums(schema) if "input_pipeline" in found]
    assert lists and all({*found} == {cause.value for cause in Bottleneck} for found in lists)


def _enums(schema: object) -> Iterator[list[str]]:
    if isinstance(schema, dict):
        if isinstance(schema.get("enum"), list):
            yield schema["enum"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _enums(part)


def test_the_page_of_changes_is_made_from_the_same_table() -> None:
    page = write_pages.changes_page().partition("## By cause")[2]
    told = {row.split(" | ")[0].strip("| `"): row for row in page.splitlines() if row.startswith("| `")}
    assert {*told} == {cause.value.replace("_", "-") for cause in CAUSES}
    for cause, rules in found_by().items():
        if cause != "engine_late":
            assert all(f"[{name}](rules/" in told[cause.replace("_", "-")] for name in rules)
