"""One kernel on GPUs of both vendors, in words: what was compiled, and what it takes."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from occupancy_lab.reporting.page import Chapter, Commands, Picture
from occupancy_lab.reporting.summary import summary_of
from occupancy_lab.reporting.vendors_picture import draw_stages
from occupancy_lab.reporting.vendors_times import tutorial_record
from occupancy_lab.reporting.words import problem_words
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import count, limiter_words, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.reporting.vendors import Vendors
    from occupancy_lab.reporting.vendors_stages import Stages, Steps


def what_was_compiled(vendors: Vendors) -> Chapter:
    """Say of what the page is made, and how to make it again."""
    statuses = Counter(one.status for one in vendors.every)
    numbers = [f"{number} {status}" for status, number in statuses.items()]
    problems = listed([problem_words(problem) for problem in vendors.problems])
    warps, stages = (listed(list(map(str, n))) for n in (vendors.num_warps, vendors.num_stages))
    words = (
        f"Triton {vendors.triton} compiled the tutorial's kernel, without a GPU, for"
        f" {listed([gpu.title for gpu in vendors.gpus])}: {problems}, num_warps {warps},"
        f" num_stages {stages}. That is {count(len(vendors.every), 'row')}: {listed(numbers)}."
        " Registers, shared memory and instructions are those of the binaries; all else is worked"
        " out from them. The first command compiles them again; the second makes this page of the"
        " rows, also after a new calibration:"
    )
    commands = Commands(("python reports/record_vendors.py", "python reports/amd_nvidia.py"))
    return Chapter("What was compiled", (words, commands))


def side_by_side(vendors: Vendors) -> Chapter:
    """Set the GPUs side by side, and the same kernel on each of them."""
    limits = tuple(_limits_row(gpu) for gpu in vendors.gpus)
    multiprocessor = ("GPU", "multiprocessor", "warps", "registers", "shared B", "a program B")
    launched = [
        _launched_row(record)
        for problem in vendors.problems
        for gpu in vendors.gpus
        if (record := tutorial_record(vendors, gpu, problem)) is not None
    ]
    headers = ("GPU", "cols", "warps", "stages", "registers", "shared B")
    return Chapter(
        "Side by side",
        (
            Table(multiprocessor, limits, "What one multiprocessor has (a warp is a wave on AMD):"),
            Table(
                (*headers, "programs", "limited by", "num_programs"),
                tuple(launched),
                "The kernel as the tutorial would launch it there: what a program takes, the"
                " programs that one multiprocessor holds, what allows no more, and num_programs of"
                " the launch:",
            ),
            *(_over_warps(vendors, stages) for stages in _ends(vendors.num_stages)),
        ),
    )


def _limits_row(gpu: Gpu) -> tuple[str, ...]:
    mp = gpu.architecture
    return (
        f"{gpu.title} ({gpu.target.name})",
        f"{gpu.multiprocessors} {mp.multiprocessor_word}",
        f"{mp.max_warps} x {mp.warp_size}",
        str(mp.registers),
        str(mp.shared_per_multiprocessor),
        str(mp.max_shared),
    )


def _launched_row(record: Record) -> tuple[str, ...]:
    return (
        record.gpu.title,
        str(record.problem.cols),
        str(record.config.num_warps),
        str(record.config.num_stages),
        str(record.resources.n_regs),
        str(record.resources.shared),
        str(record.occupancy.programs_per_multiprocessor),
        limiter_words(record.calculation),
        str(record.plan.num_programs),
    )


def _ends(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((numbers[0], numbers[-1])))


def _over_warps(vendors: Vendors, num_stages: int) -> Table:
    widest = max(vendors.problems, key=lambda problem: problem.cols)
    rows = tuple(
        (gpu.title, *(_cell(vendors.at(gpu, widest, n, num_stages)) for n in vendors.num_warps))
        for gpu in vendors.gpus
    )
    return Table(
        ("GPU", *(f"num_warps {number}" for number in vendors.num_warps)),
        rows,
        f"{problem_words(widest)}, num_stages {num_stages}: registers a thread, + its 4-byte words"
        " of local memory where there are any, and **the programs that one multiprocessor holds**"
        " with what limits them:",
        prose=True,
    )


def _cell(record: Record | None) -> str:
    if record is None:
        return "-"
    held = record.occupancy.programs_per_multiprocessor
    spilled = f" + {record.resources.n_spills}" if record.resources.n_spills else ""
    limiters = limiter_words(record.calculation)
    return f"{record.resources.n_regs}{spilled}: **{held}** ({limiters})"


def the_stages(stages: Stages) -> Chapter:
    """Say what num_stages takes on either vendor's GPUs."""
    said = "\n".join(_stages_sentence(vendor, stages.of(vendor)) for vendor in _vendors(stages))
    record = stages.shown[0].records[0]
    kernel = f"{problem_words(record.problem)}, num_warps {record.config.num_warps}"
    numbers = [str(one.config.num_stages) for one in stages.shown[0].records]
    table = Table(
        ("GPU", "", *(f"num_stages {number}" for number in numbers)),
        tuple(row for steps in stages.shown for row in _steps_rows(steps)),
        f"The kernels of the picture, {kernel}:",
    )
    words = [_shown_words(steps) for steps in stages.shown]
    name = f"Registers and shared memory over num_stages, {kernel}: {'; '.join(words)}"
    picture = Picture("num-stages", name, partial(draw_stages, stages.shown))
    return Chapter(
        "What num_stages does",
        (
            "A kernel here is that of a GPU, a problem and a num_warps, with every num_stages.",
            said,
            picture,
            table,
            _elements_sentence(stages.shown),
        ),
    )


