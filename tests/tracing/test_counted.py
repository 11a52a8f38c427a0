"""What a launch is noted to be given, and what is counted of that."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from recorded_work import recorded_launches

from occupancy_lab.compiling.store import Store
from occupancy_lab.tracing.counted import count_kept
from occupancy_lab.tracing.noted import inductor_parameters, passed
from occupancy_lab.values import Target

if TYPE_CHECKING:
    from pathlib import Path


def tensor(dtype: str = "torch.float16", storage_bytes: int = 4096, address: int = 512) -> Any:
    """Return what a tensor of torch tells."""
    storage = SimpleNamespace(nbytes=lambda: storage_bytes)
    return SimpleNamespace(
        dtype=dtype, data_ptr=lambda: address, untyped_storage=lambda: storage, is_meta=False
    )


TRITON = (7, 2, b"packed", None, None, None)
"""What Triton's launcher is given between the grid and the kernel's arguments."""
SEEN = {"dtype": "torch.float16", "storage_bytes": 4096, "aligned": True}


@pytest.mark.parametrize("before", [TRITON, (7,)])
def test_arguments_are_those_at_the_end(before: tuple[Any, ...]) -> None:
    """Both launchers pass the kernel's own arguments last; what has no number is left out."""
    found = passed(["x", "n", "eps", "mode", "y"], (*before, tensor(), 30, 1e-5, "sum", None))
    assert found == {"x": SEEN, "n": 30, "eps": 1e-5}
    assert json.loads(json.dumps(found)) == found


def test_arguments_of_another_launcher_are_not_guessed() -> None:
    """Where there are more or fewer than the kernel has parameters, nothing is noted."""
    assert passed(["x", "n"], (7, tensor(), 30, 5)) is None
    assert passed(None, (7, tensor())) is passed([], (7,)) is None


def test_a_descriptor_and_a_view_are_seen_as_triton_sees_them() -> None:
    """A descriptor has its tensor, sizes and strides; of a view it is whether it is aligned."""
    described = SimpleNamespace(
        base=tensor(), shape=[64, 32], strides=[32, 1], block_shape=[16, 32], padding="zero"
    )
    found = passed(["a", "b"], (*TRITON, described, tensor(address=514)))
    sizes = {"shape": [64, 32], "strides": [32, 1], "block_shape": [16, 32]}
    assert found == {
        "a": {"base": SEEN, "padding": "zero", **sizes},
        "b": {**SEEN, "aligned": False},
    }


def test_inductors_static_launcher_passes_no_constants() -> None:
    """Its kernel says which parameters are constants; a CompiledKernel passes all."""
    static = SimpleNamespace(arg_names=["x", "n", "BLOCK"], full_constexprs=[2])
    assert inductor_parameters(static) == ["x", "n"]
    function = SimpleNamespace(arg_names=["x", "n", "BLOCK"])
    assert inductor_parameters(SimpleNamespace(src=SimpleNamespace(fn=function))) == [
        *("x", "n", "BLOCK")
    ]


LAUNCH = next(one for one in recorded_launches() if one.kernel == "swiglu_kernel" and one.executed)


def kept(folder: Path) -> Any:
    """Return what is counted of a recorded launch whose files are in *folder*."""
    numbers = {name: int(LAUNCH.row[name]) for name in ("num_warps", "num_ctas", "shared")}
    metadata = {"name": LAUNCH.kernel, **numbers}
    values = {
        name: tensor("torch.float16", 1 << 30) if hasattr(value, "dtype") else value
        for name, value in LAUNCH.arguments.items()
    }
    noted = passed([*values], (*TRITON, *values.values()))
    target = Target("cuda", "90", 32)
    return count_kept(
        folder, metadata, target, noted, grid=LAUNCH.grid, resident=2112, store=Store(None)
    )


def test_a_launch_is_counted_from_its_files(tmp_path: Path) -> None:
    """Counts are those of the texts; without the binary, what needs none; without all, a reason."""
    assert kept(tmp_path).why_not == "its kernel's TTIR is not at hand"
    (tmp_path / "swiglu_kernel.ttir").write_text(LAUNCH.ttir)
    found = kept(tmp_path)
    assert found.counts.read_bytes.exact == 2 * found.counts.written_bytes.exact
    assert found.executed is None
    (tmp_path / "swiglu_kernel.cubin").write_bytes(LAUNCH.cubin)
    executed = kept(tmp_path).executed.instructions.exact
    assert executed == pytest.approx(LAUNCH.executed, rel=0.01)


def test_a_damaged_note_is_a_reason(tmp_path: Path) -> None:
    """An argument that nobody can read leaves a reason."""
    for noted in ({"x": {"dtype": "float99", "storage_bytes": 1, "aligned": True}}, {"x": {}}):
        found = count_kept(
            tmp_path, {"name": "k"}, None, noted, grid=(1,), resident=None, store=Store(None)
        )
        assert "cannot be read" in found.why_not
