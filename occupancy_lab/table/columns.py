"""Every column that a table of launches may have: its meaning and its values.

A column that is not listed here is a knob or an argument of a kernel, and may have any value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from occupancy_lab.expressions import Kind, Value
from occupancy_lab.files import read_cell
from occupancy_lab.values import COUNTERS, ITEM_BYTES, Conditions, Status

MOST = 2.0**53
"""The largest number in a file: all integers up to it are also floats."""
FLAGS: Mapping[Any, bool] = {"True": True, "False": False, True: True, False: False}
"""The values of a flag: in a cell of CSV, and in JSON."""


@dataclass(frozen=True, slots=True)
class Column:
    """The values of a column's cells; text by default."""

    meaning: str = ""
    kind: Kind = Kind.TEXT
    words: str = "text"
    """The allowed values in words."""
    least: float = 0.0
    most: float = MOST
    whole: bool = False
    texts: tuple[str, ...] = ()
    """The allowed texts; empty allows any."""
    result: bool = True
    """Whether it is the result of compiling or measuring; other columns identify the row."""

    @property
    def type(self) -> str:
        """The column's pandas type."""
        if self.kind is Kind.NUMBER:
            return "Int64" if self.whole else "Float64"
        return "boolean" if self.kind is Kind.CONDITION else "object"

    @property
    def holds_any_text(self) -> bool:
        """Whether a cell may be any text."""
        return self.kind is Kind.TEXT and not self.texts

    def read(self, cell: Any) -> Any:
        """Return the value of a *cell* of CSV or JSON; None for an empty one and for NaN.

        Raises ValueError or OverflowError if the column does not allow the value.
        """
        if cell == "" or (isinstance(cell, float) and math.isnan(cell)):
            return None
        if self.kind is Kind.NUMBER:
            number = math.nan if isinstance(cell, bool) else float(cell)
            if self.least <= number <= self.most and not (self.whole and number % 1):
                return int(number) if self.whole else number
        elif self.kind is Kind.CONDITION:
            if cell in FLAGS:
                return FLAGS[cell]
        elif cell in self.texts or not self.texts:
            return read_cell(cell)
        raise ValueError(cell)


TEXT = Column()
FLAG = Column(kind=Kind.CONDITION, words="True or False")
COUNT = Column(kind=Kind.NUMBER, words="a whole number, 0 or more", whole=True)
AT_LEAST_1 = Column(kind=Kind.NUMBER, words="a whole number, 1 or more", least=1.0, whole=True)
AMOUNT = Column(kind=Kind.NUMBER, words="a number, 0 or more")
ERROR = Column(kind=Kind.NUMBER, words="a number, 0 or more", most=math.inf)
SHARE = Column(kind=Kind.NUMBER, words="a number from 0 to 1", most=1.0)
TIME = Column(kind=Kind.NUMBER, words="a number above 0", least=math.ulp(0.0))
DTYPE = Column(words=f"one of {', '.join(ITEM_BYTES)}", texts=tuple(ITEM_BYTES))


def _like(column: Column, **meanings: str) -> dict[str, Column]:
    return {
        name: dataclasses.replace(column, meaning=meaning) for name, meaning in meanings.items()
    }


def _naming(columns: Mapping[str, Column]) -> dict[str, Column]:
    return {name: dataclasses.replace(column, result=False) for name, column in columns.items()}


