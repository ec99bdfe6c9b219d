import json
import re
from pathlib import Path

import jsonschema
import pytest
from tests.verify.runs_by_hand import row

from timesink.records import replace
from timesink.render import Format, render
from timesink.render import gate as pages
from timesink.render.gate import ci, explained, headline, sentence
from timesink.render.schemas import schema
from timesink.verify.outcomes import (
    ChangedWork,
    ChangeKind,
    ChangeVerdict,
    Contribution,
    Effect,
    Fate,
    FindingChange,
    GateResult,
    GateRow,
    How,
    Outcome,
    RangeChange,
    RangeSide,
    Reason,
    StepChange,
)

etree = pytest.importorskip("lxml.etree", reason="lxml validates XML against a schema")

HOSTILE = (
    "\n::error::owned",
    "::add-mask::x",
    "a|b`c``",
    "<script>alert(1)</script>",
    "]]>&<!--",
    "\x1b]52;c;eA==\x07\x00\ud800\ufffe",
    "@everyone ![x](http://evil.example/x.png) www.evil.example",
    "##[error]x",
    "=cmd()",
    '"} 1\n# EOF',
    "a" * 5000,
    "%0A::error::",
    "-->",
)
SLOWER = ChangeVerdict(
    Outcome.SLOWER, 0.01, Effect(1.034, 1.021, 1.048, 0.95), pairs=6, run_sd_ratio=0.005, false_alarm_ratio=2e-4
)
NOISY = ChangeVerdict(
    Outcome.INCONCLUSIVE, 0.02, Effect(1.01, 0.98, 1.05, 0.95), Reason.TOO_NOISY, "wide", "20 pairs", 18, 0.03
)
INVALID = ChangeVerdict(Outcome.INVALID, 0.02, None, Reason.WRONG_RESULT, "loss 2.1 and 7.0", "fix the program")


def gate_row(verdict: ChangeVerdict, name: str = "step time (mean)", **changed: object) -> GateRow:
    return replace(GateRow(name, "s", 0.0100, 0.01034, verdict), **changed)  # type: ignore[arg-type]


def result(*rows: GateRow, **changed: object) -> GateResult:
    return replace(GateResult("suite", "same-job A/B", rows), **changed)  # type: ignore[arg-type]


def hostile(text: str) -> GateResult:
    """Every field that may hold a trace's text holds it."""
    rows = [
        gate_row(replace(v, explanation=text, to_resolve=text, notes=(text,)), text) for v in (SLOWER, NOISY, INVALID)
    ]
    rows.append(replace(gate_row(ChangeVerdict(Outcome.NO_DIFFERENCE, 0.0), text), how=How.EXACT, limit=text))
    found = FindingChange(text, text, text, Fate.NEW, 1.0, 2.0, text, 3)
    run = row(0.01, check=text, slowed_by=(text,), foreign=(text,))
    parts = (Contribution(text, 1, 2),)
    return GateResult(
        text,
        "two captures",
        tuple(rows),
        differences={text: (text, text)},
        contributions=parts,
        budget=parts,
        findings=(found,),
        ranges=(RangeChange(text, RangeSide(1, 2.0, 3.0), None),),
        runs=(run,),
        notes=(text,),
    )


@pytest.fixture(scope="module")
def junit_schema() -> object:
    return etree.XMLSchema(etree.parse(str(Path(__file__).with_name("junit.xsd"))))


def test_the_sentence_states_change_interval_pairs_threshold_noise_and_false_alarm() -> None:
    assert sentence(gate_row(SLOWER)) == (
        "slower: +3.4 % (95 % CI +2.1 … +4.8 %), 6 pairs, threshold 1 %, run sd 0.5 %, p(false alarm) < 0.1 %"
    )


def test_a_gain_states_the_change_and_the_speed_up_once_each() -> None:
    faster = ChangeVerdict(Outcome.FASTER, 0.02, Effect(0.8, 0.79, 0.81, 0.95), pairs=6)
    assert sentence(gate_row(faster)).startswith("faster: -20.0 % (95 % CI -21.0 … -19.0 %), speed-up 1.25x, 6 pairs")


def test_an_invalid_comparison_has_no_number_in_its_headline() -> None:
    assert headline(result(gate_row(INVALID))) == (
        "suite: step time (mean) invalid: wrong result: loss 2.1 and 7.0. To resolve: fix the program"
    )


def test_the_worst_row_decides_the_headline_and_the_exit_code() -> None:
    both = result(gate_row(NOISY, "a"), gate_row(SLOWER, "b"))
    assert "b slower: +3.4 %" in headline(both)
    assert (both.exit_code(), result(gate_row(NOISY)).exit_code(), result(gate_row(NOISY)).exit_code(strict=True)) == (
        1,
        0,
        3,
    )
    assert result(gate_row(INVALID), gate_row(SLOWER)).exit_code() == 4
    assert result().exit_code() == 4


def test_a_verdict_that_rests_on_an_assumption_cannot_fail_the_gate() -> None:
    tagged = result(gate_row(replace(SLOWER, tagged=True)))
    assert (tagged.outcome, tagged.exit_code(), tagged.exit_code(strict=True)) == (Outcome.INCONCLUSIVE, 0, 3)


def test_rows_that_are_not_gated_decide_nothing() -> None:
    even = ChangeVerdict(Outcome.NO_DIFFERENCE, 0.01)
    assert result(gate_row(even), gate_row(SLOWER, "tail", gated=False)).exit_code() == 0


def test_a_counter_is_worse_not_slower_and_shows_its_difference() -> None:
    counter = GateRow("launches per step", "launches", 812, 900, ChangeVerdict(Outcome.SLOWER, 0.0), how=How.EXACT)
    assert sentence(counter).startswith("worse: +88 launches")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "made", [result(gate_row(SLOWER), gate_row(NOISY), gate_row(INVALID)), result(), *map(hostile, HOSTILE)]
)
def test_json_obeys_its_schema_and_is_plain_ascii(made: GateResult, strict: bool) -> None:
    text = render(made, Format.JSON, strict=strict)
    jsonschema.Draft202012Validator(schema("gate")).validate(json.loads(text))
    assert text.isascii()
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "made", [result(gate_row(SLOWER), gate_row(NOISY), gate_row(INVALID)), result(), *map(hostile, HOSTILE)]
)
def test_junit_obeys_its_schema_and_counts_its_cases(made: GateResult, junit_schema: object) -> None:
    for strict in (False, True):
        root = etree.fromstring(ci.junit_xml(made, strict=strict).encode())
        junit_schema.assertValid(root)  # type: ignore[attr-defined]
        for tag, attribute in (("failure", "failures"), ("error", "errors"), ("testcase", "tests")):
            assert len(root.findall(f".//{tag}")) == int(root.get(attribute))


def test_junit_maps_slower_invalid_and_inconclusive() -> None:
    made = result(
        gate_row(SLOWER, "a"),
        gate_row(INVALID, "b"),
        gate_row(NOISY, "c"),
        gate_row(ChangeVerdict(Outcome.FASTER, 0.02), "d"),
    )
    kinds = {
        strict: [
            (case.get("name"), [child.tag for child in case])
            for case in etree.fromstring(ci.junit_xml(made, strict=strict).encode()).iter("testcase")
        ]
        for strict in (False, True)
    }
    assert kinds[False] == [("a", ["failure"]), ("b", ["error"]), ("c", ["skipped"]), ("d", [])]
    assert kinds[True][2] == ("c", ["failure"])


