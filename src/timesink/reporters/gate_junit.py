"""JUnit XML: one suite, one case per gated metric. Read by GitHub (through actions), GitLab and Jenkins.

Slower is a failure, invalid an error, inconclusive skipped (a failure where strict). Numbers are properties of the
suite, because the schema Jenkins validates against knows none on a case.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from timesink.outcomes import GateResult, GateRow, Outcome
from timesink.reporters.gate_words import headline, sentence, why
from timesink.scrub import scrub_sentence

# Characters XML 1.0 cannot hold even as references; scrubbing has already shown control characters as escapes.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(result: GateResult, *, strict: bool = False) -> str:
    """The XML document."""
    rows = [row for row in result.rows if row.gated]
    kinds = [_kind(row, strict) for row in rows]
    counts = {"tests": len(rows), "failures": kinds.count("failure"), "errors": kinds.count("error")}
    attributes = {name: str(count) for name, count in counts.items()}
    name = _text(f"timesink {result.suite}".rstrip())
    root = ET.Element("testsuites", {"name": name, **attributes})
    suite = ET.SubElement(root, "testsuite", {"name": name, **attributes, "skipped": str(kinds.count("skipped"))})
    properties = ET.SubElement(suite, "properties")
    _property(properties, "headline", headline(result))
    _property(properties, "procedure", result.procedure)
    for row in result.rows:
        _numbers(properties, row)
    for row, kind in zip(rows, kinds, strict=True):
        case = ET.SubElement(suite, "testcase", {"name": _text(row.name), "classname": name, "time": "0"})
        if kind:
            told = {"message": _text(sentence(row)), "type": _text(str(row.verdict.outcome))}
            ET.SubElement(case, kind, told).text = _text(why(row.verdict) or sentence(row))
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _kind(row: GateRow, strict: bool) -> str:
    if row.failed:
        return "failure"
    if row.verdict.outcome is Outcome.INVALID:
        return "error"
    if row.verdict.outcome is Outcome.INCONCLUSIVE or row.verdict.tagged:
        return "failure" if strict else "skipped"
    return ""


def _numbers(properties: ET.Element, row: GateRow) -> None:
    effect = row.verdict.effect
    values = {"before": row.before, "after": row.after}
    if effect is not None:
        values |= {"ratio": effect.ratio, "ratio low": effect.low, "ratio high": effect.high}
    for name, value in values.items():
        if value is not None:
            _property(properties, f"{row.name} {name}", f"{value:.6g}")
    _property(properties, f"{row.name} unit", row.unit)


def _property(parent: ET.Element, name: str, value: str) -> None:
    ET.SubElement(parent, "property", {"name": _text(name), "value": _text(value)})


def _text(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", scrub_sentence(text))
