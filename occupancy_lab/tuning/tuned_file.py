"""What `tune --output` writes and `tuned` launches by: a kernel's configurations, by GPU and size.

It is JSON. docs/tuning.md describes each name in it, and a change of their meaning raises VERSION.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from occupancy_lab.errors import quoted, refuse
from occupancy_lab.files import read_given, read_json
from occupancy_lab.gpus import find_gpu
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import cell, count, listed

FORMAT, VERSION = "occupancy-lab tuned", 2

STOPPED = "The search stopped at its limit of compiles, and has not tried all that it would have."
Size: TypeAlias = Mapping[str, Any]
"""The arguments that tell one launch of a kernel from another, by name."""


@dataclass(frozen=True, slots=True)
class TunedLaunch:
    """The configuration that is predicted to be the fastest at one size on one GPU."""

    sizes: Size
    config: Mapping[str, Any]
    """The constexprs and compiler options that a launch is to pass, by name."""
    predicted_us: float
    predicted_low_us: float | None
    predicted_high_us: float | None
    bound: str
    """The part of the time that would take longest alone."""
    only: Mapping[str, Any] | None = None
    """Where a search chose a tile of its own: the whole numbers that the kernel was passed, and the
    grid as a list, when it was seen to do what it has to. None: its author says so of any."""
    elsewhere: Mapping[str, Any] = field(default_factory=dict)
    """The best that the kernel's author has, for every launch that is another than `only` says."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A GPU, or one size on it, for which nothing is chosen."""

    gpu: str
    reason: str
    sizes: Size | None = None
    """None: no size on this GPU."""


@dataclass(frozen=True, slots=True, repr=False)
class TunedFile(Answer):
    """The configurations of one kernel."""

    kernel: str
    digest: str
    """What `source_digest` says of the kernel."""
    triton: str
    """The Triton that compiled what was compared."""
    sizes: tuple[str, ...]
    """The arguments that a launch is told by."""
    tensors: Mapping[str, str]
    """Triton's name of the dtype of each tensor that is passed, by the names of arguments."""
    constexprs: Mapping[str, Any]
    """The constexprs that the launch line passes itself, each with its only value."""
    gpus: Mapping[str, tuple[TunedLaunch, ...]]
    """What to launch, by the key of the GPU."""
    basis: Mapping[str, str] = field(default_factory=dict)
    """What the times rest on, by the key of the GPU."""
    left_out: tuple[LeftOut, ...] = field(default=())
    stopped: tuple[str, ...] = ()
    """The keys of GPUs for which a search stopped before it had tried all that it would have."""

    @property
    def configs(self) -> list[Mapping[str, Any]]:
        """Every configuration, each once; the first is one of the author's."""
        found: list[Mapping[str, Any]] = []
        for one in (one for launches in self.gpus.values() for one in launches):
            for config in (*filter(None, [one.elsewhere]), one.config):
                if config not in found:
                    found.append(config)
        return found

    def choice(self, gpu: str, size: Size) -> TunedLaunch | None:
        """Return what to launch at *size* on *gpu*: what was chosen there, or at the nearest size.

        The nearest has the least sum of squares of the differences of its numbers' logarithms, and
        the same of everything that is no number; the first of several. None where there is none.
        """
        near = [(_distance(one.sizes, size), one) for one in self.gpus.get(gpu, ())]
        distance, found = min(near, key=lambda one: one[0], default=(math.inf, None))
        return found if distance < math.inf else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as the values of the JSON."""
        values = dataclasses.asdict(self)
        values["kernel"] = {"name": values["kernel"], "digest": values.pop("digest")}
        return {"format": FORMAT, "version": VERSION, **values}

    def to_document(self) -> Document:
        """Return what is launched at each size on each GPU, in words."""
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
        """Return what the *values* of the JSON *name* say; InputError where it is no such file."""
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
        """Return what the file at *path* says; InputError where it cannot be read."""
        name = Path(path).name
        return cls.of(read_json(read_given(path), name), name)


def _answer(file: TunedFile) -> Iterator[str]:
    yield (
        f"Compiled with Triton {file.triton}; the configuration of each size is the one that is"
        " predicted to take least, and nothing was launched."
    )
    for gpu, left in itertools.groupby(file.left_out, key=lambda one: one.gpu):
        first, *others = left
        if first.sizes is None:
            where = "is left out"
        else:
            at = ", ".join(f"{name} {value}" for name, value in first.sizes.items())
            where = f"has none for {literal(at)}" + (
                f" and {count(len(others), 'other size')}" if others else ""
            )
        yield f"{find_gpu(gpu).title} {where}: {literal(first.reason)}."


def _table(sizes: Sequence[str], launches: Sequence[TunedLaunch]) -> Table:
    """Return a table of *launches*, a row each, with the settings in which they differ."""
    names = _settings(launches, alike=False)
    several = not any(_range(launches))
    rows = []
    for one in launches:
        low, high = one.predicted_low_us, one.predicted_high_us
        time = cell(one.predicted_us)
        if several and low is not None and high is not None:
            time += f" ({cell(low)} to {cell(high)})"
        values = [*(one.sizes[name] for name in sizes), *(one.config.get(name) for name in names)]
        rows.append((*(literal(str(value)) for value in values), time, one.bound))
    headers = (*map(literal, (*sizes, *names)), "us", "bound")
    return Table(headers, tuple(rows))


def _range(launches: Sequence[TunedLaunch]) -> Iterator[str]:
    """Say in which range the times of all *launches* are, where it is as wide for each."""
    shares = {
        (
            f"{one.predicted_low_us / one.predicted_us:.2f}",
            f"{one.predicted_high_us / one.predicted_us:.2f}",
        )
        for one in launches
        if one.predicted_low_us is not None and one.predicted_high_us is not None
    }
    if len(shares) == 1:
        ((low, high),) = shares
        yield f"us is predicted; eight in ten launches should take {low} to {high} times that."


def _only(launches: Sequence[TunedLaunch]) -> Iterator[str]:
    """Say how many of *launches* are not for every other size."""
    if searched := sum(one.only is not None for one in launches):
        yield (
            f"At {count(searched, 'size')} a block was chosen that only the search tried: a launch"
            " with other numbers or another grid takes the fastest of the configurations given."
        )


def _settings(launches: Sequence[TunedLaunch], *, alike: bool) -> list[str]:
    """Return the names of the settings that are alike in all *launches*, or of all others."""
    names = dict.fromkeys(name for one in launches for name in one.config)
    values = {name: {repr(one.config.get(name)) for one in launches} for name in names}
    return [name for name in names if (len(values[name]) == 1) is alike]


def _alike(launches: Sequence[TunedLaunch]) -> Iterator[str]:
    names = _settings(launches, alike=True)
    if names:
        each = [f"{literal(name)} {literal(str(launches[0].config[name]))}" for name in names]
        yield f"Each has {listed(each)}."


def _distance(one: Size, other: Size) -> float:
    """Return how far two sizes are apart, in octaves squared; infinity where a name differs."""
    found = 0.0
    for name, value in one.items():
        if _is_number(value) and _is_number(other[name]):
            found += (math.log2(max(value, 1)) - math.log2(max(other[name], 1))) ** 2
        elif value != other[name] or type(value) is not type(other[name]):
            return math.inf
    return found


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}
