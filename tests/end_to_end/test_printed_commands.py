"""Every command that an answer, an error, a rule's page or a server's text prints is one that can be typed.

The texts in the sources are parsed; answers and refusals over a folder of captures are parsed too, and what they say to
type next is typed, where no program has to run for it.
"""

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.commands import ROOT, VERDICTS, workplace
from tests.docs.printed import SOURCE, UNFINISHED, commands, refused, texts

from timesink.cli.app import run
from timesink.cli.commands import resolve

MODULES, PAGES = sorted(SOURCE.rglob("*.py")), sorted(SOURCE.rglob("*.md"))

STANDS_FOR = {
    "TRACE": "run.json.gz", "FILE": "run.json.gz", "REPORT": "report.ncu-rep", "FOLDER": "traces",
    "TRACE.json.gz": "run.json.gz", "REPORT.ncu-rep": "report.ncu-rep", "NEW": "b.json.gz", "OLD": "a.json.gz",
    "PATH": "run.json.gz", "BEFORE": "before.json.gz", "AFTER": "after.json.gz", "PATTERN": "ProfilerStep",
    "CODE": "IDL101",
}  # fmt: skip
# These run a program, serve, or write where they stand; tests of their own run them.
NOT_TYPED = {
    *("capture", "try", "fix", "verify", "gate", "mcp", "demo", "report --open", "report --serve", "plan machine"),
}

SHOWS = {"capture torch", "capture nsys", "capture ncu"}

ANSWERS = """
diagnose run.json.gz
diagnose -v run.json.gz
diagnose b.json.gz
diagnose report.ncu-rep
diagnose -v report.ncu-rep
diagnose run.json.gz report.ncu-rep
diagnose traces
diagnose gpt_before_5_steps.sqlite
diagnose -v gpt_before_5_steps.sqlite
diagnose logs
diagnose snapshot.pickle
show run.json.gz
show idle run.json.gz
show ops run.json.gz
show ops report.ncu-rep
show ranges run.json.gz
show calls run.json.gz
show lines run.json.gz
show compile run.json.gz
show compile logs
show checks run.json.gz
show tables run.json.gz
show statement run.json.gz
plan run.json.gz
plan run.json.gz --change feed-loader
plan traces
kernels report.ncu-rep
kernels report.ncu-rep --id 0
kernels before.ncu-rep --against after.ncu-rep
kernels --next run.json.gz
kernels --roofline report.ncu-rep
kernels --metrics dram__bytes.sum
ranks traces
ranks run.json.gz
ranks --pipeline rank0.jsonl rank1.jsonl
memory show snapshot.pickle
memory plan gpt.json
memory diff snapshot.pickle snapshot.pickle
compare before.json.gz after.json.gz
explain
explain --assumptions
explain IDL101
doctor
doctor step slow
doctor --from run.json.gz
verify --ledger show
gate baseline show
help
help diagnose
"""
REFUSALS = """
diagnose none.json
diagnose https://host/x.json
diagnose before.json.gz after.json.gz
diagnose run.json
diagnose cpu.json
diagnose broken.json
diagnose hello.txt
diagnose run.json.gz --only XYZ
diagnose run.json.gz --limit abc
diagnose run.json.gz -o x.pdf
diagnose run.json.gz --unprofiled-step-ms 0.1
diagnose run.json.gz --steps 3000
diagnose run.json.gz --window 9s:10s
show idle report.ncu-rep
show ops logs
show lines report.ncu-rep
show statement report.ncu-rep
plan run.json.gz --change nothing
plan report.ncu-rep
kernels run.json.gz
kernels report.ncu-rep --id 99
kernels report.ncu-rep --columns nothing
ranks report.ncu-rep
memory show report.ncu-rep
memory plan broken.json
compare report.ncu-rep report.ncu-rep
compare hello.txt hello.txt
compare run.json.gz report.ncu-rep
gate --suite train -- python train.py
gate --limits run.json.gz
gate run.json.gz
gate --history none.jsonl
verify --toggle A
verify --ledger show 7
verify --ledger close 7 --outcome faster
try --only nothing -- python train.py
fix --only nothing -- python train.py
explain IDL999
explain IDL
report run.json.gz -o x.pdf
report --export table run.json.gz --table nothing -o x.csv
kernels --metrics nothing --chip sm_90
query run.json.gz nothing
diagnos run.json.gz
idle run.json.gz
"""
SAY_WHAT_TO_TYPE = (
    "diagnose run.json.gz", "diagnose report.ncu-rep", "diagnose gpt_before_5_steps.sqlite", "diagnose traces",
    "plan run.json.gz", "doctor step slow", "explain IDL101",
    "diagnose before.json.gz after.json.gz", "kernels run.json.gz", "diagnos run.json.gz",
)  # fmt: skip
LINES = [line for line in (ANSWERS + REFUSALS).splitlines() if line]


@pytest.mark.slow
@pytest.mark.parametrize("path", [*MODULES, *PAGES], ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_what_the_sources_print_is_taken_by_the_command_line(path: Path) -> None:
    told = texts(path) if path.suffix == ".py" else [path.read_text("utf-8")]
    found = {line: refused(line) for text in told for line in commands(text)}
    assert {line: why for line, why in found.items() if why not in ("", UNFINISHED)} == {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Captures of every kind, files that are none, and that folder as the current one."""
    folder = tmp_path_factory.mktemp("printed")
    environment = workplace(folder)
    shutil.copy(ROOT / "tests/data/nsys/gpt_before_5_steps.sqlite", folder)
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 5, "dur": 5}'
    (folder / "cpu.json").write_text(f'{{"traceEvents": [{event}]}}')
    (folder / "broken.json").write_text('{"traceEvents": 7}')
    (folder / "kernels_gemm").mkdir()
    shutil.copy(folder / "report.ncu-rep", folder / "kernels_gemm")
    (folder / "hello.txt").write_text("hello\nworld\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PATH", environment["PATH"])
        patch.setenv("COLUMNS", "100")
        patch.setenv("TIMESINK_CACHE_DIR", os.fspath(folder / "cache"))
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_what_an_answer_says_to_type_can_be_typed(line: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    typed: dict[str, int] = {}
    code = run(shlex.split(line))
    assert code == 0 or line in REFUSALS, f"{code}: {capfd.readouterr().err}"
    for found in commands(" ".join("\n".join(capfd.readouterr()).split())):
        assert refused(found) in ("", UNFINISHED), found
        if refused(found) or "[OPTIONS]" in found:
            continue
        spoken = (STANDS_FOR.get(word, word) for word in shlex.split(found)[1:])
        words = [file for word in spoken for file in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
        name, entry, rest = resolve(words)
        if entry in SHOWS and "--" in words:  # what it would run is shown instead
            typed[found] = run([*entry.split(), "--print", *rest])
            assert typed[found] == 0, f"{found}: {capfd.readouterr().err}"
            continue
        if {name, entry, name.partition(" ")[0]} & NOT_TYPED or len(words) < 2 or found in typed:
            continue
        typed[found] = run(words)
        said = capfd.readouterr()
        assert typed[found] in VERDICTS.get(name, (0,)), f"{found}: {said.err}"


@pytest.mark.slow
@pytest.mark.parametrize("line", SAY_WHAT_TO_TYPE)
def test_an_answer_says_what_to_type(line: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(shlex.split(line))
    assert any(not refused(found) for found in commands(" ".join("\n".join(capfd.readouterr()).split())))
