"""The bench itself, with kernels of the CPU: every kind of question has an answer, and what fails says why."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.trials.test_prices import offered, read

from timesink.trials.asked import BenchQuestions, identity
from timesink.trials.prices import Bench, prices_on

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def product(
    name: str, *shapes: list[int], scalars: tuple[str, ...] = (), forms: tuple[str, ...] = ()
) -> dict[str, Any]:
    kinds = ["float"] * len(shapes) + ["Scalar"] * len(scalars)
    blank: list[Any] = [[]] * len(scalars)
    texts = ["", *[""] * (len(shapes) - 1), *scalars]
    told = {"shapes": [*shapes, *blank], "types": kinds, "strides": [[]] * len(kinds), "scalars": texts}
    return {"kind": "operator", "name": name, **told, "forms": list(forms), "tf32": False, "id": name}


def test_every_kind_of_question_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from timesink.trials.bench import answers

    image, weight = [2, 8, 12, 12], [8, 8, 3, 3]
    convolved = product("aten::convolution", image, weight, forms=("channels_last", "bf16"))
    convolved["shapes"] += [[]] * 7
    convolved["strides"] += [[]] * 7
    convolved["types"] += ["", "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar"]
    convolved["scalars"] += ["", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    attention = {"kind": "attention", "sizes": [4, 16, 16, 8], "type": "float", "masked": True, "trains": True}
    attention["forms"] = ["bf16"]
    sizes = [[8, 8], [8]]
    asked: list[dict[str, Any]] = [
        product("aten::addmm", [32], [16, 24], [24, 32], scalars=("1", "1"), forms=("bf16", "fp16", "tf32", "padded")),
        convolved,
        {**attention, "tf32": False, "id": "attention"},
        {"kind": "optimizer", "name": "SGD", "momentum": True, "form": "loop", "sizes": sizes, "forms": ["fused"]},
        {"kind": "list", "name": "aten::lerp_", "operands": 2, "scalar": True, "sizes": sizes},
        {"kind": "machine"},
        product("aten::mm", [4, 5], [6, 7]),
        product("aten::nothing", [4, 5]),
        product("aten::mm", [1 << 20, 1 << 20], [1 << 20, 4]),
    ]
    asked = [{**question, "id": str(number)} for number, question in enumerate(asked)]
    given, told = tmp_path / "given.json", tmp_path / "told.json"
    given.write_text(json.dumps(asked))
    monkeypatch.setattr(sys, "argv", ["bench", str(given), str(told), "120"])
    answers.main()
    found = json.loads(told.read_text())["answers"]
    assert list(found) == [question["id"] for question in asked]
    assert {"recorded", "bf16", "tf32", "padded", "bf16 casts", "bf16 results"} <= set(found["0"])
    assert all(time > 0 for form in ("recorded", "bf16", "padded") for time in found["0"][form])
    assert {"channels_last", "bf16"} <= set(found["1"])
    assert (
        found["2"]["fused"][1] >= 0
        and found["2"]["bf16"][0] > 0
        and found["3"]["fused"][0] > 0
        and found["4"]["list"][0] > 0
    )
    assert {"inferred_cast", "trained_cast", "operator"} <= set(found["5"])
    assert all("failed" in found[number] for number in ("6", "7", "8"))


def test_on_another_processor_nothing_is_taken_but_what_its_calls_cost(tmp_path: Path) -> None:
    """Products of a GPU take this CPU far longer, or far less, so they tell nothing."""
    asked = BenchQuestions(offered(read(tmp_path)))
    found = prices_on(asked, Bench(sys.executable, "2", "", ""), tmp_path / "kept", 90.0)
    assert "cast" in found.calls and not found.refused
    answers = json.loads(next((tmp_path / "kept").iterdir()).read_text())["answers"]
    assert {"recorded", "tf32", "bf16"} <= set(answers[identity(asked.questions[0])])
