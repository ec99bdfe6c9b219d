"""What a trial makes of timed blocks and of losses."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from timesink.recipes import Drift
from timesink.trials.agent import Script, Trial
from timesink.trials.checks import alike_losses, hold_losses, stray_weights
from timesink.trials.course import _promise, _winners
from timesink.trials.pairs import Pair, TimedBlock, interval, is_decided
from timesink.trials.records import (
    Confirmed,
    Foretold,
    LossCheck,
    Period,
    TrialAnswer,
    TrialPlan,
    TrialResult,
    Tried,
)
from timesink.views.trial import conclusion, trial_page

KEPT = ("bf16", "compile")
PROOF = Confirmed((10.0, 10.2), (4.0, 4.08), LossCheck(20, 1e-4, 0.0, 3e-2))


def blocks(pairs: list[tuple[float, float]]) -> list[Pair]:
    """Blocks of one piece each."""
    return [(TimedBlock(changed, changed), TimedBlock(plain, plain)) for changed, plain in pairs]


def test_a_ratio_has_the_range_of_its_pairs() -> None:
    pairs = [(8.0, 10.0), (7.9, 10.0), (8.2, 10.0), (8.1, 10.0)]
    assert interval(blocks(pairs)) == pytest.approx((0.805, 0.79, 0.82))
    assert interval(blocks([*pairs, *pairs[:3], (30.0, 10.0)]))[2] == pytest.approx(
        0.82
    )  # of eight, one may be a neighbour's
    assert interval(blocks([(8.0 + at / 10, 10.0) for at in range(12)]))[1:] == pytest.approx((0.82, 0.89))  # two here


class Looks(Trial):
    """A trial whose blocks say what a test planted, in turn."""

    def __init__(self, tried: list[Tried], again: list[Tried]) -> None:
        super().__init__(TrialPlan("f.json"))
        self.result.tried, self.again, self._deadline = tried, again, float("inf")

    def _share(self, value: Any) -> list[Any]:
        return [value]  # of one rank, where no PyTorch is

    def _try(self, names: Sequence[str], beside: Sequence[str] = ()) -> Generator[None, None, Tried]:
        yield
        return replace(self.again.pop(0), name=" + ".join(names), beside=tuple(beside))

    def _keep(self, name: str, kept: list[str]) -> Script:
        kept.append(name)
        self.result.kept = tuple(kept)
        yield


UNSURE, SURE = (Tried("", pairs=12, ratio=0.7, low=0.6, high=high, shortest=0.65) for high in (1.02, 0.8))


@pytest.mark.parametrize(
    ("first", "again", "kept"),
    [
        (UNSURE, SURE, ("bf16",)),  # and tried again alone, then as the whole that is kept
        (UNSURE, UNSURE, ()),
        (replace(UNSURE, shortest=0.99), SURE, ()),  # the shortest pieces say no: no second look
        (SURE, SURE, ("bf16",)),
    ],
)
def test_what_only_seems_to_win_has_a_second_look(first: Tried, again: Tried, kept: tuple[str, ...]) -> None:
    trial = Looks([replace(first, name="bf16")], [again] * 2)
    list(trial._join())
    assert trial.result.kept == kept


@pytest.mark.parametrize(("one", "kept"), [(SURE, ("bf16",)), (UNSURE, ())])
def test_what_surely_won_is_kept_when_the_time_is_up(one: Tried, kept: tuple[str, ...]) -> None:
    """The fresh processes that confirm it have time of their own."""
    trial = Looks([replace(one, name="bf16"), replace(one, name="compile")], [])
    trial._deadline = 0.0
    list(trial._join())
    assert trial.result.kept == kept


def test_outputs_of_runs_are_held_call_by_call() -> None:
    late, early = TrialResult(losses=[3.0, 4.0], first_loss=12), TrialResult(losses=[1.0, 2.0, 3.0], first_loss=10)
    assert alike_losses(late, early, late) == ([3.0, 4.0], [3.0], [3.0, 4.0])


def test_a_plan_survives_its_text() -> None:
    plan = TrialPlan("f.json", ("tf32",), ("compile",), ("bf16",), budget_s=7.0, period=Period(0, "train", 1))
    assert TrialPlan.from_json(plan.to_json()) == plan


def test_a_change_wins_by_two_per_cent_and_surely() -> None:
    assert Tried("a", pairs=4, ratio=0.97, low=0.95, high=0.99, shortest=0.97).wins(0.02)
    assert not Tried("a", pairs=4, ratio=0.985, low=0.98, high=0.99, shortest=0.97).wins(0.02)
    assert not Tried("a", pairs=4, ratio=0.9, low=0.7, high=1.1, shortest=0.9).wins(0.02)
    assert not Tried("a", pairs=4, ratio=0.9, low=0.8, high=0.95, shortest=1.0).wins(0.02)
    assert not Tried("a", failed="CUDA out of memory", ratio=0.5, high=0.6, shortest=0.5).wins(0.02)


@pytest.mark.parametrize(
    ("pairs", "decided"),
    [
        ([(9.0, 10.0)] * 3, False),  # too few
        ([(9.0, 10.0), (10.2, 10.1)], False),
        ([(10.5, 10.0), (10.0, 10.05)], True),  # never shorter by what it must be
        ([(10.5, 10.0)], False),
        ([(9.0, 10.0)] * 4, True),
        ([(9.0, 10.0), (9.05, 10.05), (9.0, 10.0), (18.0, 10.0), (9.0, 10.0)], False),  # the range holds a loss
        ([(9.0, 10.0), (9.05, 10.05), (9.0, 12.0), (9.0, 10.0), (9.0, 14.0)], True),  # the shortest pieces repeat
        ([(9.0, 10.0), (8.0, 10.4), (7.5, 12.0), (8.5, 10.0), (9.0, 14.0)], False),  # and here they do not
        ([(20.0, 10.0), (22.0, 10.0), (20.0, 11.0), (20.1, 10.0)], True),  # a loss that repeats
        ([(9.0 + at, 10.0 + at % 5) for at in range(12)], True),  # no more are made
    ],
)
def test_pairs_are_made_until_their_range_or_their_shortest_pieces_repeat(
    pairs: list[tuple[float, float]], decided: bool
) -> None:
    assert is_decided(blocks(pairs), 0.02) is decided


@pytest.mark.parametrize(
    ("base", "changed", "wins"),
    [
        ((10.0, 10.2), (9.0, 9.1), True),
        ((10.0, 10.2), (9.9, 10.0), False),  # shorter by 1.5 %
        ((10.0, 12.0), (9.0, 10.5), False),  # shorter by the mean alone
        ((10.0, 12.0, 10.1), (9.0, 10.5, 9.1), True),  # one of three of each may be a neighbour's
        ((10.0, 12.0, 10.1), (9.0, 10.5, 10.5), False),
    ],
)
def test_fresh_processes_confirm_what_wins_in_nearly_all_of_them(
    base: tuple[float, ...], changed: tuple[float, ...], wins: bool
) -> None:
    assert Confirmed(base, changed, None).wins(0.02) is wins


@pytest.mark.parametrize(
    ("running", "interval", "wins"),
    [
        (None, (0.69, 0.78), True),
        (Tried("tf32", pairs=8, ratio=0.75, low=0.7, high=0.8), (0.69, 0.78), True),  # they agree
        (Tried("tf32", pairs=12, ratio=0.966, low=0.894, high=0.995), (0.69, 0.995), False),  # a public program's
        (Tried("tf32", pairs=8, ratio=0.85, low=0.8, high=0.9), (0.69, 0.9), True),
        (Tried("tf32", pairs=8, ratio=0.6, low=0.55, high=0.65), (0.55, 0.78), True),
    ],
)
def test_where_the_running_program_says_otherwise_the_interval_holds_both(
    running: Tried | None, interval: tuple[float, float], wins: bool
) -> None:
    """In fresh processes TF32 won 27 % of a program that the host holds up; measured apart, nothing."""
    proof = Confirmed((130.0, 137.0, 143.0), (98.0, 100.4), None, running=running)
    assert proof.interval == pytest.approx(interval, abs=0.01) and proof.wins(0.02) is wins


def test_a_gain_below_what_it_is_worth_to_change_is_not_sure() -> None:
    """ "Shown to be at least 2 % shorter" is said of the whole interval."""
    assert not Confirmed((10.0, 10.1), (9.0, 9.99), None).wins(0.02)
    assert Confirmed((10.0, 10.1), (9.0, 9.7), None).wins(0.02)


def test_one_process_of_a_kind_leaves_more_open_than_its_pieces_do() -> None:
    assert Confirmed((10.0,), (9.7,), None).interval == pytest.approx((0.873, 1.067))
    assert Confirmed((10.0, 10.0), (9.0, 9.0), None, error=0.05).interval == pytest.approx((0.836, 0.964), abs=1e-3)


def test_of_changes_that_exclude_each_other_the_better_one_is_kept() -> None:
    tried = [
        Tried(name, pairs=4, ratio=r, high=r + 0.01, shortest=r)
        for name, r in (("compile", 0.8), ("compile_graph", 0.7), ("tf32", 0.9))
    ]
    assert _winners(tried, 0.02) == ("compile_graph", "tf32")


BASE = [2.0, 1.9, 1.8, 1.7, 1.65, 1.6, 1.55, 1.5]


@pytest.mark.parametrize(
    ("changed", "drift", "holds"),
    [
        (BASE, "exact", True),
        ([loss * 1.0005 for loss in BASE], "rounding", True),
        ([loss * 1.0005 for loss in BASE], "exact", False),
        ([loss * 1.01 for loss in BASE], "rounding", False),  # rounding moves no first loss by a hundredth
        ([*BASE[:4], *(loss * 1.01 for loss in BASE[4:])], "rounding", True),  # but training amplifies it
        ([*BASE[:4], *(loss * 1.2 for loss in BASE[4:])], "rounding", False),
        ([loss * 1.2 for loss in BASE], "lower precision", False),
        ([*BASE[:6], 1.5, 1.55], "other batches", True),  # the same losses in another order
        ([*BASE[:6], 2.5, 2.55], "other batches", False),
        ([float("nan")] * 8, "lower precision", False),
        ([float("nan")] * 8, "other batches", False),
    ],
)
def test_losses_hold_within_what_a_change_may_move(changed: list[float], drift: Drift, holds: bool) -> None:
    check = hold_losses(BASE, BASE, changed, drift)
    assert check is not None and check.holds is holds


def test_weights_are_held_against_what_two_runs_of_the_program_differ() -> None:
    """As far as chance moves them; a step that is left out, or a weight that is frozen, is seen all the same."""
    drawn = Random(1)
    base, again, changed = ([drawn.uniform(0.9, 1.1) for _ in range(34)] for _ in range(3))
    assert stray_weights(base, again, changed) == ""
    assert "34 of 34" in stray_weights(base, again, [0.3 * moved for moved in base])
    assert "3 of 34" in stray_weights(base, again, [0.0] * 3 + changed[3:])
    assert "3 of 34" in stray_weights(base, base, [0.8 * moved for moved in base[:3]] + base[3:])


def test_without_losses_there_is_no_check() -> None:
    assert hold_losses([], [], [], "rounding") is None


def test_what_wins_most_for_its_cost_and_its_chance_is_tried_first() -> None:
    foretold = {"compile": Foretold(0.3, 0.1, 0.5), "tf32": Foretold(0.2, 0.1, 0.3), "bf16": Foretold(0.0, 0.0, 0.1)}
    order = sorted(("compile", "bf16", "set_to_none", "tf32"), key=lambda name: -_promise(name, foretold))
    assert order == ["tf32", "compile", "set_to_none", "bf16"]
    beyond = {"compile_graph": Foretold(0.92, 0.9, 0.95), "tf32": Foretold(0.04, 0.0, 0.1)}
    assert _promise("tf32", beyond) > _promise("compile_graph", beyond)  # no replay knows so much


def test_the_page_says_what_to_keep_and_why_the_rest_goes() -> None:
    tried = [
        Tried("bf16", pairs=3, without_ms=10, with_ms=5, ratio=0.5, low=0.48, high=0.52),
        Tried("tf32", refused="no GPU"),
    ]
    result = TrialResult(tried=tried, base_ms=[10.0, 10.1], kept=KEPT, rungs=[("bf16", 5.0), ("compile", 4.0)])
    result.places = {"model": "train.py:12"}
    left_out, foretold = {"foreach": "losses leave those of the base"}, {"bf16": Foretold(0.4, 0.3, 0.5)}
    answer = TrialAnswer(result, 9.0, KEPT, {KEPT: PROOF}, left_out, foretold)
    page = trial_page(answer, "python train.py")
    changes, rungs, fresh, make, left = page.sheets
    assert changes.rows[0][:7] == ("bf16", None, 10e6, 5e6, 0.4, 0.5, pytest.approx(0.48))
    assert rungs.rows == (("bf16", 5e6, 0.5), ("compile", 4e6, pytest.approx(0.2)))
    assert fresh.rows[0][0] == "bf16 + compile" and fresh.rows[0][3] == pytest.approx(0.6)
    assert [row[0] for row in make.rows] == list(KEPT) and make.rows[0][2] == "train.py:12"
    assert left.rows == (("tf32", "No GPU"), ("foreach", "losses leave those of the base"))
    said = "1 of 1 changes that apply were tried. bf16 + compile: a step of 10.1 ms takes 4.04 ms (60.0 % less, 59.2 %"
    assert conclusion(answer).startswith(said)
    assert conclusion(TrialAnswer(TrialResult(), 1.0)).startswith("No change applies")


def test_the_page_says_what_was_left_and_what_ended_the_trial() -> None:
    tried = [
        Tried("tf32", pairs=4, ratio=0.9, low=0.88, high=0.92, shortest=0.9),
        Tried("bf16", left="the time was up"),
    ]
    answer = TrialAnswer(TrialResult(tried=tried), 9.0, budget_s=60.0, ended="the budget was over")
    page = trial_page(answer, "python train.py")
    ended, more = page.notes
    assert page.lede.startswith(
        "1 of 2 changes that apply were tried. tf32 won 10.0 % (8.00 % to 12.0 %) in the running"
    )
    assert "the budget was over" in ended and "bf16" in more and "2m" in more
    assert answer.left == ("bf16",)
