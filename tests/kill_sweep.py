"""Kills a sweep at random moments, again and again: what was finished stays, and nothing else does.

`python tests/kill_sweep.py` measures on the GPU of this machine, `--faked` on one that is said to
be here. Each run goes on from the store and the journal of the one that was killed before it, until
one comes to its end; then the next begins with nothing. A line a kill, and a summary; exit 1 where
a row is lost, or differs from those of a run that nobody disturbed.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from occupancy_lab.measuring.process import Batch
from occupancy_lab.table.columns import SWEEP_COLUMNS
from occupancy_lab.values import Measurement
from occupancy_lab.workers.child import from_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Row: TypeAlias = dict[str, str]
Name: TypeAlias = tuple[str, ...]

TOOL = (sys.executable, "-m", "occupancy_lab")
FAKED = (sys.executable, str(Path(__file__).with_name("faked.py")))
SMALL = ("--cols", "100", "--gpu", "sm_90,gfx942", "--num-warps", "1,2", "--num-stages", "1")
MEASURED = (
    *("--measure", "--cols", "256,512,781,1000,2048,3000", "--num-warps", "4,8"),
    *("--num-stages", "1,2", "--runs", "4000"),
)
"""Timed so often that much of a run is measuring: a GPU has 30 launches in a few ms."""
NAMES = ("gpu", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages")
"""The columns that name a row."""


class LostError(Exception):
    """A row that was finished and is not there any more, or is another."""


@dataclass
class Tally:
    """What came of the kills."""

    kills: int = 0
    ends: int = 0
    """Runs that came to their end."""
    kept: int = 0
    """Measured rows that were finished before a kill, and the same in the end."""
    killed_at: list[float] = field(default_factory=list)


class Place:
    """A store, a Triton cache and an export that runs share."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.export = folder / "rows.csv"
        self._store = folder / "store"
        self.environment = os.environ | {
            "OCCUPANCY_LAB_CACHE_DIR": str(self._store),
            "TRITON_CACHE_DIR": str(folder / "triton"),
        }

    def rows(self) -> dict[Name, Row]:
        """Return the exported rows by what names them."""
        with self.export.open(encoding="utf-8", newline="") as file:
            return {tuple(row[name] for name in NAMES): row for row in csv.DictReader(file)}

    def compiled(self) -> int:
        """Return how many compiles the store has."""
        return len(list(self._store.glob("resources/*/*.json")))

    def measured(self) -> dict[Name, str]:
        """Return the times in the journal of a run that was killed, as an export has them."""
        found = {}
        for path in (self._store / "unfinished").glob("*.jsonl"):
            for line in path.read_text(encoding="utf-8").split("\n"):
                if line.endswith("}"):
                    found.update(_times(json.loads(line)))
        return found


def _times(entry: dict[str, str]) -> Iterator[tuple[Name, str]]:
    batch: Batch = from_line(Batch, entry["request"])
    problem = batch.problem
    for launch, one in zip(
        batch.launches, from_line(tuple[Measurement, ...], entry["measurements"]), strict=True
    ):
        if launch.config is not None:
            numbers = (launch.config.block_size, launch.config.num_warps, launch.config.num_stages)
            shape = (str(problem.rows), str(problem.cols), problem.dtype)
            yield (*shape, *map(str, numbers)), repr(one.us)


