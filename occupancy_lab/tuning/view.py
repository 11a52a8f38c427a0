"""A tuning in words: the choice and why, what comes next, and what finding it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.text.document import Document, Section, Table
from occupancy_lab.text.notes import basis_sentence, cell, difference_cell
from occupancy_lab.text.words import change, count
from occupancy_lab.tuning.search import choice_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.tuning.choice import Choice, Cost, Tuning

BOUNDS = {
    "launch": "launching and starting its programs",
    "latency": "waiting for memory with the rows in flight that it has",
    "issue": "issuing its instructions",
    "bandwidth": "moving its bytes",
    "tail": "waiting for its first loads and its last rows",
}
"""What takes longest alone, by the name of the part."""
HEADERS = ("kernel", "warps", "stages", "programs", "predicted us", "bound")
MEASURED_HEADERS = ("measured us", "off")


def tuning_document(tuning: Tuning, top: int) -> Document:
    """Return *tuning* in words, with its *top* best predicted configurations."""
    problem = tuning.problem
    title = f"{problem.rows} x {problem.cols} {problem.dtype} on {tuning.gpu.title}"
    sections = [
        Section("Best predicted", (_best_table(tuning, top),), (_basis(tuning),)),
        Section("What finding it costs", (), tuple(_cost_sentences(tuning))),
    ]
    if tuning.compared:
        sections.insert(1, Section("Beside it", (_compared_table(tuning),)))
    return Document(title, tuple(_answer(tuning)), tuple(sections))


def _basis(tuning: Tuning) -> str:
    return basis_sentence(tuning.gpu, tuning.basis.words, calibrated=tuning.basis.calibrated)


def _named(choice: Choice) -> str:
    config = choice.config
    return (
        f"{choice.kernel}, BLOCK_SIZE {config.block_size}, num_warps {config.num_warps},"
        f" num_stages {config.num_stages}, {count(choice.num_programs, 'program')}"
    )


def _answer(tuning: Tuning) -> Iterator[str]:
    best, predicted = tuning.best, tuning.best_predicted
    if best.us is not None:
        off = difference_cell(best.predicted_us, best.us)
        yield (
            f"Fastest measured: {_named(best)}: {cell(best.us)} us; the prediction was"
            f" {cell(best.predicted_us)} us ({off})."
        )
    yield (
        f"Best predicted: {_named(predicted)}: {cell(predicted.predicted_us)} us; what takes"
        f" longest is {BOUNDS[predicted.bound]}."
    )


def _cells(choice: Choice) -> tuple[str, ...]:
    config = choice.config
    numbers = (config.num_warps, config.num_stages, choice.num_programs)
    return (choice.kernel, *map(str, numbers), cell(choice.predicted_us), choice.bound)


def _measured_cells(choice: Choice) -> tuple[str, ...]:
    return (cell(choice.us), difference_cell(choice.predicted_us, choice.us))


def _best_table(tuning: Tuning, top: int) -> Table:
    rows = tuning.table[tuning.table["predicted_us"].notna()].head(top)
    choices = [choice_of(row) for row in rows.to_dict("records")]
    if "us" not in rows:
        return Table(HEADERS, tuple(map(_cells, choices)))
    cells = tuple((*_cells(one), *_measured_cells(one)) for one in choices)
    return Table((*HEADERS, *MEASURED_HEADERS), cells)


def _compared_table(tuning: Tuning) -> Table:
    best = tuning.best_predicted.predicted_us
    rows = tuple(
        (name, *_cells(one)[1:], change(one.predicted_us / best - 1.0))
        for name, one in tuning.compared.items()
    )
    return Table(("", *HEADERS[1:], "against the best"), rows)


def _cost_sentences(tuning: Tuning) -> Iterator[str]:
    every, spent = tuning.exhaustive, tuning.spent
    yield (
        f"Measuring all {count(every.configurations, 'configuration')} takes {_cost(every)},"
        " flushes of the L2 cache included."
    )
    saved = every.launches - spent.launches
    if spent.launches:
        fewer = f": {saved} fewer" if saved > 0 else ""
        yield f"Measuring the {spent.configurations} best predicted took {_cost(spent)}{fewer}."
    else:
        yield f"Nothing was launched: about {saved} launches were saved."
    yield (
        "Launches, with those that warm up, and seconds are worked out from the predicted times;"
        " each way compiles as much."
    )


def _cost(cost: Cost) -> str:
    return f"about {cost.launches} launches, {cost.seconds:.2g} s of the GPU"
