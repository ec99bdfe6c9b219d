"""Write the documentation into build/docs: the pages kept in docs/, and beside them those made from the code.

Made are the pages of tables, rules, commands, JSON and Python, assumptions, the tool to begin with, ten answers, and
what people wait for. Commands that a page shows are run; where one fails, or a link leads nowhere, nothing is written.

python tools/write_pages.py            write build/docs, which `make site` reads
python tools/write_pages.py --check    only say whether they can be written
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from command_pages import command_pages
from gallery_page import gallery_page
from json_pages import json_pages
from python_pages import python_pages
from site_pages import DOCS, VERDICTS, which_page, with_verdicts
from speed_page import speed_pages
from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.rule import Rule, page_paths, rule_texts
from timesink.fixes import Fix
from timesink.fixes.measured import FALLBACKS
from timesink.fixes.table import FIXES
from timesink.knowledge.assumptions import ALL as EVERY
from timesink.knowledge.assumptions import VARIABLE
from timesink.knowledge.step_parts import Bottleneck
from timesink.model.schema import Column, Table
from timesink.model.tables import ALL
from timesink.recipes.table import EDITS, SWITCHES
from timesink.render.markdown import code, escaped, markdown_table
from timesink.render.rule_page import assumptions, rule_markdown

BUILT = DOCS.parent / "build" / "docs"
REFERENCE = "reference.md"
READERS = ("tutorial", "how-to", "explanation")
SWEEP = DOCS.parent / "benchmarks" / "faults" / "sweep.json"
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="keep nothing; fail where a page cannot be written")
    parser.add_argument("--to", type=Path, default=BUILT, help="the folder, emptied first (default: build/docs)")
    given = parser.parse_args()
    if with_verdicts(shown := VERDICTS.read_text(encoding="utf-8")) != shown:
        VERDICTS.write_text(with_verdicts(shown), encoding="utf-8")
        print(f"{VERDICTS.name} had other figures than benchmarks/false_verdicts.json: mended", file=sys.stderr)
        return 1
    with TemporaryDirectory() as made:
        written = write(Path(made) / "docs")
        if missing := [*broken_links(Path(made) / "docs"), *broken_links(DOCS)]:
            print(*missing, sep="\n", file=sys.stderr)
            return 1
        if not given.check:
            shutil.rmtree(given.to, ignore_errors=True)
            shutil.copytree(Path(made) / "docs", given.to)
    print(f"{written} pages made" + ("" if given.check else f", in {given.to}"))
    print("words:", ", ".join(f"{name} {count:,}" for name, count in words().items()))
    return 0


def write(target: Path) -> int:
    """The whole documentation in a new folder; gives how many of its pages were made."""
    shutil.copytree(DOCS, target)
    made = dict(pages())
    if kept := [name for name in made if (DOCS / name).exists()]:
        sys.exit(f"made from the code, so no file of docs/: {', '.join(kept)}; delete them there")
    for name, text in made.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(f"{text.rstrip()}\n", encoding="utf-8")
    index = (target / REFERENCE).read_text(encoding="utf-8")
    linked = re.sub(r"`([\w/-]+\.md)`", lambda named: f"[{named[1]}]({named[1]})", index)
    (target / REFERENCE).write_text(linked, encoding="utf-8")
    return len(made)


def broken_links(folder: Path, pages: Iterable[Path] = ()) -> list[str]:
    """Links of pages, by default all in a folder, to files that are not there."""
    return [
        f"{page}: {link} is not there"
        for page in pages or sorted(folder.rglob("*.md"))
        for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8")))
        if not (page.parent / link).exists()
    ]


def words() -> dict[str, int]:
    """How much a reader gets: the words of README and of the pages kept for readers, by folder."""
    read = {name: sorted((DOCS / name).rglob("*.md")) for name in READERS}
    return {
        name: sum(len(page.read_text(encoding="utf-8").split()) for page in kept)
        for name, kept in {"README": [DOCS.parent / "README.md"], **read}.items()
    }


def pages() -> Iterator[tuple[str, str]]:
    """Every page made: its path in the documentation, and its text."""
    yield "tables/index.md", tables_index()
    for table in ALL:
        yield f"tables/{table.name}.md", table_page(table)
    yield "changes.md", changes_page()
    yield "how-to/which-tool.md", which_page()
    yield "assumptions.md", assumptions_page()
    yield from command_pages()
    yield from json_pages()
    yield from python_pages()
    yield "explanation/gallery.md", gallery_page()
    yield from speed_pages()
    yield "rules/index.md", rules_index()
    for rule in all_rules():
        yield f"rules/{rule.card.code}.md", rule_markdown(rule, cases_text(rule))


def tables_index() -> str:
    rows = [f"| [{table.name}]({table.name}.md) | {escaped(table.doc)} |" for table in ALL]
    intro = (
        "Readers fill these tables, and measures read nothing else. A table that is absent was not recorded; an empty "
        "table recorded that nothing happened. Times are int64 nanoseconds on one clock, intervals are half-open."
    )
    return "\n".join(["# Tables", "", intro, "", "| table | holds |", "|---|---|", *rows])


def changes_page() -> str:
    intro = (
        "What people do to a program to make it faster. `timesink plan` predicts what a change wins where it answers "
        "findings, `timesink try` measures those that it can switch, and `timesink fix` writes those that it can edit."
    )
    rows = [
        f"| `{fix.name}` | {escaped(fix.title)} | {fix.effort} | {escaped(fix.costs)} | {_answered(fix)} "
        f"| {'yes' if fix.name in SWITCHES else ''} | {'yes' if fix.name in EDITS else ''} |"
        for fix in FIXES
        if fix.title
    ]
    head = "| change | what to type | takes | costs | answers | `try` | `fix` |"
    by_cause = ["## By cause", "", _CAUSES, "", "| cause | found by | changes |", "|---|---|---|", *_cause_rows()]
    return "\n".join(["# Changes", "", intro, "", head, "|---|---|---|---|---|---|---|", *rows, "", *by_cause])


_CAUSES = (
    "A verdict, its finding, JSON (`bottleneck`) and the bar call a cause by this name; `timesink explain CAUSE` and "
    "`timesink plan TRACE --change CAUSE` take it, and `--change` takes the name of each change."
)


def _cause_rows() -> Iterator[str]:
    """Each cause with the rules that find it and the changes that answer these."""
    cards = {rule.card.name: rule.card for rule in all_rules()}
    found: dict[str, list[str]] = {cause: [] for cause in Bottleneck if cause not in ("none", "undecided")}
    for name in sorted(cards.keys() & page_paths().keys()):
        texts = rule_texts(name)
        for cause in {said.get("bottleneck", "") for said in (texts.said, *texts.variants.values())} & found.keys():
            found[cause].append(name)
    for cause, rules in found.items():
        links = ", ".join(f"[{name}](rules/{cards[name].code}.md)" for name in rules)
        answers = {name.replace("-", "_") for name in rules}
        fixes = (fix.name for fix in FIXES if answers & {answer.partition("/")[0] for answer in fix.answers})
        yield f"| `{cause.replace('_', '-')}` | {links} | {', '.join(f'`{name}`' for name in fixes)} |"


def _answered(fix: Fix) -> str:
    """The rules whose findings a change repairs."""
    names = dict.fromkeys(answer.partition("/")[0].replace("_", "-") for answer in fix.answers)
    codes = {rule.card.name: rule.card.code for rule in all_rules()}
    return ", ".join(f"[{name}](rules/{codes[name]}.md)" for name in names)


def assumptions_page() -> str:
    intro = f"""# Assumptions

