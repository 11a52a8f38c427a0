"""How commands print what they give."""

from __future__ import annotations

import sys
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


def show_status(sentence: str) -> None:
    """Show *sentence* on standard error in place of the one before, where that is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{sentence}", err=True, nl=False)
