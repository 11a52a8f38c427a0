"""`compare`: GPUs, Triton versions, kernels and num_stages side by side, and which is faster."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from occupancy_lab.asked import Asked, ask
from occupancy_lab.comparing.entries import Entry, differing_dimensions, make_entries, moves, slices
from occupancy_lab.compiled_records import compile_record
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.errors import refuse
from occupancy_lab.explaining.advice import why_faster
from occupancy_lab.explaining.case import Case, with_recorded
from occupancy_lab.explaining.duration import time_sentence, without_time
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.facts import setting_words
from occupancy_lab.explaining.grids import whole_work
from occupancy_lab.explaining.limits import answer_in_short
from occupancy_lab.explaining.neighbours import with_chosen
from occupancy_lab.explaining.short import limits_with_bars, the_launch_in_short
from occupancy_lab.explaining.variants import less_work_sentences
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    AskedDtype,
    AskedGpus,
    AskedKernel,
    Integers,
    NamedKernel,
    check_elsewhere,
    check_launch,
    chosen_config,
    chosen_gpus,
    chosen_kernels,
    chosen_problems,
    combined_knobs,
    several,
)
from occupancy_lab.prediction import CHOSEN_WORDS, Prediction
from occupancy_lab.record import Failed, Record, by_gpu
from occupancy_lab.signature import Words, read_options
from occupancy_lab.text.document import Document, Section, literal
from occupancy_lab.text.words import (
    change,
    count,
    listed,
    microseconds,
    overlap_sentence,
    prediction_words,
    said_of_each,
)
from occupancy_lab.values import Problem

LONGEST = 80
"""How many characters the names in a title may have; for longer names it has their number."""
LEAST, MOST = 2, 6
"""How many entries a comparison has; more are a sweep."""


@dataclass(frozen=True, repr=False)
class Comparison(Explanation):
    """The compared records, and what differs between them in words."""

    compared: tuple[Case, ...] = ()

    @property
    def ranked(self) -> tuple[Record | Failed, ...]:
        """`runs` as they are, because they may do different work."""
        return self.runs

    @property
    def cases(self) -> tuple[Case, ...]:
        """Each of `records` with its recorded times."""
        return self.compared


def compare(  # noqa: PLR0913 - one argument per option of the command line, all but one by name
    cols: Integers,
    *,
    rows: Integers = DEFAULT_ROWS,
    dtype: AskedDtype | Iterable[AskedDtype] = "float32",
    kernel: AskedKernel | Iterable[AskedKernel] = "softmax",
    gpu: AskedGpus | None = None,
    triton: str | Iterable[str] | None = None,
    block_size: Integers | None = None,
    num_warps: Integers | None = None,
    num_stages: Integers | None = None,
    options: Words = (),
    cache: bool = True,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    retry_failed: bool = False,
    progress: Callable[[str], None] = lambda _sentence: None,
) -> Comparison:
    """Compile a kernel in several ways, side by side, and say what differs and why.

    Every GPU is combined with every kernel, matrix, Triton version, block_size, num_warps and
    num_stages; 2 to 6 combinations can be compared. The arguments are those of `explain_matrix`,
    and of each of these there may be several, as a list or with commas.

    Raises:
        InputError: the arguments make no sense; the message says what would be accepted.
        CompileError: a Triton cannot compile a kernel for a target, or not in time.
        DoesNotFitError: a GPU does not fit one program of a kernel.
    """
    problems = tuple(dict.fromkeys(chosen_problems(rows, cols, dtype)))
    chosen = combined_knobs(block_size=block_size, num_warps=num_warps, num_stages=num_stages)
    gpus, tritons = chosen_gpus(gpu), several(triton)
    how: dict[str, Any] = {"here": {one.target for one, present in gpus if present}}
    how |= {"timeout": compile_timeout, "retry_failed": retry_failed, "progress": progress}
    directory = store_directory() if cache else None
    with ExitStack() as stack:
        compilers = [
            stack.enter_context(closing(Compiler(directory, triton=one, **how))) for one in tritons
        ]
        kernels = chosen_kernels(kernel, compilers[0].check_file)
        asked = [
            _asked(one, found, problem, each, read_options(options))
            for (one, _), found, problem, each in itertools.product(gpus, kernels, problems, chosen)
        ]
        _check_number(len(asked) * len(tritons))
        _check_environments(compilers, tritons)
        other_triton = not all(one.environment.is_running for one in compilers)
        for named in kernels:
            check_elsewhere(named, other_triton=other_triton)
        cases = [
            with_recorded(Case(compile_record(one, compiler), asked_kernel=one.name))
            for one, compiler in itertools.product(asked, compilers)
        ]
    return comparison_of(cases, compilers[0])


def compare_launches(**asked: Any) -> Comparison:
    """Compare launches, with the arguments of `explain_launch`.

    Raises InputError if there is only one launch, or more than a table has columns for.
    """
    from occupancy_lab.explaining.dry_run import explain_launch

    found = explain_launch(**asked)
    _check_number(len(found.runs))
    name = asked["kernel"] if isinstance(asked["kernel"], str) else None
    records = [run for run in found.runs if isinstance(run, Record)]
    cases = [Case(record, asked_kernel=name) for record in records]
    return comparison_of(cases, found.compiler, found.failures)


def comparison_of(
    cases: Sequence[Case], compiler: Compiler, failures: Sequence[Failed] = ()
) -> Comparison:
    """Return the comparison of *cases*; *failures* are launches without a record."""
    entries = _with_chosen(make_entries(cases))
    runs: tuple[Record | Failed, ...] = (*(entry.record for entry in entries), *failures)
    page = write_comparison(entries, failures)
    return Comparison(runs, (), compiler, page=page, compared=entries)


def _asked(
    gpu: Gpu, named: NamedKernel, problem: Problem, knobs: dict[str, int | None], options: Any
) -> Asked:
    config = chosen_config(named.kernel, problem, gpu, knobs)
    check_launch(named.kernel, problem, config, gpu)
    given = [name for name, value in knobs.items() if value is not None]
    return ask(named, problem, config, gpu, options, knobs=given)


def _check_number(number: int) -> None:
    if number < LEAST:
        refuse(
            "there is only one launch to compare: give two or more GPUs, Triton versions, kernels,"
            " cols, rows, dtypes or settings, with commas"
        )
    if number > MOST:
        refuse(
            f"these are {number} combinations of GPU, kernel, matrix, settings and Triton;"
            f" compare shows at most {MOST} side by side, and sweep any number"
        )


def _check_environments(compilers: Sequence[Compiler], asked: Sequence[str | None]) -> None:
    found: dict[str, str | None] = {}
    for compiler, text in zip(compilers, asked, strict=True):
        triton = compiler.environment.triton
        if triton in found:
            refuse(
                f"{found[triton]} and {text} are both Triton {triton}; give versions that differ"
            )
        found[triton] = text


def write_comparison(entries: tuple[Entry, ...], failures: Sequence[Failed] = ()) -> Document:
    """Return the page of a comparison."""
    differences = _differences(entries)
    why = (Section("What differs and why", sentences=differences),) if differences else ()
    return Document(
        _title(entries),
        (
            *said_of_each(entries, lambda entry: filter(None, [without_time(entry.record)])),
            *_numbers(entries),
            *fastest_sentences(entries),
            *less_work_sentences([entry.record for entry in entries]),
            *(answer_in_short(entry) for entry in entries),
            *(
                f"**{one.title}**, {setting_words(one.settings, one.settings)}:"
                f" {literal(one.failure.reason)}."
                for one in failures
            ),
        ),
        (_launches(entries), _limits(entries), *why),
    )


def _numbers(entries: Sequence[Entry]) -> Iterator[str]:
    """Name the entries whose columns are numbered."""
    if told := [f"**{one.number}** is {one.name}" for one in entries if one.number is not None]:
        yield f"{'; '.join(told)}."


def _launches(entries: tuple[Entry, ...]) -> Section:
    """Return the facts about the launches, with one sentence for each GPU on what times rest on."""
    section = the_launch_in_short(entries)
    times = [(entry.record, entry.record.prediction) for entry in entries]
    unsure = (one for one, found in times if found is not None and not found.calibrated)
    basis = tuple(dict.fromkeys(map(time_sentence, unsure)))
    others = [one for one in section.sentences if not one.endswith(basis)]
    chosen = any(found is not None and found.is_chosen for _, found in times)
    wider = [CHOSEN_WORDS] if chosen else []
    return dataclasses.replace(section, sentences=(*others, *basis, *wider))


def _limits(entries: tuple[Entry, ...]) -> Section:
    """Return the limits with a column for each entry, several of which may be on one GPU."""
    section = limits_with_bars([entry.calculation for entry in entries])
    (table,) = section.tables
    headers = (table.headers[0], *(entry.title for entry in entries))
    return Section(section.title, (dataclasses.replace(table, headers=headers),))


def _title(entries: tuple[Entry, ...]) -> str:
    first, differing = entries[0], differing_dimensions(entries)
    same = [first.names[name] for name in ("kernel", "matrix") if name not in differing]
    same = [name for name in same if name]
    if "gpu" not in differing:
        same.append(f"on {first.names['gpu']}")
    told = []
    for dimension in differing:
        names = [*dict.fromkeys(entry.names[dimension] for entry in entries)]
        words = listed(names)
        told.append(words if len(words) <= LONGEST else count(len(names), "configuration"))
    return f"{', '.join(same)}: {'; '.join(told)}" if same else "; ".join(told)


def _differences(entries: tuple[Entry, ...]) -> tuple[str, ...]:
    others = [name for name in differing_dimensions(entries) if name != "gpu"]
    found = (said_of_each(slices(entries, name), moves) for name in others)
    return tuple(dict.fromkeys(sentence for sentences in found for sentence in sentences))


def _with_chosen(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return *entries*; the fastest on each GPU gets the wider range of a chosen launch."""
    found: dict[int, Any] = {}
    for group in by_gpu(entries):
        records = [entry.record for entry in group]
        chosen = records if _differ_in_work(group) else with_chosen(records)
        found |= zip(map(id, group), chosen, strict=True)
    return tuple(dataclasses.replace(one, record=found[id(one)]) for one in entries)


