"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import os
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
        """Return the numbers of *value*."""
        try:
            return tuple(int(part) for part in str(value).split(",") if value)
        except ValueError:
            self.fail(f"{value!r} is not whole numbers with commas between them", param, ctx)


class Names(click.ParamType[tuple[str, ...]]):
    """Names with commas between them; "all" is none, which whoever takes them understands."""

    name = "NAME,NAME,..."

    def convert(
        self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names of *value*."""
        names = () if value == "all" else str(value).split(",")
        return tuple(name.strip() for name in names)


def gpu_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return *command* the option that names GPUs and targets, as `gpus`."""
    return click.option(
        "--gpu",
        "--target",
        "gpus",
        multiple=True,
        metavar="NAME",
        help="h100, sm_90, cuda:90:32, mi300x, gfx942, ...; several with commas. "
        "Default: the GPU at hand, or h100,mi300x.",
    )(command)


def _use_directory(
    _context: click.Context, _option: click.Parameter, directory: str | None
) -> None:
    if directory is not None:
        os.environ["OCCUPANCY_LAB_CACHE_DIR"] = directory


def cache_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return *command* the options that say where compiled resources are kept, or that none are.

    The directory is no argument of it: it is put into the environment.
    """
    no_cache = click.option(
        "--no-cache", is_flag=True, help="Compile anew and keep nothing, nor in Triton's cache."
    )
    directory = click.option(
        "--cache-dir",
        type=click.Path(file_okay=False),
        expose_value=False,
        callback=_use_directory,
        help="Where compiled resources are kept [default: $OCCUPANCY_LAB_CACHE_DIR or XDG cache].",
    )
    return no_cache(directory(command))


def retry_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return *command* the option that forgets which kernels did not compile."""
    return click.option(
        "--retry-failed", is_flag=True, help="Compile again what is remembered as failed."
    )(command)


def format_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return *command* the options that choose how its answer is printed."""
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


def compile_timeout_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return *command* the option that says how long a compile may take."""
    return click.option(
        "--compile-timeout",
        type=click.FloatRange(min=0),
        default=120,
        show_default=True,
        help="Seconds a compile, or the import of a kernel's file, may take.",
    )(command)


def runs_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return *command* the option that says how often a launch is timed."""
    return click.option(
        "--runs",
        type=click.IntRange(min=1),
        default=30,
        show_default=True,
        help="Launches timed of each, at the least.",
    )(command)


def problem_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return *command* the options of one matrix."""
    return _with_options(
        command,
        click.option("--cols", type=int, required=True, help="Columns of the matrix."),
        click.option("--rows", type=int, default=4096, show_default=True, help="Rows of it."),
        click.option(
            "--dtype", default="float32", show_default=True, help="float32, float16 or bfloat16."
        ),
    )


def launch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return *command* the options of one matrix, and of the launch where one value does."""
    own = "[default: the kernel's own choice]"
    return _with_options(
        command,
        problem_options,
        click.option("--block-size", type=int, help=f"BLOCK_SIZE {own}."),
        click.option("--num-warps", type=int, help=f"Warps a program {own}."),
    )


def grid_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return *command* the options of the configurations that it goes through."""
    return _with_options(
        command,
        click.option(
            "--num-warps",
            type=Integers(),
            default="",
            help="[default: 1,2,4,8,16,32; fewer of wide rows]",
        ),
        click.option(
            "--num-stages",
            type=Integers(),
            default="",
            help="[default: 1,2,3,4, or 1 without a loop]",
        ),
    )


def _with_options(command: Callable[..., Any], *options: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command
