"""What the assembly of a launch on an AMD GPU executes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from occupancy_lab.arguments import Plain
from occupancy_lab.compiling import amdgcn
from occupancy_lab.compiling.texts import Texts
from occupancy_lab.errors import unreadable
from occupancy_lab.gpus import HipArchitecture
from occupancy_lab.work.followed import Marks, Run
from occupancy_lab.work.gcn import LANES, Instruction, read_gcn, slice_of
from occupancy_lab.work.live import live_vectors
from occupancy_lab.work.passed import Passed, parameters_of
from occupancy_lab.work.slices import Slice
from occupancy_lab.work.threads import Launched
from occupancy_lab.work.waits import MEMORY_CYCLES, PRODUCTS, Begun, Event, waits
from occupancy_lab.work.warps import Assumed, Visits, Warps
from occupancy_lab.work.waves import Waves

PRODUCT = re.compile(
    r"v_mfma_(?:scale_)?[a-z]+\d+_(\d+)x(\d+)x(\d+)(?:_(\d+)b(?=_)|[a-z]+\d+(?:_1k)?$)?"
)
"""A product of matrices: rows, columns, depth, and the number of products per instruction."""
ANY_PRODUCT = re.compile(r"v_s?mf(?:ma|mac)_")
ALONE = frozenset(
    {"32x32x2f32", "16x16x4f32", "32x32x8f16", "16x16x16f16", "32x32x4bf16", "16x16x8bf16"}
    | {"32x32x8bf16_1k", "16x16x16bf16_1k", "32x32x8i8", "16x16x16i8", "16x16x4f64"}
)
"""Names of CDNA 1 and 2 for a single product; the other names there stand for several small
ones."""
DESCRIBED = ("user_sgpr_count", *(f"system_sgpr_workgroup_id_{axis}" for axis in "xyz"))
"""The fields of a kernel's descriptor that say how its scalar registers are initialized."""


