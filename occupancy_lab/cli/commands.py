"""The commands that measure, tune, look through caches, trace, and write pages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from occupancy_lab.cli import options
from occupancy_lab.errors import refuse
from occupancy_lab.text.document import Answer, spans
from occupancy_lab.text.printing import (
    print_answer,
    print_note,
    print_shown,
    print_text,
    show_status,
)

if TYPE_CHECKING:
    from occupancy_lab.tuning.tuned_file import TunedFile


@click.command(cls=options.Command, ignored=(options.NOTHING_KEPT,))
@click.option("--cols", type=int, required=True, help="Columns of the matrix.")
@options.measured_options
@options.block_size_option
@click.option("--num-warps", type=int, help="Warps per program [default: the kernel's own choice].")
@click.option("--num-stages", type=int, help="Pipeline stages [default: the kernel's own choice].")
@click.option(
    "--provider",
    "providers",
    type=options.Names(),
    default="all",
    show_default=True,
    help="Some of kernel,tutorial,torch,torch.compile,naive,copy.",
)
@options.runs_option
@options.compile_timeout_option
@options.json_option
@options.resume_option
@options.cache_options
def measure(*, form: str, no_cache: bool, no_resume: bool, **asked: Any) -> None:
    """Time a kernel and what it is compared with, in turns, on the GPU of this machine."""
    from occupancy_lab.measuring.journal import Journal
    from occupancy_lab.measuring.side_by_side import measure_side_by_side

    with Journal("measure", keep=not no_cache, resume=not no_resume) as journal:
        found = measure_side_by_side(
            **asked, cache=not no_cache, journal=journal, progress=show_status
        )
        print_answer(found, form)


@click.command(
    cls=options.Command,
    ignored=(
        options.Ignored(("--runs", "--no-resume"), without="--measure"),
        options.NOTHING_REMEMBERED,
        options.NOTHING_KEPT,
        options.Ignored(("--top",), beside="--json", without="--measure"),
        options.Ignored(("--top",), beside="--sizes", without="--measure"),
    ),
)
@options.any_launch_options
@options.matrix_options
@click.option(
    "--kernel",
    help="Kernels that do the same [default: the softmax kernels]; for FILE.py:main the kernel to"
    " tune, if it launches several.",
)
@click.option(
    "--gpu", metavar="NAME", help="h100, mi300x, ... [default: this machine's GPU, or h100]."
)
@click.option(
    "--sizes",
    type=options.File(exists=True),
    help="A file of CSV or JSON: columns are arguments, and each row has their values at a size.",
)
@click.option(
    "--output", type=options.File(), help="Write the choice at each size to a file, as JSON."
)
@click.option(
    "--search",
    is_flag=True,
    help="Search beyond the configurations, with --sizes or for FILE.py:main.",
)
@options.triton_option
@options.grid_options
@click.option("--measure", is_flag=True, help="Launch the best predicted, and choose among them.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="How many to show, and to launch with --measure.",
)
@options.runs_option
@options.compile_timeout_option
@options.json_option
@options.quiet_option
@options.resume_option
@options.retry_option
@options.cache_options
def tune(  # noqa: PLR0913 - an argument for each option that is not passed on
    *,
    launch: str | None,
    form: str,
    no_resume: bool,
    quiet: bool,
    top: int,
    output: str | None,
    **asked: Any,
) -> None:
    """Choose a configuration by prediction; with --measure launch only the best predicted.

    For FILE.py:FUNCTION it chooses among the values of --constexpr, --num-warps and --num-stages;
    with --sizes at each size, for `@occupancy_lab.tuned` to launch. FILE.py:main is an ordinary
    function: a kernel that it launches is tuned at each size that it launches.
    """
    progress: dict[str, Any] = {} if quiet else {"progress": show_status}
    if launch is not None and (asked["sizes"] is not None or options.is_script(launch)):
        from occupancy_lab.files import check_outputs, export

        check_outputs({"--output": output}, inputs={"--sizes": asked["sizes"]})
        found = _tuned_by_size(launch, {**asked, "top": top}, progress)
        if output is not None:
            export(Path(output), found.to_json() + "\n")
        print_answer(found, form)
        return
    if without := options.first_given(("output", "search"), {**asked, "output": output}):
        if launch is not None:
            from occupancy_lab.kernel import kernel_file

            kernel_file(launch)  # refuses a file that does not exist
        refuse(f"{without} would be ignored without --sizes or a function that launches kernels")
    if launch is not None:
        from occupancy_lab.tuning.search import tune_launches

        given = options.of_launch(launch, asked, "gpu", "measure", "runs")
        tunings = tune_launches(**given, top=top, **progress)
        print_answer(tunings, form, tunings.to_document(top))
        return
    from occupancy_lab.measuring.journal import Journal
    from occupancy_lab.sweeping.run import shown_progress
    from occupancy_lab.tuning.search import tune as tune_kernels

    matrix = options.of_matrix(asked, foreign=(*options.DESCRIBED, "sizes", "search"))
    with Journal("tune", keep=not asked["no_cache"], resume=not no_resume) as journal:
        with shown_progress("compiling", "measuring", quiet=quiet) as (compiling, measuring):
            tuning = tune_kernels(
                **matrix,
                top=top,
                journal=journal,
                progress=compiling,
                measuring_progress=measuring,
            )
        print_answer(tuning, form, tuning.to_document(top))


def _tuned_by_size(launch: str, asked: dict[str, Any], progress: dict[str, Any]) -> TunedFile:
    timing = ("measure", "top", "runs") if asked["measure"] else ()
    if not options.is_script(launch):
        from occupancy_lab.tuning.by_size import tune_sizes

        given = options.of_launch(launch, asked, "gpu", "sizes", "search", *timing)
        return tune_sizes(**given, **progress)
    from occupancy_lab.tracing.script_runs import check_described
    from occupancy_lab.tuning.of_script import tune_script

    given = options.of_launch(launch, asked, "gpu", "sizes", "search", "kernel", *timing)
    if options.is_written("top") and not asked["measure"]:
        refuse(f"--top would be ignored for {launch}, whose sizes are all shown")
    check_described(launch, given, tune_script)
    return tune_script(launch, **{**given, "kernel": asked["kernel"]}, **progress)


@click.command(cls=options.Command)
@options.json_option
def calibrate(*, form: str) -> None:
    """Measure the rates of this machine's GPU, for its predictions; takes a minute."""
    from occupancy_lab.calibrating.units import calibrate_here

    print_answer(calibrate_here(), form)


