# ruff: noqa: E501 (a table with a kind a line)
"""A third and a fourth sixty kinds of secrets for `found`: of hospitals, offices, clusters, code and many scripts."""

from __future__ import annotations

import base64
from random import Random

from benchmarks.redaction.unseen_values import _foreign, _form, _of, _word
from benchmarks.redaction.values import Maker, Secret

_GIVEN = [
    "James",
    "Mary",
    "Wei",
    "Yuki",
    "Priya",
    "Olga",
    "Ahmed",
    "Ines",
    "Lars",
    "Fatima",
    "Pedro",
    "Chloe",
    "Kenji",
    "Amara",
    "Sven",
    "Leila",
]
_SURNAMES = [
    "Smith",
    "Garcia",
    "Chen",
    "Nguyen",
    "Kowalski",
    "Okafor",
    "Mueller",
    "Rossi",
    "Tanaka",
    "Haddad",
    "Svensson",
    "Dubois",
    "Petrov",
    "Silva",
]
_SHORT = ["Li", "Wu", "Ng", "Xu", "Yi", "Bo", "Ko", "Ma", "Oh", "Hu", "Ye", "Lu"]
_CITIES = [
    "Zurich",
    "Lausanne",
    "Osaka",
    "Bangalore",
    "Austin",
    "Toronto",
    "Haifa",
    "Tallinn",
    "Lyon",
    "Porto",
    "Krakow",
    "Nairobi",
]
_CODE_NAMES = [
    "falcon",
    "river",
    "thunder",
    "orchid",
    "copper",
    "glacier",
    "raven",
    "meadow",
    "saffron",
    "lantern",
    "walnut",
    "harbor",
]
_DICE = [
    "anchovy",
    "trombone",
    "velvet",
    "gopher",
    "marzipan",
    "tulip",
    "cactus",
    "ferret",
    "pudding",
    "wombat",
    "satchel",
    "nectar",
]
_BAD_PASSWORDS = [
    "qwerty",
    "letmein",
    "dragon",
    "monkey",
    "iloveyou",
    "sunshine",
    "princess",
    "football",
    "hunter",
    "shadow",
]
_NATO = [
    "alfa",
    "bravo",
    "charlie",
    "delta",
    "echo",
    "foxtrot",
    "golf",
    "hotel",
    "india",
    "juliett",
    "kilo",
    "lima",
    "mike",
    "oscar",
    "papa",
    "quebec",
    "romeo",
]
_NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_COMPANIES = [
    "Initech",
    "Globex",
    "Hooli",
    "Vandelay",
    "Umbrella",
    "Wonka",
    "Cyberdyne",
    "Tyrell",
    "Soylent",
    "Massive",
]


def _whole(text: str) -> Secret:
    return Secret(text, (text,))


def _some(words: list[str], count: int, between: str = " ") -> Maker:
    return lambda rng: _whole(between.join(rng.sample(words, count)))


def _person(form: str) -> Maker:
    return lambda rng: _whole(form.format(rng.choice(_GIVEN), rng.choice(_SURNAMES)))


def _told(form: str, words: list[str]) -> Maker:
    """The form about one of the words, which is looked for."""

    def make(rng: Random) -> Secret:
        word = rng.choice(words)
        return Secret(form.format(word, rng.randint(10, 99)), (word,))

    return make


def _moved(first: int) -> Maker:
    """A word in letters that stand elsewhere in Unicode."""
    return lambda rng: _whole("".join(chr(first + ord(letter) - ord("a")) for letter in _word(rng, 3)))


def _between(sign: str) -> Maker:
    return lambda rng: _whole(sign.join(_word(rng, 3)))


def _braced(form: str) -> Maker:
    """The form with braces where it has percent signs."""

    def make(rng: Random) -> Secret:
        made = _form(form)(rng)
        return Secret(made.text.replace("%", "{", 1).replace("%", "}"), made.parts)

    return make


def _mangled(rng: Random) -> Secret:
    one, two = _word(rng, 2), _word(rng, 3)
    return Secret(f"_ZN{len(one)}{one}{len(two)}{two}Ev", (one, two))


def _packed(rng: Random) -> Secret:
    return _whole(base64.b64encode(_word(rng, 4).encode()).decode())


