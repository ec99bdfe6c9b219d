"""`timesink metrics check`: profiler metric names against a chip, before a run is spent on them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from timesink.cli.options import Commands, PageOutput, argument, option
from timesink.errors import UsageError, unknown
from timesink.render import Format
from timesink.untrusted.scrub import scrub

if TYPE_CHECKING:
    from timesink.knowledge.metric_names import NameVerdict

app = Commands()


def chips() -> list[str]:
    """What the shell offers for `--chip`."""
    from timesink.knowledge.metric_names import CHIPS

    return list(CHIPS)


@app.callback()
def _group() -> None:
    """Check names of profiler metrics against a chip."""


@app.command("check")
def check(
    names: Annotated[list[str], argument("NAME", "Metric names; commas separate too.")],
    chip: Annotated[str, option("--chip", "SM", "Compute capability, such as sm_90.", autocompletion=chips)] = "sm_90",
    *,
    writing: PageOutput,
) -> int:
    """Say which names exist on the chip, which do not, and what to use instead.

    Exits with 2 where a name is wrong or absent. Of names in no table nothing is claimed.
    """
    from timesink.knowledge.metric_names import CHIPS, checked
    from timesink.views.page import Field, Page, Sheet, texts

    if chip not in CHIPS:
        raise unknown("chip", chip, list(CHIPS))
    asked = [name for part in names for name in part.split(",") if name]
    verdicts = [checked(name, chip) for name in asked]
    target = writing.sink()
    if target.form is Format.TEXT:
        target.write("".join(_line(verdict, chip) for verdict in verdicts))
        return _code(verdicts)
    columns = (
        Field("name", "name", is_name=True),
        Field("standing", f"on {chip}"),
        *texts(why="why", known_on="known on"),
        Field("instead", "instead", is_name=True),
    )
    rows = tuple(
        (verdict.name, verdict.standing.value, verdict.why, " ".join(verdict.known_on), verdict.instead)
        for verdict in verdicts
    )
    target.show(Page("metric names", (Sheet("metrics", f"metrics on {chip}", columns, rows),)))
    return _code(verdicts)


def _code(verdicts: Sequence[NameVerdict]) -> int:
    from timesink.knowledge.metric_names import Standing

    return 2 if any(verdict.standing in (Standing.WRONG, Standing.ABSENT) for verdict in verdicts) else 0


def _line(verdict: NameVerdict, chip: str) -> str:
    why = f": {verdict.why}" if verdict.why else ""
    known = (
        f" (known on {', '.join(verdict.known_on)})" if verdict.known_on and verdict.standing.value != "exists" else ""
    )
    instead = f"; use {scrub(verdict.instead)}" if verdict.instead else ""
    return f"{scrub(verdict.name)}  {verdict.standing.value} on {chip}{why}{known}{instead}\n"


def refuse_wrong_names(metrics: Sequence[str]) -> None:
    """`UsageError` for a metric that exists on no chip: ncu would drop it without a word, after all its replays. Names
    that may be meant otherwise are said on stderr; groups and expressions are ncu's to resolve."""
    from timesink.knowledge.metric_names import CHIPS, Standing, checked

    for name in metrics:
        if ":" in name and not name.startswith("breakdown:"):
            continue
        verdict = checked(name, next(iter(CHIPS)))  # what is wrong is so on every chip
        if verdict.standing is Standing.WRONG:
            remedy = f"use {verdict.instead}" if verdict.instead else f"`timesink metrics check {name}`"
            raise UsageError(f"there is no metric {name!r}: {verdict.why}", remedy=remedy)
        if verdict.instead and not verdict.known_on:
            sys.stderr.write(f"timesink: {name!r} is {verdict.why}; {verdict.instead} is\n")
