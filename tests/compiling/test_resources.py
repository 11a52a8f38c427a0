"""Pipeline buffers and widths of accesses, read from TTGIR, PTX and AMD assembly."""

import re

import pytest
from compiling import sample
from recorded_binaries import recorded

from occupancy_lab.compiling.amdgcn import amdgcn_widths
from occupancy_lab.compiling.resources import (
    pipeline_shared_bytes,
    ptx_widths,
    read_resources,
    tensor_size,
)
from occupancy_lab.gpus import architectures
from occupancy_lab.occupancy import hip, next_steps, occupancy
from occupancy_lab.occupancy.exact import option_for
from occupancy_lab.occupancy.rule import scalar_where
from occupancy_lab.values import Resources


def widest(assembly: str, kind: str) -> tuple[int | None, ...]:
    """Return the bytes of the widest load and store in a text of a *kind*."""
    widths = {"ptx": ptx_widths, "amdgcn": amdgcn_widths}[kind]
    return tuple(max(widths(assembly, store=store), default=None) for store in (False, True))


@pytest.mark.parametrize(
    ("operation", "size"),
    [
        ("ttg.local_alloc : () -> !ttg.memdesc<3x1024xf32, #shared, #smem, mutable>", 12288),
        ("ttg.local_alloc : () -> !ttg.memdesc<1x1024xbf16, #shared, #smem, mutable>", 2048),
        ("ttg.local_alloc {a = 1 : i32} : () -> !ttg.memdesc<2x64x32xf8E4M3FN, #s, #smem>", 4096),
        ("ttg.local_alloc : () -> !ttg.memdesc<2x8xi1, #shared, #smem, mutable>", 16),
        ("ttg.local_alloc : () -> !ttg.memdesc<3x1xi64, #shared, #smem, mutable>", 0),
        ("ttg.local_alloc : () -> !ttg.memdesc<1024xf32, #shared, #smem, mutable>", 0),
        ("ttg.local_alloc : () -> !ttg.memdesc<1xi64, #shared, #smem, mutable>", 0),
        ("ttg.local_alloc %1 : (tensor<64x32xf16, #b>) -> !ttg.memdesc<64x32xf16, #s, #smem>", 0),
        ("ttg.memdesc_index %6[%0] : !ttg.memdesc<3x8xf32, #s> -> !ttg.memdesc<8xf32, #s>", 0),
        ("ttg.local_dealloc %6 : !ttg.memdesc<3x1024xf32, #shared, #smem, mutable>", 0),
    ],
)
def test_only_buffers_of_stages_count(operation: str, size: int) -> None:
    """An allocation counts if it has stages, no operand, and is no barrier."""
    assert pipeline_shared_bytes(f"  %6 = {operation} loc(#loc1)\n") == size


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {%r1}, %rd1, p;", 16 * 256 * 16),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1}, {%r2};", 16 * 8 * 16),
        ("v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]", 32 * 32 * 8),
        ("v_mfma_f32_16x16x16f16 a[0:3], v[0:1], v[2:3], a[0:3]", 16 * 16 * 16),
        ("v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", 16 * 16 * 16),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1}, [%r2];", None),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, p;", None),
        ("v_mul_f32 v0, v1, v2", None),
    ],
)
def test_the_size_of_a_tensor_instruction(line: str, size: int | None) -> None:
    """The size is in the instruction's name; a warp does a quarter of a wgmma."""
    assert tensor_size(f"\t{line}\n") == size


@pytest.mark.parametrize(
    ("line", "load", "store"),
    [
        ("@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];", 16, None),
        ("ld.global.L1::evict_last.v2.b64 {%rd1, %rd2}, [%rd3];", 16, None),
        ("ld.global.L1::evict_first.L2::cache_hint.b16 { %rs1 }, [ %rd1 + 0 ], %rd2;", 2, None),
        ("ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1];", 32, None),
        ("ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];", 16, None),
        ("ld.acquire.gpu.global.u8 %rs1, [%rd1];", 1, None),
        ("cp.async.ca.shared.global [ %r12 + 0 ], [ %rd8 + 0 ], 0x4, %r13;", 4, None),
        ("@%p2 cp.async.cg.shared.global [ %r1 + 0 ], [ %rd8 + 0 ], 0x10;", 16, None),
        ("cp.async.cg.shared.global.L2::128B [%r1], [%rd8], 16;", 16, None),
        ("@!%p1 st.global.v2.b32 [ %rd1 + 0 ], { %r1, %r2 };", None, 8),
        ("st.global.b16 [%rd1], %rs1;", None, 2),
        ("ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r5];", None, None),
        ("st.shared::cta.v4.b32 [%r5], {%r1, %r2, %r3, %r4};", None, None),
        ("ld.local.b32 %r1, [%rd1];", None, None),
        ("ld.param.b64 %rd1, [kernel_param_0];", None, None),
        ("cp.async.bulk.tensor.1d.shared::cta.global [%r1], [%rd1, {%r2}], [%r4];", None, None),
        ("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 0x10;", None, None),
        ("atom.global.gpu.acq_rel.add.f32 %f1, [%rd1], %f2;", None, None),
        ("// ld.global.b32 in a comment", None, None),
    ],
)
def test_widths_in_ptx(line: str, load: int | None, store: int | None) -> None:
    """Only a thread's own accesses to global memory have a width."""
    assert widest(f"\t{line}\n", "ptx") == (load, store)


