"""What each instruction of NVIDIA's machine code (SASS) reads, writes and computes.

Only what whole numbers and predicates need is computed: addresses and conditions. Of all others it
is known which registers they write.

NVIDIA documents none of the encoding. Sources: Jia, Maggioni, Staiger and Scarpazza, "Dissecting
the NVIDIA Volta GPU Architecture via Microbenchmarking" (2018), chapter 2; the encoder of Mesa's
NAK compiler (sm70_encode.rs); the text of nvdisasm, with which the tests compare it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

UNIFORM, PREDICATES, UNIFORM_PREDICATES, SHARED = 256, 512, 520, 528
"""Where the uniform registers (UR) begin behind those of a thread (R), the predicates (P, UP), and
shared memory, which is as one register here: all are numbered so."""
NOT_KNOWN, FIRST_PLACE = 529, 530
"""What is never known, and where the places of local memory begin, and behind them constants."""
NUMBERED, OTHER_LAST = frozenset({2, 4}), frozenset({2, 3, 7})
"""The forms of an instruction (bits 9 to 11) in which bits 32 on are a number, and those in which
what is there is the third source: in others it is the second."""
STACK = 1
"""The register with the stack's address."""
ALWAYS = 7
"""PT: as a guard, in the bits 12 to 15 of a word, and as the other condition of a jump."""
ZERO, UNIFORM_ZERO, TRUE, UNIFORM_TRUE = 255, 511, 519, 527
"""RZ, URZ, PT and UPT, which are always the same."""
NEVER_WRITTEN = 1 << ZERO | 1 << UNIFORM_ZERO | 1 << TRUE | 1 << UNIFORM_TRUE
AMPERE, HOPPER, BLACKWELL = 80, 90, 100
"""Of BLACKWELL on there are 255 uniform registers; before it there are 63."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that an operand names: itself, or that at an offset of a bank of constants."""

    number: int
    bank: int | None = None


Source: TypeAlias = "int | Constant"


