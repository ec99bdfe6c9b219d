"""What the answers of a bench say of a trace's kernels.

What a change keeps of a kernel's time is what its operator takes in the bench in changed form over what it takes there
as it was recorded. Whether the trace's time is nearer to that with operands in the GPU's cache or without tells which
of the two counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan.ladder import changes_offered
from timesink.diagnosis.verdicts import Diagnosis
from timesink.fixes.measured import MeasuredForm, MeasuredKernels, MeasuredPrices, Origin
from timesink.measures.timeline.known import trains
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.trials.asked import (
    AUTOCAST,
    FORMS,
    MACHINE,
    OF_OPTIMIZER,
    PRODUCTS,
    REGIONS,
    BenchQuestions,
    Question,
    gpus,
    identity,
)
from timesink.trials.attention import json_list
from timesink.trials.grid import by_grid, calls_of, cast_us_of, figures_of
from timesink.trials.machine import Answers, MachineFile
from timesink.units import NS_PER_US
from timesink.whatif import Range

Answer = Mapping[str, Any]
ByRow = dict[int, tuple[float, ...]]
"""What each kernel keeps: as it wins least, as expected, as it wins most."""
_WEIGHED: Final = ("aten::mm", "aten::addmm", "aten::linear")  # products with weights
_OFF: Final = 0.05  # what the bench repeats to
_COLDER: Final = 1.05
_FAR: Final = 2.0  # a bench that takes so many times as long as the trace, or as little, did not run what was recorded
_SURE_HOST: Final = (1.3, 1.0, 0.8)  # of what the host took in the bench: least won, expected, most won
_GONE: Final = (0.0, 0.0, 0.0)
_MAY_GO: Final = (1.0, 0.0, 0.0)
_STAYS: Final = (1.0, 1.0, 0.9)
_HALF: Final = 0.5
_LEAST_US: Final = 1e-6


def kept_prices(trace: Trace, diagnosis: Diagnosis | None = None, folder: Path | None = None) -> MeasuredPrices | None:
    """What the file of a machine with the trace's GPU says, without running anything; None without one."""
    file = MachineFile.of_gpu(gpus(trace), folder)
    joint = None if file is None else changes_offered(trace, diagnosis or diagnose(trace))
    if file is None or joint is None or isinstance(joint, str):
        return None
    return by_answers(BenchQuestions(joint), file.answers, "measured for this GPU")


def by_answers(asked: BenchQuestions, known: Answers, origin: Origin) -> MeasuredPrices:
    """Prices by all that is known; an operator that was not run by itself takes what the products of its sizes do."""
    machine, regions, products = (known.get(identity(one), {}) for one in (MACHINE, REGIONS, PRODUCTS))
    left = (one for one in asked.questions if "failed" in known.get(identity(one), {"failed": ""}))
    by_sizes = by_grid(left, machine, products)
    found = prices(asked, {**known, **by_sizes}, origin) if asked.questions else MeasuredPrices()
    calls = calls_of(machine, regions, trains(asked.trace))
    return replace(found, figures=figures_of(machine), calls=calls)


def prices(asked: BenchQuestions, answers: Mapping[str, Answer], origin: Origin) -> MeasuredPrices:
    """What the answers say, by questions as `identity` names them."""
    kernels: dict[str, MeasuredKernels] = {}
    beside: dict[tuple[str, str], MeasuredKernels] = {}
    forms: list[MeasuredForm] = []
    bytes_per_us = answers.get(identity(MACHINE), {}).get("dram_bandwidth", 0.0)
    by_sign = {sign: _answer(one.question, answers) for sign, one in asked.operators.items()}
    for fix in FORMS:
        shares = _Shares(asked, fix, False, bytes_per_us)
        if by_row := shares.of(by_sign):
            kernels[fix] = _measured(asked, by_row)
            beside[fix, "compile"] = _measured(asked, _Shares(asked, fix, True, bytes_per_us).of(by_sign))
            forms.append(_form(asked, fix, by_row, origin, shares.bench_ns))
    for fix, by_row, host_us in (*_attention(asked, answers), *_optimizers(asked, answers), *_lists(asked, answers)):
        kernels[fix] = _measured(asked, by_row, host_us)
        forms.append(_form(asked, fix, by_row, origin))
    for fix, form in ((fix, FORMS[fix][0]) for fix in AUTOCAST if fix in kernels):
        for _, by_row, _ in _attention(asked, answers, form, kernels[fix]):
            beside["fused_attention", form] = _measured(asked, by_row)
    return MeasuredPrices(kernels, beside, forms=tuple(forms))


def _answer(question: Question, answers: Mapping[str, Answer]) -> Answer:
    """What is known of a question; nothing where it failed."""
    found = answers.get(identity(question), {})
    return {} if "failed" in found else found


