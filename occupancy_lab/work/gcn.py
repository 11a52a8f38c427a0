"""The assembly of a kernel for an AMD GPU as instructions, basic blocks and loops.

Sources: LLVM's "User Guide for AMDGPU Backend" (kernel descriptor, initial state of registers) and
"AMDGPU Instruction Syntax", and AMD's instruction set guide of CDNA 3. LLVM's comment on each line
of assembly gives the calls of helper functions that lead to it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from occupancy_lab.compiling import amdgcn
from occupancy_lab.errors import unreadable
from occupancy_lab.work.arithmetic import WORD
from occupancy_lab.work.counts import Place
from occupancy_lab.work.gcn_arithmetic import number_of
from occupancy_lab.work.line_tables import Sources
from occupancy_lab.work.module import UNKNOWN_PLACE
from occupancy_lab.work.operations import (
    ALWAYS,
    FIRST_PLACE,
    NOT_KNOWN,
    PREDICATES,
    UNIFORM,
    Constant,
    Source,
    bits,
)
from occupancy_lab.work.slices import EXIT, MOST_INSTRUCTIONS, Block, Jump, Slice, blocks_of, sliced

VCC, M0, EXEC = 106, 124, 126
"""The first scalar register of each, as instructions encode it."""
SCC, ANY = PREDICATES, PREDICATES + 1
"""The scalar condition, and whether any lane is set in the mask that a jump by vcc or exec
tests."""
VECTORS, LAST_VECTOR, LAST_PLACE = UNIFORM, 255, 200
"""The place of the first vector register, and the number and the place of the last one, whose place
behind the others is taken."""
ACCUMULATION, SCRATCH_WORDS = 256, 1 << 12
"""The number of accumulation registers (AGPRs), which follow all others, and of words of scratch
memory, which follow them."""
LANES = 64
"""Lanes of a wave; waves of 32 lanes, as on RDNA, are not followed."""
REGISTER = re.compile(
    r"(?<![\w.])(?:(s|v|a)(?:(\d+)|\[(\d+):(\d+)\])|(vcc|exec)(_lo|_hi)?|(m0|scc))(?![\w.])"
)
TEXT = re.compile(
    r"^(?:([\w.$]+):|(\t\.loc\t[^\n]*)|[ \t]+([a-z]\w*)[ \t]*([^;\n]*))", re.MULTILINE
)
"""A label, a line of the source, or an instruction and its operands."""
ATOMIC = re.compile(r"(?:global|flat|buffer)_atomic_")
WIDE_ATOMIC = re.compile("_x2|_f64|_b64|_u64|_i64")
OFFSET = re.compile(r"\boffset:(-?(?:0x[0-9a-f]+|\d+))")
BUFFER = re.compile(r"s\[(\d+):(\d+)\]")
SPLIT = re.compile(r",\s*(?![^\[]*\])")
CONDITIONS = {
    "scc0": (SCC, True),
    "scc1": (SCC, False),
    "vccz": (ANY, True),
    "vccnz": (ANY, False),
    "execz": (ANY, True),
    "execnz": (ANY, False),
}
UNKNOWN_JUMPS = ("s_setpc", "s_swappc", "s_call", "s_rfe", "s_cbranch_i_fork", "s_cbranch_g_fork")
NO_RESULT = re.compile(
    r"s_(?:cmpk?_|bitcmp|waitcnt|wait_|barrier|nop|setprio|sleep|sendmsg|clause|delay_alu|endpgm"
    r"|branch|cbranch|trap|setreg|icache|dcache|inst_prefetch|set_gpr|store|set_inst|code_end|ttrace"
    r"|version|setkill|sethalt|atc|incperf|decperf|round_mode|denorm_mode|setvskip)"
    r"|(?:global|flat|buffer|scratch|tbuffer|image)_(?:store|wb|inv|gl\d|prefetch)"
    r"|ds_(?:store|write|gws|nop)|exp|v_nop|buffer_(?:wbl2|wbinvl1|gl)|global_(?:wb|inv)"
)
"""Instructions without a result among their operands."""
ATOMIC_RESULT = re.compile(r"\b(?:glc|sc0)\b|_rtn")
SETS_SCC = re.compile(
    r"s_(?:cmpk?|bitcmp\d|add_[ui]32|addk|sub_[ui]32|addc|subb|absdiff|abs|min|max"
    r"|and|or|xor|not|n?and|n?or|xnor|andn\d|orn\d|lshl|lshr|ashr|lshl\d_add|bfe"
    r"|bcnt\d|wqm|quadmask)_"
)
READS_SCC = re.compile(r"s_(?:addc|subb|cselect|cmov)_")
TWO_RESULTS = re.compile(
    r"v_(?:(?:add|sub|subrev)(?:c|b|brev)?_co_u32|mad_u64_u32|mad_i64_i32|div_scale_\w+)"
)
"""Vector instructions whose second operand is also written: a carry per lane."""
KEEPS = re.compile(
    r"s_(?:mulk|addk|cmov|bitset)|v_(?:fmac|mac_|pk_fmac|dot\d+c|smfmac|mad_mixhi|fma_mixhi|swap)"
    r"|v_cvt_(?:pk|sr|scalef32_pk|scalef32_sr)_(?:fp8|bf8)|\w+_load_\w*d16|ds_read_\w*d16"
)
"""Instructions that read the register that they write, or keep a part of it."""
KEEPS_LANES = re.compile(
    r"UNUSED_PRESERVE|(?:row|bank)_mask:0x[0-9a-e]\b|(?:row_sh|row_bcast|wave_sh)(?!.*bound_ctrl)"
)
"""Operands with the same effect: a part of a register, and moves between lanes that keep some."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """A line of assembly."""

    name: str
    """The name without the _e32 or _e64 of its encoding."""
    operands: tuple[str, ...]
    place: Place
    writes: tuple[int, ...]
    reads: tuple[int, ...]

    @property
    def text(self) -> str:
        """The instruction as assembly has it."""
        return f"{self.name} {', '.join(self.operands)}"

    @property
    def carries_unread(self) -> bool:
        """Whether its second operand is a result that no Form has: the carry of 64 bits."""
        return self.name.startswith(("v_mad_u64", "v_mad_i64"))

    @property
    def is_vector(self) -> bool:
        """Whether it is executed only for the lanes of exec."""
        return not self.name.startswith("s_")


@dataclass(frozen=True)
class GcnCode:
    """A kernel's instructions, as `slices.Code` has them for an NVIDIA GPU."""

    instructions: Sequence[Instruction]
    blocks: Mapping[int, Block]
    loops: Mapping[int, set[int]]
    syncs: frozenset[int] = frozenset()
    slots: int = ACCUMULATION + SCRATCH_WORDS
    lanes: int = LANES
    usual: Mapping[int, bool] = field(default_factory=dict)
    avoided: Mapping[int, bool] = field(default_factory=dict)
    """As in `Code`; both are empty: AMD's library keeps no arrays in local memory, and has no
    subroutines."""

    @property
    def working_loops(self) -> Mapping[int, set[int]]:
        """All loops, since none retries waiting for a copy."""
        return self.loops

    @cached_property
    def accesses(self) -> Mapping[int, tuple[str, int]]:
        """The kind and the bytes per lane of accesses to global memory, by instruction number."""
        found = ((number, _access(one)) for number, one in enumerate(self.instructions))
        return {number: access for number, access in found if access is not None}

    @cached_property
    def written(self) -> Sequence[int]:
        """The registers that each instruction writes, as bit sets."""
        return [bits(one.writes) for one in self.instructions]


