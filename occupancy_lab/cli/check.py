"""`check` and `diff`: gates for CI, on the command line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from occupancy_lab.cli import options
from occupancy_lab.errors import quoted, refuse
from occupancy_lab.files import OPEN_FILES, check_outputs, export
from occupancy_lab.text.printing import on_github, print_answer, show_status

if TYPE_CHECKING:
    from occupancy_lab.checking.check import Checked

_SOURCE = re.compile(r".*\.(json|csv|py|py:\w+)", re.DOTALL)
"""Matches a file, or a function in one, which cannot be a condition."""
_PATH = re.compile(r"[\w~.-]*[/.~-][\w/.~-]*")
"""Matches what can only be a file's path: a condition has a space or a sign."""


def _is_source(text: str) -> bool:
    """Return whether an argument is a file, a folder or a function of a file, and no condition."""
    named = text == "-" or text.startswith(OPEN_FILES) or _SOURCE.fullmatch(text) is not None
    return named or (len(text) < os.pathconf("/", "PC_NAME_MAX") and Path(text).exists())


def _let_pass(option: str, words: str) -> Callable[..., Any]:
    return click.option(
        option, type=click.Choice(["fail", "ok"]), default="fail", show_default=True, help=words
    )


@click.command(cls=options.Command, ignored=(options.Ignored(("--where",), beside="--name"),))
@click.argument("arguments", nargs=-1, metavar="[CONDITION] [FILE]...")
@click.option("--name", "names", multiple=True, help="A check of pyproject.toml; repeats.")
@click.option("--scan", is_flag=True, help="Check Triton's caches; a DIR after it is one too.")
@click.option("--where", metavar="CONDITION", help="The rows that must meet the condition.")
@click.option(
    "--baseline", metavar="FILE", help="The rows whose values `baseline` means in a CONDITION."
)
@_let_pass("--unknown", "Rows whose values are not known.")
@_let_pass("--failures", "Rows that do not compile or fit, or cannot be read.")
@click.option("--allow-empty", is_flag=True, help="Let a check without rows pass.")
@click.option(
    "--github/--no-github",
    default=None,
    help="Annotate the source on GitHub [default: if $GITHUB_ACTIONS is true].",
)
@click.option("--junit", type=options.File(), help="Write JUnit XML.")
@click.option("--sarif", type=options.File(), help="Write SARIF 2.1.0.")
@options.format_options
@options.described_options
@options.matrix_options
@options.kernel_option
@options.own_block_sizes_option
@options.gpu_option
@options.triton_option
@options.several_knobs
@options.compile_timeout_option
@options.cache_options
def check(  # noqa: PLR0913 - an argument for each option that is not passed on
    *,
    arguments: tuple[str, ...],
    names: tuple[str, ...],
    github: bool | None,
    junit: str | None,
    sarif: str | None,
    form: str,
    **asked: Any,
) -> None:
    """Exit with 1 if compiled kernels do not meet a condition, and say what would fix each.

    FILE is JSON or CSV of scan, sweep, explain or trace --json; - is standard input; a folder is a
    cache of Triton; FILE.py:FUNCTION is compiled as --signature, --constexpr and --grid say, or is
    an ordinary function, whose launches are compiled. With --cols, a kernel of the lab is compiled
    for a matrix. Without a CONDITION the checks of
    pyproject.toml are made: all, or those named by --name. With --baseline a CONDITION may be
    'predicted_us <= baseline * 1.05'.
    """
    from occupancy_lab.checking import outputs

    condition, sources = _split(arguments, named=bool(names), scan=asked["scan"])
    files = {f"FILE {number}": one for number, one in enumerate(sources, 1) if one != "-"}
    if asked["baseline"] == "-" and "-" in sources:
        refuse("standard input is FILE or --baseline, not both: give a file for one of them")
    if asked["baseline"] not in {None, "-"}:
        files["--baseline"] = asked["baseline"]
    check_outputs({"--junit": junit, "--sarif": sarif}, inputs=files)
    checked = _checked(condition, names, sources, asked)
    for path, form_of in ((junit, outputs.to_junit), (sarif, outputs.to_sarif)):
        if path is not None:
            export(Path(path), form_of(checked))
    print_answer(checked, form)
    if on_github() if github is None else github:
        # The runner reads commands from both streams; standard error is seldom redirected.
        click.echo(outputs.to_github(checked), err=True, nl=False)
    sys.exit(checked.status)


def _split(
    arguments: Sequence[str], *, named: bool, scan: bool
) -> tuple[str | None, tuple[str, ...]]:
    """Return the condition, which is the first argument if there is one, and the files."""
    first, rest = (arguments[0], arguments[1:]) if arguments else (None, ())
    if first is None or _is_source(first):
        return None, tuple(arguments)
    if _PATH.fullmatch(first) or (scan and first.isidentifier()):
        refuse(f"there is no file or folder {quoted(first)}")
    if named:
        refuse(f"{quoted(first)} is no file, and a condition has no place beside --name")
    return first, tuple(rest)


