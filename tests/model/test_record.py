"""A frozen class made quickly is, to whoever uses it, the one that the standard library would make."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from timesink.startup import dataclass, field, fields, is_dataclass, replace

OPTIONS: list[dict[str, bool]] = [
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "slots": True, "repr": False},
    {"frozen": True, "slots": True, "order": True},
    {"slots": True},
]


def _made(make: Any, options: dict[str, bool]) -> Any:
    @make(**options)
    class Base:
        """A class with a field of each sort."""

        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        d: float = field(default=0.0, compare=False, repr=False)

    @make(**options)
    class Derived(Base):
        """A class that adds to another."""

        e: int | None = None

    return Derived


def _facts(made: Any) -> list[object]:
    """What can be seen of a class and its objects from outside."""
    one, same, other = made(a=1, c=[]), made(a=1, c=[], d=2.0), made(a=2, b="x", e=3)
    return [
        [(f.name, f.default, f.kw_only, f.compare) for f in fields(made)],
        is_dataclass(one),
        made.__match_args__,
        one == same,
        one == other,
        one == 1,
        repr(one).partition("object at")[0],
        dataclasses.asdict(other),
        dataclasses.astuple(replace(other, b="y")),
        dataclasses.astuple(copy.deepcopy(other)),
        [_outcome(hash, one), _outcome(made), _outcome(made, 1, 2), _outcome(made, a=1, z=2)],
        [_outcome(setattr, one, "a", 5), _outcome(delattr, one, "b")],
    ]


def _outcome(call: Any, *words: Any, **named: Any) -> object:
    try:
        call(*words, **named)
    except (TypeError, AttributeError) as error:
        return type(error), str(error)
    return None


@pytest.mark.parametrize("options", OPTIONS, ids="-".join)
def test_it_does_what_the_standard_one_does(options: dict[str, bool]) -> None:
    assert _facts(_made(dataclass, options)) == _facts(_made(dataclasses.dataclass, options))


@dataclass(frozen=True, slots=True)
class _Sent:
    """A class that is found by its name."""

    a: int
    b: tuple[int, ...] = ()


def test_objects_are_equal_hash_alike_and_survive_pickling() -> None:
    sent = _Sent(1, (2,))
    back = pickle.loads(pickle.dumps(sent))
    assert back == sent and {back: 1}[_Sent(1, (2,))] == 1
    with pytest.raises(FrozenInstanceError):
        back.a = 2  # type: ignore[misc]
