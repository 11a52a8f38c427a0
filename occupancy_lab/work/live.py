"""Which registers of a thread hold a value that is still needed, at each instruction of a kernel.

Live variable analysis (Aho, Lam, Sethi and Ullman, "Compilers", 9.2.5), backwards from the last
instruction: a register is live from where it is written to where it is last read. The most live
registers at any instruction determine how many registers a kernel takes.

The operands of NVIDIA's instructions are from nvdisasm, whose live ranges the tests compare with
these; those of AMD's are from the assembly. `product_flops`, the operations of products of
matrices, has the same sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from occupancy_lab.compiling.sass import OPCODES
from occupancy_lab.work import operations
from occupancy_lab.work.gcn import ACCUMULATION, LAST_PLACE, LAST_VECTOR, VECTORS, GcnCode
from occupancy_lab.work.operations import bits, loaded_registers, warpgroup_registers
from occupancy_lab.work.slices import Block, Code, live_after, live_before

TENSOR = frozenset(OPCODES["tensor_instructions"].values())
HMMA, IMMA, QMMA, HGMMA_FLOAT = 0x03C, 0x037, 0x07A, 0x1F0
HMMA_DEPTHS: Mapping[int, int] = {0: 8, 1: 16, 2: 4}
"""k of an HMMA with 16 x 8 results, by bits 75 and 78."""
IMMA_DEPTHS: Mapping[int, int] = {4: 16, 5: 32, 6: 64}
"""k of an IMMA with 16 x 8 results, by bits 75, 85 and 86; other IMMAs have 8 x 8 results."""
QMMA_DEPTH = 32
WARPGROUP_DEPTHS: Mapping[int, int] = {0: 16, 1: 16, 2: 8}
"""k of an HGMMA, by bits 76 and 77: of fp16, bf16 and tf32. Each is a row of 32 bytes."""
WARPGROUP_BYTES = 32
"""k of warp groups' products with types of one byte."""

FIRST, SECOND, THIRD = 24, 32, 64
"""Bit positions of the source registers in an instruction."""
THREAD_REGISTERS = (1 << operations.ZERO) - 1
VGPRS = bits([*range(VECTORS, VECTORS + LAST_VECTOR), LAST_PLACE])
AGPRS = bits(range(operations.FIRST_PLACE, operations.FIRST_PLACE + ACCUMULATION))
"""The vector registers of AMD's GPUs, and their accumulation registers."""
GUARD = 12
"""The bit position of an instruction's guard predicate."""
REGISTERS = 1
"""The form in which all sources are registers."""
ONE, TWO, THREE, LAST = range(4)
FFMA2, FMUL2, FADD2, STTM = 0x049, 0x04A, 0x04B, 0x1ED
_OPERANDS = {
    ONE: (
        *(0x003, 0x0CA, 0x0CC, 0x1C2, 0x150, 0x149, 0x1C4),
        *(operations.LDL, operations.LDS, operations.LDSM),
    ),
    LAST: (0x00A, 0x104, *range(0x110, 0x114)),
    TWO: (0x028, 0x029, 0x02A, 0x030, 0x032, 0x034, FADD2, FMUL2),
    THREE: (0x02B, 0x031, operations.HFMA2_MMA, 0x03E, 0x047, 0x076, FFMA2),
}
OPERANDS: Mapping[int, int] = {
    opcode: kind for kind, opcodes in _OPERANDS.items() for opcode in opcodes
}
"""The sources of an instruction without a Form: only the first, only the last, two, or three."""
PAIRS = frozenset({0x028, 0x029, 0x02A, 0x02B, FFMA2, FMUL2, FADD2})
"""Instructions on FP64 and on two FP32 at once, whose sources are pairs of registers."""
CONVERSIONS, SIZE_BIT, SIZE_64 = range(0x110, 0x113), 84, 3
"""F2F, F2I and I2F of wide numbers, and the field with the size of their source."""
SAME_FIRST, SAME_SECOND = 82, 85
"""Bits of an instruction on two FP32 by which a source is one register for both."""
SYNCS = 0x1A7
"""It accesses a barrier in shared memory."""
TYPE_BIT, TF32 = 82, 2
"""The field of an HMMA with the type that it multiplies."""
FLOPS_OF_DEPTH, INTEGER_SUMS = 2 * 16 * 8, 4
"""FLOPs per k of a warp's product with 16 x 8 results, and the registers of its integer sums."""
HGMMA_FIRST, HGMMA_REGISTERS = 4, 6
"""Registers of the first matrix of a warp group's product, and the form that has it in
registers."""


