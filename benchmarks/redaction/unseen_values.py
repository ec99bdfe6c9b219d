# ruff: noqa: E501 (a table with a kind or a place a line)
"""Sixty kinds of secrets, each made anew: what people, sites and machines are called, and what opens their doors.

Written before the cleaner was tried on them. A kind is a text to plant and the parts of it that may not be found again.
"""

from __future__ import annotations

import string
from random import Random

from benchmarks.redaction.values import Maker, Secret

_LOWER, _UPPER, _DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
_ALNUM = _LOWER + _UPPER + _DIGITS
_SYLLABLES = ["ka", "ro", "mi", "tez", "vul", "gan", "bo", "shi", "lem", "dra", "fip", "wex", "zu", "qua", "nor", "hib"]
# words of BIP-39 that software says, too
_WALLET = [
    "add",
    "address",
    "action",
    "area",
    "army",
    "array",
    "asset",
    "balance",
    "base",
    "batch",
    "bench",
    "block",
    "board",
    "body",
    "bonus",
    "bracket",
    "buffer",
    "bulk",
    "cable",
    "call",
    "cache",
    "case",
    "catch",
    "chunk",
    "clip",
    "clock",
    "close",
    "code",
    "core",
    "cross",
    "current",
    "cycle",
    "data",
    "decline",
    "defense",
    "device",
    "direct",
    "disk",
    "display",
    "dust",
    "exit",
    "expand",
    "field",
    "file",
    "filter",
    "final",
    "fix",
    "flag",
    "float",
    "flush",
    "frame",
    "front",
    "function",
    "gate",
    "gather",
    "grid",
    "group",
    "host",
    "index",
    "input",
    "kernel",
    "key",
    "layer",
    "limit",
    "link",
    "load",
    "lock",
    "loop",
    "matrix",
    "model",
    "name",
    "node",
    "normal",
    "number",
    "object",
    "output",
    "pair",
    "panel",
    "parent",
    "patch",
    "path",
    "pattern",
    "phase",
    "pool",
    "power",
    "print",
    "process",
    "profile",
    "queue",
    "random",
    "range",
    "ready",
    "record",
    "region",
    "repeat",
    "report",
    "rotate",
    "safe",
    "sample",
    "scale",
    "scan",
    "score",
    "shift",
    "signal",
    "size",
    "slice",
    "sort",
    "split",
    "stage",
    "state",
    "step",
    "table",
    "tape",
    "target",
    "task",
    "test",
    "thread",
    "time",
    "token",
    "tool",
    "trace",
    "transfer",
    "tree",
    "unit",
    "update",
    "version",
]


def _of(rng: Random, letters: str, count: int) -> str:
    return "".join(rng.choice(letters) for _ in range(count))


def _word(rng: Random, syllables: int = 3) -> str:
    return "".join(rng.choice(_SYLLABLES) for _ in range(syllables))


def _filled(form: str, rng: Random) -> Secret:
    """The form with each mark replaced: `w` a word, `W` one of capitals, `C` a capitalised one, `d` a digit, `h` a hex
    digit, `H` a capital one, `a` a letter or digit, `A` a capital or a digit, each with a count; parts in brackets are
    looked for, the whole where there is none."""
    made, parts, opened = "", list[str](), -1
    at = 0
    while at < len(form):
        mark, at = form[at], at + 1
        if mark == "[":
            opened = len(made)
        elif mark == "]":
            parts.append(made[opened:])
        elif mark == "{":
            end = form.index("}", at)
            kind, count = form[at], int(form[at + 1 : end])
            letters = {"d": _DIGITS, "h": _DIGITS + "abcdef", "H": _DIGITS + "ABCDEF", "a": _ALNUM,
                       "A": _UPPER + _DIGITS, "2": _UPPER + "234567", "b": _ALNUM + "+/", "l": _LOWER}  # fmt: skip
            if kind in letters:
                made += _of(rng, letters[kind], count)
            else:
                made += {"w": str, "W": str.upper, "C": str.title}[kind](_word(rng, count))
            at = end + 1
        else:
            made += mark
    return Secret(made, tuple(parts) or (made,))


def _form(form: str) -> Maker:
    return lambda rng: _filled(form, rng)


