"""Compares predicted with recorded times of launches.

`python reports/compare_time.py --gpu h100` predicts every launch of the recording again, writes a
row for each to reports/data/times-h100.csv and prints the errors; `--summary` prints those of the
existing file.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

from compare_work import calculation_of, counts_of, executed_of, memory_of, resources_of
from record_files import DATA, rows_of, table_bytes
from recorded_work import RecordedLaunch, recorded_launches

from occupancy_lab.gpus import find_gpu
from occupancy_lab.prediction import RATIO_ERROR
from occupancy_lab.throughput.demand import Doing
from occupancy_lab.throughput.launch_time import predict_launch
from occupancy_lab.work.memory import repeated
from occupancy_lab.work.pipes import TENSOR
from occupancy_lab.work.speed_of_light import speed_of_light

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from occupancy_lab.work.execution import Executed
    from occupancy_lab.work.memory import Memory

LEAST_US = 10.0
"""Shorter launches take mostly launch overhead."""
RECORDED_US = 0.5
"""By how much an empty launch took longer in the recordings (3.6 us on the H100, 3.25 on the H200)
than in the lab's own timer (3.1 and 2.7 us): the recordings flush the cache before each launch, and
the timer launches in bursts."""
CONFIGURATION = re.compile(r"\((\d+, ){3,}\d+\)$")
"""The block sizes, warps and stages behind the name of a problem."""
LEAST_CONFIGURATIONS, FIRST = 3, 5


@dataclass(frozen=True, slots=True)
class Compared:
    """A launch with its predicted and its recorded time, both with an empty L2 cache.

    Times that begin with warm were taken right after the same launch. Times that begin with
    profiled are the kernel's alone, as Nsight Compute reports them.
    """

    id: str
    use: str
    """tuning, held out or fresh."""
    kernel: str
    problem: str
    kind: str
    """memory, dots, matmul or attention."""
    unknown: bool
    us: float
    predicted_us: float | None
    low_us: float | None
    high_us: float | None
    bound: str | None
    busiest: str | None
    """The unit that works longest in the kernel itself, as a profiler sees it."""
    counted_us: float | None
    """The prediction without replaying the binary, as if it could not be followed."""
    counted_low_us: float | None
    counted_high_us: float | None
    roofline_us: float | None
    """The least time of its bytes and FLOPs by the rates of the data sheet."""
    warm_us: float
    warm_predicted_us: float | None
    warm_low_us: float | None
    warm_high_us: float | None
    profiled_us: float | None
    profiled_predicted_us: float | None
    profiled_low_us: float | None
    profiled_high_us: float | None

    @property
    def profiled(self) -> Compared:
        """The launch with its profiled times as its times; it must have been profiled."""
        limits = {"low_us": self.profiled_low_us, "high_us": self.profiled_high_us}
        us = self.profiled_us or math.nan
        return replace(self, us=us, predicted_us=self.profiled_predicted_us, **limits)

    @property
    def warm(self) -> Compared:
        """The launch with its warm times as its times."""
        limits = {"low_us": self.warm_low_us, "high_us": self.warm_high_us}
        return replace(self, us=self.warm_us, predicted_us=self.warm_predicted_us, **limits)

    @property
    def roofline(self) -> Compared:
        """The launch with the roofline's time as its prediction."""
        return replace(self, predicted_us=self.roofline_us, low_us=None, high_us=None)

    @property
    def counted(self) -> Compared:
        """The launch with the prediction that does not follow the binary."""
        limits = (self.counted_low_us, self.counted_high_us)
        return replace(self, predicted_us=self.counted_us, low_us=limits[0], high_us=limits[1])

    @property
    def error(self) -> float | None:
        """The error of the prediction relative to the measured time."""
        return None if self.predicted_us is None else self.predicted_us / self.us - 1

    @property
    def is_inside(self) -> bool:
        """Whether the measured time is in the predicted range."""
        if self.low_us is None or self.high_us is None:
            return False
        return self.low_us <= self.us <= self.high_us


