"""The worked examples: their ladders hold together, predictions rest on what they say, tables say what was measured."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from benchmarks.worked.again import CHECK_TOLERANCES, program, still_open
from benchmarks.worked.ladders import EXAMPLES, GPT2, LAYER, Change, Example, gpt2_attainable_ms, layer_attainable_ms
from benchmarks.worked.pack import kept
from benchmarks.worked.predict import prediction
from benchmarks.worked.tables import RESULTS, ladder, named, page

from timesink.diagnosis.engine import diagnose
from timesink.readers import read

ROOT = Path(__file__).resolve().parents[2]
CHANGE = Change("faster", (), ("--fast",), "why not", ("KRN104",), "fuse_pointwise", "aten::mm")
RESULT: dict[str, Any] = {
    "attainable_ms": 1.0,
    "states": {
        "plain": {
            "verdict": {"bottleneck": "pointwise_unfused"},
            "named": [
                {"code": "KRN109", "name": "far", "recoverable_ms_per_step": {"value": 0.5}},
                {"code": "KRN104", "name": "pointwise-unfused", "recoverable_ms_per_step": {"value": 0.4}},
            ],
        },
        "fast": {"verdict": {"bottleneck": "none"}, "named": []},
    },
    "changes": [
        {
            "name": "faster", "before": "plain", "after": "fast", "kept": True, "codes": ["KRN104"],
            "predicted": {"low": 0.2, "value": 0.4, "high": 0.5, "from": "finding", "codes": ["KRN104"]},
            "measured": {"before_ms": 2.0, "after_ms": 1.6, "outcome": "faster", "pairs": 3,
                         "effect": {"ratio": 0.8, "low": 0.79, "high": 0.81}},
        },
        {"name": "beside", "before": "plain", "after": "odd", "kept": False, "codes": []},
    ],
}  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=lambda example: example.name)
def test_every_change_starts_where_the_ladder_has_been(example: Example) -> None:
    reached = {()} | {change.after for change in example.changes if change.kept}
    for change in example.changes:
        assert change.before in reached
        assert set(change.before) < set(change.after)
    assert len({change.name for change in example.changes}) == len(example.changes)


def test_the_layer_s_attainable_time_is_the_sum_over_its_operators() -> None:
    products = ((4096, 12288), (4096, 4096), (4096, 11008), (4096, 11008), (11008, 4096))  # qkv, out, gate, up, down
    flops = sum(2 * 2048 * rows * columns for rows, columns in products)
    flops += 2 * (2 * 2048 * 2048 * 4096) / 2  # two products per pair of positions, half of them barred
    moved = 2 * 2048 * (4096 * (1 + 1) + 4096 * (2 + 2) + 11008 * (2 + 1) + 4096 * (2 + 1))
    assert layer_attainable_ms() == pytest.approx(1e3 * (flops / (989.5e12 * 0.8) + moved / (4.8e12 * 0.93)))
    assert LAYER.attainable_ms == pytest.approx(1.155, abs=0.001)


def test_the_model_s_attainable_time_is_the_sum_over_its_operators() -> None:
    matrices = 12 * (768 * 2304 + 768 * 768 + 768 * 3072 + 3072 * 768) + 768 * 50257
    forward = 2 * 8192 * matrices
    scores = 12 * 8 * 12 * (2 * 1024 * 1024 * 64) / 2  # one product per head, half of it barred
    flops = 3 * forward + scores * (2 + 5)
    parameters = 124_439_808
    assert gpt2_attainable_ms() == pytest.approx(
        1e3 * (flops / (989.5e12 * 0.8) + 28 * parameters / (4.8e12 * 0.93)), rel=1e-6
    )
    rungs = " ".join(change.after[-1] for change in GPT2.changes)
    assert rungs == "--tf32 --bf16 --compile --flash --pad --fused"


def test_a_prediction_rests_on_findings_then_on_the_replay_then_on_nothing() -> None:
    gain = {"low": 0.1, "value": 0.2, "high": 0.3}
    finding = {"code": "KRN104", "recoverable_ms_per_step": gain}
    other = {"code": "KRN108", "recoverable_ms_per_step": gain}
    replay = {"low": 1.0, "value": 2.0, "high": 3.0}

    def made(findings: list[Any], price: dict[str, Any]) -> dict[str, Any]:
        looked = {"diagnosis": {"findings": findings}, "what_if": {"fuse_pointwise": price}}
        return prediction(CHANGE, {**looked, "slack_ms": {"aten::mm": 0.7}})

    assert made([finding, other, finding], replay) == {
        "low": 0.2, "value": 0.4, "high": 0.6, "from": "finding", "codes": ["KRN104"],
    }  # fmt: skip
    assert made([other], replay) == {**replay, "from": "what-if fuse_pointwise", "codes": []}
    nothing = {"low": 0.0, "value": 0.0, "high": 0.7, "from": "not named", "codes": []}
    assert made([other], {"none_because": "nothing in these steps matches"}) == nothing


def test_the_ladder_s_table_shows_prediction_and_measurement_side_by_side() -> None:
    first, second = ladder(RESULT).splitlines()[2:]
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells == ["faster", "2.00 ms", "1.60 ms", "0.400 ms (0.200 to 0.500)", "KRN104",
                     "0.400 ms (0.380 to 0.420)", "3", "faster", "62 %"]  # fmt: skip
    assert "*beside*" in second
    assert "not measured" in second


def test_runs_before_a_cut_give_means_and_no_interval() -> None:
    runs = [{"side": "before", "ms": 4.0}, {"side": "after", "ms": 3.0}, {"side": "after", "ms": 2.0}]
    beside = {**RESULT["changes"][1], "cut_off": runs}
    row = ladder({**RESULT, "changes": [beside]}).splitlines()[2]
    assert row == ("| *beside* | 4.00 ms | 2.50 ms | – | – | 1.50 ms, no interval | – | cut off after 3 runs | 40 % |")


def test_a_change_that_was_measured_again_says_so() -> None:
    later = {**RESULT["changes"][0], "second_run": {"date": "2026-11-20T15:05:49+00:00", "steps": 200}}
    assert "| 3, second run | faster |" in ladder({**RESULT, "changes": [later]})


def test_measuring_again_keeps_the_program_the_flags_and_the_open_entry(tmp_path: Path) -> None:
    assert program("gpt2", "tf32+bf16", 200, dry=False)[1:] == [
        "-m", "benchmarks.worked.gpt2", "--tf32", "--bf16", "--steps", "200",
    ]  # fmt: skip
    assert program("gpt2", "plain", 10, dry=True)[3:] == ["--steps", "10", "--dry"]
    events = [("add", 1), ("add", 2), ("add", 3), ("close", 2)]
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text("".join(json.dumps({"event": event, "number": number}) + "\n" for event, number in events))
    assert still_open(ledger) == {1, 3}
    for example in EXAMPLES.values():
        assert CHECK_TOLERANCES[example.name] == example.check_tolerance


def test_the_table_of_names_says_at_which_place_the_next_change_stands() -> None:
    first, second = named(RESULT).splitlines()[2:]
    assert first.endswith("| faster | no. 2 of 2 |")
    assert second.startswith("| `fast` | none | nothing |")


def test_a_page_keeps_its_words_and_gets_its_tables() -> None:
    text = "Words.\n<!-- worked toy ladder -->\nold\n<!-- end -->\nMore. <!-- worked gone named -->\nkept\n<!-- end -->"
    once = page(text.replace("More. ", "More.\n"), {"toy": RESULT})
    assert once.startswith("Words.\n<!-- worked toy ladder -->\n\n| change")
    assert "old" not in once
    assert "kept" in once
    assert page(once, {"toy": RESULT}) == once


@pytest.mark.slow
@pytest.mark.parametrize("archive", sorted(RESULTS.glob("*.captures.columns.xz")), ids=lambda path: path.name)
def test_a_kept_capture_names_the_same_change_again(archive: Path, tmp_path: Path) -> None:
    result = json.loads((RESULTS / f"{archive.name.split('.')[0]}.json").read_text())
    states = {path.stem: path for path in kept(archive, tmp_path)}
    for change in result["changes"]:
        if change["before"] not in states or not change["kept"]:
            continue
        trace = read(states[change["before"]], cache=False)
        step_ms = result["states"][change["before"]]["unprofiled_step_ms"]
        found = {card.code for card, _ in diagnose(trace, unprofiled_step_ms=step_ms).findings}
        assert found & set(change["codes"]) == set(change["predicted"]["codes"]), change["name"]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="the programs need PyTorch (pip install torch)")
@pytest.mark.parametrize("words", ["layer --fused --one-gemm --transposed", "gpt2 --tf32 --bf16 --flash --pad --fused"])
def test_the_programs_agree_with_plain_fp32(words: str) -> None:
    name, *flags = words.split()
    command = [sys.executable, "-m", f"benchmarks.worked.{name}", *flags, "--dry", "--steps", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["error"] <= 0.05
