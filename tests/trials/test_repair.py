"""The loop of repairs on programs whose runs are told, not made: what is kept, taken back and offered, and as what."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from math import inf, prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.fixes.suite import FAULTS, TRAPS, program

from timesink.capture.errors import failure
from timesink.errors import UsageError
from timesink.recipes.proof import Unproven
from timesink.recipes.source import Source
from timesink.trials import repair, turns
from timesink.trials.records import LATE, Foretold, Repair, RepairAnswer, TrialPlan, TrialResult
from timesink.trials.repair import RepairOrder, fix_program
from timesink.trials.run import ProgramRuns, recorded, waits_of_step
from timesink.trials.workplace import Workplace, head, open_workplace
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.verify.outcomes import Effect
from timesink.verify.runs import pair_order
from timesink.views.trial import repair_conclusion, repair_page

PIECES = {piece.name: piece for piece in (*FAULTS, *TRAPS)}
LOSSES = [1.0 - 0.01 * at for at in range(36)]


class ToldRuns:
    """Runs whose step is what `step_ms` makes of the text of the script, with losses by `losses`."""

    step_ms: Callable[[str], float] = staticmethod(lambda text: 10.0)
    losses: Callable[[str], list[float]] = staticmethod(lambda text: LOSSES)
    made = 0
    kept_log = ""

    def __init__(self, program: list[str], folder: Path, check: str, place: Path, apart: object, tell: object) -> None:
        self.script, self.capture, self.base = place / "train.py", folder / "none.json", list[TrialResult]()

    def close(self) -> None:
        pass

    def fixed(self, names: tuple[str, ...] = (), capture: Path | None = None) -> TrialResult:
        ToldRuns.made += 1
        text = self.script.read_text()
        step_ms = ToldRuns.step_ms(text) * (1 + 0.002 * (ToldRuns.made % 3))
        result = TrialResult(steps_ms=[step_ms] * 30, losses=ToldRuns.losses(text), files=[str(self.script)])
        self.base.append(result)
        return result


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "rows.txt").write_text("1")
    (folder / "parts.py").write_text("x = 1\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(repair, "ProgramRuns", ToldRuns)
    monkeypatch.setattr(ToldRuns, "step_ms", staticmethod(lambda text: 10.0))
    monkeypatch.setattr(ToldRuns, "losses", staticmethod(lambda text: LOSSES))
    return folder


def in_git(*words: str, folder: Path | None = None) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    ran = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return ran.stdout


def fixed(here: Path, text: str, **asked: Any) -> tuple[RepairAnswer, Workplace]:
    (here / "train.py").write_text(text)
    workplace = open_workplace("timesink-fix", here.parent / "copy")
    (here.parent / "scratch").mkdir()
    return fix_program(["python", "train.py"], workplace, here.parent / "scratch", RepairOrder(**asked)), workplace


def test_what_wins_is_a_commit_that_says_what_was_measured(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = program([PIECES["mask_in_loop"], PIECES["anomaly_mode"]])
    monkeypatch.setattr(
        ToldRuns,
        "step_ms",
        staticmethod(lambda text: 10.0 - 4.0 * text.index("causal =") / 1e9 - 3.0 * ("anomaly" not in text)),
    )
    answer, workplace = fixed(here, text)
    assert [(one.fix, one.decided) for one in answer.repairs] == [
        ("build_once", "taken back"), ("drop_debugging", "kept"), ("foreach", "taken back"),
    ][: len(answer.repairs)]  # fmt: skip
    (kept,) = answer.kept
    message = in_git("log", "-1", "--format=%B", folder=workplace.folder)
    for said in (
        "switch debugging off",
        "Predicted: nothing",
        "10.0 ms to 7.0",
        "4 pairs",
        "0 apart",
        "Fix: drop_debugging",
    ):
        assert said in message
    assert kept.commit == in_git("rev-parse", "--short", "HEAD", folder=workplace.folder).strip()
    assert kept.effect is not None and kept.effect.ratio == pytest.approx(0.7, rel=0.01)
    assert "anomaly" not in (workplace.folder / "train.py").read_text()
    assert (here / "train.py").read_text() == text
    assert workplace.edited() == [here / "train.py"]
    page = repair_page(answer, "python train.py", "Here")
    assert [sheet.key for sheet in page.sheets] == ["kept", "taken_back"]
    assert repair_conclusion(answer).startswith("drop_debugging: a step of 10.0 ms takes 7.0")
    assert workplace.apply() == [here / "train.py"]
    assert "anomaly" not in (here / "train.py").read_text()


def test_an_edit_that_moves_losses_is_taken_back_however_much_it_wins(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ToldRuns, "step_ms", staticmethod(lambda text: 10.0 if "anomaly" in text else 5.0))
    monkeypatch.setattr(
        ToldRuns, "losses", staticmethod(lambda text: LOSSES if "anomaly" in text else [one * 1.001 for one in LOSSES])
    )
    text = program([PIECES["anomaly_mode"]])
    answer, workplace = fixed(here, text)
    (back,) = [one for one in answer.repairs if one.fix == "drop_debugging"]
    assert back.decided == "taken back" and "losses leave those before it: 0.001 apart" in back.why
    assert (workplace.folder / "train.py").read_text() == text and not workplace.edited()


@pytest.mark.parametrize("left", [0, 1, 16, 20])
def test_an_edit_that_leaves_as_many_waits_is_taken_back_and_one_that_takes_some_says_so(
    here: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """By counts in both recordings, however much shorter its steps are."""
    piece = PIECES["summed_each_step"]
    text, counts = program([piece]), {True: 16.0, False: float(left)}
    monkeypatch.setattr(ToldRuns, "step_ms", staticmethod(lambda now: 10.0 if now == text else 5.0))
    monkeypatch.setattr(repair, "recorded", lambda capture, result: result)
    monkeypatch.setattr(repair, "foretell", lambda trace: {})
    monkeypatch.setattr(repair, "edits_refused", lambda trace: frozenset())
    monkeypatch.setattr(repair, "shares_of_lines", lambda trace: {})
    monkeypatch.setattr(repair, "waits_of_step", lambda result: counts[result.steps_ms[0] > 7])
    answer, workplace = fixed(here, text, names=["remove_sync"])
    (made,) = answer.repairs
    assert made.waits == (16.0, left) and f"16 waits a step before, {left} after" in (
        in_git("log", "-1", "--format=%B", folder=workplace.folder) if left < 16 else made.why
    )
    assert made.decided == ("kept" if left < 16 else "taken back")


@pytest.mark.parametrize("losses", [[], [float("nan")] * 36])
def test_without_a_loss_to_hold_it_by_nothing_is_kept(
    here: Path, monkeypatch: pytest.MonkeyPatch, losses: list[float]
) -> None:
    monkeypatch.setattr(ToldRuns, "step_ms", staticmethod(lambda text: 10.0 if "anomaly" in text else 5.0))
    monkeypatch.setattr(ToldRuns, "losses", staticmethod(lambda text: losses))
    answer, _ = fixed(here, program([PIECES["anomaly_mode"]]))
    assert not answer.kept and repair_conclusion(answer).startswith("No edit makes")
    late = replace(answer, repairs=[replace(one, why=LATE) for one in answer.repairs])
    assert "could not be decided in the time" in repair_conclusion(late)


def test_an_edit_that_breaks_the_program_is_taken_back(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step_ms(text: str) -> float:
        if "anomaly" not in text:
            raise failure("no step was seen: it ended with status 1", "run it alone")
        return 10.0

    monkeypatch.setattr(ToldRuns, "step_ms", staticmethod(step_ms))
    answer, _ = fixed(here, program([PIECES["anomaly_mode"]]))
    (back,) = answer.repairs
    assert back.decided == "taken back" and "the program with it fails: no step was seen" in back.why


@pytest.mark.parametrize(
    ("trap", "why"),
    [
        ("teacher_trained", "where it may be trained"),
        ("shared_storage", "may share memory"),
        ("memory_needed", "nothing says that the GPU has the memory"),
        ("padding_needed", "view may need batches of one length"),
    ],
)
def test_what_its_pattern_cannot_prove_is_offered_and_never_run(here: Path, trap: str, why: str) -> None:
    ToldRuns.made = 0
    answer, _ = fixed(here, program([PIECES[trap]]))
    (offer,) = [one for one in answer.repairs if one.fix == PIECES[trap].fix]
    assert offer.decided == "offered" and why in offer.why and offer.diff.startswith("--- a/train.py")
    assert ToldRuns.made == 2
    sheet = repair_page(answer, "python train.py", "Here").sheets[-1]
    assert sheet.key == "offered" and why.lower() in str(sheet.rows[0][2]).lower()


def test_what_a_plan_foretells_most_of_comes_first_and_what_it_rules_out_is_not_tried(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"evaluate_rarely": Foretold(0.4, 0.3, 0.5, "train.py:20"), "drop_debugging": Foretold(0.1, 0.0, 0.2),
            "build_once": Foretold(0.0, 0.0, 0.01)}  # fmt: skip
    monkeypatch.setattr(repair, "foretell", lambda *_: plan)
    answer, _ = fixed(here, program([PIECES[name] for name in ("mask_in_loop", "anomaly_mode", "evaluated_each_step")]))
    assert [one.fix for one in answer.repairs] == ["evaluate_rarely", "drop_debugging"]
    assert answer.repairs[0].foretold == plan["evaluate_rarely"]
    assert answer.ended == "no edit is left that may win 2 %"


_FIXES = ["build_once", "list_operations", "evaluate_rarely"]


@pytest.mark.parametrize("ruled_out", [False, True])
@pytest.mark.parametrize("dearest", _FIXES)
def test_the_edit_whose_lines_take_most_of_the_step_comes_first_whether_or_not_a_rule_found_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, dearest: str, ruled_out: bool
) -> None:
    """But no more than the plan allows of it."""
    text = program([PIECES[name] for name in ("mask_in_loop", "scaled_one_by_one", "evaluated_each_step")])
    rows, words = text.splitlines(), ("causal =", "for p in", "score = ev")
    at = [next(n for n, row in enumerate(rows, 1) if word in row) for word in words]
    shares = {("train.py", row): 0.6 if fix == dearest else 0.1 for row, fix in zip(at, _FIXES, strict=True)}
    monkeypatch.setattr(repair, "shares_of_lines", lambda _: shares)
    if ruled_out:
        monkeypatch.setattr(repair, "foretell", lambda *_: {dearest: Foretold(0.0, 0.0, 0.03)})
    made = [one.fix for one in fixed(here, text)[0].repairs]
    assert made[-1 if ruled_out else 0] == dearest and sorted(made) == sorted(_FIXES)


def test_a_repository_gets_a_branch_and_keeps_its_files(here: Path) -> None:
    """What is not committed is part of the program; what git does not hold is copied beside it."""
    (here / "train.py").write_text("x = 1\n")
    in_git("init", "-q")
    in_git("add", "train.py")
    assert not head()
    in_git("commit", "-q", "-m", "first")
    assert head()
    (here / "train.py").write_text("x = 2\n")
    workplace = open_workplace("timesink-fix", None, here.parent / "tree")
    assert workplace.own(here / "train.py").read_text() == "x = 2\n"
    assert (workplace.folder / "data" / "rows.txt").read_text() == "1"
    assert not (workplace.folder / "data").is_symlink() and workplace.own(here / "parts.py").read_text() == "x = 1\n"
    assert not workplace.own(here / "parts.py").is_symlink()
    assert workplace.words(["python", str(here / "train.py"), "a.py"]) == [
        "python",
        str(workplace.folder / "train.py"),
        "a.py",
    ]
    workplace.own(here / "train.py").write_text("x = 3\n")
    workplace.keep("Edit", [workplace.own(here / "train.py")])
    workplace.close()
    assert in_git("show", "timesink-fix:train.py") == "x = 3\n" and (here / "train.py").read_text() == "x = 2\n"
    assert not (here.parent / "tree").exists()
    again = open_workplace("timesink-fix", None, here.parent / "tree")
    assert again.branch == "timesink-fix-2"
    again.close()
    assert in_git("branch", "--list", "timesink-fix-2") == ""


def test_a_copy_that_is_there_and_a_file_that_changed_are_refused(here: Path) -> None:
    (here / "train.py").write_text("x = 1\n")
    workplace = open_workplace("timesink-fix", here.parent / "copy")
    workplace.own(here / "train.py").write_text("x = 3\n")
    workplace.keep("Edit", [workplace.own(here / "train.py")])
    (here / "train.py").write_text("x = 2\n")
    with pytest.raises(UsageError, match="was changed meanwhile"):
        workplace.apply()
    with pytest.raises(UsageError, match="is there already"):
        open_workplace("timesink-fix", here.parent / "copy")
    with pytest.raises(UsageError, match="is an unknown edit"):
        fix_program(["python", "train.py"], workplace, here, RepairOrder(("bf17",)))


def test_an_edit_that_the_tree_does_not_prove_is_told_and_left(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the whole command once: the counter of a loop that had none."""
    monkeypatch.setattr(ToldRuns, "step_ms", staticmethod(lambda text: 10.0 - 3.0 * ("anomaly" not in text)))
    edited, said = Source.edited, list[str]()

    def unproven(source: Source, replacements: Any) -> str:
        made = edited(source, replacements)
        if "anomaly" in made:
            raise Unproven("line 3 would not be as it was")
        return made

    monkeypatch.setattr(Source, "edited", unproven)
    answer, _ = fixed(here, program([PIECES["mask_in_loop"], PIECES["anomaly_mode"]]), tell=said.append)
    assert [one.fix for one in answer.kept] == ["drop_debugging"]
    assert any("not edited: line 3 would not be as it was" in one for one in said)


