"""The JSON of a diagnosis obeys its shipped schema and says what the diagnosis says."""

import json
from copy import deepcopy
from typing import Any

import jsonschema
import pytest
from tests.render.diagnoses import diagnosis, healthy

from timesink.diagnosis.verdicts import Bottleneck, Diagnosis, Quantity, StepFigures
from timesink.records import replace
from timesink.render import Format, render
from timesink.render.schemas import ENVELOPE, NAMES, schema

VALIDATOR = jsonschema.Draft202012Validator(schema("diagnosis"))


def rendered(made: Diagnosis) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(render(made, Format.JSON))
    return loaded


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_is_one_and_begins_with_the_same_envelope(name: str) -> None:
    made, other = schema(name), schema("error")
    jsonschema.Draft202012Validator.check_schema(made)
    assert made["required"][:3] == list(made["properties"])[:3] == list(ENVELOPE)
    assert all(made["properties"][key] == other["properties"][key] for key in ENVELOPE)
    partial = made["properties"]["error"]["properties"]
    assert set(partial) == set(other["properties"]["error"]["properties"])


def test_a_document_of_no_command_says_so() -> None:
    document = rendered(diagnosis())
    assert (document["command"], document["source"]) == (None, [])


@pytest.mark.parametrize("made", [diagnosis(), healthy()])
def test_every_document_obeys_the_schema(made: Diagnosis) -> None:
    assert list(VALIDATOR.iter_errors(rendered(made))) == []


def test_the_contract_is_kept_key_for_key() -> None:
    document = rendered(diagnosis())
    (finding,) = document["findings"]
    assert list(document) == [
        "schema_version",
        "command",
        "source",
        "sources",
        "steps",
        "devices",
        "step_parts",
        "profiled_kernels",
        "verdict",
        "findings",
        "clear",
        "not_applicable",
        "undecided",
        "notes",
    ]
    assert document["steps"] == {"count": 10, "p50_ms": 12.3, "p90_ms": 12.9, "p99_ms": None}
    assert document["devices"] == [
        {
            "rank": 0,
            "device": 0,
            "span_ms": 1.0,
            "busy_ms": 0.7,
            "idle_ms": 0.3,
            "compute_ms": 0.6,
            "exposed_comm_ms": 0.04,
            "exposed_copy_ms": 0.06,
        }
    ]
    assert document["verdict"]["bottleneck"] == finding["bottleneck"] == "input_pipeline"
    assert document["verdict"]["statement"] == finding["message"]
    assert finding["where"] == {
        "rank": 0,
        "device": 0,
        "thread": 1234,
        "range": "data_load",
        "op": "data_load",
        "kernel": "data_load",
        "file": "data_load",
        "line": 7,
    }
    assert finding["recoverable_ms_per_step"] == {"low": 0.5, "value": 2.1, "high": 2.4}
    assert finding["evidence"][0]["limit"] == {"value": 0.1, "unit": "ratio"}
    assert finding["evidence"][0]["rows"] == [1, 5, 9, 13, 17, 21, 25]
    assert [entry["code"] for entry in document["clear"]] == ["CPY101"]
    assert [entry["code"] for entry in document["not_applicable"]] == ["COM101"]
    assert document["undecided"] == [
        {"code": "SYN101", "why": "no table api_calls in data_load", "to_decide": "timesink capture data_load"}
    ]
    assert document["notes"] == ["data_loss: data_load (3 rows)"]


def test_what_is_not_a_number_becomes_null() -> None:
    (card, finding), *_ = diagnosis().findings
    endless = replace(finding, recoverable=Quantity(float("nan"), "ms", low=0.0, high=float("inf")))
    document = rendered(replace(diagnosis(), findings=((card, endless),)))
    assert document["findings"][0]["recoverable_ms_per_step"] == {"low": 0.0, "value": None, "high": None}
    assert list(VALIDATOR.iter_errors(document)) == []


@pytest.mark.parametrize("path", [("verdict", "statement"), ("steps", "p50_ms"), ("notes",), ("devices", 0, "idle_ms")])
def test_the_schema_misses_no_key(path: tuple[str | int, ...]) -> None:
    document = deepcopy(rendered(diagnosis()))
    parent: Any = document
    for key in path[:-1]:
        parent = parent[key]
    del parent[path[-1]]
    assert list(VALIDATOR.iter_errors(document))


def test_the_schema_knows_every_bottleneck() -> None:
    assert schema("diagnosis")["$defs"]["bottleneck"]["enum"] == [item.value for item in Bottleneck]


def test_equal_diagnoses_give_equal_bytes() -> None:
    assert render(diagnosis(), Format.JSON) == render(diagnosis(), Format.JSON)


def test_steps_without_percentiles_are_null() -> None:
    document = rendered(replace(diagnosis(), steps=StepFigures(3, None, None, None)))
    assert document["steps"] == {"count": 3, "p50_ms": None, "p90_ms": None, "p99_ms": None}
