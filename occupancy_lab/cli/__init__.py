"""The command line: parse, call one function, print. `--help` imports nothing but click."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import gc
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from occupancy_lab import __version__
from occupancy_lab.cli import check as checks
from occupancy_lab.cli import commands, options
from occupancy_lab.errors import CompileError, DoesNotFitError, OccupancyLabError, quoted, refuse
from occupancy_lab.text.printing import (
    open_streams,
    print_answer,
    print_json,
    print_note,
    print_shown,
    print_text,
    show_status,
)
from occupancy_lab.workers import signals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from occupancy_lab.sweeping.run import Swept
    from occupancy_lab.text.document import Answer

NAME = "occupancy-lab"
LONGEST_NAME = 255
"""The most characters of a file's name."""
_LONG_QUOTE = re.compile(r"""(['"])((?:(?!\1).){40})(?:(?!\1).)+\1""", re.DOTALL)
_NEEDED = ("n_regs", "shared", "num_warps")


class LabGroup(click.Group):
    """Prints every error as one sentence on standard error and exits with 2; --debug raises it.

    It exits with 1 if a valid request has no launch that compiles and fits.
    """

    command_class = options.Command

    def main(self, args: Sequence[str] | None = None, *others: Any, **kwargs: Any) -> NoReturn:
        """Run the command line and exit."""
        # Collecting what imports leave costs 14 % of an explanation: 0.75 s against 0.67 s.
        gc.set_threshold(100_000)
        # At exit Python collects once more, which takes 0.1 s for memory that is freed anyway.
        atexit.register(gc.freeze)
        open_streams()
        arguments = sys.argv[1:] if args is None else list(args)
        debug = "--debug" in arguments
        try:
            with signals.handled():
                super().main(arguments, *others, **{**kwargs, "standalone_mode": False})
        except click.exceptions.Exit as done:
            sys.exit(done.exit_code)
        except (click.Abort, KeyboardInterrupt) as error:
            _fail("interrupted", signals.exit_status(error))
        except Exception as error:
            if debug:
                raise
            _fail(_sentence(error), 1 if isinstance(error, CompileError | DoesNotFitError) else 2)
        sys.exit(0)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the rest of *args* for the command; without arguments the help is printed."""
        return super().parse_args(ctx, args or ["--help"])


def _sentence(error: Exception) -> str:
    if isinstance(error, click.ClickException):
        # click quotes all of an input.
        return _cut(_LONG_QUOTE.sub(r"\1\2…\1", error.format_message()), 50)
    if isinstance(error, OccupancyLabError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{quoted(error.filename)}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return "there is not enough memory for this"
    return f"unexpected {type(error).__name__}: {error}; --debug shows where"


def _cut(text: str, longest: int) -> str:
    """Return *text* with each word cut to *longest* characters."""
    return re.sub(rf"(\S{{{longest}}})\S+", r"\1…", text)


def _fail(sentence: str, code: int) -> NoReturn:
    print_note(_cut(" ".join(sentence.split()), LONGEST_NAME))
    sys.exit(code)


@click.group(
    cls=LabGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[options.debug_option()],
)
@click.version_option(__version__, prog_name=NAME)
def main() -> None:
    """Know how a Triton kernel will sit on a GPU, and why, before you launch it."""


for _command in (
    commands.measure,
    commands.tune,
    commands.calibrate,
    commands.evaluate,
    commands.report,
    commands.verify,
    commands.scan,
    commands.trace,
    checks.check,
    checks.diff,
    commands.explore,
):
    main.add_command(_command)


def _print_words(context: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from occupancy_lab.explaining.short import glossary

        print_shown(glossary().blocks())
        context.exit()


@main.command(
    ignored=(
        options.Ignored(("--full",), beside="--json"),
        options.Ignored(("--full",), beside="--source"),
    )
)
@options.any_launch_options
@options.matrix_options
@options.kernel_option
@options.own_block_sizes_option
@options.gpu_option
@options.triton_option
@options.several_knobs
@click.option("--measure", is_flag=True, help="Also launch and time it; needs the GPU here.")
@options.full_option
@click.option(
    "--words",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_words,
    help="Explain the terms and do nothing else.",
)
@click.option("--source", is_flag=True, help="Show what each line of the kernel's source does.")
@click.option(
    "--plot",
    type=options.File(),
    metavar="FILE",
    help="Draw the configurations, or the launches near one, under the roofs of the GPU, in a file"
    " .svg or .png.",
)
@options.compile_timeout_option
@options.retry_option
@options.format_options
@options.cache_options
def explain(
    *,
    launch: str | None,
    form: str,
    full: bool,
    source: bool,
    plot: str | None,
    **asked: Any,
) -> None:
    """Compile a kernel and explain how it sits on a GPU: limits, programs, time, advice.

    With --cols, a kernel of the lab is launched on a matrix. FILE.py:FUNCTION is any function of
    Triton, launched as --signature, --constexpr and --grid say, or an ordinary function whose
    launches are explained; for autotuned launches --constexpr, --num-warps and --num-stages choose
    configurations. The file's code is run on import; nothing is launched. The exit status is 1 if
    launches are missing or none compiles and fits.
    """
    from occupancy_lab.tracing.explain import explain as explain_kernel

    if plot is not None:
        from occupancy_lab.files import check_outputs, check_picture
        from occupancy_lab.inputs import chosen_gpus
        from occupancy_lab.reporting.roofline import check_one_gpu

        check_outputs({"--plot": plot})
        check_picture(plot)
        check_one_gpu([gpu.key for gpu, _ in chosen_gpus(asked["gpus"] or None)])
    given = (
        options.of_launch(launch, asked, "plot", "measure") if launch else options.of_matrix(asked)
    )
    explanation = explain_kernel(**given, progress=show_status)
    if source:
        print_answer(explanation.source, form)
    else:
        print_answer(explanation, form, explanation.to_document(full=full))
    if plot is not None:
        from occupancy_lab.plotting.style import save
        from occupancy_lab.reporting.roofline import draw_explanation

        save(draw_explanation(explanation), Path(plot))
    if launch is not None:  # for a matrix the import would take a twentieth of the time
        from occupancy_lab.tracing.script_runs import ScriptExplanation

        if isinstance(explanation, ScriptExplanation) and explanation.has_failed:
            sys.exit(1)


@main.command(
    ignored=(
        options.Ignored(("--runs", "--devices", "--no-resume"), without="--measure"),
        options.Ignored(("--jobs", "--triton"), beside="--scheduler"),
        options.NOTHING_REMEMBERED,
        options.NOTHING_KEPT,
    )
)
@options.any_launch_options
@options.matrices_options
@options.kernel_option
@options.gpu_option
@options.triton_option
@options.block_sizes_option
@options.knob_options("[default: 1,2,4,8,16,32]", "[default: 1,2,3,4]")
@click.option("--jobs", type=click.IntRange(min=1), help="Compiling processes [default: cores].")
@options.compile_timeout_option
@click.option("--scheduler", metavar="ADDRESS", help="A Dask scheduler, tcp://host:8786.")
@options.view_options
@click.option("--plot", type=click.Path(file_okay=False), help="Draw curves and heat map there.")
@options.quiet_option
@click.option("--measure", is_flag=True, help="Time the rows of this machine's GPU on it.")
@options.runs_option
@click.option("--devices", metavar="all|0,1,...", help="GPUs that measure [default: the first].")
@options.resume_option
@options.retry_option
@options.cache_options
def sweep(launch: str | None, no_resume: bool, **asked: Any) -> None:
    """Compile a grid of configurations and print one row for each; exit 1 if none is ok.

    Without --block-size, --num-warps and --num-stages, a kernel with its own configs, such as
    softmax_pieces, takes these, as in tune.

    For FILE.py:FUNCTION the grid is every value of --constexpr, --num-warps and --num-stages.
    """
    from occupancy_lab.measuring.journal import Journal
    from occupancy_lab.sweeping.run import run

    view, exports = options.chosen_view(asked)
    if launch is None:
        with Journal("sweep", keep=not asked["no_cache"], resume=not no_resume) as journal:
            swept = run(view, exports, journal=journal, **options.of_matrix(asked))
            _print_swept(swept)
    else:
        from occupancy_lab.explaining.dry_run import explain_and_time, explain_launch

        named = ("form", "measure", "runs")
        given: dict[str, Any] = {"form": None, **options.of_launch(launch, asked, *named)}
        launches: Callable[..., Any] = explain_launch
        runs = given.pop("runs")
        if given.pop("measure", False):
            launches = functools.partial(explain_and_time, runs=runs)
        swept = run(view, exports, launches=launches, quiet=asked["quiet"], **given)
        _print_swept(swept)
    sys.exit(swept.status)


def _print_swept(swept: Swept) -> None:
    print_shown(swept.shown)
    if swept.complaints:
        _fail("; ".join(swept.complaints), swept.status)


@main.command()
@options.any_launch_options
@options.matrices_options
@click.option("--kernel", help="One or several, with commas [default: softmax].")
@options.own_block_sizes_option
@options.gpu_option
@click.option("--triton", metavar="VERSION,...", help="Versions, or Pythons that have one.")
@options.several_knobs
@options.compile_timeout_option
@options.retry_option
@options.format_options
@options.cache_options
def compare(launch: str | None, form: str, **asked: Any) -> None:
    """Set GPUs, matrices, kernels, settings or Tritons side by side, and say what differs and why.

    For FILE.py:FUNCTION, every value of --constexpr, --num-warps and --num-stages on every GPU.
    """
    if launch is None:
        from occupancy_lab.comparing.comparison import compare as compare_sides

        comparison: Answer = compare_sides(**options.of_matrix(asked), progress=show_status)
    else:
        from occupancy_lab.comparing.comparison import compare_launches

        comparison = compare_launches(**options.of_launch(launch, asked), progress=show_status)
    print_answer(comparison, form)


@main.command(ignored=(options.Ignored(beside="--points", taken=("--json",)),))
@options.gpu_option
@click.option("--n-regs", type=int, help="Registers per thread (VGPRs per lane on AMD).")
@click.option("--shared", type=int, help="Dynamic shared memory per program, bytes.")
@click.option(
    "--num-warps",
    type=int,
    help="Warps per program as launched; warp specialization launches more than were asked for.",
)
@click.option("--num-ctas", type=int, default=1, help="CTAs per program; several are a cluster.")
@click.option("--sgprs", type=int, help="SGPRs per wave (AMD gfx9).")
@click.option("--agprs", type=int, help="AGPRs among --n-regs (AMD gfx90a to gfx950).")
@click.option("--static-shared", type=int, default=0, help="Static shared memory, bytes.")
@click.option("--barriers", type=int, help="Named barriers per program (NVIDIA).")
@click.option(
    "--tensor-memory", type=int, help="Columns of tensor memory per program (NVIDIA 10.x)."
)
@click.option(
    "--points",
    type=options.File(exists=True, allow_dash=True),
    help="A CSV file of target, n_regs, shared, num_warps and optionally num_ctas, sgprs,"
    " static_shared, barriers, tensor_memory; - is standard input. Prints CSV, or JSON.",
)
@options.json_option
def occupancy(gpus: tuple[str, ...], points: str | None, form: str, **usage: Any) -> None:
    """Calculate the occupancy of one kernel or a table of kernels, without compiling anything."""
    if points is not None:
        from occupancy_lab.occupancy.points import calculate_points

        print_text(calculate_points(points, as_json=form == "json"))
        return
    missing = [f"--{name.replace('_', '-')}" for name in _NEEDED if usage[name] is None]
    missing = missing if gpus else ["--target", *missing]
    if missing:
        refuse(f"give {', '.join(missing)}, or a table of kernels with --points")
    from occupancy_lab.explaining.limits import calculate_occupancy

    print_answer(calculate_occupancy(gpus, **usage), form)


@main.command()
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the source of each number.")
def gpus(names: tuple[str, ...], as_json: bool) -> None:
    """List the known GPUs and those of this machine, or every number of the named GPUs."""
    from occupancy_lab.explaining import catalogue
    from occupancy_lab.gpus import find_gpus, present_gpus

    found = find_gpus(",".join(names)) if names else ()
    if as_json:
        print_json(catalogue.gpus_values(found, present_gpus()))
    elif found:
        for gpu in found:
            print_shown(catalogue.describe_gpu(gpu).blocks())
    else:
        print_shown(catalogue.list_gpus(present_gpus()).blocks())


@main.command("doctor")
@options.json_option
def _doctor(form: str) -> None:
    """Say what is installed, found and missing; exit 1 if something required is missing."""
    from occupancy_lab.cli.doctor import examine, write_findings

    findings = examine()
    if form == "json":
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        print_shown(write_findings(findings).blocks())
    if any(finding.status == "problem" for finding in findings):
        sys.exit(1)
