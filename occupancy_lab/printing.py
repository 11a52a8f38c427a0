"""How commands print what they give."""

from __future__ import annotations

import math
from typing import Any

import click


def print_json(values: Any) -> None:
    """Print plain *values* as `json_text` has them."""
    click.echo(json_text(values))


def json_text(values: Any) -> str:
    """Return plain *values* as indented, strict JSON: a number that is not finite is null."""
    import json

    try:
        return json.dumps(values, indent=2, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(values), indent=2, allow_nan=False)


def _finite(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _finite(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def print_markdown(markdown: str) -> None:
    """Print *markdown* as the terminal shows it."""
    from occupancy_lab import terminal

    terminal.print_markdown(markdown)
