"""`timesink memory`: what held the memory of a run, what a configuration will need, and how two of them differ.

The three stand under `timesink ledger` as well, beside the ledger of predictions.

From files and options to the configuration that is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from timesink.cli import options
from timesink.cli.output import sink
from timesink.cli.reading import read_traces
from timesink.errors import UsageError
from timesink.memory_plan.config import Configuration, configuration
from timesink.untrusted.plain_json import document

app = typer.Typer(help="Show, plan and compare what holds GPU memory.", rich_markup_mode=None, no_args_is_help=True)

Snapshot = Annotated[
    Path,
    typer.Argument(metavar="SNAPSHOT", help="torch.cuda.memory._dump_snapshot, or a trace with memory events."),
]
Top = Annotated[int, typer.Option("--top", metavar="N", min=1, help="Show this many places.")]
Used = Annotated[
    float | None,
    typer.Option("--device-used", metavar="GB", help="What the device had in use (nvidia-smi), decimal GB."),
]
Picture = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Draw memory over time into this file.", show_default=False)
]
ModelFile = Annotated[
    Path | None,
    typer.Option("--hf-config", metavar="FILE", help="A Hugging Face config.json.", show_default=False),
]


@app.callback()
def _group() -> None:
    """Show, plan and compare what holds GPU memory."""


@app.command("show")
def show(
    snapshot: Snapshot,
    top: Top = 12,
    device_used: Used = None,
    svg: Picture = None,
    form: options.Form = None,
    output: options.Output = None,
    no_color: options.NoColor = False,
    no_cache: options.NoCache = False,
) -> int:
    """Show what was alive at the peak, by category and place, and what the allocator holds beyond it."""
    from timesink.views.memory import memory_chart, memory_page

    trace = read_traces([snapshot], cache=not no_cache)
    used = None if device_used is None else int(device_used * 1e9)
    sink(form, output, no_color, [snapshot]).page(memory_page(trace, top, used))
    if svg is not None:
        from timesink.render.svg import memory_svg

        sink(form, svg, True, [snapshot]).write(memory_svg(memory_chart(trace)))
    return 0


@app.command("plan")
def plan(
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="Configuration as JSON.", show_default=False)
    ] = None,
    hf_config: ModelFile = None,
    batch: Annotated[int | None, typer.Option("--batch", min=1, help="Sequences per rank and micro-batch.")] = None,
    sequence: Annotated[int | None, typer.Option("--sequence", min=1, help="Tokens per sequence.")] = None,
    precision: Annotated[str | None, typer.Option("--precision", help="fp32, amp, bf16 or fp8.")] = None,
    optimizer: Annotated[str | None, typer.Option("--optimizer", help="Such as adamw-fused.")] = None,
    recompute: Annotated[str | None, typer.Option("--recompute", help="none, selective or full.")] = None,
    sharding: Annotated[str | None, typer.Option("--sharding", help="none, ddp, zero1-3 or fsdp2.")] = None,
    ranks: Annotated[int | None, typer.Option("--ranks", min=1, help="Data-parallel ranks.")] = None,
    tensor: Annotated[int | None, typer.Option("--tensor", min=1, help="Tensor-parallel ranks.")] = None,
    context: Annotated[int | None, typer.Option("--serve-context", min=1, help="Serve with this cache length.")] = None,
    gpu_memory: Annotated[float | None, typer.Option("--gpu-memory", metavar="GB", help="Memory of the GPU.")] = None,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="SNAPSHOT", help="Compare with this run.", show_default=False)
    ] = None,
    form: options.Form = None,
    output: options.Output = None,
    no_color: options.NoColor = False,
) -> int:
    """Plan the memory of one rank: every term with its formula, what fits, and which change frees most.

    Options replace what CONFIG says. With --hf-config the model comes from there.
    """
    from timesink.memory_plan.plan import plan as planned
    from timesink.views.memory_plan import comparison_sheet, plan_page

    if config is None and hf_config is None:
        raise UsageError("there is nothing to plan", remedy="give CONFIG, --hf-config, or both")
    train = {"batch": batch, "sequence": sequence, "precision": precision, "optimizer": optimizer}
    parallel = {"sharding": sharding, "data": ranks, "tensor": tensor}
    wanted = Request({**train, "recompute": recompute}, parallel, context, gpu_memory)
    found = planned(requested(config, hf_config, wanted))
    measured = None if against is None else comparison_sheet(found, read_traces([against]))
    sink(form, output, no_color, [path for path in (config, hf_config, against) if path]).page(
        plan_page(found, measured)
    )
    return 0


@app.command("diff")
def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="Snapshot before.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Snapshot after.")],
    form: options.Form = None,
    output: options.Output = None,
    no_color: options.NoColor = False,
) -> int:
    """Compare two snapshots, category by category, each at its own peak."""
    from timesink.views.memory import difference_page

    first, second = read_traces([before]), read_traces([after])
    sink(form, output, no_color, [before, after]).page(difference_page(first, second))
    return 0


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for; None leaves a setting as the file or the default has it."""

    train: Mapping[str, Any]
    parallel: Mapping[str, Any]
    serve_context: int | None
    gpu_memory_gb: float | None


def requested(path: Path | None, hub_path: Path | None, wanted: Request) -> Configuration:
    """The configuration, options replacing what the files say."""
    given = _read(path) if path else {}
    if hub_path is not None:
        from timesink.memory_plan.config import read_model

        given["model"] = asdict(read_model(hub_path))
        given.setdefault("name", hub_path.parent.name if hub_path.name == "config.json" else hub_path.stem)
    train = {name: value for name, value in wanted.train.items() if value is not None}
    if wanted.serve_context is not None:
        given.pop("train", None)
        prompt = train.get("sequence", wanted.serve_context)
        given["serve"] = {"batch": train.get("batch", 1), "prompt": prompt, "context": wanted.serve_context}
    elif "serve" not in given:
        given["train"] = {"batch": 1, "sequence": 2048, **given.get("train", {}), **train}
    elif "batch" in train:
        given["serve"] = {**given["serve"], "batch": train["batch"]}
    for section, changes in (("parallel", wanted.parallel), ("gpu", _gpu(wanted))):
        kept = {name: value for name, value in changes.items() if value is not None}
        if kept:
            given[section] = {**given.get(section, {}), **kept}
    return configuration(given)


def _gpu(wanted: Request) -> dict[str, Any]:
    return {"memory_bytes": None if wanted.gpu_memory_gb is None else int(wanted.gpu_memory_gb * 1e9)}


def _read(path: Path) -> dict[str, Any]:
    try:
        given = document(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", remedy="check the path") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}", remedy="see docs/how-to/memory.md for an example") from error
    if not isinstance(given, dict) or not all(isinstance(part, (dict, str)) for part in given.values()):
        raise UsageError(f"{path} is no configuration: a JSON object of objects")
    return given
