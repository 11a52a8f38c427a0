"""The softmax of rows of any length is exact on long ones too."""

from collections.abc import Callable

from matrices import random_matrix
from torch import Tensor

from occupancy_lab.kernels.softmax_loop import KERNEL
from occupancy_lab.values import Config


def test_a_long_row_is_as_exact_as_torch(launch: Callable[..., Tensor]) -> None:
    """On a row of 300,000 the error against float64 is no larger than twice torch's."""
    x = random_matrix(1, 300_000)
    expected = x.double().softmax(1)

    def error(y: Tensor) -> float:
        return float((y.double() - expected).norm() / expected.norm())

    assert error(launch(KERNEL.run, x, Config(4096, 8, 1), 1)) <= 2 * error(x.softmax(1))
