"""Other models of a matmul's time compared with the lab's."""

import other_models
import pytest
from other_models import Product

LARGE = Product("float16", 4096, 4096, 4096, 128, 256, 64, 8)


def test_the_labs_errors_are_the_smallest() -> None:
    """Half of the lab's errors are below a number that is at most half of any other model's."""
    _, _, *lines = other_models.table()
    halves = [float(line.split("|")[2].strip().removesuffix(" %")) for line in lines]
    assert min(halves[:-1]) > 2 * halves[-1]


def test_a_large_product_takes_what_each_formula_says() -> None:
    """4096 cubed takes 137 GFLOP at 989.4 TFLOP/s, at half of that, and 1.6 GB of the L2 cache."""
    assert other_models.roofline_us(LARGE) == pytest.approx(138.9, rel=0.01)
    storing = 32 / (0.6 * 3352) * 1e3
    tflops = 132 * 4 * 1980 * 512 * 1e-6
    assert other_models.triton_us(LARGE) == pytest.approx(128 / tflops * 1e3 + storing, rel=0.01)
    cache = 512 * 384 * 4096 * 2 / 6.65e6
    assert other_models.xla_us(LARGE) == pytest.approx(cache + 64 * 0.4)
