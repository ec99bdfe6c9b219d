"""Every command with nothing, with --help, with one good and one bad request.

The exit code is the one that is documented, success leaves stderr empty, and nothing ever ends in a traceback.

`make smoke` runs this file with the newest and with the oldest dependencies that pyproject.toml allows.
"""

import importlib.util
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click import Group
from tests.capture.stand_ins import NCU_HELP, NSYS_HELP, tool

from timesink.cli.app import run
from timesink.cli.commands import ENTRIES, resolve
from timesink.cli.parser import loaded
from timesink.render.schemas import schema, schemas_of

ROOT = Path(__file__).resolve().parents[2]
Captured = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class Case:
    """Requests to one command, in a folder where `workplace` has put files. `good` ends with `code`.

    `alone` is the exit code without arguments; `library` is what an extra of timesink brings.
    """

    good: str
    bad: str
    alone: int = 2
    code: int = 0
    library: str = ""


CASES = {
    "doctor SYMPTOM": Case("doctor step slow", "doctor step slow --from no-such-file", alone=0),
    "doctor --checklist": Case("doctor --checklist", "doctor --checklist no-such-file", alone=0),
    "capture torch": Case("capture torch --print -- python train.py", "capture torch --dry-run -- ./no-such-program"),
    "capture nsys": Case(
        "capture nsys --tool ./nsys --print -- true", "capture nsys --tool ./no-such-tool --print -- true"
    ),
    "capture nccl-bench": Case("capture nccl-bench -- PYTHON bench.py", "capture nccl-bench -- ./no-such-program"),
    "capture ncu": Case("capture ncu --tool ./ncu --print -- true", "capture ncu --tool ./ncu --replay twice -- true"),
    "capture --loop": Case("capture --loop --help", "capture --loop --steps many -- python train.py"),
    "kernels --next": Case("kernels --next before.json.gz", "kernels --next no-such-file"),
    "capture --redact": Case("capture --redact before.json.gz -o redacted.json.gz", "capture --redact no-such-file"),
    "diagnose": Case("diagnose before.json.gz", "diagnose before.json.gz --only XYZ"),
    "report": Case("report before.json.gz -o report.html", "report broken.json"),
    "show statement": Case("show statement before.json.gz", "show statement kernels.ncu-rep"),
    "show steps": Case("show steps before.json.gz", "show steps before.json.gz --top 0"),
    "show lines": Case("show lines before.json.gz", "show lines broken.json"),
    "show idle": Case("show idle before.json.gz", "show idle broken.json"),
    "diagnose --start-up": Case("diagnose --start-up started/rank0.json.gz", "diagnose --start-up before.json.gz"),
    "show start-up": Case("show start-up started/rank0.json.gz", "show start-up before.json.gz"),
    "show compile": Case("show compile compile.log", "show compile no-such-file"),
    "kernels": Case("kernels kernels.ncu-rep", "kernels before.json.gz"),
    "kernels --roofline": Case("kernels --roofline kernels.ncu-rep", "kernels --roofline broken.json"),
    "show ops": Case("show ops before.json.gz", "show ops --model-config config.json --gpu no-such-gpu"),
    "ranks": Case("ranks before.json.gz", "ranks before.json.gz --engine none"),
    "ranks --pipeline": Case("ranks --pipeline stages.jsonl", "ranks --pipeline broken.json"),
    "memory show": Case("memory show snapshot.pickle", "memory show kernels.ncu-rep"),
    "memory plan": Case("memory plan --hf-config config.json", "memory plan broken.json"),
    "memory diff": Case("memory diff snapshot.pickle snapshot.pickle", "memory diff snapshot.pickle no-such-file"),
    "query": Case("query before.json.gz steps", "query before.json.gz stepz", alone=0, library="duckdb"),
    "report --open": Case("report --open no-such-file", "report --open before.json.gz --origin nowhere", code=2),
    "report --serve": Case("report --serve no-such-file", "report --serve before.json.gz --port 65536", code=2),
    "report --export FORMAT": Case(
        "report --export table before.json.gz --table device_ops -o ops.csv",
        "report --export perfetto before.json.gz -o trace.xyz",
    ),
    "plan": Case("plan before.json.gz", "plan kernels.ncu-rep", alone=0),
    "plan --change CHANGE": Case("plan before.json.gz --change remove_sync", "plan before.json.gz --change nothing"),
    "try": Case("try --help", "try --only nothing -- true"),
    "fix": Case("fix --help", "fix --only nothing -- true"),
    "compare": Case("compare before.json.gz after.json.gz --exit-zero", "compare before.json.gz broken.json"),
    "verify": Case("verify --pairs 2 --warm-up-pairs 0 --exit-zero --toggle A=1/2 -- PYTHON t.py", "verify --pairs x"),
    "verify --ledger add": Case(
        "verify --ledger add faster --finding CPY101", "verify --ledger add faster --finding CPY9"
    ),
    "verify --ledger show": Case("verify --ledger show", "verify --ledger show 7", alone=0),
    "verify --ledger close": Case(
        "verify --ledger --root kept close 1 --outcome faster", "verify --ledger close 1 --outcome splendid"
    ),
    "gate": Case("gate --history history.jsonl", "gate --history no-such-file"),
    "gate baseline update": Case(
        "gate baseline update --reason first --runs 1 -- PYTHON t.py",
        "gate baseline update --reason first --runs 0 -- true",
    ),
    "gate baseline check": Case("gate baseline check pyproject.toml", "gate baseline check broken.json"),
    "gate baseline show": Case("gate baseline show", "gate baseline show --format xml", alone=0),
    "gate calibrate": Case("gate calibrate --runs 5 -- PYTHON t.py", "gate calibrate --runs 1 -- PYTHON t.py"),
    "plan machine": Case("plan machine --help", "plan machine --format nothing"),
    "demo": Case("demo", "demo --format xml", alone=0),
    "doctor": Case("doctor", "doctor --format xml", alone=0),
    "explain": Case("explain IDL101", "explain IDL999", alone=0),
    "show tables": Case("show tables before.json.gz", "show tables broken.json"),
    "kernels --metrics": Case("kernels --metrics dram__bytes.sum", "kernels --metrics a --chip sm_1"),
    "mcp": Case("mcp --help", "mcp --allow-exec", library="mcp"),
    "show": Case("show before.json.gz", "show before.json.gz --top 0"),
    "show checks": Case("show before.json.gz checks", "show broken.json checks"),
    "show ranges": Case("show before.json.gz ranges", "show broken.json ranges"),
    "show calls": Case("show calls before.json.gz --top 3", "show calls broken.json"),
    "gate --limits": Case(
        "gate before.json.gz --limits --limit mean(steps.period_ns)<=1s", "gate --limits before.json.gz"
    ),
}
# Without arguments these run, or need a terminal: the good request stands for it.
RUN_ALONE = ("demo", "mcp", "plan machine")


