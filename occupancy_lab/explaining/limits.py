"""The occupancy calculation in words: each limit, the limiter, and the next step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from occupancy_lab.errors import quoted, refuse
from occupancy_lab.explaining.case import Case
from occupancy_lab.gpus import Architecture, HipArchitecture
from occupancy_lab.inputs import AskedGpus, Integer, asked_gpus, whole_number
from occupancy_lab.occupancy import Rocm, known_to, tutorial_occupancy
from occupancy_lab.occupancy.calculator import (
    Calculation,
    calculate,
    check_fits,
    check_launched_warps,
    check_num_ctas,
    limiter_words,
    unit_words,
)
from occupancy_lab.occupancy.exact import stepped_amounts
from occupancy_lab.occupancy.tutorial import used_registers
from occupancy_lab.text.document import Answer, Document, Section, Table, side_by_side
from occupancy_lab.text.words import (
    article,
    as_sentence,
    count,
    listed,
    per_cta,
    percent,
    resource_word,
    said_of_each,
)
from occupancy_lab.values import Limit, NextStep, Resources, TutorialOccupancy

Outcomes = Mapping[str, Mapping[str, str]]

LACKING: Mapping[str, str] = {"programs": "slot", "barriers": "named barrier"}
"""What a multiprocessor lacks for one more program, for the limits (besides warps) that use of
fewer registers or less shared memory does not raise."""
SENTENCES: Mapping[str, str] = {
    "programs": "{programs} per {mp}",
    "occupancy": "{resident} of {max_warps} {warps} ({percent})",
    "answer": "{programs}, {occupancy}, limited by {limiters}",
    "no limit": "none is used",
    "full of warps": (
        "Program {more} cannot fit while each takes {taken}: the {mp} holds {max_warps}.{fewer}"
    ),
    "fewer warps": " Fewer {warps} per program would let more programs in, but not more {warps}.",
    "may spill": "{need} (`{option}`, if that spills nothing)",
    "compiled so": "{need} (`{option}`: {outcome})",
    "no slot": (
        "Fewer registers or less {shared} would not let program {more} in: the {mp} has no"
        " {lacking} for it. More {warps} per program would fill the {mp} further."
    ),
    "at most": "at most {amount} {unit}",
    "takes": "Program {more} fits with {needs}{then}.",
    "then": ", and then {programs} fit",
    "no amount": "No amount of {limiters} lets program {more} in.",
    "no step": "no amount",
    "does not launch": "does not launch above {most}",
    "allowed": "allows it now",
    "down to": "{amount} ({difference} fewer)",
    "up to": "{amount} ({difference} more)",
    "one more": "at most, for more than {programs}",
    "one fewer": "at least, for fewer than {programs}",
}
"""The sentences about an occupancy, by occasion; the page of `explore` uses them too."""
FEW = 0.5
"""The share of the places for programs below which a launch is said to fill few of them."""


def programs_words(calculation: Calculation) -> str:
    """Return the programs of a multiprocessor: "8 programs per SM"."""
    word = calculation.architecture.multiprocessor_word
    programs = count(calculation.occupancy.programs_per_multiprocessor, held_word(calculation))
    return SENTENCES["programs"].format(programs=programs, mp=word)


def held_word(calculation: Calculation) -> str:
    """Return the word for what a multiprocessor holds: program, or CTA if programs are clusters."""
    return per_cta("program", calculation.resources.num_ctas)


def occupancy_words(calculation: Calculation) -> str:
    """Return the resident warps and the occupancy: "64 of 64 warps (100%)"."""
    occupancy, word = calculation.occupancy, calculation.architecture.warp_word
    return SENTENCES["occupancy"].format(
        resident=occupancy.warps_per_multiprocessor,
        max_warps=occupancy.max_warps,
        warps=f"{word}s",
        percent=percent(occupancy.occupancy),
    )


def held_in_short(calculation: Calculation, title: str | None = None) -> str:
    """Return programs, warps, occupancy and limiters as one clause; *title* names the GPU."""
    answer = SENTENCES["answer"].format(
        programs=programs_words(calculation),
        occupancy=occupancy_words(calculation),
        limiters=limiter_words(calculation),
    )
    return f"**{title or calculation.title}**: {answer}"


def answer_in_short(case: Case) -> str:
    """Return the occupancy and the number of programs launched, if known, as one sentence."""
    answer = held_in_short(case.calculation, case.title)
    programs = case.record.num_programs
    return f"{answer}." if programs is None else f"{answer}; {count(programs, 'program')} in total."


def idle_words(case: Case) -> str:
    """Say how many multiprocessors a launch leaves idle, or that it fills few places; or ""."""
    programs, number = case.record.num_programs, case.calculation.gpu.multiprocessors
    each = case.calculation.resources.num_ctas
    if number is None or programs is None:
        return ""
    if programs * each >= number:
        waves = None if case.record.plan is None else case.record.plan.waves
        if waves is None or waves >= FEW:
            return ""
        return f" {count(programs, 'program')} take {percent(waves)} of these places."
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
    """Explain how many programs each resource allows, with the arithmetic, and which limits."""

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
    """Return how far away the *amount* of a step is, in the words of *which* sentence."""
    if amount is None:
        return SENTENCES["no step"]
    if amount >= step.now and which == "down to":
        return SENTENCES["allowed"]
    return SENTENCES[which].format(amount=amount, difference=abs(step.now - amount))


def _steps_table(calculation: Calculation) -> Table:
    number = calculation.occupancy.programs_per_multiprocessor
    amounts = stepped_amounts(calculation.resources, calculation.architecture)
    now = count(number, held_word(calculation))
    rows = tuple(
        (
            unit_words(calculation, step.resource),
            str(step.now),
            _away(step, step.most_for_one_more, "down to"),
            SENTENCES["does not launch"].format(most=amounts[step.resource][1])
            if number == 1 and step.least_for_one_fewer is None
            else _away(step, step.least_for_one_fewer, "up to"),
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
    """Return the amount that lets one more program in, and the option that asks for it.

    The option is left out if the kernel spills already and the option was not compiled.
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
    """Say what lets one more program in; *outcomes* has the result of compiling with an option."""
    yield per_cta(_step_sentence(calculation, outcomes), calculation.resources.num_ctas)


