"""Recorded launches of public kernels equal their dry runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import record_launches
import triton
from record_files import digest, read_table
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from occupancy_lab.arguments import Pointer
from occupancy_lab.kernel import load_function

DATA = Path(__file__).parent.parent.parent / "reports" / "data"
FILES = sorted(DATA.glob("launches-*.csv"))
recordings = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
KERNEL = """
import triton
import triton.language as tl

@triton.jit
def pointwise(in_ptr0, out_ptr0, ks0, one, xnumel, XBLOCK: tl.constexpr):
    index = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    value = tl.load(in_ptr0 + index * one, index < xnumel).to(tl.float32)
    tl.store(out_ptr0 + index, value * ks0, index < xnumel)
"""


@recordings
def test_every_dry_run_is_the_launch(path: Path) -> None:
    """Registers, memory, warps and programs of every recorded launch equal those of its dry run."""
    recorded = read_table(path)
    assert len(recorded) >= 300
    for row in recorded:
        for name in ("n_regs", "shared", "num_warps"):
            assert row[f"sm_90_{name}"] == row[name], row
        for name in ("n_regs", "local_bytes", "static_shared"):
            assert row[f"sm_90_{name}"] == row[f"driver_{name}"], row
        # If no program fits there is no record with a number.
        programs = row["sm_90_programs_per_multiprocessor"] or "0"
        assert programs == row["driver_programs_per_multiprocessor"], row
        assert row["sm_90_clusters"] == row["driver_clusters"], row


@recordings
def test_the_dry_binary_is_the_launched(path: Path) -> None:
    """Binaries are equal byte for byte, except those that torch.compile made with assertions on."""
    others = [row for row in read_table(path) if row["sm_90_binary"] != row["cubin"]]
    assert len(others) < 30
    for row in others:
        assert row["launched_by"] == "torch.compile", row
        assert "debug=True" in row["options"], row


@recordings
def test_amd_is_llvms(path: Path) -> None:
    """Launches compiled for AMD have the waves that LLVM reports."""
    for target in ("gfx942", "gfx1100"):
        found = [row for row in read_table(path) if row[f"{target}_llvm_occupancy"]]
        assert len(found) > 100
        for row in found:
            assert row[f"{target}_waves_per_simd"] == row[f"{target}_llvm_occupancy"], row


@pytest.fixture
def pointwise(tmp_path: Path) -> Any:
    """Return a kernel as torch.compile writes it."""
    (tmp_path / "pointwise.py").write_text(KERNEL, encoding="utf-8")
    function, _ = load_function(f"{tmp_path / 'pointwise.py'}:pointwise")
    return function


@pytest.fixture
def no_listener() -> Iterator[None]:
    """Remove the dry run's listener from Triton's compiler."""
    yield
    triton.knobs.compilation.listener = None


@pytest.mark.usefixtures("no_listener")
def test_a_source_of_torch_compile_is_a_launch(
    pointwise: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that torch.compile compiles gives the same binary as its launch line."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    aligned = [["tt.divisibility", 16]]
    options = {"num_warps": 4, "num_stages": 1, "enable_fp_fusion": True, "launch_pdl": False}
    source = ASTSource(
        pointwise,
        {
            "in_ptr0": "*bf16",
            "out_ptr0": "*fp32",
            "ks0": "i64",
            "one": "constexpr",
            "xnumel": "i32",
            "XBLOCK": "constexpr",
        },
        {"XBLOCK": 128, "one": 1},
        {(0,): aligned, (4,): aligned},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    launch = record_launches.launch_of_source(source, options)
    assert launch.keywords["in_ptr0"] == Pointer("bfloat16", 16)
    assert launch.keywords["out_ptr0"] == Pointer("float32", 16, aligned=False)
    for target in ("sm_90", "gfx942"):
        found = record_launches.dry(record_launches.Launched(pointwise, launch), target)
        if target == "sm_90":
            assert found["binary"] == digest(compiled.asm["cubin"])
        else:
            assert found["status"] == "explained"
            assert found["waves_per_simd"] == found["llvm_occupancy"]
