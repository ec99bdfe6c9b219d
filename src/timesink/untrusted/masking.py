"""What may be stored of command lines and environments: secrets are taken out of the one, few variables kept of the
other.

A report of Nsight Systems holds the environment of the profiled program, tokens and passwords included. What is kept,
of reports and in what `timesink capture` writes, are names that change how a GPU program runs, and only values that
look like no path, address or secret. Standard library only.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

_SECRET = re.compile(r"token|secret|passw(?:or)?d|passwd|api[-_]?key|access[-_]?key|credential|auth", re.IGNORECASE)
_VALUE = r"(?:\"[^\"]*\"|'[^']*'|\S+)"
# A name begins where nothing of a name precedes it: each stretch of a long text is looked at once.
_NAMED = (
    re.compile(rf"(?<![\w.-])([\w.-]+=){_VALUE}"),
    re.compile(rf"(?<![\w.-])(--?[\w.-]+\s+)(?!-){_VALUE}"),
)
_PATTERNS = (
    re.compile(r"(?<!\w)(\w+://)[^/@\s]+(?=@)"),
    re.compile(r"()\b(?:hf_|ghp_|github_pat_|glpat-|sk-|xox[abp]-|AKIA)[A-Za-z0-9_-]{8,}"),
)


def redacted(command: str) -> str:
    """The command line with the values of options and variables that name secrets, logins in addresses and known kinds
    of tokens replaced by ``***``. A secret under an innocent name is not found.
    """
    for pattern in _NAMED:
        command = pattern.sub(_without_secret, command)
    for pattern in _PATTERNS:
        command = pattern.sub(r"\1***", command)
    return command


def _without_secret(assignment: re.Match[str]) -> str:
    return f"{assignment[1]}***" if _SECRET.search(assignment[1]) else assignment[0]


def stored_command(argv: Sequence[str]) -> str:
    """A command as one would type it, secrets taken out, the user's home as ``~``."""
    home = str(Path.home())
    words = [word.replace(home, "~") if len(home) > 1 else word for word in argv]
    return redacted(shlex.join(words))


_KEPT = re.compile(
    r"^(CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|DEVICE_MAX_CONNECTIONS|LAUNCH_BLOCKING|MODULE_LOADING|MODULE_DATA_LOADING)"
    r"|CUBLAS_WORKSPACE_CONFIG|CUDNN_[A-Z_]*|NVIDIA_TF32_OVERRIDE|NCCL_(?!.*FILE)[A-Z0-9_]+|OMP_[A-Z_]+|MKL_NUM_THREADS"
    r"|PYTORCH_(CUDA_|HIP_)?ALLOC_CONF|TORCH_(NCCL_[A-Z_]+|CUDNN_[A-Z_]+|ALLOW_TF32[A-Z_]*|LOGS)|TORCHINDUCTOR_[A-Z_]+"
    r"|TORCH_COMPILE_[A-Z_]+|TRITON_[A-Z_]+|WORLD_SIZE|LOCAL_WORLD_SIZE|NODE_RANK|SLURM_(NTASKS|NNODES|GPUS[A-Z_]*))$"
)
_REFUSED = re.compile(r"token|secret|key|passw|cookie|cred|path|dir|file|home|host|addr|user|url", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"[\w.,:;=+\-\[\]|^ ]{0,200}\Z")  # no path, no address, no quote


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that may be stored, read and shown, by name."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if _KEPT.match(name) and not _REFUSED.search(name) and _ASSIGNMENT.match(value)
    }
