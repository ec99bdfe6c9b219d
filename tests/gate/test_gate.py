"""The gate: every answer of every capture keeps every law (`laws.py`), and says nothing false (`sentences.py`).

Of each capture the answers are taken once. The quick part reads captures of every kind; behind the marker `slow`, all
that the repository and the folder of public profiles hold (`make sweep` every one of the fault suite).
"""

import json
import lzma
import shlex
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in
from tests.gate.advised import advice_can_be_followed
from tests.gate.answers import Answers, answers_of
from tests.gate.doors import COMMAND
from tests.gate.laws import LAWS, OF_PAGES, broken
from tests.gate.pages import commands_of_pages
from tests.gate.sentences import false_sentences
from tests.profiles import ABSENT, EACH, PROFILES, swept

from timesink.cli.app import run
from timesink.errors import TimesinkError
from timesink.model.trace import Trace
from timesink.readers import read

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = ROOT / "benchmarks" / "faults" / "captures"
ARCHIVES = sorted(CAPTURES.glob("*.tar.xz"))
UNMARKED = sorted(CAPTURES.glob("*/*.tar.xz"))
DEMO = sorted(Path(str(files("timesink.cli").joinpath("demo"))).glob("*.json.xz"))
READ_ALONE = (".json", ".gz", ".sqlite", ".ncu-rep", ".pickle", ".log", ".csv", ".nsys-rep", ".xz")
OWN = [
    path
    for folder in ("nsys", "cases", "memory")
    for path in sorted((ROOT / "tests" / "data" / folder).glob("*"))
    if path.suffix in READ_ALONE
]
PUBLIC = sorted(path for path in PROFILES.rglob("*") if path.suffix in READ_ALONE and path.is_file())
RANKS = PROFILES / "public" / "kineto" / "dlrm_8rank"
TOO_LARGE = ("many_devices.sqlite",)  # refused, or minutes: its own test holds it
SAMPLE = (
    "adamw_one_by_one", "attention_written_out", "broken_in_pieces", "channels_first", "compiled_gpt_training",
    "fp32_training", "gelu_written_out", "graph_decode", "item_per_layer", "logits_cast_up", "needless_contiguous",
    "odd_width", "outputs_to_host", "pageable_batch", "printed_loss", "streams_in_lockstep",
)  # fmt: skip
# Programs that accumulate gradients, and over how many micro-batches; no other program does.
MICRO_BATCHES = {
    "printed_loss.high": 6, "printed_loss.low": 4, "collected_per_microbatch": 4, "exchanged_per_microbatch": 4,
}  # fmt: skip


def captured(archive: Path, folder: Path) -> Iterator[tuple[str, Trace, list[Path]]]:
    """The captures of an archive, by name."""
    unpacked(archive, folder)
    for name, paths in captures_in(folder).items():
        yield name, read(paths[0] if len(paths) == 1 else paths, cache=False), paths


def check(of: Answers, *, pages: bool = False) -> None:
    """All laws hold for a capture."""
    micro_batches = next((count for name, count in MICRO_BATCHES.items() if of.name.startswith(name)), 1)
    faults = broken(of, (*LAWS, *OF_PAGES) if pages else LAWS)
    faults += [f"sentences: {fault}" for fault in false_sentences(of.diagnosis, of.trace, micro_batches)]
    assert faults == []


def answers_of_file(path: Path, folder: Path) -> Answers | None:
    """What is said of a file, unpacked into the folder; None where it is no profile, and refused."""
    if path.suffix == ".xz":
        plain = folder / path.stem
        plain.write_bytes(lzma.decompress(path.read_bytes()))
        path = plain
    try:
        return answers_of(path.name, read(path, cache=False), (path,))
    except TimesinkError as refused:
        assert str(refused)
        return None


def check_file(path: Path, folder: Path, *, pages: bool) -> None:
    """All laws hold for a file."""
    if path.name in TOO_LARGE:
        pytest.skip("minutes")
    if of := answers_of_file(path, folder):
        check(of, pages=pages)


@pytest.mark.slow
@pytest.mark.parametrize("path", [*DEMO, *OWN], ids=lambda path: path.name)
def test_a_capture_of_ours_keeps_every_law(path: Path, tmp_path: Path) -> None:
    check_file(path, tmp_path, pages=path == DEMO[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "tool"), [(program, ("torch", "nsys")[at % 2]) for at, program in enumerate(SAMPLE)]
)
def test_a_planted_fault_keeps_every_law(program: str, tool: str, tmp_path: Path) -> None:
    """First contact defect 3."""
    for name, trace, paths in captured(CAPTURES / f"{program}.{tool}.tar.xz", tmp_path):
        if name.endswith("high.fault"):
            check(answers_of(name, trace, tuple(paths)))


@pytest.mark.slow
@pytest.mark.parametrize("archive", swept(ARCHIVES), ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_every_capture_of_the_fault_suite_keeps_every_law(archive: Path, tmp_path: Path) -> None:
    measured = json.loads((CAPTURES / "measured.json").read_text())
    for name, trace, paths in captured(archive, tmp_path):
        is_high = name.endswith("high.fault")
        check(answers_of(name, trace, tuple(paths)), pages=is_high or EACH == 1)
        program, strength, side = name.split(".")
        steps_ms = measured.get(f"{program}/{strength}", {}).get(f"{side}_ms")
        if steps_ms and (EACH == 1 or is_high):
            check(answers_of(name, trace.with_unprofiled_step(min(steps_ms) * 1e6), tuple(paths)))


@pytest.mark.slow
@pytest.mark.parametrize("archive", swept(UNMARKED), ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_advice_on_every_unmarked_capture_can_be_followed(archive: Path, tmp_path: Path) -> None:
    for name, trace, paths in captured(archive, tmp_path):
        assert list(advice_can_be_followed(answers_of(name, trace, tuple(paths)))) == []


@pytest.mark.slow
@pytest.mark.skipif(not PUBLIC, reason=ABSENT)
@pytest.mark.parametrize("path", [*PUBLIC, RANKS], ids=lambda path: path.name)
def test_a_public_profile_keeps_every_law(path: Path, tmp_path: Path) -> None:
    check_file(path, tmp_path, pages=True)


ONE_OF_A_KIND = {path.suffixes[0]: path for path in (*OWN, *DEMO)}.values()


@pytest.mark.slow
@pytest.mark.parametrize("path", ONE_OF_A_KIND, ids=lambda path: path.name)
def test_every_command_that_is_printed_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A capture is only printed; the others run. 5 says that a tool is not on this machine."""
    monkeypatch.chdir(tmp_path)
    if (of := answers_of_file(path, tmp_path)) is None:
        return
    said = COMMAND.findall("\n".join((of.screen, of.doors["-v"], of.doors["md"])))
    for command in dict.fromkeys((*said, *commands_of_pages(of))):
        if len(shlex.split(command)) == 2 or (" -- " in command and " capture " not in command):
            continue  # a command's name alone, or one that runs the reader's program
        words = [str(of.paths[0]) if word == "TRACE" else word for word in shlex.split(command)[1:]]
        if words[0] == "capture" and "--" in words:
            words.insert(words.index("--"), "--print")
        assert run(words) in ((0, 5) if words[0] == "capture" else (0,)), f"{command}\n{capsys.readouterr().err}"
