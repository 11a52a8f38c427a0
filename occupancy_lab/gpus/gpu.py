"""A GPU's data: the limits of its architecture, its size and its speed.

A multiprocessor is an SM (NVIDIA), a CU (AMD gfx9, gfx1250) or a WGP (AMD RDNA), as the vendor's
runtime counts. The numbers and their sources are in data/.
"""

from __future__ import annotations

import csv
import dataclasses
import difflib
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, ClassVar

from occupancy_lab.errors import LONGEST_QUOTE, quoted, refuse, shortened
from occupancy_lab.values import Target


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a number, and whether the number is doubtful.

    A number is doubtful if sources disagree on it, if only a vendor's advertisement, the press or
    an unverified file gives it, or if it is inferred from a sibling.
    """

    text: str
    doubtful: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """The limits that the architectures of both vendors have."""

    target_name: str
    """The compiler's name, without features: sm_90, gfx942."""
    warp_size: int
    """Threads per warp, or work-items per wave in Triton's wave size."""
    max_threads_per_program: int
    """Threads, or work-items, per program."""
    shared_per_multiprocessor: int
    """Shared memory, or LDS, per multiprocessor, bytes."""
    max_shared: int
    """Shared memory, or LDS, that a program may use, bytes; on NVIDIA after opting in."""
    shared_unit: int
    """A program's shared memory or LDS is rounded up to a multiple of this many bytes."""
    issue_rate: int
    """Instructions of any warp that a multiprocessor issues per cycle."""
    instruction_bytes: int
    """Bytes of an instruction."""
    instruction_cache_bytes: int
    """The instruction cache that the warps of a multiprocessor share, bytes."""
    l1_bytes: int | None = None
    """The L1 data cache of a multiprocessor, bytes, including NVIDIA's shared memory; None if not
    known."""
    max_cluster_programs: int | None = None
    """Resident CTAs of clusters per multiprocessor; None if not known."""
    max_cluster_size: int | None = None
    """CTAs of the largest cluster (num_ctas); None if there are no clusters."""
    tensor_multiply_adds: int | None = None
    """16-bit multiply-adds of tensor cores per multiprocessor and cycle, by a warp's own
    instructions; None if not known."""
    warpgroup_multiply_adds: int | None = None
    """The same by instructions of a warpgroup; None if there are none, or if not known."""

    @property
    def max_warps_per_program(self) -> int:
        """Warps, or waves, per program."""
        return self.max_threads_per_program // self.warp_size


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaArchitecture(_Limits):
    """The limits of an NVIDIA architecture that determine the occupancy."""

    vendor: ClassVar[str] = "NVIDIA"
    """The vendor: NVIDIA."""
    multiprocessor_word: ClassVar[str] = "SM"
    """NVIDIA's word for a multiprocessor."""
    warp_word: ClassVar[str] = "warp"
    """NVIDIA's word for a warp."""
    register_word: ClassVar[str] = "register"
    """NVIDIA's word for a register of a thread."""
    shared_word: ClassVar[str] = "shared memory"
    """NVIDIA's word for the memory that a program's threads share."""
    max_warps: int
    """Resident warps per SM."""
    max_threads: int
    """Resident threads per SM."""
    max_programs: int
    """Resident programs (thread blocks) per SM."""
    max_registers_per_thread: int
    """32-bit registers per thread; with more, no program is resident."""
    registers: int
    """32-bit registers per SM."""
    register_unit: int
    """A warp's allocation is rounded up to a multiple of this many 32-bit registers."""
    register_partitions: int
    """Equal parts of the register file; all registers of a warp are in one part."""
    reserved_shared: int
    """Shared memory that the system reserves in each program, bytes."""
    fp32_results: int
    """FP32 multiply-adds per SM and cycle."""
    fp64_results: int
    """FP64 multiply-adds per SM and cycle."""
    max_barriers: int | None = None
    """Named barriers per SM; None if they do not limit the occupancy."""
    tensor_memory: int | None = None
    """Columns of tensor memory per SM; None if there is none."""
    tensor_memory_unit: int | None = None
    """The fewest columns that a program allocates; larger allocations are powers of two."""

    @property
    def target(self) -> Target:
        """Triton's target."""
        return Target("cuda", self.target_name.removeprefix("sm_"), self.warp_size)

    @property
    def schedulers(self) -> int:
        """Equal parts of an SM; a warp stays in one, and uses its tensor cores."""
        return self.register_partitions

    @property
    def compute_capability(self) -> str:
        """NVIDIA's number for the architecture: 9.0."""
        digits = self.target.arch
        return f"{digits[:-1]}.{digits[-1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HipArchitecture(_Limits):
    """The limits of an AMD architecture at the wave size that Triton compiles for."""

    vendor: ClassVar[str] = "AMD"
    """The vendor: AMD."""
    warp_word: ClassVar[str] = "wave"
    """AMD's word for a warp."""
    register_word: ClassVar[str] = "VGPR"
    """AMD's word for a register of a lane."""
    shared_word: ClassVar[str] = "LDS"
    """AMD's word for the memory that a workgroup's lanes share."""
    multiprocessor: str
    """CU or WGP, whichever the numbers per multiprocessor refer to."""
    simds: int
    """SIMDs per multiprocessor."""
    max_waves_per_simd: int
    """Resident waves per SIMD."""
    vgprs_per_simd: int
    """32-bit vector registers per lane of a SIMD, shared by its waves."""
    vgpr_granule: int
    """A wave's allocation is rounded up to a multiple of this many vector registers."""
    max_vgprs: int
    """Vector registers that a wave can address, including AGPRs if the file is unified."""
    max_multiwave_programs: int
    """Barrier slots: resident programs of more than one wave per multiprocessor."""
    descriptor_granule: int
    """Vector registers per unit of the kernel descriptor's count."""
    agpr_file: str | None = None
    """Where AGPRs are: "unified" with the VGPRs, or "separate"; None if there are none."""
    sgprs_per_simd: int | None = None
    """Scalar registers per SIMD; None if they do not limit the occupancy."""
    sgpr_granule: int | None = None
    """A wave's allocation is rounded up to a multiple of this many scalar registers."""
    sgpr_reserve: int | None = None
    """Scalar registers that the trap handler takes from each wave, after the rounding."""
    old_registers: int | None = None
    """ROCm's `max_num_regs` up to version 6.3; None if that did not support the target."""
    max_sgprs: int | None = None
    """Scalar registers that a wave can use; None if they do not limit the occupancy."""

    @property
    def target(self) -> Target:
        """Triton's target."""
        return Target("hip", self.target_name, self.warp_size)

    @property
    def schedulers(self) -> int:
        """Equal parts of a multiprocessor; a wave stays in one, and uses its matrix cores."""
        return self.simds

    @property
    def multiprocessor_word(self) -> str:
        """AMD's word for a multiprocessor of this architecture: CU or WGP."""
        return self.multiprocessor

    @property
    def max_warps(self) -> int:
        """Resident waves per multiprocessor."""
        return self.simds * self.max_waves_per_simd

    @property
    def max_threads(self) -> int:
        """Resident work-items per multiprocessor."""
        return self.max_warps * self.warp_size

    @property
    def registers(self) -> int:
        """32-bit vector registers per multiprocessor, all lanes: HIP's regsPerBlock since 2025."""
        return self.vgprs_per_simd * self.simds * self.warp_size


