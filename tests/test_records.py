"""A record keeps its values, and is told from others by them."""

import pickle

import pytest

from timesink.records import Record, State, as_plain, field, replace


class Inner(Record):
    a: int
    b: tuple[int, ...] = ()


class Outer(Record, kw_only=True):
    inner: Inner
    others: list[Inner] = field(default_factory=list)


class Filled(State):
    a: int = 0


def test_records_are_equal_hash_alike_and_survive_pickling() -> None:
    sent = Inner(1, (2,))
    back = pickle.loads(pickle.dumps(sent))
    assert back == sent and {back: 1}[Inner(1, (2,))] == 1 and replace(sent, a=2) != sent


def test_a_record_keeps_its_values_and_a_state_does_not() -> None:
    with pytest.raises(AttributeError):
        Inner(1).a = 2  # type: ignore[misc]
    filled = Filled()
    filled.a = 2
    assert filled == Filled(2)


def test_a_record_is_plain_with_all_that_it_holds() -> None:
    whole = Outer(inner=Inner(1), others=[Inner(2, (3,))])
    assert as_plain(whole) == {"inner": {"a": 1, "b": []}, "others": [{"a": 2, "b": [3]}]}
