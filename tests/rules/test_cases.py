"""The case format says what it seems to say, and each law over rules can fail."""

from pathlib import Path

import pytest
from tests.rules import rule_laws as laws
from tests.rules.case_tables import BadCase
from tests.rules.cases import Case, differences, read_cases
from tests.rules.example_rule import RULE

from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Clear, Found
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.records import replace

EXAMPLE = Path(__file__).with_name("example_rule.cases.md")


def one_case(tmp_path: Path, text: str) -> Case:
    path = tmp_path / "rule.cases.md"
    path.write_text(text, encoding="utf-8")
    (case,) = read_cases(path)
    return case


def test_the_example_obeys_every_law() -> None:
    cases = read_cases(EXAMPLE)
    assert [fault for case in cases for fault in laws.case_faults(RULE, case)] == []
    assert [fault for case in cases for fault in laws.undeclared_tables(RULE, case)] == []
    assert laws.page_faults(RULE.card.doc) == []
    assert laws.card_faults(RULE.card) == []
    assert laws.verdict_faults(RULE, cases) == []
    assert laws.near_miss_faults(RULE, cases) == []


def test_times_sizes_and_defaults_are_what_is_written(tmp_path: Path) -> None:
    case = one_case(
        tmp_path,
        """
## sizes
- Verdict: clear

| device_ops | kind | name | start_us | end_ms | bytes  | copy_kind | correlation |
|------------|------|------|---------:|-------:|-------:|-----------|------------:|
| a          | copy | `a\\|b` |    0.5 |      2 | 1.5 MB | h2d       |           3 |
""",
    )
    row = case.trace[DEVICE_OPS].row(0, named=True)
    assert (row["start_ns"], row["end_ns"], row["bytes"]) == (500, 2_000_000, 1_500_000)
    assert (row["name"], row["copy_kind"], row["correlation"]) == ("a|b", "h2d", 3)
    assert (row["rank"], row["device"], row["stream"], row["context"]) == (0, 0, 7, None)


def test_repeat_shifts_times_and_ids_and_numbers_names(tmp_path: Path) -> None:
    case = one_case(
        tmp_path,
        """
## steps
- Verdict: clear
- Repeat: 2 times, every 10 ms

| ranges | name             | start_ms | end_ms |
|--------|------------------|---------:|-------:|
| step   | ProfilerStep#{n} |        0 |      9 |
| inside | forward          |        1 |      4 |

| api_calls | name             | start_ms | end_ms | correlation | times | every_us |
|-----------|------------------|---------:|-------:|------------:|------:|---------:|
| launch    | cudaLaunchKernel |        1 |    1.1 |           5 |     2 |      200 |
""",
    )
    trace = case.trace
    ranges, calls = trace[RANGES], trace[API_CALLS]
    assert ranges["name"].to_list() == ["ProfilerStep#0", "forward", "ProfilerStep#1", "forward"]
    assert ranges["start_ns"].to_list() == [0, 1_000_000, 10_000_000, 11_000_000]
    assert ranges["depth"].to_list() == [0, 1, 0, 1]
    assert calls["start_ns"].to_list() == [1_000_000, 1_200_000, 11_000_000, 11_200_000]
    assert calls["correlation"].to_list() == [5, 6, 100_005, 100_006]


def test_a_table_without_rows_was_recorded_and_one_that_is_not_written_was_not(tmp_path: Path) -> None:
    case = one_case(tmp_path, "## none\n- Verdict: clear\n\n| host_ops | name |\n|---|---|\n")
    assert case.trace[HOST_OPS].height == 0
    assert DEVICE_OPS not in case.trace


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("## a\n", "has no `- Verdict:`"),
        ("## a\n- Verdict: maybe\n", "line 2: a verdict is one of"),
        ("## a\n- Verdikt: clear\n", "no key is called 'verdikt'"),
        ("## a\n- Verdict: clear\n| kernels | x |\n|---|---|\n", "line 3: no table is called 'kernels'"),
        ("## a\n- Verdict: clear\n| host_ops | nam |\n|---|---|\n| a | b |\n", "has no column 'nam'"),
        ("## a\n- Verdict: clear\n| device_ops | kind |\n|---|---|\n| a | memset |\n", "line 5: 'memset' is none of"),
        ("## a\n- Verdict: clear\n| host_ops | start_ns |\n|---|---|\n| a | 0.5 |\n", "not a whole number"),
        ("## a\n- Verdict: clear\n| host_ops | name |\n|---|---|\n| a | b | c |\n", "line 5: 2 values under 1"),
        ("## a\n- Verdict: clear\n## a\n- Verdict: clear\n", "two cases have the same title"),
        ("## a\n- Verdict: clear\n- Repeat: often\n", "write `Repeat: 6 times, every 10 ms`"),
    ],
)
def test_a_wrong_case_file_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "rule.cases.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadCase, match=complaint):
        for case in read_cases(path):
            _ = case.trace


def wrong(case: Case, **said: str) -> list[str]:
    says = tuple((key.replace("_", " "), text) for key, text in said.items())
    changed = replace(case, expected=replace(case.expected, says=says))
    return differences(changed, RULE.verdict(case.trace))


def test_every_expectation_can_fail() -> None:
    found, clear, *_, missing = read_cases(EXAMPLE)
    assert wrong(found, message="3.3 ms")
    assert wrong(found, where="device 1")
    assert wrong(found, evidence="longest copy 2.3 ms")
    assert wrong(found, evidence="longest copy 2.2 us")
    assert wrong(found, claim="2.3 ms")
    assert wrong(clear, evidence="longest copy 1.9 ms")
    assert wrong(missing, why="no kernel ran")
    verdict = Clear(())
    assert differences(found, verdict) == [f"expected Found, got {verdict}"]


def test_each_law_over_rules_can_fail() -> None:
    cases = read_cases(EXAMPLE)
    assert laws.page_faults("A page.")[0] == "no heading '## What it detects'"
    assert len(laws.card_faults(replace(RULE.card, code="X1", name="Long copy", summary="Ends."))) == 3
    assert laws.limit_faults({"x": Limit(1.0, "ms", why="", source="")}) == [
        "limit x has no why",
        "limit x has no source",
    ]
    assert laws.verdict_faults(RULE, cases[1:]) == ["no case shows 'found'"]
    assert laws.undeclared_tables(replace(RULE, needs=()), cases[0]) == ["device_ops"]
    one_side = "no case changes its verdict when copy_ms is raised from 2 to (2.5,)"
    assert laws.near_miss_faults(RULE, cases[1:]) == [one_side]


def test_a_finding_in_words_of_degree_or_without_figures_is_refused() -> None:
    verdict = RULE.verdict(read_cases(EXAMPLE)[0].trace)
    assert isinstance(verdict, Found)
    (finding,) = verdict.findings
    vague = replace(finding, message="significant copy time", evidence=())
    assert laws.style_faults(replace(verdict, findings=(vague,))) == [
        "adjective of degree 'significant' in 'significant copy time Copy less.'",
        "no number with a unit in 'significant copy time'",
        "no evidence names its limit: 'significant copy time'",
    ]


def test_a_limit_overridden_by_a_case_is_used() -> None:
    found = read_cases(EXAMPLE)[0]
    assert isinstance(RULE.verdict(found.trace, {"copy_ms": 3.0}), Clear)
    assert RULE.verdict(Trace("empty", {})).why == "the trace has no table device_ops"  # type: ignore[union-attr]
