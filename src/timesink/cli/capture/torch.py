"""`timesink capture torch`."""

from __future__ import annotations

from timesink.cli.capture import options as given
from timesink.cli.capture.options import translated
from timesink.cli.capture.shown import finished, show_check, show_command


def torch(
    program: given.Program = None,
    out: given.Out = None,
    steps: given.Active = 6,
    settle: given.Settle = 5,
    timed: given.Timed = 10,
    warm_up: given.WarmUp = 2,
    whole: given.Whole = False,
    stacks: given.Stacks = False,
    memory: given.Memory = False,
    shapes: given.Shapes = True,
    auto_ranges: given.AutoRanges = False,
    keep_running: given.KeepRunning = False,
    timeout: given.Timeout = 3600,
    config_file: given.ConfigFiles = None,
    print_only: given.Print = False,
    dry_run: given.DryRun = False,
) -> int:
    """Which operator, which line: PyTorch's own profiler, one trace per rank, no change to the script.

    torchrun, srun and mpirun work. A step ends at timesink.step(), else at the program's own profiler.step(), else at
    the first optimizer's step, else (inference) at a call of the outermost module.
    """
    words = program or ()
    counts = given.Counts(settle, timed, warm_up, steps)
    run = {"whole": whole, "auto_ranges": auto_ranges, "keep_running": keep_running, "timeout_s": timeout}
    with translated():
        from timesink.capture.running import agent_environment
        from timesink.capture.torch_run import TorchOptions, capture_torch, torch_plan

        chosen = TorchOptions(shapes, stacks, memory)
        settings = given.settings("torch", out, counts, config_file, **run)
        if print_only:
            return show_command(words, agent_environment(torch_plan(chosen, settings)))
        if dry_run:
            return show_check(settings, words)
        return finished(capture_torch(words, chosen, settings))
