"""The one kind of record: a class of named values that never changes, and one that is filled as it goes.

msgspec makes them in compiled code: quicker than `dataclasses`, of which each of five hundred would compile its own
methods. What stands alone (`capture`, `memory_plan`) or below this file (`sandbox`) uses the standard library's.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from msgspec import Struct, ValidationError, convert, field, structs

__all__ = ["Record", "State", "as_plain", "field", "field_names", "from_plain", "replace"]

Made = TypeVar("Made")

if TYPE_CHECKING:

    @dataclass_transform(frozen_default=True, field_specifiers=(field,))
    class Record:
        """A record whose values stay. Two are equal where their values are; `eq=False`: where they are the same one."""

        def __init_subclass__(cls, **options: bool) -> None: ...

    @dataclass_transform(field_specifiers=(field,))
    class State:
        """A record whose values are set as it goes."""

        def __init_subclass__(cls, **options: bool) -> None: ...

else:

    class Record(Struct, frozen=True):
        """A record whose values stay. Two are equal where their values are; `eq=False`: where they are the same one."""

    class State(Struct):
        """A record whose values are set as it goes."""


def replace(record: Made, /, **changes: Any) -> Made:
    """The same with other values. A dataclass is taken too."""
    made: Any = structs if isinstance(record, Struct) else dataclasses
    changed: Made = made.replace(record, **changes)
    return changed


def field_names(kind: Any) -> tuple[str, ...]:
    """The names of a record's values, in order."""
    names: tuple[str, ...] = kind.__struct_fields__
    return names


def as_plain(record: Any) -> dict[str, Any]:
    """A record by the names of its values, and so every record within it, in lists, tuples and mappings too."""
    return {name: _plain(getattr(record, name)) for name in field_names(record)}


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return as_plain(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def from_plain(kind: type[Made], plain: Any) -> Made:
    """The record of that kind that `as_plain` gave. `ValueError` names the value that is missing or of another type."""
    try:
        return convert(plain, kind)
    except ValidationError as error:
        raise ValueError(str(error)) from error