@pytest.mark.parametrize("text", HOSTILE)
def test_every_annotation_is_one_command_of_ours(text: str) -> None:
    lines = ci.workflow_commands(hostile(text)).splitlines()
    assert [re.match(r"::(\w+) ", line)[1] for line in lines] == ["error", "error", "warning", "notice"]  # type: ignore[index]
    for line in lines:
        properties = line.split("::")[1]
        assert properties.count("title=") == 1
        assert all(part.count("=") >= 1 for part in properties.split(" ", 1)[1].split(","))


def test_annotations_stay_under_the_limit_of_ten_errors_and_ten_warnings_per_step() -> None:
    many = result(*(gate_row(v, f"{n}") for n in range(40) for v in (SLOWER, NOISY, INVALID)))
    lines = ci.workflow_commands(many).splitlines()
    assert sum(line.startswith("::error") for line in lines) == 5
    assert sum(line.startswith("::warning") for line in lines) == 5


def test_annotation_text_is_escaped_as_github_asks() -> None:
    made = result(gate_row(replace(SLOWER, explanation="100%"), "a: b, c"))
    assert "title=timesink%3A a%3A b%2C c::" in ci.workflow_commands(made)
    assert "100%25" in ci.workflow_commands(made)


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_links_nowhere_mentions_nobody_and_breaks_no_table(text: str) -> None:
    body = ci.render_markdown(hostile(text))
    assert body.splitlines()[0].startswith("<!-- timesink:")
    assert body.splitlines()[0].count("-->") == 1
    prose = re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", body)  # in a code span nothing acts
    assert not re.search(r"(?<!\\)<(?!!--|/?details|/?summary)", prose)
    assert "@everyone" not in prose
    assert not re.search(r"(?<!\\)\]\(", prose)
    assert not re.search(r"^\s*::", body, re.MULTILINE)
    table = [line for line in body.splitlines() if line.startswith("| ")]
    pipes = {len(re.findall(r"(?<!\\)\|", line)) for line in table[:4]}
    assert pipes == {6}


def test_the_comment_is_found_again_by_its_marker() -> None:
    slow, even = ci.render_markdown(result(gate_row(SLOWER))), ci.render_markdown(result(gate_row(NOISY)))
    assert slow.splitlines()[0] == even.splitlines()[0] == "<!-- timesink:suite -->"


def test_comment_and_summary_keep_their_limits_and_the_headline() -> None:
    runs = tuple(row(0.01, number=number, foreign=("x" * 190,)) for number in range(4_000))
    huge = result(gate_row(SLOWER), runs=runs, notes=("n" * 1500,) * 2000)
    assert len(ci.render_markdown(huge)) <= 65_536
    assert len(ci.summary(huge).encode()) <= 1024 * 1024
    assert "slower: +3.4 %" in ci.render_markdown(huge).splitlines()[1]


def test_the_table_shows_the_fifteen_worst_and_says_how_many_more() -> None:
    rows = [gate_row(ChangeVerdict(Outcome.NO_DIFFERENCE, 0.01), f"even {n:02}") for n in range(19)]
    sheet = pages.metrics(result(*rows, gate_row(SLOWER, "slow one")), 15)
    assert sheet.rows[0][0] == "slow one"
    assert (len(sheet.rows), sheet.note) == (15, "5 more are not shown")


def test_works_that_are_not_shown_are_summed_so_that_the_column_adds_up() -> None:
    works = [ChangedWork(f"op {n}", "", "", "", "", 1, 1, 1000 * n, 900 * n + 7, 7 - 100 * n) for n in range(40)]
    change = StepChange(ChangeKind.SLOWER, "", sum(one.delta_ns for one in works), tuple(works))
    sheet = explained.works(result(changes=(change,)))
    assert sum(line[-1] for line in sheet.rows) == change.delta_ns  # type: ignore[misc]
    assert (len(sheet.rows), sheet.rows[-1][0]) == (16, "25 others")


@pytest.mark.parametrize("text", HOSTILE)
def test_the_terminal_shows_no_control_character(text: str) -> None:
    shown = render(pages.page(hostile(text)), Format.TEXT, width=100)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)
    assert not re.search(r"^\s*::(error|add-mask)", shown, re.MULTILINE)


