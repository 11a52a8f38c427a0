"""What a kernel reads as constants, against the parameters of its PTX."""

import re
import struct
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from recorded_work import RecordedLaunch, recorded_launches

from occupancy_lab.arguments import Pointer
from occupancy_lab.assumed import RandomNumbers, elements
from occupancy_lab.compiling.cubin import EM_CUDA, read_elf
from occupancy_lab.work.passed import MIDDLE, TENSOR_BITS, Passed, parameters_of

PARAMETER = re.compile(r"\.param (?:\.align (\d+) )?\.([a-z]+)(\d+)[^\[,)]*?\w+(?:\[(\d+)\])?[,\n]")
FIRST = 0x210
"""The offset of parameters in bank 0 on an H100 (cuobjdump -elf: EIATTR_PARAM_CBANK)."""
with_ptx = [one for one in recorded_launches() if one.is_counted and one.texts.ptx]


def passed(launch: RecordedLaunch, **values: Any) -> Passed:
    """Return the arguments of a recorded launch."""
    names = parameters_of(launch.ttir, launch.kernel)
    elf = read_elf(launch.cubin, EM_CUDA, "a cubin")
    return Passed.of_cubin(elf, launch.kernel, names, launch.arguments, values)


def offsets(ptx: str) -> list[int]:
    """Return the offset of each parameter in the PTX, with its type's alignment."""
    found, end = [], 0
    entry = ptx.partition(".entry")[2].partition(")")[0]
    for align, _, bits, number in PARAMETER.findall(entry):
        size = int(bits) // 8 * int(number or 1)
        to = int(align or size)
        found.append(-(-end // to) * to)
        end = found[-1] + size
    return found


def test_arguments_lie_where_ptx_has_its_parameters() -> None:
    """Numbers are at their parameters' offsets, and addresses identify their tensors."""
    seen = 0
    for launch in with_ptx:
        names, found = parameters_of(launch.ttir, launch.kernel), passed(launch)
        places = offsets(launch.texts.ptx or "")
        if len({*names}) != len(names):
            continue
        for name, place in zip(names, places, strict=False):
            value = launch.arguments[name]
            low, high = (found.constant(0, FIRST + place + one) for one in (0, 4))
            if isinstance(value, Pointer):
                assert found.tensor_at(int(low.item()) | int(high.item()) << 32) == name
            elif isinstance(value, float):
                assert struct.pack("<I", low.item()) == struct.pack("<f", value)
            elif isinstance(value, int):
                assert low.item() == value & 0xFFFFFFFF
            seen += 1
    assert seen > 300


def test_threads_that_do_not_load_have_no_say_in_what_is_loaded() -> None:
    """In a branch that the first programs do not take, their addresses may be of another tensor."""
    tensors = {name: Pointer("int32", 8) for name in "xy"}
    given = Passed(list("xy"), tensors, {"x": (5, 6), "y": (7, 8)}, {0: (0, 8), 1: (8, 8)})
    x, y = ((number << TENSOR_BITS) + MIDDLE for number in (1, 2))
    address = np.array([[0], [x], [y], [y + 4]], np.int64)
    active = np.array([[False, False], [False, False], [False, True], [True, True]])
    (found,) = given.loaded(address, active, 4, 1, signed=True)
    assert found[active.any(axis=1)].tolist() == [[7], [8]]
    assert given.loaded(address, np.full((1, 2), fill_value=True), 4, 1, signed=True) == [None]


@given(
    width=st.sampled_from([1, 2, 4, 8]),
    first=st.integers(0, 999),
    signed=st.booleans(),
    assumed=st.booleans(),
)
def test_loads_find_the_bytes_of_a_tensor(
    width: int, first: int, *, signed: bool, assumed: bool
) -> None:
    """A load finds the bytes of known or assumed elements, sign-extended, whatever its width is."""
    limit = min(1 << 8 * width - 1, 10**17)
    numbers = RandomNumbers(-limit, limit - 1)
    known = elements(numbers, np.arange(1024))
    held, at = known.astype(np.dtype(f"i{width}")).tobytes(), 8 * (first // 8)
    values = {"x": numbers if assumed else known.tolist()}
    tensor = Passed(["x"], {"x": Pointer(f"int{8 * width}", 1 << 20)}, values, {0: (0, 8)})
    address = np.full((1, 1), (1 << TENSOR_BITS) + MIDDLE + at, np.int64)
    for size, registers in ((1, 1), (2, 1), (4, 1), (8, 2), (16, 4)):
        loaded = tensor.loaded(address, address > 0, size, registers, signed=signed)
        found = b"".join(int(one[0, 0]).to_bytes(4, "little") for one in loaded)
        expected = held[at : at + size]
        sign = b"\xff" if signed and expected[-1] >> 7 else b"\0"
        assert found == expected + sign * (len(found) - size)
    tensor.forget("x")
    assert tensor.loaded(address, address > 0, 4, 1, signed=signed) == [None]
    assert not tensor.has_values
