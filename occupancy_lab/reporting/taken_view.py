"""What was run, in words, and the commands that repeat it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from occupancy_lab.reporting.page import Chapter, Commands
from occupancy_lab.text.document import Table, literal
from occupancy_lab.text.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from occupancy_lab.reporting.taken import Taken

TITLE = "What was run"
ROWS: Mapping[str, str] = {
    "device": "GPU",
    "driver": "driver",
    "torch": "torch",
    "triton": "Triton",
    "date": "date",
    "timer": "timed with",
    "l2": "L2 cache before each launch",
    "sm_mhz": "clock after the launches, MHz",
    "throttled": "clock held down by",
}
"""What the fields of Conditions are called."""


def what_was_run(taken: Taken) -> Chapter:
    """Say where, when and how the launches were made, and how to make them again."""
    rows = [*_conditions(taken), *((kernel.name, kernel.title) for kernel in taken.kernels)]
    rows += [("launches measured", _measured(taken)), *_others(taken)]
    table = Table(("", taken.gpu.title), tuple(rows), prose=True)
    untimed = (*untimed_words(taken.untimed), *_reasons(taken))
    return Chapter(TITLE, (table, *untimed, *_again(taken)))


def recorded_launches(taken: Taken) -> Table:
    """Say where and how the recorded launches were measured, and how many there are."""
    rows = (*_conditions(taken), ("launches", _measured(taken)), *_others(taken))
    return Table(("", taken.gpu.title), rows, "What was measured on one:", prose=True)


def _conditions(taken: Taken) -> Iterator[tuple[str, str]]:
    for name, words in ROWS.items():
        if taken.conditions[name]:
            yield words, listed(taken.conditions[name])


def _measured(taken: Taken) -> str:
    total = sum(taken.measured.values())
    if len(taken.measured) == 1:
        return str(total)
    return f"{total}: {listed([f'{number} {use}' for use, number in taken.measured.items()])}"


def _others(taken: Taken) -> Iterator[tuple[str, str]]:
    if taken.providers:
        numbers = [f"{number} of {name}" for name, number in taken.providers.items()]
        yield "timed beside them", listed(numbers)


def untimed_words(untimed: Mapping[str, int]) -> Iterator[str]:
    """Say how many configurations have no time, by what came of them."""
    if untimed:
        what = listed([f"{number} ({name})" for name, number in untimed.items()])
        yield f"Configurations without a time: {what}."


def _reasons(taken: Taken) -> Iterator[str]:
    for name, reason in taken.reasons.items():
        yield f"The first of those that ended as *{name}*: {reason}"


def _again(taken: Taken) -> Iterator[str | Commands]:
    key = taken.gpu.key
    if taken.file is None:
        yield (
            f"The rows are in `reports/data/measured-{key}.csv` and `providers-{key}.csv`. The"
            " first command, on such a GPU, records them again; the second makes this page of them,"
            " anywhere:"
        )
        yield Commands(
            (
                "python reports/record_measurements.py",
                f"occupancy-lab report --gpu {key} --output reports/{key}.md",
            )
        )
        return
    yield f"The rows are those of {literal(taken.file)}; this page is made of them by:"
    file = shlex.quote(taken.file)
    yield Commands((f"occupancy-lab report --gpu {key} --file {file} --output {key}.md",))
