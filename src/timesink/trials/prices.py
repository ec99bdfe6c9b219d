"""Measured prices: the kernels that a plan's changes alter are run on the GPU that made the trace, in the form that the
changes give them, and what its host takes for calls is measured. `trials.bench` runs them, in a child process.

What was answered once is kept in the user's cache folder, by GPU, driver, version of PyTorch and CPU: the same question
is not asked again. Where nothing can be measured a plan is made all the same, and says why.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from timesink.capture.errors import CaptureError
from timesink.capture.processes import Setting, run
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan.ladder import changes_offered
from timesink.fixes.measured import MeasuredPrices, Origin
from timesink.measures.timeline.known import trains
from timesink.model.tables import DEVICES, HOST_OPS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.trials.asked import BenchQuestions, identity
from timesink.trials.shares import figures_of, prices
from timesink.untrusted import scrub_sentence
from timesink.untrusted.nvidia_tools import ask
from timesink.untrusted.plain_json import document
from timesink.untrusted.whole_file import write_whole

_RUN: Final = "import sys; sys.path.append(sys.argv.pop(1)); from timesink.trials.bench.answers import main; main()"
_PACKAGE: Final = str(Path(__file__).resolve().parents[2])
BUDGET_S: Final = 60.0
_START_S: Final = 12.0  # of it, in which PyTorch is imported and the process ends
_MOST_RUNS: Final = 3  # one that breaks the GPU ends its process: the others are asked in a new one
_GPU_QUERY: Final = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
_VERSION: Final = "from importlib import metadata; print(metadata.version('torch'))"
_HOST: Final = ({"kind": "machine"}, {"kind": "regions"})
"""Asked last: what a compiler takes to start is more than all else."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where operators are run: the Python that has PyTorch, its version, the GPU ('' for none) and its driver."""

    python: str
    torch: str
    gpu: str
    driver: str

    @property
    def key(self) -> str:
        """What its prices hold for."""
        parts = (self.torch, self.gpu, self.driver, platform.processor(), platform.machine(), platform.node())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def find_bench() -> Bench | str:
    """This machine's bench, or why it has none."""
    python, version = next(
        ((one, said) for one in _pythons() if (said := ask([one, "-c", _VERSION]).strip())), ("", "")
    )
    if not python:
        return "no Python here has PyTorch: install timesink beside it, or put that Python first on PATH"
    name, _, driver = ask(_GPU_QUERY).partition("\n")[0].partition(", ")
    return Bench(python, version, name.strip(), driver.strip())


def _pythons() -> list[str]:
    found = [sys.executable, shutil.which("python"), shutil.which("python3")]
    return list(dict.fromkeys(one for one in found if one))


def measured_prices(trace: Trace, cache: Path | None = None, budget_s: float = BUDGET_S) -> MeasuredPrices:
    """What the changes that a plan could be made of leave of their kernels on this machine's GPU, if it is of the kind
    that made the trace; without any price, and with the reason, where that cannot be told."""
    joint = changes_offered(trace, diagnose(trace))
    if isinstance(joint, str):
        return MeasuredPrices(refused=joint)
    bench = find_bench()
    if isinstance(bench, str):
        return MeasuredPrices(refused=bench)
    names = trace.get(DEVICES).select("name").to_series().drop_nulls().unique().to_list()
    if not bench.gpu:
        where = f", such as a machine with {names[0]}" if names else ""
        return MeasuredPrices(refused=f"this machine has no GPU: run it where the trace was made{where}")
    if names and bench.gpu not in names:
        here = f"the trace is of {names[0]}, this machine has {bench.gpu}"
        return MeasuredPrices(refused=f"{here}: run it on the GPU that made the trace, or on another of its kind")
    return prices_on(BenchQuestions(joint), bench, cache, budget_s)


def _unasked(asked: BenchQuestions) -> str:
    if not asked.trace.get(HOST_OPS).height:
        return f"the trace records no operators of PyTorch{_SHAPES}"
    return "" if asked.are_recorded else f"the trace records no shapes of operators{_SHAPES}"


_SHAPES: Final = ", so only calls of the CPU were measured: `timesink capture torch` records shapes"


def prices_on(
    asked: BenchQuestions, bench: Bench, cache: Path | None = None, budget_s: float = BUDGET_S
) -> MeasuredPrices:
    """The same on a bench, whatever it has: of a trace without shapes what its host takes, and nothing of kernels."""
    if cache is None:
        from platformdirs import user_cache_path

        cache = user_cache_path("timesink") / "prices"
    kept = cache / f"{bench.key}.json"
    unasked = _unasked(asked)
    own = () if unasked else asked.questions()
    questions = [{**question, "id": identity(question)} for question in (*own, *_HOST)]
    known = _kept(kept)
    left = [question for question in questions if question["id"] not in known]
    notes = [unasked] * bool(unasked)
    if left:
        answers, why = _answered(left, bench, budget_s)
        known |= answers
        with suppress(OSError):
            cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(kept, json.dumps({**_kept(kept), **answers}))
        if why:
            notes.append(f"the bench ended early: {why}")
    missed = sum(question["id"] not in known or "failed" in known[question["id"]] for question in questions)
    if missed:
        notes.append(f"{missed} of {len(questions)} questions have no answer: those prices stay assumed")
    origin: Origin = "measured here" if left else "measured for this GPU"
    found = MeasuredPrices() if unasked else prices(asked, known, origin)
    machine, regions = (known.get(identity(question), {}) for question in _HOST)
    return replace(found, figures=figures_of(machine, regions, trains(asked.trace)), notes=tuple(notes))


def _kept(file: Path) -> dict[str, dict[str, Any]]:
    """Answers of before; none where the file cannot be read."""
    with suppress(OSError, ValueError):
        found = document(file)
        if isinstance(found, dict):
            return {key: answer for key, answer in found.items() if isinstance(answer, dict)}
    return {}


def _answered(
    questions: list[dict[str, Any]], bench: Bench, budget_s: float
) -> tuple[Mapping[str, dict[str, Any]], str]:
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
            why = scrub_sentence(" / ".join(ended.tail()[-2:]))[:300]
            if said.get("now"):
                found[said["now"]] = {"failed": why or "it broke the bench"}
            budget_s -= ended.seconds
            if not said or budget_s < _START_S:
                break
    return found, why