class GcnRun(Run):
    """A launch on an AMD GPU."""

    most_blocks = 20_000

    def __init__(
        self,
        texts: Texts,
        assembly: str,
        arguments: Mapping[str, Plain],
        grid: Sequence[int],
        values: Mapping[str, Sequence[int]],
    ) -> None:
        if int(amdgcn.kernel_metadata(assembly, texts.name).get(".wavefront_size", "0")) != LANES:
            unreadable(
                f"The instructions that {texts.name} executes are not counted: waves of 32 lanes"
                " are not followed."
            )
        numbers = [amdgcn.descriptor_number(assembly, texts.name, one) for one in DESCRIBED]
        architecture = amdgcn.architecture_of(assembly)
        if None in numbers or architecture is None:
            unreadable(f"The amdgcn does not say how programs of {texts.name!r} begin, or where.")
        self.users, *self.axes = (one or 0 for one in numbers)
        self.architecture = architecture
        threads = texts.num_warps * LANES
        names = parameters_of(texts.ttir, texts.name)
        whole = (*grid, 1, 1)[:3]
        passed = Passed.of_amdgcn(assembly, texts.name, names, arguments, values, whole, threads)
        code = read_gcn(assembly, texts.name)
        self.local = [amdgcn.scratch_width(one.text) or 0 for one in code.instructions]
        kinds = [amdgcn.kind_of(one.text) for one in code.instructions]
        places = [one.place for one in code.instructions]
        super().__init__(code, passed, places, kinds, whole, threads)
        self.accessing = code.accesses

    def _warps(
        self, needed: Slice, launched: Launched, visits: Visits | None, assumed: Assumed
    ) -> Warps:
        waves = Waves(self.code, needed, launched, visits, assumed)
        waves.begin(self.users, self.axes)
        return waves

    def _needed(self, *, addresses: bool) -> Slice:
        return slice_of(self.code, self.code.accesses if addresses else ())

    def _marks(self, often: Mapping[int, float]) -> Marks:
        instructions, architecture = self.code.instructions, self.architecture
        cycles = [issue_cycles(one) for one in instructions]
        events = gcn_events(instructions, self.threads // LANES, architecture)
        waited = waits(self.code.blocks, cycles, often, events)
        return Marks(
            [0] * len(instructions),
            [issued + waited.get(number, 0.0) for number, issued in enumerate(cycles)],
            [LANES * one for one in self.local],
            [wave_flops(one) for one in instructions],
            live_vectors(self.code, is_unified=architecture.agpr_file == "unified"),
        )


def wave_flops(one: Instruction) -> int | None:
    """Return the floating-point operations of a wave by a product of matrices.

    None where the name does not give the size: for sparse products, and for several small ones as
    LLVM names them up to CDNA 2. 0 for other instructions.
    """
    found = PRODUCT.match(one.name)
    if found is None:
        return None if ANY_PRODUCT.match(one.name) else 0
    if not one.name[found.end() :].startswith("_") and one.name.split("_", 3)[3] not in ALONE:
        return None
    return 2 * math.prod(int(found[place]) for place in (1, 2, 3)) * int(found[4] or 1)


ISSUE_CYCLES, SLEEP_CYCLES = 4, 64
QUARTER = 4
"""How many times as long quarter-rate instructions take."""
SLOW = re.compile(r"v_(?:s_)?(?:exp|log|rcp|rsq|sqrt|sin|cos|mul_lo_u32|mul_hi_|mad_[ui]64)")
"""Instructions that a SIMD executes at a quarter of its rate (LLVM's SISchedule.td)."""
LDS_CYCLES = 69
"""The latency of LDS on a gfx950. Scalar loads, most of which find the kernel's arguments in their
cache, are assumed to have it too."""
COUNTED = (
    (re.compile(r"(?:global|buffer|scratch|flat)_(?:load|store|atomic)"), "vm", MEMORY_CYCLES),
    (re.compile(r"ds_|s_load|s_buffer_load|s_memtime"), "lgkm", LDS_CYCLES),
)
"""What each counter of a wave counts, which completes in order, and the latencies."""
WAITED = re.compile(r"(vm|lgkm)cnt\((\d+)\)")
MULTIPLY_ADDS, WHOLE_MULTIPLY_ADDS = 1024, 128
"""Multiply-adds per cycle and CU: of 16 bits where the architecture's rate is not known (an
MI300X's), and of FP32 and FP64 (an MI100's, MI250X's and MI300X's, from data sheets)."""


def issue_cycles(one: Instruction) -> int:
    """Return the cycles from an instruction to the wave's next one, without waits."""
    if one.name in {"s_nop", "s_sleep"}:
        times = int(one.operands[0], 0)
        return ISSUE_CYCLES * (times + 1) if one.name == "s_nop" else SLEEP_CYCLES * times
    return ISSUE_CYCLES * (QUARTER if SLOW.match(one.name) else 1)


def product_cycles(name: str, flops: int, architecture: HipArchitecture) -> float:
    """Return the cycles for which a product of *flops* keeps the matrix core of a SIMD busy."""
    rate = float(architecture.tensor_multiply_adds or MULTIPLY_ADDS)
    if name.endswith("xf32"):
        rate /= 2
    elif name.endswith(("f32", "f64")):
        rate = WHOLE_MULTIPLY_ADDS
    elif name.endswith(("fp8", "bf8", "_i8", "f8f6f4")):
        rate *= 2
    return flops / 2 * architecture.simds / rate


def gcn_events(
    instructions: Sequence[Instruction], waves: int, architecture: HipArchitecture
) -> dict[int, Event]:
    """Return what instructions of a program of *waves* wait for and begin, by their number.

    The waves on a SIMD are assumed to be at the same instruction.
    """
    parts = max(waves / architecture.simds, 1.0)
    found = {}
    for number, one in enumerate(instructions):
        counted = [(counter, cycles) for form, counter, cycles in COUNTED if form.match(one.name)]
        if one.name == "s_waitcnt":
            counts = WAITED.findall(one.text)
            found[number] = Event([(counter, int(left)) for counter, left in counts], ())
        elif counted:
            found[number] = Event((), [Begun(*each) for each in counted])
        elif flops := wave_flops(one):
            cycles = parts * product_cycles(one.name, flops, architecture)
            found[number] = Event([(PRODUCTS, 0)], [Begun(PRODUCTS, cycles, in_turn=True)])
    return found
