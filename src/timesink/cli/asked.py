"""What a word on the command line must be, told before anything that reads files is imported.

Each function is asked as `Option(must=...)` with the word, and raises `UsageError` where it can mean nothing. What
knows that it imports when it is asked, and nothing of it reads a file: a name is looked up where names are declared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from timesink.cli.output import check_place
from timesink.cli.parameters import must_be_there
from timesink.errors import UsageError, unknown

if TYPE_CHECKING:
    from timesink.knowledge.gpus import GpuPeaks
    from timesink.verify.ledger import Gain


def there(text: str) -> None:
    """A file or a folder that is there."""
    must_be_there(Path(text))


def program(words: Sequence[str] | None, purpose: str) -> list[str]:
    """The program after `--`, which is there."""
    if not words:
        raise UsageError(f"no program to {purpose}", remedy="write it after --, such as: -- python train.py")
    return list(words)


def place(text: str) -> None:
    """Where a file can be written: in a folder that is there."""
    if text != "-":
        check_place(Path(text))


def window(text: str) -> None:
    """``START:END``."""
    from timesink.model.span import Span

    Span.parse(text)


def expression(text: str, option: str = "") -> None:
    """A regular expression, so far as every language of them agrees."""
    from timesink.model.patterns import plain_fault

    if fault := plain_fault(text):
        raise UsageError(f"{option}{text!r} is not a regular expression: {fault}")


def expression_of(option: str) -> Callable[[str], None]:
    """The same, said with the option's name."""
    return lambda text: expression(text, f"{option}: ")


def steps(text: str) -> None:
    """How steps are told apart: a number of them, `auto`, or what their first kernel or range is called."""
    if text.isdecimal():
        if int(text) < 2:
            raise UsageError(f"--steps: a loop runs at least twice, not {text} times")
    elif text != "auto":
        expression(text, "--steps: ")


def fact(text: str) -> None:
    """``NAME=VALUE``."""
    from timesink.capture.recorded_run import parse_facts

    try:
        parse_facts([text])
    except ValueError as fault:
        raise UsageError(f"--fact: {fault}", remedy="write it as NAME=VALUE, such as resolution=512") from None


def rules(text: str) -> None:
    """Codes or names of rules, or beginnings of codes, with commas between."""
    from timesink.diagnosis.rule_names import rules_called

    rules_called([text])


def rule(text: str) -> None:
    """The code or the name of one rule."""
    from timesink.diagnosis.rule_names import rule_called

    rule_called(text)


def rule_limit(text: str) -> None:
    """``CODE.name=value`` of a limit that there is."""
    from timesink.diagnosis.rule_names import check_limits

    check_limits(dict([limit_of(text)]))


def limit_of(text: str) -> tuple[str, float]:
    """The same as the limit's name and its value."""
    form = "CODE.name=value, such as IDL101.idle_ratio=0.2"
    name, number = number_named(text, form)
    code, dot, limit = name.partition(".")
    if not (dot and limit):
        raise _no_limit(text, form)
    return f"{code.upper()}.{limit}", number


def sheet_limit(text: str) -> None:
    """``registers=96``."""
    number_named(text, SHEET_LIMIT)


SHEET_LIMIT = "NAME=VALUE, such as registers=96"


