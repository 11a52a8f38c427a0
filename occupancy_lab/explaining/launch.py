"""A matrix's own sections of the full page: what fits, what was compiled, launch and memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from occupancy_lab.arguments import ALIGNMENT
from occupancy_lab.explaining.facts import resident_words
from occupancy_lab.explaining.neighbours import WIDEST_ACCESS
from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.text.document import Document, Section, Table, side_by_side
from occupancy_lab.text.words import byte_words, count, known, microseconds, said_of_each
from occupancy_lab.values import Problem, Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel

SHOWN_ROWS = 3
"""Rows of one program that are listed before the dots."""
SHOWN_ELEMENTS = 64
"""The largest launch over blocks that is shown program by program, in elements."""
ONE_ROW = Problem(1, 1000)
"""A matrix with which a count of elements shows what is per element (MN) and per row (M)."""


def masked_lanes(case: Case) -> int:
    """Return how many lanes of the last block (or of each row's block) hold no element."""
    length = case.record.problem.cols
    if case.kernel.grid is Grid.BLOCKS:
        length *= case.record.problem.rows
    return -length % case.record.config.block_size


def elements_per_thread(case: Case) -> float | None:
    """Return the elements of a block per thread; below 1, some threads only duplicate others.

    None if the kernel gives BLOCK_SIZE a meaning of its own.
    """
    if case.kernel.configs is not None:
        return None
    return case.record.config.block_size / case.threads


def _block_sentences(case: Case) -> Iterator[str]:
    problem, block_size = case.record.problem, case.record.config.block_size
    masked = masked_lanes(case)
    if case.kernel.grid is Grid.BLOCKS:
        total = problem.rows * problem.cols
        yield (
            f"A program takes BLOCK_SIZE {block_size} of the {total} elements; the mask keeps the"
            f" {masked} spare lanes of the last program from accessing memory."
        )
        return
    if case.kernel.configs is not None:
        yield f"The kernel chooses its blocks itself: BLOCK_SIZE {block_size} here."
        return
    spare = "every lane holds an element."
    if masked:
        spare = (
            f"{masked} of the {block_size} lanes are masked: they move no memory, but they take"
            " registers and instructions like the others."
        )
    passes = case.kernel.passes
    if passes is not None and passes(problem, case.record.config) > 1:
        yield f"A program goes over its row in blocks of {block_size}; in the last {spare}"
        return
    yield (
        f"A program holds a whole row, and `tl.arange` takes a power of two: {block_size} for"
        f" {count(problem.cols, 'column')}; {spare}"
    )


def _load_sentences(case: Case) -> Iterator[str]:
    problem, resources = case.record.problem, case.record.resources
    if resources.load_bytes is None:
        return
    if resources.load_bytes >= WIDEST_ACCESS:
        yield f"Loads are {resources.load_bytes} bytes per thread, the widest there are."
        return
    kernel = case.kernel
    if kernel.rows_alike:
        return
    if problem.cols % ALIGNMENT and kernel.grid is not Grid.BLOCKS:
        padded = -(-problem.cols // ALIGNMENT) * ALIGNMENT
        row_bytes = problem.cols * problem.item_bytes
        start = "which would do, but Triton checks columns, not bytes."
        if past := row_bytes % WIDEST_ACCESS:
            start = f"so row 1 starts {past} bytes past a {WIDEST_ACCESS}-byte boundary."
        yield (
            f"{problem.cols} columns forbid {WIDEST_ACCESS}-byte loads: a row is {row_bytes} bytes,"
            f" {start}"
            f" Triton checks whether {problem.cols} is a multiple of {ALIGNMENT}, and it is not."
            f" Each load moves {resources.load_bytes} bytes; {padded} columns would allow wider"
            " loads."
        )
        return
    elements = elements_per_thread(case)
    if elements is None:
        return
    if elements < 1:
        yield (
            f"Only {case.record.config.block_size} of the {case.threads} threads hold an element of"
            " their own; the others duplicate these."
        )
    elif elements * problem.item_bytes < WIDEST_ACCESS:
        yield (
            f"A thread holds {elements:g} elements of {problem.item_bytes} bytes, too few for a"
            f" {WIDEST_ACCESS}-byte load; its loads are {resources.load_bytes} bytes."
        )


def what_fits(cases: Sequence[Case]) -> Section:
    """Explain the block, its mask, the elements per thread and the width of the loads."""

    def masked(case: Case) -> str:
        lanes, block_size = masked_lanes(case), case.record.config.block_size
        own_blocks = case.kernel.configs is not None
        return "not known" if own_blocks else f"{lanes} of {block_size} ({lanes / block_size:.1%})"

    def elements(case: Case) -> str:
        number = elements_per_thread(case)
        return known(number if number is None else f"{number:g}")

    facts = (
        ("masked lanes", masked),
        ("threads per program", threads_words),
        ("elements per thread", elements),
    )
    sentences = (*said_of_each(cases, _block_sentences), *said_of_each(cases, _load_sentences))
    return Section("What fits", (side_by_side(cases, facts),), sentences)


def threads_words(case: Case) -> str:
    """Return the threads per program: "8 warps x 32 = 256"."""
    architecture = case.architecture
    warps = count(case.record.num_warps, architecture.warp_word)
    return f"{warps} x {architecture.warp_size} = {case.threads}"


def stage_sentences(case: Case) -> Iterator[str]:
    """Say what num_stages costs in registers and shared memory, compared with num_stages 1."""
    if case.single_stage is None:
        return
    single, resources = case.single_stage.resources, case.record.resources
    stages = case.record.num_stages
    registers, shared = f"{case.architecture.register_word}s", case.architecture.shared_word
    over_rows, word = case.plan.is_persistent, case.piece
    counted = resources.instructions is not None
    looped = resources.loop_instructions is not None if counted else over_rows
    if not looped and not resources.pipeline_shared:
        if stages > 1:
            yield f"num_stages {stages} has no effect: the kernel has no loop to pipeline."
        return
    if stages == 1:
        what = f"no {word}" if over_rows else "nothing"
        yield f"num_stages 1 does not prefetch: {what} is loaded before it is needed."
        return
    ahead = count(stages - 1, word if over_rows else "stage")
    if resources.pipeline_shared:
        buffer = resources.pipeline_shared // (stages - 1)
        yield (
            f"num_stages {stages} keeps {ahead} in flight in {shared}, {buffer} B each:"
            f" {resources.shared} B against {single.shared} B with num_stages 1, with"
            f" {resources.n_regs} {registers} against {single.n_regs}."
        )
    elif resources.n_regs != single.n_regs:
        yield (
            f"num_stages {stages} keeps {ahead} in flight in {registers}: {resources.n_regs}"
            f" against {single.n_regs} with num_stages 1; {shared} stays at {resources.shared} B."
        )
    else:
        yield (
            f"num_stages {stages} costs nothing here: with num_stages 1 the kernel takes the same"
            f" {single.n_regs} {registers} and {single.shared} B of {shared}."
        )


def _spill_sentences(case: Case) -> Iterator[str]:
    resources = case.record.resources
    if resources.local_bytes:
        vgprs = resources.vgpr_spills
        spilled = "" if vgprs is None else f", {vgprs} VGPRs spilled"
        yield (
            f"Each thread also uses {resources.local_bytes} B of local memory"
            f" (n_spills {resources.n_spills}{spilled}), which causes memory traffic that occupancy"
            " does not show."
        )
    if resources.sgpr_spills:
        yield f"{resources.sgpr_spills} SGPRs are spilled to VGPR lanes; that moves no memory."


def register_sentences(case: Case) -> Iterator[str]:
    """Say where a launch takes more registers than maxnreg asked for, or than its kernel uses."""
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


def what_was_compiled(cases: Sequence[Case]) -> Section:
    """Explain what the stages of the compiled kernel cost, and what it spills."""
    words = " or ".join(dict.fromkeys(f"{case.piece}s" for case in cases))

    def shared(case: Case, *, scratch: bool) -> str:
        resources, pipeline = case.record.resources, case.record.resources.pipeline_shared
        if pipeline is None:
            return "not known"
        return f"{resources.shared - pipeline if scratch else pipeline} B"

    facts = (
        (f"shared memory for {words} in flight", partial(shared, scratch=False)),
        ("shared memory for the reduction", partial(shared, scratch=True)),
    )
    sentences = (*said_of_each(cases, stage_sentences), *said_of_each(cases, _spill_sentences))
    return Section("What was compiled", (side_by_side(cases, facts),), sentences)


def _tail(case: Case) -> str:
    plan = case.plan
    if plan.last_round is None or plan.at_once is None:
        return "not known"
    return f"{plan.last_round} of {plan.at_once} ({plan.last_round / plan.at_once:.0%})"


def _rows_of_first(case: Case) -> str:
    if case.plan.num_programs is None:
        return "not known"
    if _taken_in_turns(case):
        return "0 first"
    work = case.plan.work_of(0)
    shown = ", ".join(str(row) for row in work[:SHOWN_ROWS])
    return f"{shown}, ..." if len(work) > SHOWN_ROWS else shown


def _taken_in_turns(case: Case) -> bool:
    """Tell whether programs take pieces dynamically, in an order that only the kernel knows."""
    return case.plan.is_persistent and case.kernel.work is not None


def plan_sentence(case: Case) -> str:
    """Say how num_programs is calculated and what each program does."""
    plan, gpu, word = case.plan, case.record.gpu, case.piece
    multiprocessor = case.architecture.multiprocessor_word
    if plan.resident_programs is None or plan.num_programs is None:
        return (
            f"{gpu.title} is an architecture, not a GPU, so the number of its {multiprocessor}s is"
            " not known: name a GPU to get num_programs."
        )
    if case.plan.is_persistent:
        others = f"{word}s p, p + {plan.num_programs}, ... up to {plan.work - 1}"
        if _taken_in_turns(case):
            others = f"{word} p first, and the programs take the others in turns"
        return (
            f"num_programs = min({plan.work} {word}s, {resident_words(case)}) ="
            f" {plan.num_programs}. Program p takes {others}."
        )
    each = "" if word == "program" else f"One program per {word}: "
    return (
        f"{each}num_programs = {plan.num_programs}, {plan.waves or 0:.2f} times as many as the GPU"
        " runs at once."
    )


def _tutorial_sentence(case: Case) -> Iterator[str]:
    launched, right = case.record.miscount, case.plan.num_programs
    if launched is None or right is None:
        return
    if launched > right:
        what = f"they wait until others have finished all their {case.piece}s"
        if not case.record.runs(launched):
            what = "the driver refuses that, because programs that wait for each other must all fit"
        yield (
            f"The tutorial's formula would launch {count(launched, 'program')},"
            f" {launched - right} more than fit: {what}."
        )
    else:
        yield (
            f"The tutorial's formula would launch {count(launched, 'program')} and leave"
            f" {count(right - launched, 'place')} empty."
        )


def _tail_sentence(case: Case) -> Iterator[str]:
    plan, word = case.plan, case.piece
    if plan.rounds is None or plan.last_round is None or plan.at_once is None:
        return
    if plan.rounds == 1:
        resident = plan.resident_programs or plan.at_once
        yield (
            f"All {plan.work} {word}s are done in one round, which uses"
            f" {plan.at_once / resident:.0%} of the places for programs."
        )
        return
    busy = plan.work / (plan.rounds * plan.at_once)
    yield (
        f"The {plan.work} {word}s take {plan.rounds} rounds; the last is the tail, with"
        f" {count(plan.last_round, word)} for {plan.at_once} places. Over the whole launch"
        f" {busy:.0%} of the places have a {word}."
    )


def _program_tables(case: Case) -> tuple[Table, ...]:
    problem, block_size = case.record.problem, case.record.config.block_size
    elements = problem.rows * problem.cols
    program_table = case.kernel.program_table
    if program_table is None or elements > SHOWN_ELEMENTS or block_size > SHOWN_ELEMENTS:
        return ()
    rows = tuple(
        (
            str(row.pid),
            str(row.block_start),
            " ".join(str(offset) for offset in row.offsets),
            " ".join("1" if inside else "0" for inside in row.mask),
        )
        for row in program_table(elements, block_size)
    )
    return (Table(("pid", "block_start", "offsets", "mask"), rows, "What each program sees:"),)


def the_launch(cases: Sequence[Case]) -> Section:
    """Explain how many programs are launched, in how many rounds, and which rows each does."""
    word = cases[0].piece
    facts = ((f"{word}s in the last round", _tail), (f"{word}s of program 0", _rows_of_first))
    tables = (side_by_side(cases, facts), *_program_tables(cases[0]))

    def sentences(case: Case) -> Iterator[str]:
        yield plan_sentence(case)
        yield from _tail_sentence(case)
        yield from _tutorial_sentence(case)

    return Section("The launch", tables, said_of_each(cases, sentences))


def _baseline(case: Case) -> tuple[Kernel, Traffic] | None:
    """Return the kernel of torch operations that computes the same, and its traffic."""
    name = None if case.record.matrix is None else case.kernel.compared_with
    if name is None:
        return None
    kernel = load_kernel(name)
    moved = kernel.traffic(case.record.problem)
    return None if moved is None else (kernel, moved)


def _traffic_table(case: Case, own: Traffic) -> Table:
    moved, baseline = {case.record.kernel: own}, _baseline(case)
    if baseline is not None:
        moved[baseline[0].name] = baseline[1]
    rows = (
        (name, *map(byte_words, (one.read_bytes, one.written_bytes, one.total_bytes)))
        for name, one in moved.items()
    )
    return Table(("", "read", "written", "total"), tuple(rows))


def _traffic_sentences(case: Case) -> Iterator[str]:
    baseline, own = _baseline(case), case.record.traffic
    if baseline is None or own is None:
        return
    kernel, moved = baseline
    passes = len(kernel.steps(case.record.problem))
    reads, writes = _polynomials(kernel)
    ratio = moved.total_bytes / own.total_bytes
    yield (
        f"{kernel.name} makes {passes} passes over the matrix of M rows and N columns: {reads}"
        f" elements read and {writes} written, {ratio:.1f} times the traffic of one fused read and"
        " write."
    )


def _polynomials(kernel: Kernel) -> tuple[str, str]:
    steps = kernel.steps(ONE_ROW)
    reads, writes = sum(step.reads for step in steps), sum(step.writes for step in steps)
    return _polynomial(reads), _polynomial(writes)


def _polynomial(elements: int) -> str:
    """Return a number of elements counted with `ONE_ROW` as "5MN + 2M"."""
    counts = zip(divmod(elements, ONE_ROW.cols), ("MN", "M"), strict=True)
    terms = [name if number == 1 else f"{number}{name}" for number, name in counts if number]
    return " + ".join(terms) or "0"


def write_steps(kernel: Kernel, problem: Problem, gpus: Sequence[Gpu]) -> Document:
    """Return the traffic of a *kernel* of torch operations, step by step, and the least time."""
    steps, moved = kernel.steps(problem), kernel.traffic(problem) or Traffic(0, 0)
    reads, writes = _polynomials(kernel)
    rows = (
        (
            step.operation,
            _polynomial(one.reads),
            _polynomial(one.writes),
            byte_words(step.reads * problem.item_bytes),
            byte_words(step.writes * problem.item_bytes),
        )
        for step, one in zip(steps, kernel.steps(ONE_ROW), strict=True)
    )
    total = ("total", reads, writes, byte_words(moved.read_bytes), byte_words(moved.written_bytes))
    floors = tuple(
        f"{gpu.title}: {byte_words(moved.total_bytes)} at {gpu.bandwidth_gbs:g} GB/s, the vendor's"
        f" peak, take at least {microseconds(floor)}."
        for gpu in gpus
        if (floor := moved.floor_us(gpu.bandwidth_gbs)) is not None
    )
    headers = ("step", "elements read", "written", "bytes read", "written")
    why_none = (
        f"{kernel.name} is {count(len(steps), 'torch operation')}, launched one after another:"
        " Triton compiles nothing, so there is no occupancy to explain."
    )
    moves = (
        f"M rows and N columns: {reads} elements are read and {writes} written; a fused kernel"
        " reads MN and writes MN."
    )
    section = Section("What each step moves", (Table(headers, (*rows, total)),), floors)
    return Document(f"{kernel.name}, {problem.words}", (why_none, moves), (section,))


def _floor_table(cases: Sequence[Case], moved: Traffic) -> Table:
    def row(gpu: Gpu) -> tuple[str, ...]:
        floor, l2_bytes = moved.floor_us(gpu.bandwidth_gbs), gpu.l2_bytes
        return (
            gpu.title,
            known(gpu.bandwidth_gbs and f"{gpu.bandwidth_gbs:g} GB/s"),
            known(l2_bytes and f"{l2_bytes / 2**20:g} MiB"),
            known(floor and f"{floor:.2f} us"),
        )

    rows = tuple(row(case.record.gpu) for case in cases)
    return Table(("", "peak bandwidth", "L2", "floor time"), rows)


def _floor_sentences(case: Case) -> Iterator[str]:
    gpu, moved = case.record.gpu, case.record.traffic
    floor = None if moved is None else moved.floor_us(gpu.bandwidth_gbs)
    if moved is None or floor is None:
        return
    doubt = ", and in doubt" if "bandwidth_gbs" in gpu.doubtful else ""
    yield (
        f"{byte_words(moved.total_bytes)} at {gpu.bandwidth_gbs:g} GB/s take at least"
        f" {floor:.2f} us. That bandwidth is the vendor's peak, not a measurement{doubt}."
    )
    name, cache_bytes = "Infinity Cache", gpu.infinity_cache_bytes
    if cache_bytes is None:
        name, cache_bytes = "L2", gpu.l2_bytes
    if cache_bytes is not None and moved.written_bytes <= cache_bytes:
        yield (
            f"The output, {byte_words(moved.written_bytes)}, fits in the"
            f" {cache_bytes / 2**20:g} MiB {name} and may stay there, so a measured bandwidth can"
            " exceed that of the DRAM."
        )


def the_memory(cases: Sequence[Case]) -> Section:
    """Explain the bytes that have to move, compared with torch operations, and the least time."""
    moved = cases[0].record.traffic
    if moved is None:
        unknown = (
            f"How many bytes {cases[0].kernel.name} has to move, and so how near it is to a copy,"
            " is not known: the memory_steps of its KERNEL say it."
        )
        return Section("Memory", (), (unknown,))
    sentences = (
        *said_of_each(cases[:1], _traffic_sentences),
        *said_of_each(cases, _floor_sentences),
    )
    return Section(
        "Memory", (_traffic_table(cases[0], moved), _floor_table(cases, moved)), sentences
    )