@pytest.mark.parametrize(("moved", "decided"), [(0.0, "kept"), (0.4, "kept"), (3.0, "taken back")])
def test_the_spread_of_a_program_that_does_not_repeat_itself_is_that_of_more_runs_than_two(
    here: Path, monkeypatch: pytest.MonkeyPatch, moved: float, decided: str
) -> None:
    """Its first two runs are near each other by chance; all others lie as far apart as the edited one."""
    chances, made = [0.0, 0.01, 0.3, -0.3, 0.2], [0]

    def losses(text: str) -> list[float]:
        made[0] += "anomaly" in text
        by_chance = chances[made[0] % 5 - 1] if "anomaly" in text else moved
        return [one * (1 + by_chance) for one in LOSSES]

    monkeypatch.setattr(ToldRuns, "step_ms", staticmethod(lambda text: 10.0 if "anomaly" in text else 5.0))
    monkeypatch.setattr(ToldRuns, "losses", staticmethod(losses))
    answer, _ = fixed(here, program([PIECES["anomaly_mode"]]), names=["drop_debugging"])
    assert [one.decided for one in answer.repairs] == [decided]


def test_two_runs_that_agree_to_the_last_bit_by_chance_are_no_proof_that_a_program_repeats_itself(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Atomic additions come in another order each time; the edit moves results no further than that."""
    monkeypatch.setattr(ToldRuns, "made", 0)
    monkeypatch.setattr(ToldRuns, "step_ms", staticmethod(lambda text: 10.0 if "anomaly" in text else 5.0))
    others = [1.0, 1.0, 1.00007, 1.00006, 0.99996]
    monkeypatch.setattr(
        ToldRuns, "losses", staticmethod(lambda text: [one * others[(ToldRuns.made - 1) % 5] for one in LOSSES])
    )
    answer, _ = fixed(here, program([PIECES["anomaly_mode"]]), names=["drop_debugging"])
    assert [one.decided for one in answer.repairs] == ["kept"]
    page = repair_page(answer, "python train.py", "Here")
    check = answer.kept[0].check
    assert check is not None and check.apart <= check.room and check.tolerated < check.apart
    assert check.room in page.sheets[0].rows[0], "what it was held to is what is shown"


@pytest.mark.parametrize("made_on_gpu", [False, True])
def test_batches_that_are_made_on_the_gpu_are_neither_pinned_nor_made_by_workers(
    made_on_gpu: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ToldRuns.fixed

    def told(runs: ToldRuns, *given: Any, **named: Any) -> TrialResult:
        places = {"loader": f"{runs.script}:{text.count(chr(10))}"}
        known = made(runs, *given, **named)
        return replace(known, batches_made_on_gpu=made_on_gpu, places=places, memory_bytes=1)

    monkeypatch.setattr(ToldRuns, "fixed", told)
    text = program([PIECES["anomaly_mode"]]) + "\nloader = torch.utils.data.DataLoader(rows, batch_size=4)\n"
    tried = {one.fix for one in fixed(here, text)[0].repairs}
    assert ("loader_workers" in tried) == ("pin_memory" in tried) == (not made_on_gpu)


@pytest.mark.parametrize("pairs", [4, 5, 6, 10, 12, 18])
def test_the_program_with_a_kept_edit_is_the_last_run_that_had_it(pairs: int, tmp_path: Path) -> None:
    """Whoever of the last pair went second; the spread of the next edit's losses is taken from it."""
    file = tmp_path / "train.py"
    runs = SimpleNamespace(fixed=lambda capture=None: TrialResult(steps_ms=[float(file.read_text())] * 9))
    shown = turns.Shown(runs, tmp_path, {file: (b"10", b"7")}, inf)  # type: ignore[arg-type]
    for pair in range(pairs):
        for at, side in enumerate(pair_order(pair)):
            shown.launch(side, 2 * pair + at + 1)
    assert shown.changed is not None and shown.changed.steps_ms[0] == 7.0
    assert shown.so_far(Repair("x", "train.py:1", "taken back", "", "")).after_ms == pytest.approx(7.0)


def test_a_run_that_is_recorded_is_no_forked_one(tmp_path: Path) -> None:
    """CUPTI sees nothing in a forked process: waits "4 before, 80 after" were those of a GPU and of a CPU."""
    begun = list[bool]()
    apart: Any = SimpleNamespace(start=lambda variables, output, afresh: begun.append(afresh))
    runs = ProgramRuns(["python", "train.py"], tmp_path, "", apart=apart)
    for capture in ("", "rank0.json.gz"):
        begin = runs._starter(TrialPlan("", capture=capture))
        assert begin is not None
        begin({}, 1)
    assert begun == [False, True]


@pytest.mark.parametrize(("memory_bytes", "is_told"), [(0, True), (1 << 20, False)])
def test_a_recording_without_the_work_of_a_gpu_that_was_used_tells_nothing(
    memory_bytes: int, is_told: bool, tmp_path: Path
) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::item", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}]
    (tmp_path / "rank0.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    trace = recorded(tmp_path / "rank0.json", TrialResult(steps_ms=[1.0], memory_bytes=memory_bytes))
    assert (waits_of_step(trace) is not None) is is_told


def in_seconds(monkeypatch: pytest.MonkeyPatch, run_s: float) -> None:
    """Each run takes so long by the clock that a budget is measured by."""
    clock, made = [0.0], ToldRuns.fixed

    def fixed(self: ToldRuns, *given: Any, **words: Any) -> TrialResult:
        clock[0] += run_s
        return made(self, *given, **words)

    monkeypatch.setattr(ToldRuns, "fixed", fixed)
    for module in (repair, turns):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))


