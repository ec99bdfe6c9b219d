"""The pages of Python: the public functions, a page for each object that they return, from their docstrings.

The examples in them are run by tests/notebook/test_examples.py in the folder that the pages of the commands use.
"""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import timesink.notebook as functions
from timesink.diagnosis.verdicts import Diagnosis, Finding
from timesink.model.presentable import Presentable
from timesink.model.trace import Trace as PlainTrace
from timesink.notebook.display import TimelinePicture
from timesink.notebook.trace import Trace
from timesink.records import field_names
from timesink.render.markdown import code
from timesink.verify.outcomes import GateResult
from timesink.views import Page

OBJECTS: tuple[type, ...] = (Trace, Diagnosis, Finding, Page, GateResult, TimelinePicture)
FUNCTIONS = [
    getattr(functions, name)
    for name in (
        *("read", "diagnose", "summary", "idle", "kernels", "plan", "what_if", "try_", "verify_change", "gate"),
        "compare",
    )
]
OF_A_PLAIN_TRACE = ("rank_numbers", "damage", "extent_ns", "between")
EXAMPLES: tuple[Any, ...] = (*FUNCTIONS, Presentable, *OBJECTS)
INTRO = """# Python

```python
import timesink

trace = timesink.read("run.json.gz")  # a file, a folder of ranks, a list of files
trace.diagnose()  # <Diagnosis input_pipeline: 3 findings, 59 rules>
```

| object | is |
|---|---|
{objects}

In a notebook each shows itself as tables, a timeline as the picture that it is in the report. `timesink.step()`,
`annotate()` and `profile()` go into the program that is measured: [Capture](../how-to/capture.md); `timesink.stages()`
logs what a program works on each item: [pipelines](../how-to/pipelines.md). `timesink.handler()` and `recorder()` go
into a trainer: [one line in the trainer](../how-to/trainer.md).

## What is stable

The names of `timesink.__all__`, and of the objects above what their pages list, are stable: none is taken away or
changed in meaning at once. For two minor versions the old name goes on working and raises a `DeprecationWarning`,
which says what to use instead and which version ends it.
`python -W error::DeprecationWarning` finds every use. Tables keep their columns and [JSON](../json/index.md) its keys
by the same rule. Everything else in the package may move between any two versions.

## Errors

Errors are `timesink.errors.TimesinkError`: `UnreadableTrace` for a file, `UsageError` for what was asked. Each has a
`message`, and a `remedy` that says what to do:

```pycon
{error}
```

## Functions

"""


ERROR = """>>> timesink.diagnose(42)
Traceback (most recent call last):
    ...
timesink.errors.UsageError: a capture is read from a path, and this is of type int; give a path, a folder, a list of
paths, or what timesink.read returned"""


def python_pages() -> Iterator[tuple[str, str]]:
    """Every page: its path in the documentation, and its text."""
    listed = "\n".join(f"| [{name_of(made)}]({name_of(made)}.md) | {first_sentence(made)} |" for made in OBJECTS)
    text = INTRO.format(objects=listed, error=ERROR)
    yield "python/index.md", text + "\n\n".join(entry(made, f"timesink.{made.__name__}") for made in FUNCTIONS)
    for made in OBJECTS:
        yield f"python/{name_of(made)}.md", object_page(made)


def name_of(made: Any) -> str:
    """The public name of a function or class."""
    return "Trace" if made is Trace else str(made.__name__)


def object_page(made: type) -> str:
    """What it is, what it holds, what can be asked of it, and how it is written."""
    lines = [
        f"# {name_of(made)}",
        "",
        as_markdown(made.__doc__ or ""),
        "",
        "## Holds",
        "",
        "| name | type |",
        "|---|---|",
    ]
    types = {name: kind for base in made.__mro__ for name, kind in vars(base).get("__annotations__", {}).items()}
    hidden = ("origin", "step_choice", "claim", "change", "stated", "cut_to")
    lines += [f"| `{name}` | {code(types[name], in_table=True)} |" for name in field_names(made) if name not in hidden]
    for base in (made, *([Presentable] if issubclass(made, Presentable) else [])):
        own = {name: value for name, value in vars(base).items() if not name.startswith("_")}
        own |= {name: getattr(PlainTrace, name) for name in OF_A_PLAIN_TRACE if base is Trace}
        asked = {name: value for name, value in own.items() if inspect.isfunction(value) or isinstance(value, property)}
        if asked:
            lines += ["", "## Is written as" if base is Presentable else "## Answers", ""]
            lines.append("\n\n".join(entry(value, name) for name, value in asked.items()))
    return "\n".join(lines)


def entry(value: Callable[..., Any] | property, name: str) -> str:
    """A function, method or property with its signature and what its docstring says."""
    given = "" if isinstance(value, property) else signature_text(value)
    return (
        f"### {name.rpartition('.')[2]}\n\n```python\n{name}{given}\n```\n\n{as_markdown(inspect.getdoc(value) or '')}"
    )


def signature_text(function: Callable[..., Any]) -> str:
    """`(*, top=10) -> Page`: without `self`, with types as they are written."""
    signature = inspect.signature(function)
    own = [one for name, one in signature.parameters.items() if name != "self"]
    text = str(signature.replace(parameters=own)).replace("mappingproxy({})", "{}")
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text).replace("AnsweringTrace", "Trace")


def as_markdown(doc: str) -> str:
    """A docstring as Markdown: sections as lists, examples as blocks."""
    lines, block = [], False
    for line in inspect.cleandoc(doc).splitlines():
        example = line.startswith(">>> ")
        if example and not block:
            lines += ["```pycon"]
            block = True
        elif block and not line.strip():
            lines += ["```"]
            block = False
        lines.append(line)
    text = "\n".join([*lines, "```"] if block else lines)
    text = re.sub(r"^(\w+)\n-{3,}$", r"**\1**\n", text, flags=re.MULTILINE)
    return re.sub(
        r"^(\w+)\n    (.*(?:\n    .*)*)", lambda m: f"- `{m[1]}`: {' '.join(m[2].split())}", text, flags=re.MULTILINE
    )


def first_sentence(made: type) -> str:
    """The first sentence of a docstring on one line."""
    return " ".join((made.__doc__ or "").split("\n\n")[0].split(". ")[0].split()).rstrip(".") + "."


def examples(made: Any) -> list[doctest.DocTest]:
    """The examples of a function, or of a class and its methods, in the order in which they are written."""
    found = doctest.DocTestFinder(exclude_empty=True).find(made, made.__name__, globs={})
    return sorted((test for test in found if test.examples), key=lambda test: test.lineno or 0)
