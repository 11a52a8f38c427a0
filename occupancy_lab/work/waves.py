"""Follows the waves of some programs through the assembly of a kernel for an AMD GPU.

As in `warps`, every value is an array over programs and threads. A wave is at one instruction, and
its active lanes are those in exec, a mask that the code itself sets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from occupancy_lab.compiling.amdgcn import lane_width
from occupancy_lab.work import gcn
from occupancy_lab.work.arithmetic import WORD
from occupancy_lab.work.gcn import EXEC, LANES, Instruction, registers_of
from occupancy_lab.work.gcn_arithmetic import (
    FORMS,
    LOGIC,
    SAVE,
    WORD_BITS,
    Form,
    number_of,
    selected,
)
from occupancy_lab.work.operations import Constant
from occupancy_lab.work.passed import TENSOR_BITS, first_active
from occupancy_lab.work.threads import Step
from occupancy_lab.work.warps import Warps, by_warp

Values: TypeAlias = "Sequence[Any]"
Made: TypeAlias = "tuple[Sequence[int | Constant], Sequence[int], Callable[[Values], Values]]"
"""The sources of an instruction, its results, and the function from one to the other."""

HALF_BITS = 16
FIXED: Mapping[str, tuple[int, ...]] = {"e": (EXEC, EXEC + 1), "c": (gcn.SCC,)}
"""The registers of the letters of a Form that are not operands."""
SIGNED = 1 << 73
"""The bit of a comparison's word that `skipping` reads."""
SELECTED = re.compile(r"(\w+)_sel:(\w+)")
"""The parts of registers that an SDWA instruction selects."""
ABSORBED = {"and": False, "or": True}
"""The value of one mask that determines the result even where the other mask is not known."""
EVERY_LANE = ("v_readfirstlane", "v_readlane", "v_cmp_")
"""Vector instructions with one result per wave, whatever exec is."""


