"""Frozen values as lines of JSON, and back: what passes between processes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Any


def to_line(value: Any) -> str:
    """Return *value*, a dataclass or a sequence of them, as one line of JSON."""
    return json.dumps(value, default=_fields)


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def from_line(kind: Any, line: str) -> Any:
    """Return the value of a *line* that `to_line` made of a *kind*, which may be a union.

    Raises ValueError where the line is no JSON or of another shape.
    """
    try:
        return _value(kind, json.loads(line))
    except RecursionError as error:
        msg = "the JSON is nested too deep"
        raise ValueError(msg) from error


def _value(kind: Any, plain: Any) -> Any:
    """Return what *plain* is as a *kind*: a dataclass, tuple, union, number, text or None."""
    of = typing.get_args(kind)
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        for member in of:
            with contextlib.suppress(ValueError):
                return _value(member, plain)
    elif typing.get_origin(kind) is tuple and isinstance(plain, list):
        return tuple(_value(of[0], item) for item in plain)
    elif typing.get_origin(kind) is Mapping and isinstance(plain, dict):
        return {str(name): _value(of[1], item) for name, item in plain.items()}
    elif dataclasses.is_dataclass(kind) and isinstance(plain, dict):
        return _dataclass(kind, plain)
    elif kind is float and type(plain) is int:
        return float(plain)
    elif isinstance(kind, type) and type(plain) is kind:
        return plain
    msg = f"{str(plain)[:40]!r} is no {getattr(kind, '__name__', kind)}"
    raise ValueError(msg)


def _dataclass(kind: Any, plain: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(kind)
    if plain.keys() != hints.keys():
        msg = f"{kind.__name__} has the fields {', '.join(hints)}, not {', '.join(plain)}"
        raise ValueError(msg)
    return kind(**{name: _value(hints[name], value) for name, value in plain.items()})
