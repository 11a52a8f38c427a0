"""What each instruction of NVIDIA's machine code (SASS) reads, writes and computes.

Only integers and predicates are computed, which addresses and conditions need. For other
instructions only the registers that they write are known.

NVIDIA does not document the encoding. Sources: Jia, Maggioni, Staiger and Scarpazza, "Dissecting
the NVIDIA Volta GPU Architecture via Microbenchmarking" (2018), chapter 2; the encoder of Mesa's
NAK compiler (sm70_encode.rs); the output of nvdisasm, with which the tests compare it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

UNIFORM, PREDICATES, UNIFORM_PREDICATES, SHARED = 256, 512, 520, 528
"""The numbers at which the uniform registers (UR), the predicates (P, UP) and shared memory begin,
after those of a thread's registers (R). Shared memory counts as one register."""
NOT_KNOWN, FIRST_PLACE = 529, 530
"""A register that is never known, and the number at which places of local memory begin, which
constants follow."""
NUMBERED, OTHER_LAST = frozenset({2, 4}), frozenset({2, 3, 7})
"""The forms of an instruction (bits 9 to 11) that have an immediate in bits 32 on, and those that
have the third source there; in others it is the second."""
STACK = 1
"""The stack pointer's register."""
ALWAYS = 7
"""PT, as a guard in bits 12 to 15 of a word and as the other condition of a jump."""
ZERO, UNIFORM_ZERO, TRUE, UNIFORM_TRUE = 255, 511, 519, 527
"""RZ, URZ, PT and UPT, which are constant."""
NEVER_WRITTEN = 1 << ZERO | 1 << UNIFORM_ZERO | 1 << TRUE | 1 << UNIFORM_TRUE
AMPERE, HOPPER, BLACKWELL = 80, 90, 100
"""From BLACKWELL on there are 255 uniform registers; before it there are 63."""


class Constant(NamedTuple):
    """An operand that is an immediate, or that is at an offset in a bank of constants."""

    number: int
    bank: int | None = None


Source: TypeAlias = "int | Constant"


@dataclass(frozen=True, slots=True)
class Form:
    """The operands of an arithmetic instruction.

    In `reads`, a, b and c are its three sources, A, B and C are pairs of registers, o is the source
    in bits 32 on, and a number is the bit position of a predicate. In `writes`, d is its result,
    and D is a pair.
    """

    compute: str
    reads: tuple[str | int, ...]
    writes: tuple[str | int, ...]


def _forms() -> Mapping[int, Form]:
    rows = """
        002 move b d | 007 select a,b,87 d | 00c isetp a,b,87,68 81,84
        010 iadd3 a,b,c,87,77 d,81,84 | 011 lea a,b,c,87 d,81 | 012 lop3 a,b,c,87 d,81
        013 iabs b d | 016 prmt a,b,c d
        017 minmax a,b,87 d | 019 shf a,b,c d | 01a sgxt a,b d | 01c plop3 87,77,68 81,84
        008 fselect a,b,87 d | 009 fminmax a,b,87 d | 00b fsetp a,b,87 81,84
        020 fmul a,b d | 021 fadd a,o d | 023 ffma a,b,c d | 045 i2f b d
        024 imad a,b,c,87 d,81 | 025 imad_wide a,b,C,87 D,81 | 027 imad_high a,b,C,87 d,81
        036 viadd a,b d | 046 add_minmax a,b,c,87 d | 048 vector_minmax a,b,87 d
        082 move b d | 087 select a,b,87 d | 08c isetp a,b,87,68 81,84
        090 iadd3 a,b,c,87,77 d,81,84 | 091 lea a,b,c,87 d,81 | 092 lop3 a,b,c,87 d,81
        096 prmt a,b,c d | 097 add64 A,B,C D | 099 shf a,b,c d | 09a sgxt a,b d
        09c plop3 87,77,68 81,84 | 0a4 imad a,b,c,87 d,81 | 0a5 imad_wide a,b,C,87 D,81
        0a7 imad_high a,b,C,87 d,81 | 0bd flo b d,81 | 0bf popc b d | 100 flo b d,81
        105 f2i b d | 106 i2f b d | 107 fround b d | 108 mufu b d | 109 popc b d
    """
    forms = {}
    for row in rows.replace("\n", "|").split("|"):
        if not row.strip():
            continue
        opcode, compute, reads, writes = row.split()
        operands = (
            tuple(int(one) if one.isdigit() else one for one in text.split(","))
            for text in (reads, writes)
        )
        forms[int(opcode, 16)] = Form(compute, *operands)
    return forms


