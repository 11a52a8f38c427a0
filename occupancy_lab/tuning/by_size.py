"""`tune --sizes`: the configuration of a kernel that is predicted to be fastest at each size."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from occupancy_lab.arguments import plain
from occupancy_lab.asked import check_assumed
from occupancy_lab.assumed import Assumption
from occupancy_lab.compiled_records import check_trips, compile_runs, with_counts
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.digest import source_digest
from occupancy_lab.errors import GridError, InputError, after, few_of, quoted, refuse
from occupancy_lab.explaining.dry_run import asked_of, opened, variants_of
from occupancy_lab.explaining.duration import why_no_time
from occupancy_lab.explaining.grids import GRID, doing_less, moved_bytes, reduces_otherwise
from occupancy_lab.explaining.measured import checked_gpu, times_of
from occupancy_lab.explaining.neighbours import predicted_us
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import AskedGpus, Integer, whole_number
from occupancy_lab.kernel import Variant, as_compared, autotuner_of, innermost, without_autotuner
from occupancy_lab.launch import BoundLaunch, constant_text
from occupancy_lab.measuring.process import DEFAULT_RUNS
from occupancy_lab.notation import Parameters, split
from occupancy_lab.options import KNOBS
from occupancy_lab.record import Failed, Record
from occupancy_lab.signature import LaunchLine, Words, read_assumed
from occupancy_lab.tuning.choice import TOP
from occupancy_lab.tuning.sizes import AskedSizes, launches_at, read_sizes, with_values
from occupancy_lab.tuning.tuned_file import LeftOut, Size, TunedFile, TunedLaunch, in_file, text_of

SEARCHED = 60
"""The most configurations that a search compiles for a GPU, besides those that are given."""
Settings = Mapping[str, Any]
TILES = (16, 2**16)
WARPS = (1, 16)
STAGES = (1, 7)
"""The least and the most of each setting that are tried."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration at a size."""

    size: Size
    config: Settings
    variant: Variant


@dataclass(frozen=True, slots=True)
class Timing:
    """How the best predicted configurations at each size are timed."""

    gpu: Gpu
    """This machine's GPU, the only one on which they are timed."""
    source: str
    """The kernel or the script, `file.py:function`."""
    most: int
    """How many at each size."""
    runs: int
    """The timed launches of each."""
    made: tuple[BoundLaunch, ...] | None = None
    """The launches of a script, whose tensors are used; None makes tensors up."""


Run: TypeAlias = "tuple[Candidate, Record | Failed]"
"""A configuration at a size, and its outcome on a GPU."""


def tune_sizes(  # noqa: PLR0913 - one argument per option of the command line
    kernel: Any,
    sizes: AskedSizes,
    *,
    search: bool = False,
    gpu: AskedGpus | None = None,
    assume: Words = (),
    warm: bool = False,
    measure: bool = False,
    top: Integer = TOP,
    runs: Integer = DEFAULT_RUNS,
    triton: str | None = None,
    cache: bool = True,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    retry_failed: bool = False,
    progress: Callable[[str], None] = lambda _sentence: None,
    **described: Any,
) -> TunedFile:
    """Return the configuration of *kernel* that is predicted to be fastest, by GPU and size.

    The compared configurations are those of the kernel's autotuner or, without one, the given
    values of constexprs and options; with *search* also others near the best. Nothing is launched,
    except with *measure*: then the *top* best predicted of each size are timed on this machine's
    GPU, with made-up tensors, at least *runs* times each, and the fastest of them is chosen.

    *sizes* is the path of a CSV file whose first line names arguments of the kernel and whose other
    lines have a size each, or it has the arguments of each size by name. *described* has signature,
    constexprs, num_warps, num_stages, options, grid, bytes_read and bytes_written. These and all
    other arguments are those of `explain_launch`; an entry of the signature may be an expression of
    the arguments of a size, "M" or "2 * K".

    Raises:
        InputError: something is missing or wrong, a configuration is not right at every size, or no
            time is predicted at any size on any of the GPUs.
    """
    how = {"triton": triton, "timeout": compile_timeout, "retry_failed": retry_failed}
    kernel, name, gpus, compiler = opened(kernel, gpu, cache=cache, progress=progress, **how)
    checked = {"warm": warm, "other_triton": not compiler.environment.is_running}
    timing = timing_on(gpus, name, top, runs, **checked) if measure else None
    kernel = as_compared(kernel)
    described = {"signature": None, "constexprs": (), "options": (), **described}
    if search and autotuner_of(kernel) is None:
        described["num_warps"] = described.get("num_warps") or 4
        described["num_stages"] = described.get("num_stages") or 3
    assumed = read_assumed(assume, innermost(kernel).arg_names)
    passed = split(described["signature"] or "", "--signature")
    lines: dict[str, tuple[LaunchLine, ...]] = {}
    found: list[Candidate] = []
    for place, size in read_sizes(sizes, kernel, passed).items():
        with after(f"{place}, {text_of(size)}: ", GridError):
            lines[text_of(size)] = launches_at(kernel, size, **described)
            found += _candidates(kernel, size, lines[text_of(size)])
    keys = [one.key for one in gpus]
    by = {"compilers": dict.fromkeys(keys, compiler), "given": dict.fromkeys(keys, found)}
    own: dict[str, Any] = {"gpus": gpus, "assume": assumed, "warm": warm, "name": name, **by}
    own["timing"] = timing
    return _described(kernel, described, lines, **own).tune(search=search)


