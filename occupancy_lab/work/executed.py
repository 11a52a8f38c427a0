"""What the machine code of a launch executes: instructions by kind, line and loop, and sectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import cast

from occupancy_lab.arguments import Plain
from occupancy_lab.compiling import cubin
from occupancy_lab.compiling.sass import BULK_COPIES, KINDS_BY_OPCODE, stalls
from occupancy_lab.compiling.texts import Texts
from occupancy_lab.errors import unreadable
from occupancy_lab.gpus import CudaArchitecture, architectures
from occupancy_lab.work import operations
from occupancy_lab.work.asked import Asking
from occupancy_lab.work.banks import PASS, WARP_GROUP, Served, Serving, product_wavefronts
from occupancy_lab.work.counts import LINE, NOTHING, Amount, Loop, Place
from occupancy_lab.work.executed_gcn import GcnRun
from occupancy_lab.work.execution import Executed, SharedAccess
from occupancy_lab.work.followed import Marks, Run, between
from occupancy_lab.work.gathers import Gather
from occupancy_lab.work.line_tables import read_lines
from occupancy_lab.work.live import live_registers, product_flops
from occupancy_lab.work.module import UNKNOWN_PLACE
from occupancy_lab.work.operations import ATOMICS, LOADS, SHARED_ACCESSES, WARP, local_bytes
from occupancy_lab.work.passed import Passed, parameters_of
from occupancy_lab.work.program import BARRIERS, program_of
from occupancy_lab.work.slices import ACCESSES, Slice, accesses_of, read_code, slice_of
from occupancy_lab.work.threads import SPECIAL_PROGRAM, SPECIAL_RANK, Launched
from occupancy_lab.work.tickets import waiting
from occupancy_lab.work.waits import sass_events, waits
from occupancy_lab.work.warps import Assumed, Visits, Warps

NEVER = 15
"""The guard of instructions that are never executed: !PT."""
OPERATIONS = {
    **dict.fromkeys(LOADS, "load"),
    **dict.fromkeys(ATOMICS, "atomic"),
    operations.LDGSTS: "copy",
}
SHARED_OPERATIONS = {
    **dict.fromkeys((operations.LDS, operations.LDSM), "load"),
    **dict.fromkeys((operations.STS, operations.STSM), "store"),
    **dict.fromkeys(operations.HGMMA, "product"),
    operations.ATOMS: "atomic",
    operations.LDGSTS: "copy",
}
LOCAL = frozenset({operations.LDL, operations.STL})
ASKING_SHARED = SHARED_ACCESSES | operations.HGMMA


def execute(  # noqa: PLR0913 - the parts of a launch
    texts: Texts,
    arguments: Mapping[str, Plain],
    grid: Sequence[int],
    *,
    values: Mapping[str, Sequence[int]] | None = None,
    resident: int | None = None,
    loops: Sequence[Loop] = (),
    gathers: Mapping[Place, Gather] | None = None,
    l1_bytes: int | None = None,
) -> Executed:
    """Return what a launch executes according to its binary.

    *arguments* maps parameter names to values. *values* has the known contents of integer tensors.
    *resident* programs run at once, each with *l1_bytes* of the L1 cache; None where this is not
    known. *loops* are those of the source, of which some have assumed trips or a limit, and
    *gathers* its `gathers_of`. Another condition that depends on other values from memory is listed
    in `unknowns`, and counts that depend on it are ranges. `program`, the needs of a program or of
    each CTA of a cluster, is only known for NVIDIA's GPUs.

    Raises:
        BinaryError: there is no binary, it is damaged, or it has an unknown kind of jump.
    """
    if texts.amdgcn is not None:
        waves = GcnRun(texts, texts.amdgcn, arguments, grid, values or {})
        waves.loops, waves.gathers = loops, gathers or {}
        return waves.executed()
    if texts.cubin is None:
        unreadable(f"The instructions that {texts.name} executes are not counted: it has no cubin.")
    warps = SassRun(texts, texts.cubin, arguments, grid, values or {})
    warps.loops, warps.gathers = loops, gathers or {}
    if l1_bytes is not None:
        warps.kept_lines = l1_bytes // LINE
    return warps.with_program(resident)


class SassRun(Run):
    """A launch on an NVIDIA GPU."""

    def __init__(
        self,
        texts: Texts,
        binary: bytes,
        arguments: Mapping[str, Plain],
        grid: Sequence[int],
        values: Mapping[str, Sequence[int]],
    ) -> None:
        elf = cubin.read_elf(binary, cubin.EM_CUDA, "a cubin")
        self.arch = arch = cubin.compute_capability(elf)
        text = cubin.kernel_text(elf, texts.name)
        content = text.content
        names = parameters_of(texts.ttir, texts.name)
        passed = Passed.of_cubin(elf, texts.name, names, arguments, values)
        own = cubin.own_code(elf, cubin.symbols_of(elf), text)
        code = read_code(content, arch, passed.tables, len(own))
        places = [one or UNKNOWN_PLACE for one in read_lines(elf, texts.name, texts.ptx)]
        once = {one: one for one in places}
        kinds = [
            "bulk_copies" if one in BULK_COPIES else KINDS_BY_OPCODE.get(one)
            for one in code.opcodes
        ]
        threads = texts.num_warps * WARP
        self.ctas = texts.num_ctas
        columns, *others = grid
        ctas = (columns * self.ctas, *others)
        super().__init__(code, passed, [once[one] for one in places], kinds, ctas, threads)
        self.accessing = {
            number: (OPERATIONS.get(opcode, "store"), code.decoder.moved_bytes(code.words[number]))
            for number, opcode in enumerate(code.opcodes)
            if opcode in ACCESSES
        }
        passed.set_sizes(arch, self.threads, self.grid, self.ctas)
        self.shared = (
            texts.shared
            + sum(one.size for one in elf.sections if one.name.startswith(".nv.shared."))
            + cubin.RESERVED_SHARED
        )
        self.stalls = stalls(content)
        self.asks_shared = any(map(self._is_shared, range(len(code.words))))
        self.in_step = not BARRIERS.isdisjoint(code.opcodes)
        self.waiting = {*waiting(code)}
        self._serving: list[Serving] = []

    def with_program(self, resident: int | None) -> Executed:
        """Return what the launch executes, with the `program` for *resident* programs at once."""
        found = self.executed()
        served = [one.means() for one in self._serving]
        shared = tuple(
            self._shared_access(number, self.executions[start], served)
            for start, block in self.code.blocks.items()
            for number in range(block.start, block.stop)
            if self._is_shared(number) and self.executions[start] != NOTHING
        )
        program = program_of(
            self.code,
            self.typical,
            found.accesses,
            shared,
            architecture=cast("CudaArchitecture", architectures()[f"sm_{self.arch}"]),
            threads=self.threads,
            programs=self.programs,
            resident=None if resident is None else resident * self.ctas,
            waiting=self.waiting,
        )
        return replace(found, shared=shared, program=program)

    def _warps(
        self, needed: Slice, launched: Launched, visits: Visits | None, assumed: Assumed
    ) -> Warps:
        return Warps(self.code, needed, launched, visits, assumed)

    def _needed(self, *, addresses: bool) -> Slice:
        return accesses_of(self.code) if addresses else slice_of(self.code, frozenset())

    def axes_read(self, needed: Slice) -> Collection[int]:
        """Return the axes of the grid along which the *needed* values differ between programs.

        These are all axes where a program takes a number from a counter.
        """
        words = [self.code.words[one] for numbers in needed.needed.values() for one in numbers]
        if any(word & 0x1FF in ATOMICS for word in words):
            return super().axes_read(needed)
        asked = {word >> 72 & 255 for word in words if word & 0x1FF in operations.READS_SPECIAL}
        if SPECIAL_RANK in asked:  # the CTAs of a cluster are adjacent along the first axis
            asked.add(SPECIAL_PROGRAM[0])
        return [axis for axis, number in enumerate(SPECIAL_PROGRAM) if number in asked]

    def _adds_floats(self, number: int) -> bool:
        return self.code.words[number] & 0x1FF in {operations.ATOMG_FLOAT, operations.REDG}

    def _visiting(self, programs: int) -> tuple[Asking, Visits]:
        asking, visits = super()._visiting(programs)
        serving = Serving(programs, self.threads, self.code.decoder)
        self._serving.append(serving)
        return asking, replace(visits, of_shared=serving.visit)

    def _marks(self, often: Mapping[int, float]) -> Marks:
        words = self.code.words
        events = sass_events(words, self.threads)
        waited = waits(self.code.blocks, self.stalls, often, events)
        return Marks(
            self.stalls,
            [stall + waited.get(number, 0.0) for number, stall in enumerate(self.stalls)],
            [WARP * local_bytes(word) if word & 0x1FF in LOCAL else 0 for word in words],
            [product_flops(word) for word in words],
            live_registers(self.code),
        )

    def _is_shared(self, number: int) -> bool:
        """Tell whether an instruction accesses shared memory and is ever executed."""
        code = self.code
        return code.opcodes[number] in ASKING_SHARED and code.words[number] >> 12 & 15 != NEVER

    def _shared_access(
        self, number: int, executions: Amount, served: Sequence[Mapping[int, Served]]
    ) -> SharedAccess:
        word = self.code.words[number]
        opcode = word & 0x1FF
        known = [one[number] for one in served if number in one]
        size = self.code.decoder.shared_bytes(word)
        moved = between(known, executions, "threads", "threads") * size
        passes = between(known, executions, "wavefronts", "most_wavefronts")
        if opcode in operations.HGMMA:
            a_warp = product_wavefronts(word) // WARP_GROUP
            passes, size = executions * a_warp, a_warp * PASS // WARP
            moved = passes * PASS
        return SharedAccess(
            place=self.places[number],
            instruction=number,
            operation=SHARED_OPERATIONS[opcode],
            thread_bytes=size,
            executions=executions,
            bytes=moved,
            wavefronts=passes,
            is_known=number not in self.others and all(one.is_known for one in known),
            written=between(known, executions, "written", "written"),
        )