@pytest.mark.parametrize(
    ("line", "load", "store"),
    [
        ("global_load_dwordx4 v[0:3], v[4:5], off", 16, None),
        ("global_load_dwordx3 v[0:2], v[4:5], off offset:16", 12, None),
        ("global_load_b32 v0, v1, s[0:1]", 4, None),
        ("global_load_lds_dwordx4 v[0:1], off", 16, None),
        ("global_load_async_to_lds_b128 v0, v[2:3], off", 16, None),
        ("buffer_load_dword v6, v2, s[4:7], 0 offen", 4, None),
        ("buffer_load_dwordx2 v[6:7], v2, s[4:7], 0 offen", 8, None),
        ("buffer_load_b128 v[0:3], v4, s[4:7], 0 offen", 16, None),
        ("buffer_load_ushort v6, v2, s[4:7], 0 offen", 2, None),
        ("buffer_load_short_d16_hi v6, v2, s[4:7], 0 offen", 2, None),
        ("buffer_load_u16 v6, v2, s[4:7], null offen", 2, None),
        ("buffer_load_d16_b16 v6, v2, s[4:7], null offen", 2, None),
        ("global_load_d16_hi_u8 v6, v[2:3], off", 1, None),
        ("flat_load_dwordx2 v[0:1], v[2:3]", 8, None),
        ("flat_load_sbyte v0, v[2:3]", 1, None),
        ("buffer_store_dwordx4 v[0:3], v5, s[4:7], 0 offen", None, 16),
        ("buffer_store_short_d16_hi v0, v5, s[4:7], 0 offen", None, 2),
        ("buffer_store_byte v0, v5, s[4:7], 0 offen", None, 1),
        ("global_store_d16_hi_b16 v[0:1], v2, off", None, 2),
        ("global_store_b64 v[0:1], v[2:3], off", None, 8),
        ("flat_store_b8 v[0:1], v2", None, 1),
        ("buffer_store_dword v5, off, s[88:91], 0 offset:324 ; 4-byte Folded Spill", None, None),
        ("buffer_load_dword v5, off, s[88:91], 0 offset:328", None, None),
        ("scratch_load_b128 v[0:3], off, off offset:16", None, None),
        ("ds_read_b128 v[0:3], v4", None, None),
        ("ds_store_b64 v0, v[2:3]", None, None),
        ("s_load_dwordx4 s[0:3], s[4:5], 0x0", None, None),
        ("buffer_gl0_inv", None, None),
        ("global_atomic_add_f32 v0, v1, s[0:1]", None, None),
        (".value_kind:     global_buffer", None, None),
    ],
)
def test_widths_in_amd_assembly(line: str, load: int | None, store: int | None) -> None:
    """Only vector accesses to global memory have a width, not LDS or scratch."""
    assert widest(f"\t{line}\n", "amdgcn") == (load, store)


def test_spills_are_no_memory_of_the_kernel() -> None:
    """A spilling gfx10.3 kernel without its real accesses has none left."""
    lines = recorded("gfx1030_spilling.amdgcn").splitlines()
    scratch = "\n".join(line for line in lines if "offen" not in line)
    assert "buffer_store_dword" in scratch
    assert "buffer_load_dword" in scratch
    assert widest(scratch, "amdgcn") == (None, None)