def _limit(name: str, of: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        f"--max-{name}",
        type=options.Number(0, 1),
        metavar="SHARE",
        help=f"Exit 1 above this {of}.",
    )


@click.command(
    cls=options.Command,
    ignored=(
        options.Ignored(("--kernel",), without="--file"),
        options.Ignored(("--full",), beside="--json"),
    ),
)
@click.option(
    "--file",
    type=options.File(exists=True),
    help="A file of `sweep --measure --export-csv` [default: the recorded measurements].",
)
@click.option("--gpu", "gpus", multiple=True, metavar="NAME", help="On these GPUs [default: all].")
@click.option(
    "--use",
    "uses",
    multiple=True,
    help="tuning, held out, fresh, check or benchmark [default: all but benchmark].",
)
@click.option("--kernel", "kernels", multiple=True, metavar="FILE", help="A kernel of your own.")
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="How many of the worst launches --full lists.",
)
@_limit("median", "median error, 0.03 for 3%")
@_limit("p90", "90th percentile of the error")
@_limit("mean-loss", "mean time lost by the first choice")
@_limit("worst-loss", "worst time lost by the first choice")
@click.option("--min-rank", type=options.Number(-1, 1), help="Exit 1 below this correlation.")
@options.full_option
@options.json_option
def evaluate(*, full: bool, form: str, **asked: Any) -> None:
    """Compare predicted times with measured ones; exit 1 if a limit is broken."""
    from occupancy_lab.evaluating.evaluation import run

    evaluation, broken = run(**asked)
    print_answer(evaluation, form, evaluation.to_document(full=full))
    for sentence in broken:
        print_note(sentence)
    sys.exit(1 if broken else 0)


