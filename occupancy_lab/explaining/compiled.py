"""What was compiled: registers, shared memory and its parts, spills, and the cost of stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.kernel import Grid
from occupancy_lab.text.document import Section, Table
from occupancy_lab.text.words import compared, count, known, said_of_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from occupancy_lab.explaining.case import Case


def _registers(case: Case) -> str:
    resources = case.record.resources
    agprs = f", {resources.agprs} of them AGPRs" if resources.agprs else ""
    return f"{resources.n_regs} {case.architecture.register_word}s{agprs}"


def _shared(case: Case) -> str:
    return f"{case.record.resources.shared} B"


def _pipeline(case: Case) -> str:
    pipeline = case.record.resources.pipeline_shared
    return "not known" if pipeline is None else f"{pipeline} B"


def _scratch(case: Case) -> str:
    resources = case.record.resources
    if resources.pipeline_shared is None:
        return "not known"
    return f"{resources.shared - resources.pipeline_shared} B"


def _local(case: Case) -> str:
    local = case.record.resources.local_bytes
    return "not known" if local is None else f"{local} B"


def stage_sentences(case: Case) -> Iterator[str]:
    """Say what num_stages costs here, against num_stages 1."""
    record, single = case.record, case.single_stage
    stages, resources = record.config.num_stages, record.resources
    registers, shared = f"{case.architecture.register_word}s", case.architecture.shared_word
    over_rows = record.kernel.grid is Grid.PERSISTENT
    counted = resources.instructions is not None
    looped = resources.loop_instructions is not None if counted else over_rows
    if not looped and not resources.pipeline_shared:
        if stages > 1:
            yield f"num_stages {stages} has no effect: the kernel has no loop to pipeline."
        return
    if stages == 1:
        what = "no row" if over_rows else "nothing"
        yield f"num_stages 1 asks for nothing ahead of time: {what} is loaded before it is needed."
        return
    ahead = count(stages - 1, "row" if over_rows else "stage")
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
        spilled = ""
        if resources.vgpr_spills is not None:
            spilled = f", {resources.vgpr_spills} VGPRs spilled"
        yield (
            f"Each thread also has {resources.local_bytes} B of local memory"
            f" (n_spills {resources.n_spills}{spilled}), which is memory traffic that no occupancy"
            " shows."
        )
    if resources.sgpr_spills:
        yield f"{resources.sgpr_spills} SGPRs are spilled to VGPR lanes; that moves no memory."
    allocated = resources.allocated_vgprs
    granule = getattr(case.architecture, "vgpr_granule", 1)
    if allocated is not None and allocated > -(-resources.n_regs // granule) * granule:
        yield (
            f"The kernel descriptor asks for {allocated} VGPRs, more than the {resources.n_regs}"
            " in use: waves_per_eu pads the allocation."
        )


def resource_rows(cases: tuple[Case, ...]) -> list[tuple[str, Callable[[Case], str]]]:
    """Return the rows of a table of what the compiled kernels take."""
    rows: list[tuple[str, Callable[[Case], str]]] = [
        ("registers a thread", _registers),
        ("shared memory a program", _shared),
        ("of it rows in flight", _pipeline),
        ("of it for the reduction", _scratch),
        ("local memory a thread", _local),
    ]
    if any(case.record.resources.sgprs is not None for case in cases):
        rows.append(("SGPRs a wave", lambda case: _or_dash(case.record.resources.sgprs)))
    if any(case.record.resources.barriers is not None for case in cases):
        rows.append(("named barriers", lambda case: _or_dash(case.record.resources.barriers)))
    rows.append(("Triton", lambda case: known(case.record.triton_version)))
    return rows


def what_was_compiled(cases: tuple[Case, ...]) -> Section:
    """Explain what the compiled kernel takes, and what its stages cost on this vendor."""
    table = Table(("", *(case.title for case in cases)), compared(cases, resource_rows(cases)))
    sentences = (*said_of_each(cases, stage_sentences), *said_of_each(cases, _spill_sentences))
    return Section("What was compiled", (table,), sentences)


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)
