"""How commands print what they give."""

from __future__ import annotations

from typing import Any

import click


def print_json(values: Any) -> None:
    """Print plain *values* as indented JSON."""
    import json

    click.echo(json.dumps(values, indent=2))


def print_markdown(markdown: str) -> None:
    """Print *markdown* as the terminal shows it."""
    from occupancy_lab import terminal

    terminal.print_markdown(markdown)


def print_note(sentence: str) -> None:
    """Print *sentence* on standard error, where it disturbs no output."""
    click.echo(f"occupancy-lab: {sentence}", err=True)
