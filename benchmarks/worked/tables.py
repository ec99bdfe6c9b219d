"""The tables of the two tutorial pages and of the README beside this file, from what a run on a GPU left.

    python -m benchmarks.worked.tables           write them between their marks in docs
    python -m benchmarks.worked.tables --check   fail where a page is not what would be written
    python -m benchmarks.worked.tables --print   print them

A page holds `<!-- worked NAME TABLE -->` and `<!-- end -->`, one above and one below each table.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
TUTORIAL = HERE.parents[1] / "docs" / "tutorial"
PLANNED = HERE / "README.md"
MARKED = re.compile(r"(<!-- worked (\w+) (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
Result = dict[str, Any]


def ladder(result: Result) -> str:
    """Every change: predicted, then measured."""
    head = [
        "change",
        "before",
        "after",
        "predicted gain",
        "rests on",
        "measured gain (95 % CI)",
        "pairs",
        "verdict",
        "attainable",
    ]
    rows = []
    for change in result["changes"]:
        name = change["name"] if change["kept"] else f"*{change['name']}*"
        foreseen, measured = change.get("predicted"), change.get("measured") or _cut_off(change)
        row = [name, *(_ms(measured.get(f"{side}_ms")) for side in ("before", "after"))]
        row += [_predicted(foreseen), _source(foreseen), _gain(measured)]
        again = ", second run" if change.get("second_run") else ""
        row += [f"{measured.get('pairs', '–')}{again}", measured.get("outcome", "not measured")]
        rows.append([*row, _share(result["attainable_ms"], measured.get("after_ms"))])
    return _table(head, rows)


def named(result: Result) -> str:
    """What timesink says of each state, and whether that is the change that follows."""
    following = {change["before"]: change for change in result["changes"] if change["kept"]}
    head = ["state", "bottleneck", "findings, gain per step", "the change that follows", "named"]
    rows = []
    for name, state in result["states"].items():
        change = following.get(name)
        if change is None and name != _last(result):
            continue
        found = state.get("named", [])
        said = "<br>".join(
            f"{one['code']} {one['name']}, {_ms(one['recoverable_ms_per_step']['value'])}" for one in found[:4]
        )
        places = [place for place, one in enumerate(found, 1) if change and one["code"] in change["codes"]]
        place = ("no" if not places else f"no. {places[0]} of {len(found)}") if change else ""
        rows.append([f"`{name}`", _bottleneck(state), said or "nothing", change["name"] if change else "–", place])
    return _table(head, rows)


def agreements(result: Result) -> str:
    """How far each state's result is from plain fp32."""
    head = ["state", "compared", "difference", "allowed"]
    rows = [
        [f"`{name}`", told["compared"], f"{told['error']:.2g}", f"{told['tolerance']:g}"]
        for name, state in result["states"].items()
        if (told := state.get("agreement"))
    ]
    return _table(head, rows)


def planned(result: Result) -> str:
    """What the plan of each state foretells at every rung that was measured, and how far off it is."""
    head = ["capture of", "changes made since", "foretold", "measured", "off by, of the step"]
    rows = []
    for told in result["plan"]:
        made: list[str] = []
        for rung in told["rungs"]:
            made.append(f"`{rung['change']}`")
            off = (rung["value"] - rung["measured"]) / told["step_ms"]
            ends = f"{_ms(rung['value'])} ({_number(rung['low'])} to {_number(rung['high'])})"
            rows.append(
                [f"`{told['state']}`", ", ".join(made), ends, _ms(rung["measured"]), f"{100 * off:+.1f} points"]
            )
        printed = ", ".join(f"`{rung['change']}` {_ms(rung['value'])}" for rung in told["printed"])
        rows.append([f"`{told['state']}`", "*what plan prints*", printed or "nothing", "", ""])
    return _table(head, rows)


def step_after(change: Result, side: str) -> float:
    """The step in ms on a side of a change, before or after it, as measured."""
    return float((change.get("measured") or _cut_off(change))[f"{side}_ms"])


TABLES: dict[str, Callable[[Result], str]] = {
    "ladder": ladder,
    "named": named,
    "agreements": agreements,
    "planned": planned,
}


def page(text: str, results: dict[str, Result]) -> str:
    """The page with every marked table written anew; a mark without its result stays as it is."""

    def written(match: re.Match[str]) -> str:
        opening, name, table, closing = match.groups()
        return f"{opening}\n{TABLES[table](results[name])}\n\n{closing}" if name in results else match[0]

    return MARKED.sub(written, text)


def _cut_off(change: Result) -> Result:
    """Means of the runs that were finished when time was up: two figures, no interval and no verdict."""
    runs = change.get("cut_off", [])
    sides = {side: [run["ms"] for run in runs if run["side"] == side] for side in ("before", "after")}
    if not all(sides.values()):
        return {}
    means = {f"{side}_ms": sum(values) / len(values) for side, values in sides.items()}
    return {**means, "outcome": f"cut off after {len(runs)} runs"}


def _last(result: Result) -> str:
    return str([change["after"] for change in result["changes"] if change["kept"]][-1])


def _bottleneck(state: Result) -> str:
    verdict = state.get("verdict") or {}
    return str(verdict.get("bottleneck", "–")) if isinstance(verdict, dict) else str(verdict)


def _predicted(foreseen: Result | None) -> str:
    if foreseen is None:
        return "–"
    if foreseen["from"] == "not named":
        return f"none, at most {_ms(foreseen['high'])}" if foreseen["high"] else "none"
    return f"{_ms(foreseen['value'])} ({_number(foreseen['low'])} to {_number(foreseen['high'])})"


def _source(foreseen: Result | None) -> str:
    if foreseen is None:
        return "–"
    return " + ".join(foreseen["codes"]) if foreseen["codes"] else str(foreseen["from"])


def _gain(measured: Result) -> str:
    if not measured.get("before_ms"):
        return "–"
    if not measured.get("effect"):
        return f"{_ms(measured['before_ms'] - measured['after_ms'])}, no interval"
    before, effect = measured["before_ms"], measured["effect"]
    value, low, high = (before * (1 - effect[key]) for key in ("ratio", "high", "low"))
    return f"{_ms(value)} ({_number(low)} to {_number(high)})"


def _share(attainable_ms: float, step_ms: float | None) -> str:
    return "–" if not step_ms else f"{attainable_ms / step_ms:.0%}".replace("%", " %")


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{_number(value)} ms"


def _number(value: float) -> str:
    """Three significant digits, without a power of ten."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is stale")
    parser.add_argument("--print", action="store_true", dest="printed", help="print the tables")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of NAME.json")
    given = parser.parse_args()
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(given.results.glob("*.json"))}
    if given.printed:
        for name, result in results.items():
            for table, make in TABLES.items():
                print(f"## {name} {table}\n\n{make(result)}\n")
        return 0
    stale = []
    for path in (*sorted(TUTORIAL.glob("*.md")), PLANNED):
        text = path.read_text(encoding="utf-8")
        if (wanted := page(text, results)) != text:
            stale.append(path)
            if not given.check:
                path.write_text(wanted, encoding="utf-8")
    for path in stale if given.check else []:
        print(f"stale: {path.name}; run python -m benchmarks.worked.tables", file=sys.stderr)
    return 1 if stale and given.check else 0


if __name__ == "__main__":
    sys.exit(main())