_CONFIGURATION = _naming(
    {
        **_like(
            TEXT,
            gpu="the GPU, by the name to ask for it",
            target="what the kernel was compiled for",
            kernel="the kernel's name",
        ),
        **_like(AT_LEAST_1, rows="rows of the matrix", cols="columns of the matrix"),
        **_like(DTYPE, dtype="the matrix's dtype"),
        **_like(
            AT_LEAST_1,
            BLOCK_SIZE="elements that a program holds at once",
            num_warps="warps (waves) per program",
            num_stages="stages of the loop",
        ),
    }
)
_OUTCOME = _like(TEXT, status=", ".join(Status), reason="why the status is not ok")
_RESOURCES = _like(
    COUNT,
    n_regs="registers per thread (VGPRs per lane)",
    n_spills="4-byte words of local memory per thread, spilled or not",
    shared="dynamic shared memory (LDS) per program, bytes",
    pipeline_shared="the part of it that holds rows in flight, bytes",
    static_shared="shared memory in the binary, bytes",
    barriers="named barriers per program (NVIDIA)",
    tensor_memory="columns of tensor memory per program (NVIDIA)",
    num_ctas="CTAs per program; several are a cluster (NVIDIA)",
    sgprs="scalar registers per wave (AMD)",
    allocated_vgprs="VGPRs that the kernel descriptor asks for (AMD)",
    load_bytes="the widest global load of a thread, bytes",
    store_bytes="the widest global store of a thread, bytes",
    local_bytes="local memory (scratch) per thread, bytes",
    **COUNTERS,
)
_RESOURCES |= _naming({"num_ctas": _RESOURCES["num_ctas"]})
_FOLLOWING = {
    **_like(COUNT, programs_per_multiprocessor="programs that one SM, CU or WGP holds at once"),
    **_like(TEXT, limiter="the resources that allow no more, joined by +"),
    **_like(SHARE, occupancy="resident warps over the most there can be, 0 to 1"),
    **_like(COUNT, num_programs="programs launched"),
    **_like(AMOUNT, waves="programs launched over programs that the GPU holds at once"),
    **_like(
        COUNT,
        tutorial_programs="programs_per_multiprocessor by the tutorial's formula",
        tutorial_num_programs="num_programs by the tutorial's formula",
    ),
    **_like(
        TIME,
        predicted_us="predicted time of a launch, us",
        predicted_low_us="the 10th percentile of what such launches take, us",
        predicted_high_us="their 90th percentile, us",
        busiest_us="how long that unit works at its peak rate, us",
    ),
    **_like(
        AMOUNT,
        predicted_gbs="bandwidth that the traffic comes to in that time, GB/s",
        least_us="the least time that the bytes allow by the data sheet, us",
    ),
    **_like(
        TEXT,
        bound="what would take longest alone: latency, issue, bandwidth, tail, tensor, lsu ...",
        busiest="the unit that works for longest: issue, tensor, lsu, l2, bandwidth ...",
        basis="where the prediction's constants are from",
        triton_version="the Triton that compiled it",
    ),
}
_WORK = {
    **_like(
        COUNT,
        flops="floating-point operations of a launch",
        executed_instructions="instructions that its warps execute",
        load_sectors="sectors of 32 bytes that its loads ask for",
        store_sectors="sectors of 32 bytes that its stores write",
        l2_bytes="bytes that its programs ask the L2 cache for and write to it",
        dram_read_bytes="bytes that device memory has to give",
        dram_written_bytes="bytes that device memory has to take in the end",
    ),
    **_like(
        AMOUNT,
        intensity="floating-point operations per byte of device memory",
        speed_of_light_us="the least time that bytes and FLOPs allow by the data sheet, us",
        lost_us="time above that of the most that it may do, us; in a trace that of all launches",
    ),
    "lost_of": Column(
        "the time that lost_us is of, measured or predicted",
        words="measured or predicted",
        texts=("measured", "predicted"),
    ),
}
_MEASURED = {
    **_like(AT_LEAST_1, launched="programs that were launched"),
    **_like(
        TEXT,
        measured="measured, wrong result, out of memory, launch failed, device lost",
        why_not="why there is no time",
    ),
    **_like(
        TIME,
        us="median time of a launch, us",
        us_low="time that a tenth of the launches stayed below, us",
        us_high="time that a tenth of the launches passed, us",
    ),
    **_like(AT_LEAST_1, runs="launches timed"),
    **_like(
        ERROR,
        relative_error="norm of the difference from torch in float64, over that of its result",
    ),
    **_like(FLAG, mostly_launch="whether the time is less than twice an empty kernel's"),
    **_like(
        TEXT,
        **{one.name: "a condition of the measurement" for one in dataclasses.fields(Conditions)},
    ),
}
_MEASURED["sm_mhz"] = dataclasses.replace(COUNT, meaning="a condition of the measurement")
_OTHERS = {
    **_naming(
        _like(
            TEXT,
            arguments="the arguments of a launch, or their types",
            constexprs="the constexprs of a launch",
        )
    ),
    **_naming(
        _like(
            COUNT,
            maxnreg="the most registers per thread that were asked for (NVIDIA)",
            waves_per_eu="the waves per SIMD that were asked for (AMD)",
        )
    ),
    **_like(
        TEXT,
        grid="programs in each dimension",
        next_step="what brings a further program, or why nothing does",
        gain_by="by what a kernel would gain, and why",
        source="the file and line of the kernel",
        why_not_counted="why it is not known what the launch does",
        why_not_executed="why it is not known what its machine code executes",
        entry="its folder in a cache of Triton",
        program="a digest of the compiler's first text: entries that are equal in it are alike",
        gpu_title="what the GPU is called",
        use="what a recorded row is for",
    ),
    **_like(
        COUNT,
        launched_warps="warps per program as launched",
        local_accesses="instructions that load from or store to local memory",
        next_programs="programs per multiprocessor after the next step",
        fewer_registers="registers per thread that the next step takes fewer",
        fewer_shared="bytes of shared memory that the next step takes fewer",
        vgpr_spills="VGPRs spilled (AMD)",
        sgpr_spills="SGPRs spilled (AMD)",
        agprs="accumulation VGPRs per lane (AMD)",
        max_warps="the most warps per multiprocessor",
        warps_per_multiprocessor="warps resident at once",
        multiprocessors="SMs, CUs or WGPs of the GPU",
        resident_programs="programs that the whole GPU holds at once",
        rounds="pieces of work that the busiest place does",
        last_round="pieces of work left for the last round",
        read_bytes="bytes read",
        written_bytes="bytes written",
    ),
    **_like(
        AMOUNT,
        gain="how many times faster, by predicted times",
        bandwidth_gbs="the data sheet's bandwidth, GB/s",
        tensor_size="multiply-adds of a warp per instruction of its tensor cores",
    ),
    **_like(COUNT, binary="a digest of the kernel's instructions"),
    **_like(FLAG, whole_work="whether it reads and writes as much as the row that moves most"),
}

