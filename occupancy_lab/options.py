"""Options that several commands share, and the types of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


class Integers(click.ParamType[tuple[int, ...]]):
    """Whole numbers with commas between them."""

    name = "N,N,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Give the numbers of *value*."""
        try:
            return tuple(int(part) for part in str(value).split(",") if value)
        except ValueError:
            self.fail(f"{value!r} is not whole numbers with commas between them", param, ctx)


def gpu_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the option that names GPUs and targets, as `gpus`."""
    return click.option(
        "--gpu",
        "--target",
        "gpus",
        multiple=True,
        metavar="NAME",
        help="h100, sm_90, cuda:90:32, mi300x, gfx942, ...; several with commas. "
        "Default: the GPU at hand, or h100,mi300x.",
    )(command)


def cache_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the options that say where compiled resources are kept, or that none are."""
    no_cache = click.option("--no-cache", is_flag=True, help="Compile anew and keep nothing.")
    directory = click.option(
        "--cache-dir",
        type=click.Path(file_okay=False),
        help="Where compiled resources are kept [default: $OCCUPANCY_LAB_CACHE_DIR or XDG cache].",
    )
    return no_cache(directory(command))


def format_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the options that choose how its answer is printed."""
    form = click.option(
        "--format",
        "form",
        type=click.Choice(["terminal", "markdown", "json"]),
        default="terminal",
        show_default=True,
        help="How to print it.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
    return form(as_json(command))


def launch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the options of one matrix, and of the launch where one value does."""
    own = "[default: the kernel's own choice]"
    options = (
        click.option("--cols", type=int, required=True, help="Columns of the matrix."),
        click.option("--rows", type=int, default=4096, show_default=True, help="Rows of it."),
        click.option(
            "--dtype", default="float32", show_default=True, help="float32, float16 or bfloat16."
        ),
        click.option("--block-size", type=int, help=f"BLOCK_SIZE {own}."),
        click.option("--num-warps", type=int, help=f"Warps a program {own}."),
    )
    for option in reversed(options):
        command = option(command)
    return command
