"""`timesink redact`: take out of a capture what names people, machines and secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from timesink.cli.capture import translated
from timesink.cli.options import NoColor, argument, flag, format_option, option
from timesink.cli.output import sink
from timesink.render import Format


def command(
    file: Annotated[Path, argument("FILE", "A capture or a report.")],
    output: Annotated[Path | None, option("--output -o", "FILE", "The new file [default: NAME.redacted.*].")] = None,
    names: Annotated[
        list[str] | None, option("--name", "NAME", "Another host or user to look for; may be repeated.")
    ] = None,
    check: Annotated[bool, flag("--check", "Write nothing: say what would be removed; exit 1 if anything.")] = False,
    form: Annotated[Format | None, format_option("Page")] = None,
    no_color: NoColor = False,
) -> int:
    """Take what names people, machines and secrets out of a capture.

    Known keys, tables and columns are kept, and in them numbers, kernels, operators, metrics and words that software
    says; every other word becomes a placeholder, the same one wherever it stands (name3). The diagnosis stays the same.
    The copy is searched for what was learnt and for the shapes of secrets; where one is found, none is written. Takes
    Nsight Systems exports (.sqlite), PyTorch profiler traces (.json, .json.gz), memory snapshots (.pickle), logs of
    torch.compile, Nsight Compute reports (.ncu-rep) and pages (.csv), and text or JSON. Kernels keep their names.
    """
    from timesink.capture import redaction
    from timesink.errors import UsageError
    from timesink.views.page import Field, Page, Sheet

    if check and output is not None:
        raise UsageError("--check writes nothing", remedy="leave --output out")
    with translated():
        if check:
            removed, title = redaction.check(file, names or ()), f"To remove from {file}"
        else:
            done = redaction.redact(file, output, names or ())
            removed, title = done.removed, f"Redacted copy: {done.path}"
    rows = tuple((text,) for text in removed) or (("nothing was found",),)
    sheet = Sheet("removed", "Removed", (Field("what", "what"),), rows)
    sink(form, None, no_color, [file]).show(Page(title, (sheet,)))
    return 1 if check and removed else 0
