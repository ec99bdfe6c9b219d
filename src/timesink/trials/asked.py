"""What a plan asks of a GPU: the recorded operators that its changes alter, and the forms that these then have.

An operator is asked for once, however often it was called with the same shapes, strides and types; so are the attention
that is written out, the optimizer's step, and operations that go through lists one by one.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import polars as pl

from timesink.diagnosis.plan import Joint
from timesink.fixes.table import FIXES
from timesink.knowledge.kernels import PRODUCTS as PRODUCT_FAMILIES
from timesink.knowledge.operators import FOLLOWS_ITS_OPERANDS, ONLY_COMPUTES
from timesink.knowledge.ranges import AUTOGRAD_OPERATOR, TORCH_OPTIMIZER_STEP
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.steps import steps
from timesink.measures.timeline import of_device
from timesink.model.arrays import Int64Array
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS, DEVICES, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.trials.attention import RowsOfPass, Sizes, copies_around, is_square_mask, json_list, written_out
from timesink.whatif import Change
from timesink.whatif.changes.kernels import OfKernels, ShortenKernels

Question = dict[str, Any]
_SIGNATURE: Final = ("op", "shapes", "types", "strides", "scalars", "math", "backward")
FORMS: Final = {fix.name: (fix.bench.form, fix.bench.families) for fix in FIXES if fix.bench.families}
"""The form that a fix gives to which kinds of kernels."""
MACHINE, REGIONS, PRODUCTS = ({"kind": kind} for kind in ("machine", "regions", "products"))
"""What is asked of any machine."""
WIDE: Final = ("norm", "softmax", "loss")
AUTOCAST: Final = tuple(fix.name for fix in FIXES if fix.bench.call == "cast")
OF_OPTIMIZER: Final = {fix.name: fix.bench.form for fix in FIXES if fix.bench.form and not fix.bench.families}
_LISTED: Final = frozenset({"add_", "sub_", "mul_", "div_", "lerp_", "copy_", "addcmul_", "addcdiv_", "zero_"})
_SCALED: Final = ("aten::mul_", "aten::div_", "aten::lerp_")
_MASKS: Final = frozenset({"aten::add", "aten::masked_fill", "aten::masked_fill_", "aten::add_"})
_OPTIMIZERS: Final = frozenset({"Adam", "AdamW", "SGD"})
_MOST_QUESTIONS: Final = 160
_SHAPES: Final = ", so only calls of the CPU were measured: `timesink capture torch` records shapes"


@dataclass(frozen=True, slots=True)
class AskedOperator:
    """One operator of one signature: the nanoseconds of all its kernels, and its question."""

    ns: float
    question: Question


class BenchQuestions:
    """The questions of one rank's first device, most of the time first, and what answers make of its changes."""

    def __init__(self, joint: Joint) -> None:
        self.joint, self.trace = joint, joint.trace
        self.device = joint.rank, joint.device
        self.step_count = max(steps(self.trace).windows.filter(pl.col("rank") == joint.rank).height, 1)

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """The device's kernels with the recorded signature of their operators, and `sign`, its number; `reads` says
        whether under autocast its operator reads 16 bits, backward whether what comes next does. Sorted by row."""
        host, own = self.trace.get(HOST_OPS), kernel_facts(self.trace).on(self.device)
        op = own["host_op"].fill_null(0).to_numpy()
        told = host.select(
            pl.col("name").cast(pl.String).alias("op"),
            *(
                pl.col(f"input_{name}").cast(pl.String).alias(alias)
                for name, alias in (("shapes", "shapes"), ("dtypes", "types"), ("strides", "strides"))
            ),
            pl.col("concrete_inputs").cast(pl.String).alias("scalars"),
            self._backward(host).alias("backward"),
        )[op]
        frame = own.select("row", "stream", "start_ns", "length", "family", "host_op", pl.col("math").cast(pl.String))
        frame = pl.concat([frame.with_columns(pl.col("family").cast(pl.String)), told], how="horizontal")
        frame = frame.with_columns(pl.when(pl.col("host_op").is_not_null()).then("op").alias("op"))
        of_op = pl.col("math").sort_by("length").last().over("host_op")  # a product beside what lays its operands out
        frame = frame.with_columns(pl.when(pl.col("host_op").is_not_null()).then(of_op).otherwise("math").alias("math"))
        numbers = pl.struct(_SIGNATURE).rank("dense").cast(pl.Int64).alias("sign")
        told = frame.with_columns(numbers, self._known(frame).alias("known")).sort("stream", "start_ns")
        last, coming = pl.col("known").forward_fill().shift(1), pl.col("known").backward_fill().shift(-1)
        told = told.with_columns(last.over("stream").alias("last"), coming.over("stream").alias("next"))
        beside = pl.when("backward").then(pl.col("next").last()).otherwise(pl.col("last").first())
        return told.with_columns(beside.over("host_op").alias("reads")).drop("last", "next").sort("row")

    @staticmethod
    def _known(frame: pl.DataFrame) -> pl.Expr:
        """Whether autocast has a kernel compute in 16 bits, as products, or in fp32; null where it follows its
        operands. A sum of two tensors of one shape is of a layer's input, which is fp32 after a norm over layers."""
        follows = pl.col("op").str.contains(FOLLOWS_ITS_OPERANDS).fill_null(False)
        shapes = frame["shapes"].drop_nulls().unique().to_list()
        alike = [text for text in shapes if len(told := json_list(text)) > 1 and told[0] and told[0] == told[1]]
        adds = pl.col("op").is_in(("aten::add", "aten::add_")) & pl.col("shapes").is_in(alike)
        layered = bool(frame["op"].is_in(["aten::native_layer_norm", "aten::native_group_norm"]).any())
        wide = pl.col("family").is_in(WIDE) & ~follows
        return pl.when(pl.col("family").is_in(PRODUCT_FAMILIES)).then(True).when(wide | (adds & layered)).then(False)

    @staticmethod
    def _backward(host: pl.DataFrame) -> pl.Series:
        """For each operator whether it runs on a thread that works out gradients."""
        of_autograd = matches(host["name"], AUTOGRAD_OPERATOR)
        thread = host.select(pl.struct("process", "thread")).to_series()
        return thread.is_in(thread.filter(of_autograd).unique().implode())

    @property
    def are_recorded(self) -> bool:
        """Whether any operator's shapes are."""
        shapes = self.trace.get(HOST_OPS)["input_shapes"]
        return shapes.null_count() < len(shapes)

    @cached_property
    def altered(self) -> Mapping[str, Int64Array]:
        """The kernels of the device that each fix alters, by rows."""
        found = {}
        for name in self.joint.offered:
            rows = [rows for part in self.joint.parts({name}) for rows in _rows(part, self.device)]
            if rows:
                found[name] = np.unique(np.concatenate(rows))
        return found

    def is_altered(self, fix: str) -> pl.Expr:
        """Whether a fix alters a kernel, by its row."""
        rows = pl.Series(self.altered.get(fix, np.empty(0, np.int64)), dtype=pl.Int64)
        return pl.col("row").is_in(rows.implode())

    @cached_property
    def narrowed(self) -> pl.DataFrame:
        """The kernels between products that autocast leaves in the type of their operands, and `narrow`: whether these
        come in 16 bits, as from a product on, until something that autocast computes in fp32."""
        follows, product = pl.col("op").str.contains(FOLLOWS_ITS_OPERANDS), pl.col("family").is_in(PRODUCT_FAMILIES)
        of_step = self.is_altered("fused_optimizer") | self.is_altered("list_operations")  # of fp32 weights
        narrow = (pl.col("known").forward_fill().over("stream").fill_null(False) & ~of_step).alias("narrow")
        ordered = self.kernels.sort("stream", "start_ns").with_columns(narrow)
        return ordered.filter(follows & ~product & pl.col("shapes").is_not_null()).sort("row")

    @cached_property
    def widened(self) -> pl.DataFrame:
        """The kernels of what autocast computes in fp32 from what comes in 16 bits, and is cast."""
        follows = pl.col("op").str.contains(FOLLOWS_ITS_OPERANDS).fill_null(True)
        return self.kernels.filter(pl.col("family").is_in(WIDE) & ~follows & pl.col("reads"))

    def of_narrowed(self, fix: str) -> pl.DataFrame:
        """Those that a fix alters."""
        return self.narrowed.filter(self.is_altered(fix))

    def of(self, fix: str, families: Sequence[str]) -> pl.DataFrame:
        """The kernels of operators, recorded with their shapes, of which a fix alters a kernel of these families."""
        named = self.kernels.filter(
            self.is_altered(fix) & pl.col("family").is_in(families) & pl.col("shapes").is_not_null()
            & pl.col("op").str.contains(ONLY_COMPUTES)  # a trace may name any operator
        )  # fmt: skip
        return self.kernels.filter(pl.col("host_op").is_in(named["host_op"].unique().implode()))

    @cached_property
    def operators(self) -> Mapping[int, AskedOperator]:
        """The operators that are asked for, by the number of their signature."""
        forms: dict[int, set[str]] = {}
        for fix, (form, families) in FORMS.items():
            for sign in self.of(fix, families)["sign"].unique().to_list():
                forms.setdefault(sign, set()).add(form)
        for fix in AUTOCAST:
            for sign in self.of_narrowed(fix).filter("narrow")["sign"].unique().to_list():
                forms.setdefault(sign, set()).add(FORMS[fix][0])
        own = self.kernels.filter(pl.col("sign").is_in(list(forms))).sort("row")
        first = own.group_by("sign").agg(*(pl.col(name).first() for name in _SIGNATURE), pl.sum("length")).sort("sign")
        found = {}
        for row in first.iter_rows(named=True):
            told = {name: json_list(row[name]) for name in ("shapes", "types", "strides", "scalars")}
            if len({len(part) for part in told.values()}) == 1:
                question = {"kind": "operator", "name": row["op"], **told, "forms": sorted(forms[row["sign"]])}
                found[row["sign"]] = AskedOperator(float(row["length"]), {**question, "tf32": row["math"] == "tf32"})
        return found

    @cached_property
    def unasked(self) -> str:
        """Why nothing is asked of the trace's kernels, if so."""
        if not self.trace.get(HOST_OPS).height:
            return f"the trace records no operators of PyTorch{_SHAPES}"
        return "" if self.are_recorded else f"the trace records no shapes of operators{_SHAPES}"

    @cached_property
    def questions(self) -> list[Question]:
        """All of them, those first whose kernels took most; none where the trace records no shapes."""
        if self.unasked:
            return []
        asked = [(one.ns, one.question) for one in self.operators.values()]
        asked += [*self.attention_asked(), *self.optimizer_asked()]
        asked += [(ns, question) for ns, question, _ in self.lists.values()]
        asked.sort(key=lambda pair: -pair[0])
        return [question for _, question in asked[:_MOST_QUESTIONS]]

    @cached_property
    def lengths(self) -> Mapping[int, int]:
        """Nanoseconds of each kernel, by row."""
        return dict(self.kernels.select("row", "length").iter_rows())

    @cached_property
    def attentions(self) -> Mapping[Sizes, dict[bool, RowsOfPass]]:
        """Attention written out, by (heads, queries, keys, width): rows of the forward and of the backward pass."""
        own = self.kernels.filter(self.is_altered("fused_attention")).sort("stream", "start_ns")
        read = own.select("row", pl.col("family").is_in(PRODUCT_FAMILIES), "shapes", "backward")
        found = written_out(read.iter_rows())
        return {key: parts for key, parts in found.items() if all(products for products, _ in parts.values())}

    @cached_property
    def copies(self) -> list[int]:
        """Rows of copies that are there for attention written out."""
        rows = [row for parts in self.attentions.values() for part in parts.values() for own in part for row in own]
        sizes = {heads * side * width for heads, *sides, width in self.attentions for side in sides}
        ops = self.trace.get(DEVICE_OPS).with_row_index("row").filter(of_device(self.device))
        told = ops.select(pl.col("row").cast(pl.Int64), "stream", "start_ns", "copy_kind").join(
            self.kernels.select("row", "op", "shapes"), on="row", how="left"
        )
        found = []
        for _, part in told.sort("start_ns").group_by("stream", maintain_order=True):
            is_own, op = part["row"].is_in(rows), part["op"].to_list()
            counts = [
                -1 if kind == "d2d" else _elements(text) if name == "aten::copy_" else 0
                for kind, name, text in zip(part["copy_kind"], op, part["shapes"], strict=True)
            ]
            found += copies_around(zip(part["row"].to_list(), is_own.to_list(), counts, strict=True), sizes)
        return found

    def attention_asked(self) -> Iterator[tuple[float, Question]]:
        """What takes how long, in ns, and the question, in the order of `attentions`."""
        forms = [FORMS[fix][0] for fix in AUTOCAST if fix in self.altered]
        for sizes, parts in self.attentions.items():
            rows = [row for products, between in parts.values() for row in (*products, *between)]
            own = self.kernels.filter(pl.col("row").is_in(rows))
            ops = set(own["op"].drop_nulls())
            masks = own.filter(pl.col("op").is_in(_MASKS))["shapes"].unique()
            causal = {"causal": True} if any(is_square_mask(text, sizes) for text in masks) else {}
            kinds = json_list(own.filter(pl.col("family").is_in(PRODUCT_FAMILIES))["types"][0])
            yield (
                float(own["length"].sum()),
                {
                    "kind": "attention", "sizes": list(sizes), "type": kinds[0], "trains": True in parts,
                    "masked": bool(ops & _MASKS), "tf32": "tf32" in set(own["math"]), "forms": forms, **causal,
                },
            )  # fmt: skip

    @cached_property
    def optimizer(self) -> tuple[str, list[list[int]], bool, bool] | None:
        """The optimizer: its class, the sizes of its tensors, whether it keeps a momentum, and whether it goes over
        lists; None where that is not recorded."""
        ranges = self.trace.get(RANGES).filter(matches(self.trace.get(RANGES)["name"], TORCH_OPTIMIZER_STEP))
        names = Counter(str(name).partition("#")[2].partition(".")[0] for name in ranges["name"])
        fixes = [fix for fix in OF_OPTIMIZER if fix in self.altered]
        if len(names) != 1 or not fixes or not set(names) <= _OPTIMIZERS:
            return None
        own = self.kernels.filter(self.is_altered(fixes[0]))
        over_lists = bool((own["family"] == "foreach").any())
        told = self._list_sizes(own) if over_lists else []  # of a long list nothing is recorded
        sizes = max(told, self._gradient_sizes(ranges.height), key=len)
        momentum = own["op"].n_unique() > 1
        return (next(iter(names)), sizes, momentum, over_lists) if sizes else None

    @staticmethod
    def _list_sizes(own: pl.DataFrame) -> list[list[int]]:
        """The tensors of the longest list that an operator took."""
        lists = [json_list(text) for text in own["shapes"].drop_nulls().unique().sort()]
        firsts = [one[0] for one in lists if one and isinstance(one[0], list) and one[0] and one[0][0]]
        whole = [one for one in firsts if all(isinstance(size, list) for size in one)]
        return max(whole, key=len, default=[])

    def _gradient_sizes(self, count: int) -> list[list[int]]:
        """What gradients are added up in, of one step of so many."""
        host = self.trace.get(HOST_OPS).filter(pl.col("name").cast(pl.String) == "torch::autograd::AccumulateGrad")
        sizes: list[list[int]] = []
        for text, number in host["input_shapes"].cast(pl.String).value_counts().iter_rows():
            found = json_list(text)
            if found and all(isinstance(size, int) for size in found[0]):
                sizes += [found[0]] * max(round(number / max(count, 1)), 1)
        return sorted(sizes)

    def optimizer_asked(self) -> Iterator[tuple[float, Question]]:
        """The same of the optimizer's step, if it is known."""
        if self.optimizer is None:
            return
        name, sizes, momentum, over_lists = self.optimizer
        forms = [form for fix, form in OF_OPTIMIZER.items() if fix in self.altered]
        rows = np.concatenate([self.altered[fix] for fix in OF_OPTIMIZER if fix in self.altered])
        ns = self.kernels.filter(pl.col("row").is_in(np.unique(rows)))["length"].sum()
        options = {"momentum": momentum and name == "SGD", "form": "foreach" if over_lists else "loop"}
        yield float(ns), {"kind": "optimizer", "name": name, "sizes": sizes, "forms": forms, **options}

    @cached_property
    def lists(self) -> Mapping[str, tuple[float, Question, list[int]]]:
        """Operations on tensors one by one that a change makes on lists: the time of their kernels, the question, and
        their rows."""
        own = self.kernels.filter(self.is_altered("list_operations") & pl.col("shapes").is_not_null())
        found = {}
        for (op,), part in own.group_by("op", maintain_order=True):
            name = str(op)
            if name.removeprefix("aten::") in _LISTED:
                sizes: list[list[int]] = []
                for text, number in part["shapes"].value_counts().iter_rows():
                    sizes += [json_list(text)[0]] * max(round(number / self.step_count), 1)
                told = json_list(part["shapes"][0])
                operands = max(sum(bool(shape) and shape == told[0] for shape in told), 1)
                question = {"kind": "list", "name": name, "sizes": sorted(sizes), "operands": operands}
                question["scalar"] = name in _SCALED
                found[name] = float(part["length"].sum()), question, part["row"].to_list()
        return found


def gpus(trace: Trace) -> list[str]:
    """The names of the GPUs that a trace is of."""
    return trace.get(DEVICES).select("name").to_series().drop_nulls().unique().to_list()


def identity(question: Mapping[str, Any]) -> str:
    """What tells a question from others: its content."""
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:24]


def _elements(shapes: str | None) -> int:
    """Of the first operand."""
    first = next(iter(json_list(shapes)), None)
    return math.prod(first) if first and all(isinstance(size, int) for size in first) else 0


def _rows(part: Change, device: tuple[int, int]) -> Iterator[Int64Array]:
    kernels = part.kernels if isinstance(part, OfKernels) else part
    if isinstance(kernels, ShortenKernels) and kernels.device == device:
        yield kernels.rows
        if kernels.beside is not None:
            yield kernels.beside.rows
