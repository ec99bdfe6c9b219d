"""What a call stack says of an allocation: one bit per fact, asked once per distinct stack."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.model.names import matches

Flags = npt.NDArray[np.bool_]

# Frames read "file(line): function", separated by ";"; C++ frames without a file are the bare function.
PATTERNS = {
    "workspace": r"getNewWorkspace|getCurrentCUDABlasHandle|CUDABlasLtWorkspace|[cC]uda?[dD]nn\w*[wW]orkspace"
    r"|getChosenWorkspaceSize|getCUDABlasLtWorkspace|getCurrentCUDASolver",
    "optimizer": r"torch/optim/|: _init_group|/optimizers?/|(?:Fused|CPU)?Adam\w*\.py\(|deepspeed/runtime/zero/stage",
    "backward": r"autograd::Engine|PythonEngine|torch/autograd/__init__\.py\(\d+\): (?:backward|_make_grads|grad)"
    r"|: _engine_run_backward|torch/_tensor\.py\(\d+\): backward|autograd::generated::\w+Backward\d*::apply",
    "recompute": r"torch/utils/checkpoint\.py",
    "sharding": r"_fsdp_collectives\.py|_fsdp_param\.py|_fsdp_param_group\.py|fsdp/_flat_param\.py"
    r"|fsdp/_runtime_utils\.py|fsdp/flat_param\.py",
    "reducer": r"c10d::Reducer|: _ddp_init_helper|parallel/distributed\.py\(\d+\): __init__|ProcessGroupNCCL"
    r"|distributed/distributed_c10d\.py",
    "cast": r"autocast::cached_cast",
    "kv_cache": r"(?i)kv_?cache|past_?key_?value|cache_utils\.py|static_?cache|paged_?attention|block_manager"
    r"|cache_engine",
    "weights": r"torch/nn/modules/\w+\.py\(\d+\): (?:__init__|reset_parameters|_apply|convert)|torch/nn/parameter\.py"
    r"|: load_state_dict|: from_pretrained|torch/nn/init\.py|: _init_sharded_param|: init_weights|: _init_weights",
    "module": r"torch/nn/modules/module\.py\(\d+\): _call_impl",
    "data": r"torch/utils/data/",
    "python": r"\.py\(\d+\): ",
}


def facts(stacks: pl.Series) -> dict[str, Flags]:
    """For every row of `stacks`, whether each pattern occurs in it; `known`: whether there is a stack at all."""
    found = {name: matches(stacks, pattern).to_numpy().astype(bool) for name, pattern in PATTERNS.items()}
    return {**found, "known": stacks.is_not_null().to_numpy()}


def place(stack: str | None) -> str:
    """The innermost frame of a stack that is the user's own, or else its innermost Python or named frame."""
    frames = (stack or "").split(";")
    python = [frame for frame in frames if ".py(" in frame]
    own = [frame for frame in python if not any(mark in frame for mark in _LIBRARIES)]
    named = [frame for frame in frames if "at::" in frame or "autograd" in frame]
    return next(iter(own or python or named or frames), "")


_LIBRARIES = ("/torch/", "torch/", "site-packages/", "dist-packages/", "/contextlib.py(")