def program_more(calculation: Calculation, outcomes: Outcomes) -> Iterator[str]:
    """Say what lets one more program in, unless all warps are resident already.

    *outcomes* has for each GPU what `step_sentences` takes.
    """
    if calculation.occupancy.occupancy < 1:
        yield from step_sentences(calculation, outcomes.get(calculation.gpu.key, {}))


def _step_sentence(calculation: Calculation, outcomes: Mapping[str, str]) -> str:
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
        # Without a slot for one more program, fewer warps per program do not help.
        alone = not LACKING.keys() & fits.limiters
        fewer = SENTENCES["fewer warps"].format(**words) if alone else ""
        return SENTENCES["full of warps"].format(**words, fewer=fewer)
    lacking = " and no ".join(LACKING[name] for name in fits.limiters if name in LACKING)
    if lacking:
        return SENTENCES["no slot"].format(**words, lacking=lacking)
    needs = [
        _need(calculation, step, outcomes)
        for step in calculation.next_steps
        if step.resource in fits.limiters and step.most_for_one_more is not None
    ]
    if len(needs) != len(fits.limiters):
        return SENTENCES["no amount"].format(**words)
    after = calculation.next_programs or more
    then = SENTENCES["then"].format(programs=count(after, "program")) if after > more else ""
    return SENTENCES["takes"].format(**words, needs=listed(needs), then=then)


def the_next_step(
    calculations: Sequence[Calculation], outcomes: Outcomes = MappingProxyType({})
) -> Section:
    """Explain how many fewer registers or bytes gain a program, and how many more lose one.

    *outcomes* has for each GPU what `step_sentences` takes.
    """
    return Section(
        "The next step",
        tuple(_steps_table(calculation) for calculation in calculations),
        said_of_each(calculations, lambda one: program_more(one, outcomes)),
    )


