"""`timesink memory`: what held the memory of a run, what a configuration will need, and how two of them differ."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from timesink.cli import asked
from timesink.cli.options import NO_CACHE, SEQUENCE, PageOutput, read_traces
from timesink.cli.output import sink
from timesink.cli.parameters import Argument, Commands, Option
from timesink.errors import UsageError
from timesink.memory_plan import (
    Precision,
    Sharding,
    configuration,
    json_object,
    read_model,
    stored_configuration,
)
from timesink.records import Record


def show(
    snapshot: Annotated[Path, Argument("SNAPSHOT", "torch.cuda.memory._dump_snapshot, or a trace with memory events.")],
    top: Annotated[int, Option("--top", "N", "Show this many places.", least=1)] = 12,
    device_used: Annotated[
        float | None, Option("--device-used", "GB", "What the GPU had in use (nvidia-smi), decimal GB.")
    ] = None,
    svg: Annotated[
        Path | None, Option("--svg", "FILE", "Draw memory over time into this file.", must=asked.place)
    ] = None,
    no_cache: Annotated[bool, NO_CACHE] = False,
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


class PlanSettings(Record, kw_only=True):
    """What replaces the settings of a configuration; None leaves one as the file or the default has it."""

    batch: Annotated[int | None, Option("--batch", "N", "Sequences per rank and micro-batch.", least=1)] = None
    sequence: Annotated[int | None, SEQUENCE] = None
    precision: Annotated[Precision | None, Option("--precision", "NAME", "fp32, amp, bf16 or fp8.")] = None
    sharding: Annotated[Sharding | None, Option("--sharding", "HOW", "none, ddp, zero1, zero2, zero3 or fsdp2.")] = None
    ranks: Annotated[int | None, Option("--ranks", "N", "Data-parallel ranks.", least=1)] = None
    context: Annotated[int | None, Option("--serve-context", "N", "Serve with this cache length.", least=1)] = None
    gpu_memory: Annotated[float | None, Option("--gpu-memory", "GB", "Memory of the GPU.")] = None

    def applied(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """A stored configuration with these settings in the place of its own."""
        changed = dict(stored)
        train = _known(
            batch=self.batch,
            sequence=self.sequence,
            precision=self.precision,
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
        parallel = _known(sharding=self.sharding, data=self.ranks)
        for section, values in (("parallel", parallel), ("gpu", _known(memory_bytes=memory_bytes))):
            if values:
                changed[section] = {**_section(changed, section), **values}
        return changed


def _section(stored: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return json_object(stored.get(name, {}), name)


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def plan(
    config: Annotated[Path | None, Argument("CONFIG", "Configuration as JSON.")] = None,
    hf_config: Annotated[
        Path | None, Option("--hf-config", "FILE", "A Hugging Face config.json.", must=asked.there)
    ] = None,
    against: Annotated[Path | None, Option("--against", "SNAPSHOT", "Compare with this run.", must=asked.there)] = None,
    *,
    settings: PlanSettings,
    writing: PageOutput,
) -> int:
    """Plan the memory of one rank: every term with its formula, what fits, and which change frees most.

    Options replace what CONFIG says. With --hf-config the model comes from there.
    """
    if config is None and hf_config is None:
        raise UsageError("there is nothing to plan", remedy="give CONFIG, --hf-config, or both")
    from timesink.memory_plan.plan import plan as planned

    made = planned(configuration(settings.applied(_stored(config, hf_config))))
    from timesink.views.memory import comparison_sheet, plan_page

    measured = None if against is None else comparison_sheet(made, read_traces([against]))
    writing.sink([path for path in (config, hf_config, against) if path]).show(plan_page(made, measured))
    return 0


def diff(
    before: Annotated[Path, Argument("BEFORE", "Snapshot before.")],
    after: Annotated[Path, Argument("AFTER", "Snapshot after.")],
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
        stored["model"] = dataclasses.asdict(read_model(model_path))
        stored.setdefault("name", model_path.parent.name if model_path.name == "config.json" else model_path.stem)
    return stored


app = Commands("Show, plan and compare what holds GPU memory.", {"show": show, "plan": plan, "diff": diff})
