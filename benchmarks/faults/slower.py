"""Pairs with a known cause: each planted fault against its fix, and what `compare` must name first.

python -m benchmarks.faults.slower  # unpacks, compares, prints each pair and the score of both sides of the split

The kinds owed were written down before the first comparison, from what was planted. Half of the programs, by a hash of
the name, may be tuned on; the others may not.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.faults.adopt import CAPTURES
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in

from timesink.measures.steps.work import step_work
from timesink.readers import read
from timesink.verify.compare import compare_captures
from timesink.verify.outcomes import GateResult

SEED: Final = "timesink compare 1"
_OF_KINDS: Final = {
    "COMMUNICATION": """activations_summed_in_fp32 bucket_of_everything columns_joined_per_product
        exchanged_after_backward exchanged_in_fp32 exchanged_on_one_channel experts_awaited gathered_in_line
        sums_awaited""",
    "COMMUNICATION COPIES": "one_process_for_two_gpus",
    "COMMUNICATION LAUNCHES": "metrics_reduced_one_by_one",
    "COPIES WAITS": "outputs_to_host pageable_batch pageable_on_one_rank predictions_in_numpy rollout_stored_on_host",
    "COPIES WAITING WAITS": "histograms_by_one_rank saved_by_one_rank saved_each_second_step",
    "LAUNCHES": "averages_kept_by_one_rank eager_decode layers_recomputed pieces_accumulated_by_one_rank",
    "LAUNCHES OTHER_KERNELS OTHER_OPERATORS": """broken_in_pieces channels_first gelu_written_out norm_cast_by_hand
        weights_cast_every_call""",
    "LAUNCHES OTHER_OPERATORS": "adamw_one_by_one weights_averaged_one_by_one",
    "LAUNCHES OTHER_SHAPES": "evaluated_each_second_step samples_drawn_by_one_rank validated_by_one_rank",
    "OTHER_KERNELS": "tf32_off",
    "OTHER_KERNELS OTHER_OPERATORS": "attention_written_out attention_written_out_fp32",
    "OTHER_KERNELS OTHER_SHAPES": "odd_width",
    "OTHER_SHAPES": "experts_uneven longer_sequences_on_one_rank tokens_routed_to_one_expert",
    "SLOWER": "device_shared",
    "WAITING": """augmented_by_one_rank augmented_more_by_one_rank cache_emptied collected_by_one_rank
        half_as_many_workers loader_in_main loader_short_of_workers metrics_in_python metrics_written_by_a_thread
        one_thread_on_one_rank threads_oversubscribed tokens_counted_by_one_rank words_counted_by_one_rank""",
    "WAITING WAITS": """gradients_checked_by_one_rank logged_in_turn losses_logged_by_one_rank streams_in_lockstep
        words_counted_behind_the_queue""",
    "WAITS": "item_per_layer",
}
TRUTH: Final = {name: frozenset(kinds.split()) for kinds, names in _OF_KINDS.items() for name in names.split()}
"""The kinds of change, any of which is right first, by the name of the program."""


def side_of(name: str) -> str:
    """`tune`, or `aside`: what may not be tuned on."""
    return ("tune", "aside")[hashlib.sha256(f"{SEED}:{name}".encode()).digest()[0] % 2]


SHOWN: Final = 0.03
"""A pair counts where the captured step is so much slower with the fault: a profiler slows some fixes more."""


class Compared(NamedTuple):
    """One pair: the mean steps without and with the fault, and what `compare` says."""

    program: str
    tool: str
    before_ns: float
    after_ns: float
    result: GateResult

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of change, in order."""
        return tuple(one.kind.name for one in self.result.changes)

    @property
    def is_shown(self) -> bool:
        return self.after_ns >= (1 + SHOWN) * self.before_ns

    @property
    def is_right(self) -> bool:
        return bool(self.kinds) and self.kinds[0] in TRUTH[self.program]


def pairs_in(folder: Path) -> Iterator[tuple[str, list[Path], list[Path]]]:
    """Program, captures of the fix, captures of the fault."""
    captures = captures_in(folder)
    for name in sorted(captures):
        stem, _, variant = name.rpartition(".")
        if variant == "fault" and (fix := f"{stem}.fix") in captures:
            yield stem.partition(".")[0], captures[fix], captures[name]


def compared(program: str, tool: str, fix: Sequence[Path], fault: Sequence[Path]) -> Compared:
    """The fix before, the fault after."""
    sides = read(list(fix)), read(list(fault))
    before_ns, after_ns = (side.span_ns / max(side.step_count, 1) for side in map(step_work, sides))
    return Compared(program, tool, before_ns, after_ns, compare_captures(sides))


def all_pairs(only: Sequence[str] = ()) -> Iterator[Compared]:
    """Every program with both variants captured, or those of `only`."""
    for archive in sorted(CAPTURES.rglob("*.tar.xz")):
        program, tool = archive.name.split(".")[:2]
        if program in TRUTH and (not only or program in only):
            with tempfile.TemporaryDirectory() as scratch:
                unpacked(archive, Path(scratch))
                for name, fix, fault in pairs_in(Path(scratch)):
                    yield compared(name, tool, fix, fault)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="score what compare names first")
    parser.add_argument("--only", default="", help="programs, separated by commas")
    only = parser.parse_args(arguments).only
    right, shown = Counter[Any](), Counter[Any]()
    for pair in all_pairs([name for name in only.split(",") if name]):
        key = side_of(pair.program), pair.tool
        shown[key] += pair.is_shown
        right[key] += pair.is_shown and pair.is_right
        verdict = "right" if pair.is_right else "wrong"
        print(verdict if pair.is_shown else "hidden", *key, pair.program, *pair.kinds[:3])
    for key in sorted(shown):
        print(*key, f"{right[key]} of {shown[key]}")


if __name__ == "__main__":
    main()
