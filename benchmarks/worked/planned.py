"""What `timesink plan` foretells of the worked examples, held against what was measured: for the accuracy page.

    python -m benchmarks.worked.planned     write `plan` into each of results/NAME.json

From the capture of a state, what the changes that follow on the measured ladder win together is foretold at every rung,
and held against the step that was measured after it. The step of the state itself is told, as somebody would who timed
it. A rung whose change has no price ends the row of foretold steps.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.worked.pack import kept
from benchmarks.worked.tables import RESULTS, step_after

import timesink
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan import Joint
from timesink.diagnosis.plan.candidate import candidates
from timesink.diagnosis.plan.ladder import plan
from timesink.units import NS_PER_MS

IDS = {
    "tf32": "tf32", "bf16": "bf16", "compile": "compile", "flash": "fused_attention", "pad": "padding",
    "fused": "fused_optimizer", "graph": "cuda_graph",
}  # fmt: skip
OF_LAYER = {**IDS, "fused": "compile"}  # its norms and its activation, each by a kernel of its own


def main() -> None:
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        ids = OF_LAYER if path.stem == "layer" else IDS
        with tempfile.TemporaryDirectory() as scratch:
            captures = {one.stem: one for one in kept(RESULTS / f"{path.stem}.captures.columns.xz", Path(scratch))}
            result["plan"] = [
                foretold(captures[name], name, result, ids) for name in result["states"] if name in captures
            ]
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def foretold(capture: Path, state: str, result: dict[str, Any], ids: dict[str, str]) -> dict[str, Any]:
    """The ladder that is printed for a state, and the step foretold at each rung that was measured."""
    ladder = [change for change in result["changes"] if change["kept"]]
    following = ladder[next(at for at, change in enumerate(ladder) if change["before"] == state) :]
    step_ms = step_after(following[0], "before")
    trace = timesink.read(capture).with_unprofiled_step(step_ms * NS_PER_MS)
    diagnosis = diagnose(trace)
    joint = Joint(trace, 0, step_ms, candidates(diagnosis))
    rungs, chosen = [], []
    for change in following:
        before = "" if change["before"] == "plain" else change["before"]
        flag = change["after"].removeprefix(before).strip("+")
        chosen.append(ids.get(flag, ""))
        gain = joint.gain(chosen) if set(chosen) <= set(joint.offered) else None
        if gain is None:
            break
        low, high = gain.low or 0.0, gain.most
        ends = {"low": step_ms - high, "value": step_ms - gain.value, "high": step_ms - low}
        rungs.append({"change": chosen[-1], **ends, "measured": step_after(change, "after")})
    printed = [{"change": rung.id, "value": rung.after.value} for rung in plan(trace, diagnosis).rungs]
    return {"state": state, "step_ms": step_ms, "rungs": rungs, "printed": printed}


if __name__ == "__main__":
    main()
