"""Programs as plain scripts run them: for captures of `timesink capture torch`, and for what its samples cost.

timesink capture torch -o OUT/NAME -- python -m benchmarks.faults.plain NAME
python -m benchmarks.faults.plain --cost NAME,NAME --out cost.json  # steps with and without samples, in turn
python -m benchmarks.faults.plain --score OUT  # findings of each capture at a line that says "# cause"
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.faults import suite

STEPS = 60
PAIRS = 6
BLOCK_S = 0.25
MARK = "# cause"
FOLDER = Path(__file__).parent
HOST_CLASSES = frozenset({
    "host_sync", "host_python", "unrecorded_code", "host_operators", "launch_bound", "one_at_a_time", "input_pipeline",
    "cache_copied", "constants_rebuilt", "forward_repeated", "parameters_one_by_one", "host_to_device_copy",
    "device_to_host_copy", "work_unused",
})  # fmt: skip
"""Findings of host time, waits, repeats and copies: what a line is owed for."""


def run(name: str, dry: bool) -> None:
    """The program with its fault, as often as its captures need."""
    from benchmarks.faults import machine as machines

    import timesink

    machine = machines.choose(machines.Ranges.OFF, dry)
    step = suite.find(name).builder()("high", machine).fault
    for _ in range(STEPS):
        step()
        timesink.step()  # passes of a module are none of its steps
    machine.synchronize()


def costs(names: list[str], out: Path, dry: bool) -> None:
    """Per program the ms of a step in blocks without and with samples, in turn, and the median of their quotients."""
    from benchmarks.faults import machine as machines
    from benchmarks.faults.measure import timed_ms

    from timesink.capture.agent.samples import FrameSampler

    machine, found = machines.choose(machines.Ranges.OFF, dry), dict[str, dict[str, Any]]()
    for name in names:
        step = suite.find(name).builder()("high", machine).fault
        count = max(2, round(BLOCK_S * 1e3 / timed_ms(machine, step, 3, 3)))
        pairs = []
        for pair in range(PAIRS):
            times = {}
            for sampled in (False, True) if pair % 2 else (True, False):
                sampler = FrameSampler()
                if sampled:
                    sampler.start()
                times[sampled] = timed_ms(machine, step, 1, count)
                sampler.stop()
            pairs.append((times[False], times[True]))
        longer = statistics.median(with_ / without - 1 for without, with_ in pairs)
        found[name] = {"pairs_ms": pairs, "longer": round(longer, 5)}
        out.write_text(json.dumps(found, indent=1))
        print(name, found[name]["longer"], flush=True)
        machines.reset()


def marked(name: str) -> tuple[str, frozenset[int]]:
    """File of the program, and the numbers of the lines that are marked in its builder, or elsewhere with its name."""
    file = FOLDER / f"{suite.find(name).topic.replace('.', '/')}.py"
    lines = file.read_text(encoding="utf-8").splitlines()
    begin = lines.index(f"def {name}(_: str, machine: Machine) -> Program:")
    ends = (at for at in range(begin + 1, len(lines)) if lines[at].startswith(("def ", "class ")))
    end = next(ends, len(lines))
    within = {at for at in range(begin, end) if lines[at].endswith(MARK)}
    return file.name, frozenset(
        at + 1 for at, line in enumerate(lines) if at in within or line.endswith(f"{MARK} of {name}")
    )


def score(folder: Path) -> None:
    """One line a capture: its first findings of the host with their lines, and whether the first is a marked one."""
    import timesink

    right = owed = 0
    for capture in sorted(path for path in folder.iterdir() if path.is_dir()):
        began = time.perf_counter()
        findings = timesink.diagnose(timesink.read(capture)).findings
        file, lines = marked(capture.name)
        hosts = [one for _, one in findings if str(one.bottleneck) in HOST_CLASSES]
        places = [(str(one.bottleneck), Path(one.where.file or "-").name, one.where.line) for one in hosts]
        owed += bool(hosts)
        hit = bool(places) and places[0][1] == file and places[0][2] in lines
        right += hit
        print(f"{capture.name:32} {'right' if hit else 'other'} {sorted(lines)} {places[:3]}", end=" ")
        print(f"{time.perf_counter() - began:.1f} s", flush=True)
    print(f"{right} of {owed}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?")
    parser.add_argument("--cost", default="", help="names, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("cost.json"))
    parser.add_argument("--score", type=Path)
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU")
    options = parser.parse_args()
    if options.score:
        score(options.score)
    elif options.cost:
        costs(options.cost.split(","), options.out, options.dry)
    else:
        run(options.name, options.dry)


if __name__ == "__main__":
    main()
