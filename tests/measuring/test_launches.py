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

EXAMPLES = Path(__file__).parents[2] / "examples"


@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201, N803
    """Multiply *n* numbers by *factor*."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def dry(*args: Any, grid: Any = (8,), **kwargs: Any) -> BoundLaunch:
    """Return a launch of the kernel as a dry run notes it."""
    return in_plain(Variant(scale, launch_of(scale, args, kwargs, grid)))


class Grid:
    """Inductor's grid of a kernel with the parameter BLOCK."""

    def __init__(self, _meta: Any, config: triton.Config) -> None:
        self.config = config

    def eval_slow(self, given: dict[str, Any]) -> tuple[int, ...]:
        """Return the grid of a launch."""
        return (triton.cdiv(given["n"], self.config.kwargs["BLOCK"]),)


@pytest.fixture
def made() -> Iterator[list[Any]]:
    """Let Triton's launches only be listed."""
    found: list[Any] = []

    def run(_: Any, *args: Any, grid: Any, **kwargs: Any) -> None:
        found.append((args, grid, kwargs))

    with mock.patch.object(JITFunction, "run", run):
        yield found


def test_a_real_launch_is_found_by_what_it_passes(made: list[Any]) -> None:
    """However a launch passes its arguments, it is the one that passes the same tensors."""
    x, y = torch.ones(1000), torch.empty(1000)
    wanted = launches.passed(dry(x, y, 1000, 2.0, BLOCK=128))
    other = launches.passed(dry(x, y, 999, 2.0, BLOCK=128))
    with launches._noting([wanted, other]) as noted:
        for _ in range(2):
            scale[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](
                n=1000, x=x, y=y, factor=2.0, BLOCK=256, num_warps=8
            )
    assert noted.keys() == {wanted}
    assert len(noted[wanted]) == 1
    assert len(made) == 2


def test_the_nearest_launch_is_changed(made: list[Any], tmp_path: Path) -> None:
    """Of the launches with the same tensors, the one with the fewest changes is launched."""
    script = tmp_path / "script.py"
    script.write_text("")
    x = torch.ones(1000)

    def main(_: str) -> None:
        scale[8,](x, x, 1000, 2.0, 128, num_warps=8)
        scale[4,](x, x, 1000, 2.0, 256, num_warps=2)

    wanted = Wanted(dry(x, x, 1000, 2.0, BLOCK=256, num_warps=2, maxnreg=64, grid=(3,)))
    with (
        mock.patch.object(launches, "names_script", return_value=True),
        mock.patch.object(launches, "_run", main),
    ):
        (make,) = launches._calls(LaunchBatch(f"{script}:main", (wanted,)))
    make()()
    args, grid, kwargs = made[-1]
    assert (args[2:], grid) == ((1000, 2.0, 256), (3,))
    assert kwargs == {"warmup": False, "num_warps": 2, "maxnreg": 64}


def test_a_tensor_may_have_another_size(made: list[Any]) -> None:
    """A launch whose tensors' sizes were only assumed is the real one, with the real tensors."""
    x, y = torch.ones(1000), torch.empty(2000)
    wanted = dry(x, x, 1000, 2.0, BLOCK=256)
    with launches._noting([launches.passed(wanted)]) as noted:
        scale[8,](x, y, 1000, 2.0, 128)
    ((launched, call),) = noted[launches.passed(wanted)]
    launches._changed(call, launches._changes(launched, wanted), (4,))()
    args, *_ = made[-1]
    assert args[1] is y
    assert args[4] == 256


def test_changes_replace_what_was_passed(made: list[Any]) -> None:
    """A change replaces a positional or named argument, adds an option, or leaves one out."""
    x = torch.ones(1000)
    call = launches._Call(scale, (x, x, 1000, 2.0, 128), {"num_warps": 8}, (8,))
    launches._changed(call, {"BLOCK": 256, "num_warps": None, "maxnreg": 64}, (4,))()
    ((args, grid, kwargs),) = made
    assert (args[2:], grid) == ((1000, 2.0, 256), (4,))
    assert kwargs == {"warmup": False, "maxnreg": 64}