FORMS = _forms()
"""The arithmetic instructions that are computed, by the lowest 9 bits of the opcode."""
IADD, IADD64 = Form("viadd", ("a", "b"), ("d",)), Form("add64", ("A", "B"), ("D",))
HFMA2_MMA = 0x035
"""HFMA2.MMA became IADD and IADD.64 with Blackwell."""
MOV, MOV64 = 0x002, Form("move", ("B",), ("D",))
"""MOV.64 was added with Blackwell."""
WIDE_ADD_BIT, WIDE_MOVE_BIT = 73, 80

S2R, S2UR, CS2R, LDC, ULDC, LDCU = 0x119, 0x1C3, 0x005, 0x182, 0x0B9, 0x1AC
READS_SPECIAL = frozenset({S2R, S2UR, CS2R})
R2UR, R2UR_BEFORE, P2R, R2P = 0x0CA, 0x1C2, 0x003, 0x004
SHFL, VOTE, VOTEU, ELECT, REDUX, SYNCS_WAIT = 0x189, 0x006, 0x086, 0x02F, 0x1C4, 0x1A7
LDG, LD, LDS, LDL, LDSM = 0x181, 0x180, 0x184, 0x183, 0x03B
STG, ST, STS, STL, STSM, LDGSTS = 0x186, 0x185, 0x188, 0x187, 0x044, 0x1AE
ATOMG_FLOAT, ATOMG, ATOMG_CAS, ATOM, ATOMS = 0x1A3, 0x1A8, 0x1A9, 0x18A, 0x18C
RED, REDG = 0x18E, 0x1A6
ATOMICS = frozenset({ATOMG, ATOMG_FLOAT, ATOMG_CAS, ATOM, RED, REDG})
MEMBAR, SCOPE_BIT, GPU_SCOPE = 0x192, 76, 2
"""The fence, the position of the 3 bits of its scope, and the scope of a GPU; only that of a system
is wider (nvdisasm)."""
ATOMIC_WIDE_BEFORE, ATOMIC_WIDE, ATOMIC_DOUBLE = frozenset({2, 5, 6}), frozenset({2, 3}), 7
"""The codes of 8-byte types of atomic operations (U64, S64, F64; from Hopper on U64, S64) and of
F64."""
FLOAT_ATOMIC_BYTES = (4, 8, 16, 4, 8, 16, 4, 4), (4, 4, 8, 16, 4, 8, 16, 8)
"""Bytes of an atomic addition of floats from Hopper on, by bits 73 to 75: F16 and BF16, x2, x4 and
x8; where bit 76 is set F32, x2 and x4, and F64 (nvdisasm)."""
ADDITION_BIT = 87
"""The position of the 4 bits that are 0 in an ATOMG that adds (nvdisasm)."""
CCTL = 0x18F
"""CCTL.IVALL empties the L1 cache, after an atomic operation with acquire semantics (nvdisasm).
Nsight Compute then sees no L1 hits of weights that all programs load."""
IGMMA = 0x1F1
HGMMA = frozenset({0x1F0, 0x1F1, 0x1F3})
LDTM = 0x1EE

WORD, WARP = 4, 32
"""Bytes of a register, and threads of a warp."""
SIZE_OF_8 = 3
"""The code of 8 bytes for the result of a conversion, as a power of two."""
BYPASSING_BYTES = 16
"""Copies to shared memory of this many bytes per thread bypass the L1 cache in Triton; narrower
copies cannot (PTX ISA, cp.async)."""
BYTES_OF_SIZE = (1, 1, 2, 2, 4, 8, 16, 32)
"""Bytes per thread of a memory access, by bits 73 to 75."""


def access_bytes(word: int) -> int:
    """Return the bytes that a thread loads or stores."""
    return BYTES_OF_SIZE[word >> 73 & 7]


def local_bytes(word: int) -> int:
    """Return the bytes of local memory that a thread touches by a load or a store.

    A cache line has one word of 4 bytes of each thread of a warp (CUDA C++ Programming Guide,
    "Local Memory"), so that narrower accesses touch as many sectors. Conditional stores do not
    count: they are for rare cases, such as a division by a very small number. For 14 softmaxes on
    an H200, Nsight Compute counts 1.00 to 1.15 times the unconditional stores, where up to 75% more
    are conditional.
    """
    if word & 0x1FF == STL and word >> 12 & 15 != ALWAYS:
        return 0
    return max(access_bytes(word), 4)