class Waves(Warps):
    """The state of the waves of some programs."""

    def begin(self, users: int, axes: Sequence[int]) -> None:
        """Set the registers with which programs begin (LLVM's "User Guide for AMDGPU Backend").

        The runtime sets the first *users* scalar registers. Behind them are the program's indices
        along those *axes* of the grid that are not 0.
        """
        values = self.registers.values
        values[EXEC] = values[EXEC + 1] = np.ones((1, 1), bool)
        values[gcn.VECTORS] = np.arange(self.launched.threads, dtype=np.uint32)[None, :]
        for place, is_there in zip(self.launched.places, axes, strict=True):
            if is_there:
                values[users] = place
                users += 1

    def _whole(self, value: Any) -> Any:
        """Return an array over programs, waves and lanes."""
        return by_warp(np.broadcast_to(value, (len(value), self.launched.threads)), LANES)

    def _lane(self) -> Any:
        return np.arange(self.launched.threads, dtype=np.uint32)[None, :] % np.uint32(LANES)

    def _any(self, mask: Any) -> Any:
        """Return whether any lane of a wave is in *mask*."""
        if mask.shape[1] == 1:
            return mask
        return np.repeat(self._whole(mask).any(axis=2), LANES, axis=1)

    def _mask_of(self, values: Values) -> Any:
        """Return the lane mask in a pair of words."""
        low, high = values
        if low.dtype == high.dtype == bool:
            return low
        if low.dtype == high.dtype and (low == WORD).all() and (high == WORD).all():
            return np.ones((1, 1), bool)
        lane = self._lane()
        low, high = (
            one
            if one.dtype == bool
            else (one >> (lane & np.uint32(WORD_BITS - 1)) & np.uint32(1)).astype(bool)
            for one in values
        )
        return np.where(lane < WORD_BITS, low, high)

    def _word(self, value: Any, source: int | Constant) -> Any:
        if value.dtype != bool:
            return value
        first = WORD_BITS if isinstance(source, int) and source & 1 else 0
        lanes = self._whole(value)[..., first : first + WORD_BITS]
        bits = (lanes << np.arange(WORD_BITS, dtype=np.uint32)).sum(axis=2, dtype=np.uint32)
        return np.repeat(bits, LANES, axis=1)

    def _wide(self, values: Values, sources: Sequence[int | Constant]) -> Any:
        low, high = map(self._word, values, sources)
        return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(WORD_BITS)

    def _compute(self, step: Step) -> None:
        """Compute an instruction, for the lanes of exec or, if scalar, once per wave."""
        name = step.name.removeprefix(SAVE)
        if name not in LOGIC:
            super()._compute(step)
            return
        registers = self.registers
        width = len(step.sources) // 2
        sides: list[Any] = []
        for start in (0, width) if step.sources else ():
            values = [registers.read(one, self.mask) for one in step.sources[start : start + width]]
            sides.append(None if any(one is None for one in values) else values)
        made, nonzero = self._logical(name, sides, width)
        if step.name != name:
            made = [*(sides[1] or [None] * width), *made]
        where = None if self._are_all else self.mask
        for place, value in zip(step.results, [*made, nonzero], strict=True):
            registers.write(place, value, None, where)

    def _logical(self, name: str, sides: Sequence[Any], width: int) -> tuple[list[Any], Any]:
        """Return the words of a logical operation, and whether any of them is not 0.

        None stands for unknown words. A result is also known where one mask alone determines it.
        """
        known = [one for one in sides if one is not None]
        if len(known) < len(sides):
            decides = ABSORBED.get(name)
            if known and decides is not None and width > 1:
                mask = self._mask_of(known[0])
                if ((mask if decides else ~mask) | ~self.mask).all():
                    return [np.full((1, 1), decides)] * width, np.full((1, 1), decides)
            return [None] * width, None
        operate = LOGIC[name]
        if width > 1 and any(value.dtype == bool for side in sides for value in side):
            mask = operate(*map(self._mask_of, sides))
            return [mask] * width, self._any(mask)
        words = [operate(*map(self._word, pair, (0, 0))) for pair in zip(*sides, strict=True)]
        nonzero = words[0] != 0
        for one in words[1:]:
            nonzero = nonzero | (one != 0)
        return words, nonzero

    def _step(self, number: int, *, only_for_shared: bool) -> Step:  # noqa: ARG002 - never so
        one = self.code.instructions[number]
        guard = EXEC if one.is_vector and not one.name.startswith(EVERY_LANE) else None
        if number in self.code.accesses:
            sources = tuple(self._place(x) for term in gcn.address_of(one)[0] for x in term)
            results = one.writes if "_load_" in one.name else ()
            return Step(number, 0, None, sources, results, guard, negated=False)
        form = FORMS.get(one.name.removesuffix("_sdwa"))
        made = self._special(one) if form is None else self._formed(one, form)
        if made is None:
            nothing = [None] * len(one.writes)
            return Step(number, 0, lambda _: nothing, (), one.writes, guard, negated=False)
        given, written, compute = made
        others = tuple(place for place in one.writes if place not in written)
        if form is None or form.name.removeprefix(SAVE) not in LOGIC:
            inner = compute
            compute = lambda values: [*inner(values), *[None] * len(others)]  # noqa: E731
            written = (*written, *others)
        sources = tuple(self._place(source) for source in given)
        name, word = ("", 0) if form is None else (form.name, SIGNED * form.signed)
        return Step(number, word, compute, sources, tuple(written), guard, negated=False, name=name)

    def _operand(self, text: str, letter: str, one: Instruction) -> list[int | Constant] | None:
        """Return the sources of an operand of kind *letter* (`Form.reads`); None if unknown."""
        width = 2 if letter in "qm" or (letter == "x" and one.name.endswith("64")) else 1
        registers = registers_of(text)
        if registers:
            is_plain = not text.startswith(("-", "|")) and "(" not in text
            return list(registers[:width]) if is_plain and len(registers) >= width else None
        number = number_of(text, one.name)
        if number is None:
            return None
        return [Constant(number >> WORD_BITS * place & WORD) for place in range(width)]

    def _formed(self, one: Instruction, form: Form) -> Made | None:
        """Return the sources, the results and the function of an instruction with a Form."""
        operands, parts = _parts(one)
        if operands is None:
            return None
        results: list[int] = []
        sizes: list[int] = []
        for letter in form.writes:
            places = FIXED.get(letter) or registers_of(operands.pop(0))
            results += places
            sizes.append(len(places))
        if one.carries_unread:
            operands.pop(0)
        groups = self._groups(one, form, operands)
        if groups is None:
            return None

        def compute(values: Values) -> Values:
            given = self._given(values, groups)
            for place, (part, is_signed) in enumerate(parts):
                given[place] = selected(given[place], part, is_signed=is_signed)
            lanes = given.pop() if groups[-1][0] == "e" else None
            made = form.compute(*given)
            made = [made] if not isinstance(made, tuple) else list(made)
            if lanes is not None:
                made = [made[0] & lanes]
            if form.writes.endswith("c") and len(made) < len(sizes):
                made.append(self._any(made[0]) if made[0].dtype == bool else made[0] != 0)
            return [word for one in zip(made, sizes, strict=True) for word in _words(*one)]

        return [source for _, found in groups for source in found], results, compute

    def _groups(
        self, one: Instruction, form: Form, operands: list[str]
    ) -> list[tuple[str, Sequence[int | Constant]]] | None:
        """Return the sources of each letter in a form's `reads`; None where any is not known."""
        groups: list[tuple[str, Sequence[int | Constant]]] = []
        for letter in form.reads:
            found: Sequence[int | Constant] | None = FIXED.get(letter)
            if found is None and operands:
                found = self._operand(operands.pop(0), letter, one)
            if found is None:
                return None
            groups.append((letter, found))
        return groups

    def _given(
        self, values: Values, groups: Sequence[tuple[str, Sequence[int | Constant]]]
    ) -> list[Any]:
        kinds = (letter for letter, found in groups for _ in found)
        masks = any(
            kind == "x" and one.dtype == bool for kind, one in zip(kinds, values, strict=True)
        )
        given: list[Any] = []
        at = 0
        for letter, found in groups:
            part = values[at : at + len(found)]
            at += len(found)
            if letter == "c":
                given.append(part[0])
            elif letter in "em" or (letter == "x" and masks and len(part) > 1):
                given.append(self._mask_of(part))
            elif len(part) > 1:
                given.append(self._wide(part, found))
            else:
                given.append(self._word(part[0], found[0]))
        return given

    def _special(self, one: Instruction) -> Made | None:
        """Return the same for other instructions; None where it is not known."""
        for prefix, maker in SPECIAL.items():
            if one.name.startswith(prefix):
                return maker(self, one)
        return None

    def _scalar_load(self, one: Instruction) -> Made | None:
        """s_load: loads the kernel's arguments, from address 0 on, or from a tensor."""
        places, base = registers_of(one.operands[0]), registers_of(one.operands[1])
        found = re.fullmatch(r"(s\d+|m0)?(?: ?offset:)?(-?\w+)?", ", ".join(one.operands[2:]))
        offset = None if found is None else number_of(found[2] or "0", one.name)
        if offset is None or found is None:
            return None
        register = registers_of(found[1] or "")

        def compute(values: Values) -> Values:
            address = self._wide(values[:2], base).astype(np.int64) + offset
            if register:
                address = address + self._word(values[2], register[0]).astype(np.int64)
            first = first_active(address, self.mask)
            if first >> TENSOR_BITS:
                return self.launched.loaded(address, self.mask, 4, len(places), signed=False)
            return [self.launched.constant(0, first + 4 * place) for place in range(len(places))]

        return (*base, *register), places, compute

    def _first_lane(self, one: Instruction) -> Made | None:
        """v_readfirstlane: the value of a wave's first active lane."""

        def compute(values: Values) -> Values:
            value, chosen = values[0], values[1] & self.mask
            if value.shape[1] == 1:
                return [value]
            rows = max(len(value), len(chosen))
            lanes, acting = (
                self._whole(np.broadcast_to(each, (rows, each.shape[1])))
                for each in (value, chosen)
            )
            found = np.take_along_axis(lanes, acting.argmax(axis=2)[..., None], axis=2)
            return [np.repeat(found[..., 0], LANES, axis=1)]

        sources = registers_of(one.operands[1])
        return ((*sources, EXEC), registers_of(one.operands[0]), compute) if sources else None

    def _read_lane(self, one: Instruction) -> Made | None:
        """v_readlane: the value of a given lane."""
        lane = number_of(one.operands[2], one.name)
        if lane is None:
            return None

        def compute(values: Values) -> Values:
            value = values[0]
            if value.shape[1] > 1:
                value = np.repeat(self._whole(value)[..., lane], LANES, axis=1)
            return [value]

        return registers_of(one.operands[1]), registers_of(one.operands[0]), compute

    def _write_lane(self, one: Instruction) -> Made | None:
        """v_writelane: sets the value of a given lane."""
        lane = number_of(one.operands[2], one.name)
        source = self._operand(one.operands[1], "w", one)
        place = registers_of(one.operands[0])
        if lane is None or source is None:
            return None
        word = source[0]

        def compute(values: Values) -> Values:
            return [np.where(self._lane() == lane, self._word(values[0], word), values[1])]

        return (word, *place), place, compute

    def _condition(self, one: Instruction) -> Made | None:
        """s_cbranch on vcc or exec: whether any lane is set."""
        start = EXEC if "exec" in one.name else gcn.VCC
        return (start, start + 1), (gcn.ANY,), lambda values: [self._any(self._mask_of(values))]

    def _lane_number(self, one: Instruction) -> Made | None:
        """v_mbcnt of all lanes: the number of lower lanes in either half."""
        added = self._operand(one.operands[2], "w", one)
        if added is None or one.operands[1] != "-1":
            return None
        lane = self._lane().astype(np.int64)
        low, high = (0, WORD_BITS) if "_lo_" in one.name else (WORD_BITS, LANES)
        before = (np.clip(lane, low, high) - low).astype(np.uint32)
        return added, registers_of(one.operands[0]), lambda values: [values[0] + before]

    def _spilled(self, one: Instruction) -> Made | None:
        """Words that a lane keeps in scratch memory."""
        places = gcn.scratch_places(one.name, one.operands)
        operand = one.operands["_store" in one.name and one.name.startswith("scratch")]
        registers = registers_of(operand)
        if places is None or len(registers) != len(places):
            return None
        return (registers, places, list) if "_store" in one.name else (places, registers, list)

    def _memory(
        self, step: Step, sources: Sequence[Any], mask: Any, unknown: Any
    ) -> tuple[Sequence[Any], Any, bool]:
        """Record an access to global memory, and return what it loads."""
        one = self.code.instructions[step.number]
        address = None
        is_unknown = unknown is not None and bool((unknown & mask).any())
        if not is_unknown and all(source is not None for source in sources):
            address, mask = self._address(one, sources, mask)
        if self.visits is not None:
            self.visits.of_global(step, address, mask, self._skipping.repeat)
        if address is None or not step.results:
            return [None] * len(step.results), None, False
        form = one.name.rpartition("load_")[2]
        size = lane_width(form) or WORD_BITS // 8
        is_signed = form[0] in "is"
        loaded = self.launched.loaded(address, mask, size, len(step.results), signed=is_signed)
        return loaded, None, False

    def _address(self, one: Instruction, sources: Sequence[Any], mask: Any) -> tuple[Any, Any]:
        """Return the addresses of an access, and the lanes of *mask* that access anything.

        Lanes whose address is beyond the end of a buffer do not.
        """
        terms, offset = gcn.address_of(one)
        values = (self._word(value, 0).astype(np.int64) for value in sources)
        lane, base, scalar = ([next(values) for _ in term] or [np.int64(0)] for term in terms)
        inside = sum(word << WORD_BITS * place for place, word in enumerate(lane)) + offset
        if one.name.startswith("buffer_"):
            start = base[0] | (base[1] & (1 << HALF_BITS) - 1) << WORD_BITS
            return start + inside + scalar[0], mask & (inside < base[2])
        start = sum(word << WORD_BITS * place for place, word in enumerate(base))
        return np.atleast_2d(start + inside), mask