def test_each_configuration_of_a_compiled_kernel_is_found(made: list[Any]) -> None:
    """A kernel that torch.compile launches is found in all configurations, also once tuned."""
    from torch._inductor.runtime import triton_heuristics
    from triton import Config

    def forget(tuner: Any) -> None:
        tuner.configs = None  # as Inductor does

    x, y = torch.ones(1000), torch.empty(1000)
    wanted = launches.passed(dry(x, y, 1000, 2.0, 128))
    tuner = object.__new__(triton_heuristics.CachingAutotuner)
    tuner.fn, tuner.triton_meta = scale, {"constants": {"BLOCK": None}}
    tuner.inductor_meta = {}
    tuner.configs = [Config({"BLOCK": 128}, num_stages=1), Config({"BLOCK": 256}, 8, 1)]
    kernel = triton_heuristics.CachingAutotuner
    with (
        mock.patch.multiple(kernel, precompile=forget, run=lambda *_args, **_kwargs: None),
        mock.patch.object(triton_heuristics.GridExpr, "from_meta", Grid),
        launches._noting([wanted]) as noted,
    ):
        tuner.precompile()
        tuner.run(x, y, 1000, 2.0, stream=0)
    found = [(one.arguments["BLOCK"], one.launch.grid) for one, _ in noted[wanted]]
    assert found == [(128, (8,)), (256, (4,))]
    noted[wanted][1][1]()
    ((args, grid, kwargs),) = made
    assert (args, grid, kwargs["BLOCK"], kwargs["num_warps"]) == ((), (4,), 256, 8)


def test_a_launch_that_a_script_does_not_make_says_so(tmp_path: Path) -> None:
    """A launch that the script does not make on the GPU is refused, with how the script ended."""
    script = tmp_path / "script.py"
    script.write_text("def main():\n    raise RuntimeError('no data')\n")
    source = f"{script}:main"
    batch = LaunchBatch(source, (Wanted(dry(torch.ones(9), torch.ones(9), 9, 2.0, 128)),))
    (make,) = launches._calls(batch)
    with pytest.raises(InputError, match="made no such launch on this GPU, and ended with Runtime"):
        make()


def test_a_process_that_dies_times_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the process dies, every launch says why it has no time."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    wanted = Wanted(dry(torch.ones(9), torch.ones(9), 9, 2.0, 128))
    found = time_launches(LaunchBatch(f"{tmp_path}/none.py:main", (wanted, wanted)))
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
    check_times([found] if described else [line.run for line in found.lines])


@pytest.mark.gpu
def test_launches_of_torch_compile_are_timed_here(tmp_path: Path) -> None:
    """Each configuration of the kernels that torch.compile makes of a script is timed."""
    from occupancy_lab import explain

    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n\n\n"
        "def main():\n"
        "    x = torch.randn(8192, 4096, device='cuda', dtype=torch.float16)\n"
        "    f = torch.compile(lambda x: (torch.softmax(x * 2, -1), (x.relu() + 1).sum(0)))\n"
        "    f(x)\n"
    )
    found = explain(kernel=f"{script}:main", measure=True)
    check_times([line.run for line in found.lines])


@pytest.mark.gpu
def test_the_choice_at_a_size_is_the_fastest_timed_here() -> None:
    """Of a program's kernel the best predicted are timed, and the time of the choice is kept."""
    from occupancy_lab import tune_script

    found = tune_script(f"{EXAMPLES / 'step.py'}:main", measure=True, top=2)
    ((chosen,),) = found.gpus.values()
    assert 0.5 < chosen.us / chosen.predicted_us < 2


def check_times(runs: list[Any]) -> None:
    """Assert that all launches were measured, and took about the predicted time."""
    records = [record for run in runs for record in run.records]
    assert {record.measurement.status for record in records} == {"measured"}
    for record in records:
        assert 0.5 < record.measurement.us / record.prediction.us < 2
