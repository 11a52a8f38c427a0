"""Values as lines of JSON: what processes ask and answer, and what the store keeps.

A value is a frozen dataclass, a tuple of them, text, a number or None. A line of another shape is
refused, because the store's files may have been changed, and output may be mixed with answers.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias

Reader: TypeAlias = Callable[[Any], Any]
"""Returns the value that plain JSON stands for, or raises ValueError."""

AS_THEY_ARE = frozenset({int, float, str, bool, type(None)})
UNIONS = (typing.Union, types.UnionType)


def to_line(value: Any) -> str:
    """Return *value*, a dataclass or a sequence of dataclasses, as one line of JSON."""
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _names(kind)}


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def from_line(kind: Any, line: str) -> Any:
    """Return the value of type *kind*, which may be a union, that `to_line` made *line* of.

    Raises ValueError if the line is no JSON or has another shape.
    """
    try:
        return _reader(kind)(json.loads(line))
    except RecursionError as error:
        msg = "the JSON is nested too deep"
        raise ValueError(msg) from error


@functools.cache
def _reader(kind: Any) -> Reader:
    of = typing.get_args(kind)
    if typing.get_origin(kind) in UNIONS:
        return functools.partial(_one_of, [_reader(one) for one in of])
    if typing.get_origin(kind) is tuple:
        return functools.partial(_items, _reader(of[0]))
    if typing.get_origin(kind) is Mapping:
        return functools.partial(_named_items, _reader(of[1]))
    is_plain = not dataclasses.is_dataclass(kind)
    return functools.partial(_single, kind) if is_plain else functools.partial(_dataclass, kind)


def _one_of(readers: Sequence[Reader], plain: Any) -> Any:
    for reader in readers:
        try:
            return reader(plain)
        except ValueError:
            continue
    raise _no(plain, "what it may be")


def _items(read: Reader, plain: Any) -> tuple[Any, ...]:
    if type(plain) is not list:
        raise _no(plain, "tuple")
    return tuple(map(read, plain))


def _named_items(read: Reader, plain: Any) -> dict[str, Any]:
    if type(plain) is not dict:
        raise _no(plain, "mapping")
    return {name: read(item) for name, item in plain.items()}


def _single(kind: Any, plain: Any) -> Any:
    if type(plain) is kind:
        return plain
    if kind is bytes and isinstance(plain, str):
        return base64.b64decode(plain, validate=True)
    if (kind is float and type(plain) is int) or (
        isinstance(kind, type) and issubclass(kind, Enum)
    ):
        return kind(plain)
    raise _no(plain, getattr(kind, "__name__", str(kind)))


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[frozenset[Any], Reader]]:
    """Return the types of values that need no reader, and the reader of others, by field."""
    hints = typing.get_type_hints(kind)
    return {name: (_as_they_are(hints[name]), _reader(hints[name])) for name in _names(kind)}


def _dataclass(kind: Any, plain: Any) -> Any:
    if type(plain) is not dict:
        raise _no(plain, kind.__name__)
    fields = _fields(kind)
    if plain.keys() != fields.keys():
        msg = f"{kind.__name__} has the fields {', '.join(fields)}, not {', '.join(plain)}"
        raise ValueError(msg)
    given = dict(plain)  # another type of a union may be tried with the same JSON
    for name, (as_is, read) in fields.items():
        if type(one := plain[name]) not in as_is:
            given[name] = read(one)
    return kind(**given)


def _as_they_are(kind: Any) -> frozenset[Any]:
    """Return the types of JSON that a *kind* of plain values takes; none where it converts some."""
    of = frozenset(typing.get_args(kind) if typing.get_origin(kind) in UNIONS else {kind})
    return of if of <= AS_THEY_ARE and not of >= {int, float} else frozenset()


def _no(plain: Any, kind: str) -> ValueError:
    return ValueError(f"{str(plain)[:40]!r} is no {kind}")
