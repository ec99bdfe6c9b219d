"""The shell of every page: templates that escape, and a policy that names every script and style by its hash.

A whole page is a `document`. A `fragment` is for a cell of a notebook: no script, colours of the notebook itself,
tables folded away.
"""

import base64
import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemBytecodeCache, FunctionLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from timesink import __version__
from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Diagnosis
from timesink.records import Record
from timesink.render.html.figures import scales, shape, short_kernels
from timesink.render.html.sections import prose
from timesink.render.parts import (
    device_sheet,
    evidence_text,
    grouped,
    limit_text,
    origin_text,
    steps_text,
    undecided_parts,
)
from timesink.render.svg import chart_svg
from timesink.render.svg.pen import DARK, LIGHT, style_of
from timesink.render.tables import TIE, cell_text, quantity_text, tied, value_text
from timesink.units import share_text, time_text
from timesink.untrusted import defuse_lines, scrub_sentence, scrub_values, shortened
from timesink.views import Page


class Assets(Record):
    """What a page brings along: the plotting library and the timeline's script are most of a small page, so only where
    they draw. A `live` page may ask the server that it comes from."""

    plot: bool
    script: bool
    timeline: bool = False
    live: bool = False


def document(template: str, assets: Assets, values: Mapping[str, Any], data: Mapping[str, Any] | None) -> str:
    """The template as a whole document that ends in a newline."""
    style = _style(assets.plot)
    script = _script(assets) if assets.script else ""
    page = _environment().get_template(template)
    text = page.render(
        **values,
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script, assets.live),
        live=assets.live,
        data=None if data is None else Markup(_embedded(data)),
    )
    return defuse_lines(text.rstrip("\n") + "\n")


def fragment(template: str, values: Mapping[str, Any]) -> str:
    """The template as a piece of a page that belongs to somebody else: no style, no script, no policy of its own."""
    return defuse_lines(_environment().get_template(template).render(**values).strip() + "\n")


def _policy(style: str, script: str, live: bool) -> str:
    """Nothing may be fetched, framed or sent, but from the server of a live page; only this style and script count."""
    scripts = f"script-src {_digest(script)}" if script else "script-src 'none'"
    asks = "; connect-src 'self'" if live else ""
    return (
        f"default-src 'none'; {scripts}; style-src {_digest(style)}; img-src data:; base-uri 'none'; form-action 'none'"
        f"{asks}"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _embedded(data: Mapping[str, Any]) -> str:
    """JSON that can end no script element and begin no comment: every `<`, `>` and `&` is an escape."""
    text = json.dumps(scrub_values(data), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _style(plot: bool) -> str:
    colours = _asset("colours.css").replace("--light", style_of(LIGHT)).replace("--dark", style_of(DARK))
    return "\n".join([*([_asset("uPlot.min.css")] if plot else []), colours, _asset("report.css")])


@cache
def _script(assets: Assets) -> str:
    library = ["uPlot.licence.js", "uPlot.iife.min.js"] if assets.plot else []
    timeline = ["capture.js", "timeline.js", "flame.js"] if assets.timeline else []
    ours = ["view.js", "tables.js", "pictures.js", *timeline, "steps.js"]
    return "\n".join(map(_asset, [*library, *ours]))


def _asset(name: str) -> str:
    return files("timesink.render.html").joinpath("assets", name).read_text(encoding="utf-8").strip()


def _template(name: str) -> str:
    return files("timesink.render.html").joinpath("templates", name).read_text(encoding="utf-8")


class _Compiled(FileSystemBytecodeCache):
    """Compiled templates, beside the compiled modules, as far as Python may write those."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a template for the next process."""
        if not sys.dont_write_bytecode:
            with suppress(OSError):  # a folder that nobody may write to, or none
                super().dump_bytecode(bucket)


@cache
def _environment() -> Environment:
    """Templates escape whatever they are given, and every text is scrubbed on its way in."""
    made = Environment(
        autoescape=True,
        loader=FunctionLoader(_template),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_scrubbed,
        bytecode_cache=_Compiled(str(Path(__file__).parent / "__pycache__"), f"templates-{__version__}-%s.cache"),
    )
    made.filters.update(
        capital=_capital,
        cell=cell_text,
        evidence=evidence_text,
        limit=limit_text,
        origin=origin_text,
        prose=prose,
        quantity=quantity_text,
        saving=saving_text,
        scales=scales,
        shape=shape,
        short_kernels=short_kernels,
        share=share_text,
        short=lambda text, limit=120: shortened(str(text), limit),
        svg=lambda chart: Markup(chart_svg(chart)),  # of our own making, every name in it escaped
        tied=lambda text: Markup(str(escape(tied(scrub_sentence(text)))).replace(TIE, "&nbsp;")),
        time=time_text,
        value=value_text,
    )
    return made


def _capital(text: str) -> str:
    """With a capital at the beginning, unless the first word is a name such as `data_load`."""
    first = text.split(" ", 1)[0].replace("-", "")
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def _scrubbed(value: Any) -> Any:
    return scrub_sentence(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def diagnosis_fragment(diagnosis: Diagnosis) -> str:
    """Verdict, figures and findings."""
    return fragment(
        "diagnosis_fragment.html.j2",
        {
            "diagnosis": diagnosis,
            "steps_text": steps_text(diagnosis.steps),
            "devices": device_sheet(diagnosis.devices) if diagnosis.devices else None,
            "groups": grouped(diagnosis),
            "undecided": undecided_parts(diagnosis),
        },
    )


def page_fragment(page: Page) -> str:
    """A page of tables, the first open."""
    return fragment("page_fragment.html.j2", {"page": page})
