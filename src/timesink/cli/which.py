"""`timesink doctor SYMPTOM`: from a symptom, or from what a diagnosis left open, to the next capture."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from timesink.cli import asked
from timesink.cli.options import PageOutput, of_run, read_traces
from timesink.cli.parameters import Argument, Option
from timesink.errors import UsageError
from timesink.untrusted.plain_json import document

if TYPE_CHECKING:
    from timesink.views import Page


def doctor(
    symptom: Annotated[list[str] | None, Argument("SYMPTOM...", "What is wrong, in your words.")] = None,
    kernel: Annotated[str | None, Option("--kernel", "NAME", "The kernel that is slow.", rare=True)] = None,
    source: Annotated[
        Path | None,
        Option("--from", "FILE", "A trace, or a diagnosis as JSON: what did it leave undecided?", must=asked.there),
    ] = None,
    program: Annotated[str, Option("--program", "CMD", "Your program.")] = "python train.py",
    *,
    writing: PageOutput,
) -> int:
    """Show which profilers work here, or which one answers a question.

    Reading and diagnosing traces needs none of the tools; they are for captures and for .nsys-rep files. With a
    SYMPTOM, figures in it too: the profiler that answers it, and its exact command; why not the others, what it costs
    and what to read first, by a list of rules, each with its words. `timesink doctor "ranks wait for each other"`,
    `timesink doctor "GPU 95 % busy, one kernel takes 45 %, 80 % of kernels under 10 us, 8 ranks, a step takes 20 s"`.
    """
    target = writing.sink([source] if source else [])
    if source is not None:
        target.show(undecided_page(undecided_of(source), program))
    elif symptom or kernel is not None:
        target.show(answer_page(" ".join(symptom or ()), kernel, program))
    else:
        from timesink.cli.doctor import doctor_page

        target.show(doctor_page())
    return 0


def checklist(
    captures: Annotated[
        list[Path] | None,
        Argument("CAPTURE", "A folder that timesink capture made; of two the first is before a change."),
    ] = None,
    *,
    writing: PageOutput,
) -> int:
    """List what to fix and to write down before two measurements are compared, ticked by a capture.

    One change at a time needs all else to be the same: program, shapes, versions, clocks, warm-up, repeats. What is
    expected of it is an open entry of the ledger in .timesink.
    """
    from timesink.verify.checklist import checklist as items_of
    from timesink.verify.ledger import read
    from timesink.views import Page, listed

    target = writing.sink(captures or [])
    if len(captures or []) > 2:
        raise UsageError(f"{len(captures or [])} captures are given", remedy="give the one before and the one after")
    made = [_manifest(path) for path in captures or []]
    is_open = sum(not entry.closed for entry in read(Path(".timesink") / "ledger.jsonl"))
    items = items_of(made[-1] if made else {}, made[0] if len(made) > 1 else None, is_open)
    rows = [(one.what, "✓" if one.is_held else "open", one.found, "" if one.is_held else one.to_do) for one in items]
    held = sum(one.is_held for one in items)
    title = f"{held} of {len(items)} are fixed and written down" + (f" in {captures[-1]}" if captures else "")
    target.show(Page(title, (listed("which.checklist", rows),)))
    return 0


def _manifest(path: Path) -> Mapping[str, Any]:
    from timesink.capture.recorded_run import manifest_of

    if (found := manifest_of(path)) is None:
        raise UsageError(f"{path} is no capture of timesink", remedy="give a folder that timesink capture made")
    return found


def answer_page(symptom: str, kernel: str | None, program: str) -> Page:
    """The chosen capture as a page."""
    from timesink.capture.choice import COSTS, QUESTIONS, UNSURE, choose, command_of, stated
    from timesink.views import Page, listed

    chosen = choose(symptom, kernel)
    answer, command = chosen.answer, shlex.split(program)
    if not (chosen.matched or stated(symptom)[0]):
        asked = ((text, shlex.join(command_of(choose(text).answer, command))) for text in QUESTIONS)
        return Page(UNSURE, (listed("which.questions", asked),))
    rows = (
        ("matched", ", ".join(chosen.matched) or UNSURE),
        ("why", answer.why),
        ("why not the others", answer.not_others),
        ("cost", COSTS[answer.tool]),
        ("read first", answer.read_first),
    )
    notes = ["later: timesink doctor --from TRACE names the next capture"]
    if answer.name == "kernel" and kernel is None:
        notes.append("no kernel is named: a quick pass takes one that takes much of a step; --kernels NAME chooses")
    sheet = listed("which.answer", rows)
    title = shlex.join(command_of(answer, command))  # on a line of its own, to be copied
    return Page(title, (sheet,), tuple(notes), is_command=True)


def undecided_of(source: Path) -> Sequence[Mapping[str, Any]]:
    """The undecided verdicts (code, why, to_decide) of a stored diagnosis, or of the trace, diagnosed now."""
    from timesink.diagnosis.engine import diagnose
    from timesink.diagnosis.verdicts import Undecided

    stored = _stored(source)
    if stored is not None:
        return stored
    diagnosis = diagnose(of_run(read_traces([source]), None, [source]))
    return [
        {"code": ruling.card.code, "why": ruling.verdict.why, "to_decide": ruling.verdict.to_decide}
        for ruling in diagnosis.rulings
        if isinstance(ruling.verdict, Undecided)
    ]


def undecided_page(undecided: Sequence[Mapping[str, Any]], program: str) -> Page:
    """The captures that would decide them: those that decide most first, ncu last, as it needs kernels to look at."""
    from timesink.capture.choice import tool_named
    from timesink.views import Page, listed

    codes: dict[str, list[str]] = {}
    for rule in undecided:
        how = str(rule["to_decide"])
        codes.setdefault(tool_named(how) or how, []).append(str(rule["code"]))
    order = sorted(codes, key=lambda tool: (tool == "ncu", -len(codes[tool]), tool))
    commands = {
        "torch": f"timesink capture torch -- {program}",
        "nsys": f"timesink capture nsys --auto-ranges -- {program}",
        "ncu": f"timesink kernels --next TRACE, then: timesink capture ncu --set full --kernels NAME -- {program}",
    }
    rows = tuple((tool if tool in commands else "", commands.get(tool, tool), ", ".join(codes[tool])) for tool in order)
    title = "What the next captures would decide" if rows else "Nothing was left undecided"
    return Page(title, (listed("which.captures", rows),) if rows else ())


def _stored(path: Path) -> Sequence[Mapping[str, Any]] | None:
    """The undecided verdicts of a diagnosis written with --format json; None where the file is something else."""
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        stored = document(path)
    except ValueError:
        return None
    undecided = stored.get("undecided") if isinstance(stored, dict) else None
    if not isinstance(undecided, list) or not all(isinstance(rule, dict) for rule in undecided):
        return None
    is_whole = all(isinstance(rule.get(key), str) for rule in undecided for key in ("code", "to_decide"))
    return undecided if is_whole else None
