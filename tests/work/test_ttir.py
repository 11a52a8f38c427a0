"""TTIR is read into operations with places, and other texts are refused."""

import contextlib

import counted_kernels
import pytest
from counted_kernels import helper, kernel
from first_texts import first_text
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.arguments import Pointer
from occupancy_lab.errors import TtirError
from occupancy_lab.work.module import operations_of
from occupancy_lab.work.ttir import read_ttir
from occupancy_lab.work.walk import count

ARGUMENTS = {"x": Pointer("float32", 4096), "y": Pointer("float32", 4096), "n": 1000, "B": 64}
FIRST = kernel.fn.__code__.co_firstlineno


@pytest.fixture(scope="module")
def text() -> str:
    """Return the TTIR of the kernel."""
    return first_text(kernel, ARGUMENTS)


def test_the_kernel_and_its_arguments_have_their_names(text: str) -> None:
    """Parameters have the names of the source, and pointers have the types that they point to."""
    found = read_ttir(text).kernel
    assert found.name == "kernel"
    assert [one.name for one in found.arguments] == ["x", "y", "n"]
    assert [one.type.element for one in found.arguments] == ["ptr", "ptr", "i32"]
    assert found.arguments[0].type.pointee is not None
    assert found.arguments[0].type.pointee.dtype == "fp32"


def test_an_operation_knows_its_line_and_who_called(text: str) -> None:
    """An operation in a helper function has the helper's line and the line of the call."""
    module = read_ttir(text)
    operations = {one.name: one for one in operations_of(module.kernel.body)}
    load = module.place(operations["tt.load"])
    assert load.file == counted_kernels.__file__
    assert load.outermost.line == FIRST + 4
    assert load.line == helper.fn.__code__.co_firstlineno + 2
    assert module.place(operations["tt.store"]).line == FIRST + 4
    assert module.place(operations["scf.for"]).line == FIRST + 3


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    """A text that is no TTIR raises TtirError."""
    with pytest.raises(TtirError):
        read_ttir(text)


@given(st.data())
def test_a_damaged_text_is_read_or_refused(text: str, data: st.DataObject) -> None:
    """A damaged text is counted or raises TtirError."""
    lines = text.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(lines) - 1))
        line = lines[place]
        lines[place : place + 1] = data.draw(
            st.sampled_from(
                [
                    [],
                    [line, line],
                    [line[: len(line) // 2]],
                    [line.replace(":", "")],
                    [line.replace("64", "99999999999999999999")],
                    [line.replace("i32", "i1")],
                    [line.replace("tensor<64x", "tensor<2x3x")],
                ]
            )
        )
    with contextlib.suppress(TtirError):
        counts = count(read_ttir("\n".join(lines)), ARGUMENTS, (2,))
        assert counts.programs == 2


def test_what_is_too_large_or_too_deep_is_refused() -> None:
    """Texts that are too large or too deep, or TTGIR, are refused."""
    with pytest.raises(TtirError, match="characters"):
        read_ttir(" " * (32 * 2**20 + 1))
    deep = "module {\ntt.func public @f() {\n" + "scf.execute_region {\n" * 100
    with pytest.raises(TtirError, match="nests"):
        read_ttir(deep)
    with pytest.raises(TtirError, match="TTGIR"):
        read_ttir('module attributes {"ttg.num-warps" = 4 : i32} {\n}')
