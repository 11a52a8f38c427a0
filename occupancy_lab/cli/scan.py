"""The command that lists every kernel in a cache of Triton's."""

from __future__ import annotations

import sys
from typing import Any

import click

from occupancy_lab.cli.options import Command, view_options
from occupancy_lab.text.printing import print_markdown, print_text


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
