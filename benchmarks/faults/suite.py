"""The registry of planted faults and healthy programs. It imports no framework, so that scoring needs none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from benchmarks.faults.machine import Machine
    from benchmarks.faults.program import Program

PLANTED = ("high", "low", "harmless")
SIZES = ("large", "medium", "small")
TWO_STEPS = ("high", "low")
HEALTHY = "none"
SPLIT_SEED = "timesink faults 1"
THIRD_SEED = "timesink faults 3"
FOURTH_SEED = "timesink faults 4"
FIFTH_SEED = "timesink faults 5"
SEVENTH_SEED = "timesink faults 7"
EIGHTH_SEED = "timesink faults 8"
NINTH_SEED = "timesink faults 9"
TENTH_SEED = "timesink faults 10"
ELEVENTH_SEED = "timesink faults 11"
TWELFTH_SEED = "timesink faults 12"
THIRTEENTH_SEED = "timesink faults 13"
FOLDERS = {
    5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth", 10: "tenth", 11: "eleventh", 12: "twelfth",
    13: "thirteenth",
}  # fmt: skip

Split = Literal[
    "tune", "evaluate", "fresh", "third_tune", "third_evaluate", "fourth_tune", "fourth_evaluate", "fifth_tune",
    "fifth_evaluate", "sixth", "seventh_tune", "seventh_evaluate", "eighth_tune", "eighth_evaluate",
    "ninth_tune", "ninth_evaluate", "tenth_tune", "tenth_evaluate", "eleventh_tune", "eleventh_evaluate",
    "twelfth_tune", "twelfth_evaluate",
    "thirteenth_tune", "thirteenth_evaluate",
]  # fmt: skip
SPLITS: tuple[Split, ...] = get_args(Split)
"""`tune`: limits were set on it. `evaluate`: set aside by a hash of the name, and printed since.
`fresh`: planted after the limits were set and after the first evaluation; captured once, scored once.
`third_tune` and `third_evaluate`: the third set, split by a hash of its own before any of it was captured.
`fourth_tune` and `fourth_evaluate`, `fifth_tune` and `fifth_evaluate`: the fourth and the fifth, likewise.
`sixth`: the sixth, all of it captured once and scored once; nothing is set on it.
`seventh_tune` and `seventh_evaluate`, and so on: each split like the third, from the eleventh on in halves."""
Set = Literal[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
Builder = Callable[[str, "Machine"], "Program"]
_WHOLE: dict[int, Split] = {2: "fresh", 6: "sixth"}
_SPLIT_BY_HASH: dict[int, tuple[str, Split, Split]] = {
    1: (SPLIT_SEED, "tune", "evaluate"),
    3: (THIRD_SEED, "third_tune", "third_evaluate"),
    4: (FOURTH_SEED, "fourth_tune", "fourth_evaluate"),
    5: (FIFTH_SEED, "fifth_tune", "fifth_evaluate"),
    7: (SEVENTH_SEED, "seventh_tune", "seventh_evaluate"),
    8: (EIGHTH_SEED, "eighth_tune", "eighth_evaluate"),
    9: (NINTH_SEED, "ninth_tune", "ninth_evaluate"),
    10: (TENTH_SEED, "tenth_tune", "tenth_evaluate"),
    11: (ELEVENTH_SEED, "eleventh_tune", "eleventh_evaluate"),
    12: (TWELFTH_SEED, "twelfth_tune", "twelfth_evaluate"),
    13: (THIRTEENTH_SEED, "thirteenth_tune", "thirteenth_evaluate"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One program: its name is its builder in `benchmarks.faults.<topic>`, `bottleneck` the verdict it is owed.

    `stacks`: captured with Python stacks and memory, the fault being the capture. `fix_captured`: the fixed program is
    captured too, at the highest severity, to see that the finding goes away. `compiles`: costs seconds at first.
    `part`: the set it was planted in. `gpus`: it runs as so many ranks, one a GPU. `environment`: what the fault's
    processes are started with, where no toggle inside a process can plant it; fault and fix then run in turn in
    processes of their own. `recorded`: steps in a capture. `second`: the bottleneck of a second fault, owed as well.
    """

    name: str
    topic: str
    bottleneck: str
    severities: tuple[str, ...] = PLANTED
    fix_captured: bool = False
    compiles: bool = False
    stacks: bool = False
    part: Set = 1
    gpus: int = 1
    environment: tuple[tuple[str, str], ...] = ()
    recorded: int = 6
    second: str = ""

    @property
    def healthy(self) -> bool:
        return self.bottleneck == HEALTHY

    @property
    def folder(self) -> str:
        """The first part of its topic."""
        return self.topic.partition(".")[0]

    @property
    def marked(self) -> bool:
        """Whether its captures hold steps and phases as an author marks them; the last three sets have none."""
        return self.part < 5

    @property
    def split(self) -> Split:
        """The second set and the sixth whole; of the others, a third is set aside, as the name's seeded hash says, and
        from the eleventh on the half whose hashes are the lowest."""
        if self.part in _WHOLE:
            return _WHOLE[self.part]
        seed, kept, set_aside = _SPLIT_BY_HASH[self.part]

        def hashed(name: str) -> bytes:
            return hashlib.sha256(f"{seed}:{name}".encode()).digest()

        if self.part < 11:
            return set_aside if hashed(self.name)[0] % 3 == 0 else kept
        ranked = sorted((fault.name for fault in FAULTS if fault.part == self.part), key=hashed)
        return set_aside if ranked.index(self.name) < len(ranked) // 2 else kept

    def builder(self) -> Builder:
        built: Builder = getattr(import_module(f"benchmarks.faults.{self.topic}"), self.name)
        return built

    def summary(self) -> str:
        """The first line of the builder's docstring: fault; fixed, what."""
        return (self.builder().__doc__ or "").splitlines()[0]


