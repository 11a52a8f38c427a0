"""The result of tuning: the choice, what it is compared with and what it costs, and its words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_lab.explaining.variants import failed_sentences, named_reason
from occupancy_lab.files import plain_rows
from occupancy_lab.gpus import Gpu
from occupancy_lab.measuring.measure import BURST, WARMUP_MS
from occupancy_lab.prediction import PARTS, part_cell, ratio_error
from occupancy_lab.sweeping.recorded import RecordedLaunch, rival_sentences, row_config
from occupancy_lab.table.columns import RESULTS
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import cell, change, count, difference_cell, listed, range_sentence
from occupancy_lab.throughput.launch_time import MEASURED
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    import pandas as pd

TOP = 5
"""How many configurations are shown, and measured if that is asked for."""
FLUSH_US = 145.0
"""The time to flush the L2 cache before a launch: 56 us for 256 MiB at an H200's 4.8 TB/s, a
launch, and a seventh of the 300 us for which the GPU waits before a burst of 7."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to launch a kernel, and its times."""

    kernel: str
    settings: tuple[tuple[str, Any], ...]
    """The settings of the launch by name, such as BLOCK_SIZE."""
    num_programs: int
    predicted_us: float
    bound: str
    """The part of the predicted time that would take longest alone."""
    predicted_low_us: float | None = None
    """The lower end of the range that contains 80% of such launches, us; None without a
    prediction."""
    predicted_high_us: float | None = None
    """The upper end of that range, us."""
    us: float | None = None
    """The median measured time, us; None if it was not measured."""
    recorded_us: float | None = None
    """The time of this launch recorded on a GPU of this kind; None if there is none."""
    ranked: bool = True
    """Whether its predicted time is ranked; not if it leaves a part of the work undone."""

    @property
    def config(self) -> Config:
        """The configuration of a matrix's kernel; KeyError for any other launch."""
        return row_config(dict(self.settings))

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as plain values."""
        return {**dataclasses.asdict(self), "settings": dict(self.settings)}


def choice_of(row: Mapping[Any, Any]) -> Choice:
    """Return the choice in a row with a prediction."""
    import pandas as pd

    us, recorded_us = row.get("us"), row.get("recorded_us")
    return Choice(
        kernel=str(row["kernel"]),
        settings=tuple(
            (str(name), value)
            for name, value in row.items()
            if is_setting(str(name)) and not pd.isna(value)
        ),
        num_programs=int(row["num_programs"]),
        predicted_us=float(row["predicted_us"]),
        bound=str(row["bound"]),
        predicted_low_us=float(row["predicted_low_us"]),
        predicted_high_us=float(row["predicted_high_us"]),
        us=None if pd.isna(us) else float(us),
        recorded_us=None if pd.isna(recorded_us) else float(recorded_us),
        ranked=bool(row.get("ranked", True)),
    )


NOT_SETTINGS = {
    *("gpu", "target", "kernel", "rows", "cols", "dtype"),
    *("ranked", "whole_work", "num_ctas", "recorded_us", "warm"),
}
"""The columns that identify a row and are no settings."""


def is_setting(name: str) -> bool:
    """Return whether the column *name* of a sweep is a setting of a launch."""
    return name not in RESULTS and name not in NOT_SETTINGS


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of measuring some configurations."""

    configurations: int
    launches: int
    """An estimate: the number of warm-up launches depends on the predicted times."""
    seconds: float
    """Time on the GPU by the predictions, without compiling."""


