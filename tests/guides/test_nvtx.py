"""NVTX ranges of a guide's annotated layer, under torch.profiler: our capture mirrors them, and other traces say so."""

import json
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from timesink.capture.agent.nvtx import Mirror
from timesink.cli.app import run


class Annotate:
    """As the package `nvtx` has it: a context, and a decorator that is named by its function."""

    def __init__(self, message: str | None = None, color: str | None = None, domain: str | None = None) -> None:
        self.message = message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return wraps(function)(partial(function))


def mirrored(log: list[str]) -> tuple[Any, Any]:
    """Stand-ins of `torch.cuda.nvtx` and of `nvtx` whose ranges are mirrored into the log."""

    def opened(name: str) -> Callable[[], object]:
        log.append(f"+{name}")
        return lambda: log.append(f"-{name}")

    torch_nvtx = SimpleNamespace(range_push=lambda msg: 0, range_pop=lambda: 0)
    package = SimpleNamespace(
        push_range=lambda message=None, color=None: 0,
        pop_range=lambda: 0,
        annotate=type("annotate", (Annotate,), {name: vars(Annotate)[name] for name in ("__init__", "__enter__")}),
    )
    mirror = Mirror(opened)
    mirror.torch(torch_nvtx)
    mirror.package(package)
    return torch_nvtx, package


def test_nested_pushes_of_torch_are_mirrored() -> None:
    log: list[str] = []
    nvtx, _ = mirrored(log)
    for name in ("transformer_block", "attention"):
        nvtx.range_push(name)
    nvtx.range_pop()
    nvtx.range_push(msg="mlp")
    nvtx.range_pop()
    nvtx.range_pop()
    nvtx.range_pop()  # one too many
    assert log == ["+transformer_block", "+attention", "-attention", "+mlp", "-mlp", "-transformer_block"]


def test_an_annotated_layer_is_mirrored() -> None:
    log: list[str] = []
    _, nvtx = mirrored(log)

    @nvtx.annotate("layer_forward", color="blue")
    def forward() -> None:
        with nvtx.annotate("L3_attention", color="red"), nvtx.annotate("qkv_proj"):
            nvtx.push_range("rope")
            nvtx.pop_range()

    @nvtx.annotate()
    def unnamed() -> None:
        return None

    forward()
    unnamed()
    assert log == [
        "+layer_forward", "+L3_attention", "+qkv_proj", "+rope",
        "-rope", "-qkv_proj", "-L3_attention", "-layer_forward",
        "+unnamed", "-unnamed",
    ]  # fmt: skip


def test_what_raises_opens_no_range() -> None:
    """torch without CUDA has no NVTX."""
    log: list[str] = []

    def push(msg: str) -> None:
        raise RuntimeError("NVTX functions not installed")

    nvtx = SimpleNamespace(range_push=push, range_pop=lambda: 0)
    Mirror(lambda name: log.append(name) or (lambda: None)).torch(nvtx)  # type: ignore[func-returns-value]
    with pytest.raises(RuntimeError, match="not installed"):
        nvtx.range_push("a")
    assert log == []


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ("torch/cuda/nvtx.py(44): range_push", True),
        ("/opt/env/lib/python3.12/site-packages/torch/cuda/nvtx.py(60): range_push", True),
        ("nvtx/nvtx.py(100): __enter__", True),
        ("nvtx/nvtx.py(180): push_range", True),
        ("my_nvtx.py(3): range_push", False),
        ("torch/nn/modules/module.py(1): __enter__", False),
    ],
)
@pytest.mark.parametrize("ranges", [(), ("attention",), ("ProfilerStep#3",)])
def test_a_trace_whose_stacks_open_nvtx_ranges_says_what_is_missing(
    frame: str, said: bool, ranges: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = {"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 90}
    launch = {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5, "dur": 2, "args": {"correlation": 7}}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 9, "dur": 80}
    events = [
        {**host, "cat": "python_function", "name": frame, "args": {"Python id": 1, "Python parent id": None}},
        launch,
        {**kernel, "args": {"device": 0, "stream": 7, "correlation": 7}},
        *({**host, "cat": "user_annotation", "name": name} for name in ranges),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    assert run(["show", "ranges", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert ("opens NVTX ranges (1 calls)" in text) is (said and "attention" not in ranges)
