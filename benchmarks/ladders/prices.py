"""Prices of single changes assumed and measured beside what each won, on one GPU that does all three.

    python -m benchmarks.ladders prices OUT [--only a,b] [--seconds 10] [--deadline 380]
    python -m benchmarks.ladders prices OUT --table

Every program is built with its base and with each of its changes; one at a time is timed in turns, its base is captured
without a mark, and the plan of that capture is priced without and with `--measure`. OUT gets a file `NAME.prices.json`
a program, with the capture and the answers of the bench beside it, so that prices can be worked out again elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ladders import suite

BUILD_S, TURN_S, PRICE_S = 150.0, 30.0, 70.0
BENCH_S = {"first": 55.0, "later": 34.0}
"""The first program's bench measures the host as well."""


def built(out: Path, name: str, dry: bool) -> subprocess.Popen[bytes]:
    """A process that builds one program and waits for its turn."""
    command = [sys.executable, "-m", "benchmarks.ladders.measure", name, "--label", "measure0", "--wait"]
    command += ["--out", str(out), *(["--dry"] if dry else []), "--sets", "base", *suite.find(name).changes]
    around = {
        **os.environ, "OMP_NUM_THREADS": "4", "TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONWARNINGS": "ignore",
        "TORCHINDUCTOR_CACHE_DIR": f"{out}/inductor",
    }  # fmt: skip
    log = (out / f"{name}.log").open("wb")
    return subprocess.Popen(command, env=around, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def waited(path: Path, process: subprocess.Popen[bytes], until: float) -> bool:
    """Whether a file came in time."""
    while time.monotonic() < until and process.poll() is None and not path.exists():
        time.sleep(0.1)
    return path.exists()


def ended(process: subprocess.Popen[bytes]) -> None:
    """The process, and all that it started, is gone."""
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(out: Path, names: Sequence[str], seconds: float, deadline: float, dry: bool = False) -> None:
    """All programs: built side by side, each timed and priced while the others are stopped."""
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    processes = {name: built(out, name, dry) for name in names}
    until = began + min(BUILD_S, deadline / 2)
    warm = [name for name, process in processes.items() if waited(out / f"{name}.measure0.ready", process, until)]
    for name, process in processes.items():
        os.killpg(process.pid, signal.SIGSTOP if name in warm else signal.SIGKILL)
    print(f"{time.monotonic() - began:4.0f} s  built {len(warm)} of {len(names)}", flush=True)
    for number, name in enumerate(warm):
        process = processes[name]
        os.killpg(process.pid, signal.SIGCONT)
        if time.monotonic() - began < deadline - TURN_S:
            part = out / f"{name}.measure0.part"
            part.write_text(str(seconds))
            part.rename(part.with_suffix(".go"))
            waited(out / f"{name}.measure0.done", process, time.monotonic() + seconds + TURN_S)
        else:
            os.killpg(process.pid, signal.SIGKILL)
        ended(process)
        capture = out / f"{name}.torch.json"
        if capture.exists() and time.monotonic() - began < deadline:
            command = [sys.executable, "-m", "benchmarks.ladders.prices", str(out), "--price", name]
            command += ["--bench", str(BENCH_S["later" if number else "first"])]
            subprocess.run(command, check=False, timeout=PRICE_S + BENCH_S["first"])
        print(f"{time.monotonic() - began:4.0f} s  {name}", flush=True)


def price(out: Path, name: str, bench_s: float) -> None:
    """Both prices of each change of a program, and what it won, as shares of the step."""
    import timesink
    from timesink.diagnosis.plan.ladder import changes_offered
    from timesink.measures.steps import steps
    from timesink.trials.prices import measured_prices

    found = json.loads((out / f"{name}.measure0.json").read_text())
    base_ms = min(found["base"]["blocks_ms"])
    trace = timesink.read(out / f"{name}.torch.json")
    alike = max(round(steps(trace).frame.height / suite.STEPS), 1)
    trace = trace.with_unprofiled_step(base_ms / alike * 1e6)
    diagnosis, began = timesink.diagnose(trace), time.monotonic()
    measured = measured_prices(trace, out / "answers", bench_s)
    took_s = time.monotonic() - began
    plain, other = (changes_offered(trace, diagnosis, prices) for prices in (None, measured))
    rows = []
    assert not isinstance(plain, str), plain
    assert not isinstance(other, str), other
    forms = {form.fix: form for form in measured.forms}
    for change in suite.find(name).changes:
        blocks = found[change].get("blocks_ms") if found[change].get("receipts_equal") else None
        shares = [_share(plain, change)]
        with measured.assumed():
            shares.append(_share(other, change))
        form = forms.get(change)
        rows.append(
            {
                "program": name, "split": suite.split(name), "change": change, "base_ms": base_ms,
                "changed_ms": min(blocks) if blocks else None, "truth": 1 - min(blocks) / base_ms if blocks else None,
                "assumed": shares[0], "measured": shares[1], "origin": form.origin if form else "assumed",
                "scale": form.scale if form else None,
            }
        )  # fmt: skip
    said = {"rows": rows, "seconds": took_s, "refused": measured.refused, "notes": list(measured.notes)}
    said["figures"] = dict(measured.figures)
    (out / f"{name}.prices.json").write_text(json.dumps(said, indent=1))


def _share(joint: Any, change: str) -> list[float]:
    worth = joint.gain({change} & joint.offered.keys())
    if worth is None:
        return [0.0, 0.0, 0.0]
    return [end / joint.step_ms for end in (worth.low or 0.0, worth.value, worth.most)]


def rows_of(out: Path) -> Iterator[dict[str, Any]]:
    """All rows with a truth."""
    for file in sorted(out.glob("*.prices.json")):
        yield from (row for row in json.loads(file.read_text())["rows"] if row["truth"] is not None)


def table(out: Path) -> str:
    """A Markdown table by split: mean distance of both prices from the truth in points, of all changes and of those
    that were measured, and how often the truth lies in the interval, or within two points of it."""
    rows = list(rows_of(out))
    lines = ["| split | changes | assumed | measured | within assumed | within measured |", "|---|---|---|---|---|---|"]
    for split in suite.SPLITS:
        for label, told in (("all", False), ("measured", True)):
            own = [row for row in rows if row["split"] == split and (not told or row["origin"] != "assumed")]
            if not own:
                continue
            cells = [split, f"{len(own)} {label}"]
            off = ([100 * abs(row[kind][1] - row["truth"]) for row in own] for kind in ("assumed", "measured"))
            cells += [f"{statistics.fmean(points):.1f}" for points in off]
            for kind in ("assumed", "measured"):
                inside = [row[kind][0] - 0.02 <= row["truth"] <= row[kind][2] + 0.02 for row in own]
                cells.append(f"{statistics.fmean(inside):.0%}")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="names of programs, separated by commas")
    parser.add_argument("--seconds", type=float, default=8.0, help="each program is timed for so long")
    parser.add_argument("--deadline", type=float, default=380.0, help="no program is begun after so many seconds")
    parser.add_argument("--price", default="", help="price this program, whose files are in OUT")
    parser.add_argument("--bench", type=float, default=BENCH_S["first"], help="seconds that a bench may take")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    parser.add_argument("--table", action="store_true", help="print what OUT holds")
    given = parser.parse_args()
    if given.table:
        print(table(given.out))
    elif given.price:
        price(given.out, given.price, given.bench)
    else:
        names = given.only.split(",") if given.only else [one.name for one in suite.LADDERS]
        run(given.out, names, given.seconds, given.deadline, given.dry)


if __name__ == "__main__":
    main()
