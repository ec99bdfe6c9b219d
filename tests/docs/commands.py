"""The commands that the documentation shows, and a folder in which a new user could type them."""

import gzip
import json
import lzma
import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
NOT_READ = ("decisions", "walkthroughs")  # what was once decided; tests/guides reads those
PAGES = (ROOT / "README.md", *sorted(page for page in DOCS.rglob("*.md") if page.parent.name not in NOT_READ))

# Commands that need what a test machine lacks: each begins so, and is only checked for its words.
NEEDS_MORE = {
    "timesink capture": "PyTorch and a GPU, or Nsight tools",
    "timesink capture --loop": "PyTorch and a GPU",
    "timesink diagnose report.nsys-rep": "Nsight Systems, to export its report",
    "timesink ranks 's3://": "an object store",
    'timesink ranks "$1" --engine': "a batch job; test_batch_script.py runs it",
    "timesink try -- torchrun": "torchrun, and two GPUs",
    "timesink try --only tf32 -- torchrun": "torchrun, and four GPUs",
    "timesink verify --toggle TF32=0/1 -- torchrun": "torchrun, and four GPUs",
    "timesink ranks --pipeline capture/": "a capture of a program of stages; tests/guides has one",
    "timesink mcp": "an agent that speaks the protocol; tests/mcp runs it",
    "timesink compare a.json.gz b.json.gz --calibration": "a calibration made on the GPU of the captures",
    "timesink gate --suite train --capture": "a capture of each run",
    'timesink gate baseline update --suite train --reason "one graph"': "a capture of each run",
}
# Their code says what was measured of a program that does nothing: any verdict is right here.
VERDICTS = {
    "verify": (0, 1, 3),
    "gate": (0, 1, 3, 4),
    "compare": (0, 1, 3, 4),
    "ranks": (0, 1),
    "try": (0, 1),
    "fix": (0, 1),
}

TRAIN = """
import random, time
import timesink
for step in range(8):
    time.sleep(0.002 + random.uniform(0, 0.0002))
    timesink.step()
"""
STACKS = {
    "traceEvents": [
        {"ph": "X", "cat": "python_function", "name": f"train.py({line}): {name}", "pid": 1, "tid": 1, "ts": ts,
         "dur": dur, "args": {"Python id": line}}
        for name, line, ts, dur in (("main", 1, 100, 90), ("load", 2, 110, 20), ("step", 3, 140, 40))
    ]
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1376,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000,
    "max_position_embeddings": 8192, "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
}  # fmt: skip


def fenced(page: Path) -> list[str]:
    """The lines of a page that run timesink, in fenced and indented blocks, in order, without prompts and remarks."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$|((?:^    .*\n)+)", text, re.MULTILINE | re.DOTALL)
    shown = (body or indented for language, body, indented in blocks if language in ("", "console", "bash", "sh"))
    lines = (line.strip().removeprefix("$ ") for block in shown for line in block.splitlines())
    found = [re.sub(r"\s+# .*", "", line) for line in lines if line.startswith("timesink ")]
    if page.name == "README.md":  # its table of what to type, where a command is whole
        rows = (line for line in text.splitlines() if line.startswith("| ") and "`timesink " in line)
        found += [command for row in rows for command in re.findall(r"`(timesink [^`]+)`", row.split("|")[2])]
    return found


def inline(page: Path) -> Iterator[str]:
    """What stands in a page's running text as `timesink ...`: often the beginning of a command only."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    yield from (" ".join(found.split()) for found in re.findall(r"`(timesink\s+[^`]+)`", text))


def needs_more(line: str) -> bool:
    """Whether that command cannot be run by a test. The worked examples run programs that need a GPU."""
    return "python -m benchmarks.worked" in line or any(line.startswith(beginning) for beginning in NEEDS_MORE)