def _parts(one: Instruction) -> tuple[list[str] | None, list[tuple[str, bool]]]:
    """Return an instruction's operands, and the parts of its sources that SDWA selects.

    No operands are returned for moves between lanes (DPP), clamps and negations.
    """
    operands, parts = list(one.operands), []
    if one.name.endswith("_sdwa"):
        operands[-1], _, modifiers = operands[-1].partition(" ")
        selects = dict(SELECTED.findall(modifiers))
        if selects.get("dst", "DWORD") != "DWORD" or "clamp" in modifiers:
            return None, []
        for place, text in enumerate(operands):
            if text.startswith("sext("):
                operands[place] = text[len("sext(") : -1]
            name = f"src{place - 1}"
            if name in selects:
                parts.append((selects[name], text.startswith("sext(")))
    if one.name.startswith(("s_addk", "s_mulk")):
        operands.insert(0, operands[0])
    if one.name.endswith("_dpp") or any(" " in text for text in operands):
        return None, []
    return operands, parts


def _words(value: Any, size: int) -> list[Any]:
    """Return a number as *size* words; for a lane mask each word is the whole mask."""
    if value.dtype == np.uint64:
        return [value.astype(np.uint32), (value >> np.uint64(WORD_BITS)).astype(np.uint32)]
    return [value] * size


SPECIAL: Mapping[str, Callable[[Waves, Instruction], Made | None]] = {
    "s_load_": Waves._scalar_load,  # noqa: SLF001 - its own
    "v_readfirstlane": Waves._first_lane,  # noqa: SLF001
    "v_readlane": Waves._read_lane,  # noqa: SLF001
    "v_writelane": Waves._write_lane,  # noqa: SLF001
    "s_cbranch_vcc": Waves._condition,  # noqa: SLF001
    "s_cbranch_exec": Waves._condition,  # noqa: SLF001
    "v_mbcnt": Waves._lane_number,  # noqa: SLF001
    **dict.fromkeys(
        ("scratch_load", "scratch_store", "buffer_load", "buffer_store"),
        Waves._spilled,  # noqa: SLF001
    ),
}
"""The makers of instructions that are no arithmetic, by the prefix of the name."""