@dataclass(frozen=True, slots=True)
class Form:
    """The operands of an arithmetic instruction.

    Of `reads`, a, b and c are its three sources, A, B and C pairs of registers, o the source in
    bits 32 on, and a number is the place of a predicate's number in the word; `writes` has d for
    its result, D for a pair.
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
    return MappingProxyType(forms)


FORMS = _forms()
"""The arithmetic that is computed, by the lowest 9 bits of the opcode."""
IADD, IADD64 = Form("viadd", ("a", "b"), ("d",)), Form("add64", ("A", "B"), ("D",))
HFMA2_MMA = 0x035
"""HFMA2.MMA became IADD and IADD.64 with Blackwell."""
MOV, MOV64 = 0x002, Form("move", ("B",), ("D",))
"""MOV.64 came with it."""
WIDE_ADD_BIT, WIDE_MOVE_BIT = 73, 80

S2R, S2UR, CS2R, LDC, ULDC, LDCU = 0x119, 0x1C3, 0x005, 0x182, 0x0B9, 0x1AC
READS_SPECIAL = frozenset({S2R, S2UR, CS2R})
R2UR, R2UR_BEFORE, P2R, R2P = 0x0CA, 0x1C2, 0x003, 0x004
SHFL, VOTE, VOTEU, ELECT, REDUX, SYNCS_WAIT = 0x189, 0x006, 0x086, 0x02F, 0x1C4, 0x1A7
LDG, LD, LDS, LDL, LDSM = 0x181, 0x180, 0x184, 0x183, 0x03B
STG, ST, STS, STL, STSM, LDGSTS = 0x186, 0x185, 0x188, 0x187, 0x044, 0x1AE
ATOMG_FLOAT, ATOMG, ATOMG_CAS, RED, REDG, ATOMS, ATOM = (
    0x1A3,
    0x1A8,
    0x1A9,
    0x18E,
    0x1A6,
    0x18C,
    0x18A,
)
ATOMICS = frozenset({ATOMG, ATOMG_FLOAT, ATOMG_CAS, ATOM, RED, REDG})
ATOMIC_WIDE_BEFORE, ATOMIC_WIDE, ATOMIC_DOUBLE = frozenset({2, 5, 6}), frozenset({2, 3}), 7
"""The types of 8 bytes of an atomic operation (U64, S64, F64; U64, S64 from Hopper on, F64)."""
FLOAT_ATOMIC_BYTES = (4, 8, 16, 4, 8, 16, 4, 4), (4, 4, 8, 16, 4, 8, 16, 8)
"""Bytes of an atomic addition of floats from Hopper on, by bits 73 to 75: of F16 and BF16, x2, x4
and x8, and where bit 76 is set of F32, x2 and x4, and of F64 (the text of nvdisasm)."""
ADDITION_BIT = 87
"""From which on the 4 bits of an ATOMG are 0 that adds (the text of nvdisasm)."""
CCTL = 0x18F
"""CCTL.IVALL empties the L1 cache, behind an atomic operation that acquires (the text of
nvdisasm; of weights that all programs load Nsight Compute then sees none hit)."""
IGMMA = 0x1F1
HGMMA = frozenset({0x1F0, 0x1F1, 0x1F3})
LDTM = 0x1EE

WORD = 4
"""Bytes of a register."""
SIZE_OF_8 = 3
"""Of the result of a conversion: 8 bytes, as a power of two."""
BYPASSING_BYTES = 16
"""A thread, with which a copy to shared memory goes past the L1 cache, as Triton has it; narrower
ones cannot (PTX ISA, cp.async)."""
BYTES_OF_SIZE = (1, 1, 2, 2, 4, 8, 16, 32)
"""Bytes a thread of a memory access, by bits 73 to 75."""


def access_bytes(word: int) -> int:
    """Return the bytes that a thread moves by a load or a store."""
    return BYTES_OF_SIZE[word >> 73 & 7]


def local_bytes(word: int) -> int:
    """Return the bytes of local memory that a thread touches by a load or a store of it.

    A line has one word of 4 bytes of each thread of a warp (CUDA C++ Programming Guide, "Local
    Memory"): what is narrower touches as many sectors. What is stored on a condition is not
    counted: it is the rare case, as that of a division by a very small number (of 14 softmaxes on
    an H200 Nsight Compute counts 1.00 to 1.15 times what is stored without one, where up to
    three quarters as much again is conditional).
    """
    if word & 0x1FF == STL and word >> 12 & 15 != ALWAYS:
        return 0
    return max(access_bytes(word), 4)


def is_signed(word: int) -> bool:
    """Tell whether a load of fewer than 4 bytes spreads the sign over its register."""
    return word >> 73 & 7 in SIGNED_SIZES


def loaded_registers(word: int) -> int:
    """Return the registers that a load fills."""
    return max(access_bytes(word) // 4, 1)


def matrix_registers(word: int) -> int:
    """Return the registers of an HMMA's result: 4 of 32-bit numbers, 2 of 16-bit ones."""
    return 4 if word >> 76 & 1 else 2


def warpgroup_registers(word: int) -> int:
    """Return the registers of the result of an HGMMA of 64 rows: a warpgroup has 128 threads.

    Its columns are counted in eights; those of an IGMMA from 32 on in sixteens, times three.
    """
    field = word >> 53 & 31
    if word & 0x1FF != IGMMA:
        return 4 * (field + 1)
    step = field // 3
    return 4 * (step + 1) if step < 4 else 8 * (step - 1)


def tensor_memory_registers(word: int) -> int:
    """Return the registers that an access to tensor memory fills or stores."""
    return 1 << (word >> 83 & 7)


def converted_registers(word: int) -> int:
    """Return the registers of the result of a conversion from or to 64 bits."""
    return 2 if word >> 75 & 3 == SIZE_OF_8 else 1


RESULTS: Mapping[int, Callable[[int], int] | int] = MappingProxyType(
    {
        **dict.fromkeys((0x028, 0x029, 0x02B, 0x049, 0x04A, 0x04B), 2),
        **dict.fromkeys((0x110, 0x111, 0x112, 0x113), converted_registers),
        **dict.fromkeys((0x037, 0x03F, 0x07A), 4),
        0x03C: matrix_registers,
        **dict.fromkeys((LDG, LD, LDS, LDL, LDC, ULDC, LDCU), loaded_registers),
        ATOMS: 2,
        LDSM: lambda word: 1 << (word >> 72 & 3),
        CS2R: 2,
        LDTM: tensor_memory_registers,
        **dict.fromkeys(HGMMA, warpgroup_registers),
    }
)
"""The registers that an instruction writes from the place in its bits 16 to 23 on, where not 1."""
NO_RESULT = frozenset(
    {0x044, 0x04C, 0x102, *range(0x140, 0x15F), STG, ST, STS, STL, LDGSTS, RED, REDG, 0x118, 0x11A}
    | {0x11B, 0x11D, 0x18F, 0x192, 0x1A7, 0x1AB, *range(0x1AF, 0x1BB), 0x1C5, 0x1C6, 0x1C7, 0x1C8}
    | {
        0x1E9,
        0x1EA,
        0x1EB,
        0x1ED,
        0x00B,
        0x00C,
        0x02A,
        0x034,
        0x01C,
        0x09C,
        0x08C,
        R2P,
        ELECT,
        0x17F,
    }
)
"""What writes no register there."""
UNIFORM_RESULT = frozenset(
    {*range(0x080, 0x0C0), LDCU, R2UR, R2UR_BEFORE, 0x0CC, S2UR, REDUX, 0x1E3, ELECT, 0x1C8}
)
"""What writes uniform registers and predicates."""
PREDICATE_RESULTS: Mapping[int, tuple[int, ...]] = MappingProxyType(
    {
        **{
            opcode: tuple(place for place in form.writes if isinstance(place, int))
            for opcode, form in FORMS.items()
        },
        **dict.fromkeys((0x00B, 0x02A, 0x034), (81, 84)),
        **dict.fromkeys((0x102, SHFL, VOTE, VOTEU, ELECT, SYNCS_WAIT, ATOMG, ATOMG_FLOAT), (81,)),
        **dict.fromkeys((ATOMG_CAS, ATOM, 0x1E3, 0x1C8, LDG, R2UR_BEFORE), (81,)),
    }
)
"""Where the numbers of the predicates are that an instruction writes."""
OF_OTHERS = frozenset({SHFL, VOTE, VOTEU, REDUX, R2UR, R2UR_BEFORE, 0x0CC, ELECT, LDS})
"""What a thread gets of other threads."""
FROM_FIRST = frozenset({R2UR, R2UR_BEFORE, REDUX, LDC, R2P})
"""What is made of its first source, and is no arithmetic."""
WRITES_SHARED = frozenset({STS, STSM, LDGSTS, ATOMS, 0x1B4, 0x1BA})
"""UTMALDG and UBLKCP among them."""
LOADS = frozenset({LDG, LD})
"""Of global memory: what they load may be known."""
MATRICES = frozenset({LDSM, STSM})
"""What moves matrices of 8 rows of 16 bytes, from or to shared memory."""
SHARED_ACCESSES = MATRICES | {LDS, STS, ATOMS, LDGSTS}
"""What asks for shared memory by addresses of threads."""
SIGNED_SIZES = frozenset({1, 3})
"""Of a load of fewer than 4 bytes: S8 and S16."""
CONTENT = (1 << 105) - 1
"""The bits of an instruction that say what it does; behind them is when it is issued."""
UNIFORM_GUARD = frozenset(
    {*range(0x080, 0x0C0), LDCU, 0x1B2, 0x1B4, 0x1B5, 0x1B6, 0x1B7, 0x1B8, 0x1B9, 0x1BA}
    | {0x1E3, 0x1E9, 0x1EA, 0x1EB}
) - {VOTEU, ULDC}
"""What is guarded by a uniform predicate."""


class Decoder:
    """Takes the instructions of one architecture apart."""

    def __init__(self, arch: int) -> None:
        self.is_ampere, self.is_hopper = arch >= AMPERE, arch >= HOPPER
        self.is_blackwell = arch >= BLACKWELL
        self._writes: dict[int, int] = {}
        self._reads: dict[int, int] = {}
        self.slots: dict[int, int] = {}
        """The places of local memory by their distance from the stack's, as registers."""

    def form(self, word: int) -> Form | None:
        """Return the operands of an arithmetic instruction; None of any other."""
        opcode = word & 0x1FF
        if opcode == HFMA2_MMA and self.is_blackwell:
            return IADD64 if word >> WIDE_ADD_BIT & 1 else IADD
        if opcode == MOV and self.is_blackwell and word >> WIDE_MOVE_BIT & 1:
            return MOV64
        return FORMS.get(opcode)

    def uniform(self, number: int) -> int:
        """Return the place of a uniform register."""
        number &= 255 if self.is_blackwell else 63
        return UNIFORM_ZERO if number == (255 if self.is_blackwell else 63) else UNIFORM + number

    def guard(self, word: int) -> int:
        """Return the predicate under which an instruction does something."""
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
        """Return the predicate whose number is at *place* of an arithmetic instruction."""
        opcode = word & 0x1FF
        uniform = opcode in range(0x080, 0x0C0) or (
            opcode == 0x01C and place == 68 and word >> 67 & 1
        )
        return (UNIFORM_PREDICATES if uniform else PREDICATES) + (word >> place & 7)

    def sources(self, word: int, form: Form) -> list[Source]:
        """Return what an arithmetic instruction reads, in the order of its form."""
        operands = dict(zip("abc", self.operands(word), strict=True))
        operands["o"] = operands["c" if word >> 9 & 7 in OTHER_LAST else "b"]
        found: list[Source] = []
        for one in form.reads:
            if isinstance(one, int):
                found.append(self.predicate(word, one))
                continue
            source = operands[one.lower()]
            found.append(source)
            if one.isupper():
                found.append(_behind(source))
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
        """Return the registers that an instruction writes, a bit of the number each."""
        found = self._writes.get(word & CONTENT)
        if found is None:
            found = self._writes[word & CONTENT] = self._written(word)
        return found

    def _written(self, word: int) -> int:
        opcode = word & 0x1FF
        places = [word >> place & 7 for place in PREDICATE_RESULTS.get(opcode, ())]
        is_uniform = opcode in UNIFORM_RESULT and opcode != ELECT
        first = UNIFORM_PREDICATES if is_uniform else PREDICATES
        found = bits(first + place for place in places)
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
        """Return the registers from which an instruction makes its results, a bit each.

        Of instructions whose results are not computed they are not needed, and not there.
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
            return self.address_reads(word)
        if adds(word):
            return self.address_reads(word) | 1 << (word >> 32 & 255)
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
        """Return the registers of the address of an access to global memory: pairs, or one.

        Before Ampere a pair of uniform registers may be added; later a uniform register has only a
        descriptor.
        """
        opcode, register = word & 0x1FF, word >> 24 & 255
        if not self.is_ampere and word >> 91 & 1:
            uniform = self.uniform(word >> (32 if opcode in LOADS else 64))
            return register, behind(register), uniform, behind(uniform)
        is_pair = opcode == LDGSTS or word >> 72 & 1
        return (register, behind(register)) if is_pair and register != ZERO else (register,)

    def address_reads(self, word: int) -> int:
        """Return the registers that say where and whether an access to global memory is."""
        found = 1 << self.guard(word) | bits(self.address_registers(word))
        if word & 0x1FF == LDGSTS:
            found |= 1 << PREDICATES + (word >> 87 & 7)
        return found & ~NEVER_WRITTEN

    def local(self, word: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what an LDL or STL moves, and where to: registers and places of local memory.

        Nothing is read where it is not known which place is: then what is loaded is not known.
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
        """Return the registers of an address in shared memory: a thread's, and a uniform one."""
        opcode = word & 0x1FF
        if opcode == LDGSTS:
            return word >> 16 & 255, UNIFORM_ZERO
        first = 32 if opcode in {LDS, LDSM} else 64
        uniform = self.uniform(word >> first) if word >> 91 & 1 else UNIFORM_ZERO
        return word >> 24 & 255, uniform

    def shared_reads(self, word: int) -> int:
        """Return the registers that say where and whether an access to shared memory is."""
        found = 1 << self.guard(word) | bits(self.shared_address(word))
        if word & 0x1FF == LDGSTS:
            found |= 1 << PREDICATES + (word >> 87 & 7)
        return found & ~NEVER_WRITTEN

    def shared_registers(self, word: int) -> tuple[int, ...]:
        """Return the registers of the address of an LDS or STS, two, and those that it stores."""
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
    """Return by how many bits an address in shared memory shifts its register, and what it adds.

    It is times 4, 8 or 16 (X4, X8, X16) where it is not 1.
    """
    if word & 0x1FF == LDGSTS:
        offset = word >> 44 & 0xFFFFF
        return 0, offset - (offset >> 19 << 20)
    offset = word >> 40 & 0xFFFFFF
    scale = 0 if word & 0x1FF in MATRICES else word >> 78 & 3
    return scale + 1 if scale else 0, offset - (offset >> 23 << 24)


def adds(word: int) -> bool:
    """Tell whether an instruction adds 4 bytes in global memory, and gives back what was there."""
    return word & 0x1FF == ATOMG and not word >> ADDITION_BIT & 15 and not word >> 73 & 7 & ~1


def address_offset(word: int) -> int:
    """Return what an access to global memory adds to its address, in bytes."""
    bits, first = (12, 32) if word & 0x1FF == LDGSTS else (24, 40)
    offset = word >> first & (1 << bits) - 1
    return offset - (offset >> bits - 1 << bits)


def bits(numbers: Iterable[int]) -> int:
    """Return a number with these bits set."""
    found = 0
    for one in numbers:
        found |= 1 << one
    return found


def places_of(number: int) -> list[int]:
    """Return which bits of a number are set, the lowest first."""
    found = []
    while number:
        lowest = number & -number
        found.append(lowest.bit_length() - 1)
        number ^= lowest
    return found


def behind(register: int) -> int:
    """Return the register behind one, with which it is a pair."""
    return register if register in {ZERO, UNIFORM_ZERO} else register + 1


def _behind(source: Source) -> Source:
    """Return the higher half of a pair of sources; a number of an instruction has its sign."""
    if isinstance(source, int):
        return behind(source)
    if source.bank is None:
        return Constant(0)
    return Constant(source.number + 4, source.bank)
