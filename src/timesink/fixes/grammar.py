"""How changes are typed after `--change`: each name there is, and what follows it. Reads no trace, and imports nothing
that replays one: what is asked for is judged before what answers it is loaded."""

import shlex
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from timesink.errors import UsageError, did_you_mean
from timesink.knowledge.step_parts import Bottleneck
from timesink.model.patterns import part_named
from timesink.recipes.table import RECIPES
from timesink.records import Record

_MOST_STREAMS: Final = 128  # grids that a device runs at once


class Verb(Record, eq=False):
    """What a fix `takes` after its name where it is typed (`--change`), and what then is priced (`prices`).

    `also` is another name that is understood. Where something must be given, or may be (in square brackets), that is a
    target, KIND:REGEX. `options` takes the words of its own out of those after the name: it returns the rest, and
    arguments for `Fix.change`.
    """

    takes: str
    prices: str
    also: str = ""
    options: Callable[[list[str]], tuple[list[str], dict[str, Any]]] | None = None


def take_factor(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The last word as a factor from 0 to 1."""
    if len(words) != 2:
        raise UsageError("a target and a factor are needed", remedy="write such as kernel:.*gemm.* 0.5")
    try:
        factor = float(words[1])
    except ValueError as error:
        raise UsageError(f"{words[1]!r} is not a factor", remedy="write a number such as 0.5") from error
    if not 0 <= factor <= 1:
        raise UsageError(f"the factor {factor:g} is not between 0 and 1", remedy="price what takes less time, not more")
    return words[:1], {"factor": factor}


def take_streams(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The last word as a number of streams: at most as many grids as a device runs at once."""
    if not words or not words[-1].isdigit() or not 2 <= int(words[-1][:4]) <= _MOST_STREAMS:
        raise UsageError(f"a number of streams is needed, from 2 to {_MOST_STREAMS}", remedy="write such as streams 4")
    return words[:-1], {"count": int(words[-1])}


def take_workers(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """``workers=N``, if it is there."""
    counts = [word.removeprefix("workers=") for word in words if word.startswith("workers=")]
    if any(not count.isdigit() or int(count) < 1 for count in counts):
        raise UsageError(f"{counts[-1]!r} is not a number of workers", remedy="write workers=4")
    options = {"workers": int(counts[-1])} if counts else {}
    return [word for word in words if not word.startswith("workers=")], options


def take_direction(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """``d2h``, if it is the first word: copies to the host, not to the device."""
    return (words[1:], {"direction": "d2h"}) if words[:1] == ["d2h"] else (words, {})


_KERNELS: Final = "[kernel:REGEX]"
VERBS: Final[Mapping[str, Verb]] = {
    "tf32": Verb(_KERNELS, "FP32 matmuls in TF32", "precision tf32"),
    "bf16": Verb(_KERNELS, "FP32 matmuls, and kernels around them, in bf16", "precision bf16"),
    "fp16": Verb(_KERNELS, "FP32 matmuls, and kernels around them, in fp16", "precision fp16"),
    "fp32": Verb("", "kernels in FP64 in FP32", "precision fp32"),
    "cuda_graph": Verb("[range:REGEX]", "CPU time between waits as graph launches", "capture-graph"),
    "fused_attention": Verb("", "attention as one fused kernel", "fuse-attention"),
    "fused_optimizer": Verb("[range:REGEX]", "one fused optimizer step", "fuse-optimizer"),
    "fuse_pointwise": Verb(_KERNELS, "runs of pointwise kernels as one"),
    "tune_matmuls": Verb("", "matmuls below what is attainable, with other tiles", "tune-products"),
    "drop_casts": Verb("", "casts between floating types that nobody needs"),
    "streams": Verb(
        "[kernel:REGEX] N, or range:, op:, frame:", "small kernels of one stream on N streams", options=take_streams
    ),
    "join_graphs": Verb("", "compiled pieces as one graph"),
    "overlap_collectives": Verb("[collective:REGEX]", "collectives beside computation", "overlap"),
    "loader_workers": Verb("[range:REGEX] [workers=N]", "batches that come from workers", "feed-loader", take_workers),
    "pin_memory": Verb(
        "[d2h] [TARGET]", "pageable copies to the GPU (or CPU) by pinned memory, overlapped", "pin-copies",
        take_direction,
    ),
    "remove_sync": Verb("[op:REGEX | range: | call:]", "waits that go"),
    "channels_last": Verb("", "copies and conversions that only change a layout", "keep-layout"),
    "padding": Verb("", "matmuls of operands padded to 16 bytes", "align-products"),
    "overlap_streams": Verb("", "streams that take turns at once"),
    "batch_small_calls": Verb("", "kernels with too few blocks over all SMs", "spread-grids"),
    "scale": Verb(
        "kernel:REGEX FACTOR, or collective:, op:, range:, frame:", "how long its GPU work runs", options=take_factor
    ),
    "scale_host": Verb(
        "op:REGEX FACTOR, or range:, frame:, call:", "how long its CPU time takes", options=take_factor
    ),
    "drop": Verb("op:REGEX, or range:, kernel:", "what should not happen at all"),
}  # fmt: skip
"""What can be said of where a change is made, or how much: by the name of a row of `table`."""
UNASKED: Final = Verb("", "")
"""Of a change of which nothing more can be said."""
WHOLE: Final = (
    "bf16_weights", "prefetch", "copy_behind", "prefetch_pages", "keep_on_device", "one_process_per_gpu",
    "no_recording", "own_gpu", "fuse_tiny_kernels", "fill_warps", "fill_device", "full_clock", "reach_bound",
    "cache_in_place", "no_recompilation", "less_host_work", "prepare_next_step",
)  # fmt: skip
"""Names of rows that are neither recipes nor verbs."""


class TypedChange(Record, eq=False):
    """A line of text as a change: the `name` of a row of `table` or of a cause, what follows it, where and how."""

    name: str
    label: str
    target: str
    options: Mapping[str, Any]


def typed_change(text: str) -> TypedChange:
    """The change that a line of text names; raises `UsageError` with the grammar where it names none."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise UsageError(f"the change {text!r} has an open quotation: {error}") from error
    names = (" ".join(words[:2]), " ".join(words[:1]))
    typed = next((name for name in names if _plain(name) in change_names()), None)
    if typed is None:
        near = did_you_mean(_plain(names[1]), {_plain(name): name for name in change_names().values()})
        raise UsageError(f"unknown change {names[1]!r}", remedy=f"{near} `timesink plan` lists all".lstrip())
    name = change_names()[_plain(typed)]
    verb, rest = VERBS.get(name, UNASKED), words[len(typed.split()) :]
    form, label = f"{name} {verb.takes}".rstrip(), " ".join((name, *rest))
    rest, options = verb.options(rest) if verb.options else (rest, {})
    most = 1 if verb.takes else 0
    if len(rest) > most:
        count = "one target" if most else "no target"
        raise UsageError(f"{typed} takes {count}, not {' '.join(rest)!r}", remedy=f"write {form}")
    if most and not rest and not verb.takes.startswith("["):
        raise UsageError(f"{typed} needs a target", remedy=f"write {form}")
    for part in rest:
        part_named(part)
    return TypedChange(name, label, "".join(rest), options)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


@cache
def change_names() -> dict[str, str]:
    """By every name that a change is typed by, plain, its own: its own, another of before, that of a cause."""
    causes = [cause.value for cause in Bottleneck if cause not in (Bottleneck.NONE, Bottleneck.UNDECIDED)]
    found = {_plain(name): name for name in (*causes, *RECIPES, *WHOLE, *VERBS)}
    return {**found, **{_plain(verb.also): name for name, verb in VERBS.items() if verb.also}}