@click.command(cls=options.Command)
@click.option("--gpu", metavar="NAME", help="The GPU [default: h200, or the one of --file].")
@click.option(
    "--file",
    type=options.File(exists=True),
    help="A file of sweep --measure --export-csv, or of trace --json [default: the recorded"
    " measurements].",
)
@click.option(
    "--output",
    type=options.File(),
    help="The page's file; pictures go into a folder beside it [default: print the page].",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "html"]),
    help="[default: by the suffix of --output, or markdown]",
)
def report(*, output: str | None, form: str | None, **asked: Any) -> None:
    """Write what was measured on a GPU, beside what was predicted, as a page with pictures.

    For a file of `trace --json` it writes the page of the trace.
    """
    from occupancy_lab.reporting.contents import run
    from occupancy_lab.sweeping.run import shown_progress

    with shown_progress("compiling") as (compiling,):
        shown = run(**asked, output=output, form=form, progress=compiling)
    print_shown(shown)


@click.command(cls=options.Command)
@click.option("--cols", type=int, default=781, show_default=True, help="Columns of the matrix.")
@options.measured_options
@options.grid_options
@click.option(
    "--ncu/--no-ncu", default=True, show_default=True, help="Profile three with Nsight Compute."
)
@options.json_option
def verify(*, form: str, **asked: Any) -> None:
    """Check predictions against this machine's first NVIDIA GPU; exit 1 if anything differs."""
    from occupancy_lab.measuring.verify import verify_here

    checks = verify_here(**asked)
    print_answer(checks, form)
    if any(check.agrees is False for check in checks):
        sys.exit(1)


@click.command(cls=options.Command)
@click.argument("directories", nargs=-1, metavar="[DIR]...", type=click.Path())
@click.option(
    "--gpu",
    "--target",
    "gpus",
    multiple=True,
    metavar="NAME",
    help="The GPU to calculate for, one per target; several with commas. Default: a usual GPU of"
    " each kernel's target.",
)
@click.option(
    "--grid",
    metavar="SIZES",
    help="The grid of launches, as 'cdiv(N, BLOCK_SIZE)'; those of torch.compile are known.",
)
@click.option(
    "--assume",
    multiple=True,
    metavar="NAME=VALUE",
    help="The value of an argument, or of an integer tensor, in each kernel that has it, or the"
    " trips of the loop at line 12: trips@12=37.",
)
@click.option(
    "--no-times",
    "times",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Predict no times; predicting a new launch takes some 50 ms.",
)
@options.view_options
def scan(directories: tuple[str, ...], gpus: tuple[str, ...], **asked: Any) -> None:
    """List every kernel in a Triton cache: its resources, its limiter, its time and possible gain.

    DIR is a cache, a folder above caches, or one entry; without it Triton's own cache and
    torchinductor's are read. Nothing is compiled or launched, and no GPU is needed. Times are
    predicted for torch.compile's kernels, whose source has the sizes, and with --grid and --assume
    for others. Exit 1 if no kernel can be read.
    """
    from occupancy_lab.scanning.scan import scan_views

    shown, status = scan_views(*options.chosen_view(asked), directories, gpu=gpus or None, **asked)
    print_shown(shown)
    sys.exit(status)