def _wallet(rng: Random) -> Secret:
    words = " ".join(rng.sample(_WALLET, 12))
    return Secret(words, (words,))


def _spelled(spell: str) -> Maker:
    def make(rng: Random) -> Secret:
        text = "".join(spell.format(ord(letter)) for letter in _word(rng, 3))
        return Secret(text, (text,))

    return make


def _foreign(letters: str, count: int) -> Maker:
    def make(rng: Random) -> Secret:
        text = _of(rng, letters, count)
        return Secret(text, (text,))

    return make


KINDS: dict[str, Maker] = {
    "user of capitals": _form("{W3}"), "host of Windows": _form("{W2}-{A7}"), "site of capitals": _form("{W2}_ROOT_20{d2}"),
    "DGX of capitals": _form("DGX{d1}{W2}"), "passport": _form("C{d2}X{d2}T{d2}"), "call sign": _form("K{d1}{W2}"),
    "MAC of capitals": _form("02{H10}"), "one-time seed": _form("{216}"), "licence": _form("{A5}-{A5}-{A5}-{A5}"),
    "password as a placeholder": _form("[secret2{d3}]"), "name as a placeholder": _form("[name7{d3}]"),
    "folder as a placeholder": _form("[folder9{d3}]"), "marked placeholder": _form("⟦[{w3}]⟧"),
    "wallet's key": _form("0x[{h64}]"), "wallet's address": _form("0x[{h40}]"), "wallet's words": _wallet,
    "escaped in JSON": _spelled("\\u{:04x}"), "escaped in octal": _spelled("\\{:o}"), "escaped in hex": _spelled("\\x{:02x}"),
    "escaped in a page": _spelled("&#{};"), "escaped in an address": _spelled("%{:02X}"),
    "Chinese name": _foreign("王小明李芳伟张敏静刘洋", 3), "Cyrillic name": _foreign("абвгдеиклмнопрст", 9),
    "name with accents": _foreign("éüñøçåßàö", 7), "camel name": _form("{C2}{C2}"), "dotted name": _form("{w2}.{w3}"),
    "user and digits": _form("{w3}{d2}"), "two names": _form("[{C2}] [{C3}]"), "team of words": _form("team [{w4}]"),
    "card with a point": _form("[4{d15}].0"), "card": _form("4{d3} {d4} {d4} {d4}"), "card without spaces": _form("5{d15}"),
    "social security": _form("{d3}-{d2}-{d4}"), "phone": _form("+49 30 {d8}"), "phone with brackets": _form("({d3}) {d3}-{d4}"),
    "place on Earth": _form("5{d1}.{d6}, 1{d1}.{d6}"), "date of birth": _form("19{d2}-0{d1}-1{d1}"), "one-time code": _form("{d6}"),
    "job's number": _form("job [{d8}]"), "serial number": _form("{d13}"), "bank account": _form("DE{d20}"),
    "IPv4": _form("10.{d2}.1{d2}.2{d1}"), "IPv6 short": _form("fe80::{h4}:{h4}"), "IPv6 with a port": _form("fd{h2}:{h4}::{h4}:8080"),
    "MAC": _form("{h2}:{h2}:{h2}:{h2}:{h2}:{h2}"), "UUID": _form("{h8}-{h4}-4{h3}-a{h3}-{h12}"), "digest": _form("{h40}"),
    "short commit": _form("a{h5}7"), "bucket": _form("s3://[{w4}]-models/[{w3}]/x"), "registry": _form("registry.[{w3}].io/[{w2}]/train:v1"),
    "pod": _form("[{w2}]-train-{h9}-{l5}"), "range of nodes": _form("[{w2}]{w1}-1{d2}"), "mail with a plus": _form("[{w3}]+gpu@[{w3}].dev"),
    "folder": _form("/mnt/[{w3}]/[{w4}]/train.py"), "folder of Windows": _form("D:\\[{w3}]\\[{w4}]\\run.py"),
    "token of an issuer": _form("nvapi-{a40}"), "token of letters": _form("{a32}"), "base64": _form("{b44}=="),
    "signed token": _form("eyJ{a20}.eyJ{a30}.{a43}"), "password with signs": _form("{C2}!{d3}#{w2}"),
}  # fmt: skip
