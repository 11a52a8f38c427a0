"""The short explanation, one screen on a launch, its limits and what to try; and the glossary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from types import MappingProxyType

from occupancy_lab.explaining.advice import cap_outcomes, first_advice, what_to_try
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.duration import time_sentence, without_time
from occupancy_lab.explaining.facts import launch_facts, launched_words, resource_words
from occupancy_lab.explaining.limits import (
    Outcomes,
    held_in_short,
    held_word,
    idle_words,
    program_more,
)
from occupancy_lab.explaining.matrix_section import the_matrix
from occupancy_lab.explaining.work import work_sentences
from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.occupancy.calculator import Calculation
from occupancy_lab.prediction import PARTS
from occupancy_lab.record import Failed
from occupancy_lab.text.document import Document, Section, Table, literal, side_by_side
from occupancy_lab.text.words import listed, multiprocessor_words, said_of_each
from occupancy_lab.values import Limit

FULL, EMPTY = "█", "░"
"""The characters of a bar; `printing` replaces them for encodings that lack them."""
BAR = 6
"""Characters of a bar."""
PART_WORDS = [f"{name} ({words.rpartition(': ')[2]})" for name, words in PARTS.items()]
WORDS = {
    "program": "what Triton launches: a thread block on NVIDIA, a workgroup on AMD.",
    "SM, CU, WGP": (
        "the multiprocessor on which programs run: an SM on NVIDIA, a CU on AMD. A WGP is two CUs"
        " of RDNA."
    ),
    "GCD": (
        "one of the two halves of an MI250 or MI250X, which HIP and Triton see as a GPU of its own;"
        " all numbers are those of one half."
    ),
    "warp, wave": "threads that execute together: 32 in a warp, 32 (RDNA) or 64 (CDNA) in a wave.",
    "persistent, one program per row": (
        "`softmax` launches as many programs as fit, and each loops over rows; `softmax_row`"
        " launches a program for each row and has no loop."
    ),
    "occupancy": "resident warps divided by the warps that the multiprocessor has slots for.",
    "limiter": "a resource of which too little is left for one more program.",
    "next step": (
        "the registers per thread, or the bytes of shared memory, at which one more program fits."
    ),
    "launch line": "where a script launches a kernel: `kernel[grid](x, y, BLOCK=1024)`.",
    "registers": (
        "where a thread keeps its values, 32 bits each. An SM's register file has four quarters,"
        " and all registers of a warp come from one of them. AMD has VGPRs, one per thread, and"
        " SGPRs, shared by a wave; AGPRs are VGPRs in which CDNA's matrix instructions accumulate,"
        " or which keep a value."
    ),
    "trap handler": (
        "code that an AMD wave runs on an error, or when a debugger stops it; on gfx9 it reserves"
        " 16 SGPRs of each wave."
    ),
    "maxnreg, waves_per_eu": (
        "launch options that make the compiler use fewer registers, on NVIDIA and on AMD."
    ),
    "shared memory, LDS": (
        "fast memory of a multiprocessor, shared by all threads of a program; LDS on AMD."
    ),
    "local memory, spills": (
        "a thread's private part of device memory, which holds values that have no register"
        " (spills)."
    ),
    "local B, shared B": "bytes of local memory per thread, and of shared memory per program.",
    "for prefetched data": (
        "the part of shared memory into which num_stages loads data for later passes of the loop."
    ),
    "loads, stores of a thread": (
        "the bytes that one instruction moves per thread: up to 16 B, from sm_100 on up to 32."
        " Narrower loads and stores take more instructions for the same bytes. If widths differ, it"
        " is the width by which most bytes are moved; atomic operations are among the stores."
    ),
    "sector": (
        "the 32 bytes that memory moves at a time; rows that share a sector waste some bandwidth."
    ),
    "named barriers": "barriers of an SM at which warps of a program wait for each other.",
    "tensor memory": "memory of an SM, from Blackwell on, in which tensor cores compute.",
    "TMA": "a unit of an SM, from sm_90 on, that copies whole blocks of a tensor for its threads.",
    "lanes in use, masked off": (
        "lanes of a block past the end of the data are masked off: they move no data, but take"
        " registers and instructions."
    ),
    "waves of programs": (
        "programs launched divided by programs that the GPU runs at once: with 1.5 the GPU is full"
        " once and then half full, which is the tail. AMD's waves of threads are something else."
    ),
    "GPU full": "the launch has as many programs as the GPU runs at once.",
    "piece": (
        "what a program works on at a time if its kernel does not divide a matrix into rows: a few"
        " short rows, or a part of a long row."
    ),
    "pass": "one execution of a loop's body: of a persistent softmax, one row.",
    "round, tail": (
        "a round gives each running program one row; the tail is the last round or wave if it does"
        " not fill the GPU. As a part of the time, the tail is what that costs, and what it"
        " costs that some programs take longer than others."
    ),
    "parts of the time": (
        "the predicted time of each part if the others took no time. The parts overlap, so they"
        f" add up to more than the whole: {'; '.join(PART_WORDS)}."
    ),
    "shared memory and L1 cache, lsu": (
        "as a part of the time, the pipe by which threads load and store; shuffles, by which the"
        " threads of a warp exchange values in reductions and scans, take it too."
    ),
    "if its results stay right": (
        "a change of a block or a grid is compiled, and the bytes that it moves are compared, but"
        " nothing is computed: run your own test of the results."
    ),
    "bound by, bound": (
        "the part that takes longest by itself; in a scan, what keeps a kernel from being faster:"
        " memory, issue, local memory, programs (too few at once) or tensor cores."
    ),
    "plain copy": (
        "a kernel that only reads the matrix and writes it elsewhere, recorded with torch's copy_."
        " A launch with a share above 100% takes less time than that copy, which takes some 2.5 us"
        " longer if the matrix has 1 MiB or more and is not a multiple of 4 KiB. A share is of two"
        " recorded speeds or of two predicted ones; the time beside it is the copy's."
    ),
    "speed of light, at peak, us or more": (
        "the least time that a launch can take: the time for each byte moved once, and for the"
        " FLOPs of each dtype, at the peak rates of the data sheet, which no kernel reaches. The"
        " longest of these times binds."
    ),
    "reads, writes, L2 cache": (
        "the bytes that a launch reads from device memory and writes to it, and those that go"
        " through the L2 cache: all that its programs load and store, in whole sectors."
    ),
    "FLOPs": (
        "floating-point operations: 2 m n k of a dot, by the dtype of its operands; n - 1 of a"
        " reduction of n elements; one per element of other arithmetic; none of comparisons and"
        " selections."
    ),
    "least_us": "the bytes alone, at the vendor's peak bandwidth.",
    "skipped": "the launch is not possible as asked, so nothing was compiled.",
    "gain, gain_by": (
        "in a scan, how many times faster a kernel would be on a full GPU, estimated without the"
        " launch's bytes; and which step achieves that, or why none does."
    ),
    "num_stages": (
        "passes of a loop whose data is in flight: 1 is that of the pass being computed, and each"
        " further stage is loaded ahead."
    ),
    "the tutorial's": (
        "as in Triton's fused softmax tutorial, above all its formula for num_programs."
    ),
    "predicted": (
        "computed from the source and the binary, without a launch. Of kernels that the model was"
        " not fitted to, 80% of the launches took a time within the range in parentheses; for a GPU"
        " of which none was measured, errors may be larger. Launches whose times predictions do not"
        " tell apart are not ranked."
    ),
    "by events, by profiler": (
        "the time of a launch by itself, as a pair of CUDA events around it measures it; or of one"
        " within its script, as a profiler does: some 2 us less, and without the last writes,"
        " which the L2 cache still has when the launch ends and writes during those that follow."
    ),
    "Liger, quack": (
        "libraries with a softmax of their own, recorded for comparison: Liger-Kernel, in Triton,"
        " and QuACK, in the CuTe DSL."
    ),
    "recorded": "measured earlier on another GPU of this kind; measured means here and now.",
}


FURTHER_OPTIONS = "`--full` has the arithmetic, memory and stages; `--words` explains the terms."
"""The options that show more than the page of a single launch."""


def glossary() -> Document:
    """Return the meanings of the terms of an explanation."""
    return Document("Words", tuple(f"**{term}**: {meaning}" for term, meaning in WORDS.items()), ())


def write_short(cases: Sequence[Case], failures: Sequence[Failed] = ()) -> Document:
    """Return the short explanation of a launch; *failures* are the GPUs without a record of it."""
    held = [f"{held_in_short(case.calculation, case.title)}." for case in cases]
    limits = limits_with_bars([case.calculation for case in cases], cap_outcomes(cases))
    tried = what_to_try(cases, FURTHER_OPTIONS)
    sections = (the_launch_in_short(cases), limits, tried, the_matrix(cases))
    return launch_page(cases, failures, held, sections)


def launch_page(
    cases: Sequence[Case],
    failures: Sequence[Failed],
    held: Iterable[str],
    sections: Iterable[Section],
) -> Document:
    """Return the page of one launch: what to do, the occupancy *held* on each GPU, *sections*.

    Sections without content are left out.
    """
    return Document(
        f"{launched_words(cases[0].record)}, on {listed([case.title for case in cases])}",
        (
            *said_of_each(cases, lambda case: filter(None, [without_time(case.record)])),
            *(sentence for case in cases for sentence in first_advice(case)),
            *(f"{words}{idle_words(case)}" for case, words in zip(cases, held, strict=True)),
            *(f"**{one.title}**: {literal(one.failure.reason)}." for one in failures),
        ),
        tuple(one for one in sections if one.tables or one.sentences),
    )


def the_launch_in_short(cases: Sequence[Case]) -> Section:
    """Return the facts about the launches side by side, with sentences on them."""
    table = side_by_side(cases, launch_facts(cases), corner="the launch", prose=True)
    return Section("", (table,), said_of_each(cases, _sentences))


def _sentences(case: Case) -> Iterator[str]:
    found = case.calculation.clusters
    if found is not None:
        whole = "; ".join(found.steps) or found.source
        yield f"A program is a cluster of {found.num_ctas} CTAs, which only fits whole: {whole}."
    cap, taken = case.record.options.get("maxnreg"), case.record.resources.n_regs
    if type(cap) is int and taken > cap:
        word = f"{case.architecture.register_word}s"
        yield f"maxnreg {cap} was not reached: the kernel still takes {taken} {word} per thread."
    padded = case.calculation.padded_vgprs
    if padded is not None:
        yield (
            f"The kernel descriptor asks for {padded} VGPRs, more than the {taken} in use:"
            " waves_per_eu pads the allocation."
        )
    yield from work_sentences(case.record)
    prediction = case.record.prediction
    if prediction is not None and not prediction.calibrated:
        yield time_sentence(case.record)


def bar(share: float) -> str:
    """Return a bar for *share*: full only at 1, and empty only at 0."""
    filled = min(max(round(share * BAR), int(share > 0)), BAR - int(share < 1))
    return FULL * filled + EMPTY * (BAR - filled)


def _pool(resource: str, calculation: Calculation) -> str:
    limits = calculation.occupancy.limits
    limit = next((one for one in limits if one.resource == resource), None)
    if limit is None:
        return "-"
    if limit.programs is None:
        return "not used"
    programs = calculation.occupancy.programs_per_multiprocessor
    limiter = ", limiter" if programs == limit.programs else ""
    return f"{bar(programs / limit.programs)} {programs} of {limit.programs}{limiter}"


def limits_with_bars(
    calculations: Sequence[Calculation],
    outcomes: Outcomes = MappingProxyType({}),
) -> Section:
    """Return the programs that each limit allows, with bars.

    *outcomes* has for each GPU what `step_sentences` takes.
    """
    gpus, (first, *others) = [one.gpu for one in calculations], calculations
    names = dict.fromkeys(each.resource for one in calculations for each in one.occupancy.limits)
    facts = ((resource_words(gpus, name), partial(_pool, name)) for name in names)
    table = side_by_side(calculations, facts, corner="limit", prose=True)
    words = multiprocessor_words(gpus)
    title = f"The limits: programs that run, of those that each limit allows, per {words}"
    if not others:
        title, headers = "The limits", ("limit", f"{held_word(first)}s per {words}", "because")
        because = [_because(first, limit) for limit in first.occupancy.limits]
        rows = ((*row, why) for row, why in zip(table.rows, because, strict=True))
        table = Table(headers, tuple(rows), prose=True)
    return Section(
        title,
        (table,),
        said_of_each(calculations, lambda one: program_more(one, outcomes)),
    )


def _because(calculation: Calculation, limit: Limit) -> str:
    """Return the last step of a limit's arithmetic, and for registers also their rounding."""
    if not limit.steps:
        return "none used"
    last = limit.steps[-1].rpartition(" = ")[0] or limit.steps[-1]
    last = last.removesuffix(f" per {held_word(calculation)}")
    if limit.resource != "registers":
        return last
    n_regs, architecture = calculation.resources.n_regs, calculation.architecture
    rounded = limit.steps[0].rpartition(" = ")[2]
    if isinstance(architecture, CudaArchitecture):
        each = f"{n_regs} x {architecture.warp_size} -> {rounded}"
    else:
        each = f"{n_regs} -> {rounded} a lane"
    return f"{each}; {last.rpartition(' ')[0]}"
