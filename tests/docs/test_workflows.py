"""The page of taught workflows: the three workflows of Nsight and its views work, each step shows what was printed, and
a step that works in part says what is missing."""

from __future__ import annotations

from tests.docs.commands import DOCS

WHOLE = ("The Nsight workflow", "Three views of a step", "The Nsight Systems lab")


def test_every_step_shows_something_and_says_what_is_missing() -> None:
    text = (DOCS / "explanation" / "workflows.md").read_text(encoding="utf-8")
    seen = []
    for section in text.split("\n## ")[1:]:
        lines = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
        for step, command, printed, status in ([cell.strip(" |") for cell in line] for line in lines if len(line) == 4):
            if step == "step":
                continue
            word, _, rest = status.partition(":")
            assert word.startswith("works") or (word == "partly" and rest), step
            assert (command and printed) or step == "no desktop needed", step
            if section.startswith(WHOLE):
                assert word.startswith("works"), step
            seen.append(step)
    assert len(seen) > 70
