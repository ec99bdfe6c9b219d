"""`timesink memory`: what held the memory of a run, what a configuration will need, and how two of them differ.

`timesink ledger` has the same three commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from timesink.cli.options import Commands, NoCache, PageOutput, argument, option
from timesink.cli.output import sink
from timesink.cli.reading import read_traces
from timesink.errors import UsageError
from timesink.memory_plan.config import (
    OptimizerName,
    Precision,
    Recompute,
    Sharding,
    configuration,
    json_object,
    read_model,
    stored_configuration,
)
from timesink.model.record import asdict, dataclass

app = Commands(help="Show, plan and compare what holds GPU memory.")

Snapshot = Annotated[Path, argument("SNAPSHOT", "torch.cuda.memory._dump_snapshot, or a trace with memory events.")]
Top = Annotated[int, option("--top", "N", "Show this many places.", min=1)]
Used = Annotated[float | None, option("--device-used", "GB", "What the device had in use (nvidia-smi), decimal GB.")]
Picture = Annotated[Path | None, option("--svg", "FILE", "Draw memory over time into this file.")]
ModelFile = Annotated[Path | None, option("--hf-config", "FILE", "A Hugging Face config.json.")]


@app.callback()
def _group() -> None:
    """Show, plan and compare what holds GPU memory."""


@app.command("show")
def show(
    snapshot: Snapshot,
    top: Top = 12,
    device_used: Used = None,
    svg: Picture = None,
    no_cache: NoCache = False,
    *,
    writing: PageOutput,
) -> int:
    """Show what was alive at the peak, by category and place, and what the allocator holds beyond it."""
    from timesink.views.memory import memory_page

    target = writing.sink([snapshot])
    trace = read_traces([snapshot], cache=not no_cache)
    used = None if device_used is None else int(device_used * 1e9)
    page = memory_page(trace, top, used)
    target.show(page)
    if svg is not None:
        from timesink.render.svg import chart_file

        sink(target.form, svg, True, [snapshot]).write(chart_file(page.charts[0]))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """What replaces the settings of a configuration; None leaves one as the file or the default has it."""

    batch: Annotated[int | None, option("--batch", "N", "Sequences per rank and micro-batch.", min=1)] = None
    sequence: Annotated[int | None, option("--sequence --seq", "N", "Tokens per sequence.", min=1)] = None
    precision: Annotated[Precision | None, option("--precision", "NAME", "fp32, amp, bf16 or fp8.")] = None
    optimizer: Annotated[OptimizerName | None, option("--optimizer", "NAME", "Such as adamw-fused.")] = None
    recompute: Annotated[Recompute | None, option("--recompute", "HOW", "none, selective or full.")] = None
    sharding: Annotated[Sharding | None, option("--sharding", "HOW", "none, ddp, zero1, zero2, zero3 or fsdp2.")] = None
    ranks: Annotated[int | None, option("--ranks", "N", "Data-parallel ranks.", min=1)] = None
    tensor: Annotated[int | None, option("--tensor", "N", "Tensor-parallel ranks.", min=1)] = None
    context: Annotated[int | None, option("--serve-context", "N", "Serve with this cache length.", min=1)] = None
    gpu_memory: Annotated[float | None, option("--gpu-memory", "GB", "Memory of the GPU.")] = None

    def applied(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """A stored configuration with these settings in the place of its own."""
        changed = dict(stored)
        train = _known(
            batch=self.batch,
            sequence=self.sequence,
            precision=self.precision,
            optimizer=self.optimizer,
            recompute=self.recompute,
        )
        if self.context is not None:
            changed.pop("train", None)
            prompt = train.get("sequence", self.context)
            changed["serve"] = {"batch": train.get("batch", 1), "prompt": prompt, "context": self.context}
        elif "serve" not in changed:
            changed["train"] = {"batch": 1, "sequence": 2048, **_section(changed, "train"), **train}
        elif "batch" in train:
            changed["serve"] = {**_section(changed, "serve"), "batch": train["batch"]}
        memory_bytes = None if self.gpu_memory is None else int(self.gpu_memory * 1e9)
        parallel = _known(sharding=self.sharding, data=self.ranks, tensor=self.tensor)
        for section, values in (("parallel", parallel), ("gpu", _known(memory_bytes=memory_bytes))):
            if values:
                changed[section] = {**_section(changed, section), **values}
        return changed


def _section(stored: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return json_object(stored.get(name, {}), name)


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@app.command("plan")
def plan(
    config: Annotated[Path | None, argument("CONFIG", "Configuration as JSON.")] = None,
    hf_config: ModelFile = None,
    against: Annotated[Path | None, option("--against", "SNAPSHOT", "Compare with this run.")] = None,
    *,
    settings: PlanSettings,
    writing: PageOutput,
) -> int:
    """Plan the memory of one rank: every term with its formula, what fits, and which change frees most.

    Options replace what CONFIG says. With --hf-config the model comes from there.
    """
    from timesink.memory_plan.plan import plan as planned
    from timesink.views.memory import comparison_sheet, plan_page

    if config is None and hf_config is None:
        raise UsageError("there is nothing to plan", remedy="give CONFIG, --hf-config, or both")
    made = planned(configuration(settings.applied(_stored(config, hf_config))))
    measured = None if against is None else comparison_sheet(made, read_traces([against]))
    writing.sink([path for path in (config, hf_config, against) if path]).show(plan_page(made, measured))
    return 0


@app.command("diff")
def diff(
    before: Annotated[Path, argument("BEFORE", "Snapshot before.")],
    after: Annotated[Path, argument("AFTER", "Snapshot after.")],
    *,
    writing: PageOutput,
) -> int:
    """Compare two snapshots, category by category, each at its own peak."""
    from timesink.views.memory import difference_page

    first, second = read_traces([before]), read_traces([after])
    writing.sink([before, after]).show(difference_page(first, second))
    return 0


def _stored(path: Path | None, model_path: Path | None) -> dict[str, Any]:
    """The configuration of a file, its model taken from a Hugging Face config.json where one is given."""
    stored = stored_configuration(path) if path else {}
    if model_path is not None:
        stored["model"] = asdict(read_model(model_path))
        stored.setdefault("name", model_path.parent.name if model_path.name == "config.json" else model_path.stem)
    return stored
