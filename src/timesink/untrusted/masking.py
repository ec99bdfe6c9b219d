"""What may be stored of command lines and environments: secrets are taken out of the one, few variables kept of the
other.

A report of Nsight Systems holds the environment of the profiled program, tokens and passwords included. What is kept,
of reports and in what `timesink capture` writes, are names that change how a GPU program runs, and only values that
look like no path, address or secret. Standard library only.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from timesink.untrusted import is_made_of

_SECRETS = ("token", "secret", "passwd", "password", "apikey", "accesskey", "credential", "auth")
# A value as a shell takes it: quoted, or up to the next space.
_VALUE = r"(?:\"[^\"]*\"|'[^']*'|\S+)"
# Patterns of secrets look around themselves, which plain methods of texts cannot.
# A name begins where nothing of a name precedes it: each stretch of a long text is looked at once.
_NAMED = (re.compile(rf"(?<![\w.-])([\w.-]+=){_VALUE}"), re.compile(rf"(?<![\w.-])(--?[\w.-]+\s+)(?!-){_VALUE}"))
# Logins in addresses, and tokens by how their issuers begin them.
_PATTERNS = (
    re.compile(r"(?<!\w)(\w+://)[^/@\s]+(?=@)"),
    re.compile(r"()\b(?:hf_|ghp_|github_pat_|glpat-|sk-|xox[abp]-|AKIA)[A-Za-z0-9_-]{8,}"),
)
_SIGNS = (
    "token", "secret", "passw", "key", "cred", "auth", "://", "hf_", "ghp_", "github_pat_", "glpat", "sk-", "xox",
    "akia",
)  # fmt: skip


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
    name = assignment[1].lower().replace("-", "").replace("_", "")
    return f"{assignment[1]}***" if any(word in name for word in _SECRETS) else assignment[0]


def stored_command(argv: Sequence[str]) -> str:
    """A command as one would type it, secrets taken out, the user's home as ``~``."""
    home = str(Path.home())
    words = [word.replace(home, "~") if len(home) > 1 else word for word in argv]
    return redacted(shlex.join(words))


_KEPT = frozenset((
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING", "CUDA_MODULE_DATA_LOADING", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE",
    "MKL_NUM_THREADS", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "TORCH_LOGS",
    "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "SLURM_NTASKS", "SLURM_NNODES",
))  # fmt: skip
_KEPT_FAMILIES = (
    "CUDNN_", "NCCL_", "OMP_", "TORCH_NCCL_", "TORCH_CUDNN_", "TORCH_ALLOW_TF32", "TORCHINDUCTOR_", "TORCH_COMPILE_",
    "TRITON_", "SLURM_GPUS",
)  # fmt: skip
_REFUSED = (
    "token", "secret", "key", "passw", "cookie", "cred", "path", "dir", "file", "home", "host", "addr", "user", "url",
)  # fmt: skip
_VALUE_MARKS = "_.,:;=+-[]|^ "  # no path, no address, no quote
_LONGEST_VALUE = 200


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that may be stored, read and shown, by name."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if _is_kept(name) and len(value) <= _LONGEST_VALUE and is_made_of(value, _VALUE_MARKS)
    }


def _is_kept(name: str) -> bool:
    known = name in _KEPT or (name.startswith(_KEPT_FAMILIES) and name.isupper() and is_made_of(name, "_"))
    return known and not any(word in name.lower() for word in _REFUSED)


def may_hold_secret(text: str) -> bool:
    """Whether `redacted` could find something: a quick look at a text that most likely holds nothing."""
    small = text.lower()
    return any(sign in small for sign in _SIGNS)
