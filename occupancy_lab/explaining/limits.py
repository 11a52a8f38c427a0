"""The calculator's answer in words: each limit, the limiter, and how far the next cliff is."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from occupancy_lab.explaining.formula import the_tutorial
from occupancy_lab.inputs import asked_gpus, whole_number
from occupancy_lab.occupancy.calculator import calculate_for, limiter_words, unit_words
from occupancy_lab.text.document import Answer, Document, Section, Table
from occupancy_lab.text.words import (
    count,
    listed,
    per_cta,
    percent,
    resource_word,
    said_of_each,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.inputs import AskedGpus, Integer
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.values import Limit, NextStep

LACKING: Mapping[str, str] = {"programs": "slot", "barriers": "named barrier"}
"""What a multiprocessor lacks for one program more, by the limits beside warps that no smaller use
of registers or shared memory moves."""


SENTENCES: Mapping[str, str] = {
    "programs": "{programs} per {mp}",
    "occupancy": "{resident} of {max_warps} {warps} ({percent})",
    "answer": "{programs}, {occupancy}, limited by {limiters}",
    "no limit": "none is used",
    "full of warps": (
        "Nothing brings program {more} while each takes {taken}: the {mp} holds {max_warps}.{fewer}"
    ),
    "fewer warps": " Fewer {warps} per program let more programs in, not more {warps}.",
    "may spill": "{need} (`{option}`, if that spills nothing)",
    "compiled so": "{need} (`{option}`: {outcome})",
    "no slot": (
        "Fewer registers or less {shared} bring no program {more}: the {mp} has no {lacking} for"
        " it. More {warps} per program would fill the {mp} further."
    ),
    "at most": "at most {amount} {unit}",
    "takes": "Program {more} takes {needs}{then}.",
    "then": ", and then {programs} fit",
    "no amount": "No amount of {limiters} brings program {more}.",
    "no step": "no amount",
    "allowed": "allows it now",
    "down to": "{amount} ({difference} fewer)",
    "up to": "{amount} ({difference} more)",
    "one more": "at most, for more than {programs}",
    "one fewer": "at least, for fewer than {programs}",
}
"""What is said of an occupancy, by when it is said; the page of `explore` says the same."""


def programs_words(calculation: Calculation) -> str:
    """Return the programs of a multiprocessor: "8 programs per SM"."""
    word = calculation.architecture.multiprocessor_word
    programs = count(calculation.occupancy.programs_per_multiprocessor, held_word(calculation))
    return SENTENCES["programs"].format(programs=programs, mp=word)


def held_word(calculation: Calculation) -> str:
    """Return what a multiprocessor holds: a program, or a CTA where a program has several."""
    return per_cta("program", calculation.resources.num_ctas)


def occupancy_words(calculation: Calculation) -> str:
    """Return the warps resident and the occupancy: "64 of 64 warps (100%)"."""
    occupancy, word = calculation.occupancy, calculation.architecture.warp_word
    return SENTENCES["occupancy"].format(
        resident=occupancy.warps_per_multiprocessor,
        max_warps=occupancy.max_warps,
        warps=f"{word}s",
        percent=percent(occupancy.occupancy),
    )


def held_in_short(calculation: Calculation, title: str | None = None) -> str:
    """Return the answer as one clause: programs, warps, occupancy and limiters.

    *title* is what to call the GPU; None takes its name.
    """
    answer = SENTENCES["answer"].format(
        programs=programs_words(calculation),
        occupancy=occupancy_words(calculation),
        limiters=limiter_words(calculation),
    )
    return f"**{title or calculation.title}**: {answer}"


def answer_in_short(case: Case) -> str:
    """Return the answer as one sentence: what fits, and the programs launched where known.

    They are num_programs to kernels of a matrix alone, of which some have an argument of that name.
    """
    answer = held_in_short(case.calculation, case.title)
    plan = case.record.plan
    num_programs = None if plan is None else plan.num_programs
    if num_programs is None:
        return f"{answer}."
    if case.record.matrix is None:
        return f"{answer}; {count(num_programs, 'program')} in all."
    return f"{answer}; num_programs = {num_programs}."


def idle_words(case: Case) -> str:
    """Say how many multiprocessors a launch leaves without a program; "" where none."""
    plan, number = case.record.plan, case.calculation.gpu.multiprocessors
    programs = None if plan is None else plan.num_programs
    each = case.calculation.resources.num_ctas
    if number is None or programs is None or programs * each >= number:
        return ""
    word = case.architecture.multiprocessor_word
    return (
        f" {count(programs, 'program')} leave{'s' if programs == 1 else ''}"
        f" {number - programs * each} of {number} {word}s idle."
    )


def _table(calculation: Calculation) -> Table:
    def row(limit: Limit) -> tuple[str, str, str]:
        resource = resource_word(calculation.gpu.vendor, limit.resource)
        if limit.programs is None:
            return resource, "no limit", SENTENCES["no limit"]
        limiter = limit.resource in calculation.occupancy.limiters
        programs = f"**{limit.programs}**, limiter" if limiter else str(limit.programs)
        return resource, programs, "; ".join(limit.steps)

    word = calculation.architecture.multiprocessor_word
    headers = ("limit", f"{held_word(calculation)}s per {word}", "because")
    rows = tuple(map(row, calculation.occupancy.limits))
    return Table(headers, rows, f"**{calculation.title}**", prose=True)


def the_limits(calculations: Sequence[Calculation]) -> Section:
    """Explain what each resource allows, with its arithmetic, and which of them binds."""

    def sentences(calculation: Calculation) -> Iterator[str]:
        fits, word = calculation.occupancy, calculation.architecture.warp_word
        yield (
            f"The limiter is {limiter_words(calculation)}: {programs_words(calculation)},"
            f" {fits.warps_per_multiprocessor} of its {fits.max_warps} {word}s, an occupancy of"
            f" {percent(fits.occupancy)}."
        )

    tables = tuple(map(_table, calculations))
    return Section("The limits", tables, said_of_each(calculations, sentences))


def _away(step: NextStep, amount: int | None, which: str) -> str:
    """Return how far a step is at *amount*, in the words of *which* sentence."""
    if amount is None:
        return SENTENCES["no step"]
    if amount >= step.now and which == "down to":
        return SENTENCES["allowed"]
    return SENTENCES[which].format(amount=amount, difference=abs(step.now - amount))


def _steps_table(calculation: Calculation) -> Table:
    number = calculation.occupancy.programs_per_multiprocessor
    now = count(number, held_word(calculation))
    rows = tuple(
        (
            unit_words(calculation, step.resource),
            str(step.now),
            _away(step, step.most_for_one_more, "down to"),
            _away(step, step.least_for_one_fewer, "up to"),
        )
        for step in calculation.next_steps
    )
    headers = (
        "",
        "now",
        SENTENCES["one more"].format(programs=now),
        SENTENCES["one fewer"].format(programs=now),
    )
    return Table(headers, rows, f"**{calculation.title}**, {now} now")


def _need(calculation: Calculation, step: NextStep, outcomes: Mapping[str, str]) -> str:
    """Return the most of a resource that lets a program more in, and how to ask for it.

    What a kernel is to be asked for that spills already is left open.
    """
    unit = unit_words(calculation, step.resource)
    need = SENTENCES["at most"].format(amount=step.most_for_one_more, unit=unit)
    outcome = None if step.option is None else outcomes.get(step.option)
    if step.option is None or (outcome is None and calculation.resources.local_bytes):
        return need
    which = "may spill" if outcome is None else "compiled so"
    return SENTENCES[which].format(need=need, option=step.option, outcome=outcome)


def step_sentences(
    calculation: Calculation, outcomes: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """Say what would let one program more in, or why nothing does.

    *outcomes* says of options that are compiled what becomes of the kernel with each.
    """
    for sentence in _step_sentences(calculation, outcomes):
        yield per_cta(sentence, calculation.resources.num_ctas)


def _step_sentences(calculation: Calculation, outcomes: Mapping[str, str]) -> Iterator[str]:
    fits, architecture = calculation.occupancy, calculation.architecture
    more = fits.programs_per_multiprocessor + 1
    words: dict[str, Any] = {
        "more": more,
        "taken": count(fits.num_warps, architecture.warp_word),
        "max_warps": fits.max_warps,
        "mp": architecture.multiprocessor_word,
        "warps": f"{architecture.warp_word}s",
        "shared": architecture.shared_word,
        "limiters": limiter_words(calculation),
    }
    if "warps" in fits.limiters:
        # Where there is no slot for more programs either, fewer warps each let none in.
        alone = not LACKING.keys() & fits.limiters
        fewer = SENTENCES["fewer warps"].format(**words) if alone else ""
        yield SENTENCES["full of warps"].format(**words, fewer=fewer)
        return
    if any(name in LACKING for name in fits.limiters):
        lacking = " and no ".join(LACKING[name] for name in fits.limiters if name in LACKING)
        yield SENTENCES["no slot"].format(**words, lacking=lacking)
        return
    needs = [
        _need(calculation, step, outcomes)
        for step in calculation.next_steps
        if step.resource in fits.limiters and step.most_for_one_more is not None
    ]
    if len(needs) == len(fits.limiters):
        after = calculation.next_programs or more
        then = SENTENCES["then"].format(programs=count(after, "program")) if after > more else ""
        yield SENTENCES["takes"].format(**words, needs=listed(needs), then=then)
    else:
        yield SENTENCES["no amount"].format(**words)


def the_next_step(calculations: Sequence[Calculation]) -> Section:
    """Explain how many registers or bytes fewer give a program more, how many more lose one."""
    return Section(
        "The next step",
        tuple(_steps_table(calculation) for calculation in calculations),
        said_of_each(calculations, step_sentences),
    )


class Calculations(Answer, tuple["Calculation", ...]):
    """What the formulas say of one kernel's resources, on one or several GPUs."""

    __slots__ = ()

    def to_document(self) -> Document:
        """Return the calculations in words: limits, next steps and the tutorial's formula."""
        return write_calculation(self)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the calculations as plain values, for JSON."""
        return [one.to_dict() for one in self]


def calculate_occupancy(
    gpu: AskedGpus,
    *,
    n_regs: Integer,
    shared: Integer,
    num_warps: Integer,
    **others: Integer | None,
) -> Calculations:
    """Work out the occupancy of a kernel that is compiled already, on each GPU.

    Args:
        gpu: GPUs or targets, as `explain` takes them.
        n_regs: Registers per thread (VGPRs per lane on AMD).
        shared: Dynamic shared memory (LDS) per program, bytes: Triton's `metadata.shared`.
        num_warps: Warps per program.
        **others: Further fields of Resources that limits depend on: static_shared, barriers,
            tensor_memory and num_ctas (NVIDIA), sgprs, agprs and allocated_vgprs (AMD).

    Raises:
        InputError: a GPU is not known, an amount is negative, or no program has such num_warps.
        DoesNotFitError: a GPU holds not one such program.
    """
    found = calculate_for(
        asked_gpus(gpu),
        n_regs=whole_number("n_regs", n_regs),
        shared=whole_number("shared", shared),
        num_warps=whole_number("num_warps", num_warps),
        **{name: whole_number(name, one) for name, one in others.items() if one is not None},
    )
    return Calculations(found)


def _option_sentences(calculation: Calculation) -> Iterator[str]:
    """Name the option that asks the compiler for what a limiter is short of."""
    for step in calculation.next_steps:
        if step.option is not None and step.resource in calculation.occupancy.limiters:
            yield (
                f"`{step.option}` in the launch asks the compiler for as many"
                f" {unit_words(calculation, step.resource)}; what it would spill is not known"
                " before a compile."
            )


def _cluster_sentences(calculation: Calculation) -> Iterator[str]:
    """Say how many whole clusters the GPU holds, and which num_ctas would hold more CTAs."""
    found = calculation.clusters
    if found is None:
        return
    if found.resident is None:
        yield f"How many clusters it holds at once is not known: {found.source}."
        return
    yield f"Clusters of {found.num_ctas} CTAs: {'; '.join(found.steps)}. Source: {found.source}."
    step = found.next_step
    if step is not None and step.most_for_one_more is not None:
        yield f"With num_ctas {step.most_for_one_more} more CTAs run at once."


def write_calculation(calculations: Sequence[Calculation]) -> Document:
    """Return the explanation of *calculations*: one kernel's resources on several GPUs."""
    resources = calculations[0].resources
    title = f"n_regs {resources.n_regs}, shared {resources.shared}, num_warps {resources.num_warps}"
    sections = [the_limits(calculations), the_next_step(calculations), the_tutorial(calculations)]
    if options := said_of_each(calculations, _option_sentences):
        sections.insert(2, Section("", (), options))
    if resources.num_ctas > 1:
        title += f", num_ctas {resources.num_ctas}"
        sections.insert(1, Section("Clusters", (), said_of_each(calculations, _cluster_sentences)))
    return Document(
        title, tuple(_answer(calculation) for calculation in calculations), tuple(sections)
    )


def _answer(calculation: Calculation) -> str:
    answer = held_in_short(calculation)
    resident, multiprocessors = calculation.resident_programs, calculation.gpu.multiprocessors
    if resident is None:
        return f"{answer}."
    word = calculation.architecture.multiprocessor_word
    if calculation.clusters is not None:
        each = calculation.clusters.num_ctas
        held = f"{count(resident, 'cluster')} of {each} CTAs"
    else:
        held = count(resident, "program")
    return f"{answer}; the {multiprocessors} {word}s hold {held} at once."
