"""Options that several commands share, the types of their values, and how they are checked."""

from __future__ import annotations

import math
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from occupancy_lab.errors import InputError, quoted, refuse
from occupancy_lab.files import OPEN_FILES

if TYPE_CHECKING:
    from occupancy_lab.table.rows import Exports, View

LONGEST_TIMEOUT = 1_000_000.0
"""Seconds; the operating system accepts at most some 2,000,000."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """Options that would have no effect beside another option, without one, or both."""

    options: tuple[str, ...] = ()
    """None means all options but those of `taken`."""
    beside: str | None = None
    without: str | None = None
    taken: tuple[str, ...] = ()

    def check(self, given: Sequence[str]) -> None:
        """Raise InputError if one of the options is *given* and would have no effect."""
        kept = {*self.taken, self.beside, "--debug"}
        others = [option for option in given if option.startswith("-") and option not in kept]
        found = [option for option in self.options or others if option in given]
        beside = self.beside is None or self.beside in given
        without = self.without is None or self.without not in given
        if found and beside and without:
            why = f" beside {self.beside}" if self.beside else ""
            why += f" without {self.without}" if self.without else ""
            refuse(f"{found[0]} would be ignored{why}")


NOTHING_KEPT = Ignored(("--no-resume",), beside="--no-cache")
NOTHING_REMEMBERED = Ignored(("--retry-failed",), beside="--triton")


class Command(click.Command):
    """A command that refuses options without effect, duplicate options and empty values.

    It also takes --debug, which `LabGroup` looks for.
    """

    def __init__(self, *args: Any, ignored: Sequence[Ignored] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ignored = ignored
        self.params.append(debug_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the rest of *args*; InputError if an option would have no effect."""
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        given = [param.opts[0] for param in order]
        if not any(option in given for option in ctx.help_option_names):
            _check_given(order, values)
            for one in self.ignored:
                one.check(given)
        return super().parse_args(ctx, args)


def _check_given(order: Sequence[click.Parameter], values: Mapping[str, Any]) -> None:
    """Raise InputError if an option is given twice, contradicts another one, or is empty."""
    first = {param.name: _written(param) for param in reversed(order)}
    for param, count in Counter(order).items():
        flag, value = _written(param), values.get(param.name or "")
        if first[param.name] != flag:
            refuse(f"{first[param.name]} and {flag} contradict each other; give one of them")
        if count > 1 and not param.multiple:
            refuse(f"{flag} is given {count} times, and only one of them counts; give it once")
        # An empty argument may mean something to a traced program.
        own = param.type is not click.UNPROCESSED
        if own and "" in (value if isinstance(value, list | tuple) else [value]):
            refuse(f"{flag} is empty; give a value, or leave it out")


def _written(param: click.Parameter) -> str:
    """Return an option as it is written, or an argument as in the usage: CONDITION or FILE."""
    if isinstance(param, click.Argument):
        return " or ".join(re.findall(r"[A-Za-z][\w.:]*", param.human_readable_name))
    return param.opts[0]


