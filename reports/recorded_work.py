"""Reads the recording of public launches on a GPU, which keep_work.py made of record_work.py's.

Each launch has its arguments, the texts of its binary, its times, and Nsight Compute's counters if
they were recorded; sampled launches also have each instruction.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import lzma
import tarfile
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from record_files import DATA, read_table

from occupancy_lab.arguments import Descriptor, Dtype, Pointer
from occupancy_lab.compiling.texts import Texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.arguments import Plain

FIRST_GPU = "h100"
"""The GPU whose files also have the texts of binaries that the other GPU launched."""
NAMES = MappingProxyType(
    {
        "instructions": "smsp__inst_executed.sum",
        "thread_instructions": "smsp__thread_inst_executed.sum",
        "tensor_instructions": "sm__inst_executed_pipe_tensor.sum",
        "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
        "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
        "l2_read_sectors": "lts__t_sectors_op_read.sum",
        "l2_write_sectors": "lts__t_sectors_op_write.sum",
        "l2_sectors": "lts__t_sectors_srcunit_tex.sum",
        "dram_read_bytes": "dram__bytes_read.sum",
        "dram_written_bytes": "dram__bytes_write.sum",
        "ncu_ns": "gpu__time_duration.sum",
    }
)
"""Nsight Compute's names of the most used counters."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a sampled launch, with the counts of all its warps."""

    offset: int
    """Bytes from the start of the function."""
    sass: str
    executed: int
    """Times that warps executed it."""
    threads: int
    """The same for threads whose predicate was true."""
    samples: int
    """Samples of warps at this instruction, stalled or not."""
    stalls: Mapping[str, int]
    """The samples by reason."""
    sectors: int
    """Sectors of 32 bytes that its accesses to global memory request."""
    sectors_ideal: int
    """The least possible number of them."""
    wavefronts: int
    """Passes that its accesses to shared memory take."""
    wavefronts_ideal: int


@dataclass(frozen=True, slots=True, eq=False)
class RecordedLaunch:
    """A launch that was made on the GPU."""

    gpu: str
    id: str
    use: str
    """tuning, held out or fresh: the permitted use, which depends on the kernel's name."""
    kernel: str
    package: str
    group: str
    trial: str
    grid: tuple[int, ...]
    arguments: Mapping[str, Plain]
    """All parameters in order, including constexprs."""
    constexprs: tuple[str, ...]
    values: Mapping[str, tuple[int, ...]]
    """The flat values of small integer tensors."""
    storages: Mapping[str, tuple[int, int]]
    """For each tensor, the number of its storage among the launch's, and its offset in it in bytes;
    a parameter that is a tuple has its last tensor's."""
    binary: str
    row: Mapping[str, str]
    """The row of the table, as text; "" if not known."""

    def number(self, column: str) -> float | None:
        """Return a number of the table by its column or its name in NAMES, or None if not known."""
        text = self.row.get(NAMES.get(column, column), "")
        return float(text) if text else None

    @property
    def is_counted(self) -> bool:
        """Whether the launch has Nsight Compute's counters."""
        return self.number("instructions") is not None

    @property
    def ttir(self) -> str:
        """Triton's first text."""
        return _texts(self.gpu, "ttir")[self.binary].decode()

    @property
    def ttgir(self) -> str:
        """Triton's text with layouts."""
        return _texts(self.gpu, "ttgir")[self.binary].decode()

    @property
    def cubin(self) -> bytes:
        """The binary, with zeros in place of the copy of its PTX."""
        return _texts(self.gpu, "cubin")[self.binary]

    @property
    def texts(self) -> Texts:
        """All texts as a compile returns them; counted and sampled launches have PTX."""
        warps, ctas, shared = (int(self.row[name]) for name in ("num_warps", "num_ctas", "shared"))
        return Texts(
            *(self.kernel, "cuda", warps, ctas, shared),
            ttir=self.ttir,
            ttgir=self.ttgir,
            ptx=None if (ptx := _texts(self.gpu, "ptx").get(self.binary)) is None else ptx.decode(),
            cubin=self.cubin,
        )

    @property
    def executed(self) -> float | None:
        """Instructions executed by its warps, from the counter or the samples."""
        if self.instructions:
            return sum(one.executed for one in self.instructions)
        return self.number("instructions")

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions in order if the launch was sampled, else none."""
        return _sampled(self.gpu).get(self.id, ())


def _plain(value: Any) -> Plain:
    if isinstance(value, dict):
        if "pointer" in value:
            return Pointer(value["pointer"], value["storage_bytes"], value["aligned"])
        if "descriptor" in value:
            base: Any = _plain(value["descriptor"])
            sides = (tuple(value[name]) for name in ("shape", "strides", "block_shape"))
            return Descriptor(base, *sides, padding=value["padding"])
        if "tuple" in value:
            members: Any = tuple(map(_plain, value["tuple"]))
            return members  # type: ignore[no-any-return]
        return Dtype(value["dtype"])
    plain: Plain = value
    return plain


@functools.cache
def recorded_launches(gpu: str = "h100") -> tuple[RecordedLaunch, ...]:
    """Return all launches of a recording, in the order of the table."""
    rows = read_table(DATA / f"work-{gpu}.csv")
    with lzma.open(DATA / f"work-{gpu}-launches.jsonl.xz", "rt", encoding="utf-8") as file:
        further = {one["id"]: one for one in map(json.loads, file)}
    return tuple(_launch(gpu, row, further[row["id"]]) for row in rows)


def _launch(gpu: str, row: dict[str, str], further: dict[str, Any]) -> RecordedLaunch:
    return RecordedLaunch(
        gpu=gpu,
        **{name: row[name] for name in ("id", "use", "kernel", "package", "group", "trial")},
        grid=tuple(map(int, row["grid"].split(" x "))),
        arguments={name: _plain(value) for name, value in further["arguments"].items()},
        constexprs=tuple(further["constexprs"]),
        values={name: tuple(map(int, value)) for name, value in further["values"].items()},
        storages={name: (place, start) for name, (place, start) in further["storages"].items()},
        binary=row["binary"],
        row=row,
    )


@functools.cache
def _texts(gpu: str, kind: str) -> dict[str, bytes]:
    found = {} if gpu == FIRST_GPU else dict(_texts(FIRST_GPU, kind))
    with tarfile.open(DATA / f"work-{gpu}-{kind}.tar.xz") as tar:
        for member in tar:
            if (file := tar.extractfile(member)) is not None:
                found[member.name.partition(".")[0]] = file.read()
    return found


@functools.cache
def _sampled(gpu: str) -> dict[str, tuple[Instruction, ...]]:
    found: dict[str, list[Instruction]] = {}
    content = lzma.decompress((DATA / f"work-{gpu}-lines.csv.xz").read_bytes()).decode()
    for row in csv.DictReader(io.StringIO(content)):
        numbers = ("offset", "executed", "threads", "samples", "sectors", "sectors_ideal")
        stalls = (one.split("=") for one in row["stalls"].split())
        found.setdefault(row["id"], []).append(
            Instruction(
                sass=row["sass"],
                stalls={name: int(count) for name, count in stalls},
                **{name: int(row[name] or 0) for name in numbers},
                **{name: int(row[name] or 0) for name in ("wavefronts", "wavefronts_ideal")},
            )
        )
    return {key: tuple(some) for key, some in found.items()}