def _differ_in_work(entries: Sequence[Entry]) -> bool:
    return len({(one.record.traffic, one.names["matrix"]) for one in entries}) > 1


def fastest_sentences(entries: Sequence[Entry]) -> Iterator[str]:
    """Say which of *entries* is the fastest, for each GPU if any has several.

    Entries that do different work are not ranked: the sentence has their times. There is no
    sentence for entries without predicted times.
    """
    groups = by_gpu(entries)
    if len(groups) == 1 or all(len(group) == 1 for group in groups):
        if sentence := _fastest(entries):
            yield sentence
        return
    for group in groups:
        if sentence := _fastest([_without_gpu(entry, entries) for entry in group]):
            yield f"On {group[0].names['gpu']}, {sentence[0].lower()}{sentence[1:]}"


def _without_gpu(entry: Entry, entries: Sequence[Entry]) -> Entry:
    """Return *entry* with a name that does not have the GPU."""
    names = (entry.names[name] for name in differing_dimensions((*entries,)) if name != "gpu")
    return dataclasses.replace(entry, name=", ".join(names))


def _fastest(entries: Sequence[Entry]) -> str:
    records, is_one_gpu = [entry.record for entry in entries], len(by_gpu(entries)) == 1
    other_work = _differ_in_work(entries)
    whole = whole_work(records) if is_one_gpu else records
    timed = [
        (entry, entry.record.prediction)
        for entry in entries
        if entry.record in whole and entry.record.prediction is not None
    ]
    if len(timed) < LEAST or (other_work and not is_one_gpu):
        return ""
    if len({prediction_words(one) for _, one in timed}) == 1:
        names = listed([f"**{entry.name}**" for entry, _ in timed])
        who = "All" if len(timed) == len(entries) else names
        return f"{who} are predicted to take {prediction_words(timed[0][1])}."
    timed.sort(key=lambda pair: pair[1].us)
    if other_work:
        return _times_of_other_work(timed)
    if not is_one_gpu:
        return _fastest_gpu(timed)
    (first, own), *others = timed
    slower = [
        pair
        for pair in others
        if pair[1].us / own.us - 1 >= max(own.noticeable, pair[1].noticeable)
    ]
    close = [pair for pair in others if pair not in slower]
    near = ""
    if close:
        names = listed([f"**{entry.name}** ({microseconds(one.us)})" for entry, one in close])
        within = max(max(own.noticeable, one.noticeable) for _, one in close)
        near = f"{names} {'is' if len(close) == 1 else 'are'} within {within:.0%} of {first.name}"
    if slower:
        said = "; ".join(filter(None, [_against(timed[0], slower[0]), near]))
        return f"**{first.name}** is predicted to be the fastest: {said}."
    return (
        f"**{first.name}** is predicted to take {prediction_words(own)}, and {near}: predictions"
        " do not tell which is the fastest."
    )