def debug_option() -> click.Option:
    """Return the option --debug, which takes effect wherever it is given."""
    return click.Option(
        ["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error."
    )


class Integers(click.ParamType[tuple[int, ...]]):
    """Integers with commas between them."""

    name = "N,N,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the integers in *value*."""
        from occupancy_lab.inputs import whole_numbers

        try:
            return whole_numbers(self.name, value)
        except InputError:
            self.fail(f"{quoted(value)} is not a list of whole numbers with commas", param, ctx)


class Number(click.FloatRange):
    """A number in a range, which never includes NaN."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return *value* as a number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{quoted(value)} is not a number", param, ctx)
        return number


class File(click.Path):
    """The path of a regular file: to be read if it must exist, otherwise to be written.

    Named pipes are refused, because they may wait forever; so are devices for reading, because they
    may never end.
    """

    def __init__(self, *, exists: bool = False, allow_dash: bool = False) -> None:
        super().__init__(exists=exists, allow_dash=allow_dash, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path *value*."""
        path = str(super().convert(value, param, ctx))
        if (path == "-" and self.allow_dash) or path.startswith(OPEN_FILES):
            return path
        try:
            mode = Path(path).stat().st_mode
        except (OSError, ValueError):
            mode = 0  # there is no such file
        if stat.S_ISFIFO(mode) or (self.exists and not stat.S_ISREG(mode)):
            self.fail(f"{quoted(path)} is not a regular file", param, ctx)
        return path


class Names(click.ParamType[tuple[str, ...]]):
    """Names with commas between them; "all" gives none, which callers take as all."""

    name = "NAME,NAME,..."

    def convert(
        self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names in *value*."""
        names = () if value == "all" else str(value).split(",")
        return tuple(name.strip() for name in names)


def together(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator that gives a command all of *options*, in order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _use_directory(
    _context: click.Context, _option: click.Parameter, directory: str | None
) -> None:
    if directory is not None:
        os.environ["OCCUPANCY_LAB_CACHE_DIR"] = directory


gpu_option = click.option(
    "--gpu",
    "--target",
    "gpus",
    multiple=True,
    metavar="NAME",
    help="h100, sm_90, cuda:90:32, mi300x, gfx942, ...; several with commas. "
    "Default: this machine's GPU, or h100,mi300x.",
)
triton_option = click.option(
    "--triton",
    metavar="VERSION",
    help="Another Triton: a version, such as 3.6.0, or the path of a Python that has it.",
)
kernel_option = click.option(
    "--kernel", help="A kernel's name, or a file's KERNEL [default: softmax]."
)
block_size_option = click.option(
    "--block-size", type=int, help="BLOCK_SIZE [default: the kernel's own choice]."
)
block_sizes_option = click.option(
    "--block-size", type=Integers(), help="BLOCK_SIZE [default: fits a row]."
)
own_block_sizes_option = click.option(
    "--block-size",
    type=Integers(),
    help="BLOCK_SIZE, several with commas [default: the kernel's own choice].",
)
retry_option = click.option(
    "--retry-failed", is_flag=True, help="Compile again what is remembered as failed."
)
compile_timeout_option = click.option(
    "--compile-timeout",
    type=Number(min=0, min_open=True, max=LONGEST_TIMEOUT),
    default=120,
    show_default=True,
    help="Seconds a compile, the import of a kernel's file or the run of FILE.py:main may take.",
)
runs_option = click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Launches of each to time, at least.",
)
resume_option = click.option(
    "--no-resume",
    is_flag=True,
    help="Measure anew what the same command measured before it was interrupted.",
)
quiet_option = click.option("--quiet", is_flag=True, help="Show no progress.")
full_option = click.option("--full", is_flag=True, help="Print everything, not just one screen.")
json_option = click.option(
    "--json", "form", flag_value="json", default="terminal", help="Print JSON."
)
format_options = together(
    click.option(
        "--format",
        "form",
        type=click.Choice(["terminal", "markdown", "html", "json"]),
        default="terminal",
        show_default=True,
        help="How to print it.",
    ),
    click.option("--json", "form", flag_value="json", help="The same as --format json."),
)
cache_options = together(
    click.option("--no-cache", is_flag=True, help="Compile anew and keep nothing."),
    click.option(
        "--cache-dir",
        type=click.Path(file_okay=False),
        expose_value=False,
        callback=_use_directory,
        help="Where compiled resources are kept [default: $OCCUPANCY_LAB_CACHE_DIR or XDG cache].",
    ),
)
matrix_options = together(
    click.option("--cols", type=int, help="Columns of the matrix."),
    click.option("--rows", type=int, help="Rows of the matrix [default: 4096]."),
    click.option("--dtype", help="float32, float16 or bfloat16 [default: float32]."),
)
matrices_options = together(
    click.option("--cols", type=Integers(), help="Columns of the matrix."),
    click.option("--rows", type=Integers(), help="Rows of the matrix [default: 4096]."),
    click.option("--dtype", help="Some of float32,float16,bfloat16 [default: float32]."),
)
measured_options = together(
    click.option("--rows", type=int, default=4096, show_default=True, help="Rows of the matrix."),
    click.option(
        "--dtype", default="float32", show_default=True, help="float32, float16 or bfloat16."
    ),
    click.option(
        "--kernel", default="softmax", show_default=True, help="A kernel's name, or a Python file."
    ),
)
described_options = together(
    click.option(
        "--signature",
        metavar="TYPES",
        help="The arguments: 'X=*fp16,N=2048,stride=i32:16', or in their order.",
    ),
    click.option(
        "--constexpr",
        "constexprs",
        multiple=True,
        metavar="NAME=VALUE",
        help="A constexpr; repeats. Each of several values with commas is a launch.",
    ),
    click.option(
        "--option",
        "options",
        multiple=True,
        metavar="NAME=VALUE",
        help="A compiler option, such as maxnreg=128 or waves_per_eu=2; repeats.",
    ),
    click.option("--grid", metavar="SIZES", help="4096, 32x32 or 'cdiv(N, BLOCK_SIZE)'."),
    click.option("--bytes-read", metavar="BYTES", help="A number, 24MiB, or '2 * M * N'."),
    click.option("--bytes-written", metavar="BYTES", help="As --bytes-read."),
    click.option(
        "--assume",
        multiple=True,
        metavar="NAME=VALUE",
        help="The value of a tensor, or of an argument without one: 64, or 64*i at index i. The"
        " trips of the loop at line 12: trips@12=37. For FILE.py:main also values that its script"
        " reads: int=64, float=0.5, bool=true.",
    ),
    click.option(
        "--warm",
        is_flag=True,
        help="Predict times right after the same launch, not with an empty L2 cache; for a FILE.",
    ),
)
any_launch_options = together(
    click.argument("launch", required=False, metavar="[FILE.py:FUNCTION]"), described_options
)


def knob_options(warps: str, stages: str, **how: Any) -> Callable[..., Any]:
    """Return the options --num-warps and --num-stages, which take several values, with a help."""
    return together(
        click.option("--num-warps", type=Integers(), help=warps, **how),
        click.option("--num-stages", type=Integers(), help=stages, **how),
    )


several_knobs = knob_options(
    "Warps per program, several with commas.", "Pipeline stages, several with commas."
)
grid_options = knob_options(
    "[default: 1,2,4,8,16,32; fewer of wide rows]",
    "[default: 1,2,3,4, or 1 without a loop]",
    default="",
)
view_options = together(
    click.option("--where", metavar="CONDITION", help="Rows to show, such as 'occupancy > 0.5'."),
    click.option("--sort", metavar="COLUMN", help="Order of the rows; -COLUMN is descending."),
    click.option("--top", type=click.IntRange(min=1), help="Show this many rows."),
    click.option("--csv", "form", flag_value="csv", help="Print CSV."),
    click.option("--json", "form", flag_value="json", help="Print JSON."),
    click.option("--export-csv", type=File(), help="Write CSV to a file too."),
    click.option("--export-json", type=File(), help="Write JSON to a file too."),
    click.option("--export-markdown", type=File(), help="Write markdown too."),
)

DESCRIBED = (
    "signature",
    "constexprs",
    "options",
    "grid",
    "bytes_read",
    "bytes_written",
    "assume",
    "warm",
)
"""The names of the options in `described_options`."""
OF_LAUNCH = tuple(name for name in DESCRIBED if name != "options")
"""The options among them that do not apply to a matrix."""
_OF_ANY = (*DESCRIBED, "num_warps", "num_stages", "triton", "compile_timeout", "retry_failed")
MATRIX = ("cols", "rows", "dtype", "kernel", "block_size")
"""The options that say which kernel is launched on which matrix."""
_OF_MATRIX = (
    *MATRIX,
    *("plot", "jobs", "scheduler", "measure", "runs", "devices", "no_resume"),
)
"""The options that apply to a matrix, and to a launch only if a command says so."""
_USUAL = (*MATRIX[1:], "num_warps", "num_stages", "options")


def is_script(launch: str) -> bool:
    """Return whether FILE.py:FUNCTION is an ordinary function, which makes launches itself."""
    from occupancy_lab.compiling.script import names_script

    return names_script(launch)


def is_written(name: str) -> bool:
    """Return whether the parameter *name* is written on the command line."""
    written = click.get_current_context().get_parameter_source(name)
    return written is ParameterSource.COMMANDLINE


def of_launch(launch: str, asked: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """Return the options that apply to FILE.py:FUNCTION, and *others*, for `explain_launch`.

    Raises InputError for an option that applies only to a matrix.
    """
    taken = {*_OF_ANY, *others}
    given = {name: value for name, value in asked.items() if name in taken and _is_given(value)}
    if foreign := sorted(filter(is_written, {*_OF_MATRIX} - taken)):
        if ".py" not in launch:
            refuse(
                f"{quoted(launch)} is no FILE.py:FUNCTION; a kernel of the lab is given as --kernel"
            )
        option = f"--{foreign[0].replace('_', '-')}"
        refuse(f"{option} applies only to matrix kernels (--kernel); leave it out here")
    for name in ("num_warps", "num_stages"):
        if isinstance(given.get(name), tuple):
            given[name] = list(given[name])
    return {"kernel": launch, **given, **_of_both(asked)}


def of_matrix(asked: Mapping[str, Any], foreign: Collection[str] = OF_LAUNCH) -> dict[str, Any]:
    """Return the options that apply to a matrix, without those left at their defaults.

    Raises InputError if its columns are missing, or if a *foreign* option describes a launch.
    """
    if described := first_given(foreign, asked):
        refuse(
            f"{described} describes the launch of a Triton function; give it as FILE.py:FUNCTION"
        )
    if asked["cols"] is None:
        refuse("give --cols, or FILE.py:FUNCTION with its --signature")
    given = {
        name: value
        for name, value in asked.items()
        if name not in {"gpus", "no_cache", *foreign}
        if name not in _USUAL or _is_given(value)
    }
    return {**given, **_of_both(asked)}


def _of_both(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the GPUs that were *asked* for, and whether the store is used."""
    gpus = {"gpu": asked["gpus"] or None} if "gpus" in asked else {}
    return {**gpus, "cache": not asked["no_cache"]}


def first_given(names: Collection[str], asked: Mapping[str, Any]) -> str | None:
    """Return the first option of *names* that was given, as it is written, or None."""
    given = next((name for name in names if _is_given(asked.get(name))), None)
    if given is None:
        return None
    from occupancy_lab.inputs import option_name

    return option_name(given)


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value != ()


VIEWED = ("where", "sort", "top", "export_csv", "export_json", "export_markdown")
"""The names of the options in `view_options`."""


def chosen_view(asked: dict[str, Any]) -> tuple[View, Exports]:
    """Remove from *asked* which rows are shown and the files for them, and return both."""
    from occupancy_lab.table.rows import Exports, View

    given = {name: asked.pop(name) for name in VIEWED}
    exports = {name: given.pop(f"export_{name}") for name in ("csv", "json", "markdown")}
    return View(**given), Exports(**exports)
