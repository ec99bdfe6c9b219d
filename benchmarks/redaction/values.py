"""What is planted: names of people and machines, addresses, folders, tokens, passwords. Every value is made up anew.

A value is the text to plant and the parts of it that may not survive: of a path, user and project, not `train.py`.
"""

from __future__ import annotations

import base64
import string
from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Secret:
    """The text to plant, and what of it may not be found again."""

    text: str
    parts: tuple[str, ...]


Maker = Callable[[Random], Secret]
_ALNUM = string.ascii_letters + string.digits


def _some(rng: Random, letters: str, count: int) -> str:
    return "".join(rng.choice(letters) for _ in range(count))


def _word(rng: Random, syllables: int = 3) -> str:
    return "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(syllables))


def _person(rng: Random) -> str:
    one, two = _word(rng, 2), _word(rng, 3)
    return rng.choice([f"{one}-{two}", f"{one[0]}{two}", f"{one}.{two}", f"{two}{rng.randint(1, 99)}"])


def _machine(rng: Random) -> str:
    site, number = _word(rng, 2), rng.randint(1, 999)
    shapes = [f"{site}-gpu-{number:03}", f"nid{number:06}", f"dgx-{site}-{number:02}", f"{site}{number:03}"]
    return rng.choice(shapes)


def _whole(make: Callable[[Random], str]) -> Maker:
    def secret(rng: Random) -> Secret:
        text = make(rng)
        return Secret(text, (text,))

    return secret


def _folder(root: str, form: str = "{root}/{user}/{project}/train.py") -> Maker:
    def secret(rng: Random) -> Secret:
        user, project = _person(rng), f"{_word(rng)}-{_word(rng)}"
        text = form.format(root=root, user=user, project=project)
        return Secret(text, tuple(part for part in (user, project) if part in text))

    return secret


def _pair(form: str, make: Callable[[Random], str]) -> Maker:
    def secret(rng: Random) -> Secret:
        value = make(rng)
        return Secret(form.format(value), (value,))

    return secret


def _password(rng: Random) -> str:
    return _word(rng) + _some(rng, string.digits, 2) + rng.choice("!#%_") + _word(rng, 2).title()


def _hex(count: int) -> Callable[[Random], str]:
    return lambda rng: _some(rng, "0123456789abcdef", count)


def _uuid(rng: Random) -> str:
    return "-".join(_hex(count)(rng) for count in (8, 4, 4, 4, 12))


def _domain(rng: Random) -> str:
    return f"{_machine(rng)}.{_word(rng)}.{rng.choice(['com', 'internal', 'edu', 'local', 'de'])}"


def _ipv4(rng: Random) -> str:
    block = rng.choice(["10.{}.{}.{}", "192.168.{1}.{2}", "172.23.{1}.{2}", "134.{}.{}.{}"])
    return block.format(*(rng.randint(2, 250) for _ in range(3)))


def _ipv6(rng: Random) -> str:
    return f"fd{_hex(2)(rng)}:{_hex(4)(rng)}:{_hex(4)(rng)}::{_hex(3)(rng)}:{_hex(4)(rng)}"


def _jwt(rng: Random) -> str:
    body = base64.urlsafe_b64encode(_some(rng, _ALNUM, 30).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJIUzI1NiJ9.{body}.{_some(rng, _ALNUM, 32)}"


def _private_key(rng: Random) -> Secret:
    body = _some(rng, _ALNUM + "+/", 48)
    return Secret(f"-----BEGIN OPENSSH PRIVATE KEY-----{body}-----END OPENSSH PRIVATE KEY-----", (body,))


VALUES: dict[str, Maker] = {
    "user": _whole(_person),
    "host": _whole(_machine),
    "domain": _whole(_domain),
    "e-mail": _whole(lambda rng: f"{_person(rng)}@{_word(rng)}.{rng.choice(['com', 'org', 'ac.uk'])}"),
    "IPv4": _whole(_ipv4),
    "IPv4 with port": _pair("tcp://{}:29500", _ipv4),
    "IPv6": _whole(_ipv6),
    "MAC": _whole(lambda rng: ":".join(_hex(2)(rng) for _ in range(6))),
    "GPU UUID": _pair("GPU-{}", _uuid),
    "UUID": _whole(_uuid),
    "serial": _whole(lambda rng: _some(rng, string.digits, 13)),
    "PCI address": _whole(lambda rng: f"0000:{rng.randint(1, 254):02x}:{rng.randint(1, 31):02x}.0"),
    "/home": _folder("/home"),
    "/Users": _folder("/Users"),
    "/users": _folder("/users"),
    "/fsx": _folder("/fsx"),
    "/cluster/work": _folder("/cluster/work"),
    "/global/homes": _folder("/global/homes/a"),
    "/u": _folder("/u"),
    "/nvme0": _folder("/nvme0"),
    "/net/home": _folder("/net/home"),
    "/mnt/batch": _folder("/mnt/batch/tasks"),
    "own root": _folder("/zfs9"),
    "home alone": _folder("/home", "{root}/{user}"),
    "relative folder": _folder("", "../../{user}/{project}/train.py"),
    "tilde": _folder("", "~{user}/{project}/train.py"),
    "C:\\Users": _folder("C:\\Users", "{root}\\{user}\\{project}\\train.py"),
    "file://": _folder("/srv", "file://{root}/{user}/{project}/train.py"),
    "-I/home": _folder("/home", "-I{root}/{user}/{project}/include"),
    "s3://": _folder("s3:/", "s3://{project}/{user}/train.py"),
    "git remote": _folder("", "git@github.com:{user}/{project}.git"),
    "ssh://": _folder("ssh:/", "ssh://{user}@{project}.cluster/x"),
    "login in URL": _pair("https://bot:{}@registry.example.com/v2", _password),
    "Hugging Face": _whole(lambda rng: "hf_" + _some(rng, _ALNUM, 34)),
    "GitHub": _whole(lambda rng: "ghp_" + _some(rng, _ALNUM, 36)),
    "OpenAI": _whole(lambda rng: "sk-proj-" + _some(rng, _ALNUM, 40)),
    "AWS key": _whole(lambda rng: "AKIA" + _some(rng, string.ascii_uppercase + string.digits, 16)),
    "AWS secret": _whole(lambda rng: _some(rng, _ALNUM + "+/", 40)),
    "Slack": _whole(lambda rng: "xoxb-" + _some(rng, string.digits, 12) + "-" + _some(rng, _ALNUM, 24)),
    "W&B": _whole(_hex(40)),
    "JWT": _whole(_jwt),
    "private key": _private_key,
    "--password": _pair("--password {}", _password),
    "password:": _pair("password: {}", _password),
    "--api-key=": _pair("--api-key={}", _hex(32)),
    "Bearer": _pair("Authorization: Bearer {}", lambda rng: _some(rng, _ALNUM, 28)),
    "PGPASSWORD": _pair("PGPASSWORD={}", _password),
    "SLURM_JOB_USER": _pair("SLURM_JOB_USER={}", _person),
    "HOSTNAME": _pair("HOSTNAME={}", _machine),
    "MASTER_ADDR": _pair("MASTER_ADDR={}", _domain),
    "project": _whole(lambda rng: f"project {_word(rng)}{_word(rng, 2)}"),
}