def healthy(name: str, compiles: bool = False) -> Fault:
    return Fault(name, "controls", HEALTHY, SIZES, compiles=compiles)


def second(name: str, topic: str, bottleneck: str, fix_captured: bool = False, compiles: bool = False) -> Fault:
    """A program of the second set; `SIZES` instead of severities where nothing is planted."""
    steps = SIZES if bottleneck == HEALTHY else PLANTED
    return Fault(name, f"second_{topic}", bottleneck, steps, fix_captured, compiles, part=2)


def third(name: str, topic: str, bottleneck: str, severities: tuple[str, ...], fix_captured: bool = False) -> Fault:
    """A program of the third set on one GPU."""
    return Fault(name, f"third_{topic}", bottleneck, severities, fix_captured, part=3, recorded=4)


def ranks(name: str, bottleneck: str, environment: tuple[tuple[str, str], ...] = (), recorded: int = 4) -> Fault:
    """A program of the third set that runs as two ranks on two GPUs."""
    steps, topic = (SIZES, "third_controls") if bottleneck == HEALTHY else (TWO_STEPS, "third_ranks")
    return Fault(name, topic, bottleneck, steps, part=3, gpus=2, environment=environment, recorded=recorded)


def fourth(name: str, topic: str, bottleneck: str, *more: str, environment: tuple[tuple[str, str], ...] = ()) -> Fault:
    """A program of the fourth set, planted hard, and at the severities `more`; its fix is captured too."""
    return Fault(
        name, f"fourth.{topic}", bottleneck, ("high", *more), True, part=4, environment=environment, recorded=3
    )


def fifth(
    name: str, topic: str, bottleneck: str, *, compiles: bool = False,
    environment: tuple[tuple[str, str], ...] = (), recorded: int = 4, part: Set = 5, gpus: int = 2,
) -> Fault:  # fmt: skip
    """A program of the fifth set, or a later one, of two ranks on two GPUs; its fix is captured too, unless that is its
    environment."""
    steps = ("medium",) if bottleneck == HEALTHY else ("high",)
    return Fault(
        name, f"{FOLDERS[part]}.{topic}", bottleneck, steps, not environment and bottleneck != HEALTHY, compiles,
        part=part, gpus=gpus, environment=environment, recorded=recorded,
    )  # fmt: skip


def sixth(name: str, bottleneck: str, recorded: int = 3) -> Fault:
    """A program of the sixth set."""
    return fifth(name, "two_gpus", bottleneck, recorded=recorded, part=6)


def seventh(name: str, topic: str, bottleneck: str, environment: tuple[tuple[str, str], ...] = ()) -> Fault:
    """A program of the seventh set, of four ranks on four GPUs."""
    return fifth(name, topic, bottleneck, environment=environment, recorded=3, part=7, gpus=4)