def compared(launch: RecordedLaunch) -> Compared | None:
    """Return a launch with its times, or None if it was not timed."""
    us, warm_us = launch.number("cold_us"), launch.number("warm_us")
    if us is None or warm_us is None:
        return None
    gpu = find_gpu(launch.gpu)
    named = (launch.id, launch.use, launch.kernel, CONFIGURATION.sub("", launch.trial).strip())
    counts, executed = counts_of(launch), executed_of(launch)
    dots = bool(counts.dot_flops) or bool(
        executed is not None and executed.program and executed.program.pipes.get(TENSOR)
    )
    unknown = bool(counts.unknowns) or (executed is not None and bool(executed.unknowns))
    resources = resources_of(launch)
    fit = calculation_of(launch).occupancy.programs_per_multiprocessor
    stages = int(launch.row["num_stages"] or 1)

    cold = memory_of(launch)

    def times(
        executed: Executed | None, memory: Memory = cold, *, in_program: bool = False
    ) -> tuple[tuple[float | None, ...], tuple[str | None, str | None]]:
        asked = (counts, executed, memory, resources, fit, gpu)
        found = predict_launch(Doing(*asked, num_stages=stages, in_program=in_program))
        if found is None:
            return (None, None, None), (None, None)
        late = 0.0 if in_program else RECORDED_US
        known = (found.us + late, (found.low_us or 0.0) + late, (found.high_us or 0.0) + late)
        unit = None if found.busiest is None else found.busiest.name
        return tuple(round(one, 3) for one in known), (found.bound, unit)

    kind = _kind(launch.kernel) if dots else "memory"
    predicted, (bound, _) = times(executed)
    own, (_, busiest) = times(executed, in_program=True)
    warm, _ = times(executed, repeated(cold, counts, gpu))
    light = speed_of_light(counts, cold, gpu).us
    least = None if light is None else round(light, 3)
    found = (us, *predicted, bound, busiest, *times(None)[0], least, warm_us, *warm)
    ns = launch.number("gpu__time_duration.sum")
    profiled = (None, None, None, None) if ns is None else (ns / 1000, *own)
    return Compared(*named, kind, unknown, *found, *profiled)


def _kind(kernel: str) -> str:
    if "attn" in kernel or "attention" in kernel:
        return "attention"
    return "matmul" if "matmul" in kernel or "mm" in kernel else "dots"


def read(gpu: str = "h100") -> list[Compared]:
    """Return the rows of a GPU's file."""
    return [
        Compared(
            **{
                name: None if cell == "" else cell
                for name, cell in row.items()
                if name != "unknown"
            },
            unknown=row["unknown"] == "True",
        )
        for row in rows_of(DATA / f"times-{gpu}.csv")
    ]


def write(gpu: str, rows: Iterable[Compared]) -> None:
    """Write the rows to a GPU's file."""
    columns = [field.name for field in fields(Compared)]
    (DATA / f"times-{gpu}.csv").write_bytes(table_bytes(columns, map(asdict, rows)))


@dataclass(frozen=True, slots=True)
class Errors:
    """The accuracy of the predictions of some launches."""

    launches: int
    covered: float
    """The share of launches that have a prediction."""
    median: float
    p90: float
    """The 90th percentile of the errors."""
    bias: float
    inside: float
    """The share of predicted launches whose time is in the range."""

    def __str__(self) -> str:
        return (
            f"{self.launches:4} launches, median {self.median:.1%}, 90th percentile"
            f" {self.p90:.1%}, bias {self.bias:+.1%}, inside {self.inside:.0%}, covered"
            f" {self.covered:.1%}"
        )


def errors(rows: Iterable[Compared], chosen: Callable[[Compared], bool] = lambda _: True) -> Errors:
    """Return the errors of those of the *chosen* launches that take longer than LEAST_US."""
    some = [one for one in rows if one.us >= LEAST_US and chosen(one)]
    known = [one for one in some if one.error is not None]
    sizes = sorted(abs(one.error or 0.0) for one in known)
    return Errors(
        launches=len(some),
        covered=len(known) / len(some),
        median=statistics.median(sizes),
        p90=sizes[int(0.9 * (len(sizes) - 1))],
        bias=statistics.median(one.error or 0.0 for one in known),
        inside=sum(one.is_inside for one in known) / len(known),
    )


def with_events(rows: Iterable[Compared]) -> list[Compared]:
    """Return the profiled launches with predictions of the time between two events."""
    return [replace(row, us=row.profiled_us) for row in rows if row.profiled_us is not None]


def _problems(rows: Iterable[Compared]) -> list[list[Compared]]:
    """Return the configurations with a predicted time of each problem of a kernel."""
    found: dict[tuple[str, str], list[Compared]] = defaultdict(list)
    for one in rows:
        if one.predicted_us is not None:
            found[one.kernel, one.problem].append(one)
    return list(found.values())


