"""The command that lists every kernel in a cache of Triton's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from occupancy_lab.cli.options import Command, File
from occupancy_lab.text.printing import print_markdown, print_text

if TYPE_CHECKING:
    from collections.abc import Callable


def view_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return *command* the options that choose, sort and write out rows."""
    for option in reversed(
        (
            click.option("--where", metavar="CONDITION", help="Rows, such as 'occupancy < 0.5'."),
            click.option("--sort", metavar="COLUMN", help="Order; -COLUMN is descending."),
            click.option("--top", type=click.IntRange(min=1), help="Show this many rows."),
            click.option("--csv", "form", flag_value="csv", help="Print CSV."),
            click.option("--json", "form", flag_value="json", help="Print JSON."),
            click.option("--export-csv", type=File(), help="Write CSV to a file too."),
            click.option("--export-json", type=File(), help="Write JSON to a file too."),
            click.option("--export-markdown", type=File(), help="Write markdown too."),
        )
    ):
        command = option(command)
    return command


@click.command(cls=Command)
@click.argument("directories", nargs=-1, metavar="[DIR]...", type=click.Path())
@click.option(
    "--gpu",
    "--target",
    "gpus",
    multiple=True,
    metavar="NAME",
    help="The GPU to work it out for, one of each target; several with commas. Default: a usual"
    " one of each kernel's target.",
)
@view_options
def scan(directories: tuple[str, ...], gpus: tuple[str, ...], **asked: Any) -> None:
    """List every kernel in a Triton cache: what it takes, what limits it, what there is to win.

    DIR is a cache, a folder above caches, or one entry; without it Triton's own cache and
    torchinductor's are read. Nothing is compiled or launched, and no GPU is needed. Exit 1 where
    not one kernel can be read.
    """
    from occupancy_lab.scanning.views import scan_views

    text, status = scan_views(directories, gpus or None, **asked)
    (print_markdown if asked["form"] is None else print_text)(text)
    sys.exit(status)