def timing_on(
    gpus: Sequence[Gpu], source: str | None, top: Integer, runs: Integer, **checked: bool
) -> Timing:
    """Return how to time launches of *source* on this machine's GPU.

    Raises InputError if that is not possible; *checked* is what else `checked_gpu` takes.
    """
    here = checked_gpu(gpus, source, **checked)
    top, runs = whole_number("top", top), whole_number("runs", runs)
    if top < 1:
        refuse(f"top is {top}; at least 1 configuration of each size is measured")
    return Timing(here, str(source), top, runs)


def _described(
    kernel: Any,
    described: Mapping[str, Any],
    lines: Mapping[str, Sequence[LaunchLine]],
    **others: Any,
) -> Tuner:
    """Return what tunes launches that a command line describes, *lines* at each size by text."""
    is_autotuned, parameters = autotuner_of(kernel) is not None, Parameters.of(kernel)

    def at(size: Size, config: Settings, _gpu: Gpu) -> Candidate:
        if is_autotuned:
            line, *_ = lines[text_of(size)]
            keywords = {**line.keywords, **config}
            line = dataclasses.replace(line, keywords=keywords, chosen={})
            (variant,) = variants_of(without_autotuner(kernel), [line])
        else:
            given, names = {**described}, {*parameters.by_name} - {*KNOBS}
            constexprs = {name: value for name, value in config.items() if name in names}
            options = {one: config[one] for one in config if one not in {*names, *KNOBS}}
            given |= {name: [config[name]] for name in KNOBS if name in config}
            given["constexprs"] = with_values(given["constexprs"], constexprs)
            given["options"] = with_values(given["options"], options)
            (variant,) = variants_of(kernel, launches_at(kernel, size, **given))
        return Candidate(size, config, variant)

    keywords = next(iter(lines.values()))[0].keywords
    return Tuner(
        digest=source_digest(kernel),
        is_autotuned=is_autotuned,
        at=at,
        passed={name: keywords[name] for name in keywords if parameters.is_constexpr(name)},
        instead="give {tiles} as a column of the sizes",
        at_any_size=True,
        **others,
    )


