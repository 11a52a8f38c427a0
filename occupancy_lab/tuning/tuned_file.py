"""The file that `tune --output` writes and `tuned` reads: configurations by GPU and size.

It is JSON. docs/tuning.md describes each name in it; a change of a name's meaning raises VERSION.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from occupancy_lab.arguments import Dtype
from occupancy_lab.errors import quoted, refuse
from occupancy_lab.files import read_given, read_json
from occupancy_lab.gpus import find_gpu
from occupancy_lab.prediction import part_cell
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import cell, count, listed

FORMAT, VERSION = "occupancy-lab tuned", 2

STOPPED = "The search stopped at its limit of compiles, and has not tried all that it would have."
ALIKE = 0.005
"""The difference of two ranges, as shares of the times, below which they count as equally wide."""
Size: TypeAlias = Mapping[str, Any]
"""The arguments that distinguish launches of a kernel, by name."""


def text_of(size: Size) -> str:
    """Return a size in words: "M 4096, N 1024"."""
    return ", ".join(f"{name} {value}" for name, value in size.items())


@dataclass(frozen=True, slots=True)
class TunedLaunch:
    """The fastest configuration at one size on one GPU, as predicted or measured."""

    sizes: Size
    config: Mapping[str, Any]
    """The constexprs and compiler options to pass, by name."""
    predicted_us: float
    predicted_low_us: float | None
    predicted_high_us: float | None
    bound: str
    """The part of the time that would take longest alone."""
    only: Mapping[str, Any] | None = None
    """If a search chose a tile of its own: the integers that were passed, and the grid as a list,
    when the launch was checked to do its work. None: the author vouches for any numbers."""
    elsewhere: Mapping[str, Any] = field(default_factory=dict)
    """The author's best configuration, for every launch that differs from `only`."""
    us: float | None = None
    """The measured time, for which it was chosen; None if it was chosen by prediction."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A GPU, or one size on it, for which nothing is chosen."""

    gpu: str
    reason: str
    sizes: Size | None = None
    """None means that no size on this GPU has a choice."""


