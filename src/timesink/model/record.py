"""`dataclass`, made quickly: the standard one compiles six functions for every frozen class, a command has hundreds.

Here a frozen class shares its methods with all others, its `__init__` is compiled when the first object is made, and if
it is of the usual sort its fields are read here, where nobody asks of each whether it is one.
Everything else is as in the standard library: fields, defaults, slots, `replace`, `asdict`, pickling. Classes that are
not frozen, or are ordered, are standard ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, Never

__all__ = ["MISSING", "asdict", "dataclass", "field", "fields", "is_dataclass", "replace"]


def _dataclass(cls: Any = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True, **others: bool) -> Any:
    """As `dataclasses.dataclass`; of a field, `hash` is not heeded."""
    if cls is None:
        return lambda named: _dataclass(named, frozen=frozen, eq=eq, repr=repr, **others)
    if not frozen or "order" in others:
        return dataclasses.dataclass(frozen=frozen, eq=eq, repr=repr, **others)(cls)
    made: Any = _slotted(cls, **others) or dataclasses.dataclass(**_NO_METHODS, **others)(cls)
    own = made.__dict__
    made.__init__ = _first_init(made)
    made.__setattr__, made.__delattr__ = _set_nothing, _delete_nothing
    if "__getstate__" not in own:
        made.__getstate__, made.__setstate__ = _state, _restore
    if repr and "__repr__" not in own:
        made.__repr__ = _shown
    if eq:
        key = _key_of(made)
        if "__eq__" not in own:
            made.__eq__ = lambda self, other: (
                key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented
            )
        if own.get("__hash__") is None:
            made.__hash__ = lambda self: hash(key(self))
    return made


_NO_METHODS: Final = {"init": False, "eq": False, "repr": False}
_LIKE: Final[Any] = dataclasses.make_dataclass("_LIKE", [("any", "int")], **_NO_METHODS)  # type: ignore[arg-type]
_FIELD: Final = _LIKE.__dataclass_fields__["any"]._field_type


def _slotted(cls: Any, *, slots: bool = False, kw_only: bool = False, **others: bool) -> Any:
    """The class with slots for fields; None where it is not one of nothing but fields, with no base."""
    if not slots or others or cls.__bases__ != (object,):
        return None
    kinds, body, declared = get_annotations(cls), dict(cls.__dict__), {}
    for name, kind in kinds.items():
        default = body.pop(name, MISSING)
        if not isinstance(kind, str) or "Var" in kind or kind.endswith("KW_ONLY") or type(default).__hash__ is None:
            return None
        one: Any = default if isinstance(default, dataclasses.Field) else field(default=default)
        one.name, one.type, one._field_type = name, kind, _FIELD
        declared[name] = one
        if one.kw_only is MISSING:
            one.kw_only = kw_only
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    body |= {
        "__slots__": tuple(declared),
        "__match_args__": tuple(name for name, one in declared.items() if one.init and not one.kw_only),
        "__dataclass_fields__": declared,
        "__dataclass_params__": _LIKE.__dataclass_params__,
    }
    made: Any = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


_FEW: Final = 16  # objects are made sooner than a function is compiled


def _first_init(cls: type) -> Callable[..., None]:
    """An `__init__` for the first few objects; for more, and for a call that is wrong, the compiled one."""
    count = 0

    def first(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal count
        count += 1
        if count > _FEW or not _filled(self, cls, args, kwargs):
            made = _compiled_init(cls)
            cls.__init__ = made  # type: ignore[misc]
            made(self, *args, **kwargs)

    return first


def _filled(self: Any, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the arguments are those of the fields, which now have them."""
    declared = [one for one in cls.__dataclass_fields__.values() if one._field_type is _FIELD and one.init]
    values = dict(zip([one.name for one in declared if not one.kw_only], args, strict=False))
    if len(values) < len(args) or not values.keys().isdisjoint(kwargs):
        return False
    values |= kwargs
    for one in declared:
        if one.name not in values:
            if one.default is MISSING and one.default_factory is MISSING:
                return False
            values[one.name] = one.default if one.default_factory is MISSING else one.default_factory()
    if len(values) > len(declared):
        return False
    for one in declared:
        object.__setattr__(self, one.name, values[one.name])
    if hasattr(cls, "__post_init__"):
        self.__post_init__()
    return True


def _compiled_init(cls: Any) -> Callable[..., None]:
    """`__init__` with a parameter for every field. The text that is compiled holds names of fields only."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_none": MISSING}
    head: dict[Any, list[str]] = {False: [], True: []}
    body = []
    for one in (one for one in fields(cls) if one.init):
        value = name = one.name
        if one.default_factory is not MISSING:
            scope[f"_of_{name}"] = one.default_factory
            head[one.kw_only].append(f"{name}=_none")
            value = f"_of_{name}() if {name} is _none else {name}"
        elif one.default is not MISSING:
            scope[f"_of_{name}"] = one.default
            head[one.kw_only].append(f"{name}=_of_{name}")
        else:
            head[one.kw_only].append(name)
        body.append(f" _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    named = ["*", *head[True]] if head[True] else []
    exec("\n".join([f"def __init__({', '.join(['self', *head[False], *named])}):", *(body or [" pass"])]), scope)
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"  # which a missing argument's message begins with
    return made


def _key_of(cls: Any) -> Callable[[Any], Any]:
    """What two equal objects of a class have in common."""
    names = [one.name for one in fields(cls) if one.compare]
    return attrgetter(*names) if len(names) > 1 else lambda self: tuple(getattr(self, name) for name in names)


@recursive_repr()
def _shown(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({shown})"


def _set_nothing(self: Any, name: str, value: object) -> Never:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete_nothing(self: Any, name: str) -> Never:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass
