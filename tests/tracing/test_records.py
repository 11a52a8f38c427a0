"""Reading what processes noted of their launches, whatever else lies there."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hostile_files import HOSTILE, put, within
from recorded_work import recorded_launches

from occupancy_lab.compiled_records import record_in_program
from occupancy_lab.compiling.held import MOST_TOLD
from occupancy_lab.compiling.store import Store
from occupancy_lab.compiling.texts import Texts, kept_files, texts_of
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.tracing.noted import (
    MOST_VALUES,
    by_parameter,
    copies,
    inductor_parameters,
    passed,
    whole_numbers,
)
from occupancy_lab.tracing.records import launch_of, read_records, with_counts
from occupancy_lab.values import Resources


@pytest.mark.parametrize("what", HOSTILE)
def test_files_of_a_kernel_that_are_none_leave_what_its_process_told(
    tmp_path: Path, what: str
) -> None:
    """A pipe, device or 2 GB file as a binary is not read."""
    kernel = {"kernel": 0, "name": "add", "hash": "1", "kept": "k", "n_regs": 32, "n_spills": 0}
    kernel["metadata"] = {"num_warps": 4, "shared": 0}
    place, files = tmp_path / "1-1", tmp_path / "files" / "k"
    place.mkdir()
    files.mkdir(parents=True)
    lines = "".join(json.dumps(line) + "\n" for line in ({"pid": 1}, kernel))
    (place / "kernels.jsonl").write_text(lines, encoding="utf-8")
    for name in ("add.cubin", "add.ttgir", "add.json"):
        put(what, files / name)
    with within(10):
        (found,) = read_records(tmp_path, find_gpu("h100")).kernels
    assert found.calculation.resources.n_regs == 32


def tensor(dtype: str = "torch.float16", storage_bytes: int = 4096, address: int = 512) -> Any:
    """Return what is noted of a tensor."""
    storage = SimpleNamespace(nbytes=lambda: storage_bytes)
    return SimpleNamespace(
        dtype=dtype, data_ptr=lambda: address, untyped_storage=lambda: storage, is_meta=False
    )


TRITON = (7, 2, b"packed", None, None, None)
"""The arguments of Triton's launcher between the grid and the kernel's arguments."""
SEEN = {"dtype": "torch.float16", "storage_bytes": 4096, "aligned": True}


@pytest.mark.parametrize("before", [TRITON, (7,)])
def test_arguments_are_those_at_the_end(before: tuple[Any, ...]) -> None:
    """Launchers pass a kernel's own arguments last; others are left out."""
    rest = (*before, tensor(), 30, 1e-5, "sum", None)
    found = passed(by_parameter(["x", "n", "eps", "mode", "y"], rest))
    assert found == {"x": SEEN, "n": 30, "eps": 1e-5}
    assert json.loads(json.dumps(found)) == found


def test_arguments_of_another_launcher_are_not_guessed() -> None:
    """With more or fewer arguments than parameters nothing is noted."""
    assert by_parameter(["x", "n"], (7, tensor(), 30, 5)) is None
    assert by_parameter(None, (7, tensor())) is by_parameter([], (7,)) is None


def test_a_descriptor_and_a_view_are_seen_as_triton_sees_them() -> None:
    """A descriptor has tensor, sizes, strides; a view its alignment."""
    described = SimpleNamespace(
        base=tensor(), shape=[64, 32], strides=[32, 1], block_shape=[16, 32], padding="zero"
    )
    found = passed(by_parameter(["a", "b"], (*TRITON, described, tensor(address=514))))
    sizes = {"shape": [64, 32], "strides": [32, 1], "block_shape": [16, 32]}
    assert found == {
        "a": {"base": SEEN, "padding": "zero", **sizes},
        "b": {**SEEN, "aligned": False},
    }


def test_inductors_static_launcher_passes_no_constants() -> None:
    """Its kernel names the constants; a CompiledKernel passes all."""
    static = SimpleNamespace(arg_names=["x", "n", "BLOCK"], full_constexprs=[2])
    assert inductor_parameters(static) == ["x", "n"]
    function = SimpleNamespace(arg_names=["x", "n", "BLOCK"])
    assert inductor_parameters(SimpleNamespace(src=SimpleNamespace(fn=function))) == [
        *("x", "n", "BLOCK")
    ]


LAUNCH = next(one for one in recorded_launches() if one.kernel == "swiglu_kernel" and one.executed)


