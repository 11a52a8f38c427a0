"""Measures in separate processes, one per GPU, so that a lost GPU is lost to one launch only."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from occupancy_lab.compiling import Store, inductor, store_directory
from occupancy_lab.errors import quoted, refuse
from occupancy_lab.gpus import Gpu, PresentGpu, present_gpus
from occupancy_lab.values import Config, Measurement, Problem
from occupancy_lab.workers.child import Child
from occupancy_lab.workers.messages import from_line, to_line

DEFAULT_RUNS = 30
"""Timed launches. For half of the launches recorded on an H200, us_low to us_high is at most 3.6%
of the median, so the median of 30 is known to 1.25 x 3.6% / 2.56 / sqrt(30) = 0.3%."""
TIMEOUT = 600.0
"""Seconds after which a batch is given up as endless: a launch takes milliseconds, but the first
launch of a shape also waits for Triton and torch.compile."""
ALL = "all"
"""All GPUs of the first one's kind."""
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class TimedLaunch:
    """A launch on a problem: of a kernel's configuration, or of a provider."""

    kernel: str
    """The kernel's name for `load_kernel`, or the provider's name."""
    config: Config | None = None
    """None for a provider."""
    num_programs: int = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """Launches that a measuring process times side by side on one problem."""

    problem: Problem
    launches: tuple[TimedLaunch, ...]
    runs: int = DEFAULT_RUNS


def chosen_devices(
    purpose: str, asked: str | Sequence[int] | None = None, *, among: Sequence[Gpu] | None = None
) -> tuple[Gpu, tuple[str | None, ...]]:
    """Return the GPU of this machine, and the name of each device of its kind for MeasuringProcess.

    *asked* is "all", or numbers of GPUs as a list or with commas; None means the first GPU.

    Raises InputError, naming the *purpose*, if there is no GPU, if torch cannot use it, if the GPUs
    asked for are missing or of different kinds, or if they are not *among* the required ones.
    """
    import torch

    here = present_gpus()
    if not here:
        refuse(f"{purpose} needs a GPU of this machine; none was found")
    if not torch.cuda.is_available():
        refuse(
            f"{purpose} needs a torch that can use {here[0].name}; the one installed,"
            f" {torch.__version__}, cannot"
        )
    if asked is None:
        chosen = [here[0]]
    elif asked == ALL:
        chosen = [present for present in here if present.gpu.key == here[0].gpu.key]
    else:
        chosen = _numbered(here, asked)
    names = {present.gpu.key: present.name for present in chosen}
    if len(names) > 1:
        refuse(f"{' and '.join(names.values())} differ: {purpose} takes GPUs of one kind")
    gpu = chosen[0].gpu
    if among is not None and gpu.key not in {one.key for one in among}:
        refuse_elsewhere(purpose, gpu, among)
    visible: Iterable[str | None] = map(_visible_name, chosen)
    return gpu, (None,) if asked is None else tuple(dict.fromkeys(visible))


def refuse_elsewhere(purpose: str, here: Gpu, asked: Sequence[Gpu]) -> NoReturn:
    """Raise InputError: *purpose* is for the GPU *here*, which is not one of those *asked* for."""
    titles = " and ".join(gpu.title for gpu in asked)
    refuse(f"{purpose} needs the GPU here, which is {here.title}; asked for is {titles}")


def gpu_to_measure(gpus: Sequence[Gpu]) -> Gpu:
    """Return this machine's first GPU; raise InputError if unusable or not among *gpus*."""
    here, _ = chosen_devices("--measure")
    if (here.key, here.multiprocessors) not in {(gpu.key, gpu.multiprocessors) for gpu in gpus}:
        refuse_elsewhere("--measure", here, gpus)
    return here


def device_names() -> tuple[str, ...]:
    """Return every GPU of this machine by its name and UUID."""
    return tuple(f"{present.name} {present.uuid}" for present in present_gpus())


def _numbered(here: Sequence[PresentGpu], asked: str | Sequence[int]) -> list[PresentGpu]:
    """Return the GPUs with the numbers *asked*, all of the first one's vendor."""
    numbers = asked.split(",") if isinstance(asked, str) else [str(number) for number in asked]
    if not numbers or not all(number.strip().isdecimal() for number in numbers):
        refuse(
            f"{quoted(asked)} names no GPUs; give all, or their numbers with commas, such as 0,1"
        )
    known = {present.index: present for present in here if present.gpu.vendor == here[0].gpu.vendor}
    for number in map(int, numbers):
        if number not in known:
            refuse(f"there is no GPU {number} here; there is {', '.join(map(str, known))}")
    return [known[int(number)] for number in numbers]


def _visible_name(present: PresentGpu) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES for a process that sees only this GPU.

    If it is already set, the driver numbers only the listed devices; KFD numbers all.
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not listed or present.gpu.vendor != "NVIDIA":
        return str(present.index)
    return listed.split(",")[present.index].strip()


def measuring_child(module: str, device: str | None = None) -> Child:
    """Return a process for *module* that sees only the GPU *device*; None means all."""
    environment = {} if device is None else dict.fromkeys(VISIBLE, device)
    # By default torch.compile's cache is in the temporary folder, which a child removes.
    environment[inductor.CACHE_VARIABLE] = inductor.cache_directory()
    # What was compiled for the launches is there.
    if (compiled := Store(store_directory()).triton_cache) is not None:
        environment["TRITON_CACHE_DIR"] = str(compiled)
    return Child(module, environment=environment)


class MeasuringProcess:
    """A measuring process on one GPU, started when needed and restarted after it died."""

    def __init__(self, device: str | None = None, timeout: float | None = TIMEOUT) -> None:
        """Measure on the GPU *device*, as in CUDA_VISIBLE_DEVICES; None means the first."""
        self._child = measuring_child("occupancy_lab.measuring.measure", device)
        self._timeout = timeout

    def measure(self, batch: Batch) -> list[Measurement]:
        """Return a measurement for each launch of *batch*, in order.

        If the process dies, each launch gets its own process, so that only the launch that is the
        cause has no time.
        """
        count = len(batch.launches)
        line = self._child.ask(to_line(batch), self._timeout)
        if line:
            return self._measurements(line, count)
        if self._child.closed:
            return [Measurement("launch failed", None, "interrupted")] * count
        if count == 1:
            died = f"the process died: {self._child.last_words}"
            reason = died if line == "" else f"no answer within {self._timeout:g} s"
            return [Measurement("device lost", None, reason)]
        alone = (self.measure(replace(batch, launches=(launch,))) for launch in batch.launches)
        return list(itertools.chain.from_iterable(alone))

    def _measurements(self, line: str, count: int) -> list[Measurement]:
        """Return the measurements in an answer; end a process with a lost GPU or no answer."""
        with contextlib.suppress(ValueError):
            found: tuple[Measurement, ...] = from_line(tuple[Measurement, ...], line)
            if len(found) == count:
                if any(measurement.status == "device lost" for measurement in found):
                    self._child.end()
                return list(found)
        self._child.end()
        reason = f"the measuring process sent an invalid answer: {line.strip()[:40]!r}"
        return [Measurement("launch failed", None, reason)] * count

    def close(self) -> None:
        """End the process for good."""
        self._child.close()