def _elements_sentence(shown: Sequence[Steps]) -> str:
    held: dict[int, list[str]] = {}
    for steps in shown:
        held.setdefault(steps.elements, []).append(steps.gpu.title)
    said = [f"{number} on {listed(titles)}" for number, titles in held.items()]
    return f"Elements of a row that one thread (lane) holds at once: {'; '.join(said)}."


def _vendors(stages: Stages) -> tuple[str, ...]:
    return tuple(dict.fromkeys(steps.gpu.vendor for steps in stages.every))


def _stages_sentence(vendor: str, every: Sequence[Steps]) -> str:
    last = every[0].records[-1].config.num_stages
    return f"- **{vendor}**: " + " ".join(_stages_clauses(every, last))


def _stages_clauses(every: Sequence[Steps], last: int) -> Iterator[str]:
    word, total = every[0].gpu.architecture.shared_word, len(every)
    same = sum(steps.shared_is_the_same for steps in every)
    rows = sum(steps.shared_holds_rows for steps in every)
    if rows:
        yield (
            f"for {rows} of {count(total, 'kernel')} each further stage takes one more row, of"
            f" BLOCK_SIZE elements, of {word}."
        )
    if same:
        yield (
            f"for {same} of {count(total, 'kernel')} the {word} is the same with every num_stages:"
            " the rows in flight are in registers."
        )
    more = summary_of(steps.more_regs for steps in every)
    first = count(every[0].records[0].config.num_stages, "stage")
    yield (
        f"With {count(last, 'stage')} a kernel has {more.least:.2f} to {more.most:.2f} times the"
        f" registers that it has with {first}, {more.median:.2f} times at the median."
    )
    fewer = sum(steps.programs[-1] < steps.programs[0] for steps in every)
    yield f"Then {fewer} of {total} have fewer programs on a multiprocessor than with {first}."


def _steps_rows(steps: Steps) -> Iterator[tuple[str, ...]]:
    mp = steps.gpu.architecture
    yield (steps.gpu.title, f"{mp.register_word}s", *map(str, steps.n_regs))
    yield ("", f"{mp.shared_word}, B", *map(str, steps.shared))
    yield ("", f"programs, {mp.multiprocessor_word}", *map(str, steps.programs))


def _shown_words(steps: Steps) -> str:
    registers, shared = (_range(numbers) for numbers in (steps.n_regs, steps.shared))
    return f"{steps.gpu.title} {registers} registers and {shared} B"


def _range(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return str(first) if first == last else f"{first} to {last}"