class Calculations(Answer, tuple["Calculation", ...]):
    """The occupancy of one kernel's resources by the formulas, on one or several GPUs."""

    __slots__ = ()

    def to_document(self) -> Document:
        """Return the page of the calculations: limits, next steps and the tutorial's formula."""
        resources = self[0].resources
        title = (
            f"n_regs {resources.n_regs}, shared {resources.shared}, num_warps {resources.num_warps}"
        )
        sections = [the_limits(self), the_next_step(self), the_tutorial(self)]
        if options := said_of_each(self, _option_sentences):
            sections.insert(2, Section("", (), options))
        if resources.num_ctas > 1:
            title += f", num_ctas {resources.num_ctas}"
            sections.insert(1, Section("Clusters", (), said_of_each(self, _cluster_sentences)))
        return Document(title, tuple(map(_answer, self)), tuple(sections))

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
    """Calculate the occupancy of a compiled kernel on each GPU.

    Args:
        gpu: GPUs or targets, as `explain` takes them.
        n_regs: Registers per thread (VGPRs per lane on AMD).
        shared: Dynamic shared memory (LDS) per program, bytes: Triton's `metadata.shared`.
        num_warps: Warps per program as launched, which warp specialization increases.
        **others: Further fields of Resources that limits depend on: static_shared, barriers,
            tensor_memory and num_ctas (NVIDIA), sgprs, agprs and allocated_vgprs (AMD).

    Raises:
        InputError: a GPU is not known, an amount is negative or in no limit of these GPUs, or no
            program can have that num_warps or num_ctas.
        DoesNotFitError: a GPU does not fit one such program.
    """
    asked = {"n_regs": n_regs, "shared": shared, "num_warps": num_warps, **others}
    amounts = {name: whole_number(name, one) for name, one in asked.items() if one is not None}
    for name, amount in amounts.items():
        if amount < 0 and name not in {"num_warps", "num_ctas"}:
            refuse(f"{name} is {amount}; it counts something and is 0 or more")
    if (agprs := amounts.get("agprs", 0)) > amounts["n_regs"]:
        refuse(f"agprs is {agprs}, more than the {n_regs} of n_regs, which counts them too")
    resources, gpus = Resources(**amounts), asked_gpus(gpu)
    for one in gpus:
        check_launched_warps(resources.num_warps, one.architecture)
        check_num_ctas(resources.num_ctas, one)
    found = Calculations(calculate(resources, one) for one in gpus)
    for calculation in found:
        check_fits(calculation)
    counted = {limit.resource for one in found for limit in one.occupancy.limits}
    counted |= {"agprs" for one in gpus if getattr(one.architecture, "agpr_file", None)}
    for name in ("sgprs", "agprs", "barriers", "tensor_memory"):
        if name in amounts and name not in counted:
            keys = quoted(",".join(one.key for one in gpus))
            refuse(f"{name} is {amounts[name]}, and no limit of {keys} depends on it")
    return found


def _option_sentences(calculation: Calculation) -> Iterator[str]:
    for step in calculation.next_steps:
        if step.option is not None and step.resource in calculation.occupancy.limiters:
            yield (
                f"`{step.option}` in the launch asks the compiler for that many"
                f" {unit_words(calculation, step.resource)}; only a compile shows what it would"
                " spill."
            )


def _cluster_sentences(calculation: Calculation) -> Iterator[str]:
    found = calculation.clusters
    if found is None:
        return
    if found.resident is None:
        yield f"How many clusters it holds at once is not known: {found.source}."
        return
    yield f"Clusters of {found.num_ctas} CTAs: {'; '.join(found.steps)}. Source: {found.source}."
    step = found.next_step
    if step is not None and step.most_for_one_more is not None:
        yield f"With num_ctas {step.most_for_one_more}, more CTAs run at once."


def _answer(calculation: Calculation) -> str:
    answer, resident = held_in_short(calculation), calculation.resident_programs
    if resident is None:
        return f"{answer}."
    size, word = calculation.gpu.multiprocessors, calculation.architecture.multiprocessor_word
    held = count(resident, "program")
    if calculation.clusters is not None:
        held = f"{count(resident, 'cluster')} of {calculation.clusters.num_ctas} CTAs"
    return f"{answer}; the {size} {word}s hold {held} at once."


TERM_WORDS: Mapping[str, str] = {
    "launch limits": "a program may have at most {max_threads_per_program} threads",
    "warp slots": "{an_mp} holds at most {max_warps} {warp_word}s, whatever the registers allow",
    "program slots": "{an_mp} has slots for a fixed number of programs",
    "driver reserve": "the driver takes {reserved_shared} B of shared memory for each program",
    "register granule": "registers are given out in steps, so a thread's count is rounded up",
    "register quarters": (
        "the register file is {register_partitions} separate quarters, and registers left over in"
        " one are of no use to another"
    ),
    "shared granule": "shared memory is given out in steps of {shared_unit} B",
    "static shared": "the binary has shared memory of its own",
    "named barriers": "named barriers run out",
    "tensor memory": "{an_mp} has {tensor_memory} columns of tensor memory",
    "register file": "NUM_GPRS is {num_gprs}, and {an_mp} has {registers} registers",
    "wave slots": "HIP keeps {max_warps} waves {on_mp}, fewer than the threads it reports",
    "registers per SIMD": (
        "each of the {simds} SIMDs has its own registers, and registers left over in one are of no"
        " use to another"
    ),
    "padded registers": "waves_per_eu pads the allocation, and n_regs does not show it",
    "SGPRs": "SGPRs run out, and n_regs does not count them",
    "LDS pool": (
        "{an_mp} has {shared_per_multiprocessor} B of LDS, not one program's {max_shared} B"
    ),
    "LDS granule": "LDS is given out in steps of {shared_unit} B",
}
"""Why each term of `occupancy.terms` matters, with the architecture's own numbers."""
VERDICTS: Mapping[str, str] = {
    "fails": (
        "the Triton tutorial's formula divides by `metadata.shared`, which is 0 for this kernel,"
        " whose {warp}s exchange nothing and copy nothing ahead, and raises ZeroDivisionError"
    ),
    "right": "the Triton tutorial's formula gives the right number here: {says} per {mp}",
    "wrong": "the Triton tutorial's formula gives {says} per {mp} where {truth} fit: {reasons}",
}
"""The sentences about the tutorial's formula; the page of `explore` uses them too."""