The figures that nobody can read off a trace: what a fix leaves of a kernel's time, what recording an event costs, where
a line is drawn. *Low* is the figure that wins least and *high* the one that wins most; a price takes all three. For a
threshold they are the least and the greatest figure that could be defended. *Set on* names the split of planted faults
on which a figure was set ([accuracy](explanation/accuracy.md)); [the science](explanation/science.md) tells what the
figures are for.

`{VARIABLE}=fixes.loading_left=0.2,replay.event_cost_us=1:2:4` replaces some for one run, and the diagnosis says
so. `timesink explain --assumptions CODE` shows those of one rule.

Some are fallbacks: what `timesink plan machine` or `timesink plan TRACE --measure` found of a GPU and its CPU takes
their place in plans of its traces ([how far either is off](explanation/accuracy.md#prices-from-a-bench))."""
    fallbacks = (f"- {what}: {', '.join(map(code, names))}" for what, names in FALLBACKS.items())
    lines = [intro, "", *fallbacks]
    sheets = assumptions().sheets
    for figures, reasons in zip(sheets[::2], sheets[1::2], strict=True):
        lines += [
            "",
            f"## {figures.key}",
            "",
            figures.title,
            "",
            *markdown_table(figures),
            "",
            *markdown_table(reasons),
        ]
    return "\n".join([*lines, "", *swept_lines()])


def swept_lines() -> list[str]:
    """What a move of each assumption by a quarter does to diagnoses of planted faults, and to tests, as measured."""
    kept = json.loads(SWEEP.read_text(encoding="utf-8"))
    held = json.loads(SWEEP.with_name("held.json").read_text(encoding="utf-8"))
    moved = {name: of for name, of in kept["assumptions"].items() if of["changed"] and name in EVERY}
    ordered = sorted(moved.items(), key=lambda item: (-item[1]["points"], -item[1]["changed"], item[0]))
    rows = [
        f"| {code(name)} | {of['read']} | {of['changed']} | {of['verdicts']} | {of['points']:.2f} |"
        for name, of in ordered
    ]
    tests = [f"| {code(name)} | {code(held[name])} |" for name in EVERY if name not in moved]
    intro = f"""Each figure was made a quarter smaller and larger for some of {kept["diagnoses"]} diagnoses of planted
faults that ask for it (`python -m benchmarks.faults.score --sweep`): captures of the tune splits, told the step without
a profiler, not told it, and without the marks of their steps. *Tried* is the number of diagnoses, *changed* of how many
the move changes a verdict, a price or its interval, *verdicts* of how many the bottleneck, and *points* by how much the
price of the planted fault moves at most, in points of the step."""
    head = ["| assumption | tried | changed | verdicts | points |", "|---|---:|---:|---:|---:|"]
    second = "The others moved none of those diagnoses. A test fails when one of them is moved as far:"
    return [
        "## How far they matter",
        "",
        intro,
        "",
        *head,
        *rows,
        "",
        second,
        "",
        "| assumption | test |",
        "|---|---|",
        *tests,
    ]


def table_page(table: Table) -> str:
    order = ", ".join(f"`{name}`" for name in table.sorted_by)
    lines = [
        f"# {table.name}",
        "",
        table.doc,
        "",
        f"Rows are sorted by {order}." if order else "Rows keep their order.",
    ]
    lines += ["", "| column | type | unit | null | meaning |", "|---|---|---|---|---|"]
    lines += [column_row(name, column) for name, column in table.columns.items()]
    return "\n".join(lines)


def column_row(name: str, column: Column) -> str:
    refers = f"; refers to `{column.refers_to}`" if column.refers_to else ""
    null = "yes" if column.nullable else ""
    least, most = column.within or (0, 0)
    within = f"; {least:,} to {most:,}" if most else ""
    return f"| `{name}` | {type_text(column)} | {column.unit or ''} | {null} | {escaped(column.doc)}{within}{refers} |"


def type_text(column: Column) -> str:
    dtype = column.dtype() if isinstance(column.dtype, type) else column.dtype
    if isinstance(dtype, pl.Enum):
        return f"one of {', '.join(code(category) for category in dtype.categories)}"
    return code(str(dtype), in_table=True)


def rules_index() -> str:
    rows = [f"| [{r.card.code}]({r.card.code}.md) | `{r.card.name}` | {escaped(r.card.summary)} |" for r in all_rules()]
    return "\n".join(["# Rules", "", "| code | name | finds |", "|---|---|---|", *rows])


def cases_text(rule: Rule) -> str:
    """The cases of the rule; empty where there are none."""
    if rule.name:
        path = page_paths()[rule.name]
        return (DOCS.parent / "tests/rules" / path.parent.name / path.name).read_text(encoding="utf-8")
    path = Path(str(sys.modules[rule.check.__module__].__file__))
    cases = path.with_name(f"{path.stem}.cases.md")
    return cases.read_text(encoding="utf-8") if cases.is_file() else ""


if __name__ == "__main__":
    sys.exit(main())
