"""A request that can mean nothing is refused before anything that reads files is imported.

What only the file can tell is read there, and is not listed here: a rank, a launch or a table that it does not hold, a
window beyond its end, a step time that its GPU work does not fit in, a file of another kind.
"""

import contextlib
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from timesink.cli.app import run
from timesink.cli.commands import ENTRIES, resolve
from timesink.cli.parser import loaded
from timesink.errors import UsageError

# T and U are traces, K a report of kernels, S a snapshot: empty files, for nobody looks into them.
REFUSED = """
show idle T --window x ; show ranges T --top 0 ; show calls T --rank x ; show start-up T --steps 1
show checks T -o no/x.md ; show compile missing.log ; show lines T --window 3s:1s ; show tables T --format xml
show T ranges --steps (
capture --loop ; capture --loop -- ./no-such-program ; capture --loop --fact x -- true
capture --loop --kernel-bench ./no-such -- true ; capture --loop --steps many -- true ; capture --redact
capture --redact hello.txt --proof -o x.txt ; capture --redact missing.json
capture nccl-bench -- ./no-such-program ; capture nccl-bench --sizes-of missing.json -- true
capture ncu --replay twice -- true ; capture nothing ; capture torch
capture torch --dry-run -- ./no-such-program ; capture torch --fact x -- true
capture torch --steps 0 -- true ; compare T ; compare T U --assume-run-sd x
compare T U --calibration missing.json ; compare T U --steps ( ; compare T U --threshold x
compare T missing.json ; demo --format xml ; diagnose ; diagnose --start-up missing.json
diagnose T --capture missing.json ; diagnose T --fact x ; diagnose T --format xml
diagnose T --limit IDL101.idle_ratio ; diagnose T --limit IDL101.idle_ratio=x
diagnose T --limit IDL101.nothing=1 ; diagnose T --limit XYZ.a=1 ; diagnose T --nothing
diagnose T --only XYZ ; diagnose T --only input-pipelin ; diagnose T --rank x ; diagnose T --skip XYZ
diagnose T --steps ( ; diagnose T --steps 1 ; diagnose T --unprofiled-step-ms -1
diagnose T --unprofiled-step-ms x ; diagnose T --window 3s:1s ; diagnose T --window x ; diagnose T -o T
diagnose T -o nowhere/x.md ; diagnose T -o x.pdf ; diagnose https://host/x.json ; diagnose missing.json
doctor --checklist a b c ; doctor --checklist empty ; doctor --checklist missing ; doctor --format xml
doctor slow --from missing.json ; explain IDL ; explain IDL101 --format xml ; explain IDL999
explain IDL999 --assumptions ; explain input-pipelin ; fix ; fix --budget x -- true
fix --only nothing -- true ; gate ; gate --at-least 1.1 -- true ; gate --before true
gate --history history.jsonl -- true ; gate --history no-such-file ; gate --limits ; gate --limits T
gate --limits T --limit "sum(kernels.count) <= 1.5x" ; gate --limits T --limit "sum(kernels.count) <= x"
gate --limits T --limit x ; gate --limits missing.json --limit "sum(kernels.count) <= 3"
gate --suite ../x -- true ; gate --threshold x -- true ; gate baseline check missing.json
gate baseline nothing ; gate baseline show --format xml ; gate baseline update -- true
gate baseline update --reason first --runs 0 -- true ; gate baseline update --reason first --runs x -- true
gate calibrate ; gate calibrate --runs 1 -- true ; kernels --metrics a --chip sm_1
kernels --next missing.json ; kernels --roofline ; kernels --roofline --point 1,2,3,no-such-gpu
kernels --roofline --point 1e9,1e6,1ms,H200,nothing ; kernels --roofline --point x
kernels --roofline K --point 1e9,1e6,1ms,H200 ; kernels K --against missing.ncu-rep
kernels K --columns nothing ; kernels K --id 0 --limit registers=x ; kernels K --id x ; kernels K --limit x
kernels K --name ( ; kernels K --pair x ; kernels K --sort nothing ; kernels missing.ncu-rep
mcp --allow-exec ; mcp --command a=true ; mcp --command x ; mcp --commands hello.txt --allow-exec
mcp --commands missing.toml --allow-exec ; mcp --root missing ; mcp --timeout 0 ; memory diff S
memory diff S missing.pickle ; memory nothing ; memory plan ; memory plan broken.json
memory plan config.json --precision nothing ; memory plan config.json --ranks 0
memory plan config.json --sharding nothing ; memory plan missing.json ; memory show missing.pickle
memory show S --top 0 ; plan --change remove_sync ; plan --measure ; plan T --change "scale 'x"
plan T --change "scale kernel:( 0.5" ; plan T --change "scale kernel:x 7" ; plan T --change "streams x"
plan T --change "workers=x" ; plan T --change fuse --measure ; plan T --change nothing
plan T --change remove-snc ; plan T --change scale ; plan T --window x ; plan machine --format nothing
plan missing.json ; query T steps --rows 0 ; query T steps --window x ; query T stepz
query missing.json steps ; ranks ; ranks --pipeline missing.jsonl
ranks --pipeline stages.jsonl --calibration missing.json ; ranks --pipeline stages.jsonl --columns x
ranks --pipeline stages.jsonl --min-overlap 2 ; ranks T --engine none ; ranks T --top 0 ; ranks missing.json
report --export nothing T -o x.pftrace ; report --export perfetto T -o T
report --export perfetto T -o nowhere/x.pftrace ; report --export perfetto T -o trace.xyz
report --export table T -o t.csv ; report --open T --at x --no-browser
report --open T --finding 1 --at 1s:2s --no-browser ; report --open T --origin nowhere
report --open missing.json ; report --serve ; report --serve T --port 65536 ; report --serve T --port x
report --serve T --window x ; report --serve missing.json ; report T --only XYZ ; report T -o nowhere/x.html
report T -o x.pdf ; report missing.json ; show ; show T --kernels-of ( ; show T --top 0 ; show T idel
show lines T --code nowhere ; show missing ; show ops ; show ops --model-config config.json
show ops --model-config config.json --gpu H200 ; show ops --model-config config.json --gpu no-such-gpu
show ops --model-config missing.json --gpu H200 ; show ops T --gpu no-such-gpu ; show statement T --fact x
show steps T --window x ; show tables missing.json ; try ; try --budget 0 -- true ; try --budget x -- true
try --only nothing -- true ; verify ; verify --at-least x --toggle A=1/2 -- true
verify --before "'true" --after true ; verify --before true ; verify --ledger add ""
verify --ledger add faster --finding CPY10l ; verify --ledger add faster --finding CPY9
verify --ledger add faster --predicted 3,2,1 ; verify --ledger add faster --predicted x
verify --ledger close 1 --outcome faster ; verify --ledger close 1 --outcome splendid
verify --ledger close x --outcome faster ; verify --ledger nothing ; verify --ledger show 7
verify --pairs 1 --toggle A=1/2 -- true ; verify --pairs x -- true
verify --step-regex ( --toggle A=1/2 -- true ; verify --threshold x --toggle A=1/2 -- true
verify --toggle A -- true ; verify --ledger 7 --toggle A=1/2 -- true
"""
FILES = ("T", "U", "K", "S", "config.json", "t.py", "history.jsonl", "stages.jsonl")
HEAVY = (
    "polars",
    "scipy",
    "duckdb",
    "mcp.server",
    "timesink.measures",
    "timesink.whatif",
    "timesink.diagnosis.registry",
)
ASKS = tuple(shlex.split(line.replace("(", "'('")) for line in REFUSED.strip().replace("\n", " ; ").split(" ; "))


