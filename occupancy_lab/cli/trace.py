"""`trace`: a program is run as it is, and what it launched is told at its end."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from occupancy_lab.cli.options import Command, File, Ignored

if TYPE_CHECKING:
    from occupancy_lab.tracing.trace import Trace


@click.command(
    cls=Command,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    ignored=(
        Ignored(("--no-times",), beside="--dry-run"),
        Ignored(("--sample",), beside="--no-times"),
        Ignored(("--sample",), beside="--dry-run"),
    ),
)
@click.option(
    "--gpu", metavar="NAME", help="The GPU to work out occupancy for [default: the program's own]."
)
@click.option("--output", type=File(), help="Write it to a file, not to standard error.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.option("--no-times", is_flag=True, help="Time no launches, only count them.")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Time one launch in so many of each kernel and grid, after the first 5.",
)
@click.option(
    "--dry-run", is_flag=True, help="Launch nothing: run a script for --gpu on fake tensors."
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, required=True)
def trace(  # noqa: PLR0913 - an argument for each option
    *,
    gpu: str | None,
    output: str | None,
    as_json: bool,
    no_times: bool,
    sample: int,
    dry_run: bool,
    program: tuple[str, ...],
) -> None:
    """Run PROGRAM, such as `-- python train.py`, and tell which kernels of Triton it launched.

    Its streams, its arguments, its signals and its exit status are its own. At its end a table is
    printed on standard error, of a dry run on standard output: launches, programs against what
    fits, occupancy, limiter, and the time of each kernel.
    """
    from occupancy_lab.files import check_outputs, export
    from occupancy_lab.text.printing import print_answer, print_note
    from occupancy_lab.tracing.trace import dry_trace, end_as, trace_program

    def write(found: Trace) -> None:
        if output is not None:
            export(Path(output), found.to_json() + "\n" if as_json else found.to_markdown())
            return
        # Standard output is the program's, where one is run.
        with contextlib.redirect_stdout(sys.stdout if dry_run else sys.stderr):
            print_answer(found, "json" if as_json else "terminal")

    check_outputs({"--output": output})
    if dry_run:
        write(dry_trace(program, gpu=gpu))
        return
    ended: list[int] = []
    try:
        write(
            trace_program(program, gpu=gpu, times=not no_times, sample=sample, ended=ended.append)
        )
    except Exception as error:
        if not ended:
            raise
        print_note(f"the program has ended, and what it launched cannot be told: {error}")
    end_as(ended[0])