def live_registers(code: Code) -> list[int]:
    """Return how many registers are live at each instruction of *code*, including its results.

    The stack register is always live. Where an instruction writes a register under a condition, the
    register's previous value stays live.
    """
    needed = [registers_read(word, code.decoder) for word in code.words]
    written = [one & THREAD_REGISTERS for one in code.written]
    kept = [
        ~one if word >> GUARD & 7 == operations.ALWAYS else ~0
        for word, one in zip(code.words, written, strict=True)
    ]
    found = live_at(code.blocks, needed, written, kept)
    return [(one | 1 << operations.STACK).bit_count() for one in found]


def live_vectors(code: GcnCode, *, is_unified: bool) -> list[int]:
    """Return how many vector registers of a lane are live at each instruction of AMD's *code*.

    With *is_unified*, accumulation registers (AGPRs) are included; where they have their own file,
    the larger of the two numbers is returned. A write to some lanes of a wave is assumed to end a
    register's previous value in all lanes, because the others have taken another path.
    """
    needed = [bits(one.reads) for one in code.instructions]
    found = live_at(code.blocks, needed, code.written, [~one for one in code.written])
    counts = [((one & VGPRS).bit_count(), (one & AGPRS).bit_count()) for one in found]
    return [sum(one) if is_unified else max(one) for one in counts]


def live_at(
    blocks: Mapping[int, Block], needed: Sequence[int], written: Sequence[int], kept: Sequence[int]
) -> list[int]:
    """Return the registers live at each instruction, including its results, as bit sets.

    By instruction, *needed* has the registers that it reads, *written* those that it writes, and
    *kept* those of whose previous value it keeps something.
    """
    summed = {}
    for start, block in blocks.items():
        own, passing = 0, ~0
        for number in range(block.stop - 1, start - 1, -1):
            own = own & kept[number] | needed[number]
            passing &= kept[number]
        summed[start] = own, passing

    def before(block: Block, behind: int) -> int:
        own, passing = summed[block.start]
        return behind & passing | own

    starts = live_before(blocks, before)
    found = [0] * len(needed)
    for start, block in blocks.items():
        live = live_after(block, starts)
        for number in range(block.stop - 1, start - 1, -1):
            after = live | written[number]
            live = live & kept[number] | needed[number]
            found[number] = after | live
    return found


def registers_read(word: int, decoder: operations.Decoder) -> int:
    """Return the registers of a thread that an instruction reads, as a bit set."""
    opcode, form = word & 0x1FF, word >> 9 & 7
    known = decoder.form(word)
    if known is not None:
        sources = decoder.sources(word, known)
        return bits(one for one in sources if isinstance(one, int) and one < operations.ZERO)
    kind = OPERANDS.get(opcode)
    if kind is None:
        return READERS[opcode](word, decoder) if opcode in READERS else 0
    first = second = pair = 2 if opcode in PAIRS else 1
    if opcode in CONVERSIONS and word >> SIZE_BIT & 3 == SIZE_64:
        second = 2
    if opcode in {FMUL2, FADD2}:
        first -= word >> SAME_FIRST & 1
        second -= word >> SAME_SECOND & 1
    found = 0 if kind == LAST else _field(word, FIRST, first)
    if kind != ONE and form == REGISTERS:
        found |= _field(word, SECOND, second)
    if kind == THREE:
        found |= _field(word, THIRD, pair)
    return found


def _field(word: int, place: int, count: int = 1) -> int:
    """Return *count* registers from the one in the field at *place* on; none for RZ."""
    register = word >> place & 255
    return 0 if register == operations.ZERO else (1 << count) - 1 << register & THREAD_REGISTERS


def _address(word: int, decoder: operations.Decoder) -> int:
    return bits(one for one in decoder.address_registers(word) if one < operations.ZERO)


def _shuffled(word: int, _: operations.Decoder) -> int:
    """Return the registers of a SHFL: its value, and its lane and mask where not immediate."""
    form = word >> 9 & 7
    lane = _field(word, SECOND) if form in {0, 1, 2} else 0
    return _field(word, FIRST) | lane | (_field(word, THIRD) if form in {0, 1, 4} else 0)