def _access(one: Instruction) -> tuple[str, int] | None:
    """Return the kind of an access to global memory and its bytes per lane; else None."""
    found = amdgcn.ACCESS.match(one.text)
    if found is not None and not amdgcn.is_scratch(found[1], found[4]):
        width = amdgcn.lane_width(found[3])
        operation = "copy" if amdgcn.kind_of(one.text) == "async_copies" else found[2]
        return None if width is None else (operation, width)
    if ATOMIC.match(one.name):
        return "atomic", 8 if WIDE_ATOMIC.search(one.name) else 4
    return None


def registers_of(operand: str) -> tuple[int, ...]:
    """Return the registers that an operand names, the lowest first."""
    found: list[int] = []
    for kind, one, first, last, mask, half, other in REGISTER.findall(operand):
        if kind:
            numbers = range(int(one or first), int(one or last) + 1)
            found += (_place(kind, number) for number in numbers)
        elif mask:
            start = VCC if mask == "vcc" else EXEC
            found += (start, start + 1) if not half else (start + (half == "_hi"),)
        else:
            found.append(M0 if other == "m0" else SCC)
    return tuple(found)


def _place(kind: str, number: int) -> int:
    if kind == "v":
        return LAST_PLACE if number == LAST_VECTOR else VECTORS + number
    if kind == "a":
        return FIRST_PLACE + number
    return number


