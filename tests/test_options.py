"""The table of compiler options, compared with Triton's own backends."""

import pytest

from occupancy_lab.compiling.offline import default_options
from occupancy_lab.gpus import find_gpu
from occupancy_lab.options import OPTIONS, Option

DEFAULTS = [default_options(find_gpu(name).target) for name in ("h200", "mi300x")]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_is_an_option_of_triton(option: Option) -> None:
    """A backend has the option, and its default if the table names one."""
    found = [known[option.name] for known in DEFAULTS if option.name in known]
    assert found
    assert not option.usual or set(found) <= set(option.usual)
