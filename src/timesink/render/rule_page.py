"""A rule as a page: its docstring, its limits, what it reads, its cases. The reference and `explain` show the same.

Each `render_*` writes the page in one format.

Assumed figures have a page too, each with its range, its reason and its source.
"""

import json
from collections.abc import Sequence

from timesink.diagnosis.rule import Rule
from timesink.diagnosis.verdicts import Card
from timesink.errors import UsageError
from timesink.knowledge.assumptions import ALL, SUBJECTS, VARIABLE, Assumption
from timesink.records import as_plain
from timesink.render import Style
from timesink.render.markdown import markdown_table
from timesink.render.tables import limit_value_text
from timesink.views import Page, Sheet, listed, sheet_of


def render_text(rule: Rule, style: Style) -> str:
    """The page as a terminal shows it; its words are ours, so Markdown may act here."""
    from rich.markdown import Markdown

    from timesink.render.text import console_text, text_console

    console = text_console(min(style.width, 100), style.colour)
    console.print(Markdown(rule_markdown(rule), hyperlinks=False))
    return console_text(console)


def render_json(rule: Rule, style: Style) -> str:
    """What the rule declares, as one JSON object; its words are ours, so its page keeps its lines."""
    from timesink.render.json import enveloped

    body = {
        "card": as_plain(rule.card),
        "limits": {
            name: {key: value for key, value in as_plain(limit).items() if key != "passes"}
            for name, limit in rule.limits.items()
        },
        "needs": [table.name for table in rule.needs],
        "reads": [table.name for table in rule.reads],
        "capture": rule.capture,
    }
    return json.dumps(enveloped(style.origin, body), indent=2) + "\n"


def render_markdown(rule: Rule, _style: Style) -> str:
    """The page in Markdown, without its cases."""
    return rule_markdown(rule) + "\n"


def render_html(rule: Rule, _style: Style) -> str:
    """The page for a browser."""
    from timesink.render.html import render_prose

    return render_prose(f"{rule.card.code} {rule.card.name}", rule_markdown(rule))


def rule_markdown(rule: Rule, cases: str = "") -> str:
    """The page in Markdown; `cases` is the text of the case file, whose own title is left out."""
    card = rule.card
    lines = [
        f"# {card.code} {card.name}",
        "",
        f"*{card.summary[:1].upper()}{card.summary[1:]}.* Since {card.since}.",
        "",
    ]
    lines += [_body(card), "", "## Limits", ""]
    lines += markdown_table(_limit_sheet(rule)) if rule.limits else ["It has none."]
    lines += ["", "## What it reads", "", _reads_text(rule), ""]
    if card.references:
        lines += ["## References", "", *(f"- {reference}" for reference in card.references), ""]
    if cases:
        body = "\n".join(line for line in cases.splitlines() if not line.startswith("# "))
        lines += ["## Cases", "", body.replace("\n## ", "\n### ").strip(), ""]
    return "\n".join(lines)


def _body(card: Card) -> str:
    """The docstring, without a first sentence that only says the summary again."""
    first, _, rest = card.doc.strip().partition("\n\n")
    sentence = " ".join(first.split()).rstrip(".").lower()
    return rest if sentence == card.summary.rstrip(".").lower() else card.doc.strip()


def _limit_sheet(rule: Rule) -> Sheet:
    """The limits, why each is needed and where its figure comes from."""
    rows = (
        (f"{rule.card.code}.{name}", limit_value_text(limit.default, limit.unit), limit.why, limit.source)
        for name, limit in rule.limits.items()
    )
    return listed("rule_page.limits", rows)


def _reads_text(rule: Rule) -> str:
    """The tables it cannot do without, those it uses where they exist, and the command that records them."""
    needs = ", ".join(f"`{table.name}`" for table in rule.needs) or "no table in particular"
    reads = ", ".join(f"`{table.name}`" for table in rule.reads)
    also = f" It also uses {reads} where they were recorded." if reads else ""
    return f"It needs {needs}.{also} To record them: `{rule.capture}`."


_FIGURES = (
    "assumption [name], low [text], value [text], high [text], unit [text], rules: used by [text], "
    "set_on: set on [text]"
)


def assumptions(code: str = "") -> Page:
    """All assumptions, two sheets per subject (figures, reasons); or those that one rule alone uses."""
    if not code:
        subjects = (
            (key, subject.about, [a for name, a in ALL.items() if name.startswith(f"{key}.")])
            for key, subject in SUBJECTS.items()
        )
        return Page("Assumptions of timesink", tuple(sheet for listed in subjects for sheet in _sheets(*listed)))
    own = [assumption for assumption in ALL.values() if code in assumption.rules.split()]
    if not own:
        raise UsageError(
            f"{code} has no assumption of its own", remedy="timesink explain --assumptions lists those of every price"
        )
    return Page(f"Assumptions of {code}", _sheets("assumptions", f"{len(own)} assumed figures", own))


def _sheets(key: str, title: str, listed: Sequence[Assumption]) -> tuple[Sheet, Sheet]:
    figures = (
        (a.name, *(f"{figure:g}" for figure in (a.low, a.value, a.high)), a.unit, a.rules, a.set_on) for a in listed
    )
    reasons = ((a.name, a.why, a.source) for a in listed)
    columns = "assumption [name], why [text], source [text]"
    return (
        sheet_of(key, title, figures, _FIGURES, f"{VARIABLE}=name=value replaces one for one run"),
        sheet_of(f"{key}_reasons", "Why, and from where", reasons, columns),
    )
