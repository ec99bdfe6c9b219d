"""Which variables of an environment may be kept: an allow-list, never the whole of it. Standard library only.

A report of Nsight Systems holds the environment of the profiled program, tokens and passwords included. What is kept,
of reports and in what `timesink capture` writes, are names that change how a GPU program runs, and only values that
look like no path, address or secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_KEPT = re.compile(
    r"^(CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|DEVICE_MAX_CONNECTIONS|LAUNCH_BLOCKING|MODULE_LOADING|MODULE_DATA_LOADING)"
    r"|CUBLAS_WORKSPACE_CONFIG|CUDNN_[A-Z_]*|NVIDIA_TF32_OVERRIDE|NCCL_(?!.*FILE)[A-Z0-9_]+|OMP_[A-Z_]+|MKL_NUM_THREADS"
    r"|PYTORCH_(CUDA_|HIP_)?ALLOC_CONF|TORCH_(NCCL_[A-Z_]+|CUDNN_[A-Z_]+|ALLOW_TF32[A-Z_]*|LOGS)|TORCHINDUCTOR_[A-Z_]+"
    r"|TORCH_COMPILE_[A-Z_]+|TRITON_[A-Z_]+|WORLD_SIZE|LOCAL_WORLD_SIZE|NODE_RANK|SLURM_(NTASKS|NNODES|GPUS[A-Z_]*))$"
)
_REFUSED = re.compile(r"token|secret|key|passw|cookie|cred|path|dir|file|home|host|addr|user|url", re.IGNORECASE)
_VALUE = re.compile(r"[\w.,:;=+\-\[\]|^ ]{0,200}\Z")  # no path, no address, no quote


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that may be stored, read and shown, by name."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if _KEPT.match(name) and not _REFUSED.search(name) and _VALUE.match(value)
    }