def refused() -> list[tuple[int, list[str], str]]:
    """Of each request its exit code, what heavy it was the first to import, and what it said."""
    answers = []
    for words in ASKS:
        before = set(sys.modules)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = run(words)
        answers.append((code, [name for name in HEAVY if name in sys.modules and name not in before], said.getvalue()))
    return answers


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, list[str], str]]:
    """The same, asked in one process that has imported nothing else, by the request."""
    folder = tmp_path_factory.mktemp("refused")
    for name in FILES:
        (folder / name).touch()
    (folder / "empty").mkdir()
    here = Path(__file__)
    program = (
        f"import json, sys; sys.path.insert(0, {str(here.parents[2])!r}); from tests.end_to_end.{here.stem} import *; "
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{program}assert not sys.modules.keys() & set(HEAVY); print(json.dumps(refused()))"],
        capture_output=True, text=True, check=True, cwd=folder, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return dict(zip(map(shlex.join, ASKS), json.loads(done.stdout.splitlines()[-1]), strict=True))


def test_what_is_refused_at_the_door_imports_nothing_that_reads_files(
    answers: dict[str, tuple[int, list[str], str]],
) -> None:
    """First contact: 0.64 s of CPU for an error; with polars and scipy left out it takes what Python itself takes."""
    assert {words: heavy for words, (_, heavy, _) in answers.items() if heavy} == {}
    assert {words: code for words, (code, _, _) in answers.items() if code != 2} == {}
    assert not [words for words, (_, _, said) in answers.items() if "is empty" in said or "a fault of" in said]


def test_every_command_refuses_something_at_the_door() -> None:
    asked = {resolve(words)[1] for words in ASKS}
    assert set(ENTRIES) - asked == {"doctor SYMPTOM"}  # which is `doctor` with words


@pytest.mark.parametrize("name", ENTRIES)
def test_a_folder_that_is_not_there_is_told_before_anything_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`try -o` measured for three minutes, and then had nowhere to write."""
    monkeypatch.chdir(tmp_path)
    command = loaded(name)
    for below in getattr(command, "commands", {"": command}).values():
        writes = [
            param for param in below.params if (param.metavar or "").startswith("FILE") and "place" in _asked(param)
        ]
        assert writes or not any("FILE|-" in (param.metavar or "") for param in below.params)
        for param in writes:
            with pytest.raises(UsageError, match=r"cannot write none/x\.md: No such file or directory"):
                param.type.convert("none/x.md", param, None)


def _asked(param: click.Parameter) -> str:
    return getattr(getattr(param.type, "must", None), "__name__", "")
