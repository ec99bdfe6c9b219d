"""`timesink memory`: what held the memory of a run, what a configuration will need, and how two of them differ.

The three stand under `timesink ledger` as well, beside the ledger of predictions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timesink.cli import options
from timesink.cli.output import sink
from timesink.cli.reading import read_traces
from timesink.errors import UsageError

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
    from timesink.cli.memory_sheets import memory_page, memory_picture

    trace = read_traces([snapshot], cache=not no_cache)
    used = None if device_used is None else int(device_used * 1e9)
    sink(form, output, no_color, [snapshot]).page(memory_page(trace, top, used))
    if svg is not None:
        sink(form, svg, True, [snapshot]).write(memory_picture(trace))
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
    from timesink.cli.memory_plan_sheets import comparison_sheet, plan_page
    from timesink.cli.memory_request import Request, requested
    from timesink.memory_plan.plan import plan as planned

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
    from timesink.cli.memory_sheets import difference_page

    first, second = read_traces([before]), read_traces([after])
    sink(form, output, no_color, [before, after]).page(difference_page(first, second))
    return 0
