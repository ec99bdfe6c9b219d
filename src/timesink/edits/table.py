"""The edits there are, by the name of their fix: how a place is found, and how far results may move."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Final, Literal

from timesink.edits import Finder, Proposal, Source, arguments, forwards, gradients, lists, reads

Drift = Literal["exact", "other batches", "rounding", "lower precision"]
"""How far a change may move results: not at all, as other batches of the same data do, by rounding, or by precision."""


@dataclass(frozen=True, slots=True)
class SourceEdit:
    """How a fix is written into a program. `where` is what the program makes at the line that is edited; without it the
    whole file is looked through. `on_gpu`: without a GPU it changes nothing."""

    fix: str
    finders: tuple[Finder, ...]
    drift: Drift
    where: Literal["model", "optimizer", "loader", ""] = ""
    on_gpu: bool = False


def _argument(name: str, drift: Drift, where: Literal["optimizer", "loader"], **given: object) -> SourceEdit:
    return SourceEdit(name, (partial(arguments.add_arguments, name, given),), drift, where)


_WORKERS, _PINNED = arguments.LOADER_OPTIONS["loader_workers"], arguments.LOADER_OPTIONS["pin_memory"]
EDITS: Final = {
    edit.fix: edit
    for edit in (
        _argument("loader_workers", "other batches", "loader", **_WORKERS),
        SourceEdit("no_gradients", (gradients.find_unused_gradients,), "exact"),
        SourceEdit("remove_sync", (reads.find_reads,), "exact"),
        SourceEdit("build_once", (forwards.find_constants, forwards.find_rebuilt), "exact"),
        SourceEdit("list_operations", (lists.find_list_loops, lists.find_norm_sums, lists.find_norm_loops), "rounding"),
        SourceEdit("evaluate_rarely", (reads.find_evaluations,), "exact"),
        SourceEdit("pad_to_batch", (arguments.find_padding,), "rounding"),
        SourceEdit("drop_debugging", (arguments.drop_anomaly_mode,), "exact"),
        SourceEdit(
            "keep_memory", (partial(arguments.drop_in_loop, "keep_memory", "torch.cuda.empty_cache()"),), "exact"
        ),
        SourceEdit("frozen_garbage", (partial(arguments.drop_in_loop, "frozen_garbage", "gc.collect()"),), "exact"),
        SourceEdit("no_sync", (gradients.find_exchanges,), "rounding"),
        SourceEdit("no_recomputation", (arguments.drop_checkpoints,), "exact"),
        _argument("fused_optimizer", "rounding", "optimizer", fused=True),
        _argument("foreach", "rounding", "optimizer", foreach=True),
        SourceEdit("set_to_none", (gradients.find_zeros,), "exact"),
        SourceEdit("waiting_copies", (arguments.find_waiting_copies,), "exact", on_gpu=True),
        _argument("pin_memory", "exact", "loader", **_PINNED),
        SourceEdit("tf32", (partial(arguments.add_flag, "tf32"),), "lower precision", "model", True),
        SourceEdit(
            "benchmark_convolutions",
            (partial(arguments.add_flag, "benchmark_convolutions"),),
            "rounding",
            "model",
            True,
        ),
        SourceEdit("bf16", (partial(arguments.add_autocast, "bf16"),), "lower precision", "model", True),
    )
}
"""In the order in which they are tried where nothing is foretold of them."""


def proposals(
    files: Iterable[Path], names: Iterable[str], places: Mapping[str, str]
) -> Iterator[tuple[Source, Proposal]]:
    """What may be edited in these files for these fixes. `places` are `file:line`, by what the program makes there."""
    sources = [source for file in files if (source := Source.read(file)) is not None]
    for edit in (EDITS[name] for name in names if name in EDITS):
        file, _, line = places.get(edit.where, "").rpartition(":")
        for source in sources:
            if not edit.where or (file and Path(file).resolve() == source.path.resolve()):
                for finder in edit.finders:
                    yield from ((source, found) for found in finder(source, int(line or 0)))


def unified(source: Source, text: str) -> str:
    """What `patch -p1` makes of the file the text."""
    name = source.path.name
    return "".join(unified_diff(source.text.splitlines(True), text.splitlines(True), f"a/{name}", f"b/{name}"))