def _measured(asked: BenchQuestions, by_row: ByRow, host_us: float | None = None) -> MeasuredKernels:
    rows = np.array(sorted(by_row), np.int64)
    shares = np.array([by_row[row] for row in rows.tolist()], np.float64)
    taken = None if host_us is None else Range(*(times * host_us for times in _SURE_HOST))
    return MeasuredKernels(asked.device, rows, tuple(shares.T), taken)


def _form(asked: BenchQuestions, fix: str, by_row: ByRow, origin: Origin, bench_ns: float = 0.0) -> MeasuredForm:
    """What was measured of a fix, per step."""
    length, altered = asked.lengths, asked.altered.get(fix, np.empty(0, np.int64))
    traced = sum(length.get(row, 0) for row in by_row)
    changed = sum(length.get(row, 0) * shares[1] for row, shares in by_row.items())
    whole = sum(length.get(row, 0) for row in {*altered.tolist(), *by_row})
    return MeasuredForm(fix, origin, *(float(ns) / asked.step_count for ns in (whole, traced, bench_ns, changed)))


def _is_alike(traced_us: float, bench_us: float) -> bool:
    """Whether the bench took about what the trace did for the same: else it tells nothing of a change."""
    return bench_us < _FAR * traced_us and traced_us < _FAR * bench_us


def _of_ratio(ratio: float) -> tuple[float, float, float]:
    return ratio * (1 + 2 * _OFF), ratio, ratio * (1 - 2 * _OFF)


def _attention(
    asked: BenchQuestions, answers: Mapping[str, Answer], form: str = "fused", narrow: MeasuredKernels | None = None
) -> Iterator[tuple[str, ByRow, None]]:
    """What is between the products of attention goes; they keep what one kernel takes of all: beside a change that has
    made them `narrow`, of what that has left."""
    found: ByRow = {}
    left = {} if narrow is None else dict(zip(narrow.rows.tolist(), narrow.keep[1].tolist(), strict=True))
    for (_, question), parts in zip(asked.attention_asked(), asked.attentions.values(), strict=True):
        answer, count = _answer(question, answers), len(parts[False][0]) / 2 if False in parts else 0
        for backward, (products, between) in parts.items() if form in answer and count else ():
            whole = sum(asked.lengths[row] for row in (*products, *between))
            own = sum(asked.lengths[row] * left.get(row, 1.0) for row in products)
            written, fused = answer["recorded"][int(backward)], answer[form][int(backward)]
            is_known = narrow is None or left.keys() >= {*products}
            if own > 0 and is_known and _is_alike(whole / count / NS_PER_US, written):
                wide = "masked" if "masked" in answer and narrow is None else form  # of a mask that is not causal
                most = answer[wide][int(backward)]
                likely, unlikely = (_of_ratio(of / written * whole / own) for of in (fused, max(most, fused)))
                share = unlikely[0], *likely[1:]
                found |= dict.fromkeys(products, share) | dict.fromkeys(between, _GONE)
    if found:
        yield "fused_attention", found | dict.fromkeys(asked.copies, _MAY_GO), None


def _optimizers(asked: BenchQuestions, answers: Mapping[str, Answer]) -> Iterator[tuple[str, ByRow, float]]:
    """The kernels of a step, and the host's time for it."""
    for _, question in asked.optimizer_asked():
        answer = _answer(question, answers)
        for fix, form in OF_OPTIMIZER.items():
            if fix not in asked.altered or form not in answer:
                continue
            if _is_alike(_per_step_us(asked, asked.altered[fix].tolist()), answer["recorded"][0]):
                share = _of_ratio(answer[form][0] / max(answer["recorded"][0], _LEAST_US))
                yield fix, dict.fromkeys(asked.altered[fix].tolist(), share), answer[form][2]


def _lists(asked: BenchQuestions, answers: Mapping[str, Answer]) -> Iterator[tuple[str, ByRow, None]]:
    """The kernels of operations on lists."""
    found: ByRow = {}
    for _, question, rows in asked.lists.values():
        answer = _answer(question, answers)
        if answer and _is_alike(_per_step_us(asked, rows), answer["recorded"][0]):
            share = _of_ratio(answer["list"][0] / max(answer["recorded"][0], _LEAST_US))
            found |= dict.fromkeys(rows, share)
    if found:
        yield "list_operations", found, None


def _per_step_us(asked: BenchQuestions, rows: Iterable[int]) -> float:
    return sum(asked.lengths.get(row, 0) for row in rows) / asked.step_count / NS_PER_US


