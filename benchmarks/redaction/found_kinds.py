# ruff: noqa: E501 (a table with a kind a line)
"""Two times sixty kinds of secrets for `found`, each made anew."""

from __future__ import annotations

from random import Random

from benchmarks.redaction.unseen_values import _foreign, _form, _of, _spelled
from benchmarks.redaction.values import Maker, Secret

FIRST: dict[str, Maker] = {
    "plate": _form("{W1}-{A2} {d4}"), "rack and node": _form("[r{d2}u{d2}n{d1}]"), "seat": _form("{A1}{d2}-{A1}{d2}-{A2}"), "flight": _form("{W1}{d4}/{A2}"),
    "code of letters": _form("{l3}-{l3}-{l3}"), "code of pairs": _form("{l2} {l2} {l2} {l2} {l2}"), "code of singles": _form("{l1} {l1} {l1} {l1} {l1} {l1} {l1}"), "letter and digit": _form("{l1}{d1} {l1}{d1} {l1}{d1} {l1}{d1} {l1}{d1}"),
    "letters in points": _form("{l1}.{l1}.{l1}.{l1}.{l1}.{l1}"), "letters in lines": _form("{l1}_{l1}_{l1}_{l1}_{l1}_{l1}"), "digits in points": _form("{d1}.{d1}.{d1}.{d1}.{d1}.{d1}.{d1}"), "digits apart": _form("{d2} {d2} {d2} {d2} {d2}"),
    "digits in lines": _form("{d2}_{d2}_{d2}_{d2}"), "digits by commas": _form("{d3},{d3},{d3},{d2}"), "digits by bars": _form("{d2}|{d2}|{d2}|{d2}|{d2}"), "digits by stars": _form("{d3}*{d3}*{d4}"),
    "octal bytes": _form("0o1{d2} 0o1{d2} 0o1{d2} 0o1{d2}"), "bits": lambda rng: _whole("".join(rng.choice("01") for _ in range(24))), "decimal bytes": lambda rng: _whole(" ".join(str(rng.randint(97, 122)) for _ in range(7))), "bytes by commas": lambda rng: _whole(", ".join(str(rng.randint(97, 122)) for _ in range(7))),
    "list of digits": lambda rng: _whole("[" + ", ".join(str(rng.randint(0, 9)) for _ in range(14)) + "]"), "roman": lambda rng: _whole("".join(rng.choice("IVXLCDM") for _ in range(9))), "Morse": lambda rng: _whole(" ".join("".join(rng.choice(".-") for _ in range(4)) for _ in range(8)) + _name(rng)),
    "base 32 in groups": _form("{24} {24} {24} {24}"), "base 58": _form("[5{a50}]"), "base 85": lambda rng: _whole("".join(rng.choice("abcXYZ019!#$%&()*+-;=?@^_`{|}~") for _ in range(24)) + _name(rng)), "hex of capitals": _form("{H12}"), "hex by points": _form("{h4}.{h4}.{h4}"),
    "hex in halves": _form("{h4}_{h4}_{h4}_{h4}"), "short digest": _form("g{h8}"), "digest with sign": _form("sha1-{h10}"), "tag of an image": _form("[{w3}]:sha-{h7}"), "nonce": _form("n_{a9}"),
    "time of birth": _form("{d2}.{d2}.19{d2}"), "week of birth": _form("19{d2}-W{d2}-{d1}"), "time to the second": _form("2025-0{d1}-1{d1}T1{d1}:{d2}:{d2}Z"), "seconds since 1970": _form("17{d8}"), "nanoseconds since 1970": _form("17{d17}"), "degrees": _form("52°{d2}'{d2}\"N"), "what three": _form("[{w2}.{w2}.{w2}]"),
    "handle": _form("@[{w3}_{d2}]"), "tilde user": _form("~[{w4}]"), "login and host": _form("[{w2}]@[{w3}]-{d2}"), "prompt": _form("([base]) [{w3}]@[{w4}]:~$".replace("[base]", "base")), "signature of a commit": _form("Signed-off-by: [{C2}] [{C3}]"), "initials": _form("{A1}.{A1}. [{C3}]"),
    "capital inside": _form("[{w2}{C2}{W1}]"), "plural of a name": _form("[{w4}]s"), "name and version": _form("[{w3}]-v2.1"), "name behind digits": _form("7b-[{w3}]-chat"), "model of a hub": _form("[{w3}]/[{C2}]-7B-v0.3"), "name in snake": _form("load_[{w3}]_data"), "name in camel": _form("load[{C3}]Data"), "name in a type": _form("Tensor<[{C4}]>"),
    "queue": _form("[{w2}]-a100-80g-{d2}"), "mount": _form("nfs4:[{w3}]:/vol{d1}"), "accents put together": _foreign("a\u0301e\u0301o\u0308n\u0303", 9), "Arabic digits": _foreign("٠١٢٣٤٥٦٧٨٩", 9), "HTML names": _spelled("&#x{:x};"), "Python's names": _spelled("\\N{{U+{:04X}}}"),
}  # fmt: skip