@dataclass(frozen=True, slots=True, repr=False)
class TunedFile(Answer):
    """The configurations of one kernel."""

    kernel: str
    digest: str
    """The kernel's `source_digest`."""
    triton: str
    """The Triton that compiled the configurations."""
    sizes: tuple[str, ...]
    """The arguments that distinguish launches."""
    tensors: Mapping[str, str]
    """The dtype of each tensor that is passed, by Triton's names, by argument."""
    constexprs: Mapping[str, Any]
    """The constexprs that the launch line itself passes, each with its only value."""
    gpus: Mapping[str, tuple[TunedLaunch, ...]]
    """The choices by the GPU's key."""
    basis: Mapping[str, str] = field(default_factory=dict)
    """The basis of the times, by the GPU's key."""
    left_out: tuple[LeftOut, ...] = field(default=())
    stopped: tuple[str, ...] = ()
    """The keys of GPUs whose search stopped at its limit."""
    notes: tuple[str, ...] = ()
    """What was assumed while the program ran that launched the kernel, and what may be missing."""

    @property
    def configs(self) -> list[Mapping[str, Any]]:
        """Every configuration once; the first is one of the author's."""
        found: list[Mapping[str, Any]] = []
        for one in (one for launches in self.gpus.values() for one in launches):
            for config in (*filter(None, [one.elsewhere]), one.config):
                if config not in found:
                    found.append(config)
        return found

    def choice(self, gpu: str, size: Size) -> TunedLaunch | None:
        """Return the choice at *size* on *gpu*, or at the nearest size.

        The nearest size has the smallest sum of squared differences of its numbers' logarithms, and
        equal values otherwise; of several, the first. Return None if there is none.
        """
        near = [(_distance(one.sizes, size), one) for one in self.gpus.get(gpu, ())]
        distance, found = min(near, key=lambda one: one[0], default=(math.inf, None))
        return found if distance < math.inf else None

    def to_dict(self) -> dict[str, Any]:
        """Return the values of the JSON."""
        values = dataclasses.asdict(self)
        values["kernel"] = {"name": values["kernel"], "digest": values.pop("digest")}
        return {"format": FORMAT, "version": VERSION, **values}

    def to_document(self) -> Document:
        """Return the choices for each size and GPU in words."""
        sizes = count(len({str(one.sizes) for ones in self.gpus.values() for one in ones}), "size")
        titles = [find_gpu(key).title for key in self.gpus]
        sections = [
            Section(
                find_gpu(key).title,
                (_table(self.sizes, launches),),
                (
                    *_alike(launches),
                    *_range(launches),
                    *_only(launches),
                    *([STOPPED] if key in self.stopped else []),
                    f"The times rest on {literal(self.basis[key])}.",
                ),
            )
            for key, launches in self.gpus.items()
        ]
        return Document(
            f"{literal(self.kernel)}: {sizes} on {listed(titles)}",
            tuple(_answer(self)),
            tuple(sections),
        )

    @classmethod
    def of(cls, values: Any, name: str) -> TunedFile:
        """Return the file with the *values* of the JSON *name*; InputError if they are invalid."""
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            refuse(f"{quoted(name)} is no file that `occupancy-lab tune --output` wrote")
        if values.get("version") != VERSION:
            refuse(
                f"{quoted(name)} is of version {quoted(values.get('version'))}, and this"
                f" occupancy-lab reads version {VERSION}; write it anew with `tune --output`"
            )
        try:
            found = cls(
                kernel=str(values["kernel"]["name"]),
                digest=str(values["kernel"]["digest"]),
                triton=str(values["triton"]),
                sizes=tuple(values["sizes"]),
                tensors=dict(values["tensors"]),
                constexprs=dict(values["constexprs"]),
                gpus={
                    str(gpu): tuple(TunedLaunch(**one) for one in launches)
                    for gpu, launches in values["gpus"].items()
                },
                basis={str(gpu): str(values["basis"][gpu]) for gpu in values["gpus"]},
                left_out=tuple(LeftOut(**one) for one in values["left_out"]),
                stopped=tuple(map(str, values.get("stopped", ()))),
                notes=tuple(map(str, values.get("notes", ()))),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            refuse(f"{quoted(name)} lacks a part of what `occupancy-lab tune --output` writes")
        for one in (one for launches in found.gpus.values() for one in launches):
            parts = (one.config, one.elsewhere, one.only or {})
            if not all(isinstance(part, dict) for part in parts) or tuple(one.sizes) != found.sizes:
                refuse(f"{quoted(name)} has a launch without its sizes or its configuration")
        return found

    @classmethod
    def read(cls, path: str) -> TunedFile:
        """Return the file at *path*; InputError if it cannot be read."""
        name = Path(path).name
        return cls.of(read_json(read_given(path), name), name)


def in_file(value: Any) -> Any:
    """Return the value of an argument as the file has it: a dtype or a function by its name."""
    return str(value) if isinstance(value, Dtype) else getattr(value, "__name__", value)


def _answer(file: TunedFile) -> Iterator[str]:
    measured = [
        find_gpu(key).title
        for key, launches in file.gpus.items()
        if any(one.us is not None for one in launches)
    ]
    yield (
        f"Compiled with Triton {file.triton}; the configuration of each size is the one that is"
        " predicted to take least, and nothing was launched."
        if not measured
        else f"Compiled with Triton {file.triton}; the best predicted configurations of each size"
        f" were launched on {listed(measured)}, and the one that took least is chosen."
    )
    for gpu, left in itertools.groupby(file.left_out, key=lambda one: one.gpu):
        first, *others = left
        if first.sizes is None:
            where = "is left out"
        else:
            more = f" and {count(len(others), 'other size')}" if others else ""
            where = f"has none for {literal(text_of(first.sizes))}{more}"
        yield f"{find_gpu(gpu).title} {where}: {literal(first.reason)}."
    yield from file.notes


def _table(sizes: Sequence[str], launches: Sequence[TunedLaunch]) -> Table:
    names = _settings(launches, alike=False)
    several, measured = not any(_range(launches)), any(one.us is not None for one in launches)
    rows = []
    for one in launches:
        low, high = one.predicted_low_us, one.predicted_high_us
        time = cell(one.predicted_us)
        if several and low is not None and high is not None:
            time += f" ({cell(low)} to {cell(high)})"
        values = [*(one.sizes[name] for name in sizes), *(one.config.get(name) for name in names)]
        times = (cell(one.us), time) if measured else (time,)
        rows.append((*(literal(str(value)) for value in values), *times, part_cell(one.bound)))
    of_times = ("us measured", "us predicted") if measured else ("us",)
    headers = (*map(literal, (*sizes, *names)), *of_times, "bound")
    return Table(headers, tuple(rows))


def _range(launches: Sequence[TunedLaunch]) -> Iterator[str]:
    """Say the range of the times of *launches*, if it is equally wide for all."""
    shares = [
        (one.predicted_low_us / one.predicted_us, one.predicted_high_us / one.predicted_us)
        for one in launches
        if one.predicted_low_us is not None and one.predicted_high_us is not None
    ]
    # Times are rounded to a nanosecond, so that equal shares differ a little.
    if shares and all(max(one) - min(one) < ALIKE for one in zip(*shares, strict=True)):
        low, high = shares[0]
        yield (
            f"us is predicted; 80% of launches that are chosen for it should take {low:.2f} to"
            f" {high:.2f} times that."
        )


def _only(launches: Sequence[TunedLaunch]) -> Iterator[str]:
    if searched := sum(one.only is not None for one in launches):
        yield (
            f"At {count(searched, 'size')} a block was chosen that only the search tried: a launch"
            " with other numbers or another grid takes the fastest of the configurations given."
        )


def _settings(launches: Sequence[TunedLaunch], *, alike: bool) -> list[str]:
    """Return the names of the settings that are equal in all *launches*, or those that differ."""
    names = dict.fromkeys(name for one in launches for name in one.config)
    values = {name: {repr(one.config.get(name)) for one in launches} for name in names}
    return [name for name in names if (len(values[name]) == 1) is alike]


def _alike(launches: Sequence[TunedLaunch]) -> Iterator[str]:
    names = _settings(launches, alike=True)
    if names:
        each = [f"{literal(name)} {literal(str(launches[0].config[name]))}" for name in names]
        yield f"Each has {listed(each)}."


def _distance(one: Size, other: Size) -> float:
    """Return the distance of two sizes, in octaves squared; infinity if other values differ."""
    found = 0.0
    for name, value in one.items():
        if _is_number(value) and _is_number(other[name]):
            found += (math.log2(max(value, 1)) - math.log2(max(other[name], 1))) ** 2
        elif value != other[name] or type(value) is not type(other[name]):
            return math.inf
    return found


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}