class _Shares:
    """What the kernels of operators keep in the form that a fix gives them; with a compiler casts are `fused`."""

    def __init__(self, asked: BenchQuestions, fix: str, fused: bool, bytes_per_us: float) -> None:
        self.asked, self.fix, self.fused, self.bytes_per_us = asked, fix, fused, bytes_per_us
        self.form, self.families = FORMS[fix]
        self.bench_ns, self.trains = 0.0, trains(asked.trace)

    def of(self, answers: Mapping[int, Answer]) -> ByRow:
        """The shares; none where nothing was measured."""
        found: ByRow = {}
        for (sign, _), part in self.asked.of(self.fix, self.families).group_by("sign", "reads"):
            answer = answers.get(int(str(sign)), {})
            shares = self._shares(answer, part) if self.form in answer else None
            if shares is not None:
                found |= (
                    self._on_kernels(part, shares)
                    if self.form == "channels_last"
                    else dict.fromkeys(part["row"].to_list(), shares)
                )
        if found and self.fix in AUTOCAST:
            found |= self._of_narrowed(answers)
            found |= {} if self.fused else self._of_widened()
        return found

    def _of_widened(self) -> ByRow:
        """What autocast computes in fp32 from 16 bits takes a cast more."""
        found: ByRow = {}
        for _, part in self.asked.widened.group_by("host_op") if self.bytes_per_us else ():
            cast_us = cast_us_of(json_list(part["shapes"][0])[:1], self.bytes_per_us)
            more = cast_us * NS_PER_US / max(float(part["length"].sum()), 1.0)
            found |= dict.fromkeys(part["row"].to_list(), (1 + 2 * more, 1 + more, 1.0))
        return found

    def _of_narrowed(self, answers: Mapping[int, Answer]) -> ByRow:
        """Between products, what comes in 16 bits takes what it takes in them; all else stays."""
        found: ByRow = {}
        for (sign, narrow), part in self.asked.of_narrowed(self.fix).group_by("sign", "narrow"):
            answer = answers.get(int(str(sign)), {})
            if not narrow:
                found |= dict.fromkeys(part["row"].to_list(), _STAYS)
            elif self.form in answer and (shares := self._shares(answer, part, is_product=False)):
                found |= dict.fromkeys(part["row"].to_list(), shares)
        return found

    @staticmethod
    def _on_kernels(part: pl.DataFrame, shares: tuple[float, ...]) -> ByRow:
        """With channels last converters go, and what is left of an operator's time is that of its other kernels."""
        converts = pl.col("family") == "layout"
        total, left = (float(some["length"].sum()) for some in (part, part.filter(~converts)))
        if not left:
            return dict.fromkeys(part["row"].to_list(), shares)
        grown = tuple(share * total / left for share in shares)
        gone = dict.fromkeys(part.filter(converts)["row"].to_list(), _GONE)
        return dict.fromkeys(part.filter(~converts)["row"].to_list(), grown) | gone

    def _shares(self, answer: Answer, part: pl.DataFrame, is_product: bool = True) -> tuple[float, float, float] | None:
        count = part["host_op"].n_unique()
        traced_us = float(part["length"].sum()) / count / NS_PER_US
        (warm, cold), (new_warm, new_cold) = answer["recorded"], answer[self.form]
        far = min(max((traced_us - warm) / (cold - warm), 0.0), 1.0) if cold > _COLDER * warm else _HALF
        base, new = warm + far * (cold - warm), new_warm + far * (new_cold - new_warm)
        if not _is_alike(traced_us, base):
            return None
        most, usual, least = self._casts(answer, part.row(0, named=True), is_product)
        self.bench_ns += base * count * NS_PER_US
        off = answer.get("off", _OFF)
        ends = (new_warm + usual) / warm, (new_cold + usual) / cold, (new + usual) / base
        cautious, hopeful = max(*ends, (new + most) / base), min(*ends, (new + least) / base)
        return cautious * (1 + off), ends[2], hopeful * (1 - off)

    def _casts(self, answer: Answer, row: Mapping[str, Any], is_product: bool) -> tuple[float, float, float]:
        """Microseconds of casts beside the product under autocast: at most, as expected, at least.

        A weight is cast, and its gradient; what a product reads that comes in fp32, such as from a norm or softmax, and
        the gradient of that. Where that is not known, half of it is expected of products with weights.
        """
        if self.fix not in AUTOCAST or not is_product:
            return 0.0, 0.0, 0.0
        operands, results = answer[f"{self.form} casts"], answer[f"{self.form} results"]
        name, of_results = row["op"], sum(results)
        is_weighed, is_convolution = name in _WEIGHED, "convolution" in name
        wide = _HALF * is_weighed if row["reads"] is None else float(not row["reads"])
        if row["backward"]:
            steps = (json_list(row["strides"]) or [[]])[0]
            of_weight = len(steps) == len("mk") and steps[0] == 1 != steps[1]  # the gradient times the input
            usual = of_results * (1.0 if of_weight and is_weighed else wide)
            most, usual = of_results, sum(results[1:]) + wide * results[0] if is_convolution else usual
            least = _HALF * usual
        else:
            first = int(name == "aten::addmm")  # after the bias
            own, most = operands[first], sum(operands)
            weights = (most - own) * (is_weighed or is_convolution)
            usual = weights + own * wide
            least = weights if self.trains else 0.0
        return (_HALF * most, 0.0, 0.0) if self.fused else (most, usual, least)