def noisy_mask(text: str) -> float:
    """The mask built once wins 6 %, and is one run in two 20 % slower; anomaly mode takes a third."""
    built = "    causal =" not in text
    return (9.4 * (1.2 if ToldRuns.made % 4 > 1 else 1.0) if built else 10.0) - 3.0 * ("anomaly" not in text)


def test_an_edit_that_is_not_decided_waits_until_the_others_are(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept meanwhile is another base, beside which it is run anew."""
    monkeypatch.setattr(ToldRuns, "step_ms", staticmethod(noisy_mask))
    in_seconds(monkeypatch, 1.0)
    told = list[str]()
    answer, _ = fixed(
        here, program([PIECES["mask_in_loop"], PIECES["anomaly_mode"]]),
        names=("build_once", "drop_debugging"), budget_s=70.0, tell=told.append,
    )  # fmt: skip
    assert [one.fix for one in answer.repairs] == ["drop_debugging", "build_once"]
    assert answer.repairs[0].decided == "kept" and answer.repairs[1].decided == "taken back"
    assert ToldRuns.made > 2 + 10 + 10  # its first four pairs, those of the other, and more of it


def test_where_the_time_is_up_the_pairs_that_were_made_decide(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToldRuns, "step_ms", staticmethod(lambda text: 10.0 - 3.0 * ("anomaly" not in text)))
    in_seconds(monkeypatch, 1.0)
    failing = ToldRuns.fixed

    def ended(self: ToldRuns, *given: Any, **words: Any) -> TrialResult:
        if repair.time.monotonic() >= 9.5:  # the run is cut short
            raise failure("the time was up", "")
        return failing(self, *given, **words)

    monkeypatch.setattr(ToldRuns, "fixed", ended)
    answer, _ = fixed(here, program([PIECES["anomaly_mode"]]), names=("drop_debugging",), budget_s=10.0)
    (kept,) = answer.kept
    assert kept.pairs == 3 and kept.effect is not None and kept.effect.ratio == pytest.approx(0.7, rel=0.01)


WINDOWS = """import torch
data, size = torch.randn(900), 8
torch.manual_seed(0)
for _ in range(36):
    ix = torch.randint(len(data) - size, (4,))
    x = torch.stack([data[i:i + size] for i in ix])
    y = torch.stack([data[i + 1:i + size + 1] for i in ix])
"""


@pytest.mark.parametrize("wins", ["both", "the first", "the second", "none", "both in one line"])
def test_each_of_two_like_edits_is_judged_and_none_is_offered_another_way(
    here: Path, monkeypatch: pytest.MonkeyPatch, wins: str
) -> None:
    """What is offered is of the files as they stand at the end."""
    text = WINDOWS
    if "line" in wins:
        x, y = (row.partition("= ")[2] for row in text.splitlines()[-2:])
        text = "\n".join([*text.splitlines()[:-2], f"    x, y = {x}, {y}\n"])
    cost = {
        "data[i:i": 3.0 * ("first" in wins or "both" in wins),
        "data[i + 1": 4.0 * ("second" in wins or "both" in wins),
    }
    told_ms = staticmethod(lambda now: 2.0 + sum(ms for part, ms in cost.items() if part in now))
    monkeypatch.setattr(ToldRuns, "step_ms", told_ms)
    answer, workplace = fixed(here, text, names=["batch_units"])
    assert len(answer.kept) == sum(map(bool, cost.values()))
    assert {one.decided for one in answer.repairs} <= {"kept", "taken back"} and len(answer.repairs) == 2
    assert answer.after_ms == pytest.approx(2.0, rel=0.02)
    left = (workplace.folder / "train.py").read_text()
    assert [part in left for part in cost] == [not ms for ms in cost.values()]


def test_what_is_offered_is_of_the_files_as_they_stand(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit that is kept moves the lines below it."""
    piece = "rows = torch.randn(4, 8)\nout = torch.stack([row.sum() for row in rows])\n"
    text = program([PIECES["anomaly_mode"]]) + piece
    monkeypatch.setattr(ToldRuns, "step_ms", staticmethod(lambda now: 10.0 if "anomaly" in now else 5.0))
    answer, workplace = fixed(here, text)
    (offer,) = [one for one in answer.repairs if one.fix == "batch_units"]
    assert offer.decided == "offered" and answer.kept
    line = (workplace.folder / "train.py").read_text().splitlines()[int(offer.where.partition(":")[2]) - 1]
    assert line == piece.splitlines()[1]


def kept(ratio: float, low: float, high: float, before_ms: float) -> Repair:
    effect = Effect(ratio, low, high, 0.95)
    return Repair("foreach", "train.py:1", "kept", "", "", None, before_ms, before_ms * ratio, effect, 4)


@pytest.mark.parametrize("ratios", [(0.7,), (0.7, 0.5), (0.9, 0.9, 0.9), (0.95, 0.3), ()])
def test_what_edits_win_together_is_what_their_pairs_say_whatever_the_machine_does_meanwhile(
    ratios: tuple[float, ...],
) -> None:
    """Each later pair ran on a machine twice as slow. The sentence agrees with the rows, and each row with itself."""
    edits = tuple(kept(one, one - 0.1, one + 0.04, 10.0 * 2**at) for at, one in enumerate(ratios))
    back = replace(kept(0.1, 0.1, 0.1, 10.0), decided="taken back")
    answer = RepairAnswer(10.0, (back, *edits), "the time was up", 9.0)
    assert answer.steps_ms == pytest.approx([10 * prod(ratios[:at]) for at in range(len(ratios) + 1)])
    ratio, low, high = answer.ratios
    assert answer.after_ms == pytest.approx(10 * ratio) and 0 <= low <= ratio <= high
    assert high / ratio - 1 <= sum(0.04 / one for one in ratios) + 1e-9
    page = repair_page(answer, "python train.py", "Here")
    won, least, most = (share_text(1 - one) for one in (ratio, high, low))
    if ratios:
        assert f"takes {time_text(answer.after_ms * NS_PER_MS)} ({won} less, {least} to {most}; 4 pairs" in page.lede
        assert all(row[4] / row[3] == pytest.approx(1 - row[5]) for row in page.sheets[0].rows)