def _candidates(kernel: Any, size: Size, lines: Sequence[LaunchLine]) -> Iterator[Candidate]:
    for line in lines:
        config = _settings(kernel, size, lines, line)
        for variant in variants_of(kernel, [line]):
            tuned = {name: plain(value) for name, value in variant.tuned.items()}
            yield Candidate(size, as_values({**tuned, **config}), variant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuner:
    """Chooses among the configurations of one kernel, at each size on each GPU."""

    gpus: Sequence[Gpu]
    assume: Mapping[str, Assumption]
    warm: bool
    digest: str
    """The kernel's `source_digest`."""
    is_autotuned: bool
    """Whether the kernel has an autotuner, whose author vouches for its configurations."""
    compilers: Mapping[str, Compiler]
    """What compiles the launches, by the GPU's key."""
    given: Mapping[str, Sequence[Candidate]]
    """The configurations that are given, at each size, by the GPU's key."""
    at: Callable[[Size, Settings, Gpu], Candidate]
    """Returns a configuration at a size on a GPU; raises InputError if there is no such launch."""
    passed: Mapping[str, Any]
    """The constexprs that the launch line itself passes, each with its value."""
    instead: str
    """What to do about {tiles} that are wrong at some size."""
    name: str | None = None
    """What `load_function` finds the kernel by; None if it does not find it."""
    in_program: bool = False
    """Whether a program makes the launches, so that their times are as a profiler gives them."""
    at_any_size: bool = False
    """Whether there are launches at other sizes than those that are given."""
    timing: Timing | None = None
    """None times nothing."""

    def tune(self, *, search: bool) -> TunedFile:
        """Return the configuration that is predicted to be fastest, by GPU and size.

        Raises InputError as `tune_sizes` does.
        """
        self._check_any_size()
        chosen: dict[str, tuple[TunedLaunch, ...]] = {}
        left_out: list[LeftOut] = []
        stopped: list[str] = []
        basis: dict[str, str] = {}
        for gpu in self.gpus:
            candidates = self.given[gpu.key]
            sizes = _sizes(candidates)
            tiles = free_tiles(_tiles(candidates), [one.config for one in candidates])
            runs = self._predicted(candidates, gpu)
            check_trips(self.assume, [run for _, run in runs])
            predicted = [run.prediction for _, run in runs if run.prediction is not None]
            if search and predicted:
                found, is_whole = self._searched(runs, gpu, tiles)
                runs += found
                stopped += [] if is_whole else [gpu.key]
            if self.timing is not None and self.timing.gpu.key == gpu.key:
                runs = _timed(runs, self.timing)
            best, without = _best(sizes, runs, gpu, len(candidates), tiles)
            if best:
                chosen[gpu.key] = best
                how = "as a profiler gives it" if self.in_program else "between events"
                warm = ", right after the same launch" if self.warm else ""
                basis[gpu.key] = f"{predicted[0].basis}; each is {how}{warm}"
            left_out += without
        if not chosen:
            refuse("; ".join(f"{one.gpu}: {one.reason}" for one in left_out))
        first = self.given[self.gpus[0].key][0]
        bound = BoundLaunch.of(first.variant.function, first.variant.launch)
        return TunedFile(
            kernel=bound.kernel,
            digest=self.digest,
            triton=self.compilers[self.gpus[0].key].environment.triton,
            sizes=tuple(first.size),
            tensors=bound.dtypes,
            constexprs={
                name: in_file(value)
                for name, value in self.passed.items()
                if name not in {*first.config, *first.size}
            },
            gpus=chosen,
            basis=basis,
            left_out=tuple(left_out),
            stopped=tuple(stopped),
        )

    def _predicted(self, candidates: Sequence[Candidate], gpu: Gpu) -> list[Run]:
        found = [one.variant for one in candidates]
        how = {"warm": self.warm, "in_program": self.in_program}
        asked = asked_of(found, self.gpus, self.name, **how)
        asked = [one for one in asked if one.gpu is gpu]
        check_assumed(asked, self.assume)
        compiler = self.compilers[gpu.key]
        runs = with_counts(compile_runs(asked, compiler), asked, compiler, self.assume)
        return list(zip(candidates, runs, strict=True))

    def _check_any_size(self) -> None:
        """Raise InputError if one of the values given for a tile is not right at every size.

        Launches with a wrong tile read or write less than others. An autotuner's own configurations
        are not checked: their author vouches for them.
        """
        gpu = self.gpus[0]
        candidates = self.given[gpu.key]
        configs, sizes = [one.config for one in candidates], _sizes(candidates)
        names = _tiles(candidates)
        tiles = [one for one in names if len({config.get(one) for config in configs}) > 1]
        if self.is_autotuned or not tiles:
            return
        each: dict[str, Settings] = {}
        for one in candidates:
            each.setdefault(_key(one.config, tiles), one.config)
        if self.at_any_size:
            sizes += filter(None, [larger(sizes[-1], configs, tiles)])
        asked = [self.at(size, config, gpu) for size in sizes for config in each.values()]
        runs = self._predicted(asked, gpu)
        for size in sizes:
            of_size = [(one.config, run) for one, run in runs if one.size == size]
            named = [text_of({name: config[name] for name in tiles}) for config, _ in of_size]
            for less, whole in doing_less([run for _, run in of_size]).items():
                refuse(
                    f"{named[less]} does not do the whole work at {text_of(size)}: it reads or"
                    f" writes less than {named[whole]}, and what is tuned has to be right at every"
                    f" size; {self.instead.format(tiles=few_of(tiles))}"
                )

    def _searched(
        self, given: Sequence[Run], gpu: Gpu, tiles: Sequence[str]
    ) -> tuple[list[Run], bool]:
        """Return configurations near the best, and near those, and whether the search was complete.

        A search ends incomplete after SEARCHED compiles. A neighbour of a size's best is tried at
        that size, and neighbours at the most sizes come first.
        """
        runs = list(given)
        tried = {(text_of(one.size), _key(one.config)) for one, _ in runs}
        compiled = {key for _, key in tried}
        grown: set[tuple[str, str]] = set()
        is_whole = True
        while True:
            near: dict[str, list[tuple[Settings, Size, Record | Failed]]] = {}
            for size, (best, fastest) in _fastest(runs).items():
                if (size, _key(best.config)) not in grown:
                    grown.add((size, _key(best.config)))
                    for config in neighbours(best.config, tiles if _is_counted(fastest) else ()):
                        if (size, key := _key(config)) not in tried:
                            near.setdefault(key, []).append((config, best.size, fastest))
            left = SEARCHED - len(compiled) + len({_key(one.config) for one, _ in given})
            new = [key for key in near if key not in compiled]
            is_whole = is_whole and len(new) <= left
            new = sorted(new, key=lambda key: len(near[key]), reverse=True)[:left]
            chosen = [key for key in near if key in compiled or key in new]
            if not chosen:
                return runs[len(given) :], is_whole
            compiled |= {*chosen}
            places = [place for key in chosen for place in near[key]]
            tried |= {(text_of(size), _key(config)) for config, size, _ in places}
            made: list[tuple[Candidate, Record | Failed]] = []
            for config, where, record in places:
                with contextlib.suppress(InputError):  # the grid or heuristics do not take it
                    made.append((self.at(where, config, gpu), record))
            found = self._predicted([one for one, _ in made], gpu)
            for (candidate, run), (_, record) in zip(found, made, strict=True):
                if _does_as(record, run):
                    runs.append((candidate, run))


def _timed(runs: Sequence[Run], timing: Timing) -> list[Run]:
    """Return *runs* with measured times of the best predicted at each size.

    Where none of them can be launched, all runs of the size have the reason.
    """
    at_size: dict[str, list[Record]] = defaultdict(list)
    for candidate, run in runs:
        if isinstance(run, Record) and run.prediction is not None:
            at_size[text_of(candidate.size)].append(run)
    best = [sorted(some, key=predicted_us)[: timing.most] for some in at_size.values()]
    chosen = [*itertools.chain.from_iterable(best)]
    times = times_of(chosen, timing.source, timing.made, timing.runs)
    measured = dict(zip(map(id, chosen), times, strict=True))
    for some, tried in zip(at_size.values(), best, strict=True):
        if all(measured[id(run)].us is None for run in tried):
            measured |= dict.fromkeys(map(id, some), measured[id(tried[0])])
    return [
        (one, dataclasses.replace(run, measurement=measured.get(id(run))))
        if isinstance(run, Record)
        else (one, run)
        for one, run in runs
    ]


def _settings(
    kernel: Any, size: Size, lines: Sequence[LaunchLine], line: LaunchLine
) -> dict[str, Any]:
    """Return the settings of a launch line: its options, and constexprs with several values."""
    parameters = Parameters.of(kernel)
    several = {
        name
        for name in line.keywords
        if len({constant_text(one.keywords[name]) for one in lines}) > 1
    }
    options = {*KNOBS, *(name for name in line.keywords if name not in parameters.by_name)}
    return {
        name: line.keywords[name]
        for name in line.keywords
        if name in several | options and name not in size
    }


def as_values(config: Mapping[str, Any]) -> Settings:
    """Return *config*; InputError if a file of tuned configurations cannot hold a value of it."""
    for name, value in config.items():
        if value is not None and type(value) not in {bool, int, float, str}:
            refuse(
                f"{name} is {quoted(value)} in a configuration, and a file of them holds numbers,"
                " truth values and texts alone; leave it to the launch line"
            )
    return config


def _sizes(candidates: Sequence[Candidate]) -> list[Size]:
    return [*{text_of(one.size): one.size for one in candidates}.values()]


def _tiles(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    first = candidates[0].variant
    return BoundLaunch.of(first.function, first.launch).tiles


def _fastest(runs: Sequence[Run]) -> dict[str, tuple[Candidate, Record]]:
    """Return the fastest at each size: as measured or, if nothing was measured, by prediction."""
    found: dict[str, tuple[tuple[bool, float], Candidate, Record]] = {}
    for candidate, run in runs:
        if isinstance(run, Record) and (rank := _rank(run)) is not None:
            size = text_of(candidate.size)
            if size not in found or rank < found[size][0]:
                found[size] = rank, candidate, run
    return {size: (candidate, run) for size, (_, candidate, run) in found.items()}


def _rank(run: Record) -> tuple[bool, float] | None:
    """Return what is least for the fastest; None for a launch that has no time or failed."""
    if run.measurement is None:
        return None if run.prediction is None else (True, run.prediction.us)
    return None if run.measurement.us is None else (False, run.measurement.us)


def _best(
    sizes: Sequence[Size],
    runs: Sequence[Run],
    gpu: Gpu,
    given: int,
    tiles: Sequence[str],
) -> tuple[tuple[TunedLaunch, ...], list[LeftOut]]:
    """Return what to launch at each size, and the sizes for which nothing is known, with reasons.

    The first *given* of *runs* are the author's. A configuration with other *tiles* than the
    author's at its size is chosen only for launches with the same numbers.
    """
    fastest, own = _fastest(runs), _fastest(runs[:given])
    known = {(text_of(one.size), _key(one.config, tiles)) for one, _ in runs[:given]}
    chosen, without = [], []
    for size in sizes:
        at_size = [run for one, run in runs if one.size == size]
        if text_of(size) not in own:
            without.append(LeftOut(gpu.key, _why_not(at_size, gpu), size))
            continue
        candidate, run = fastest[text_of(size)]
        time = run.prediction
        assert time is not None  # noqa: S101 - it has a rank
        if len(at_size) > 1:
            time = time.as_chosen
        us, low, high = (round(one, 3) for one in (time.us, time.low_us, time.high_us))
        took = None if run.measurement is None else run.measurement.us
        one = TunedLaunch(size, candidate.config, us, low, high, time.bound, us=took)
        if tiles and (text_of(size), _key(candidate.config, tiles)) not in known:
            best = own[text_of(size)][0].config
            one = dataclasses.replace(one, only=_numbers(run), elsewhere=best)
        chosen.append(one)
    if not chosen and without:
        without = [LeftOut(gpu.key, without[0].reason)]
    return tuple(chosen), without


def _why_not(runs: Sequence[Record | Failed], gpu: Gpu) -> str:
    if gpu.multiprocessors is None:
        return f"{gpu.title} is an architecture, not a GPU; name a GPU, such as h100"
    records = [run for run in runs if isinstance(run, Record)]
    measured = [run.measurement for run in records if run.measurement is not None]
    if measured:
        return f"not one of the best predicted could be launched; the first: {measured[0].reason}"
    if records:
        return why_no_time(records[0]).replace("`", "").rstrip(".")
    failed = next(run for run in runs if isinstance(run, Failed))
    return f"not one configuration compiles and fits; the first: {failed.failure.reason}"


def _does_as(one: Record | Failed, other: Record | Failed) -> bool:
    """Return whether two launches read and write the same bytes, and reduce as much."""
    mine, its = (None if isinstance(run, Failed) else run.counts for run in (one, other))
    if mine is not None and its is not None and reduces_otherwise(mine, its):
        return False
    return _moved(one) == _moved(other)


def _moved(run: Record | Failed) -> dict[str, tuple[int, int]] | None:
    """Return the distinct bytes read and written of each tensor, or None if they are not known."""
    if not isinstance(run, Record) or run.counts is None:
        return None
    return moved_bytes(run.counts)


def _is_counted(run: Record | Failed) -> bool:
    """Return whether the bytes of a launch are known without assumptions."""
    counts = run.counts if isinstance(run, Record) else None
    return counts is not None and not counts.unknowns and moved_bytes(counts) is not None


def _numbers(run: Record | Failed) -> dict[str, Any]:
    passed = {name: run.arguments[name] for name in run.arguments if name not in run.constexprs}
    numbers = {name: value for name, value in passed.items() if type(value) in {bool, int}}
    return {**numbers, GRID: list(run.launch.grid or ())}


def _key(config: Settings, names: Sequence[str] = ()) -> str:
    return repr(sorted((name, config.get(name)) for name in names or config))


def free_tiles(tiles: Collection[str], configs: Sequence[Settings]) -> list[str]:
    """Return those of *tiles* that have several sizes in *configs*, all powers of two.

    With several sizes the author vouches that the kernel is right with any size. That a launch with
    another size still reads and writes the same is checked where it is counted.
    """
    found = []
    for name in sorted(tiles):
        sizes = {one.get(name) for one in configs}
        if len(sizes) > 1 and all(type(one) is int and one & (one - 1) == 0 for one in sizes):
            found.append(name)
    return found


def neighbours(config: Settings, tiles: Sequence[str]) -> Iterator[Settings]:
    """Return the configurations that differ from *config* in one step, or in two combined steps.

    A step doubles or halves a tile or the warps, or adds or removes a stage. Two steps are combined
    for a tile and the warps in the same direction, and for two tiles in opposite directions.
    *config* has num_warps and num_stages.
    """
    for stages in (config["num_stages"] - 1, config["num_stages"] + 1):
        if STAGES[0] <= stages <= STAGES[1]:
            yield {**config, "num_stages": stages}
    scaled = [*tiles, "num_warps"]
    for place, up in itertools.product(range(len(scaled)), (True, False)):
        if (step := _scaled(config, scaled[place], up=up)) is None:
            continue
        yield step
        for other in scaled[place + 1 :]:
            second = _scaled(step, other, up=up if other == "num_warps" else not up)
            if second is not None:
                yield second


def _scaled(config: Settings, name: str, *, up: bool) -> Settings | None:
    """Return *config* with *name* doubled or halved, or None if that is not tried."""
    least, most = WARPS if name == "num_warps" else TILES
    value = config[name] * 2 if up else config[name] // 2
    return {**config, name: value} if least <= value <= most else None


def larger(size: Size, configs: Sequence[Settings], tiles: Sequence[str]) -> Size | None:
    """Return a size with at least twice any tile of *configs*; None if *size* already has.

    Its numbers are odd multiples of those of *size*, so that 16 divides the same ones, and Triton
    compiles the same binary.
    """
    numbers = [value for value in size.values() if type(value) is int and value > 0]
    largest = max((one[name] for one in configs for name in tiles), default=0)
    if not numbers or min(numbers) >= 2 * largest:
        return None
    factor = -(-2 * largest // min(numbers)) | 1
    return {
        name: value * factor if type(value) is int and value > 0 else value
        for name, value in size.items()
    }
