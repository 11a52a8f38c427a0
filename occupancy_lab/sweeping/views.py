"""A sweep's table, chosen from, and as a screen shows it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import quoted
from occupancy_lab.files import plain_rows
from occupancy_lab.gpus import find_gpu
from occupancy_lab.sweeping.recorded import row_conditions
from occupancy_lab.table.columns import COLUMNS, MEASURED_COLUMNS, RESULTS, kinds_of
from occupancy_lab.table.rows import to_table
from occupancy_lab.text.document import literal
from occupancy_lab.text.words import (
    as_sentence,
    cell,
    change,
    conditions_sentence,
    count,
    difference,
    limiter_list,
    listed,
    range_sentence,
)
from occupancy_lab.throughput.launch_time import MEASURED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.table.rows import View
    from occupancy_lab.text.document import Block, Table

SHOWN = {
    "n_regs": "n_regs",
    "local_bytes": "local",
    "shared": "shared",
    "programs_per_multiprocessor": "programs",
    "tutorial_programs": "tutorial",
    "occupancy": "%",
    "limiter": "limiter",
    "predicted_us": "predicted us",
    "speed_of_light_us": "least us",
    "bound": "bound",
    "us": "measured us",
    "difference": "off",
}
"""The columns that a wide screen has room for, and their names there; exports have them all."""
SPARED = ("tutorial_programs", "shared", "limiter", "n_regs")
"""The columns that a narrow screen goes without, the first one first."""
_UNTOLD = ("target", "status", "reason", "triton_version", "num_ctas")
"""The naming columns that a screen leaves out."""


LIMITS = "predicted_low_us and predicted_high_us, which exports have"
"""Between what most launches took, of times on a screen that has no room for it."""
UNMEASURED = dict.fromkeys(MEASURED_COLUMNS, "--measure gives it")
"""How to come by a column that a table without measurements has not got."""


def choose(table: pd.DataFrame, view: View) -> pd.DataFrame:
    """Return the rows of a sweep that *view* shows; InputError where it makes no sense of them."""
    rows = plain_rows(table)
    kinds = kinds_of(rows)
    kinds |= {str(name): COLUMNS[str(name)].kind for name in table if str(name) in COLUMNS}
    view.check(kinds, UNMEASURED)
    return table.iloc[view.places(rows, kinds)]


def to_screen(
    table: pd.DataFrame, gpus: Mapping[str, Gpu] | None = None, of: int | None = None
) -> tuple[Block, ...]:
    """Return what a screen has room for: what all rows share, fine rows, failures.

    They are chosen of so many rows as *of*; None is that they are all.

    `predicted us` is always there, `measured us` and how far the prediction is off where launches
    were measured. *gpus* has by their keys GPUs that no table of devices has, such as one at hand.
    """
    grid = [str(name) for name in table if name not in RESULTS and name not in _UNTOLD]
    varying = [name for name in grid if len(table[name].astype(str).unique()) > 1]
    shared = [
        f"{literal(name)} {literal(str(table[name].iloc[0]))}"
        for name in grid
        if name not in varying and len(table)
    ]
    shared += [f"Triton {version}" for version in table["triton_version"].unique()]
    parts: list[Block] = [", ".join(shared)] if shared else []
    fine = table[table["status"] == "ok"]
    if len(fine):
        shown = _shown(fine, gpus or {})
        columns = [name for name in SHOWN if name in shown and _says_something(shown, name)]
        wide = shown[[*varying, *columns]].rename(columns=SHOWN)
        shown = _narrowed(wide)
        spared = [str(name) for name in wide if name not in shown]
        parts.append(_table(shown))
    parts += [_table(rows) for rows in _failures(table, varying) if len(rows)]
    legend = _legend(shown.columns, spared) if len(fine) else ""
    parts.append(f"{_summary(table, of)}.{legend}")
    return (*parts, *_time_sentences(fine, gpus or {}))


def none_meets(table: pd.DataFrame, where: str) -> tuple[Block, ...]:
    """Return what a screen has of a *table* of which no row meets the condition *where*."""
    return (f"{_summary(table)}; none meets --where {literal(quoted(where))}.",)


def _says_something(table: pd.DataFrame, name: str) -> bool:
    """Tell whether a column of results has anything to say that another one has not said."""
    if name == "local_bytes":
        return bool(table[name].fillna(0).any())
    if name == "speed_of_light_us":
        least = table.groupby("gpu", sort=False)[name].nunique()
        return bool((least > 1).any() and table["predicted_us"].isna().any())
    return name == "predicted_us" or bool(table[name].notna().any())


def _shown(fine: pd.DataFrame, gpus: Mapping[str, Gpu]) -> pd.DataFrame:
    """Return rows that are ok with numbers as a screen shows them, in the words of each vendor."""
    vendors = {key: (gpus.get(key) or find_gpu(key)).vendor for key in fine["gpu"].unique()}
    limiters = zip(fine["gpu"], fine["limiter"], strict=True)
    shown = fine.assign(
        occupancy=(fine["occupancy"] * 100).round().astype("Int64"),
        limiter=[", ".join(limiter_list(vendors[key], names)) for key, names in limiters],
        predicted_us=fine["predicted_us"].map(cell, na_action="ignore"),
        speed_of_light_us=fine["speed_of_light_us"].map(cell, na_action="ignore"),
    )
    if "us" not in fine:
        return shown
    off = difference(fine["predicted_us"], fine["us"])
    return shown.assign(
        us=fine["us"].map(cell, na_action="ignore"),
        difference=off.map(change, na_action="ignore"),
    )


def _narrowed(shown: pd.DataFrame) -> pd.DataFrame:
    """Return the table without as many of the columns to be spared as it is too wide for."""
    room = shutil.get_terminal_size().columns
    for name in SPARED:
        if sum(2 + _longest_word(column) for _, column in shown.items()) <= room:
            break
        shown = shown.drop(columns=SHOWN[name], errors="ignore")
    return shown


def _longest_word(column: pd.Series[Any]) -> int:
    texts = [str(column.name), *map(str, column.dropna())]
    return max(len(word) for text in texts for word in text.split())


def _legend(columns: Iterable[str], spared: list[str]) -> str:
    """Say what the columns mean whose names do not say it, and which there was no room for."""
    meanings = {
        "%": "the occupancy",
        "tutorial": "what the tutorial says",
        "least us": "the speed of light by the data sheet",
        "off": "how far the predicted time is off the measured one",
    }
    told = [f"{name} is {meaning}" for name, meaning in meanings.items() if name in columns]
    words = [", ".join(told), f"a wider terminal shows {listed(spared)}" if spared else ""]
    return "".join(f" {as_sentence(one)}" for one in words if one)


def _failures(table: pd.DataFrame, varying: list[str]) -> Iterator[pd.DataFrame]:
    """Return what cannot be launched, and what was launched and has no time, with the reasons."""
    failed = table[table["status"] != "ok"]
    if len(failed):
        yield failed[[*varying, "status", "reason"]].rename(columns=SHOWN)
    if "measured" in table:
        timeless = table[table["measured"].notna() & table["us"].isna()]
        names = SHOWN | {"measured": "when launched", "why_not": "reason"}
        yield timeless[[*varying, "measured", "why_not"]].rename(columns=names)


def _time_sentences(fine: pd.DataFrame, gpus: Mapping[str, Gpu]) -> Iterator[str]:
    for key, rows in fine[fine["predicted_us"].notna()].groupby("gpu", sort=False):
        gpu = gpus.get(str(key)) or find_gpu(str(key))
        basis, calibrated = str(rows["basis"].iloc[0]), gpu.key in MEASURED
        yield range_sentence(gpu, basis, calibrated=calibrated, limits=LIMITS)
    yield from _stages_without_loop(fine)
    if "us" not in fine:
        return
    measured = fine[fine["us"].notna()]
    if len(measured):
        (first,) = plain_rows(measured.head(1))
        yield conditions_sentence(row_conditions(first), first["runs"])


def _stages_without_loop(fine: pd.DataFrame) -> Iterator[str]:
    """Say of which kernels the rows of several num_stages are one launch."""
    if "num_stages" not in fine:
        return
    flat = fine[fine["loop_instructions"].isna() & fine["instructions"].notna()]
    for kernel, rows in flat.groupby("kernel", sort=False):
        if len(rows["num_stages"].unique()) > 1:
            yield (
                f"{literal(str(kernel))} has no loop to load ahead in: rows that differ in"
                " num_stages alone are equal."
            )


def _table(table: pd.DataFrame) -> Table:
    return to_table([*table], plain_rows(table))


def _summary(table: pd.DataFrame, of: int | None = None) -> str:
    counts = table["status"].value_counts()
    parts = ", ".join(f"{number} {status}" for status, number in counts.items())
    several = count(len(table), "configuration")
    if of is not None and of > len(table):
        several = f"{len(table)} of {count(of, 'configuration')}"
    return f"{several}: {parts or 'none'}"
