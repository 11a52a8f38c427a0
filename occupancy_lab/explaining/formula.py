"""The tutorial's formula beside the truth, and the terms it misses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.gpus import HipArchitecture
from occupancy_lab.occupancy import Rocm, known_to, tutorial_occupancy
from occupancy_lab.occupancy.tutorial import used_registers
from occupancy_lab.text.document import Section, side_by_side
from occupancy_lab.text.words import article, as_sentence, count, per_cta, said_of_each

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from occupancy_lab.gpus import Architecture
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.values import TutorialOccupancy

TERM_WORDS: Mapping[str, str] = {
    "launch limits": "a program may have at most {max_threads_per_program} threads",
    "warp slots": "{an_mp} holds at most {max_warps} {warp_word}s, whatever the registers allow",
    "program slots": "{an_mp} has slots for a fixed number of programs",
    "driver reserve": "the driver takes {reserved_shared} B of shared memory for each program",
    "register granule": "registers are given out in steps, so a thread's count is rounded up",
    "register quarters": (
        "the register file is {register_partitions} separate quarters, and what is left over in"
        " one is no use to another"
    ),
    "shared granule": "shared memory is given out in steps of {shared_unit} B",
    "static shared": "the binary has shared memory of its own",
    "named barriers": "named barriers run out",
    "tensor memory": "{an_mp} has {tensor_memory} columns of tensor memory",
    "register file": "NUM_GPRS is {num_gprs}, and {an_mp} has {registers} registers",
    "wave slots": "HIP keeps {max_warps} waves {on_mp}, fewer than the threads it reports",
    "registers per SIMD": (
        "each of the {simds} SIMDs has its own registers, and what is left over in one is no use"
        " to another"
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
        "the formula divides by `metadata.shared`, which is 0 for this kernel, whose {warp}s"
        " exchange nothing and copy nothing ahead, and raises ZeroDivisionError"
    ),
    "right": "the formula is right for this kernel: {says} per {mp}",
    "wrong": "the formula says {says} per {mp} where {truth} fit: {reasons}",
}
"""What is said of the tutorial's formula; the page of `explore` says the same."""


class _ArchitectureWords(dict[str, str]):
    """The names in TERM_WORDS: the architecture's fields, and what the tutorial takes for them."""

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
    """Return why programs are miscounted by who misses *terms*, joined by "; and".

    *words* has the reason for each term, with names of the architecture's fields in braces.
    """
    fields = _ArchitectureWords(architecture, rocm)
    return "; and ".join(words[term].format_map(fields) for term in terms)


def _verdict(calculation: Calculation, copied: TutorialOccupancy, rocm: Rocm = Rocm.CURRENT) -> str:
    truth = calculation.occupancy.programs_per_multiprocessor
    word = calculation.architecture.multiprocessor_word
    programs = copied.programs_per_multiprocessor
    if programs is None:
        return VERDICTS["fails"].format(warp=calculation.architecture.warp_word)
    says = count(programs, per_cta("program", calculation.resources.num_ctas))
    if programs == truth:
        return VERDICTS["right"].format(says=says, mp=word)
    reasons = term_reasons(copied.missing_terms, calculation.architecture, rocm)
    return VERDICTS["wrong"].format(says=says, truth=truth, mp=word, reasons=reasons)


def tutorial_sentences(calculation: Calculation) -> Iterator[str]:
    """Say whether the tutorial's formula is right, and what it misses where it is not."""
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
    """Set the tutorial's formula beside the exact one, and say what makes the difference."""
    word = per_cta("program", calculations[0].resources.num_ctas)
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
    """Return the programs per multiprocessor that the tutorial's formula says, or that it fails."""
    programs = calculation.tutorial.programs_per_multiprocessor
    return "fails" if programs is None else f"**{programs}**"
