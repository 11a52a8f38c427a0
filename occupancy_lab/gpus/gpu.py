"""What a GPU allows: the limits of its architecture, its size and its speed.

A multiprocessor is an SM (NVIDIA), a CU (AMD gfx9, gfx1250) or a WGP (AMD RDNA), as the
vendor's runtime counts. The numbers and their sources are in data/.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping  # noqa: TC003 - `from_line` reads the fields' types
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from occupancy_lab.values import Target


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number comes from, and whether to doubt it.

    Doubtful is a number that sources disagree on, that only a vendor's advertisement, the press
    or an unverified file gives, or that is inferred from a sibling.
    """

    text: str
    doubtful: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """The limits that the architectures of both vendors have."""

    target_name: str
    """The compiler's name, without features: sm_90, gfx942."""
    warp_size: int
    """Threads per warp, work-items per wave as Triton compiles for it."""
    max_threads_per_program: int
    """Threads, or work-items, per program."""
    shared_per_multiprocessor: int
    """Shared memory, or LDS, per multiprocessor, bytes."""
    max_shared: int
    """Shared memory, or LDS, that a program may use, on NVIDIA after opting in, bytes."""
    shared_unit: int
    """Bytes that a program's shared memory or LDS is rounded up to a multiple of."""
    issue_rate: int
    """Instructions of any warp that a multiprocessor issues per cycle."""
    instruction_bytes: int
    """Bytes of an instruction."""
    instruction_cache_bytes: int
    """The instruction cache that the warps of a multiprocessor share, bytes."""
    l1_bytes: int | None = None
    """The L1 data cache of a multiprocessor, bytes, of which NVIDIA's shared memory is a part; None
    where it is not known."""
    max_cluster_programs: int | None = None
    """Resident CTAs of clusters per multiprocessor; None where it is not known."""
    max_cluster_size: int | None = None
    """CTAs of the largest cluster (num_ctas); None where there are no clusters."""
    tensor_multiply_adds: int | None = None
    """Multiply-adds of 16 bits that tensor cores do per multiprocessor and cycle, by a warp's own
    instructions; None where it is not known."""
    warpgroup_multiply_adds: int | None = None
    """The same by instructions of a warpgroup; None where there are none, or it is not known."""

    @property
    def max_warps_per_program(self) -> int:
        """Warps, or waves, per program."""
        return self.max_threads_per_program // self.warp_size


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaArchitecture(_Limits):
    """The limits of an NVIDIA architecture that set the occupancy."""

    vendor: ClassVar[str] = "NVIDIA"
    """The vendor: NVIDIA."""
    multiprocessor_word: ClassVar[str] = "SM"
    """What NVIDIA calls a multiprocessor."""
    warp_word: ClassVar[str] = "warp"
    """What NVIDIA calls a warp."""
    register_word: ClassVar[str] = "register"
    """What NVIDIA calls a register of a thread."""
    shared_word: ClassVar[str] = "shared memory"
    """What NVIDIA calls the memory that a program's threads share."""
    max_warps: int
    """Resident warps per SM."""
    max_threads: int
    """Resident threads per SM."""
    max_programs: int
    """Resident programs (thread blocks) per SM."""
    max_registers_per_thread: int
    """32-bit registers per thread, above which no program is resident."""
    registers: int
    """32-bit registers per SM."""
    register_unit: int
    """32-bit registers that a warp's allocation is rounded up to a multiple of."""
    register_partitions: int
    """Equal parts of the register file; all registers of a warp are in one."""
    reserved_shared: int
    """Shared memory that the system takes for itself in each program, bytes."""
    max_barriers: int | None = None
    """Named barriers per SM; None where they do not limit the occupancy."""
    tensor_memory: int | None = None
    """Columns of tensor memory per SM; None where there is none."""
    tensor_memory_unit: int | None = None
    """The fewest columns that a program allocates; above it, a power of two."""

    @property
    def target(self) -> Target:
        """What Triton compiles for."""
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
    """What AMD calls a warp."""
    register_word: ClassVar[str] = "VGPR"
    """What AMD calls a register of a lane."""
    shared_word: ClassVar[str] = "LDS"
    """What AMD calls the memory that a workgroup's lanes share."""
    multiprocessor: str
    """CU or WGP, which is what the numbers of a multiprocessor are of."""
    simds: int
    """SIMDs per multiprocessor."""
    max_waves_per_simd: int
    """Resident waves per SIMD."""
    vgprs_per_simd: int
    """32-bit vector registers per lane of a SIMD, shared by its waves."""
    vgpr_granule: int
    """Vector registers that a wave's allocation is rounded up to a multiple of."""
    max_vgprs: int
    """Vector registers that a wave can address; AGPRs count where the file is unified."""
    max_multiwave_programs: int
    """Barrier slots: resident programs of more than one wave per multiprocessor."""
    descriptor_granule: int
    """Vector registers that a step of the kernel descriptor's count stands for."""
    agpr_file: str | None = None
    """Where AGPRs are: "unified" with the VGPRs, "separate"; None where there are none."""
    sgprs_per_simd: int | None = None
    """Scalar registers per SIMD; None where they do not limit the occupancy."""
    sgpr_granule: int | None = None
    """Scalar registers that a wave's allocation is rounded up to a multiple of."""
    sgpr_reserve: int | None = None
    """Scalar registers that the trap handler takes of each wave, after the rounding."""
    old_registers: int | None = None
    """What ROCm up to 6.3 reported as `max_num_regs`; None where it did not know the target."""
    max_sgprs: int | None = None
    """Scalar registers that a wave can use; None where they do not limit the occupancy."""

    @property
    def target(self) -> Target:
        """What Triton compiles for."""
        return Target("hip", self.target_name, self.warp_size)

    @property
    def schedulers(self) -> int:
        """Equal parts of a multiprocessor; a wave stays in one, and uses its matrix cores."""
        return self.simds

    @property
    def multiprocessor_word(self) -> str:
        """What AMD calls a multiprocessor here: CU or WGP."""
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
    """A GPU, or a bare architecture, of which only the limits are known."""

    key: str
    """The name to ask for it by: h100, or sm_90 for a bare architecture."""
    title: str
    """The name to print: H100 SXM."""
    architecture: Architecture
    """The limits per multiprocessor."""
    multiprocessors: int | None = None
    """SMs, CUs or WGPs, as `architecture.multiprocessor_word` says."""
    gpcs: tuple[int, ...] | None = None
    """SMs of each group that a cluster has to lie in, a GPC or a part of it; None: not known."""
    bandwidth_gbs: float | None = None
    """Peak bandwidth of the device memory, 1e9 bytes per second."""
    l2_bytes: int | None = None
    """L2 cache of the whole GPU, bytes: all XCDs together on AMD's chiplet GPUs."""
    infinity_cache_bytes: int | None = None
    """AMD's memory-side cache behind the L2, bytes; None where there is none."""
    boost_mhz: int | None = None
    """The highest clock of the multiprocessors, MHz."""
    fp32_tflops: float | None = None
    """Operations of 32 bits outside tensor cores, 1e12 a second: a multiply-add is two. This and
    the next are the data sheet's, dense, at the clock that it assumes."""
    fp64_tflops: float | None = None
    """The same of 64 bits."""
    tensor_fp16_tflops: float | None = None
    """Operations of tensor cores (AMD's matrix cores), by the dtype of what is multiplied; None
    where there is no such instruction too."""
    tensor_bf16_tflops: float | None = None
    tensor_tf32_tflops: float | None = None
    tensor_fp32_tflops: float | None = None
    tensor_fp8_tflops: float | None = None
    tensor_int8_tflops: float | None = None
    tensor_fp64_tflops: float | None = None
    sources: Mapping[str, Source] = dataclasses.field(
        default_factory=lambda: MappingProxyType({}), repr=False, compare=False
    )
    """By the name of a field of the Gpu or of its architecture: where the number comes from."""

    @property
    def target(self) -> Target:
        """What Triton compiles for."""
        return self.architecture.target

    @property
    def vendor(self) -> str:
        """The vendor: NVIDIA or AMD."""
        return self.architecture.vendor

    @property
    def has_rates(self) -> bool:
        """Whether its size, clock and bandwidth are known, without which no time is predicted."""
        return None not in {self.multiprocessors, self.boost_mhz, self.bandwidth_gbs}

    @property
    def doubtful(self) -> tuple[str, ...]:
        """The fields whose number is doubtful, in the order of the data files."""
        return tuple(name for name, source in self.sources.items() if source.doubtful)