@pytest.mark.parametrize(("dtype", "item_bytes"), [("fp32", 4), ("fp16", 2)])
@pytest.mark.parametrize("arch", ["80", "90", "100", "gfx942", "gfx1201"])
def test_compiled_widths(arch: str, dtype: str, item_bytes: int) -> None:
    """A thread moves its elements at once, up to 16 bytes, on every vendor's GPUs."""
    asm = sample.compile_sample(arch, 256, 4, 2, dtype=dtype).asm
    kind = "ptx" if "ptx" in asm else "amdgcn"
    lanes = 4 * (64 if arch == "gfx942" else 32)
    expected = min(256 // lanes * item_bytes, 16)
    assert widest(asm[kind], kind) == (expected, expected)


@pytest.mark.parametrize("arch", ["90", "100"])
def test_warps_are_those_that_are_launched(arch: str) -> None:
    """With warp specialization num_warps is what the PTX launches."""
    compiled = sample.compile_sample(
        arch, 128, 4, num_stages=3, kernel=sample.specializing, dtype="fp16"
    )
    found = read_resources(compiled.asm, compiled.metadata, "cuda")
    (threads,) = re.findall(r"\.reqntid (\d+)", compiled.asm["ptx"])
    assert found.num_warps == int(threads) // 32 > 4


@pytest.mark.parametrize(("arch", "num_ctas"), [("90", 1), ("90", 2), ("100", 1), ("103", 2)])
def test_tensor_memory_and_ctas(arch: str, num_ctas: int) -> None:
    """Tensor memory equals the PTX's allocation; CTAs are as asked for."""
    compiled = sample.compile_sample(
        arch, 64, 4, kernel=sample.multiplying, dtype="fp16", num_ctas=num_ctas
    )
    found = read_resources(compiled.asm, compiled.metadata, "cuda")
    allocated = re.findall(r"tcgen05\.alloc[^;]*, (\d+);", compiled.asm["ptx"])
    assert bool(allocated) == (arch != "90")
    assert found.tensor_memory == sum(map(int, allocated))
    assert found.num_ctas == num_ctas


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942", "gfx950"])
def test_agprs_of_mfma_kernels(arch: str) -> None:
    """An MFMA kernel's VGPRs and AGPRs give LLVM's occupancy."""
    compiled = sample.compile_sample(arch, 64, 1, kernel=sample.multiplying, dtype="fp16")
    found = read_resources(compiled.asm, compiled.metadata, "hip")
    assert (found.num_ctas, found.tensor_memory) == (1, None)
    (waves,) = re.findall(r"; Occupancy: (\d+)", compiled.asm["amdgcn"])
    (line,) = [rule for rule in hip.RULES if rule.resource == "registers"]
    work = line.work(found, architectures()[arch], scalar_where)
    assert found.agprs is not None
    assert int(waves) == min(work["waves_per_simd"], {"gfx908": 10}.get(arch, 8))


@pytest.mark.parametrize(("arch", "num_warps"), [("90", 4), ("gfx942", 4), ("gfx1100", 8)])
def test_the_compiler_obeys_the_option_of_a_next_step(arch: str, num_warps: int) -> None:
    """The suggested maxnreg or waves_per_eu lets one more program fit."""
    backend = "hip" if arch.startswith("gfx") else "cuda"
    architecture = architectures()[arch if backend == "hip" else f"sm_{arch}"]

    def compiled(**options: int) -> Resources:
        kernel = sample.compile_sample(arch, 8192, num_warps, num_stages=3, **options)
        found = read_resources(kernel.asm, kernel.metadata, backend)
        return found.replace(shared=0, sgprs=None)

    first = compiled()
    (step,) = (s for s in next_steps(first, architecture) if s.resource == "registers")
    name, value = step.option.split("=")
    then = compiled(**{name: int(value)})
    assert then.n_regs <= (step.most_for_one_more or 0) < first.n_regs
    found = [occupancy(each, architecture).limit("registers").programs for each in (first, then)]
    assert found[1] > found[0]


@pytest.mark.parametrize("amount", [255, 137, 65])
def test_the_compiler_leaves_no_more_registers_than_were_asked_for(amount: int) -> None:
    """waves_per_eu limits registers as the step predicts."""
    architecture = architectures()["gfx942"]
    option = option_for(architecture, "registers", amount)
    waves = int(option.removeprefix("waves_per_eu="))
    kernel = sample.compile_sample("gfx942", 8192, 4, num_stages=3, waves_per_eu=waves)
    found = read_resources(kernel.asm, kernel.metadata, "hip").replace(shared=0, sgprs=None)
    assert amount / 2 < found.n_regs <= amount
    least = occupancy(found.replace(n_regs=amount, allocated_vgprs=None), architecture)
    programs = occupancy(found, architecture).programs_per_multiprocessor
    assert programs >= least.programs_per_multiprocessor
    assert programs == waves * architecture.simds // 4
