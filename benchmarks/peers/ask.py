"""What a peer says of captures, in its own numbers: one JSON object a line. Run by an interpreter that has the peer.

python benchmarks/peers/ask.py nsys-ai|HTA|TraceLens FILE...
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOP = 5


def nsys_ai(path: str) -> dict[str, Any]:
    """Its findings in its order: severity, category, label, and what it says could be saved."""
    from nsys_ai.evidence_builder import EvidenceBuilder  # type: ignore[import-not-found]
    from nsys_ai.profile import Profile  # type: ignore[import-not-found]

    with Profile(path) as profile:
        device = min(profile.meta.devices, default=0)
        report = EvidenceBuilder(profile, device=device).build()
    keep = ("severity", "category", "label", "headroom_ms")
    return {"findings": [[getattr(one, name, None) for name in keep] for one in report.findings]}


def hta(path: str) -> dict[str, Any]:
    """Its temporal breakdown in percent, and its longest kernels."""
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found]

    analysis = TraceAnalysis(trace_files={0: path})
    time = analysis.get_temporal_breakdown(visualize=False).to_dict("records")[0]
    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    share = dict(zip(kinds["kernel_type"], kinds["percentage"], strict=True))
    rest = share.get("COMMUNICATION", 0.0) + share.get("MEMORY", 0.0) or 1.0
    other = float(time["non_compute_time_pctg"])
    longest = kernels.sort_values("sum (us)", ascending=False)["name"].head(TOP).tolist()
    return {
        "idle": float(time["idle_time_pctg"]),
        "communication": other * share.get("COMMUNICATION", 0.0) / rest,
        "copy": other * share.get("MEMORY", 0.0) / rest,
        "longest": [str(name)[:200] for name in longest],
    }


def tracelens(path: str) -> dict[str, Any]:
    """Its timeline in percent, and its longest operators with their categories."""
    from TraceLens import TreePerfAnalyzer  # type: ignore[import-not-found]

    perf = TreePerfAnalyzer.from_file(path)
    time = {row["type"]: float(row["percent"]) for row in perf.get_df_gpu_timeline().to_dict("records")}
    operators = perf.get_df_kernel_launchers_summary(perf.get_df_kernel_launchers()).head(TOP)
    launched = perf.get_df_kernels()
    longest = launched.groupby("Kernel name" if "Kernel name" in launched else "name")
    column = next(name for name in launched.columns if "duration" in name.lower())
    names = longest[column].sum().sort_values(ascending=False).head(TOP).index.tolist()
    return {
        "idle": time["idle_time"],
        "communication": time["exposed_comm_time"],
        "copy": time["exposed_memcpy_time"],
        "longest": [str(name)[:200] for name in [*operators["name"].tolist(), *names]],
    }


ASK: dict[str, Callable[[str], dict[str, Any]]] = {"nsys-ai": nsys_ai, "HTA": hta, "TraceLens": tracelens}


def main() -> None:
    peer, *paths = sys.argv[1:]
    for path in paths:
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                answer = ASK[peer](path)
        except Exception as problem:  # noqa: BLE001 - a peer that fails refuses; that is its answer
            answer = {"refused": re.sub(r"\S*/\S*", "", f"{type(problem).__name__}: {problem}")[:120]}
        print(json.dumps({"capture": Path(path).stem, **answer}), flush=True)


if __name__ == "__main__":
    main()
