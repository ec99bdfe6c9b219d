"""SARIF and GitLab Code Quality: the fields that both specifications ask for, and where findings stand.

The whole schema of SARIF (112 kB, of OASIS) is not kept here; the document of the bundled capture was held against it.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.render.diagnoses import diagnosis, healthy

from timesink.diagnosis.verdicts import Diagnosis, Quantity, Where
from timesink.errors import UsageError
from timesink.model.presentable import Origin
from timesink.records import replace
from timesink.render import Format, Style, render, written
from timesink.render.code_findings import inside

TEXT = {"type": "string", "minLength": 1}


def needs(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def many(items: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return {"type": "array", "minItems": least, "items": items}


# SARIF 2.1.0: 3.13 sarifLog, 3.14 run, 3.18 tool, 3.19 toolComponent, 3.20 invocation, 3.27 result, 3.49 rules.
MESSAGE = needs(text=TEXT)
PLACE = needs(
    artifactLocation=needs(uri={**TEXT, "pattern": r"^[A-Za-z0-9._~/%-]+$"}),
    region=needs(startLine={"type": "integer", "minimum": 1}),
)
RESULT = needs(
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    locations=many(needs(physicalLocation=PLACE), 1),
)
DRIVER = needs(
    name=TEXT, version=TEXT, rules=many(needs(id=TEXT, name=TEXT, shortDescription=MESSAGE, help=MESSAGE), 1)
)
NOTICE = needs(level={"enum": ["none", "note", "warning", "error"]}, message=MESSAGE)
INVOCATION = needs(executionSuccessful={"type": "boolean"}, toolExecutionNotifications=many(NOTICE))
SARIF = needs(
    version={"const": "2.1.0"},
    runs=many(needs(tool=needs(driver=DRIVER), invocations=many(INVOCATION, 1), results=many(RESULT)), 1),
)
# GitLab's "Code Quality report format": an array, each entry with these five.
ENTRY = needs(
    description=TEXT,
    check_name=TEXT,
    fingerprint=TEXT,
    severity={"enum": ["info", "minor", "major", "critical", "blocker"]},
    location=needs(path={**TEXT, "pattern": r"^(?!\./|/)"}, lines=needs(begin={"type": "integer", "minimum": 1})),
)
AT = Style(origin=Origin("diagnose", ("runs/a b.json",)))


def at(where: Where, value: float = 2.1) -> Diagnosis:
    made = diagnosis()
    ((card, finding),) = made.findings
    found = replace(finding, where=where, recoverable=Quantity(value, "ms"), message=f"takes {value} ms")
    return replace(made, findings=((card, found), (card, found)))


def sarif(made: Diagnosis) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(written(made, Format.SARIF, AT))
    jsonschema.validate(document, SARIF)
    (run,) = document["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert isinstance(run, dict)
    return run


def gitlab(made: Diagnosis) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(written(made, Format.GITLAB, AT))
    jsonschema.validate(entries, many(ENTRY))
    return entries


def test_a_finding_stands_at_its_line_and_else_at_the_capture() -> None:
    for where, place in (
        (Where(file="src/my train.py", line=7), ("src/my train.py", 7)),
        (Where(file=str(Path.cwd() / "train.py"), line=3), ("train.py", 3)),
        (Where(file="/usr/lib/torch/x.py", line=9), ("runs/a b.json", 1)),
        (Where(op="aten::add"), ("runs/a b.json", 1)),
    ):
        made = at(where)
        found = gitlab(made)[0]["location"]
        assert (found["path"], found["lines"]["begin"]) == place
        physical = sarif(made)["results"][0]["locations"][0]["physicalLocation"]
        assert physical == {
            "artifactLocation": {"uri": place[0].replace(" ", "%20")},
            "region": {"startLine": place[1]},
        }


@pytest.mark.parametrize("path", ["/elsewhere/run 1.json.gz", "../run.json", "C:/run.json", "s3://bucket/run.json", ""])
def test_every_result_has_a_location_though_the_capture_lies_elsewhere(path: str) -> None:
    """GitHub refuses the whole file where one result has none: "expected at least one location"."""
    made = replace(at(Where(op="aten::add")), sources=({"path": path},))
    document = json.loads(written(made, Format.SARIF, Style()))
    for result in document["runs"][0]["results"]:
        (location,) = result["locations"]
        named = path.rpartition("/")[2].replace(" ", "%20") or "capture"
        assert location["physicalLocation"]["artifactLocation"]["uri"] == named


@pytest.mark.parametrize(
    "file", ["", "../x.py", "/x.py", "C:/x.py", "C:\\x.py", "a\\..\\b", "~/x.py", ".", "a/../../x.py", "s3://b/x.json"]
)
def test_what_lies_elsewhere_or_might_is_no_place(file: str) -> None:
    assert inside(file) == ""


def test_a_finding_has_the_same_fingerprint_in_the_next_run_and_no_other_has_it() -> None:
    where = Where(file="train.py", line=7, op="aten::item")
    first, again = (gitlab(at(where, value)) for value in (2.1, 2.4))
    assert [one["fingerprint"] for one in first] == [one["fingerprint"] for one in again]
    other = gitlab(at(replace(where, line=8)))
    assert len({one["fingerprint"] for one in (*first, *other)}) == 4
    assert [one["partialFingerprints"]["timesinkFinding/v1"] for one in sarif(at(where))["results"]] == [
        one["fingerprint"] for one in first
    ]


@pytest.mark.parametrize(
    ("value", "level", "severity"), [(0.1, "note", "info"), (0.6, "warning", "minor"), (2, "warning", "major")]
)
def test_what_a_fix_saves_decides_how_loud_a_finding_is(value: float, level: str, severity: str) -> None:
    made = at(Where(), value)  # of a step of 12 ms
    assert (sarif(made)["results"][0]["level"], gitlab(made)[0]["severity"]) == (level, severity)


def test_nothing_found_is_an_empty_list_and_damage_is_told() -> None:
    assert (sarif(healthy())["results"], gitlab(healthy())) == ([], [])
    (invocation,) = sarif(replace(healthy(), partial="the file is cut off"))["invocations"]
    assert not invocation["executionSuccessful"]
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "the file is cut off"


def test_a_format_that_a_result_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="not written as csv; choose one of: text, json, md, html, sarif, gitlab"):
        render(healthy(), Format.CSV)