@click.command(
    cls=options.Command,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    ignored=(
        options.Ignored(("--no-times",), beside="--dry-run"),
        options.Ignored(("--sample",), beside="--no-times"),
        options.Ignored(("--sample", "--profile"), beside="--dry-run"),
        options.Ignored(("--retry-failed",), without="--dry-run"),
    ),
)
@click.option(
    "--gpu",
    metavar="NAME",
    help="The GPU to calculate occupancy for [default: the script's own]; in a dry run several"
    " with commas, side by side.",
)
@click.option(
    "--output", type=options.File(), help="Write the page to a file, not to standard error."
)
@click.option("--json", "form", flag_value="json", default="terminal", help="Write JSON.")
@click.option(
    "--plot",
    type=options.File(),
    metavar="FILE",
    help="Draw the kernels under the roofs of the GPU, in a file .svg or .png.",
)
@click.option(
    "--report",
    type=options.File(),
    metavar="FILE",
    help="Write a page with the kernels that lose most, explained: .html, or .md with its picture.",
)
@click.option(
    "--timeline",
    type=options.File(),
    metavar="FILE",
    help="Write the last launches, one after another, as a Chrome trace, which Perfetto opens.",
)
@click.option(
    "--actions",
    type=options.Number(min=0, max=options.LONGEST_TIMEOUT),
    metavar="SECONDS",
    help="How long to compile other settings of the kernels that lose most, to find what brings"
    " most: for 5 kernels, or 10 in a --report; 0 compiles none; for several GPUs it is the time"
    " for each [default: 60, or 0 for several GPUs].",
)
@click.option("--no-times", is_flag=True, help="Time no launches, only count them.")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Time one in this many launches of each kernel and grid, after the first 5.",
)
@click.option(
    "--profile",
    type=options.Number(min=0, max=options.LONGEST_TIMEOUT),
    default=0,
    metavar="SECONDS",
    help="Have torch.profiler record what else the GPU does, for this many seconds from the first"
    " launch on: the shares of other kernels, copies and waiting.",
)
@click.option(
    "--dry-run", is_flag=True, help="Launch nothing: run a script for --gpu on fake tensors."
)
@click.option(
    "--assume",
    multiple=True,
    metavar="WHAT=VALUE",
    help="In a dry run, the value to assume where only a GPU could compute it: int=64, float=0.5,"
    " bool=true, or for one line FILE.py:12=64.",
)
@click.option(
    "--timeout",
    type=options.Number(min=0, min_open=True, max=options.LONGEST_TIMEOUT),
    default=120,
    show_default=True,
    help="Seconds that the script may take in a dry run.",
)
@options.retry_option
@click.argument("program", nargs=-1, type=click.UNPROCESSED, required=True, metavar="COMMAND...")
def trace(  # noqa: PLR0913 - an argument for each option
    *,
    gpu: str | None,
    output: str | None,
    form: str,
    plot: str | None,
    report: str | None,
    timeline: str | None,
    actions: float | None,
    dry_run: bool,
    program: tuple[str, ...],
    **asked: Any,
) -> None:
    """Run COMMAND, such as `-- python train.py`, and show which Triton kernels it launched.

    The script's streams, arguments, signals and exit status are unchanged. At its end a table is
    printed on standard error, for a dry run on standard output: launches, the time of each kernel
    and how much of it is lost, programs and how many fit, occupancy, limiter. A dry run exits with
    1 if no kernel compiles or launches are missing.
    """
    from occupancy_lab.files import export
    from occupancy_lab.reporting.trace_files import TraceFiles
    from occupancy_lab.tracing.actions import ACTION_SECONDS, MOST_EXPLAINED, MOST_TRIED, Effort
    from occupancy_lab.tracing.trace import end_as, trace_program

    def write(found: Answer) -> None:
        if output is not None:
            export(Path(output), found.to_json() + "\n" if form == "json" else found.to_markdown())
            return
        # If a program runs, standard output belongs to it.
        with contextlib.redirect_stdout(sys.stdout if dry_run else sys.stderr):
            print_answer(found, form)

    files = TraceFiles(plot, report, timeline)
    files.check(output, gpu)
    several = gpu is not None and "," in gpu
    seconds = actions if actions is not None else 0.0 if several else ACTION_SECONDS
    effort = Effort(seconds, MOST_TRIED if report is None else MOST_EXPLAINED)
    if dry_run:
        from occupancy_lab.tracing.dry import dry_traces

        how = {name: asked[name] for name in ("assume", "timeout", "retry_failed")}
        found = dry_traces(program, gpu=gpu, effort=effort, progress=show_status, **how)
        files.write(found.traces[0].trace)
        write(found)
        if output is not None:
            for sentence in found.failures():
                print_note("".join(piece.text for piece in spans(sentence)))
        end_as(found.status)
    ended: list[int] = []
    try:
        traced = trace_program(
            program,
            gpu=gpu,
            times=not asked["no_times"],
            sample=asked["sample"],
            profile=asked["profile"],
            effort=effort,
            ended=ended.append,
            progress=show_status,
        )
        write(traced)
        files.write(traced)
    except Exception as error:
        if not ended:
            raise
        print_note(f"the script has ended, but its launches cannot be shown: {error}")
    end_as(ended[0])


@click.command(cls=options.Command)
@click.option(
    "--output", type=options.File(), default="explore.html", show_default=True, help="The page."
)
@click.option(
    "--rows",
    type=options.File(exists=True),
    help="A CSV or JSON file that `sweep` or `scan` exported, or a file of `trace --json`, whose"
    " rows the page has too.",
)
def explore(output: str, rows: str | None) -> None:
    """Write one HTML page for playing with an SM or CU, its cliffs and real kernels.

    It opens from the disk, without a server or a network.
    """
    from occupancy_lab.exploring.page import explore as write_page

    print_text(f"{write_page(output, rows=rows)}\n")