def workplace(folder: Path) -> dict[str, str]:
    """Put every file there that the pages speak of, and return the environment to type in."""
    with as_file(files("timesink.cli").joinpath("demo")) as demo:
        texts = {name: lzma.decompress((demo / f"{name}.json.xz").read_bytes()) for name in ("gpt_before", "gpt_after")}
        packed = {name: gzip.compress(text, 1) for name, text in texts.items()}
        for name, target in (
            ("gpt_before", "run.json.gz"), ("gpt_before", "trace.json.gz"), ("gpt_before", "a.json.gz"),
            ("gpt_after", "b.json.gz"), ("gpt_before", "before.json.gz"), ("gpt_after", "after.json.gz"),
        ):  # fmt: skip
            (folder / target).write_bytes(packed[name])
        for name, target in (("gpt_before", "before.json.xz"), ("gpt_after", "after.json.xz")):
            (folder / target).write_bytes((demo / f"{name}.json.xz").read_bytes())
        (folder / "runs" / "plain").mkdir(parents=True)
        (folder / "runs" / "plain" / "trace.json.gz").write_bytes(packed["gpt_before"])
        for job in ("traces", "nsys", "RUN_FOLDER"):
            (folder / job).mkdir()
            for rank, text in enumerate(texts.values()):
                ranked = text.replace(
                    b'"schemaVersion": 1', b'"schemaVersion": 1, "distributedInfo": {"rank": %d}' % rank, 1
                )
                (folder / job / f"rank{rank}.json").write_bytes(ranked)
    (folder / "run.json").write_bytes(texts["gpt_before"])
    (folder / "run.ranks").write_text("traces/rank*.json\n")
    (folder / "stacks.json.gz").write_bytes(gzip.compress(json.dumps(STACKS).encode()))
    reports = ROOT / "benchmarks" / "kernels" / "reports"
    (folder / "ncu").mkdir()
    for name in ("report", "before", "after", "ncu/report"):
        (folder / f"{name}.ncu-rep").write_bytes(lzma.decompress((reports / "gemm.ncu-rep.xz").read_bytes()))
    data = ROOT / "tests" / "data"
    (folder / "logs").mkdir()
    shutil.copy(data / "compile" / "print_break.trace.log", folder / "logs" / "dedicated_log_torch_trace_rank_0.log")
    snapshot = lzma.decompress((data / "memory" / "gpt_bf16_adamw.pickle.xz").read_bytes())
    (folder / "snapshot.pickle").write_bytes(snapshot)
    (folder / "gpt.json").write_text(_example((DOCS / "how-to" / "memory.md").read_text(encoding="utf-8")))
    means = (json.dumps({"mean": 0.010 + 0.0001 * (n % 3)}) for n in range(24))
    (folder / "means.jsonl").write_text("".join(f"{line}\n" for line in means))
    (folder / "config.json").write_text(json.dumps(LLAMA))
    for rank, times in enumerate(({"tA0": 0, "tA1": 100, "tDecode": 550, "tEmit": 900}, {"tB0": 5105, "tB1": 5405})):
        for place, period in ((folder, 450), (folder / "depth2", 450), (folder / "depth1", 760)):
            lines = ({"item": n} | {key: (time + n * period) / 1000 for key, time in times.items()} for n in range(12))
            place.mkdir(exist_ok=True)
            text = "".join(f"{json.dumps(line)}\n" for line in lines)
            (place / f"rank{rank}.jsonl").write_text(text)
            (folder / f"{place.name}.rank{rank}.jsonl").write_text(text)
    page = (DOCS / "how-to" / "configure.md").read_text(encoding="utf-8")
    (folder / "pyproject.toml").write_text(re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0])
    for name in ("train.py", "old.py", "new.py"):
        (folder / name).write_text(TRAIN)
    for name in ("old", "new"):
        (folder / name).mkdir()
        (folder / name / "run.sh").write_text("#!/bin/sh\nexec python train.py\n")
        (folder / name / "run.sh").chmod(0o755)
    return {**os.environ, "PATH": f"{_shims(folder)}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}


def _example(page: str) -> str:
    """The plan that the page on memory shows."""
    (shown,) = (
        block for block in re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if '"gpt"' in block
    )
    return str(shown)


def _shims(folder: Path) -> Path:
    """`timesink` and `python` as this test's interpreter has them."""
    bin_folder = folder / ".bin"
    bin_folder.mkdir()
    for name, words in (("timesink", '-m timesink "$@"'), ("python", '"$@"')):
        shim = bin_folder / name
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}\n')
        shim.chmod(0o755)
    return bin_folder
