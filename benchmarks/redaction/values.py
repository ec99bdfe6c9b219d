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


def _digits(count: int) -> Callable[[Random], str]:
    return lambda rng: rng.choice("123456789") + _some(rng, string.digits, count - 1)


_NUMBERED = {
    "job": ("job {}", 7), "SLURM_JOB_ID": ("SLURM_JOB_ID={}", 6), "PBS": ("PBS job id: {}", 5), "task": ("task {}", 6),
    "serial no": ("serial no {}", 8), "ticket": ("ticket #{}", 5), "account no": ("account: {}", 8),
    "employee": ("employee {}", 6), "badge": ("badge {}", 5), "uid": ("uid={}", 5), "asset": ("asset {}", 7),
    "run": ("run_{}", 7), "bare six": ("{}", 6), "bare seven": ("{}", 7),
    "bare eight": ("{}", 8), "bare twelve": ("{}", 12),
}  # fmt: skip
_VARIABLES = (
    "MYSQL_PWD",
    "DB_PASSWORD",
    "WANDB_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AZURE_CLIENT_SECRET",
    "GH_TOKEN",
    "NGC_API_KEY",
)
_ISSUERS = ("gho_", "glpat-", "nvapi-", "npm_", "pypi-", "dckr_pat_", "github_pat_", "xoxp-", "AIza", "SG.")
_ROOTS = (
    "/scratch",
    "/nfs",
    "/data",
    "/work",
    "/srv/home",
    "/export/home",
    "/lustre/orion",
    "/gpfs/alpine",
    "/Volumes/x",
    "/workspaces",
)

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
    **{name: _pair(form, _digits(count)) for name, (form, count) in _NUMBERED.items()},
    **{f"{name}=": _pair(name + "={}", _password) for name in _VARIABLES},
    **{f"{start}...": _whole(lambda rng, start=start: start + _some(rng, _ALNUM, 32)) for start in _ISSUERS},  # type: ignore[misc]
    **{root: _folder(root) for root in _ROOTS},
    "SSN": _whole(lambda rng: f"{_digits(3)(rng)}-{_digits(2)(rng)}-{_digits(4)(rng)}"),
    "phone US": _whole(lambda rng: f"+1 ({_digits(3)(rng)}) {_digits(3)(rng)}-{_digits(4)(rng)}"),
    "phone US plain": _whole(lambda rng: f"{_digits(3)(rng)}-{_digits(3)(rng)}-{_digits(4)(rng)}"),
    "phone DE": _whole(lambda rng: f"+49-30-{_digits(6)(rng)}"),
    "phone bare": _whole(_digits(10)),
    "card": _whole(lambda rng: " ".join("4" + _digits(3)(rng) for _ in range(4))),
    "card with dashes": _whole(lambda rng: "-".join("5" + _digits(3)(rng) for _ in range(4))),
    "IBAN": _whole(lambda rng: f"DE{_digits(2)(rng)} " + " ".join(_digits(4)(rng) for _ in range(4)) + " 00"),
    "commit": _whole(lambda rng: f"{rng.choice('abcdef')}{_hex(5)(rng)}{rng.randint(0, 9)}"),
    "commit whole": _whole(_hex(40)),
    "SHA-256": _whole(_hex(64)),
    "MAC with dashes": _whole(lambda rng: "-".join(_hex(2)(rng).upper() for _ in range(6))),
    "MAC with dots": _whole(lambda rng: ".".join(f"{rng.randint(0, 9)}{_hex(3)(rng)}" for _ in range(3))),
    "MAC behind ::": _pair("::{}", lambda rng: ":".join(_hex(2)(rng) for _ in range(6))),
    "MAC bare": _whole(lambda rng: f"b{rng.randint(0, 9)}{_hex(10)(rng)}"),
    "date": _whole(lambda rng: f"20{rng.randint(10, 29)}/{rng.randint(1, 12):02}/{rng.randint(1, 28):02}"),
    "date US": _whole(lambda rng: f"{rng.randint(1, 12):02}/{rng.randint(1, 28):02}/20{rng.randint(10, 29)}"),
    "date in a name": _whole(lambda rng: f"20{rng.randint(10, 29)}{rng.randint(1, 12):02}{rng.randint(1, 28):02}"),
    "node": _whole(lambda rng: f"node{rng.randint(10, 9999):04}"),
    "host:port": _whole(lambda rng: f"{_machine(rng)}:{rng.randint(1024, 65000)}"),
    "Azure": _pair(
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={}", lambda rng: _some(rng, _ALNUM, 44) + "=="
    ),
    "webhook": _whole(lambda rng: f"https://hooks.example.com/services/{_some(rng, _ALNUM, 24)}"),
    "presigned": _pair("https://b.s3.amazonaws.com/k?X-Amz-Signature={}", _hex(64)),
    "DSN": _pair("postgres://svc:{}@db/x", _password),
    "curl -u": _pair("curl -u bot:{}@box", _password),
    "ssh key": _pair("ssh-rsa AAAAB3NzaC1yc2E{}", lambda rng: _some(rng, _ALNUM, 60)),
    "cookie": _pair("Cookie: session={}", lambda rng: _some(rng, _ALNUM, 32)),
    "customer": _pair("for customer {}", lambda rng: f"{_word(rng)} {_word(rng, 2)}".title()),
    "python line": _pair("python train.py --secret {}", _password),
    "UNC": _folder("\\\\\\\\filer", "C:\\{user}\\{project}\\x.py"),
}
