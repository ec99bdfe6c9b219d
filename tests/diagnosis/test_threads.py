"""Two threads give the diagnosis of one: every measure is taken once, whichever thread asks first."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, current_thread, main_thread
from time import sleep

import pytest

from timesink.diagnosis import engine as threads
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.rule import Rule
from timesink.diagnosis.verdicts import Clear, Verdict
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.readers import read
from timesink.records import replace
from timesink.render import render

ROOT = Path(__file__).resolve().parents[2]
TRACES = [ROOT / "src/timesink/cli/demo/gpt_before.json.xz", ROOT / "tests/data/nsys/gpt_before_5_steps.sqlite"]


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_WORTH", range(1 << 40))
    monkeypatch.setattr(threads, "usual_threads", lambda: 2)


@pytest.fixture(scope="module", params=TRACES, ids=lambda path: path.stem)
def trace(request: pytest.FixtureRequest) -> Trace:
    return read(request.param, cache=False)


@pytest.mark.slow
@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("turn", range(3))
def test_a_diagnosis_on_two_threads_is_that_of_one(trace: Trace, turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    on_two = render(diagnose(replace(trace)), "json")
    monkeypatch.setattr(threads, "usual_threads", lambda: 1)
    assert on_two == render(diagnose(replace(trace)), "json")


@pytest.mark.usefixtures("two")
def test_both_threads_apply_rules_and_each_rule_is_applied_once(trace: Trace) -> None:
    applied: list[tuple[str, bool]] = []

    def seen(rule: Rule) -> Rule:
        def check(*given: object) -> Verdict:
            applied.append((rule.code, current_thread() is main_thread()))
            sleep(0.005)
            return Clear(())

        return replace(rule, check=check, needs=())

    rulings = diagnose(trace, [seen(rule) for rule in all_rules()]).rulings
    assert [ruling.card.code for ruling in rulings] == [rule.code for rule in all_rules()]
    assert Counter(code for code, _ in applied) >= Counter(rule.code for rule in all_rules())
    assert {is_main for _, is_main in applied} == {True, False}


@pytest.mark.usefixtures("two")
def test_an_error_of_a_rule_ends_the_diagnosis_and_what_has_not_begun_never_does(trace: Trace) -> None:
    begun = []

    def check(*_: object) -> Verdict:
        begun.append(current_thread())
        sleep(0.01)
        raise ArithmeticError("a rule of somebody")

    rules = [Rule(f"AAA{number}", check, (DEVICE_OPS,)) for number in range(100, 140)]
    with pytest.raises(ArithmeticError, match="a rule of somebody"):
        diagnose(trace, rules)
    assert len(begun) < len(rules) / 2


def test_small_traces_keep_to_one_thread_and_so_does_a_single_core(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with threads.second_thread(trace) as thread:
        assert thread is None
    monkeypatch.setattr(threads, "_WORTH", range(1 << 40))
    for cores in (1, 2):
        monkeypatch.setattr(threads, "usual_threads", lambda cores=cores: cores)
        with threads.second_thread(trace) as thread:
            assert (thread is None) == (cores == 1)


def test_a_measure_is_taken_once_however_many_threads_ask() -> None:
    taken, together = Counter[int](), Barrier(8)

    @remembered
    def slow(trace: Trace) -> int:
        taken[id(trace)] += 1
        sleep(0.01)
        return id(trace)

    traces = [Trace(str(number), {}) for number in range(2)]

    def asked(number: int) -> bool:
        together.wait()
        return slow(traces[number % 2]) == id(traces[number % 2])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(asked, range(8)))
    assert set(taken.values()) == {1}


def test_a_measure_that_fails_is_taken_anew_by_who_asks_next() -> None:
    left = [ArithmeticError("once")]

    @remembered
    def failing(trace: Trace) -> str:
        if left:
            raise left.pop()
        return trace.source

    trace = Trace("t", {})
    with pytest.raises(ArithmeticError):
        failing(trace)
    assert failing(trace) == "t"