def _times_of_other_work(timed: Sequence[tuple[Entry, Prediction]]) -> str:
    """Return the sentence on entries of one GPU that do different work, sorted by time."""
    first, second, *others = timed
    more = "".join(f"; **{entry.name}** takes {microseconds(one.us)}" for entry, one in others)
    return (
        f"**{first[0].name}** is predicted to take {_against(first, second)}{more}. They do"
        " different work."
    )


def _fastest_gpu(timed: Sequence[tuple[Entry, Prediction]]) -> str:
    """Return the sentence on entries of several GPUs, sorted by time.

    The fastest is only named if the ranges do not overlap, because errors of predictions on two
    GPUs are independent.
    """
    name, against = timed[0][0].name, _against(timed[0], timed[1])
    overlap = overlap_sentence({one.name: (time.low_us, time.high_us) for one, time in timed})
    if overlap:
        return f"**{name}** is predicted to take {against}. {overlap}"
    return f"**{name}** is predicted to be the fastest: {against}."


def _against(first: tuple[Entry, Prediction], following: tuple[Entry, Prediction]) -> str:
    own, (entry, other) = first[1], following
    return (
        f"{prediction_words(own)} against {microseconds(other.us)} of **{entry.name}**"
        f" ({change(own.us / other.us - 1)}){why_faster(other, own)}"
    )