@pytest.mark.parametrize("text", HOSTILE)
def test_open_metrics_lines_are_samples_or_comments_and_end_once(text: str) -> None:
    lines = ci.open_metrics(hostile(text)).splitlines()
    assert lines[-1] == "# EOF"
    assert lines.count("# EOF") == 1
    sample = re.compile(r'timesink_\w+\{\w+="(?:[^"\\]|\\.)*"(?:,\w+="(?:[^"\\]|\\.)*")*\} [-+0-9.e]+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)


def test_code_quality_lists_findings_with_a_relative_file_once_each() -> None:
    found = FindingChange("H2D101", "pageable-copy", "copies wait", Fate.NEW, None, 1.9, "src/train.py", 40)
    fates = [
        found,
        replace(found, line=41, fate=Fate.CHANGED),
        replace(found, fate=Fate.GONE),
        replace(found, file=None),
    ]
    elsewhere = [replace(found, file=path) for path in ("/usr/x.py", "../x.py", "C:/x.py")]
    entries = json.loads(ci.code_quality(result(findings=tuple(fates + elsewhere))))
    assert [(e["severity"], e["location"]) for e in entries] == [
        ("major", {"path": "src/train.py", "lines": {"begin": 40}}),
        ("minor", {"path": "src/train.py", "lines": {"begin": 41}}),
    ]
    assert len({e["fingerprint"] for e in entries}) == 2


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([SLOWER], ["step time (mean)"]), ([NOISY], []), ([ChangeVerdict(Outcome.FASTER, 0.01)], []),
        ([replace(SLOWER, tagged=True)], []), ([SLOWER, NOISY, SLOWER], ["step time (mean)", "number 2"]),
    ],
)  # fmt: skip
def test_code_quality_has_an_entry_for_each_number_that_fails_the_gate(
    rows: list[ChangeVerdict], names: list[str]
) -> None:
    """First contact defect B20: a change that was proven slower had none."""
    gated = [gate_row(row, f"number {at}" if at else "step time (mean)") for at, row in enumerate(rows)]
    entries = json.loads(ci.code_quality(result(*gated)))
    assert sorted(entry["description"].partition(":")[0] for entry in entries) == sorted(names)
    assert all("slower: +3.4 %" in entry["description"] and entry["severity"] == "major" for entry in entries)
    assert all(entry["location"]["path"] == ".gitlab-ci.yml" for entry in entries)
    assert len({entry["fingerprint"] for entry in entries}) == len(names)


@pytest.mark.parametrize("text", HOSTILE)
def test_code_quality_is_json_whatever_a_finding_is_called(text: str) -> None:
    found = FindingChange(text, text, text, Fate.NEW, file="src/a.py")
    assert len(json.loads(ci.code_quality(result(findings=(found,))))) == 1


@pytest.mark.parametrize("form", [Format.TEXT, Format.MD])
def test_a_headline_never_contradicts_its_rows(form: Format) -> None:
    """First contact defect 12: what rests on an assumption is unproven in the headline and in its row alike."""
    assumed = replace(SLOWER, tagged=True, notes=("rests on an assumed run-to-run deviation of 1 %",))
    shown = render(result(gate_row(assumed)), form, width=160)
    assert headline(result(gate_row(assumed))) == (
        "suite: step time (mean) +3.4 % (10.00 ms → 10.34 ms), inconclusive: slower, not proven; "
        "rests on an assumed run-to-run deviation of 1 %"
    )
    assert "✗" not in shown
    assert "? slower, not proven" in shown


def test_what_was_seen_is_in_the_headline_also_where_it_decides_nothing() -> None:
    """First contact defect 12."""
    assert headline(result(gate_row(NOISY))).startswith(
        "suite: step time (mean) +1.0 % (10.00 ms → 10.34 ms), inconclusive: too noisy"
    )
