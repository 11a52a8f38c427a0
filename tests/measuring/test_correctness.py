"""How far a result is from the right one, with torch in float64 as the judge."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.measuring import correctness
from occupancy_lab.measuring.correctness import operands, poisoned, relative_error, tolerance


def matrix(rows: int, cols: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return normally distributed elements, the same each time."""
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(rows)).to(dtype)


def double(x: torch.Tensor) -> torch.Tensor:
    """Return twice *x*."""
    return 2 * x


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(-0.5, 0.5))
def test_error_is_the_part_that_is_wrong(rows: int, cols: int, wrong: float) -> None:
    """A result that is a part too large has that part as its error."""
    x = matrix(rows, cols).double()
    assert relative_error(2 * x * (1 + wrong), double, [x]) == pytest.approx(abs(wrong), abs=1e-12)


def test_reference_has_float64() -> None:
    """The reference is run on float64, whatever the matrix is of."""
    seen = []

    def reference(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.dtype)
        return x.softmax(dim=1)

    x = matrix(9, 100, torch.bfloat16)
    error = relative_error(x.softmax(dim=1), reference, [x])
    assert seen == [torch.float64]
    assert 1e-5 < error < tolerance("bfloat16")


def test_reference_has_every_operand() -> None:
    """A reference of two matrices is given both."""
    x, y = matrix(3, 5), matrix(4, 5)[:3]
    assert relative_error(x + y, torch.add, [x, y]) < 1e-6
    assert relative_error(x - y, torch.add, [x, y]) > 0.1


def test_large_matrices_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared a few rows at a time, a matrix has the same error, and no row is left out."""
    x = matrix(50, 8)
    output = double(x)
    output[-1] += 1
    whole = relative_error(output, double, [x])
    monkeypatch.setattr(correctness, "ROWS_AT_ONCE_BYTES", 3 * 8 * 8)
    assert relative_error(output, double, [x]) == pytest.approx(whole)
    assert whole > 0


@pytest.mark.parametrize(("row", "col"), [(0, 0), (6, 256)])
def test_unwritten_element_shows(row: int, col: int) -> None:
    """One element that was never written makes the error NaN, which no tolerance allows."""
    x = matrix(7, 257)
    with poisoned():
        output = torch.empty_like(x)
    assert output.isnan().all()
    written = torch.ones_like(x, dtype=torch.bool)
    written[row, col] = False
    output[written] = double(x)[written]
    assert math.isnan(relative_error(output, double, [x]))


def test_poison_ends() -> None:
    """After the poisoned run torch is as deterministic as it was before."""
    before = torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ZeroDivisionError), poisoned():
        1 / 0  # noqa: B018 - it is there to raise
    assert torch.are_deterministic_algorithms_enabled() == before


def test_zeros_are_right_only_as_zeros() -> None:
    """Where all should be 0, 0 has no error and anything else one without bounds."""
    zeros = torch.zeros(2, 3)
    assert relative_error(zeros, double, [zeros]) == 0.0
    assert relative_error(zeros + 1e-9, double, [zeros]) == math.inf


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tolerance_allows_rounding_alone(dtype: str) -> None:
    """The right result, rounded to its dtype, is within the tolerance, and one 1% off is not."""
    x = matrix(50, 781)
    right = x.double().softmax(dim=1)
    kind = getattr(torch, dtype)
    error = relative_error(right.to(kind), lambda x: x.softmax(dim=1), [x])
    assert error <= tolerance(dtype) / 2
    wrong = relative_error((right * 1.02).to(kind), lambda x: x.softmax(dim=1), [x])
    assert wrong > tolerance(dtype)


@pytest.mark.gpu
def test_operands_are_the_same_every_time() -> None:
    """Operands are as large as asked for, differ from each other, and come again alike."""
    first, second = operands(33, 781, "float16", 2)
    assert first.shape == second.shape == (33, 781)
    assert first.dtype == torch.float16
    assert first.is_cuda
    assert not torch.equal(first, second)
    assert torch.equal(first, operands(33, 781, "float16", 1)[0])
