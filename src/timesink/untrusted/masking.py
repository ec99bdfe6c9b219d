"""What may be stored of command lines and environments: secrets are taken out of the one, few variables kept of the
other.

A report of Nsight Systems holds the environment of the profiled program, tokens and passwords included. What is kept,
of reports and in what `timesink capture` writes, are names that change how a GPU program runs, and only values that
look like no path, address or secret. Standard library only.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from timesink.untrusted import is_made_of

# A name tells of a secret by a word anywhere in it, or by its last word.
_ANYWHERE = ("secret", "passw", "passphrase", "passcode", "credential", "apikey", "accesskey", "privatekey", "authoriz",
             "webhook", "signature", "cookie", "bearer", "accountkey", "connectionstring")  # fmt: skip
_LAST = frozenset(
    ["token", "auth", "pwd", "pass", "pw", "key", "cred", "creds", "pat", "dsn", "sig", "sas", "otp", "jwt", "pgpass"]
)
# Words of a name, in capitals, in camel case or between signs.
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# The name of a variable or an option.
_NAME = re.compile(r"[\w.+-]+")
# A value as a shell or JSON writes it: quoted, or up to the next space.
_VALUE = re.compile(r"\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|[^\s\"'}]+")
# Patterns of secrets look around themselves, which plain methods of texts cannot.
# A name begins where nothing of a name precedes it: each stretch of a long text is looked at once.
_BEFORE_A_VALUE = (
    re.compile(r"(?<![\w.-])([\w.-]+)[\"']?\s*[=:]\s*(?!//)(?:(?i:bearer|basic|token)\s+)?"),
    re.compile(r"(?<![\w.-])(--?[\w.-]+)\s+(?!-)"),
)
_TOKENS = (  # by how their issuers begin them
    re.compile(r"()-----BEGIN [A-Z ]{3,30}-----(?s:.*?)(?:-----END [A-Z ]{3,30}-----|$)"),
    re.compile(
        r"()(?<![A-Za-z0-9])(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|pk-|[rsp]k_live_|xox[a-z]-|AKIA|ASIA|AIza|ya29\."
        r"|npm_|pypi-|dckr_pat_|SG\.|wandb_|nvapi-|eyJ)[A-Za-z0-9_.-]{8,}"
    ),
)
# Logins in addresses and of programs, and what opens by being known.
_PATTERNS = (
    re.compile(r"(?<!\w)(\w+://)[^/@\s]+(?=@)"),
    re.compile(r"(?<!\S)((?:-u|--user)[\s=]+[\w.-]+:)\S+"),
    re.compile(r"(?<!\S)(-p\s+)(?!\d+(?:\s|$)|-)\S+"),
    re.compile(r"(?<!\S)(-p)(?=\S*\d)(?=\S*[A-Za-z])[\w!#%@.-]{5,}"),
    re.compile(r"(?i)(\bbearer\s+)[\w.~+/=-]{6,}"),
    re.compile(r"(//(?:hooks\.slack\.com/\w+|discord(?:app)?\.com/api/webhooks|[\w.-]+\.webhook\.office\.com))/\S+"),
    *_TOKENS,
    re.compile(r"()(?<![\w/.+=-])(?=[^\s/]*\d)(?=[^\s/]*[a-z])(?=[^\s/]*[A-Z])[A-Za-z0-9+]{30,200}={0,2}(?![\w/.+=-])"),
)


def is_secret_name(name: str) -> bool:
    """Whether an option, a variable or a key of this name holds a secret: ``HF_TOKEN``, ``--wandb.key``, not
    ``tokenizer``."""
    words = [word.lower() for word in _PIECE.findall(name)]
    return bool(words) and (words[-1] in _LAST or any(sign in "".join(words) for sign in _ANYWHERE))


def is_secret_key(key: str) -> bool:
    """Whether what stands at this key of data is a secret. A lone ``key`` or ``pass`` opens nothing there: data have
    keys to sort by and forward passes."""
    words = [word.lower() for word in _PIECE.findall(key)]
    return bool(words) and (
        "token" in words or words[-1] in _LAST - {"key", "pass"} or any(sign in "".join(words) for sign in _ANYWHERE)
    )


def redacted(text: str) -> str:
    """The text, as of a command line, with the values that secrets' names have, logins in addresses and known kinds of
    tokens replaced by ``***``. A secret under an innocent name is not found.
    """
    for before_a_value in _BEFORE_A_VALUE:
        text = "".join(_without_values(text, before_a_value))
    return without_tokens(text)


def without_tokens(text: str) -> str:
    """A sentence without logins, known kinds of tokens and what looks like a key: its words are no options."""
    for pattern in _PATTERNS:
        text = pattern.sub(r"\1***", text)
    return text


def find_token(text: str) -> bool:
    """Whether a token stands in the text that an issuer begins in its own way, or a key in PEM."""
    return any(pattern.search(text) for pattern in _TOKENS)


def _without_values(text: str, before_a_value: re.Pattern[str]) -> Iterator[str]:
    done = 0
    for found in before_a_value.finditer(text):
        if found.start() >= done and is_secret_name(found[1]) and (value := _VALUE.match(text, found.end())):
            yield f"{text[done : found.end()]}***"
            done = value.end()
    yield text[done:]


def masked_words(argv: Sequence[str]) -> list[str]:
    """The words of a command, as many as there were, without their secrets: what stands behind an option is judged with
    it. The user's home is ``~``."""
    home, words, before = str(Path.home()), list[str](), ""
    for word in argv:
        name, sign, _ = word.partition("=")
        with_option = redacted(before + word) if not word.startswith("-") else ""
        if sign and _NAME.fullmatch(name) and is_secret_name(name):
            kept = f"{name}=***"
        elif before and with_option.startswith(before):
            kept = "***" if with_option.startswith(f"{before}***") else with_option.removeprefix(before)
        else:
            kept = redacted(word)
        words.append(kept.replace(home, "~") if len(home) > 1 else kept)
        before = f"{word} " if word.startswith("-") and not sign else ""
    return words


def stored_command(argv: Sequence[str]) -> str:
    """A command as one would type it, secrets taken out, the user's home as ``~``."""
    return joined(masked_words(argv))


def joined(words: Sequence[str]) -> str:
    """Masked words as one line."""
    return " ".join(word if "***" in word and len(word.split()) == 1 else shlex.quote(word) for word in words)


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
