"""How a matrix fits a program's block, threads and loads, and what the stages and spills cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.arguments import ALIGNMENT
from occupancy_lab.explaining.neighbours import WIDEST_ACCESS
from occupancy_lab.kernel import Grid
from occupancy_lab.text.document import Section, side_by_side
from occupancy_lab.text.words import count, known, said_of_each

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.explaining.case import Case


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
    facts = (
        ("masked lanes", _masked),
        ("threads per program", threads_words),
        ("elements per thread", _elements),
    )
    sentences = (*said_of_each(cases, _block_sentences), *said_of_each(cases, _load_sentences))
    return Section("What fits", (side_by_side(cases, facts),), sentences)


def _masked(case: Case) -> str:
    masked, block_size = masked_lanes(case), case.record.config.block_size
    if case.kernel.configs is not None:
        return "not known"
    return f"{masked} of {block_size} ({masked / block_size:.1%})"


def _elements(case: Case) -> str:
    elements = elements_per_thread(case)
    return known(elements if elements is None else f"{elements:g}")


def threads_words(case: Case) -> str:
    """Return the threads per program: "8 warps x 32 = 256"."""
    architecture = case.architecture
    warps = count(case.record.num_warps, architecture.warp_word)
    return f"{warps} x {architecture.warp_size} = {case.threads}"


def _pipeline(case: Case) -> str:
    pipeline = case.record.resources.pipeline_shared
    return "not known" if pipeline is None else f"{pipeline} B"


def _scratch(case: Case) -> str:
    resources = case.record.resources
    if resources.pipeline_shared is None:
        return "not known"
    return f"{resources.shared - resources.pipeline_shared} B"


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
    facts = (
        (f"shared memory for {words} in flight", _pipeline),
        ("shared memory for the reduction", _scratch),
    )
    sentences = (*said_of_each(cases, stage_sentences), *said_of_each(cases, _spill_sentences))
    return Section("What was compiled", (side_by_side(cases, facts),), sentences)
