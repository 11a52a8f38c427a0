"""The command that writes the page to play with."""

from __future__ import annotations

import click

from occupancy_lab.cli.options import Command, File


@click.command(cls=Command)
@click.option("--output", type=File(), default="explore.html", show_default=True, help="The page.")
@click.option(
    "--rows",
    type=File(exists=True),
    help="A CSV or JSON file that `sweep` or `scan` exported; the page has its rows too.",
)
def explore(output: str, rows: str | None) -> None:
    """Write one HTML page on which an SM or CU, its cliffs and real kernels can be played with.

    It opens from the disk, without a server or a network.
    """
    from occupancy_lab.exploring.page import explore as write_page

    click.echo(write_page(output, rows=rows))