def first_choices(rows: Iterable[Compared]) -> list[tuple[float, float]]:
    """Return the loss of the first choice of each problem, and of the best of the first five.

    A problem of a kernel counts if it has three configurations or more. The loss is relative to the
    time of its fastest configuration.
    """
    found = []
    for some in _problems(rows):
        if len(some) < LEAST_CONFIGURATIONS:
            continue
        best = min(one.us for one in some)
        ordered = sorted(some, key=lambda one: one.predicted_us or 0.0)
        found.append((ordered[0].us / best - 1, min(one.us for one in ordered[:FIRST]) / best - 1))
    return found


@dataclass(frozen=True, slots=True)
class Advised:
    """A launch, and the configuration of its problem that is predicted to be the fastest."""

    launch: Compared
    advice: Compared

    @property
    def change(self) -> float:
        """The relative change of the time by the advice; negative if it is faster."""
        return self.advice.us / self.launch.us - 1


def advised(rows: Iterable[Compared]) -> list[Advised]:
    """Return the launches for which another configuration is predicted to be noticeably faster."""
    found = []
    for some in _problems(rows):
        best = min(some, key=lambda one: one.predicted_us or 0.0)
        most = (best.predicted_us or 0.0) / (1 - RATIO_ERROR)
        found += [Advised(one, best) for one in some if (one.predicted_us or 0.0) >= most]
    return found


def units(gpu: str) -> list[tuple[str | None, str]]:
    """Return the busiest units of longer launches by the lab and by Nsight Compute."""
    found = {one.id: one for one in read(gpu) if one.us >= LEAST_US}
    return [
        (found[one.id].busiest, unit)
        for one in recorded_launches(gpu)
        if one.id in found and (unit := one.row.get("ncu_busiest"))
    ]


def summary(rows: Sequence[Compared]) -> Iterator[str]:
    """Yield a line for each use and kind."""
    uses = ("tuning", "held out", "fresh")
    for use in uses:
        for kind in (None, "memory", "dots", "matmul", "attention"):
            some = [one for one in rows if one.use == use and kind in {None, one.kind}]
            if sum(one.us >= LEAST_US for one in some) > LEAST_CONFIGURATIONS:
                yield f"{use:8} {kind or 'all':9} {errors(some)}"
        yield f"{use:8} warm {errors(row.warm for row in rows if row.use == use)}"
    yield f"profiled: {errors(row.profiled for row in rows if row.profiled_us is not None)}"
    yield f"as with events: {errors(with_events(rows))}"
    counted = [one.counted for one in rows if one.use != uses[0]]
    for dots in (False, True):
        found = errors(counted, lambda one, dots=dots: (one.kind != "memory") == dots)
        yield f"counted, dots {dots}: {found}"
    choices = first_choices(rows)
    first, five = zip(*choices, strict=True)
    yield (
        f"{len(choices)} problems: the first choice loses {statistics.mean(first):.1%}, at worst"
        f" {max(first):.1%}; the best of five {statistics.mean(five):.1%}"
    )
    for words, some in (
        ("all", rows),
        ("not fitted to", [row for row in rows if row.use != "tuning"]),
    ):
        tried = advised(some)
        yield (
            f"{len(tried)} launches of kernels ({words}) with a configuration that is predicted to"
            f" be faster: it is in {sum(one.change < 0 for one in tried) / len(tried):.1%}, by"
            f" {-statistics.median(one.change for one in tried):.0%} in the median, at worst"
            f" {max(one.change for one in tried):+.1%}, and in its range in"
            f" {sum(one.advice.is_inside for one in tried) / len(tried):.0%}"
        )


def main() -> None:
    """Predict all launches, write the file and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--summary", action="store_true", help="of the file as it is")
    asked = parser.parse_args()
    if not asked.summary:
        launches = recorded_launches(asked.gpu)
        write(asked.gpu, (row for launch in launches if (row := compared(launch)) is not None))
    rows = read(asked.gpu)
    if named := units(asked.gpu):
        agree = sum(own == theirs for own, theirs in named)
        print(f"the busiest unit is Nsight Compute's in {agree} of {len(named)}")
    print(*summary(rows), sep="\n")
    for one in sorted(rows, key=lambda one: -abs(one.error or 0.0))[:20]:
        print(asdict(one))


if __name__ == "__main__":
    main()