def eighth(name: str, topic: str, bottleneck: str, compiles: bool = False, part: Set = 8) -> Fault:
    """A program of the eighth set, or a later one, on one GPU and without a mark."""
    steps = ("medium",) if bottleneck == HEALTHY else ("high",)
    return Fault(name, f"{FOLDERS[part]}.{topic}", bottleneck, steps, compiles=compiles, part=part, recorded=5)


def ninth(name: str, topic: str, bottleneck: str, compiles: bool = False) -> Fault:
    """A program of the ninth set."""
    return eighth(name, topic, bottleneck, compiles, 9)


def alone(name: str, bottleneck: str, compiles: bool = False) -> Fault:
    """A program of the tenth set on one GPU."""
    return eighth(name, "loops", bottleneck, compiles, 10)


def eleventh(name: str, topic: str, bottleneck: str) -> Fault:
    """A program of the eleventh set, on one GPU and without a mark; its fix is captured too."""
    return replace(eighth(name, topic, bottleneck, part=11), fix_captured=bottleneck != HEALTHY)


def twelfth(name: str, topic: str, bottleneck: str, second: str = "") -> Fault:
    """A program of the twelfth set, as those of the eleventh; some have a `second` fault."""
    return replace(eleventh(name, topic, bottleneck), topic=f"{FOLDERS[12]}.{topic}", part=12, second=second)


def tenth(name: str, topic: str, bottleneck: str, recorded: int = 4) -> Fault:
    """A program of the tenth set, of two ranks."""
    return fifth(name, topic, bottleneck, recorded=recorded, part=10)


def thirteenth(name: str, topic: str, bottleneck: str, recorded: int = 4) -> Fault:
    """A program of the thirteenth set, of two ranks."""
    return fifth(name, topic, bottleneck, recorded=recorded, part=13)