def kill_again_and_again(
    commands: Sequence[Sequence[str]],
    folder: Path,
    kills: int,
    seed: int,
    say: Callable[[str], None] = print,
) -> Tally:
    """Kill runs of *commands*, which take turns, *kills* times in all.

    Raises LostError where a row is lost or differs from an undisturbed run's.
    """
    folder.mkdir(exist_ok=True)
    chance, tally = random.Random(seed), Tally()  # noqa: S311 - moments to kill at
    calms: dict[int, Calm] = {}
    for turn in itertools.cycle(range(len(commands))):
        if tally.kills == kills:
            return tally
        command = commands[turn]
        calm = calms.get(turn) or Calm.of(command, folder / f"calm-{turn}")
        calms[turn] = calm
        place = Place(folder / str(tally.ends))
        finished: dict[Name, str] = {}
        while not _run(command, place, chance.uniform(0.5, 1) * calm.span(place), tally, kills):
            left = place.measured()
            if finished and not left:
                # The run had just ended, which is when its journal goes: the export has all rows.
                break
            finished |= left
            say(
                f"kill {tally.kills}: after {tally.killed_at[-1]:.1f} s, with {place.compiled()}"
                f" compiled and {len(finished)} measured"
            )
        _check(place, calm.rows, finished, measured="--measure" in command)
        tally.ends += 1
        tally.kept += len(finished)
    raise AssertionError


@dataclass(frozen=True)
class Calm:
    """Two runs that nobody disturbed, the second with everything compiled."""

    rows: dict[Name, Row]
    compiled: int
    first_s: float
    second_s: float

    @classmethod
    def of(cls, command: Sequence[str], folder: Path) -> Calm:
        """Run *command* twice in *folder*."""
        place, times = Place(folder), [time.monotonic()]
        for _ in range(2):
            _finish(_start(command, place))
            times.append(time.monotonic())
        return cls(place.rows(), place.compiled(), times[1] - times[0], times[2] - times[1])

    def span(self, place: Place) -> float:
        """Return the seconds that a run in *place* may take."""
        return self.second_s if place.compiled() == self.compiled else self.first_s


def _start(command: Sequence[str], place: Place) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*command, "--quiet", "--csv", "--export-csv", str(place.export)],
        env=place.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def _finish(process: subprocess.Popen[bytes]) -> None:
    _, complaints = process.communicate(timeout=600)
    if process.returncode:
        msg = f"exit {process.returncode}: {complaints.decode()}"
        raise LostError(msg)


def _run(command: Sequence[str], place: Place, moment: float, tally: Tally, kills: int) -> bool:
    """Return whether the run came to its end before it was killed at *moment*, in s."""
    process = _start(command, place)
    try:
        process.wait(None if tally.kills == kills else moment)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        tally.kills += 1
        tally.killed_at.append(moment)
        return False
    _finish(process)
    return True


def _check(
    place: Place, expected: dict[Name, Row], finished: dict[Name, str], *, measured: bool
) -> None:
    rows = place.rows()
    if rows.keys() != expected.keys():
        msg = f"there are {len(rows)} rows, not {len(expected)}"
        raise LostError(msg)
    for name, row in rows.items():
        compiled = [column for column in SWEEP_COLUMNS if column != "lost_us"]  # of the time
        differing = [column for column in compiled if row[column] != expected[name][column]]
        if differing:
            msg = f"{name} differs in {', '.join(differing)}"
            raise LostError(msg)
        before = finished.get(name[1:])
        if measured and (row["measured"] != "measured" or before not in {None, row["us"]}):
            msg = f"{name} was {before} us and is {row['us']}, {row['measured']}"
            raise LostError(msg)
    if place.measured():
        msg = "the journal of a run that came to its end is still there"
        raise LostError(msg)


def main() -> int:
    """Kill as the command line says, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--faked", action="store_true", help="no GPU: its launches are made up")
    asked = parser.parse_args()
    tool = FAKED if asked.faked else TOOL
    commands = [
        (*tool, "sweep", *MEASURED, "--kernel", kernel) for kernel in ("softmax", "softmax_row")
    ]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            tally = kill_again_and_again(commands, Path(folder, "runs"), asked.kills, asked.seed)
        except LostError as error:
            print(f"lost: {error}; --seed {asked.seed}")
            return 1
    print(
        f"{tally.kills} kills, {tally.ends} runs to the end in {time.monotonic() - start:.0f} s:"
        f" {tally.kept} rows that were measured before a kill are the same, every row is measured,"
        " and what was compiled is an undisturbed run's"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