def leaves(name: str, command: Any) -> Iterator[str]:
    """The command, or the commands of a group."""
    if not isinstance(command, Group):
        yield name
        return
    for below, other in command.commands.items():
        yield from leaves(f"{name} {below}", other)


def test_no_command_is_left_out() -> None:
    assert sorted(CASES) == sorted(leaf for entry in ENTRIES for leaf in leaves(entry, loaded(entry)))


def typed(name: str) -> list[str]:
    """What is typed for a command, something in the place of its value."""
    stands_for = {"FORMAT": "perfetto", "CHANGE": "remove_sync", "SYMPTOM": "slow"}
    return [stands_for.get(word, word) for word in name.split()]


TRAIN = "import timesink, time\nfor _ in range(8):\n    time.sleep(0.001)\n    timesink.step()\n"
STARTED = {
    "timesink_manifest": 1, "files": [{"file": "rank0.json.gz"}], "missing": [],
    "ranks": [{"rank": 0, "start_up_ns": [["imports", "torch", 2_000_000_000], ["compilation", "", 500_000_000]]}],
}  # fmt: skip
BENCH = """import json, sys
head = {"ranks": 2, "gpu": None, "library": "gloo", "calls": [{"kind": "send", "bytes": 4096, "time_ns": 9e3}]}
json.dump(head, open(sys.argv[-1], "w"))
"""
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1376,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000,
    "max_position_embeddings": 8192, "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def files_of_a_user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the requests name."""
    folder = tmp_path_factory.mktemp("smoke")
    for side in ("before", "after"):
        (folder / f"{side}.json.gz").write_bytes(
            files("timesink.cli").joinpath(f"demo/gpt_{side}.json.xz").read_bytes()
        )
    for name, packed in (
        ("snapshot.pickle", "tests/data/memory/gpt_bf16_adamw.pickle.xz"),
        ("kernels.ncu-rep", "benchmarks/kernels/reports/gemm.ncu-rep.xz"),
    ):
        (folder / name).write_bytes(lzma.decompress((ROOT / packed).read_bytes()))
    (folder / "started").mkdir()
    (folder / "started" / "rank0.json.gz").write_bytes((folder / "before.json.gz").read_bytes())
    (folder / "started" / "manifest.json").write_text(json.dumps(STARTED))
    (folder / "compile.log").write_bytes((ROOT / "tests/data/compile/item_break.text.log").read_bytes())
    (folder / "broken.json").write_text('{"traceEvents": 7}')
    (folder / "config.json").write_text(json.dumps(LLAMA))
    (folder / "t.py").write_text(TRAIN)
    (folder / "bench.py").write_text(BENCH)
    parts = [("A", 0, 0.0), ("B", 1, 0.4)]  # a rank each
    stages = [
        {"item": item, "rank": rank, f"t{name}0": item + late, f"t{name}1": item + late + 0.6}
        for item in range(12)
        for name, rank, late in parts
    ]
    (folder / "stages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in stages))
    (folder / "history.jsonl").write_text(
        "".join(json.dumps({"mean": 1.0 + 0.001 * (n % 3)}) + "\n" for n in range(30))
    )
    (folder / "pyproject.toml").write_text('[tool.timesink.suites.train]\nthreshold = "3%"\n')
    (folder / "kept").mkdir()
    opened = {"event": "add", "number": 1, "date": "2026-01-01", "hypothesis": "x", "finding": "", "predicted_ms": None}
    (folder / "kept" / "ledger.jsonl").write_text(json.dumps({**opened, "change": ""}) + "\n")
    for name, helping in (("nsys", NSYS_HELP), ("ncu", NCU_HELP)):
        (folder / name).write_text(tool(name, helping, "2024.1.1", ""))
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def workplace(files_of_a_user: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That folder as the current one."""
    monkeypatch.chdir(files_of_a_user)
    monkeypatch.setenv("TIMESINK_CACHE_DIR", str(files_of_a_user / "cache"))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return files_of_a_user


def asked(request: str) -> list[str]:
    """The words of a request."""
    return [sys.executable if word == "PYTHON" else word for word in request.split()]


def check(capsys: Captured, words: list[str], code: int) -> str:
    """Run the words in this process; what they print. Any exception but ours fails the test by itself."""
    ended = run(words)
    out, err = capsys.readouterr()
    assert ended == code, f"{ended}: {out}{err}"
    assert "Traceback" not in out + err
    assert (err == "") == (code == 0), err
    return out


def plain(name: str) -> str:
    """The command without what stands for a value."""
    return " ".join(word for word in name.split() if not word.isupper())


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("name", CASES)
def test_every_command_has_help(name: str, capsys: Captured) -> None:
    assert f"Usage: timesink {plain(name)}" in check(capsys, [*typed(name), "--help"], 0)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("name", [name for name in CASES if name not in RUN_ALONE])
def test_every_command_without_arguments_says_what_it_needs(name: str, capsys: Captured) -> None:
    check(capsys, typed(name), CASES[name].alone)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("name", CASES)
def test_every_command_refuses_what_makes_no_sense(name: str, capsys: Captured) -> None:
    check(capsys, asked(CASES[name].bad), 5 if "no-such-tool" in CASES[name].bad else 2)


OTHER_ANSWERS = {
    "kernels --id": "kernels kernels.ncu-rep --id 0",
    "kernels --columns": "kernels kernels.ncu-rep --columns sm_pct",
    "kernels --against": "kernels kernels.ncu-rep --against kernels.ncu-rep --id 0",
    "explain --assumptions": "explain --assumptions",
}
IN_TEXT_TOO = ("diagnose", "kernels", "gate", "explain")  # one of each class of results


def offers_json(name: str) -> bool:
    """Whether the command has an option --format, with which all write JSON."""
    _, entry, rest = resolve(typed(name))
    command = loaded(entry)
    for word in rest if isinstance(command, Group) else ():
        command = command.commands[word]
    return any("--format" in param.opts for param in command.params)


@pytest.mark.usefixtures("workplace")
@pytest.mark.slow
@pytest.mark.parametrize("name", [*CASES, *OTHER_ANSWERS])
def test_every_command_does_its_work_in_silence(name: str, capsys: Captured) -> None:
    """Its JSON obeys a schema that is shipped, and begins with one envelope (first contact defect 22)."""
    command = name if name in CASES else name.partition(" --")[0]
    case = CASES[command]
    if case.library and importlib.util.find_spec(case.library) is None:
        pytest.skip(f"pip install {case.library}: what the extra of timesink brings")
    words = asked(OTHER_ANSWERS.get(name, case.good))
    if not offers_json(command) or "--help" in words or name in IN_TEXT_TOO:
        out = check(capsys, words, case.code)
        assert out or case.code or "-o" in case.good
    if offers_json(command) and "--help" not in words:
        split = words.index("--") if "--" in words else len(words)
        document = json.loads(check(capsys, [*words[:split], "--format", "json", *words[split:]], case.code))
        assert document["command"] == plain(command)
        assert document["source"] == [
            word for word in words[:split] if word != "redacted.json.gz" and Path(word).is_file()
        ]
        faults = {
            form: [*jsonschema.Draft202012Validator(schema(form)).iter_errors(document)] for form in schemas_of(command)
        }
        assert [] in faults.values(), faults


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    ["", "query before.json.gz top-kernels", "diagnose before.json.gz", "diagnose no-such-file", "mcp"],
)
def test_first_contact_defect_6_the_end_of_the_process_is_silent_too(words: str, workplace: Path) -> None:
    """First contact defect 6: what libraries print as the interpreter ends."""
    library = {"query": "duckdb", "mcp": "mcp"}.get(words.partition(" ")[0], "")
    if library and importlib.util.find_spec(library) is None:
        pytest.skip(f"pip install {library}: what the extra of timesink brings")
    done = subprocess.run(
        [sys.executable, "-m", "timesink", *words.split()],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120, cwd=workplace,
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )  # fmt: skip
    refused = "no-such-file" in words
    assert done.returncode == (2 if refused else 0), done.stderr
    assert (len(done.stderr.splitlines()) <= 3) if refused else (done.stderr == ""), done.stderr