LOOPS = (
    "loop_over_experts", "experts_sliced_in_turn", "one_picture_at_a_time", "relations_in_turn",
    "answers_scored_one_by_one", "images_augmented_one_by_one", "proposals_cropped_in_turn", "tasks_adapted_in_turn",
    "spectra_framed_in_turn", "molecules_read_out_in_turn", "voices_framed_in_turn_and_recomputed",
)  # fmt: skip
CAUSES = dict.fromkeys(LOOPS, "one_at_a_time")
"""Of faults planted as a loop over samples, relations or experts, the cause of the symptom that they are owed: whoever
names it names more."""
OF_KIND = {
    "collective_awaited": "host_sync", "eager_islands": "graph_breaks",
    "compile_dominates": "recompilation", "ranks_imbalanced": "straggler", "units_small": "communication_small",
    "kernels_contended": "communication_exposed", "exchange_repeated": "communication_exposed",
    "slow_link": "communication_exposed", "small_grids": "occupancy", "busy_not_working": "occupancy",
    "unused_lanes": "occupancy", "tiny_kernels": "pointwise_unfused", "allocator_churn": "allocator",
    "fragmentation": "allocator", "unrecorded_code": "host_python",
}  # fmt: skip
"""Causes that answer for a planted one: the kind that they are of."""
THROUGH_HOST = (("NCCL_P2P_DISABLE", "1"),)
FAULTS: tuple[Fault, ...] = (
    Fault("item_per_layer", "syncs", "host_sync", fix_captured=True),
    Fault("synchronize_per_layer", "syncs", "host_sync"),
    Fault("boolean_mask", "syncs", "host_sync"),
    Fault("tensor_from_list", "syncs", "host_sync"),
    Fault("printed_loss", "syncs", "host_sync"),
    Fault("norm_per_parameter", "syncs", "host_sync"),
    Fault("end_check_per_token", "syncs", "host_sync"),
    Fault("final_loss_read", "syncs", "host_sync"),
    Fault("pageable_batch", "copies", "host_to_device_copy", fix_captured=True),
    Fault("copy_on_compute_stream", "copies", "host_to_device_copy"),
    Fault("constant_sent_again", "copies", "host_to_device_copy"),
    Fault("outputs_to_host", "copies", "device_to_host_copy", fix_captured=True),
    Fault("checkpoint_in_line", "copies", "device_to_host_copy"),
    Fault("loader_in_main", "loading", "input_pipeline", fix_captured=True),
    Fault("too_few_workers", "loading", "input_pipeline"),
    Fault("workers_started_anew", "loading", "input_pipeline"),
    Fault("batch_prepared_in_line", "loading", "input_pipeline"),
    Fault("metrics_in_python", "host", "host_python", fix_captured=True),
    Fault("python_in_every_layer", "host", "host_python"),
    Fault("collected_each_step", "host", "garbage_collection"),
    Fault("eager_decode", "launches", "launch_bound", fix_captured=True),
    Fault("loop_over_experts", "launches", "launch_bound"),
    Fault("small_training_step", "launches", "launch_bound"),
    Fault("adamw_one_by_one", "optimizers", "optimizer_unfused", fix_captured=True),
    Fault("sgd_one_by_one", "optimizers", "optimizer_unfused"),
    Fault("fp32_training", "precisions", "precision"),
    Fault("tf32_off", "precisions", "precision", fix_captured=True),
    Fault("float64_leak", "precisions", "precision"),
    Fault("attention_written_out", "attention", "attention_unfused", fix_captured=True),
    Fault("attention_weights_kept", "attention", "attention_unfused"),
    Fault("gelu_written_out", "pointwise", "pointwise_unfused", fix_captured=True),
    Fault("norm_written_out", "pointwise", "pointwise_unfused"),
    Fault("gate_not_compiled", "pointwise", "pointwise_unfused", compiles=True),
    Fault("channels_first", "conversions", "layout_conversion", fix_captured=True),
    Fault("needless_contiguous", "conversions", "layout_conversion"),
    Fault("cast_and_back", "conversions", "dtype_conversion"),
    Fault("weights_cast_every_call", "conversions", "dtype_conversion", fix_captured=True),
    Fault("logits_cast_up", "conversions", "dtype_conversion"),
    Fault("odd_width", "conversions", "shape_alignment", fix_captured=True),
    Fault("vocabulary_not_padded", "conversions", "shape_alignment"),
    Fault("broken_in_pieces", "compiled", "graph_breaks", compiles=True, fix_captured=True),
    Fault("compiled_again", "compiled", "recompilation", compiles=True),
    Fault("cache_emptied", "devices", "allocator", fix_captured=True),
    Fault("workspace_per_call", "devices", "allocator"),
    Fault("streams_in_lockstep", "devices", "stream_serialization", fix_captured=True),
    Fault("few_rows_scanned", "devices", "occupancy"),
    Fault("profiled_with_stacks", "devices", "profiler_overhead", stacks=True),
    healthy("compiled_gpt_training", compiles=True),
    healthy("large_products"),
    healthy("large_mlp_training"),
    healthy("graph_decode"),
    healthy("convolutions_channels_last"),
    healthy("loader_keeping_up"),
    healthy("one_pass_elementwise"),
    healthy("flash_prefill"),
    second("predictions_in_numpy", "hosts", "host_sync", fix_captured=True),
    second("timestep_looked_up", "hosts", "host_sync"),
    second("advantages_in_python", "hosts", "host_python"),
    second("collected_per_microbatch", "hosts", "garbage_collection"),
    second("samples_sent_one_by_one", "transfers", "host_to_device_copy"),
    second("rollout_stored_on_host", "transfers", "device_to_host_copy", fix_captured=True),
    second("decoded_while_collated", "transfers", "input_pipeline"),
    second("lion_weight_by_weight", "training", "optimizer_unfused"),
    second("lstm_cell_by_cell", "training", "launch_bound"),
    second("similarities_in_fp32", "training", "precision"),
    second("padding_mask_added", "layers", "attention_unfused"),
    second("rotary_written_out", "layers", "pointwise_unfused", compiles=True),
    second("heads_made_contiguous", "layers", "layout_conversion"),
    second("norm_cast_by_hand", "layers", "dtype_conversion", fix_captured=True),
    second("encoder_inference", "controls", HEALTHY),
    second("diffusion_sampling", "controls", HEALTHY),
    second("embedding_recommender", "controls", HEALTHY),
    second("contrastive_training", "controls", HEALTHY),
    ranks("batches_uneven", "straggler"),
    ranks("metrics_gathered_pickled", "host_sync"),
    ranks("exchanged_per_microbatch", "communication_exposed"),
    ranks("sharded_too_fine", "communication_small", recorded=3),
    ranks("logged_by_one_rank", "host_sync"),
    ranks("exchanged_through_host", "communication_exposed", environment=THROUGH_HOST),
    ranks("ddp_training", HEALTHY),
    ranks("fsdp_training", HEALTHY, recorded=3),
    third("attention_written_out_fp32", "layers", "attention_unfused", PLANTED, fix_captured=True),
    third("trained_without_autocast", "layers", "precision", PLANTED),
    third("channels_first_under_amp", "layers", "layout_conversion", PLANTED),
    third("experts_sliced_in_turn", "layers", "launch_bound", PLANTED),
    fourth("layers_recomputed", "passes", "activations_recomputed", "low"),
    fourth("evaluated_every_step", "passes", "forward_repeated"),
    fourth("masks_rebuilt", "passes", "constants_rebuilt"),
    fourth("launches_blocking", "settings", "launches_blocking", environment=(("CUDA_LAUNCH_BLOCKING", "1"),)),
    fourth("anomalies_detected", "settings", "debugging_left_on"),
    fourth("deterministic_left_on", "settings", "debugging_left_on"),
    fourth("threads_oversubscribed", "settings", "threads_oversubscribed"),
    fourth("device_shared", "settings", "device_shared"),
    fourth("weights_averaged_one_by_one", "loops", "parameters_one_by_one"),
    fourth("gradients_clipped_one_by_one", "loops", "parameters_one_by_one"),
    fifth("tokens_counted_by_one_rank", "late_ranks", "straggler"),
    fifth("sharded_layers", "controls", HEALTHY, recorded=3),
    fifth("tables_exchanged_one_by_one", "small_exchanges", "communication_small", recorded=3),
    fifth("batches_one_at_a_time", "pipelines", "pipeline_bubble"),
    fifth("loader_short_of_workers", "late_ranks", "straggler"),
    fifth("wrapped_layers", "controls", HEALTHY, recorded=3),
    fifth("norm_reduced_per_parameter", "small_exchanges", "communication_small", recorded=3),
    fifth("exchanged_after_backward", "exchanges", "communication_exposed"),
    fifth("saved_by_one_rank", "late_ranks", "straggler", recorded=6),
    fifth("columns_joined_per_product", "split_layers", "communication_exposed"),
    fifth("replicated_layers", "controls", HEALTHY, recorded=3),
    fifth("few_pieces_by_turns", "pipelines", "pipeline_bubble"),
    fifth("pieces_that_cost_more", "pipelines", "pipeline_bubble", recorded=3),
    fifth("exchanged_behind_late_host", "exchanges", "communication_exposed", recorded=3),
    fifth("long_sequences_on_one_rank", "late_ranks", "straggler"),
    fifth("gradients_reduced_one_by_one", "small_exchanges", "communication_small", recorded=3),
    fifth("split_products", "controls", HEALTHY),
    fifth("many_pieces_by_turns", "controls", HEALTHY, recorded=3),
    fifth("one_process_for_two_gpus", "exchanges", "communication_exposed"),
    fifth("blocks_fetched_in_line", "split_layers", "communication_exposed"),
    fifth("experts_awaited", "split_layers", "communication_exposed"),
    fifth("experts_exchanged_one_by_one", "split_layers", "communication_small", recorded=3),
    fifth("sharded_per_microbatch", "exchanges", "communication_exposed", recorded=3),
    fifth("few_pieces_interleaved", "pipelines", "pipeline_bubble", recorded=3),
    fifth("sharded_and_accumulated", "controls", HEALTHY, recorded=3),
    fifth("mixed_lengths", "controls", HEALTHY, recorded=3),
    fifth("validated_by_one_rank", "late_ranks", "straggler"),
    fifth("collected_by_one_rank", "late_ranks", "straggler"),
    fifth("weights_gathered_one_by_one", "small_exchanges", "communication_small", recorded=3),
    fifth("buffers_broadcast_one_by_one", "small_exchanges", "communication_small", recorded=3),
    fifth("metrics_reduced_one_by_one", "small_exchanges", "communication_small", recorded=3),
    fifth("exchanged_in_fp32", "exchanges", "communication_exposed"),
    fifth("exchanged_on_one_channel", "exchanges", "communication_exposed"),
    fifth("gathered_in_line", "exchanges", "communication_exposed"),
    fifth("activations_summed_in_fp32", "split_layers", "communication_exposed"),
    fifth("sharded_through_host", "exchanges", "communication_exposed", environment=THROUGH_HOST, recorded=3),
    fifth("averaged_through_host", "exchanges", "communication_exposed", environment=THROUGH_HOST),
    fifth("compiled_layers", "controls", HEALTHY, compiles=True, recorded=3),
    sixth("buckets_too_small", "communication_small"),
    sixth("augmented_by_one_rank", "straggler"),
    sixth("bucket_of_everything", "communication_exposed"),
    sixth("blocks_accumulated", HEALTHY),
    sixth("losses_summed_and_read", "host_sync"),
    sixth("stages_of_unlike_length", "pipeline_bubble"),
    sixth("states_sent_one_by_one", "communication_small"),
    sixth("norms_synchronized", "communication_small"),
    seventh("replicated_on_four", "replicas", HEALTHY),
    seventh("tokens_packed_by_one_rank", "replicas", "straggler"),
    seventh("sharded_on_four", "replicas", HEALTHY),
    seventh("gathered_when_needed", "replicas", "communication_exposed"),
    seventh("sums_in_pieces", "shares", "communication_small"),
    seventh("halves_in_turn", "shares", HEALTHY),
    seventh("four_stages_few_pieces", "stages", "pipeline_bubble"),
    seventh("parts_interleaved", "stages", HEALTHY),
    seventh("experts_uneven", "experts", "straggler"),
    seventh("experts_even", "experts", HEALTHY),
    seventh("ring_in_line", "experts", "communication_exposed"),
    seventh("ring_ahead", "experts", HEALTHY),
    seventh("stages_of_three_and_one", "stages", "pipeline_bubble"),
    seventh("load_beside_one_rank", "replicas", "straggler"),
    seventh("more_sequences_on_one_rank", "replicas", "straggler"),
    seventh("sums_awaited", "shares", "communication_exposed"),
    seventh("stages_not_interleaved", "stages", "pipeline_bubble"),
    seventh("records_parsed_by_one_rank", "replicas", "straggler"),
    seventh("buckets_of_a_parameter", "replicas", "communication_small"),
    seventh("parts_too_fine", "stages", "launch_bound"),
    seventh("many_pieces_of_four", "stages", HEALTHY),
    seventh("averaged_through_memory", "replicas", "communication_exposed", THROUGH_HOST),
    eighth("attention_of_the_library", "language", "attention_unfused"),
    eighth("prompts_read_eagerly", "language", "pointwise_unfused", compiles=True),
    eighth("losses_kept_as_numbers", "language", "host_sync"),
    eighth("outputs_checked_for_nan", "language", "host_sync"),
    eighth("masks_sent_each_step", "language", "host_to_device_copy"),
    eighth("pairs_of_words_counted", "language", "host_python"),
    eighth("states_scanned_in_python", "language", "launch_bound"),
    eighth("scan_as_a_graph", "language", HEALTHY),
    eighth("pictures_normalised_on_the_cpu", "vision", "input_pipeline"),
    eighth("unpacked_by_two_workers", "vision", "input_pipeline"),
    eighth("films_channels_first", "vision", "layout_conversion"),
    eighth("pictures_in_fp32", "vision", "precision"),
    eighth("one_picture_at_a_time", "vision", "launch_bound"),
    eighth("losses_of_masks_written_out", "vision", "pointwise_unfused", compiles=True),
    eighth("weights_averaged_on_the_cpu", "vision", "device_to_host_copy"),
    eighth("adam_of_many_small_weights", "vision", "optimizer_unfused"),
    eighth("unpacked_in_time", "vision", HEALTHY),
    ninth("biases_added_to_scores", "sequences", "attention_unfused"),
    ninth("layers_checkpointed", "sequences", "activations_recomputed"),
    ninth("activations_kept_on_the_cpu", "sequences", "device_to_host_copy"),
    ninth("lengths_read_to_pack", "sequences", "host_sync"),
    ninth("words_split_while_collated", "sequences", "input_pipeline"),
    ninth("relations_in_turn", "sequences", "launch_bound"),
    ninth("games_played_on_the_cpu", "sequences", "host_python"),
    ninth("pages_unpacked_by_the_trainer", "sequences", "input_pipeline"),
    ninth("wide_layers_trained", "sequences", HEALTHY),
    ninth("passages_scored", "sequences", HEALTHY),
    ninth("norms_of_channels_permuted", "pictures", "layout_conversion"),
    ninth("patches_in_fp32", "pictures", "precision"),
    ninth("waves_bent_by_hand", "pictures", "pointwise_unfused", compiles=True),
    ninth("adapters_in_fp32", "pictures", "dtype_conversion"),
    ninth("weights_fetched_per_layer", "pictures", "host_to_device_copy"),
    ninth("averaged_by_a_function", "pictures", "parameters_one_by_one"),
    ninth("rmsprop_one_by_one", "pictures", "optimizer_unfused"),
    ninth("noise_removed_in_small_steps", "pictures", "launch_bound"),
    ninth("sampled_as_a_graph", "pictures", HEALTHY),
    alone("answers_scored_one_by_one", "launch_bound"),
    alone("images_augmented_one_by_one", "launch_bound"),
    alone("weights_unpacked_from_bytes", "dtype_conversion"),
    alone("equations_in_fp64", "precision"),
    alone("frames_stacked_from_lists", "host_to_device_copy"),
    alone("experts_balanced_by_numbers", "host_sync"),
    alone("speech_decoded_eagerly", "launch_bound"),
    alone("batches_mixed_in_numpy", "input_pipeline"),
    alone("gates_and_norms_by_hand", "pointwise_unfused", compiles=True),
    alone("keys_of_groups_attended_by_einsum", "attention_unfused"),
    alone("adagrad_one_by_one", "optimizer_unfused"),
    alone("features_taken_home", "device_to_host_copy"),
    alone("replay_priorities_in_python", "host_python"),
    alone("students_taught", HEALTHY),
    alone("patches_of_pictures_trained", HEALTHY, compiles=True),
    alone("pictures_told_apart", HEALTHY),
    tenth("words_counted_by_one_rank", "late", "straggler"),
    tenth("evaluated_each_second_step", "uneven", "straggler"),
    tenth("losses_logged_by_one_rank", "late", "straggler"),
    tenth("hosts_of_varied_length", "controls", HEALTHY),
    tenth("longer_sequences_on_one_rank", "uneven", "straggler"),
    tenth("words_counted_behind_the_queue", "late", "straggler"),
    tenth("augmented_more_by_one_rank", "late", "straggler"),
    tenth("sharded_and_clipped", "controls", HEALTHY),
    tenth("pieces_accumulated_by_one_rank", "uneven", "straggler"),
    tenth("saved_each_second_step", "late", "straggler", recorded=6),
    tenth("logged_in_turn", "late", "straggler"),
    tenth("samples_drawn_by_one_rank", "uneven", "straggler"),
    tenth("half_as_many_workers", "late", "straggler"),
    tenth("counted_by_both", "controls", HEALTHY),
    tenth("pageable_on_one_rank", "late", "straggler"),
    tenth("tokens_routed_to_one_expert", "uneven", "straggler"),
    tenth("histograms_by_one_rank", "late", "straggler", recorded=8),
    tenth("one_thread_on_one_rank", "late", "straggler"),
    tenth("loss_logged_later", "controls", HEALTHY),
    tenth("gradients_checked_by_one_rank", "late", "straggler"),
    tenth("averages_kept_by_one_rank", "uneven", "straggler"),
    tenth("metrics_written_by_a_thread", "late", "straggler"),
    eleventh("passages_ranked_in_full", "answers", "work_unused"),
    eleventh("speech_decoded_with_gradients", "answers", "work_unused"),
    eleventh("answers_grown_by_cat", "answers", "cache_copied"),
    eleventh("proposals_cropped_in_turn", "answers", "launch_bound"),
    eleventh("hits_ranked_in_python", "answers", "host_python"),
    eleventh("beams_kept_in_lists", "answers", "host_sync"),
    eleventh("grids_sent_while_sampling", "answers", "constants_rebuilt"),
    eleventh("flows_in_float64", "answers", "precision"),
    eleventh("bank_normalised_again", "answers", "constants_rebuilt"),
    eleventh("documents_masked_apart", "learning", "attention_unfused"),
    eleventh("forecasts_validated_each_step", "learning", "forward_repeated"),
    eleventh("tasks_adapted_in_turn", "learning", "launch_bound"),
    eleventh("points_picked_by_one_hot", "learning", "work_unused"),
    eleventh("nodes_pooled_by_index_add", "learning", "atomics"),
    eleventh("codes_matched_by_differences", "learning", "pointwise_unfused"),
    eleventh("spectra_framed_in_turn", "learning", "launch_bound"),
    eleventh("critics_held_smooth", "controls", HEALTHY),
    eleventh("corpus_searched", "controls", HEALTHY),
    eleventh("clouds_learned", "controls", HEALTHY),
    eleventh("answers_written_in_place", "controls", HEALTHY),
    twelfth("transports_checked_each_round", "answering", "host_sync"),
    twelfth("tracks_matched_in_python", "answering", "host_python"),
    twelfth("histories_decayed_in_float64", "answering", "precision"),
    twelfth("voices_masked_by_nothing", "answering", "attention_unfused"),
    twelfth("frames_remembered_by_cat", "answering", "cache_copied"),
    twelfth("neighbours_listed_in_each_layer", "answering", "constants_rebuilt"),
    twelfth("prompts_scored_at_every_word", "answering", "work_unused"),
    twelfth("molecules_read_out_in_turn", "learning", "launch_bound"),
    twelfth("targets_differentiated", "learning", "work_unused"),
    twelfth("days_looked_up_by_index", "learning", "atomics"),
    twelfth("penalties_paid_weight_by_weight", "learning", "parameters_one_by_one"),
    twelfth("labels_guessed_by_a_second_pass", "learning", "forward_repeated"),
    twelfth("negatives_drawn_on_the_cpu_and_sorted", "doubled", "host_operators", "work_unused"),
    twelfth("voices_framed_in_turn_and_recomputed", "doubled", "launch_bound", "activations_recomputed"),
    twelfth("particles_read_and_in_fp32", "doubled", "host_sync", "precision"),
    twelfth("pictures_sent_pageable_and_channels_first", "doubled", "host_to_device_copy", "layout_conversion"),
    twelfth("points_told_to_centers", "controls", HEALTHY),
    twelfth("sessions_learned", "controls", HEALTHY),
    twelfth("weather_rolled_out", "controls", HEALTHY),
    twelfth("experts_in_one_product", "controls", HEALTHY),
    thirteenth("captions_cleaned_crops_cut", "lates", "host_python"),
    thirteenth("accuracy_summed_each_step", "exchanges", "host_sync"),
    thirteenth("texts_dealt_by_length", "lates", "straggler"),
    thirteenth("weights_gathered_in_fp32", "exchanges", "communication_exposed"),
    thirteenth("masks_scored_by_one_rank", "lates", "straggler", recorded=6),
    thirteenth("tags_gathered_as_objects", "exchanges", "host_sync"),
    thirteenth("barriers_between_phases", "exchanges", "host_sync"),
    thirteenth("unused_head_looked_for", "exchanges", "host_sync"),
    thirteenth("buckets_of_a_tenth_of_a_megabyte", "exchanges", "communication_small"),
    thirteenth("answers_preferred", "controls", HEALTHY),
    thirteenth("pairs_contrasted_across_ranks", "controls", HEALTHY),
    thirteenth("records_rebuilt_from_shards", "controls", HEALTHY),
)


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One fault at one severity."""

    fault: str
    severity: str

    def __str__(self) -> str:
        return f"{self.fault}/{self.severity}"


def find(name: str) -> Fault:
    for fault in FAULTS:
        if fault.name == name:
            return fault
    raise SystemExit(f"no program is called {name!r}; there are {', '.join(fault.name for fault in FAULTS)}")


def cases(only: str = "", split: str = "") -> list[Case]:
    """The cases of `split` (all where empty) that the comma-separated `only` names, or all of them.

    A part of `only` is `fault`, `fault/severity`, `topic:` or the folder of several topics, as `fifth:`.
    """
    wanted = [part.strip() for part in only.split(",") if part.strip()]
    found = []
    for fault in FAULTS:
        for severity in fault.severities:
            case = Case(fault.name, severity)
            chosen = not wanted or {fault.name, str(case), f"{fault.topic}:", f"{fault.folder}:"} & set(wanted)
            if chosen and split in ("", fault.split):
                found.append(case)
    if not found:
        names = ", ".join(fault.name for fault in FAULTS if split in ("", fault.split))
        raise SystemExit(f"nothing matches {only!r}; names{f' in {split}' if split else ''} are {names}")
    return found
