"""Measured prices: the kernels that a plan's changes alter are run on the GPU that made the trace, in the form that the
changes give them, and what its host takes for calls is measured. `trials.bench` runs them, in a child process.

What was answered once is kept in the machine's file: the same question is not asked again. What that file knows of any
program, a plan uses without running anything. Where nothing can be measured a plan is made all the same, and says why.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from timesink.capture.errors import CaptureError
from timesink.capture.processes import Setting, run
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan.ladder import changes_offered
from timesink.errors import MissingTool, ToolFailed
from timesink.fixes.measured import MeasuredPrices
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.trials.asked import MACHINE, PRODUCTS, REGIONS, BenchQuestions, Question, gpus, identity
from timesink.trials.machine import Answers, Bench, MachineFile, find_bench
from timesink.trials.shares import by_answers
from timesink.untrusted import scrub_sentence
from timesink.untrusted.plain_json import document

_RUN: Final = "import sys; sys.path.append(sys.argv.pop(1)); from timesink.trials.bench.answers import main; main()"
_PACKAGE: Final = str(Path(__file__).resolve().parents[2])
BUDGET_S: Final = 60.0
_START_S: Final = 12.0  # of it, in which PyTorch is imported and the process ends
_MOST_RUNS: Final = 3  # one that breaks the GPU ends its process: the others are asked in a new one


def measured_prices(trace: Trace, folder: Path | None = None, budget_s: float = BUDGET_S) -> MeasuredPrices:
    """What the changes that a plan could be made of leave of their kernels on this machine's GPU, if it is of the kind
    that made the trace; without any price, and with the reason, where that cannot be told."""
    joint = changes_offered(trace, diagnose(trace))
    if isinstance(joint, str):
        return MeasuredPrices(refused=joint)
    bench = find_bench()
    if isinstance(bench, str):
        return MeasuredPrices(refused=bench)
    names = gpus(trace)
    if not bench.gpu:
        where = f", such as a machine with {names[0]}" if names else ""
        return MeasuredPrices(refused=f"this machine has no GPU: run it where the trace was made{where}")
    if names and bench.gpu not in names:
        here = f"the trace is of {names[0]}, this machine has {bench.gpu}"
        return MeasuredPrices(refused=f"{here}: run it on the GPU that made the trace, or on another of its kind")
    return prices_on(BenchQuestions(joint), bench, folder, budget_s)


def calibrate_machine(folder: Path | None = None, budget_s: float = BUDGET_S) -> tuple[MachineFile, Answers]:
    """Measure this host and its GPU anew, and keep it; returns the file and what was answered, by kinds of questions.

    Raises `MissingTool` where no Python here has PyTorch, `ToolFailed` where nothing was answered.
    """
    bench = find_bench()
    if isinstance(bench, str):
        what, _, remedy = bench.partition(": ")
        raise MissingTool(what, remedy=remedy)
    asked = [{**question, "id": identity(question)} for question in (MACHINE, PRODUCTS, REGIONS)]
    answers, why = _answered(asked, bench, budget_s)
    failed = [str(one["failed"]) for one in answers.values() if "failed" in one]
    found = {one["kind"]: answers[one["id"]] for one in asked if "failed" not in answers.get(one["id"], {"failed": ""})}
    if not found:
        raise ToolFailed(f"the bench answered nothing: {(failed or [why or 'the time was too short'])[0]}")
    file = MachineFile.of(bench, folder)
    file.add(dict(answers), bench)
    return file, found


def prices_on(
    asked: BenchQuestions, bench: Bench, folder: Path | None = None, budget_s: float = BUDGET_S
) -> MeasuredPrices:
    """The same on a bench, whatever it has: of a trace without shapes what its host takes, and nothing of kernels."""
    file = MachineFile.of(bench, folder)
    questions = [{**question, "id": identity(question)} for question in (*asked.questions, MACHINE, REGIONS)]
    known = file.answers
    left = [question for question in questions if question["id"] not in known]
    notes = [asked.unasked] * bool(asked.unasked)
    if left:
        answers, why = _answered(left, bench, budget_s)
        known |= answers
        file.add(dict(answers), bench)
        if why:
            notes.append(f"the bench ended early: {why}")
    missed = sum(question["id"] not in known or "failed" in known[question["id"]] for question in questions)
    if missed:
        notes.append(f"{missed} of {len(questions)} questions have no answer: those prices stay assumed")
    found = by_answers(asked, known, "measured here" if left else "measured for this GPU")
    return replace(found, notes=tuple(notes))


def _answered(questions: Sequence[Question], bench: Bench, budget_s: float) -> tuple[Mapping[str, dict[str, Any]], str]:
    """The answers of a child process, and of another after one that a question broke; and what ended it before its
    time, if anything did."""
    found: dict[str, dict[str, Any]] = {}
    why = ""
    with TemporaryDirectory(prefix="timesink-prices-") as folder:
        for number in range(_MOST_RUNS):
            left = [question for question in questions if question["id"] not in found]
            given, told = (Path(folder) / f"{name}{number}.json" for name in ("questions", "answers"))
            given.write_text(json.dumps(left), encoding="utf-8")
            argv = [bench.python, "-c", _RUN, _PACKAGE, str(given), str(told), str(max(budget_s - _START_S, 1.0))]
            log = Path(folder) / f"log{number}.txt"
            try:
                ended = run(argv, log, setting=Setting(), timeout_s=max(budget_s, _START_S), quiet=True)
            except CaptureError as error:
                ended, why = None, error.message
            else:
                why = ""
            said = document(told) if told.is_file() else {}
            found |= said.get("answers", {})
            if ended is None or ended.status == 0:
                break
            why = scrub_sentence(ended.last_words())[:300]
            if said.get("now"):
                found[said["now"]] = {"failed": why or "it broke the bench"}
            budget_s -= ended.seconds
            if not said or budget_s < _START_S:
                break
    return found, why