def noted(launch: Any) -> dict[str, Any]:
    """Return the notes of a recorded launch's arguments."""
    values = {
        name: tensor(value.dtype, 1 << 30) if hasattr(value, "dtype") else value
        for name, value in launch.arguments.items()
    }
    return passed(values)


CALCULATION = calculate(Resources(n_regs=32, num_warps=4, shared=0), find_gpu("h200"))


def kept(folder: Path) -> Any:
    """Return the record of a recorded launch whose files are in *folder*."""
    numbers = {name: int(LAUNCH.row[name]) for name in ("num_warps", "num_ctas", "shared")}
    metadata = {"name": LAUNCH.kernel, **numbers}
    texts = texts_of(kept_files(folder), SimpleNamespace(**metadata), "cuda")
    run = launch_of(metadata, noted(LAUNCH), LAUNCH.grid)
    return with_counts(record_in_program(run, CALCULATION), texts, {}, Store(None))


def test_a_launch_is_counted_from_its_files(tmp_path: Path) -> None:
    """Missing files leave the counts that do not need them, or a reason."""
    assert kept(tmp_path).why_not_counted == "its kernel's TTIR is not at hand"
    (tmp_path / "swiglu_kernel.ttir").write_text(LAUNCH.ttir)
    found = kept(tmp_path)
    assert found.counts.read_bytes.exact == 2 * found.counts.written_bytes.exact
    assert found.executed is None
    (tmp_path / "swiglu_kernel.cubin").write_bytes(LAUNCH.cubin)
    executed = kept(tmp_path).executed.instructions.exact
    assert executed == pytest.approx(LAUNCH.executed, rel=0.01)


def test_a_damaged_note_is_an_error() -> None:
    """An unreadable argument makes no launch."""
    for damaged in ({"dtype": "float99", "storage_bytes": 1, "aligned": True}, {}):
        with pytest.raises((InputError, KeyError)):
            launch_of({"name": "k"}, {"x": damaged}, (1,))


def test_values_that_steer_a_loop_make_the_counts_exact() -> None:
    """Sizes of groups in a tensor determine how often loops run."""
    launch = next(one for one in recorded_launches() if one.kernel == "grouped_matmul_kernel")
    run = launch_of({"name": launch.kernel}, noted(launch), launch.grid)
    texts = Texts(launch.kernel, "cuda", 4, 1, 0, launch.ttir)
    record = record_in_program(run, CALCULATION)
    values = {"group_gemm_sizes": (256, 256, 128) * 4}
    unknown, known = (with_counts(record, texts, one, Store(None)) for one in ({}, values))
    assert (dict(unknown.launch.values), dict(known.launch.values)) == ({}, values)
    assert unknown.counts is not None
    assert known.counts is not None
    assert unknown.counts.flops.exact is None
    assert known.counts.dot_flops["fp16"].exact == 4 * 2 * 256 * 256 * 128


class Tensor:
    """A small tensor on a GPU, with the name of torch's class."""

    is_cuda = True

    def __init__(self, values: torch.Tensor) -> None:
        self.inner = values

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (torch.arange(6), [0, 1, 2, 3, 4, 5]),
        (torch.arange(6)[2:4], [2, 3, 4, 5]),
        (torch.tensor([True, False]), [1, 0]),
        (torch.arange(6.0), None),
        (torch.zeros(MOST_VALUES + 1, dtype=torch.int64), None),
        (torch.zeros(0, dtype=torch.int64), None),
    ],
)
def test_small_whole_numbers_are_copied(made: torch.Tensor, found: list[int] | None) -> None:
    """Integers to the end of the storage are copied; floats and more are not."""
    part = whole_numbers(Tensor(made))
    assert (None if part is None else [int(one) for one in part]) == found
    assert whole_numbers(made) is None  # on the CPU
    assert MOST_VALUES == MOST_TOLD


def test_copies_are_made_in_the_stream_of_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are by parameter; for another stream there are none."""
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    numbers = torch.arange(3)
    given = {"ids": Tensor(numbers), "x": Tensor(torch.ones(3)), "n": 30}
    found = copies(given, 7)
    numbers += 1  # as the program may do later
    assert {name: one.tolist() for name, one in found.items()} == {"ids": [0, 1, 2]}
    assert copies(given, 8) == copies(given, 7, room=2) == {}
    assert by_parameter(["ids", "x"], (*TRITON, *given.values())) is None
    assert copies({"x": given["x"], "n": 30}, 7) == copies({}, 7) == {}
