"""What the machine's file says of any program: products that were not run by themselves, by what those of their sizes
take on its grid; calls of the host; figures in place of assumptions."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Final

from timesink.knowledge.assumptions import ALL, Assumption
from timesink.trials.asked import Question, identity
from timesink.whatif import Range

Answer = Mapping[str, Any]
_KINDS: Final = {"float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16"}
_FORMS: Final = ("tf32", "bf16", "fp16")
_MATRICES: Final = {"aten::mm": 2, "aten::addmm": 3, "aten::bmm": 2, "aten::baddbmm": 3}
"""Products of the last two of so many operands."""
_CAST_BYTES: Final = 6  # read in four bytes and written in two, or the other way
_CAST_LEAST_US: Final = 1.5
_LEAST_US: Final = 1e-6
_OFF: Final = 0.25  # what the products of a size differ by: libraries choose by more than the sizes


def by_grid(questions: Iterable[Question], machine: Answer, products: Answer) -> dict[str, dict[str, Any]]:
    """Answers, by `identity`, to those questions that are about products of known sizes."""
    if "sides" not in products or "dram_bandwidth" not in machine:
        return {}
    found = {}
    for question in questions:
        sizes, kind = _sizes(question), _KINDS.get((question.get("types") or [""])[0], "")
        if sizes is not None and kind:
            kind = "tf32" if question["tf32"] and kind == "fp32" else kind
            found[identity(question)] = _answer(question, sizes, kind, machine["dram_bandwidth"], products)
    return found


def _answer(
    question: Question, sizes: Sequence[int], kind: str, bytes_per_us: float, products: Answer
) -> dict[str, Any]:
    made: dict[str, Any] = {"recorded": [_us(products, kind, sizes)] * 2, "off": _OFF}
    for form in question["forms"]:
        if form in _FORMS:
            made[form] = [_us(products, form, sizes)] * 2
            made[f"{form} casts"] = [cast_us_of([shape], bytes_per_us) for shape in question["shapes"]]
            made[f"{form} results"] = [cast_us_of([list(sizes[:2])], bytes_per_us)]
    return made


def cast_us_of(shapes: Sequence[Any], bytes_per_us: float) -> float:
    """Microseconds of a cast of the first of some recorded operands, by what the GPU's memory takes; none of what is no
    tensor."""
    shape = shapes[0] if shapes else None
    elements = math.prod(shape) if shape and all(isinstance(size, int) for size in shape) else 0
    return max(_CAST_BYTES * elements / bytes_per_us, _CAST_LEAST_US) if elements else 0.0


def _sizes(question: Question) -> tuple[int, int, int] | None:
    """Rows, columns and inner size, where the operator is a product; a batch of products has as many rows."""
    operands = _MATRICES.get(question.get("name", ""))
    shapes = question.get("shapes", [])[: operands or 0][-2:]
    if not operands or len(shapes) < 2 or len({len(shape) for shape in shapes}) != 1 or len(shapes[0]) not in (2, 3):
        return None
    *batch, rows, inner = shapes[0]
    return math.prod(batch) * rows, shapes[1][-1], inner


def _us(products: Answer, kind: str, sizes: Sequence[int]) -> float:
    """Microseconds of a product: between those of the grid in proportion of logarithms, beyond it as they go on; what
    is smaller than the smallest takes as long."""
    logs = [math.log(side) for side in products["sides"]]
    cells = [_cell(logs, math.log(max(size, 1))) for size in sizes]
    total = 0.0
    for ends in product((0, 1), repeat=len(cells)):
        at, weight = 0, 1.0
        for (low, far), end in zip(cells, ends, strict=True):
            at, weight = at * len(logs) + low + end, weight * (far if end else 1.0 - far)
        total += weight * math.log(max(products[kind][at], _LEAST_US))
    return math.exp(total)


def _cell(logs: Sequence[float], size: float) -> tuple[int, float]:
    """The place of the grid below a size, and how far on the way to the next it is."""
    low = max((at for at in range(len(logs) - 1) if logs[at] <= size), default=0)
    return low, max((size - logs[low]) / (logs[low + 1] - logs[low]), 0.0)


_CASTS: Final = {"inferred": 4.5, "trained": 12.0}
"""Casts that `fixes.replays.autocast` counts in a layer of the probe: 2.25 for each of two products, or 2 for six."""
_CONVOLVED: Final = {"inferred": 1.5, "trained": 4.5}
"""The same in a layer of its convolutions: 1.5 for each of one product, or of three."""
_SAVED: Final = {"inferred": 0.1, "trained": 0.12}
"""Of a layer's time what a replay takes off for launches that compiling it leaves away: half of one of five, or of four
of seventeen."""
_SURE_CALLS: Final = (1.8, 0.6)
"""Times what is expected, at least: casts in 20 captures of three runs took 0.4 to 1.7 times what the bench says (tenth
to ninetieth percentile), half of them 0.8 to 1.5 times."""


def calls_of(machine: Answer, regions: Answer, is_trained: bool) -> dict[str, Range]:
    """Microseconds of this host for a cast under autocast, for one around a convolution, to enter a compiled region, to
    take a batch of a worker, and for each megabyte of it: as a change wins least, as expected, as it wins most, which
    is at least as far apart as the turns were."""
    kind, found = "trained" if is_trained else "inferred", dict[str, list[float]]()
    for name, key, counted in (("cast", f"{kind}_cast", _CASTS), ("convolution", f"{kind}_convolved_cast", _CONVOLVED)):
        if f"{key} more" in machine:
            found[name] = [us / machine["blocks"] / counted[kind] for us in machine[f"{key} more"]]
    if f"{kind}_compiled more" in regions:
        saved = _SAVED[kind] * regions[kind][1]
        found["region"] = [(us + saved) / regions["blocks"] for us in regions[f"{kind}_compiled more"]]
    if "fetched" in machine:
        (small, small_us), (large, large_us) = machine["fetched"]
        megabyte = (large_us - small_us) / (large - small) * 1e6
        found["megabyte"], found["fetch"] = [megabyte] * 3, [small_us - megabyte * small / 1e6] * 3
    return {name: _sure(*(max(us, 0.0) for us in three)) for name, three in found.items()}


def _sure(least: float, usual: float, most: float) -> Range:
    surely, perhaps = _SURE_CALLS
    return Range(max(most, surely * usual), usual, min(least, perhaps * usual))


def figures_of(machine: Answer) -> dict[str, tuple[float, float, float]]:
    """Figures in place of assumptions, by what this machine takes: each as it wins least, as expected, as it wins
    most."""
    found: dict[str, float] = {}
    if "graph_20" in machine:
        per = max((machine["graph_220"][1] - machine["graph_20"][1]) / 200, 0.01)
        found["fixes.graph_kernel_us"] = per
        found["fixes.graph_replay_us"] = machine["graph_20"][1] - 20 * per
    if "pageable_bandwidth" in machine:
        found["fixes.pinned_time"] = machine["pageable_bandwidth"] / machine["copy_bandwidth"]
    figures = {name: _least_to_most(ALL[name], value) for name, value in found.items()}
    if machine.get("kernel_recorded"):
        apart = (machine["graph_220_device"] - machine["graph_20_device"]) / 200 - machine["kernel_recorded"]
        gap = max(apart, 0.0)  # from kernel to kernel of a graph, beyond what a kernel takes by its record
        figures["fixes.graph_gap_us"] = max(gap, ALL["fixes.graph_gap_us"].value), gap, gap
    return figures


def _least_to_most(assumed: Assumption, value: float) -> tuple[float, float, float]:
    """A probe moves a figure within the range that is assumed, no further."""
    least, most = sorted((assumed.low, assumed.high))
    value = min(max(value, least), most)
    return 1.4 * value, value, 0.7 * value
