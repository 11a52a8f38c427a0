"""How long a wave of an AMD GPU stands at each instruction of a kernel, by what documents say.

Its assembly has no stall counts as NVIDIA's has. Here a wave issues an instruction of 64 lanes in 4
cycles on a SIMD of 16, and an s_waitcnt says how many of the accesses begun before it may go on
(AMD's instruction set guide of CDNA 3, "Data Dependency Resolution"): a wait falls on it. Where a
result of a product is needed too soon LLVM has put an s_nop of as many cycles.

No AMD GPU has confirmed any of it. These are shares of lines, and no time of the launch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from occupancy_lab.work.waits import MEMORY_CYCLES, Groups, Waits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from occupancy_lab.gpus import HipArchitecture
    from occupancy_lab.work.gcn import GcnCode, Instruction

ISSUE_CYCLES, SLEEP_CYCLES = 4, 64
QUARTER = 4
"""How many times as long as others take those instructions of which a cycle has a quarter."""
SLOW = re.compile(r"v_(?:s_)?(?:exp|log|rcp|rsq|sqrt|sin|cos|mul_lo_u32|mul_hi_|mad_[ui]64)")
"""What a SIMD computes at a quarter of its rate (LLVM's scheduling model, SISchedule.td)."""
LDS_CYCLES = 69
"""Until LDS has been read, of a gfx950. Scalar loads, most of which find the kernel's arguments in
their cache, are taken to need as long."""
COUNTED = (
    (re.compile(r"(?:global|buffer|scratch|flat)_(?:load|store|atomic)"), "vm", MEMORY_CYCLES),
    (re.compile(r"ds_|s_load|s_buffer_load|s_memtime"), "lgkm", LDS_CYCLES),
)
"""What each counter of a wave counts, in the order in which it is done, and for how long."""
WAITED = re.compile(r"(vm|lgkm)cnt\((\d+)\)")
MULTIPLY_ADDS, WHOLE_MULTIPLY_ADDS = 1024, 128
"""Of 16 bits a cycle and CU where the architecture's are not known: an MI300X's; and of FP32 and
FP64, an MI100's, MI250X's and MI300X's (data sheets)."""


def issue_cycles(one: Instruction) -> int:
    """Return the cycles from an instruction to the next one of its wave, where nothing waits."""
    if one.name in {"s_nop", "s_sleep"}:
        times = int(one.operands[0], 0)
        return ISSUE_CYCLES * (times + 1) if one.name == "s_nop" else SLEEP_CYCLES * times
    return ISSUE_CYCLES * (QUARTER if SLOW.match(one.name) else 1)


def product_cycles(name: str, flops: int, architecture: HipArchitecture) -> float:
    """Return the cycles for which a product of so many *flops* keeps the matrix core of a SIMD."""
    rate = float(architecture.tensor_multiply_adds or MULTIPLY_ADDS)
    if name.endswith("xf32"):
        rate /= 2
    elif name.endswith(("f32", "f64")):
        rate = WHOLE_MULTIPLY_ADDS
    elif name.endswith(("fp8", "bf8", "_i8", "f8f6f4")):
        rate *= 2
    return flops / 2 * architecture.simds / rate


class GcnWaits(Waits):
    """The waves of a program, those of a SIMD all at the same."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it is made of
        self,
        code: GcnCode,
        stalls: Sequence[int],
        executions: Mapping[int, float],
        waves: int,
        flops: Sequence[int | None],
        architecture: HipArchitecture,
    ) -> None:
        """Take the *flops* of the products besides, by instruction; *waves* are a program's."""
        super().__init__(code, stalls, executions, max(waves / architecture.simds, 1.0))
        self._products = {
            number: product_cycles(one.name, each, architecture)
            for number, (one, each) in enumerate(zip(code.instructions, flops, strict=True))
            if each
        }
        self._counted = {
            number: (counter, cycles)
            for number, one in enumerate(code.instructions)
            for form, counter, cycles in COUNTED
            if form.match(one.name)
        }
        self._waiting = {
            number: [(counter, int(left)) for counter, left in WAITED.findall(one.text)]
            for number, one in enumerate(code.instructions)
            if one.name == "s_waitcnt"
        }

    def reset(self) -> None:
        """Forget what was begun."""
        self._counters = {"vm": Groups(), "lgkm": Groups()}
        self._free = 0.0

    def matters(self, number: int) -> bool:
        """Tell whether it is a wait, an access or a product."""
        return any(number in one for one in (self._waiting, self._counted, self._products))

    def ready(self, number: int) -> float:
        """Return when accesses enough are done, or the matrix core is free."""
        if number in self._products:
            return self._free
        waiting = self._waiting.get(number, ())
        return max((self._counters[one].until(left) for one, left in waiting), default=0.0)

    def begin(self, number: int) -> None:
        """Begin an access, or a product."""
        if number in self._products:
            self._free = self.now + self.parts * self._products[number]
        elif number in self._counted:
            counter, cycles = self._counted[number]
            group = self._counters[counter]
            group.last = max(group.last, self.now + cycles)
            group.end()
