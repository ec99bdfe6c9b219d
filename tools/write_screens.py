"""Write the screen of a trial into the README anew: what `timesink try` prints of the figures that are kept of one.

python tools/write_screens.py            write them into README.md
python tools/write_screens.py --check    fail where they are not what is printed
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from timesink.records import replace
from timesink.render import Format, render
from timesink.trials.records import TrialAnswer
from timesink.trials.run import result_of
from timesink.views.trial import trial_page

ROOT: Final = Path(__file__).resolve().parents[1]
README: Final = ROOT / "README.md"
TRIALS: Final = ROOT / "benchmarks" / "trials" / "ladders-h200.json"
TRIED: Final = "wav2vec_finetuning"
_BESIDE: Final = ("truth", "seconds", "whole_s")  # of what is kept of a trial, not the trial's
_SHEETS: Final = 2  # what each change won, and what was left of the step
_UNKNOWN: Final[dict[str, Any]] = {"partial": None, "period": {}, "applied": ()}  # what trials of then did not say
_SCREEN: Final = re.compile(
    r"(?P<mark><!-- screen: (?P<name>\w+) -->\n+```text\n).*?(?P<end>^```)", re.MULTILINE | re.DOTALL
)


def trial_screen() -> str:
    """What each change won in the running program, and what was left of the step."""
    kept: dict[str, Any] = json.loads(TRIALS.read_text(encoding="utf-8"))[TRIED]
    found = result_of(_UNKNOWN | {name: value for name, value in kept.items() if name not in _BESIDE})
    page = trial_page(TrialAnswer(found, kept["seconds"]), "python train.py")
    return render(replace(page, sheets=page.sheets[:_SHEETS], notes=(), lede=""), Format.TEXT)


SCREENS: Final = {"try": trial_screen}


def with_screens(text: str) -> str:
    """The text with each screen behind its mark as it is printed today."""
    return _SCREEN.sub(lambda found: f"{found['mark']}{SCREENS[found['name']]().strip()}\n{found['end']}", text)


def main() -> int:
    text = README.read_text(encoding="utf-8")
    if (written := with_screens(text)) == text:
        return 0
    if "--check" in sys.argv:
        print("a screen of README.md is not what is printed: python tools/write_screens.py", file=sys.stderr)
        return 1
    README.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
