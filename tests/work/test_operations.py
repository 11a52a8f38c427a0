"""The decoder of instructions, against nvdisasm."""

import re
from collections import Counter

from disassembled import instructions, numbers

from occupancy_lab.work.operations import (
    ALWAYS,
    LDL,
    NEVER_WRITTEN,
    SHARED_ACCESSES,
    STL,
    UNIFORM,
    Decoder,
    access_bytes,
    address_offset,
    local_bytes,
    shared_offset,
)
from occupancy_lab.work.slices import ACCESSES

CONSTANT = {one for one in range(NEVER_WRITTEN.bit_length()) if NEVER_WRITTEN >> one & 1}
CONSTANT |= {UNIFORM + 63, UNIFORM + 255}


def test_sources_and_results_of_arithmetic_are_the_operands() -> None:
    """Arithmetic reads and writes exactly the operands in its text."""
    seen = Counter()
    for listed in instructions():
        decoder = Decoder(listed.arch)
        form = decoder.form(listed.word)
        if form is None:
            continue
        sources = [one for one in decoder.sources(listed.word, form) if isinstance(one, int)]
        found = {*sources, *decoder.results(listed.word, form)} - CONSTANT
        named = set(numbers(listed.operands)) - CONSTANT
        highest = {one + 1 for one in named}
        assert named <= found <= named | highest, listed
        seen[listed.operation.partition(".")[0]] += 1
    assert len(seen) > 20
    assert seen["IMAD"] > 100


def test_what_an_instruction_writes_begins_with_its_first_operand() -> None:
    """A first operand that is a register is written, and a guard is read."""
    for listed in instructions():
        decoder = Decoder(listed.arch)
        first = listed.operands.split(",")[0].strip()
        if listed.operation.startswith(("BRA", "WARPSYNC", "CALL", "BRX", "RET")):
            continue
        if re.fullmatch(r"U?[RP](\d+)(\.64|\.reuse)*", first):
            assert decoder.writes(listed.word) >> numbers(first)[0] & 1, listed
        if listed.guard:
            assert decoder.guard(listed.word) == numbers(listed.guard)[0], listed


def test_addresses_of_global_memory_are_the_operands() -> None:
    """Registers, offset and width of accesses to global memory are those of their text."""
    seen = Counter()
    widths = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
    for listed in instructions():
        if listed.word & 0x1FF not in ACCESSES:
            continue
        address = re.findall(r"\[([^\]]*)\]", listed.operands)[-1]
        offset = re.search(r"\+(-?0x[0-9a-f]+)$", address)
        registers = Decoder(listed.arch).address_registers(listed.word)
        named = set(numbers(address))
        assert named <= set(registers) <= named | {one + 1 for one in named} | CONSTANT, listed
        assert address_offset(listed.word) == (int(offset[1], 16) if offset else 0), listed
        if listed.operation.startswith(("LDG", "STG")):
            parts = listed.operation.split(".")
            width = next((widths[part] for part in parts if part in widths), 4)
            assert Decoder(listed.arch).moved_bytes(listed.word) == width, listed
        seen[listed.operation.partition(".")[0]] += 1
    assert {"LDG", "STG", "LDGSTS"} <= seen.keys()


def test_addresses_in_shared_memory_are_the_operands() -> None:
    """Registers, offset and width of accesses to shared memory are those of their text."""
    seen = Counter()
    widths = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "2": 8, "4": 16}
    for listed in instructions():
        if listed.word & 0x1FF not in SHARED_ACCESSES:
            continue
        address = re.findall(r"\[([^\]]*)\]", listed.operands)[0]
        offset = re.search(r"(?:^|\+)(-?0x[0-9a-f]+)$", address)
        scale = re.search(r"\.X(\d+)", address)
        decoder = Decoder(listed.arch)
        registers = {*decoder.shared_address(listed.word)}
        assert {*numbers(address)} - CONSTANT == registers - CONSTANT, listed
        shift, added = shared_offset(listed.word)
        assert added == (int(offset[1], 16) if offset else 0), listed
        assert 1 << shift == (int(scale[1]) if scale else 1), listed
        parts = listed.operation.split(".")
        width = next((widths[part] for part in parts[::-1] if part in widths), 4)
        assert decoder.shared_bytes(listed.word) == width, listed
        seen[parts[0]] += 1
    assert {"LDS", "STS", "LDSM", "STSM", "LDGSTS"} <= seen.keys()


def test_comparisons_are_of_signed_numbers_where_their_text_is() -> None:
    """Comparisons, minimum and maximum are unsigned where their text says U32."""
    places = {"VIADDMNMX": 72, "VIMNMX": 72, "IMNMX": 73, "ISETP": 73}
    seen = Counter()
    for listed in instructions():
        parts = listed.operation.split(".")
        if parts[0] in places and "EX" not in parts:
            assert listed.word >> places[parts[0]] & 1 == ("U32" not in parts), listed
            seen[parts[0], "U32" in parts] += 1
    assert {("ISETP", True), ("ISETP", False), ("VIMNMX", False)} <= seen.keys(), seen


def test_a_line_of_local_memory_has_a_word_of_each_thread() -> None:
    """Narrow accesses to local memory count a whole word."""
    seen = Counter()
    for listed in instructions():
        name, *parts = listed.operation.split(".")
        if name in {"LDL", "STL"}:
            wide = {"64": 8, "128": 16}.get(parts[-1] if parts else "", 4)
            seldom = name == "STL" and listed.word >> 12 & 15 != ALWAYS
            assert local_bytes(listed.word) == (0 if seldom else wide), listed
            seen[wide] += 1
    assert seen.keys() >= {4, 8}, seen
    assert local_bytes(LDL | 2 << 73) == 4 > access_bytes(LDL | 2 << 73)
    assert local_bytes(STL | 4 << 73) == 0


def test_local_memory_is_places_behind_the_registers() -> None:
    """An LDL reads the places that an STL with the same address writes."""
    seen = 0
    for listed in instructions():
        decoder = Decoder(listed.arch)
        if not listed.operation.startswith(("LDL", "STL")):
            continue
        sources, results = decoder.local(listed.word)
        address = re.findall(r"\[R1(?:\+(0x[0-9a-f]+))?\]", listed.operands)
        if not address:
            continue
        is_store = listed.operation.startswith("STL")
        registers, places = (sources, results) if is_store else (results, sources)
        first = int(address[0] or "0", 16)
        assert {decoder.slots[first + 4 * one] for one in range(len(places))} == set(places), listed
        assert registers[0] in numbers(listed.operands), listed
        seen += 1
    assert seen > 10