def address_of(one: Instruction) -> tuple[list[tuple[Source, ...]], int]:
    """Return the three terms of an access's address, and the offset to add to them.

    The terms are the operand that differs between lanes, the base (two scalar registers, or for a
    buffer four, with its address and size) and a scalar operand; empty where there is none.
    """
    operands = [text.split(" ")[0] for text in one.operands]
    offset = OFFSET.search(one.operands[-1])
    if one.name.startswith("buffer_"):
        place = next((n for n, text in enumerate(operands) if BUFFER.fullmatch(text)), 1)
        terms = [*operands[place - 1 : place + 2], "off"][:3]
    else:
        place = 0 if "_store" in one.name or not one.writes else 1
        base = operands[-1] if not one.name.startswith("flat_") else "off"
        terms = [operands[min(place, len(operands) - 1)], base, "off"]
    return [_sources(text, one.name) for text in terms], int(offset[1], 0) if offset else 0


def _sources(operand: str, name: str) -> tuple[Source, ...]:
    """Return the sources of an operand of instruction *name*; NOT_KNOWN for an unknown one."""
    number = number_of(operand, name)
    if number is not None:
        return (Constant(number & WORD),)
    return registers_of(operand) or (() if operand in {"off", "null"} else (NOT_KNOWN,))


def read_gcn(assembly: str, name: str) -> GcnCode:
    """Return the code of the kernel *name* in *assembly*, for waves of 64 lanes.

    Raises:
        BinaryError: it is missing, too long, or has an unknown kind of jump.
    """
    sources = Sources(assembly)
    labels: dict[str, int] = {}
    found: list[Instruction] = []
    jumps: dict[int, tuple[str, str]] = {}
    place = UNKNOWN_PLACE
    once: dict[Place, Place] = {}
    for label, line, operation, rest in TEXT.findall(amdgcn.kernel_body(assembly, name)):
        if label:
            labels[label] = len(found)
        elif line:
            place = sources.place(line) or UNKNOWN_PLACE
            place = once.setdefault(place, place)
        elif operation.startswith(UNKNOWN_JUMPS):
            unreadable(f"The kernel has a kind of jump that is not followed ({operation}).")
        else:
            if operation.startswith(("s_branch", "s_cbranch", amdgcn.END)):
                jumps[len(found)] = operation, rest.strip()
            found.append(_instruction(operation, rest.strip(), place))
    if not found or len(found) > MOST_INSTRUCTIONS:
        unreadable(f"The amdgcn has {len(found)} instructions of {name!r}: none, or too many.")
    ends = {number: _jump(*one, labels) for number, one in jumps.items()}
    return GcnCode(found, *blocks_of(len(found), labels.values(), ends))


def _instruction(operation: str, rest: str, place: Place) -> Instruction:
    name = re.sub("_e(?:32|64)$", "", operation)
    operands = tuple(one.strip() for one in SPLIT.split(rest)) if rest else ()
    results, sources = _sides(name, operands)
    writes = [one for operand in results for one in registers_of(operand)]
    reads = [one for operand in sources for one in registers_of(operand)]
    if SETS_SCC.match(name) or name.endswith(("_saveexec_b64", "_saveexec_b32")):
        writes.append(SCC)
    if READS_SCC.match(name):
        reads.append(SCC)
    mask = (EXEC, EXEC + 1)
    if "saveexec" in name or name.startswith("v_cmpx"):
        writes += mask
        reads += mask
    elif name.startswith(("s_cbranch_exec", "s_cbranch_vcc")):
        reads += mask if "exec" in name else (VCC, VCC + 1)
        writes.append(ANY)
    elif not name.startswith("s_"):
        reads += mask
    if name.startswith("v_div_fmas"):
        reads += (VCC, VCC + 1)
    if name.startswith("v_writelane"):
        reads += writes
    spilled = scratch_places(name, operands) if "load" in name or "store" in name else None
    if spilled and "_store" in name:
        writes += spilled
    elif spilled:
        reads += spilled
    return Instruction(name, operands, place, tuple(writes), tuple(dict.fromkeys(reads)))