Architecture = CudaArchitecture | HipArchitecture


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or a bare architecture, for which only the limits are known."""

    key: str
    """The name for asking: h100, or sm_90 for a bare architecture."""
    title: str
    """The name for printing: H100 SXM."""
    architecture: Architecture
    """The limits per multiprocessor."""
    multiprocessors: int | None = None
    """SMs, CUs or WGPs, as in `architecture.multiprocessor_word`."""
    gpcs: tuple[int, ...] | None = None
    """SMs of each group in which a cluster must lie, a GPC or a part of it; None if not known."""
    bandwidth_gbs: float | None = None
    """Peak bandwidth of the device memory, 1e9 bytes per second."""
    memory_gib: int | None = None
    """Device memory, GiB."""
    l2_bytes: int | None = None
    """L2 cache of the whole GPU, bytes: all XCDs together on AMD's chiplet GPUs."""
    infinity_cache_bytes: int | None = None
    """AMD's memory-side cache behind the L2, bytes; None if there is none."""
    boost_mhz: int | None = None
    """The highest clock of the multiprocessors, MHz."""
    fp32_tflops: float | None = None
    """32-bit operations outside tensor cores, 1e12 per second; a multiply-add counts as two. This
    and the following are the data sheet's dense rates, at the clock that it assumes."""
    fp64_tflops: float | None = None
    """The same for 64 bits."""
    tensor_fp16_tflops: float | None = None
    """Operations of tensor cores (AMD's matrix cores), by the operands' dtype; also None if there
    is no such instruction."""
    tensor_bf16_tflops: float | None = None
    tensor_tf32_tflops: float | None = None
    tensor_fp32_tflops: float | None = None
    tensor_fp8_tflops: float | None = None
    tensor_int8_tflops: float | None = None
    tensor_fp64_tflops: float | None = None
    sources: Mapping[str, Source] = dataclasses.field(
        default_factory=lambda: MappingProxyType({}), repr=False, compare=False
    )
    """The source of each number, by the name of a field of the Gpu or of its architecture."""

    @property
    def target(self) -> Target:
        """Triton's target."""
        return self.architecture.target

    @property
    def vendor(self) -> str:
        """The vendor: NVIDIA or AMD."""
        return self.architecture.vendor

    @property
    def has_rates(self) -> bool:
        """Whether the size, clock and bandwidth are known, which predictions need."""
        return None not in {self.multiprocessors, self.boost_mhz, self.bandwidth_gbs}

    @property
    def doubtful(self) -> tuple[str, ...]:
        """The fields with doubtful numbers, in the order of the data files."""
        return tuple(name for name, source in self.sources.items() if source.doubtful)


_CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "tuple[int,": lambda text: tuple(map(int, text.split("+"))),
}
"""Functions that convert a text to a field's value, by the first word of the field's type."""


@functools.cache
def architectures() -> Mapping[str, Architecture]:
    """Return the limits of each architecture by its compiler's name: sm_90, gfx942."""
    found: dict[str, Architecture] = {}
    for name, rows in _limits().items():
        kind = CudaArchitecture if name.startswith("sm_") else HipArchitecture
        found[name] = kind(target_name=name, **_row_values(kind, rows))
    return MappingProxyType(found)


@functools.cache
def bare_gpus() -> Mapping[str, Gpu]:
    """Return each architecture as a Gpu of unknown size and speed, by its compiler's name."""
    return MappingProxyType(
        {
            name: Gpu(
                key=name,
                title=name,
                architecture=architecture,
                sources=MappingProxyType(_row_sources(_limits()[name])),
            )
            for name, architecture in architectures().items()
        }
    )


@functools.cache
def devices() -> Mapping[str, Gpu]:
    """Return each GPU that is sold by its key: h100, mi300x."""
    numbers = _by_owner("device_numbers.csv", "device")
    return MappingProxyType({row["device"]: _device(row, numbers) for row in _rows("devices.csv")})


@functools.cache
def usual_gpus() -> Mapping[str, Gpu]:
    """Return the GPU that represents each target if none is named, by the target's name.

    It is the first GPU in the table with the target, or else the bare architecture.
    """
    found: dict[str, Gpu] = {}
    for gpu in (*devices().values(), *bare_gpus().values()):
        found.setdefault(gpu.target.name, gpu)
    return MappingProxyType(found)


@functools.cache
def aliases() -> Mapping[str, tuple[str, ...]]:
    """Return the other names of each device by its key, including those that drivers report."""
    return MappingProxyType({row["device"]: _split(row["aliases"]) for row in _rows("devices.csv")})


@functools.cache
def pci_ids() -> Mapping[int, str]:
    """Return the key of the AMD device by PCI device id; siblings of other sizes share some ids."""
    return MappingProxyType(
        {
            int(pci_id, 16): row["device"]
            for row in _rows("devices.csv")
            for pci_id in _split(row["pci_ids"])
        }
    )


@functools.cache
def citations() -> Mapping[str, str]:
    """Return the citation of each source, by the id in the data files."""
    return MappingProxyType({row["id"]: row["citation"] for row in _rows("sources.csv")})


def _device(row: Mapping[str, str], numbers: Mapping[str, list[dict[str, str]]]) -> Gpu:
    bare = bare_gpus()[row["architecture"]]
    rows = numbers.get(row["device"], [])
    return dataclasses.replace(
        bare,
        key=row["device"],
        title=row["title"],
        sources=MappingProxyType({**bare.sources, **_row_sources(rows)}),
        **_row_values(Gpu, rows),
    )