def _whole(text: str) -> Secret:
    return Secret(text, (text,))


def _name(rng: Random) -> str:
    return FIRST["tilde user"](rng).parts[0]


SECOND: dict[str, Maker] = {
    "letters as digits": lambda rng: _whole(_name(rng).translate(str.maketrans("aeoi", "4301"))), "account in groups": _form("DE{d2} {d4} {d4} {d4} {d4} {d2}"), "device of a phone": _form("{d15}"), "bank": _form("{W2}DEFF{A3}"),
    "number of a tax": _form("{d2}/{d3}/{d5}"), "book": _form("978-{d1}-{d4}-{d4}-{d1}"), "employer": _form("{d2}-{d7}"), "minutes of a place": _form("52.{d4}N 13.{d4}E"), "plus code": _form("9F4M{A4}+{A2}"), "grid of a map": _form("33U{W1}{d5}{d5}"),
    "coin": _form("bc1q{h38}"), "onion": _form("[{216}].onion"), "magnet": _form("urn:btih:[{h40}]"), "sortable id": _form("01{A24}"), "nano id": _form("{a21}"), "snowflake": _form("{d18}"), "object id": _form("{h24}"), "seven of any": _form("{a7}"),
    "slug": _form("[{w2}-{w2}-{d4}]"), "branch": _form("feature/[{w3}]-{d3}"), "issue": _form("[{W2}]-{d4}"), "request by": _form("#{d5} by [{w3}]"), "commit line": _form("[{h7}] [{w3}]"), "mail in words": _form("[{w3}] at [{w3}] dot com"),
    "mail link": _form("mailto:[{w3}]@x.org"), "call": _form("sip:+49{d9}@[{w3}]"), "directory": _form("cn=[{w3}],ou=[{w4}]"), "ticket of Kerberos": _form("[{w3}]/admin@[{W3}]"), "cloud role": _form("arn:aws:iam::[{d12}]:role/[{w3}]"), "cloud project": _form("projects/[{w3}]-{d6}/zones/x"),
    "subscription": _form("/subscriptions/[{h8}-{h4}-4{h3}-a{h3}-{h12}]"), "chat token": _form("xoxb-[{d11}-{a20}]"), "database": _form("jdbc:postgresql://[{w3}]:5432/[{w2}{d2}]"), "variable": _form("[{W3}]_TOKEN=[{a12}]"), "basic login": _form("Basic [{b20}]=="), "cookie": _form("session=[{a16}]; Path=/"),
    "web password": _form("[{w3}]:$apr1$[{a8}]$[{a22}]"), "key of a login": _form("ssh-ed25519 AAAA[{b40}]"), "line of a key": _form("MII{b60}"), "seed's address": _form("otpauth://totp/[{w3}]?x=[{216}]"), "drive": _form("/cygdrive/c/Users/[{w3}]"), "scratch": _form("/lustre/scratch/[{w3}]/[{w2}_{d2}]/"),
    "bucket of a lake": _form("abfss://[{w3}]@[{w2}{d2}].dfs"), "two surnames": _form("[{C2}]-[{C3}]"), "apostrophe": _form("O'[{C3}]"), "prefix of a name": _form("van der [{C3}]"), "title": _form("Dr. [{C3}]"), "emoji between": _form("[{w2}\U0001f600{w2}]"),
    "Hebrew name": _foreign("אבגדהוזחטיכלמנ", 8), "full-width digits": _foreign("０１２３４５６７８９", 9), "short camels": lambda rng: _whole("".join(_of(rng, "abcdefghijklmnopqrstuvwxyz", 2).title() for _ in range(6))), "vowels left out": lambda rng: _whole("".join(c for c in _name(rng) + _name(rng) if c not in "aeiou")),
    "backwards": lambda rng: _whole(_name(rng)[::-1] + _name(rng)[::-1]), "every second letter": lambda rng: _whole(".".join(_name(rng))), "hex by colons": _form("{h2}:{h2}:{h2}:{h2}:{h2}"), "date and name": _form("250113_[{w3}]_run"), "name and GPU": _form("[{w3}]_h100x8"), "host by rack": _form("[{w1}{d2}-r{d2}-u{d2}]"),
    "job of an array": _form("{d7}_{d2}"), "session of tmux": _form("[{w3}]:{d1}.{d1}"),
}  # fmt: skip
