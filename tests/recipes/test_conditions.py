"""A setting is asked before a value of the GPU is read, where both only read and the setting has a value anyhow."""

from pathlib import Path

import pytest
from tests.recipes.repairing import proposed

ASKED = {
    "a constant of the file": ("if torch.isnan(x).any() and DEBUG:", "if DEBUG and torch.isnan(x).any():"),
    "one of two": (
        "if (torch.isnan(x).any() or torch.isinf(x).any()) and DEBUG:",
        "if DEBUG and (torch.isnan(x).any() or torch.isinf(x).any()):",
    ),
    "an argument": ("if x.isfinite().all() and verbose:", "if verbose and x.isfinite().all():"),
    "a setting": ("if x.sum().item() > 3 and args.check:", "if args.check and x.sum().item() > 3:"),
    "two settings": (
        "if x.any() and DEBUG and not verbose:", "if DEBUG and not verbose and x.any():",
    ),
    "behind another": ("if verbose and x.any() and DEBUG:", "if verbose and DEBUG and x.any():"),
    "a comparison": ("if not torch.equal(x, x) and LEVEL > 1:", "if LEVEL > 1 and not torch.equal(x, x):"),
    "a loop": ("while x.isnan().any() and LEVEL > 1:", "while LEVEL > 1 and x.isnan().any():"),
    "what is imported": ("if x.any() and checked:", "if checked and x.any():"),
    "over rows": (
        "if (\n        x.isnan().any()\n        and DEBUG\n    ):", "if (\n        DEBUG and x.isnan().any()\n    ):",
    ),
}  # fmt: skip
LEFT = {
    "the setting first": "if DEBUG and x.any():",
    "either": "if x.any() or DEBUG:",
    "a call that may do more": "if check(x).any() and DEBUG:",
    "a method of its own": "if x.report().any() and DEBUG:",
    "a function of Python": "if any(x) and DEBUG:",
    "numbers of the host": "if np.isnan(x).any() and DEBUG:",
    "a value that is named": "if (bad := x.isnan()).any() and DEBUG:",
    "into another": "if torch.any(x, out=x) and DEBUG:",
    "a call between": "if x.any() and check(x) and DEBUG:",
    "an attribute that may be none": "if x.any() and x.debug:",
    "a part of a list": "if x.any() and flags[0]:",
    "a call behind": "if x.any() and is_on():",
    "outside of a condition": "for y in [x.any() and DEBUG]:",
}
TEXT = """import torch
from settings import checked
DEBUG = False
LEVEL = 1


def step(x, args, verbose=False):
    {condition}
        print("bad")
"""


def texts(folder: Path, condition: str) -> list[tuple[str, str]]:
    found = proposed(folder, TEXT.format(condition=condition))
    return [(source.edited(one.replacements), one.unproven) for source, one in found if one.fix == "remove_sync"]


@pytest.mark.parametrize("name", ASKED)
def test_a_setting_is_asked_first(name: str, tmp_path: Path) -> None:
    before, after = ASKED[name]
    assert texts(tmp_path, before) == [(TEXT.format(condition=after), "")]
    assert texts(tmp_path, after) == []


@pytest.mark.parametrize("name", LEFT)
def test_what_may_do_more_is_left(name: str, tmp_path: Path) -> None:
    assert texts(tmp_path, LEFT[name]) == []


@pytest.mark.parametrize("name", ["debug", "later", "both"])
def test_a_name_that_may_have_no_value_is_only_offered(name: str, tmp_path: Path) -> None:
    more = {
        "debug": "",
        "later": "\n\ndef other():\n    global later\n    later = 1\n",
        "both": "\nif LEVEL:\n    both = 1\n",
    }
    (tmp_path / "train.py").write_text("")
    found = proposed(tmp_path, TEXT.format(condition=f"if x.any() and {name}:") + more[name])
    assert [one.unproven for _, one in found] == [f"{name} may have no value where the first part is false"]