def _row_values(kind: type[Any], rows: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    types = {field.name: str(field.type).split(" ")[0] for field in dataclasses.fields(kind)}
    return {row["quantity"]: _CONVERTERS[types[row["quantity"]]](row["value"]) for row in rows}


def _row_sources(rows: Iterable[Mapping[str, str]]) -> dict[str, Source]:
    return {
        row["quantity"]: Source(citations()[row["source"]], row["doubtful"] == "yes")
        for row in rows
    }


@functools.cache
def _limits() -> dict[str, list[dict[str, str]]]:
    return _by_owner("architectures.csv", "architecture")


def _by_owner(file: str, owner: str) -> dict[str, list[dict[str, str]]]:
    groups: dict[str, list[dict[str, str]]] = {}
    for row in _rows(file):
        groups.setdefault(row[owner], []).append(row)
    return groups


def _rows(file: str) -> list[dict[str, str]]:
    text = resources.files("occupancy_lab.gpus").joinpath("data", file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split("|")) if text else ()


_BRANDS = frozenset({"nvidia", "geforce", "tesla", "amd", "instinct", "radeon", "graphics"})
_CUDA = re.compile(r"(?:cuda:?|sm|compute)([0-9]{2,3})[af]?(?::([0-9]+))?")
_HIP = re.compile(r"(?:hip:?)?(gfx[0-9a-f]{3,})(?::(?:sramecc|xnack)\+?)*(?::([0-9]+))?")


def find_gpu(text: str) -> Gpu:
    """Return the GPU that *text* means; case, spaces, hyphens and underscores do not matter.

    Known are the table's devices by key, title or alias (h100, H100 SXM, NVIDIA H100 80GB HBM3) and
    its architectures (sm_90, sm_90a, cuda:90:32, gfx942, hip:gfx942:64). A bare architecture has
    its limits, but None for its size and speed.

    Raises InputError if nothing in the table has this name, or if the architecture has another warp
    size.
    """
    squeezed = re.sub(r"[\s_-]+", "", text.lower())
    if match := _CUDA.fullmatch(squeezed):
        return _bare_gpu(f"sm_{match[1]}", match[2])
    if match := _HIP.fullmatch(squeezed):
        return _bare_gpu(match[1], match[2])
    device = find_device(text)
    if device is None:
        normalized = _normalized(text)[:LONGEST_QUOTE]
        names = {**_keys(), **{_normalized(name): name for name in bare_gpus()}}
        close = [names[name] for name in difflib.get_close_matches(normalized, names, n=5)]
        question = f"; did you mean {' or '.join(dict.fromkeys(close))}?" if close else "."
        refuse(
            f"No GPU is called {quoted(text)}{question} `occupancy-lab gpus` lists those it knows."
        )
    return device


def find_gpus(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs in a comma-separated list, each once, in order.

    Raises InputError if a part is empty or unknown to `find_gpu`.
    """
    parts = text.split(",")
    if not all(part.strip() for part in parts):
        refuse(f"The list of GPUs {quoted(text)} has an empty part; write it like h100,mi300x.")
    return tuple({gpu.key: gpu for gpu in map(find_gpu, parts)}.values())


def find_device(name: str) -> Gpu | None:
    """Return the device with exactly this *name*, ignoring brands, or None."""
    key = _keys().get(_normalized(name))
    return None if key is None else devices()[key]


@functools.cache
def _keys() -> Mapping[str, str]:
    return {
        _normalized(name): key
        for key, gpu in devices().items()
        for name in (key, gpu.title, *aliases()[key])
    }


def _normalized(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in _BRANDS)


def _bare_gpu(name: str, warp_size: str | None) -> Gpu:
    gpu = bare_gpus().get(name)
    if gpu is None:
        known = ", ".join(other for other in bare_gpus() if other[:2] == name[:2])
        refuse(f"The architecture {shortened(name)} is not in the table, which has {known}.")
    architecture = gpu.architecture
    if warp_size not in {None, str(architecture.warp_size)}:
        refuse(
            f"Triton compiles {name} for {architecture.warp_word}s of {architecture.warp_size}, "
            f"not {shortened(str(warp_size))}; write {gpu.target}."
        )
    return gpu