def number_named(text: str, form: str) -> tuple[str, float]:
    """``registers=96`` as a name and its number; `UsageError` shows the `form` of a limit where it is none."""
    name, _, value = text.partition("=")
    try:
        number = _ratio(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _no_limit(text, form)
    return name.strip(), number


def _ratio(text: str) -> float:
    """What ``2%`` or ``0.02`` means. `ValueError` where it is no number."""
    plain = text.strip()
    return float(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)


def _no_limit(text: str, form: str) -> UsageError:
    return UsageError(f"{text!r} is not a limit", remedy=f"write it as {form}")


def table_limit(text: str) -> None:
    """``sum(kernels.count) <= 2700``."""
    from timesink.verify.limit_texts import parse_limit

    parse_limit(text)


def change(text: str) -> None:
    """A change of the grammar of `plan --change`."""
    from timesink.fixes.grammar import typed_change

    typed_change(text)


def names_of(text: str) -> list[str]:
    """Names with commas between."""
    return [name.strip() for name in text.split(",") if name.strip()]


def switches(text: str) -> None:
    """Changes that a running program can be switched to."""
    from timesink.recipes.table import SWITCHES

    _known(text, SWITCHES, "{!r} cannot be tried")


def edits(text: str) -> None:
    """Changes that can be written into a program."""
    from timesink.recipes.table import EDITS

    _known(text, EDITS, "{!r} is an unknown edit")


def _known(text: str, known: Mapping[str, object], what: str) -> None:
    if absent := [name for name in names_of(text) if name not in known]:
        raise UsageError(what.format(absent[0]), remedy=f"choose from {', '.join(known)}")


def budget(text: str) -> float:
    """Seconds of `180`, `180s` or `3m`."""
    try:
        value = float(text.removesuffix("s").removesuffix("m")) * (60 if text.endswith("m") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise UsageError(f"--budget {text!r} is not a time", remedy="write seconds, or minutes as 3m")
    return value


def share(text: str) -> float:
    """The ratio that a text such as ``2%`` or ``0.02`` means. `UsageError` unless it is at least 0 and below 1."""
    try:
        value = _ratio(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UsageError(f"{text!r} is not a share", remedy="write it as 2% or 0.02")
    return value


def speed_up(text: str) -> float:
    """The ratio before / after that a text such as ``1.1`` or ``1.1x`` means. `UsageError` unless it is above 1."""
    try:
        value = float(text.strip().removesuffix("x"))
    except ValueError:
        value = 0.0
    if not 1 < value < math.inf:
        raise UsageError(f"{text!r} is not a speed-up", remedy="write it as 1.1: 10 % more steps in the same time")
    return value


def pairs(text: str) -> tuple[int, ...]:
    """``6,12,18,30`` as numbers that rise."""
    from timesink.verify.limits import check_looks

    try:
        looks = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{text!r} are not numbers of pairs", remedy="write them as 6,12,18,30") from None
    check_looks(looks)
    return looks


def gain(text: str) -> Gain:
    """``LOW,VALUE,HIGH`` or ``BEFORE,AFTER``, in milliseconds of a step."""
    from timesink.verify.ledger import Gain

    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    match numbers:
        case low, value, high:
            return Gain(value, low, high)
        case before, after:
            return Gain(before - after, before - after, before - after, before)
    raise UsageError(f"{text!r} is not a gain", remedy="write three numbers: low,value,high; or the step before,after")


def history(text: str) -> None:
    """A file of run means."""
    from timesink.verify import check_history

    check_history(Path(text))


def suite(text: str) -> None:
    """A name for a suite."""
    from timesink.verify import check_suite

    check_suite(text)


def gpu(text: str) -> GpuPeaks:
    """The GPU of that name; `UsageError` where none or several are meant."""
    from timesink.knowledge.gpus import ENTRIES, candidates

    found = candidates(text)
    if len(found) == 1:
        return found[0]
    products = ", ".join(entry.product for entry in found) or ", ".join(entry.product for _, entry in ENTRIES)
    raise UsageError(
        f"{text!r} may be several GPUs" if found else f"the peaks of {text!r} are not known",
        remedy=f"choose from: {products}",
    )


def point(text: str) -> None:
    """Operations, bytes, a time, a GPU and a format of numbers that it has."""
    from timesink.views.timed_work import TimedWork

    work = TimedWork.parse(text)
    sheet = gpu(work.gpu)
    if work.form not in sheet.flops:
        raise unknown(f"peak of {sheet.product}", work.form, [str(known) for known in sheet.flops])


def columns(text: str) -> None:
    """Figures of a kernel's sheet, with commas between."""
    from timesink.knowledge.metric_names.sheet_figures import check_column

    for name in names_of(text):
        check_column(name)


def chip(text: str) -> None:
    """A chip whose metrics are known."""
    from timesink.knowledge.metric_names import CHIPS

    if text not in CHIPS:
        raise unknown("chip", text, list(CHIPS))


def pair(text: str) -> tuple[str, str]:
    """``OLD=NEW``: two kernels by name or number."""
    old, _, new = text.partition("=")
    if not (old and new):
        raise UsageError(f"--pair {old} names no two kernels", remedy="write OLD=NEW, names or numbers of launches")
    return old, new


def parts(text: str) -> None:
    """``encode=t_in..t_out``, several with commas between."""
    from timesink.views.stage_parts import parts_named

    parts_named(text)


def engine(text: str) -> None:
    """Where the files of ranks are read."""
    from timesink.cluster import check_engine

    check_engine(text)


def origin(text: str) -> None:
    """Scheme and host, without a path."""
    found = urlsplit(text)
    if found.scheme not in ("https", "http") or not found.netloc or f"{found.scheme}://{found.netloc}" != text:
        raise UsageError(f"{text!r} is not an origin", remedy="write it as https://ui.perfetto.dev")


def example(text: str) -> None:
    """SQL, or a word that names an example of it."""
    from timesink.export.examples import query_named

    query_named(text)
