"""One cell of the grid: a kernel, a problem and a configuration on a GPU."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.errors import DoesNotFitError, InputError
from occupancy_lab.inputs import check_config, check_stages, next_power_of_two
from occupancy_lab.kernel import Grid
from occupancy_lab.values import Config, Failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.values import Problem


@dataclass(frozen=True, slots=True)
class Task:
    """A cell of the grid; `kernel_name` is what `load_kernel` found the kernel by."""

    kernel_name: str
    kernel: Kernel
    problem: Problem
    config: Config
    gpu: Gpu

    def why_not(self) -> Failure | None:
        """Return why it need not be compiled, as it cannot be launched or does not fit; or None."""
        cell = (self.kernel, self.problem, self.config, self.gpu)
        try:
            check_config(*cell)
            check_stages(*cell)
        except InputError as error:
            return Failure("skipped", str(error))
        except DoesNotFitError as error:
            return Failure("does not fit", str(error))
        return None


def expand(  # noqa: PLR0913 - one argument a dimension of the grid
    kernel_name: str,
    kernel: Kernel,
    *,
    problems: Sequence[Problem],
    gpus: Sequence[Gpu],
    block_sizes: Sequence[int],
    num_warps: Sequence[int],
    num_stages: Sequence[int],
) -> Iterator[Task]:
    """Return every cell: GPUs outermost, then problems, BLOCK_SIZE, num_warps and num_stages.

    Without *block_sizes* a kernel that holds a row takes the smallest that does, and one that does
    not takes its default.
    """
    for gpu, problem in itertools.product(gpus, problems):
        sizes = block_sizes or (_own_block_size(kernel, problem, gpu),)
        for knobs in itertools.product(sizes, num_warps, num_stages):
            yield Task(kernel_name, kernel, problem, Config(*knobs), gpu)


def _own_block_size(kernel: Kernel, problem: Problem, gpu: Gpu) -> int:
    if kernel.grid is Grid.BLOCKS:
        return kernel.default_config(problem, gpu.architecture.max_shared).block_size
    return next_power_of_two(problem.cols)
