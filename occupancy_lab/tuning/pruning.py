"""A hook for Triton's autotuner: launch only what is predicted to be fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from occupancy_lab.inputs import chosen_config, chosen_gpus, chosen_kernel
from occupancy_lab.sweeping.grid import run_tasks
from occupancy_lab.sweeping.task import Task
from occupancy_lab.tuning.search import TOP
from occupancy_lab.values import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from occupancy_lab.values import Problem


def config_pruner(
    kernel: str, problem_of: Callable[[Mapping[str, Any]], Problem], *, top: int = TOP
) -> Callable[..., list[Any]]:
    """Return what `triton.autotune` takes as `prune_configs_by={"early_config_prune": ...}`.

    It leaves the *top* configurations that are predicted best for *kernel*, a name or the path of
    a Python file with a `KERNEL`, on the problem that *problem_of* makes of the launch's named
    arguments. Where nothing can be predicted, the first *top* stay.
    """

    def prune(configs: Sequence[Any], named_args: Mapping[str, Any], **keywords: Any) -> list[Any]:
        found, problem = chosen_kernel(kernel), problem_of({**named_args, **keywords})
        gpu, _ = chosen_gpus(None)[0]
        own = chosen_config(found, problem, gpu, {}).block_size

        def task(config: Any) -> Task:
            block_size = config.kwargs.get("BLOCK_SIZE", keywords.get("BLOCK_SIZE", own))
            asked = Config(block_size, config.num_warps, config.num_stages)
            return Task(kernel, found, problem, asked, gpu)

        times = run_tasks([task(config) for config in configs])["predicted_us"]
        return [configs[place] for place in times.sort_values(kind="stable").index[:top]]

    return prune