THIRD: dict[str, Maker] = {
    "patient": _form("MRN{d7}"), "invoice": _form("INV-2025-{d5}"), "badge": _form("E{d6}"), "salary": _form("EUR {d2}.{d3},00"), "British account": _form("GB{d2}NWBK{d14}"), "fingerprint of PGP": _form("{H4} {H4} {H4} {H4} {H4}"),
    "fingerprint of SSH": _form("SHA256:[{b43}]"), "key of JSON": _braced('%"kty":"oct","k":"[{a43}]"%'), "recovery codes": _form("{a5}-{a5} {a5}-{a5}"), "wireless": _form("WIFI:S:[{w3}];T:WPA;P:[{a12}];;"), "key of a cloud": _form("AKIA{A16}"), "token of a hub": _form("hf_{a34}"),
    "hook of a chat": _form("hooks.slack.com/services/T{A8}/B{A8}/[{a24}]"), "signed link": _form("?sv=2024-01-01&sig=[{b43}]"), "database of users": _form("postgres://[{w3}]:[{a12}]@db/[{w2}]"), "service of a cluster": _form("[{w3}].[{w2}].svc.cluster.local"), "host of EC2": _form("ip-10-{d2}-1{d2}-{d2}"), "host of GKE": _form("gke-[{w3}]-pool-{h8}-{l4}"),
    "nodes of Slurm": lambda rng: Secret(f"{(word := _word(rng, 2))}[0{_of(rng, '0123456789', 2)}-9{_of(rng, '0123456789', 2)}]", (word,)), "IPv4 in IPv6": _form("::ffff:10.{d2}.1{d2}.{d1}"), "account of Windows": _form("S-1-5-21-{d9}-{d9}-{d9}-{d4}"), "share": _form("\\\\[{w3}]\\share\\[{w2}]"), "home of a Mac": _form("/Users/[{w3}]/Library"), "file as address": _form("file:///home/[{w3}]/x.py"),
    "environment of conda": _form("/opt/conda/envs/[{w3}]/lib"), "private module": _form("[{w3}]_core/layers.py"), "class in a module": _form("[{w3}].models.[{C3}]Block"), "module of torch": _form("nn.Module: [{C3}]Encoder_0"), "mangled": _mangled, "template": _form("void [{w3}]::[{w2}]_kernel<float>(float*)"),
    "kernel of Triton": _form("triton_poi_fused_[{w3}]_0"), "node of autograd": _form("[{C3}]Backward0"), "range of a layer": _form("[{w3}]/fwd/layer{d2}"), "corpus": _form("[{w3}]-corpus-v{d1}.{d1}"), "experiment": _form("exp{d3}_lr1e-4_[{w3}]"), "person": _person("{} {}"),
    "person by surname": _person("{1}, {0}"), "person in a login": lambda rng: _whole(f"{rng.choice(_GIVEN)[0]}{rng.choice(_SURNAMES)}".lower()), "short surnames": _some(_SHORT, 3), "town": _told("site {0}", _CITIES), "code name": _some(_CODE_NAMES, 2), "passphrase": _some(_DICE, 4, "-"),
    "common password": lambda rng: _whole(rng.choice(_BAD_PASSWORDS) + _of(rng, "0123456789", 2)), "company": _told("{0} Inc", _COMPANIES), "by NATO": _some(_NATO, 6), "Japanese": _foreign("あいうえおかきくけこさしすせそ", 6), "Korean": _foreign("김이박최정강조윤장임한오서신", 4), "Devanagari": _foreign("कखगघचछजझटठडढ", 6),
    "invisible between": _between("\u200b"), "bold letters": _moved(0x1D41A), "letters in circles": _moved(0x24D0), "packed word": _packed, "query of an address": _form("?user=[{w3}]&t=1"), "U+ notation": lambda rng: _whole(" ".join(f"U+{ord(letter):04X}" for letter in _word(rng, 3))),
    "protein": lambda rng: _whole(_of(rng, "ACDEFGHIKLMNPQRSTVWY", 22)), "gene": lambda rng: _whole(_of(rng, "ACGT", 24)), "GUID of InfiniBand": _form("{h4}:{h4}:{h4}:{h4}"), "kernel of Linux": _form("5.15.0-{d3}-[{w3}]"), "glued to a type": _form("float32_[{w3}]"), "within a GEMM": _form("cutlass_80_[{w3}]_s16816gemm_f16_64x64_32x6_nn_align8"),
}  # fmt: skip

