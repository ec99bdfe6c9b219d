"""Laws of types: a kernel's name says no type but that of its operands, and no advice names one that no GPU has."""

import re
from collections.abc import Iterator
from typing import Final

import polars as pl
from tests.gate.answers import Answers

from timesink.knowledge.kernels import PRODUCTS, decode
from timesink.knowledge.operators import operand_type
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.timeline.attribution import names_at
from timesink.model.tables import DEVICE_OPS, DEVICES, HOST_OPS

_LACKS: Final = (
    (re.compile(r"\b(?:K80|M40|M60|P4|P40|P100|GTX)\b"), ("fp16", "bf16", "tf32", "fp8", "fp4")),
    (re.compile(r"\b(?:V100|T4|Quadro RTX|RTX 20\d0|TITAN V)\b"), ("bf16", "tf32", "fp8", "fp4")),
    (re.compile(r"\b(?:A100|A800|A30|A10G?|A40|A16|A2|RTX A\d000|RTX 30\d0)\b"), ("fp8", "fp4")),
    (re.compile(r"\b(?:H100|H200|H800|GH200|L4|L40S?|RTX 40\d0)\b"), ("fp4",)),
    (re.compile(r"\bMI(?:100|210|250X?)\b"), ("tf32", "fp8", "fp4")),
)
"""What tensor cores do not compute, by product: datasheets of NVIDIA and AMD."""


def types_by_name_are_those_recorded(of: Answers) -> Iterator[str]:
    """Of products whose operator recorded one floating type; fp32 operands may be multiplied as TF32. Operators of
    compiled graphs record the types of a whole graph."""
    host = of.trace.get(HOST_OPS)
    facts = kernel_facts(of.trace).frame.filter(pl.col("family").is_in(list(PRODUCTS)))
    is_aten = pl.col("name").cast(pl.String).str.starts_with("aten::")
    types = host.select(pl.when(is_aten).then("input_dtypes")).to_series()
    kernels = pl.DataFrame(
        {
            "name": of.trace.get(DEVICE_OPS)["name"][facts["row"]].cast(pl.String),
            "types": names_at(types, facts["host_op"].fill_null(-1).to_numpy(), "types").cast(pl.String),
        }
    )
    for name, recorded in kernels.drop_nulls().unique().sort("name").iter_rows():
        named, operands = decode(name).math, operand_type(recorded)
        if None not in (named, operands) and named != operands and (named, operands) != ("tf32", "fp32"):
            yield f"{name} is said to compute {named}, its operands are {operands}: {recorded}"


def advice_names_no_type_that_is_lacking(of: Answers) -> Iterator[str]:
    """Where every GPU of the capture lacks a type, no advice names it."""
    names = [name or "" for name in of.trace.get(DEVICES)["name"].cast(pl.String)]
    lacking = [{kind for product, kinds in _LACKS if product.search(name) for kind in kinds} for name in names]
    for kind in sorted(set.intersection(*lacking) if lacking else ()):
        for card, finding in of.diagnosis.findings:
            if kind in finding.advice.lower():
                yield f"{card.name} advises {kind} on {', '.join(names)}: {finding.advice}"
