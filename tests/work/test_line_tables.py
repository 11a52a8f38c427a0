"""The source lines of instructions, against nvdisasm and the PTX."""

import re
from pathlib import PurePath

from disassembled import nvdisasm, public_kernels
from first_texts import compiled_texts
from launched_kernels import layer_norm

from occupancy_lab.arguments import Pointer
from occupancy_lab.compiling.cubin import EM_CUDA, read_elf
from occupancy_lab.compiling.sass import BYTES
from occupancy_lab.errors import BinaryError
from occupancy_lab.launch import Launch
from occupancy_lab.work.counts import Place
from occupancy_lab.work.line_tables import ptx_places, read_lines

PTX = """
	.file	1 "/home/me" "kernel.py"
	.file	2 "/lib/standard.py"
	.loc	1 7 0
	mov.u32 %r1, 0;
	.loc	2 43 17  // standard.py:43:17 @[ kernel.py:9:2 @[ kernel.py:30:4 ] ]
	mov.u32 %r2, 0;
	.loc	1 0 17  // kernel.py:0:17
	mov.u32 %r3, 0;
"""


def test_lines_are_those_of_nvdisasm() -> None:
    """Each instruction has the file and line that nvdisasm prints."""
    for kernel, cubin in public_kernels().items():
        found = read_lines(read_elf(cubin, EM_CUDA, "a cubin"), kernel, None)
        text = nvdisasm(cubin, "--print-line-info")
        place, seen = None, 0
        for line in text.partition(f"\n.text.{kernel}:\n")[2].splitlines():
            if (match := re.search(r'//## File "([^"]*)", line (\d+)', line)) is not None:
                place = match[1], int(match[2])
            elif (match := re.match(r"\s+/\*([0-9a-f]{4,})\*/", line)) is not None:
                one = found[int(match[1], 16) // BYTES]
                assert one is not None
                assert (one.file, one.line) == place
                seen += 1
        assert seen == len(found) > 0


def test_the_ptx_says_columns_and_calls() -> None:
    """The PTX adds columns and calls without changing the lines."""
    x = Pointer("float32", 1 << 20)
    launch = Launch((x, x, x, x, x, x, 1000, 1000, 1e-5), {"BLOCK_SIZE": 256})
    texts = compiled_texts(layer_norm, launch)
    elf = read_elf(texts.cubin or b"", EM_CUDA, "a cubin")
    without = read_lines(elf, texts.name, None)
    found = read_lines(elf, texts.name, texts.ptx)
    columns, calls = 0, set()
    for one, other in zip(found, without, strict=True):
        assert one is not None
        assert other is not None
        assert (PurePath(one.file).name, one.line) == (PurePath(other.file).name, other.line)
        columns += one.column > 0
        calls |= {PurePath(call.file).name for call in one.called_from}
    assert columns > len(found) / 2
    assert "launched_kernels.py" in calls


def test_a_line_of_the_ptx_is_reached_through_calls() -> None:
    """The comment behind a .loc gives the calls, innermost first; line 0 is not a line."""
    places = ptx_places(PTX)
    calls = (Place("/home/me/kernel.py", 9, 2), Place("/home/me/kernel.py", 30, 4))
    assert places[5] == Place("/home/me/kernel.py", 7)
    assert places[7] == Place("/lib/standard.py", 43, 17, calls)
    assert places[9] is None


def test_a_damaged_line_table_is_refused() -> None:
    """A damaged line table is read as far as possible or raises an error."""
    kernel, cubin = next(iter(public_kernels().items()))
    table = read_elf(cubin, EM_CUDA, "a cubin").section(".debug_line")
    assert table is not None
    start = cubin.index(bytes(table.content))
    refused = 0
    for place in range(start, start + len(table.content), 29):
        damaged = cubin[:place] + b"\xff" * 8 + cubin[place + 8 :]
        try:
            read_lines(read_elf(damaged, EM_CUDA, "a cubin"), kernel, None)
        except BinaryError:
            refused += 1
    assert refused > 0
