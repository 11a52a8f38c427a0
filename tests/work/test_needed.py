"""What stored values derive from."""

from typing import Any

import launched_kernels
import pytest

from occupancy_lab import dry_run, tensor

X = tensor((8192, 2048), "float16")
PARTS = tensor((128, 2048), "float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "reduced"),
    [
        ("sum_in_parts", (X, PARTS, 8192, 2048, 64), ("parts_ptr",)),
        ("center_groups", (X, X, 8192, 2048, 64), ("y_ptr",)),
        ("center_rows_in_turns", (X, X, 8192, 2048), ()),
        ("scale_in_turns", (X, X, 8192, 2048), ()),
        ("sum_to_one", (X, PARTS, 8192 * 2048), ()),
    ],
)
def test_reduced_tensors(name: str, arguments: Any, reduced: Any) -> None:
    """Sums and means over all passes are reduced; row results in a loop and additions are not."""
    run = dry_run(getattr(launched_kernels, name), "h100")[(128,)](*arguments, BLOCK=2048)
    (record,) = run.records
    assert record.counts is not None
    assert record.counts.reduced == reduced


@pytest.mark.slow
def test_divisors_of_loaded_values_are_those_of_the_layout() -> None:
    """The length of a page divides slots from memory; the size of a block does not."""
    kernel = dry_run(launched_kernels.store_pages, "h100")
    slots = tensor((8192,), "int64")
    (record,) = kernel[(64,)](X, slots, X, HEAD=128, PAGE=16, BLOCK=64).records
    assert record.counts is not None
    assert record.counts.divisors == (16,)