FOURTH: dict[str, Maker] = {
    "order": _form("PO{d8}"), "policy": _form("{W1}{d2}-{d6}-{A2}"), "room": _form("Geb. {d2}, Zi. {d3}"), "amount": _form("${d1},{d3},{d3}.{d2}"), "Swiss insurance": _form("756.{d4}.{d4}.{d2}"), "coin of privacy": _form("4{a94}"),
    "key of age": _form("age1{l58}"), "code in halves": _form("{d3} {d3} {d3}"), "token of git": _form("github_pat_[{a22}_{a59}]"), "token of a package": _form("pypi-AgEI[{b60}]"), "login of Docker": _form('"auth": "[{b28}]"'), "string of storage": _form("AccountName=[{w3}];AccountKey=[{b40}]=="),
    "cache": _form("redis://:[{a16}]@[{w3}]:6379/0"), "entry of LDAP": _form("uid=[{w3}],dc=[{w2}]"), "identity of a workload": _form("spiffe://[{w3}].org/ns/[{w2}]"), "registry of Windows": _form("HKCU\\Software\\[{C3}]"), "address as a number": _form("[167{d7}] and [172{d7}]"), "link of git": _form("git@[{w3}].com:[{w2}]/[{w3}].git"),
    "mail of a university": _form("[{w3}].[{w2}]@[{w3}].ac.uk"), "run of wandb": _form("run-2025{d4}_{d6}-[{a8}]"), "file of events": _form("events.out.tfevents.17{d8}.[{w3}]"), "checkpoint": _form("step_{d5}-[{w3}].safetensors"), "trace of a host": _form("[{w3}]_{d4}.17{d11}.pt.trace.json"), "actor": _form("ray::[{C3}]Worker.run"),
    "refused to": _form("Permission denied for [{w3}]"), "mention": _form("cc @[{w3}]"), "birthday in words": _form("1{d1} March 19{d2}"), "hashtag": _form("#[{w3}]"), "possessive": _form("[{C3}]'s run"), "type behind": _form("[{w3}]_fp16"),
    "architecture before": _form("sm90_[{w3}]_gemm_bf16"), "tile behind": _form("[{w3}]128x64"), "argument of a template": _form("at::native::vectorized_elementwise_kernel<4, [{w3}]::Fn>"), "lambda": _braced("[{w3}]::%lambda(int)#1%"), "operator of a library": _form("torch.ops.[{w3}].[{w2}]_fwd"), "dispatch key": _form("aten::[{w3}]_"),
    "frame": _form("[{w3}].py(12): [{w2}]_step"), "bound method": _form("<bound method [{C3}].f of [{w3}]>"), "object at": _form("<[{w3}].Loader object at 0x7f{h10}>"), "compiled from": _form("[{w3}]_fn_cuda_[{h16}]"), "three names": lambda rng: _whole(f"{rng.choice(_GIVEN)} {rng.choice(_GIVEN)} {rng.choice(_SURNAMES)}"), "name by underscores": lambda rng: _whole(f"{rng.choice(_GIVEN)}_{rng.choice(_SURNAMES)}".lower()),
    "initials and name": lambda rng: _whole(f"{_of(rng, 'ABCDEFG', 1)}. {rng.choice(_SURNAMES)}"), "town and year": lambda rng: _whole(f"{rng.choice(_CITIES)}{rng.randint(2019, 2026)}"), "code name glued": _some(_CODE_NAMES, 2, ""), "code name of camels": lambda rng: _whole("".join(word.title() for word in rng.sample(_CODE_NAMES, 2))), "passphrase by points": _some(_DICE, 3, "."), "company and machine": _told("{0}-dgx-{1}", [name.lower() for name in _COMPANIES]),
    "digits in words": _some(_NUMBERS, 8), "pinyin": lambda rng: _whole(" ".join(f"{rng.choice(['wang', 'li', 'xiao', 'ming', 'zhang', 'hao'])}{rng.randint(1, 4)}" for _ in range(3))), "Thai": _foreign("กขคงจฉชซญ", 7), "Arabic": _foreign("ابتثجحخدذرزسش", 8), "Braille": _foreign("⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚", 8), "full-width letters": _moved(0xFF41),
    "soft hyphens": _between("\u00ad"), "letters apart": _between(" "), "quoted printable": lambda rng: _whole("".join(f"={ord(letter):02X}" for letter in _word(rng, 3))), "reversed login": lambda rng: _whole(rng.choice(_SURNAMES).lower()[::-1]), "molecule": lambda rng: _whole("".join(rng.choice(["C", "N", "O", "(=O)", "c1ccccc1", "Cl", "[nH]", "S"]) for _ in range(14))), "volume of a card": _form("GPU-[{h8}-{h4}-{h4}-{h4}-{h12}]"),
}  # fmt: skip
