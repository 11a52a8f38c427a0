"""Launches of any kernel: found among those that a script really makes, changed, and timed."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from occupancy_lab.compiling.recorder import in_plain
from occupancy_lab.errors import InputError
from occupancy_lab.kernel import Variant
from occupancy_lab.launch import BoundLaunch, launch_of
from occupancy_lab.measuring import launches
from occupancy_lab.measuring.launches import LaunchBatch, Wanted, time_launches
from occupancy_lab.values import Target

H200 = Target("cuda", "90", 32)
EXAMPLES = Path(__file__).parents[2] / "examples"


@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201, N803
    """Multiply *n* numbers by *factor*."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def dry(*args: Any, grid: Any = (8,), **kwargs: Any) -> BoundLaunch:
    """Return a launch of the kernel as a dry run notes it."""
    return in_plain(Variant(scale, launch_of(scale, args, kwargs, grid)))


@pytest.fixture
def made() -> Iterator[list[Any]]:
    """Let Triton's launches only be listed."""
    found: list[Any] = []

    def run(_: Any, *args: Any, grid: Any, **kwargs: Any) -> None:
        found.append((args, grid, kwargs))

    with mock.patch.object(JITFunction, "run", run):
        yield found


def test_a_real_launch_is_found_as_noted(made: list[Any]) -> None:
    """However a launch passes its arguments and default options, it is the one of the dry run."""
    x, y = torch.ones(1000), torch.empty(1000)
    wanted = launches._identity(dry(x, y, 1000, 2.0, BLOCK=128), H200)
    other = launches._identity(dry(x, y, 1000, 2.0, BLOCK=256), H200)
    with launches._noting([wanted, other], H200) as noted:
        scale[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](
            n=1000, x=x, y=y, factor=2.0, BLOCK=128, num_warps=4
        )
    assert noted.keys() == {wanted}
    assert len(made) == 1


@pytest.mark.parametrize(
    ("grid", "options"), [((9,), {}), ((8,), {"num_warps": 8}), ((8,), {"maxnreg": 64})]
)
def test_another_grid_or_option_is_another_launch(grid: tuple[int], options: Any) -> None:
    """Launches that differ in the grid or in an option are told apart."""
    x = torch.ones(1000)
    one = launches._identity(dry(x, x, 1000, 2.0, BLOCK=128), H200)
    assert one != launches._identity(dry(x, x, 1000, 2.0, BLOCK=128, grid=grid, **options), H200)


def test_changes_replace_what_was_passed(made: list[Any]) -> None:
    """A change replaces a positional or named argument, adds an option, or leaves one out."""
    x = torch.ones(1000)
    call = launches._Call(scale, (x, x, 1000, 2.0, 128), {"num_warps": 8}, (8,))
    changes = {"BLOCK": 256, "num_warps": None, "maxnreg": 64}
    call.with_changes(Wanted(dry(x, x, 1000, 2.0, BLOCK=128), changes, (4,)))()
    ((args, grid, kwargs),) = made
    assert (args[2:], grid) == ((1000, 2.0, 256), (4,))
    assert kwargs == {"warmup": False, "maxnreg": 64}


def test_a_launch_that_a_script_does_not_make_says_so(tmp_path: Path) -> None:
    """A launch that the script does not make on the GPU is refused, with how the script ended."""
    script = tmp_path / "script.py"
    script.write_text("def main():\n    raise RuntimeError('no data')\n")
    source = f"{script}:main"
    batch = LaunchBatch(source, H200, (Wanted(dry(torch.ones(9), torch.ones(9), 9, 2.0, 128)),))
    (make,) = launches._calls(batch)
    with pytest.raises(InputError, match="made no such launch on this GPU, and ended with Runtime"):
        make()


def test_a_process_that_dies_times_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the process dies, every launch says why it has no time."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    wanted = Wanted(dry(torch.ones(9), torch.ones(9), 9, 2.0, 128))
    found = time_launches(LaunchBatch(f"{tmp_path}/none.py:main", H200, (wanted, wanted)))
    assert [one.status for one in found] == ["device lost"] * 2
    assert "process died" in (found[0].reason or "")


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(
    ("dtype", "number"), [("float16", 50), ("int32", 25), ("float8_e5m2", 100)]
)
def test_a_made_up_tensor_has_the_bytes_that_are_touched(
    dtype: str, number: int, *, aligned: bool
) -> None:
    """A made-up tensor has the bytes, the dtype and the alignment of the argument."""
    on_cpu = {name: partial(_on_cpu, getattr(torch, name)) for name in ("randn", "zeros")}
    with mock.patch.multiple(torch, **on_cpu):
        found = launches._made_up.__wrapped__("x", dtype, 100, aligned=aligned)
    assert (found.numel(), found.dtype) == (number, getattr(torch, dtype))
    assert (found.data_ptr() % 16 == 0) is aligned


def _on_cpu(make: Any, number: int, *, dtype: torch.dtype, device: str) -> torch.Tensor:
    assert device == "cuda"
    return make(number, dtype=dtype)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "described"),
    [
        ("step.py:main", {}),
        (
            "layer_norm.py:layer_norm",
            {
                "signature": "*fp16,*fp16,*fp16,*fp16,*fp32,*fp32,2048,2048,1e-5",
                "constexprs": "BLOCK_SIZE=2048",
                "grid": 4096,
            },
        ),
    ],
)
def test_launches_are_timed_here(name: str, described: dict[str, Any]) -> None:
    """A script's launches and a described one are timed on this GPU, near what is predicted."""
    from occupancy_lab import explain

    found = explain(kernel=f"{EXAMPLES / name}", measure=True, **described)
    runs = [found] if described else [line.run for line in found.lines]
    records = [record for run in runs for record in run.records]
    assert {record.measurement.status for record in records} == {"measured"}
    for record in records:
        assert 0.5 < record.measurement.us / record.prediction.us < 2
