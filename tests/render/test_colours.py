"""Causes of idle time can be told apart by colour, also by eyes that lack one kind of cones."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from timesink.knowledge.step_parts import IDLE_WORDS, WORK_WORDS

COLOURS = json.loads((Path(__file__).parents[2] / "src/timesink/render/svg/colours.json").read_text("utf-8"))
# Machado, Oliveira, Fernandes (2009), severity 1, of linear RGB.
EYES = {
    "usual": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
LEAST = {"usual": 0.05, "protan": 0.02, "deutan": 0.02}  # 0.02 is about one just noticeable difference


def oklab(colour: str, eye: np.ndarray) -> np.ndarray:
    """Lightness and two hue axes, as Ottosson (2020) defines them; distances in it are about as large as they look."""
    srgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.clip(eye @ np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4), 0, 1)
    cones = np.cbrt(
        np.array(
            [
                [0.41222147, 0.53633254, 0.05144599],
                [0.2119035, 0.6806996, 0.10739696],
                [0.08830246, 0.28171884, 0.6299787],
            ]
        )
        @ linear
    )
    return np.asarray(
        np.array(
            [
                [0.21045426, 0.79361779, -0.00407205],
                [1.9779985, -2.42859221, 0.45059371],
                [0.02590404, 0.78277177, -0.80867577],
            ]
        )
        @ cones
    )


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_two_parts_of_a_step_look_alike(scheme: str, eye: str) -> None:
    seen = {kind: oklab(COLOURS[scheme][f"k-{kind}"], EYES[eye]) for kind in (*WORK_WORDS, *IDLE_WORDS)}
    apart = {(one, other): float(np.linalg.norm(seen[one] - seen[other])) for one, other in combinations(seen, 2)}
    assert {pair: round(far, 3) for pair, far in apart.items() if far < LEAST[eye]} == {}