def scratch_places(name: str, operands: Sequence[str]) -> tuple[int, ...] | None:
    """Return the places of the words of scratch memory that a spill moves; else None."""
    text = ", ".join(operands)
    width = amdgcn.scratch_width(f"{name} {text}")
    is_first = name.startswith("scratch_store")
    if not width or width % 4 or operands[0 if is_first else 1] != "off":
        return None
    found = OFFSET.search(text)
    first = (int(found[1], 0) if found else 0) // 4
    if not 0 <= first <= SCRATCH_WORDS - width // 4:
        return None
    return tuple(FIRST_PLACE + ACCUMULATION + first + place for place in range(width // 4))


def _sides(name: str, operands: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the operands that are written, and those that are read."""
    if NO_RESULT.match(name):
        return (), operands
    if "_atomic_" in name or (
        name.startswith("ds_") and not name.startswith(("ds_read", "ds_load"))
    ):
        has_result = name.startswith(("ds_bpermute", "ds_permute", "ds_swizzle")) or (
            ATOMIC_RESULT.search(" ".join((name, *operands))) is not None
        )
        return (operands[:1], operands[1:]) if has_result else ((), operands)
    if " lds" in " ".join(operands) or "_lds_" in name:
        return (), operands
    number = 2 if TWO_RESULTS.match(name) else 1
    keeps = KEEPS.match(name) or KEEPS_LANES.search(operands[-1] if operands else "")
    own = operands[:number] if keeps else ()
    return operands[:number], (*operands[number:], *own)


def _jump(operation: str, target: str, labels: Mapping[str, int]) -> Jump:
    if operation.startswith(amdgcn.END):
        return Jump(EXIT)
    if target not in labels:
        unreadable(f"The kernel jumps to {target!r}, which is not in it.")
    condition = CONDITIONS.get(operation.rpartition("_")[2])
    return Jump(ALWAYS, labels[target], () if condition is None else (condition,))


def slice_of(code: GcnCode, roots: Collection[int] = ()) -> Slice:
    """Return the instructions that jump conditions and the addresses of *roots* depend on.

    The accesses *roots* are included.
    """
    needed: set[int] = set()
    reads = [bits(one.reads) for one in code.instructions]
    whole = _whole_writes(code)

    def before(block: Block, found: int) -> int:
        for number in range(block.stop - 1, block.start - 1, -1):
            written = code.written[number]
            if number in roots:
                needed.add(number)
                terms, _ = address_of(code.instructions[number])
                found |= bits(x for term in terms for x in term if isinstance(x, int)) | 3 << EXEC
            if written & found:
                needed.add(number)
                found = found & ~written if number in whole else found
                found |= reads[number]
        return found

    return sliced(code.blocks, before, needed)


def _whole_writes(code: GcnCode) -> set[int]:
    """Return the instructions that keep nothing of the previous contents of their results.

    A vector instruction writes only the lanes of exec, so all lanes have to be known to be in exec.
    They are at the beginning, and where exec is restored to what it was then.
    """
    found: set[int] = set()
    states: dict[int, frozenset[int]] = {0: frozenset({EXEC})}
    left = [0]
    while left:
        start = left.pop()
        full = set(states[start])
        block = code.blocks[start]
        for number in range(start, block.stop):
            one = code.instructions[number]
            if not one.is_vector or EXEC in full:
                found.add(number)
            else:
                found.discard(number)
            _fill(one, full)
        for other in block.successors:
            state = states[other] & full if other in states else frozenset(full)
            if states.get(other) != state:
                states[other] = state
                left.append(other)
    return found - {
        n for n, one in enumerate(code.instructions) if one.name.startswith("v_writelane")
    }


def _fill(one: Instruction, full: set[int]) -> None:
    """Update the scalar registers that have the bit of every lane set after an instruction."""
    filled: set[int] = set()
    if "_saveexec_" in one.name:
        filled = {one.writes[0]} if EXEC in full else set()
    elif one.name.startswith(("s_or_b", "s_mov_b")):
        sources = one.operands[1:]
        if "-1" in sources or any(set(registers_of(text)) & full for text in sources):
            filled = {one.writes[0]}
    full.difference_update(one.writes)
    full.update(filled)
