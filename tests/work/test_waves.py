"""What launches on AMD's GPUs execute, against their sources; no GPU is needed.

Assembly and source are counted independently: their stored bytes and FLOPs of products must agree.
"""

import functools
import itertools
from pathlib import Path

import counted_kernels
import pytest
import triton
from compiling.sample import gpu_target
from counted_kernels import row_sums
from first_texts import compiled_texts
from recorded_work import RecordedLaunch, recorded_launches

from occupancy_lab.arguments import Pointer
from occupancy_lab.compiling.amdgcn import read_amdgcn
from occupancy_lab.compiling.texts import Texts
from occupancy_lab.errors import BinaryError
from occupancy_lab.launch import Launch
from occupancy_lab.values import Target
from occupancy_lab.work.counting import doubts
from occupancy_lab.work.counts import total
from occupancy_lab.work.executed import execute
from occupancy_lab.work.ttir import read_ttir
from occupancy_lab.work.walk import count

PUBLIC = (
    *("causal_conv1d_fwd_kernel", "chunk_fwd_kernel_o", "chunk_gla_bwd_kernel_dv"),
    *("chunk_scaled_dot_kkt_fwd_kernel", "l2norm_bwd_kernel_row", "rotary_embedding_kernel"),
    *("_swiglu_forward_kernel", "_kldiv_kernel_forward", "_triton_rope"),
    *("_sparsemax_forward_kernel", "int8_matmul_kernel", "matrix_vector_kernel", "swiglu_kernel"),
    *("shifted_kernel", "triton_per_fused_cumsum_0", "triton_poi_fused__to_copy_add_2"),
)
KERNELS = counted_kernels.__file__
X = Pointer("float32", 1 << 24)


@functools.cache
def launches() -> dict[str, RecordedLaunch]:
    """Return a public launch of each kernel."""
    found: dict[str, RecordedLaunch] = {}
    for one in recorded_launches():
        found.setdefault(one.kernel, one)
    return found


def texts_on(launch: RecordedLaunch, arch: str, folder: Path) -> Texts:
    """Compile the TTIR of a public kernel for another GPU."""
    path = folder / "kernel.ttir"
    path.write_text(launch.ttir)
    warps = int(launch.row["num_warps"])
    made = triton.compile(str(path), target=gpu_target(arch), options={"num_warps": warps})
    return Texts(
        *(made.metadata.name, "hip", warps, 1, made.metadata.shared),
        ttir=launch.ttir,
        amdgcn=made.asm["amdgcn"],
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "arch"), [*zip(PUBLIC, itertools.cycle(["gfx942", "gfx950"]), strict=False)]
)
def test_public_kernels_store_and_multiply_what_their_sources_do(
    kernel: str, arch: str, tmp_path: Path
) -> None:
    """Stored bytes and FLOPs are the source's, and the most live registers are close to LLVM's."""
    launch = launches()[kernel]
    texts = texts_on(launch, arch, tmp_path)
    found = execute(texts, launch.arguments, launch.grid, values=launch.values)
    taken = read_amdgcn(texts.amdgcn or "", texts.name)["n_regs"]
    assert 0.75 * taken <= max(one.live for one in found.lines) <= taken
    grid = (*launch.grid, 1, 1)[:3]
    counts = count(read_ttir(launch.ttir), launch.arguments, grid, values=launch.values)
    assert not found.unknowns
    assert doubts(counts, found) == ()
    written = total(
        one.threads * one.thread_bytes for one in found.accesses if one.operation != "load"
    )
    assert written.exact == pytest.approx(counts.written_bytes.exact, rel=1e-3)


def row_sums_on(arch: str, *, by_value: bool) -> tuple[Texts, dict[str, object]]:
    """Return the texts of `row_sums`, with 4 warps and blocks of 256, and its arguments."""
    limit = Pointer("int32", 4)
    launch = Launch((X, X, 1003, limit), {"BLOCK": 256, "BY_VALUE": by_value, "num_warps": 4})
    target = Target("hip", arch, 64 if arch.startswith("gfx9") else 32)
    arguments = dict(zip(row_sums.arg_names, launch.arguments, strict=False))
    return compiled_texts(row_sums, launch, target), arguments


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_a_loop_runs_as_often_as_its_source_says(arch: str) -> None:
    """1003 columns are four blocks of 256, of which the last loads 235 numbers."""
    texts, arguments = row_sums_on(arch, by_value=False)
    found = execute(texts, arguments, (77,))
    loads = [one for one in found.accesses if one.operation == "load"]
    assert {one.tensor for one in loads} == {"x_ptr"}
    assert total(one.threads for one in loads).exact == 77 * 1003
    assert total(one.executions for one in loads).low <= 77 * 4 * 4
    assert [one.tensor for one in found.accesses if one.operation == "store"] == ["y_ptr"]
    assert {one.place.file for one in found.lines if one.kinds.get("global_accesses")} == {KERNELS}
    assert found.instructions.is_exact


def test_a_loop_with_a_limit_in_memory_has_no_upper_limit() -> None:
    """A loop with its limit in memory makes counts ranges, and exact ones where it is given."""
    texts, arguments = row_sums_on("gfx942", by_value=True)
    found = execute(texts, arguments, (77,))
    assert found.instructions.high is None
    assert "loop" in {one.steers for one in found.unknowns}
    known = execute(texts, arguments, (77,), values={"limit_ptr": (1003,)})
    assert known.instructions.is_exact


def test_waves_of_32_lanes_are_not_followed() -> None:
    """RDNA's waves of 32 lanes are refused."""
    texts, arguments = row_sums_on("gfx1100", by_value=False)
    with pytest.raises(BinaryError, match="waves of 32 lanes are not followed"):
        execute(texts, arguments, (77,))