def _added(word: int, decoder: operations.Decoder) -> int:
    """Return the registers of an atomic operation: its address, value and comparand."""
    opcode = word & 0x1FF
    count = max(decoder.moved_bytes(word) // 4, 1)
    swapped = _field(word, THIRD, count) if opcode == operations.ATOMG_CAS else 0
    address = _field(word, FIRST) if opcode == operations.ATOMS else _address(word, decoder)
    return address | _field(word, SECOND, count) | swapped


def _multiplied(word: int, _: operations.Decoder) -> int:
    """Return the registers of a warp's product: two matrices, the first with 16 rows, and sums."""
    opcode = word & 0x1FF
    is_wide = opcode == HMMA and word >> TYPE_BIT & 3 == TF32
    number_bytes = 4 if is_wide else 2 if opcode == HMMA else 1
    depth = (product_flops(word) or 0) // FLOPS_OF_DEPTH
    first = max(depth * number_bytes // 8, 1)
    sums = operations.matrix_registers(word) if opcode == HMMA else INTEGER_SUMS
    second = _field(word, SECOND, max(first // 2, 1))
    return _field(word, FIRST, first) | second | _field(word, THIRD, sums)


def _multiplied_by_group(word: int, _: operations.Decoder) -> int:
    """Return the registers of a warp group's product: its sums, and any matrix in registers."""
    first = _field(word, FIRST, HGMMA_FIRST) if word >> 9 & 7 == HGMMA_REGISTERS else 0
    return first | _field(word, THIRD, warpgroup_registers(word))


READERS: Mapping[int, Callable[[int, operations.Decoder], int]] = {
    operations.SHFL: _shuffled,
    **dict.fromkeys((*operations.ATOMICS, operations.ATOMS), _added),
    **dict.fromkeys((HMMA, IMMA, QMMA), _multiplied),
    **dict.fromkeys(operations.HGMMA, _multiplied_by_group),
    **dict.fromkeys(operations.LOADS, _address),
    **dict.fromkeys(
        (operations.STG, operations.ST),
        lambda word, decoder: (
            _address(word, decoder) | _field(word, SECOND, loaded_registers(word))
        ),
    ),
    **dict.fromkeys(
        (operations.STL, operations.STS),
        lambda word, _: _field(word, FIRST) | _field(word, SECOND, loaded_registers(word)),
    ),
    operations.STSM: lambda word, _: (
        _field(word, FIRST) | _field(word, SECOND, 1 << (word >> 72 & 3))
    ),
    operations.LDGSTS: lambda word, decoder: _field(word, 16) | _address(word, decoder),
    SYNCS: lambda word, _: _field(word, FIRST) | _field(word, SECOND),
    STTM: lambda word, _: _field(word, SECOND, operations.tensor_memory_registers(word)),
}
"""What accesses to memory, shuffles and products of matrices read."""


def product_flops(word: int) -> int | None:
    """Return 2 m n k of an instruction; for a warp group's product, a warp's quarter of it.

    0 for instructions that are no products. None where the shape is not known: products in
    Blackwell's tensor memory have it in a register. The fields are from the encoder of Mesa's NAK
    compiler (sm70_encode.rs) and, for warp groups, from nvdisasm.
    """
    opcode = word & 0x1FF
    if opcode not in TENSOR:
        return 0
    if opcode in operations.HGMMA:
        depth = WARPGROUP_DEPTHS.get(word >> 76 & 3) if opcode == HGMMA_FLOAT else WARPGROUP_BYTES
        # 64 x n results take n / 2 registers of each thread, and 16 of the rows are a warp's.
        return None if depth is None else 2 * 16 * (2 * warpgroup_registers(word)) * depth
    depth = QMMA_DEPTH if opcode == QMMA else None
    if opcode == HMMA:
        depth = HMMA_DEPTHS.get(word >> 75 & 1 | (word >> 78 & 1) << 1)
    elif opcode == IMMA:
        depth = IMMA_DEPTHS.get(word >> 75 & 1 | (word >> 85 & 3) << 1)
    return None if depth is None else 2 * 16 * 8 * depth