def cost_of(predicted_us: Sequence[float], runs: int) -> Cost:
    """Return the cost of measuring launches that take *predicted_us*, *runs* times each.

    Each is launched once to check it, in every round of the warm-up, and in bursts with a flush
    before each launch.
    """
    if not predicted_us:
        return Cost(0, 0, 0.0)
    together = sum(predicted_us)
    rounds = int(WARMUP_MS * 1e3 // together) + 1
    timed = -(-runs // BURST) * (BURST + 1)
    each = 1 + rounds + timed
    us = each * together + timed * FLUSH_US * len(predicted_us)
    return Cost(len(predicted_us), each * len(predicted_us), us / 1e6)


@dataclass(frozen=True, slots=True, repr=False)
class Tuning(Answer):
    """The configurations of a launch on a GPU, and which to launch first."""

    gpu: Gpu
    launched: str
    """The subject of the tuning: the matrix, or the kernel, with its grid if there is only one."""
    best: Choice
    """The fastest measured configuration, or else the best predicted one."""
    best_predicted: Choice
    exhaustive: Cost
    """The cost of measuring every configuration, as an autotuner does."""
    spent: Cost
    """The cost of what was measured."""
    table: pd.DataFrame = field(compare=False, repr=False)
    """Every configuration, the best predicted first, with the columns of a sweep."""
    less_work: tuple[str, ...] = ()
    """Sentences about the configurations that leave a part of the work undone."""
    problem: Problem | None = None
    """The matrix; None if the launch is of another kind, which has none of the following."""
    best_recorded: RecordedLaunch | None = None
    """The fastest recorded launch of the kernels; None if none was recorded."""
    faster: Mapping[str, float] = field(default_factory=dict)
    """Rivals that were recorded to take less time than `best_recorded`, such as torch.softmax,
    us."""
    compared: Mapping[str, Choice] = field(default_factory=dict)
    """The tutorial's launch of `softmax`, and each kernel's own default."""

    @property
    def basis(self) -> str:
        """The basis of the predictions."""
        rows = self.table[self.table["predicted_us"].notna()]
        return str(rows["basis"].iloc[0])

    @property
    def error(self) -> float:
        """The share by which predicted times must differ to be distinguished."""
        return ratio_error(self.basis, self.best_predicted.bound)

    @property
    def calibrated(self) -> bool:
        """Whether the predictions rest on launches of this GPU."""
        return self.gpu.key in MEASURED

    def to_document(self, top: int = TOP) -> Document:
        """Return the choice and its *top* best predicted configurations in words."""
        best = Section(
            "Best predicted", (_best_table(self, top),), tuple(_best_sentences(self, top))
        )
        cost = Section("What finding it costs", (), tuple(_cost_sentences(self)))
        beside = (
            [Section("The kernels' own defaults", (_compared_table(self),))]
            if self.compared
            else []
        )
        title = f"{self.launched} on {self.gpu.title}"
        return Document(title, tuple(_answer(self)), (best, *beside, cost))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "gpu": self.gpu.key,
            **({} if self.problem is None else dataclasses.asdict(self.problem)),
            "best": self.best.to_dict(),
            "best_predicted": self.best_predicted.to_dict(),
            "best_recorded": self.best_recorded and dataclasses.asdict(self.best_recorded),
            "faster": self.faster,
            "compared": {name: one.to_dict() for name, one in self.compared.items()},
            "exhaustive": dataclasses.asdict(self.exhaustive),
            "spent": dataclasses.asdict(self.spent),
            "basis": self.basis,
            "calibrated": self.calibrated,
            "table": plain_rows(self.table),
        }


def _best_sentences(tuning: Tuning, top: int) -> Iterator[str]:
    versions = listed([str(one) for one in tuning.table["triton_version"].unique()])
    yield f"Compiled with Triton {versions}."
    yield range_sentence(tuning.gpu, tuning.basis, calibrated=tuning.calibrated)
    if "warm" in tuning.table:
        yield "Each time is that right after the same launch, which left in the L2 cache what fits."
    if tuning.best_recorded is not None:
        yield (
            f"The recorded times were measured on another {tuning.gpu.title}, with the version of"
            " Triton that `explain` names."
        )
    ranked = len(_ranked(tuning))
    if ranked > top:
        yield f"These are {top} of {ranked}; `--top` shows more."
    without = tuning.table[tuning.table["predicted_us"].isna()]
    reasons = without["reason"].fillna("no time is predicted of what it compiles to")
    knobs = _knobs(tuning)
    names = (
        ", ".join(f"{name} {row[name]}" for name in knobs if row.get(name) is not None)
        for row in plain_rows(without)
    )
    named = map(named_reason, reasons, names)
    yield from failed_sentences(zip(without["status"], named, strict=True))


def _named(launch: Choice | RecordedLaunch) -> str:
    settings = launch.settings if isinstance(launch, Choice) else launch.config.settings.items()
    words = [f"{literal(name)} {literal(str(value))}" for name, value in settings]
    return ", ".join([literal(launch.kernel), *words, count(launch.num_programs, "program")])


def _answer(tuning: Tuning) -> Iterator[str]:
    best, predicted = tuning.best, tuning.best_predicted
    yield from rival_sentences(tuning.faster)
    if best.us is not None:
        off = difference_cell(best.predicted_us, best.us)
        yield (
            f"Fastest measured: {_named(best)}: {cell(best.us)} us; the prediction was"
            f" {cell(best.predicted_us)} us ({off})."
        )
    yield (
        f"Best predicted: {_named(predicted)}: {cell(predicted.predicted_us)} us"
        f" ({cell(predicted.predicted_low_us)} to {cell(predicted.predicted_high_us)});"
        f" what takes longest is {PARTS[predicted.bound]}."
    )
    yield from _close(tuning)
    yield from tuning.less_work
    recorded = tuning.best_recorded
    if recorded is not None:
        yield f"Fastest recorded: {_named(recorded)}: {cell(recorded.measurement.us)} us."


def _close(tuning: Tuning) -> Iterator[str]:
    error, best = tuning.error, tuning.best_predicted.predicted_us
    others = [one for one in _ranked(tuning)[1:] if one.us is None]
    close = sum(one.predicted_us / best - 1 < error for one in others)
    if close:
        timeless = "" if tuning.best.us is None else ", without a measured time,"
        words = f"{count(close, 'other')}{timeless} {'is' if close == 1 else 'are'}"
        yield f"{words} within {error:.0%} of that: which is the fastest, only a measurement says."


def _ranked(tuning: Tuning) -> list[Choice]:
    rows = tuning.table[tuning.table["predicted_us"].notna() & tuning.table["ranked"]]
    return [choice_of(row) for row in rows.to_dict("records")]


SHORT = {"BLOCK_SIZE": "block", "num_warps": "warps", "num_stages": "stages"}
"""Short headers for settings that every reader knows."""


def _knobs(tuning: Tuning) -> list[str]:
    """Return the settings of a tuning: a matrix's, or those in which its launches differ."""
    if tuning.problem is not None:
        return [*SHORT]
    table = tuning.table
    names = [str(name) for name in table if is_setting(str(name))]
    return [name for name in names if len(table[name].astype(str).unique()) > 1] or names


def _best_table(tuning: Tuning, top: int) -> Table:
    columns = ["kernel", "settings", "programs", "predicted us", "bound"]
    columns += ["measured us", "off"] if "us" in tuning.table else []
    return _table(tuning, [(literal(one.kernel), one) for one in _ranked(tuning)[:top]], columns)


def _compared_table(tuning: Tuning) -> Table:
    names: dict[Choice, list[str]] = {}
    for name, one in tuning.compared.items():
        names.setdefault(one, []).append(name.removeprefix("default of "))
    columns = ["kernel", "settings", "programs", "predicted us", "against the best"]
    return _table(tuning, [(listed(called), one) for one, called in names.items()], columns)


def _table(tuning: Tuning, choices: Sequence[tuple[str, Choice]], columns: list[str]) -> Table:
    """Return the *columns* of choices, each with a name for its kernel, and recorded times."""
    knobs, best = _knobs(tuning), tuning.best_predicted.predicted_us

    def cells(kernel: str, one: Choice) -> dict[str, str]:
        settings = dict(one.settings)
        return {
            "kernel": kernel,
            "settings": " / ".join(literal(str(settings.get(name, "-"))) for name in knobs),
            "programs": str(one.num_programs),
            "predicted us": cell(one.predicted_us),
            "bound": part_cell(one.bound),
            "against the best": change(one.predicted_us / best - 1.0),
            "measured us": cell(one.us),
            "off": difference_cell(one.predicted_us, one.us),
            "recorded us": cell(one.recorded_us),
        }

    columns = [*columns, *(["recorded us"] if "recorded_us" in tuning.table else [])]
    short = " / ".join(literal(SHORT.get(name, name)) for name in knobs)
    headers = tuple(short if name == "settings" else name for name in columns)
    rows = (cells(*named) for named in choices)
    return Table(headers, tuple(tuple(row[name] for name in columns) for row in rows))


def _cost_sentences(tuning: Tuning) -> Iterator[str]:
    every, spent = tuning.exhaustive, tuning.spent
    number = every.configurations
    them = "the only configuration" if number == 1 else f"all {number} configurations"
    yield (f"Measuring {them} takes {_cost(every)}, flushes of the L2 cache included.")
    saved = every.launches - spent.launches
    if spent.launches:
        fewer = f": {saved} fewer" if saved > 0 else ""
        yield f"Measuring the {spent.configurations} best predicted took {_cost(spent)}{fewer}."
    else:
        yield f"Nothing was launched: about {saved} launches were saved."
    yield (
        "Launches, warm-up included, and seconds are estimated from the predicted times; both ways"
        " compile equally much."
    )


def _cost(cost: Cost) -> str:
    return f"about {cost.launches} launches, {cost.seconds:.2g} s of the GPU"


class Tunings(Answer, tuple["Tuning", ...]):
    """The configurations of one launch on several GPUs."""

    __slots__ = ()

    def to_document(self, top: int = TOP) -> Document:
        """Return each GPU's choice and its *top* best predicted configurations in words."""
        if len(self) == 1:
            return self[0].to_document(top)
        documents = [(one.gpu.title, one.to_document(top)) for one in self]
        titles = listed([title for title, _ in documents])
        return Document(
            f"{self[0].launched} on {titles}",
            tuple(f"**{title}**: {text}" for title, one in documents for text in one.answer),
            tuple(
                dataclasses.replace(section, title=f"{title}: {section.title}")
                for title, one in documents
                for section in one.sections
            ),
        )

    def to_dict(self) -> list[dict[str, Any]]:
        """Return each GPU's choice as plain values, for JSON."""
        return [one.to_dict() for one in self]