def is_signed(word: int) -> bool:
    """Tell whether a load of fewer than 4 bytes is sign-extended."""
    return word >> 73 & 7 in SIGNED_SIZES


def loaded_registers(word: int) -> int:
    """Return the number of registers that a load fills."""
    return max(access_bytes(word) // 4, 1)


def matrix_registers(word: int) -> int:
    """Return the registers of an HMMA's result: 4 for 32-bit numbers, 2 for 16-bit numbers."""
    return 4 if word >> 76 & 1 else 2


def warpgroup_registers(word: int) -> int:
    """Return the registers of the result of an HGMMA with 64 rows, for 128 threads.

    Its columns are encoded in units of 8. For an IGMMA the unit is 16 from 32 columns on, and the
    code is multiplied by three.
    """
    field = word >> 53 & 31
    if word & 0x1FF != IGMMA:
        return 4 * (field + 1)
    step = field // 3
    return 4 * (step + 1) if step < 4 else 8 * (step - 1)


def tensor_memory_registers(word: int) -> int:
    """Return the number of registers that an access to tensor memory moves."""
    return 1 << (word >> 83 & 7)


RESULTS: Mapping[int, Callable[[int], int] | int] = {
    **dict.fromkeys((0x028, 0x029, 0x02B, 0x049, 0x04A, 0x04B), 2),
    **dict.fromkeys((0x110, 0x111, 0x112, 0x113), lambda word: 1 + (word >> 75 & 3 == SIZE_OF_8)),
    **dict.fromkeys((0x037, 0x03F, 0x07A), 4),
    0x03C: matrix_registers,
    **dict.fromkeys((LDG, LD, LDS, LDL, LDC, ULDC, LDCU), loaded_registers),
    ATOMS: 2,
    LDSM: lambda word: 1 << (word >> 72 & 3),
    CS2R: 2,
    LDTM: tensor_memory_registers,
    **dict.fromkeys(HGMMA, warpgroup_registers),
}
"""The number of registers that an instruction writes, from that in bits 16 to 23 on, if not 1."""
NO_RESULT = frozenset(
    {0x044, 0x04C, 0x102, *range(0x140, 0x15F), STG, ST, STS, STL, LDGSTS, RED, REDG, 0x118, 0x11A}
    | {0x11B, 0x11D, 0x18F, 0x192, 0x1A7, 0x1AB, *range(0x1AF, 0x1BB), 0x1C5, 0x1C6, 0x1C7, 0x1C8}
    | {0x1E9, 0x1EA, 0x1EB, 0x1ED, 0x00B, 0x00C, 0x02A, 0x034, 0x01C, 0x09C, 0x08C, R2P, ELECT}
    | {0x17F}
)
"""Instructions that do not write the register in bits 16 to 23."""
UNIFORM_RESULT = frozenset(
    {*range(0x080, 0x0C0), LDCU, R2UR, R2UR_BEFORE, 0x0CC, S2UR, REDUX, 0x1E3, ELECT, 0x1C8}
)
"""Instructions that write uniform registers and predicates."""
PREDICATE_RESULTS: Mapping[int, tuple[int, ...]] = {
    **{
        opcode: tuple(place for place in form.writes if isinstance(place, int))
        for opcode, form in FORMS.items()
    },
    **dict.fromkeys((0x00B, 0x02A, 0x034), (81, 84)),
    **dict.fromkeys((0x102, SHFL, VOTE, VOTEU, ELECT, SYNCS_WAIT, ATOMG, ATOMG_FLOAT), (81,)),
    **dict.fromkeys((ATOMG_CAS, ATOM, 0x1E3, 0x1C8, LDG, R2UR_BEFORE), (81,)),
}
"""The bit positions of the predicates that an instruction writes."""
OF_OTHERS = frozenset({SHFL, VOTE, VOTEU, REDUX, R2UR, R2UR_BEFORE, 0x0CC, ELECT, LDS})
"""Instructions whose result depends on other threads."""
FROM_FIRST = frozenset({R2UR, R2UR_BEFORE, REDUX, LDC, R2P})
"""Instructions other than arithmetic whose result derives from their first source."""
WRITES_SHARED = frozenset({STS, STSM, LDGSTS, ATOMS, 0x1B4, 0x1BA})
"""These include UTMALDG and UBLKCP."""
LOADS = frozenset({LDG, LD})
"""Loads from global memory, whose results may be known."""
MATRICES = frozenset({LDSM, STSM})
"""Instructions that move matrices of 8 rows of 16 bytes from or to shared memory."""
SHARED_ACCESSES = MATRICES | {LDS, STS, ATOMS, LDGSTS}
"""Instructions whose threads access shared memory by address."""
SIGNED_SIZES = frozenset({1, 3})
"""The codes of S8 and S16 for loads of fewer than 4 bytes."""
CONTENT = (1 << 105) - 1
"""The bits of an instruction that say what it does; higher bits are for scheduling."""
UNIFORM_GUARD = frozenset(
    {*range(0x080, 0x0C0), LDCU, 0x1B2, 0x1B4, 0x1B5, 0x1B6, 0x1B7, 0x1B8, 0x1B9, 0x1BA}
    | {0x1E3, 0x1E9, 0x1EA, 0x1EB}
) - {VOTEU, ULDC}
"""Instructions that are guarded by a uniform predicate."""


class Decoder:
    """Decodes the instructions of one architecture."""

    def __init__(self, arch: int) -> None:
        self.is_ampere, self.is_hopper = arch >= AMPERE, arch >= HOPPER
        self.is_blackwell = arch >= BLACKWELL
        self._reads: dict[int, int] = {}
        self._sources: dict[int, list[Source]] = {}
        self.slots: dict[int, int] = {}
        """The register numbers of places of local memory, by their offset from the stack
        pointer."""

    def form(self, word: int) -> Form | None:
        """Return the operands of an arithmetic instruction; None for any other."""
        opcode = word & 0x1FF
        if opcode == HFMA2_MMA and self.is_blackwell:
            return IADD64 if word >> WIDE_ADD_BIT & 1 else IADD
        if opcode == MOV and self.is_blackwell and word >> WIDE_MOVE_BIT & 1:
            return MOV64
        return FORMS.get(opcode)

    def uniform(self, number: int) -> int:
        """Return the number of a uniform register."""
        number &= 255 if self.is_blackwell else 63
        return UNIFORM_ZERO if number == (255 if self.is_blackwell else 63) else UNIFORM + number

    def guard(self, word: int) -> int:
        """Return the predicate that guards an instruction."""
        first = UNIFORM_PREDICATES if word & 0x1FF in UNIFORM_GUARD else PREDICATES
        return first + (word >> 12 & 7)

    def operands(self, word: int) -> tuple[Source, Source, Source]:
        """Return the three sources of an arithmetic instruction, by its form (bits 9 to 11)."""
        form = word >> 9 & 7
        uniform = word & 0x1FF in range(0x080, 0x0C0)
        number = word >> 32 & 0xFFFFFFFF
        other: Source
        if form in NUMBERED:
            other = Constant(number)
        elif form in {3, 5}:
            other = Constant(number >> 6 & 0xFFFF, number >> 22 & 31)
        elif form in {6, 7} or uniform:
            other = self.uniform(number)
        else:
            other = number & 255
        if uniform:
            first, last = self.uniform(word >> 24), self.uniform(word >> 64)
        else:
            first, last = word >> 24 & 255, word >> 64 & 255
        return (first, last, other) if form in OTHER_LAST else (first, other, last)

    def predicate(self, word: int, place: int) -> int:
        """Return the predicate at bit *place* of an arithmetic instruction."""
        opcode = word & 0x1FF
        uniform = opcode in range(0x080, 0x0C0) or (
            opcode == 0x01C and place == 68 and word >> 67 & 1
        )
        return (UNIFORM_PREDICATES if uniform else PREDICATES) + (word >> place & 7)

    def sources(self, word: int, form: Form) -> list[Source]:
        """Return what an arithmetic instruction reads, in the order of its form."""
        if word in self._sources:
            return self._sources[word]
        first, second, third = self.operands(word)
        other = third if word >> 9 & 7 in OTHER_LAST else second
        operands = {"a": first, "b": second, "c": third, "o": other}
        found: list[Source] = []
        for one in form.reads:
            if isinstance(one, int):
                found.append(self.predicate(word, one))
                continue
            source = operands[one.lower()]
            found.append(source)
            if one.isupper():
                found.append(_behind(source))
        self._sources[word] = found
        return found

    def results(self, word: int, form: Form) -> list[int]:
        """Return what an arithmetic instruction writes, in the order of its form."""
        number = word >> 16 & 255
        uniform = word & 0x1FF in range(0x080, 0x0C0)
        result = self.uniform(number) if uniform else number
        found: list[int] = []
        for one in form.writes:
            if isinstance(one, int):
                found.append(self.predicate(word, one))
            else:
                found += [result] if one == "d" else [result, behind(result)]
        return found

    def writes(self, word: int) -> int:
        """Return the registers that an instruction writes, as a bit set."""
        opcode = word & 0x1FF
        is_uniform = opcode in UNIFORM_RESULT and opcode != ELECT
        first = UNIFORM_PREDICATES if is_uniform else PREDICATES
        found = 0
        for place in PREDICATE_RESULTS.get(opcode, ()):
            found |= 1 << first + (word >> place & 7)
        if opcode not in NO_RESULT:
            found |= self._written_registers(word)
        elif opcode == R2P:
            found |= (word >> 32 & 0x7F) << PREDICATES
        elif opcode == STL:
            found |= bits(self.local(word)[1])
        if opcode in WRITES_SHARED:
            found |= 1 << SHARED
        return found & ~NEVER_WRITTEN

    def _written_registers(self, word: int) -> int:
        opcode, number = word & 0x1FF, word >> 16 & 255
        count = RESULTS.get(opcode, 1)
        if opcode in ATOMICS:
            count = max(self.moved_bytes(word) // WORD, 1)
        form = self.form(word)
        if form is not None and "D" in form.writes:
            count = 2
        count = count if isinstance(count, int) else count(word)
        if opcode in UNIFORM_RESULT:
            return (1 << count) - 1 << self.uniform(number)
        return 0 if number == ZERO else (1 << min(count, ZERO - number)) - 1 << number

    def reads(self, word: int) -> int:
        """Return the registers that an instruction's results derive from, as a bit set.

        It is empty for instructions whose results are not computed.
        """
        found = self._reads.get(word & CONTENT)
        if found is None:
            found = self._reads[word & CONTENT] = self._read(word)
        return found

    def _read(self, word: int) -> int:
        opcode, form = word & 0x1FF, self.form(word)
        found = 1 << self.guard(word)
        if form is not None:
            found |= bits(one for one in self.sources(word, form) if isinstance(one, int))
        elif opcode in FROM_FIRST:
            found |= 1 << (word >> 24 & 255)
        elif opcode == SHFL:
            found |= 1 << (word >> 24 & 255) | 1 << (word >> 32 & 255)
        elif opcode in {VOTE, VOTEU}:
            found |= 1 << PREDICATES + (word >> 87 & 7)
        elif opcode == P2R:
            found |= 0x7F << PREDICATES | 1 << (word >> 24 & 255)
        else:
            found |= self._read_of_memory(word)
        return found & ~NEVER_WRITTEN

    def _read_of_memory(self, word: int) -> int:
        opcode = word & 0x1FF
        if opcode in LOADS:
            return self.access_reads(word)
        if adds(word):
            return self.access_reads(word) | 1 << (word >> 32 & 255)
        if opcode in {LDL, STL}:
            return bits(self.local(word)[0])
        if opcode in {LDS, STS}:
            return bits((*self.shared_registers(word), SHARED))
        return 0

    def moved_bytes(self, word: int) -> int:
        """Return the bytes that a thread moves by an access to global memory."""
        opcode, kind = word & 0x1FF, word >> 73 & 7
        if opcode in {ATOMG_FLOAT, REDG} and self.is_hopper:
            return FLOAT_ATOMIC_BYTES[word >> 76 & 1][kind]
        if opcode == ATOMG_FLOAT:
            return 8 if kind == ATOMIC_DOUBLE else 4
        if opcode in ATOMICS:
            return 8 if kind in (ATOMIC_WIDE if self.is_hopper else ATOMIC_WIDE_BEFORE) else 4
        if opcode == LDGSTS and self.is_blackwell:
            return 4 << (word >> 74 & 3)
        return access_bytes(word)

    def address_registers(self, word: int) -> tuple[int, ...]:
        """Return the registers of the address of an access to global memory: one, or pairs.

        Before Ampere a pair of uniform registers may be added; since then a uniform register only
        holds a descriptor.
        """
        opcode, register = word & 0x1FF, word >> 24 & 255
        if not self.is_ampere and word >> 91 & 1:
            uniform = self.uniform(word >> (32 if opcode in LOADS else 64))
            return register, behind(register), uniform, behind(uniform)
        is_pair = opcode == LDGSTS or word >> 72 & 1
        return (register, behind(register)) if is_pair and register != ZERO else (register,)

    def access_reads(self, word: int, *, shared: bool = False) -> int:
        """Return the registers that an access to global or shared memory needs, as a bit set."""
        address = self.shared_address(word) if shared else self.address_registers(word)
        found = 1 << self.guard(word) | bits(address)
        if word & 0x1FF == LDGSTS:
            found |= 1 << PREDICATES + (word >> 87 & 7)
        return found & ~NEVER_WRITTEN

    def local(self, word: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the source and the destination of an LDL or STL: registers, and places.

        Where the place is not known, a load has a source that is never known, and a store moves
        nothing.
        """
        is_store = word & 0x1FF == STL
        size = access_bytes(word)
        first = word >> (32 if is_store else 16) & 255
        registers = tuple(
            first + one if first != ZERO else ZERO for one in range(max(size // 4, 1))
        )
        _, offset = shared_offset(word)
        if word >> 24 & 255 != STACK or word >> 91 & 1 or size < 4 or offset % 4:
            return ((), ()) if is_store else ((NOT_KNOWN,) * len(registers), registers)
        places = tuple(
            self.slots.setdefault(offset + 4 * one, FIRST_PLACE + len(self.slots))
            for one in range(len(registers))
        )
        return (registers, places) if is_store else (places, registers)

    def shared_address(self, word: int) -> tuple[int, int]:
        """Return a thread's and a uniform register, which a shared-memory address is the sum of."""
        opcode = word & 0x1FF
        if opcode == LDGSTS:
            return word >> 16 & 255, UNIFORM_ZERO
        first = 32 if opcode in {LDS, LDSM} else 64
        uniform = self.uniform(word >> first) if word >> 91 & 1 else UNIFORM_ZERO
        return word >> 24 & 255, uniform

    def shared_registers(self, word: int) -> tuple[int, ...]:
        """Return the two address registers of an LDS or STS, and those that it stores."""
        found = self.shared_address(word)
        if word & 0x1FF != STS:
            return found
        first, count = word >> 32 & 255, loaded_registers(word)
        return (*found, *(range(first, first + count) if first != ZERO else (ZERO,) * count))

    def shared_bytes(self, word: int) -> int:
        """Return the bytes that a thread moves by an access to shared memory."""
        opcode = word & 0x1FF
        if opcode in MATRICES:
            return WORD << (word >> 72 & 3)
        if opcode == ATOMS:
            return WORD
        return self.moved_bytes(word)


def shared_offset(word: int) -> tuple[int, int]:
    """Return the shift of the register in a shared-memory address, and the offset to add.

    The shift is that of the suffixes X4, X8 and X16, or 0.
    """
    if word & 0x1FF == LDGSTS:
        offset = word >> 44 & 0xFFFFF
        return 0, offset - (offset >> 19 << 20)
    offset = word >> 40 & 0xFFFFFF
    scale = 0 if word & 0x1FF in MATRICES else word >> 78 & 3
    return scale + 1 if scale else 0, offset - (offset >> 23 << 24)


def adds(word: int) -> bool:
    """Tell whether an instruction adds 4 bytes to global memory and returns the old value."""
    return word & 0x1FF == ATOMG and not word >> ADDITION_BIT & 15 and not word >> 73 & 7 & ~1


def address_offset(word: int) -> int:
    """Return the offset in the address of an access to global memory, in bytes."""
    bits, first = (12, 32) if word & 0x1FF == LDGSTS else (24, 40)
    offset = word >> first & (1 << bits) - 1
    return offset - (offset >> bits - 1 << bits)


def bits(numbers: Iterable[int]) -> int:
    """Return a bit set of *numbers*."""
    found = 0
    for one in numbers:
        found |= 1 << one
    return found


def places_of(number: int) -> list[int]:
    """Return the elements of a bit set, in ascending order."""
    found = []
    while number:
        lowest = number & -number
        found.append(lowest.bit_length() - 1)
        number ^= lowest
    return found


def behind(register: int) -> int:
    """Return the second register of a pair."""
    return register if register in {ZERO, UNIFORM_ZERO} else register + 1


def _behind(source: Source) -> Source:
    """Return the upper half of a pair of sources; that of an immediate is 0."""
    if isinstance(source, int):
        return behind(source)
    if source.bank is None:
        return Constant(0)
    return Constant(source.number + 4, source.bank)


def reaches_gpu(word: int) -> bool:
    """Tell whether a MEMBAR waits until the whole GPU sees what its warp has stored."""
    return word >> SCOPE_BIT & 7 >= GPU_SCOPE
