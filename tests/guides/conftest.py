"""Captures of the guides' hour on a GPU, and the workplace of the page of taught workflows."""

import csv
import json
import lzma
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.faults.pack import unpacked
from tests.capture.stand_ins import NSYS_HELP, tool
from tests.readers.test_nsys_stats import as_json

from timesink.cli.demo import __file__ as demo

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = ROOT / "benchmarks/guides/captures"
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 32000,
    "torch_dtype": "bfloat16", "max_position_embeddings": 4096,
}  # fmt: skip


def nested() -> Iterator[dict[str, Any]]:
    """Four steps with a forward pass in each, which launches a kernel."""
    for number in range(4):
        at, link = 1000 * number, {"correlation": number + 1}
        yield {"ph": "X", "cat": "user_annotation", "name": "step", "pid": 1, "tid": 1, "ts": at, "dur": 800}
        yield {"ph": "X", "cat": "user_annotation", "name": "forward", "pid": 1, "tid": 1, "ts": at + 10, "dur": 300}
        yield {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 20,
               "dur": 5, "args": link}  # fmt: skip
        yield {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 40, "dur": 200,
               "args": {**link, "device": 0, "stream": 7}}  # fmt: skip


@pytest.fixture(scope="session")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captures of one H100, unpacked; nobody writes there."""
    folder = tmp_path_factory.mktemp("hour")
    unpacked(CAPTURES / "one.tar.xz", folder)
    return folder


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page of taught workflows speaks of, where its commands find it."""
    folder = tmp_path_factory.mktemp("workflows")
    for archive in ("guides/captures/one.tar.xz", "stages/results/h200_x2.tar.xz"):
        unpacked(ROOT / "benchmarks" / archive, folder)
    reports = [
        f"benchmarks/kernels/reports/{name}.ncu-rep" for name in ("atomics", "bandwidth", "coalescing", "tensor")
    ]
    packed = ("benchmarks/lines/captures/two_kernels.sqlite", "benchmarks/lines/captures/small.graph.json",
              "tests/data/compile/captured_gc.0.rank0.json", *reports)  # fmt: skip
    for name in packed:
        named = "gc.json" if "captured_gc" in name else Path(name).name
        (folder / named).write_bytes(lzma.decompress((ROOT / f"{name}.xz").read_bytes()))
    for name, copy in (("gpt_before.json.xz", "trace.json.gz"), ("gpt_after.json.xz", "after.json.gz")):
        shutil.copy(Path(demo).with_name(name), folder / copy)
    for path in (ROOT / "benchmarks/guides/captures").glob("*.txt"):
        shutil.copy(path, folder)
    unpacked(CAPTURES / "two.tar.xz", folder / "two")
    for name, place in (("snapshot.pickle", "tests/data/memory/gpt_bf16_adamw.pickle.xz"),
                        ("raw.csv", "benchmarks/kernels/unseen9/smaller/triton_basic.raw.csv.xz")):  # fmt: skip
        (folder / name).write_bytes(lzma.decompress((ROOT / place).read_bytes()))
    unpacked(ROOT / "benchmarks/ranks/captures/four/healthy_ddp.fault.torch.tar.xz", folder / "four")
    for name, rate, waits in (("own_before", 24.5, 3), ("own_after", 9.6, 4)):
        own = {"fps": rate, "waits_of_mine": {"value": waits, "better": "lower"}}
        (folder / f"{name}.json").write_text(json.dumps(own))
    calls = (ROOT / "tests/data/nsys/stats/too_few_workers.cuda_api_sum.csv").read_text(encoding="utf-8")
    (folder / "profile_stats.json").write_text(as_json(list(csv.reader(calls.splitlines()))))
    (folder / "nested.json").write_text(json.dumps({"traceEvents": [*nested()]}))
    (folder / "config.json").write_text(json.dumps(MODEL))
    (folder / "nsys").write_text(tool("nsys", f"{NSYS_HELP} 'nccl'", "2025.3.1", "exit 1"))
    (folder / "nsys").chmod(0o755)
    return folder