_TRACED = {
    **_like(
        COUNT,
        launches="launches of the script itself",
        tuning_launches="further launches, by an autotuner",
        captured_launches="launches that a CUDA graph captured",
        grids="grids over which it was launched",
        timed_launches="launches that were timed",
        processes="processes that launched it",
        devices="devices that it was launched on",
    ),
    **_like(FLAG, expected="whether it is launched, or predicted to be by its autotuner"),
    **_like(SHARE, tail="how full the last wave of programs is, 0 to 1"),
    **_like(
        AMOUNT,
        total_us="measured time of all launches, us",
        predicted_total_us="predicted time of all launches, us",
        saved_us="what `action` is predicted to save of the time of all launches, us",
    ),
    **_like(
        TEXT,
        action="the change of a launch that is predicted to bring most, and on what condition",
        advice="what explain says first of the launch: that change, with its conditions and time",
    ),
}

SWEEP_COLUMNS: tuple[str, ...] = (*_CONFIGURATION, *_OUTCOME, *_RESOURCES, *_FOLLOWING, *_WORK)
"""The columns of a sweep, in order."""
MEASURED_COLUMNS: tuple[str, ...] = tuple(_MEASURED)
"""The columns that a measurement adds to those of a sweep."""
RESOURCES: tuple[str, ...] = tuple(_RESOURCES)
"""The columns with a program's resources: fields of Resources, or computed from one."""
COLUMNS: Mapping[str, Column] = {
    **_CONFIGURATION,
    **_OUTCOME,
    **_RESOURCES,
    **_FOLLOWING,
    **_WORK,
    **_MEASURED,
    **_OTHERS,
    **_TRACED,
}
"""Every column; an unknown value is missing, never 0."""
RESULTS = frozenset(name for name, column in COLUMNS.items() if column.result)
"""The columns that are results of compiling or measuring; every other column identifies the row."""


def kinds_of(rows: Iterable[Mapping[str, Value]]) -> dict[str, Kind]:
    """Return the kind of each column of *rows*, from its cells unless it is a text column."""
    cells: dict[str, list[Value]] = {}
    for row in rows:
        for name, value in row.items():
            cells.setdefault(name, []).append(value)
    return {name: _kind(name, values) for name, values in cells.items()}


def _kind(name: str, values: Sequence[Value]) -> Kind:
    column = COLUMNS.get(name)
    if column is not None and column.kind is Kind.TEXT:
        return Kind.TEXT
    kinds = {bool: Kind.CONDITION, int: Kind.NUMBER, float: Kind.NUMBER}
    found = {kinds.get(type(value), Kind.TEXT) for value in values if value is not None}
    if not found:
        return Kind.NUMBER if column is None else column.kind
    return found.pop() if len(found) == 1 else Kind.TEXT


def pandas_types(names: Iterable[str]) -> dict[str, str]:
    """Return the pandas types of those columns of *names* that are not texts."""
    return {name: COLUMNS[name].type for name in names if COLUMNS[name].kind is not Kind.TEXT}