def _checked(
    condition: str | None, names: Sequence[str], sources: Sequence[str], asked: dict[str, Any]
) -> Checked:
    from occupancy_lab.checking.check import check as check_rows
    from occupancy_lab.checking.conditions import Check, read_checks
    from occupancy_lab.checking.rows import scanned

    if condition is not None:
        checks = [Check.read(condition, where=asked["where"])]
    elif asked["where"] is not None:
        refuse("--where is for a CONDITION; a check of pyproject.toml has its own where")
    else:
        checks = read_checks(names)
    functions = [*filter(_is_function, sources)]
    if functions and asked["cols"] is not None:
        refuse(f"--cols is another launch than that of {functions[0]}; check one of them")
    given = {"gpu": asked["gpus"] or None}
    if asked["cols"] is None:
        given = _of_functions(
            functions, asked, "describes a launch; give FILE.py:FUNCTION, or --cols"
        )
    rows: list[Any] = list(sources)
    if asked["scan"] and not any(Path(one).is_dir() for one in sources):
        found = scanned(gpu=asked["gpus"] or None)
        if not found and not asked["allow_empty"]:
            refuse("there is no kernel in Triton's usual caches; give the folder of another")
        rows.append(found)
    if asked["cols"] is not None:
        from occupancy_lab.explaining.matrix import explain_matrix

        names = (*_COMPILED, "gpus", "compile_timeout", "no_cache")
        matrix = options.of_matrix({name: asked[name] for name in names})
        rows.append(explain_matrix(**matrix, progress=show_status))
    if not rows:
        refuse("give a FILE of rows, --cols, or --scan for Triton's caches")
    return check_rows(
        checks,
        *rows,
        baseline=asked["baseline"],
        unknown_ok=asked["unknown"] == "ok",
        failures_ok=asked["failures"] == "ok",
        allow_empty=asked["allow_empty"],
        **given,
    )


_COMPILED = (*options.DESCRIBED, *options.MATRIX, "num_warps", "num_stages", "triton")
"""The options that say what is compiled."""


def _is_function(source: str) -> bool:
    return ".py:" in source or source.endswith(".py")


def _of_functions(functions: Sequence[str], asked: dict[str, Any], why: str) -> dict[str, Any]:
    """Return how *functions* are launched, and the GPUs.

    Raises InputError, with the words of *why*, for an option that describes a launch if there is no
    function.
    """
    if functions:
        given = options.of_launch(functions[0], asked)
        return {name: given[name] for name in given if name != "kernel"} | {"progress": show_status}
    if option := options.first_given(_COMPILED, asked):
        refuse(f"{option} {why}")
    return {"gpu": asked["gpus"] or None}


@click.command(cls=options.Command, ignored=(options.Ignored(("--match",), beside="--triton"),))
@click.argument("tables", nargs=-1, metavar="[BEFORE AFTER | FILE.py:FUNCTION]")
@click.option("--triton", "tritons", metavar="A,B", help="Compile with two versions instead.")
@click.option("--fail-on", metavar="CONDITION", help="Exit with 1 if a change meets it.")
@click.option(
    "--match", metavar="COLUMN,...", help="Rows equal in these are the same launch [default: all]."
)
@options.format_options
@options.described_options
@options.matrices_options
@options.kernel_option
@options.gpu_option
@options.block_sizes_option
@options.several_knobs
@options.compile_timeout_option
@options.cache_options
def diff(
    *,
    tables: tuple[str, ...],
    tritons: str | None,
    fail_on: str | None,
    match: str | None,
    form: str,
    **asked: Any,
) -> None:
    """Say what changed in time, spills, registers, shared memory and occupancy, times first.

    BEFORE and AFTER are files of scan, sweep or explain --json, caches of Triton, or each
    FILE.py:FUNCTION or FILE.py:main, whose launches are compiled; both functions get the same
    options. With --triton the launch that --cols or FILE.py:FUNCTION asks for is compiled with both
    versions. Exits with 0 whatever changed, unless a change meets --fail-on, such as 'after_n_regs
    > before_n_regs'.
    """
    from occupancy_lab.checking.diff import diff as diff_tables
    from occupancy_lab.checking.diff import diff_tritons

    if tritons is not None:
        given = _for_both(tables, asked)
        both = [one.strip() for one in tritons.split(",")]
        found = diff_tritons(both, fail_on=fail_on, **given)
    else:
        if len(tables) != 2:  # noqa: PLR2004 - before and after
            refuse("give BEFORE and AFTER, two files, folders or functions, or --triton A,B")
        before, after = tables
        columns = None if match is None else [one.strip() for one in match.split(",")]
        why = "says what is compiled, and neither BEFORE nor AFTER is a function"
        given = _of_functions([*filter(_is_function, tables)], asked, why)
        given |= {"fail_on": fail_on, "match": columns}
        found = diff_tables(before, after, names=(before, after), **given)
    print_answer(found, form)
    sys.exit(found.status)


def _for_both(tables: Sequence[str], asked: dict[str, Any]) -> dict[str, Any]:
    """Return what two versions of Triton compile; InputError unless it is one launch."""
    if not tables:
        return options.of_matrix(asked)
    if len(tables) > 1 or ".py:" not in tables[0]:
        refuse("beside --triton give one FILE.py:FUNCTION, or --cols")
    return {**options.of_launch(tables[0], asked), "progress": show_status}
