"""Prices of single changes assumed, by the machine's file and measured beside what each won, on one GPU that does all.

    python -m benchmarks.ladders prices OUT [--only a,b] [--seconds 10] [--deadline 380]
    python -m benchmarks.ladders prices OUT --table

Every program is built with its base and with each of its changes; one at a time is timed in turns, its base is captured
without a mark, and the plan of that capture is priced by what is assumed, by what `plan machine` found, and with
`--measure`. OUT gets a file `NAME.prices.json` a program, with the capture and the answers of the bench beside it, so
that prices can be worked out again elsewhere. What a change won is the median of its turns, each beside the base's of
the same turn: on a host that others use a shortest turn is a chance.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
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
BENCH_S, MACHINE_S = 34.0, 60.0
ROOM = 0.02
KINDS = ("assumed", "machine", "measured")


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
    priced = [sys.executable, "-m", "benchmarks.ladders.prices", str(out), "--price"]
    subprocess.run([*priced, "machine"], check=False, timeout=2 * MACHINE_S)
    print(f"{time.monotonic() - began:4.0f} s  machine", flush=True)
    for name in warm:
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
            subprocess.run([*priced, name], check=False, timeout=2 * PRICE_S)
        print(f"{time.monotonic() - began:4.0f} s  {name}", flush=True)


def measure_machine(out: Path) -> None:
    """The machine's file, by itself and as the first answers of the bench."""
    from timesink.trials.prices import calibrate_machine

    file, _ = calibrate_machine(out / "machine", MACHINE_S)
    (out / "answers").mkdir(exist_ok=True)
    shutil.copy(file.path, out / "answers")


def won(base_ms: Sequence[float], changed_ms: Sequence[float]) -> float:
    """The share of the base's step that goes: the median of turns that both had."""
    return 1 - statistics.median(changed / base for base, changed in zip(base_ms, changed_ms, strict=False))


def price(out: Path, name: str, bench_s: float) -> None:
    """Each price of each change of a program, and what it won, as shares of the step."""
    import timesink
    from timesink.diagnosis.plan.ladder import changes_offered
    from timesink.fixes.measured import MeasuredPrices
    from timesink.measures.steps import steps
    from timesink.trials.prices import measured_prices
    from timesink.trials.shares import kept_prices

    found = json.loads((out / f"{name}.measure0.json").read_text())
    base_ms = statistics.median(found["base"]["blocks_ms"])
    trace = timesink.read(out / f"{name}.torch.json")
    alike = max(round(steps(trace).frame.height / suite.STEPS), 1)
    steps_ns = tuple(block_ms / alike * 1e6 for block_ms in found["base"]["blocks_ms"])
    trace = trace.with_unprofiled_step(base_ms / alike * 1e6, steps_ns)
    diagnosis, began = timesink.diagnose(trace), time.monotonic()
    measured = measured_prices(trace, out / "answers", bench_s)
    took_s = time.monotonic() - began
    by_kind = (MeasuredPrices(), kept_prices(trace, diagnosis, out / "machine") or MeasuredPrices(), measured)
    rows: list[dict[str, Any]] = []
    for change in suite.find(name).changes:
        blocks = found[change].get("blocks_ms") if found[change].get("receipts_equal") else None
        truth = won(found["base"]["blocks_ms"], blocks) if blocks else None
        rows.append({"program": name, "split": suite.split(name), "change": change, "base_ms": base_ms, "truth": truth})
    for kind, prices in zip(KINDS, by_kind, strict=True):
        joint = changes_offered(trace, diagnosis, prices)
        assert not isinstance(joint, str), joint
        forms = {form.fix: form for form in prices.forms}
        with prices.assumed():
            for row in rows:
                form = forms.get(row["change"])
                row |= {kind: _share(joint, row["change"]), f"{kind} scale": form.scale if form else None}
                row |= {f"{kind} origin": form.origin if form else "assumed"}
    said = {"rows": rows, "seconds": took_s, "refused": measured.refused, "notes": list(measured.notes)}
    said |= {
        "figures": dict(measured.figures),
        "calls_us": {name: one.expected for name, one in measured.calls.items()},
    }
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
    """A Markdown table by split: mean distance of each price from the truth in points, of all changes and of those
    whose kernels were measured, and how often the truth lies in its interval, or within two points of it."""
    rows = list(rows_of(out))
    headings = ["split", "changes", *KINDS, *(f"within {kind}" for kind in KINDS)]
    cells = [headings, ["---"] * len(headings)]
    for split in suite.SPLITS:
        for label, told in (("all", False), ("kernels measured", True)):
            own = [row for row in rows if row["split"] == split and (not told or row["measured origin"] != "assumed")]
            if own:
                off = ([100 * abs(row[kind][1] - row["truth"]) for row in own] for kind in KINDS)
                within = ([row[kind][0] - ROOM <= row["truth"] <= row[kind][2] + ROOM for row in own] for kind in KINDS)
                cells.append([split, f"{len(own)} {label}", *(f"{statistics.fmean(points):.1f}" for points in off)])
                cells[-1] += [f"{statistics.fmean(inside):.0%}" for inside in within]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="names of programs, separated by commas")
    parser.add_argument("--seconds", type=float, default=8.0, help="each program is timed for so long")
    parser.add_argument("--deadline", type=float, default=380.0, help="no program is begun after so many seconds")
    parser.add_argument("--price", default="", help="price this program, or measure the `machine`")
    parser.add_argument("--bench", type=float, default=BENCH_S, help="seconds that a bench may take")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    parser.add_argument("--table", action="store_true", help="print what OUT holds")
    given = parser.parse_args()
    if given.table:
        print(table(given.out))
    elif given.price == "machine":
        measure_machine(given.out)
    elif given.price:
        price(given.out, given.price, given.bench)
    else:
        names = given.only.split(",") if given.only else [one.name for one in suite.LADDERS]
        run(given.out, names, given.seconds, given.deadline, given.dry)


if __name__ == "__main__":
    main()