class _ArchitectureWords(dict[str, str]):
    """The values of the names in TERM_WORDS: the architecture's fields, and words for it."""

    def __init__(self, architecture: Architecture, rocm: Rocm) -> None:
        word = architecture.multiprocessor_word
        super().__init__(an_mp=f"{article(word)} {word}", on_mp=f"on {article(word)} {word}")
        if isinstance(architecture, HipArchitecture):
            self["num_gprs"] = str(used_registers(architecture, rocm))
        self._architecture = architecture

    def __missing__(self, name: str) -> str:
        return str(getattr(self._architecture, name))


def term_reasons(
    terms: Sequence[str],
    architecture: Architecture,
    rocm: Rocm = Rocm.CURRENT,
    words: Mapping[str, str] = TERM_WORDS,
) -> str:
    """Return why a formula without *terms* miscounts programs, in the *words* of each term."""
    fields = _ArchitectureWords(architecture, rocm)
    return "; and ".join(words[term].format_map(fields) for term in terms)


def _verdict(calculation: Calculation, copied: TutorialOccupancy, rocm: Rocm = Rocm.CURRENT) -> str:
    truth = calculation.occupancy.programs_per_multiprocessor
    word = calculation.architecture.multiprocessor_word
    programs = copied.programs_per_multiprocessor
    if programs is None:
        return VERDICTS["fails"].format(warp=calculation.architecture.warp_word)
    says = count(programs, held_word(calculation))
    if programs == truth:
        return VERDICTS["right"].format(says=says, mp=word)
    reasons = term_reasons(copied.missing_terms, calculation.architecture, rocm)
    return VERDICTS["wrong"].format(says=says, truth=truth, mp=word, reasons=reasons)


def tutorial_sentences(calculation: Calculation) -> Iterator[str]:
    """Say whether the tutorial's formula is right, and which terms it misses if not."""
    yield as_sentence(_verdict(calculation, calculation.tutorial))
    if isinstance(calculation.architecture, HipArchitecture) and Rocm.OLD in known_to(
        calculation.architecture
    ):
        old = tutorial_occupancy(calculation.resources, calculation.architecture, Rocm.OLD)
        verdict = _verdict(calculation, old, Rocm.OLD)
        used = used_registers(calculation.architecture, Rocm.OLD)
        reported = calculation.architecture.old_registers
        doubled = "" if used == reported else f", which the tutorial doubles to {used} on CDNA"
        yield f"With the {reported} registers that ROCm up to 6.3 reported{doubled}, {verdict}."


def the_tutorial(calculations: Sequence[Calculation]) -> Section:
    """Compare the tutorial's formula with the exact one, and say what makes the difference."""
    word = held_word(calculations[0])
    facts = (
        ("tutorial, registers", lambda calculation: _steps(calculation, "registers")),
        ("tutorial, waves", lambda calculation: _steps(calculation, "warps")),
        ("tutorial, shared memory", lambda calculation: _steps(calculation, "shared")),
        (f"tutorial, {word}s", tutorial_programs),
        (f"exact, {word}s", lambda one: f"**{one.occupancy.programs_per_multiprocessor}**"),
    )
    table = side_by_side(calculations, facts, prose=True)
    return Section(
        "The tutorial's formula", (table,), said_of_each(calculations, tutorial_sentences)
    )


def _steps(calculation: Calculation, resource: str) -> str:
    for limit in calculation.tutorial.limits:
        if limit.resource == resource:
            return "; ".join(limit.steps) or "ZeroDivisionError"
    return "-"


def tutorial_programs(calculation: Calculation) -> str:
    """Return the programs per multiprocessor by the tutorial's formula, or "fails"."""
    programs = calculation.tutorial.programs_per_multiprocessor
    return "fails" if programs is None else f"**{programs}**"
