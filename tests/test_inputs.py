"""Impossible requests, and the sentences that say what is possible."""

import contextlib
import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from records import compile_resources, make_record

from occupancy_lab.errors import DoesNotFitError, InputError
from occupancy_lab.gpus import Gpu, PresentGpu, bare_gpus, find_gpu
from occupancy_lab.inputs import (
    asked_gpus,
    check_config,
    check_elsewhere,
    check_num_warps,
    check_problem,
    check_stages,
    chosen_kernel,
    chosen_kernels,
    chosen_knobs,
    chosen_problem,
    chosen_problems,
    next_power_of_two,
    whole_number,
    whole_numbers,
)
from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import Config, Problem

SOFTMAX, VECTOR_ADD = load_kernel("softmax"), load_kernel("vector_add")
H100 = find_gpu("h100")
MOST_ELEMENTS = 2**20


@pytest.mark.parametrize(
    ("problem", "part"),
    [
        (Problem(0, 781), "rows is 0;"),
        (Problem(-4, 781), "rows is -4;"),
        (Problem(4096, 0), "cols is 0;"),
        (Problem(4096, -1), "cols is -1;"),
        (Problem(4096, 781, "float64"), "'float64' is not known; give one of float32, float16, b"),
        (Problem(4096, 781, ""), "dtype '' is not known"),
        (Problem(10**30, 781), "rows times cols is more than 2305843009213693951, and Triton"),
        (Problem(1, 10**5000), "give fewer rows or cols"),
        (Problem(2**63, 1, "float16"), "a float16 matrix in 64 bits"),
        (Problem(2**31, 2**30), "rows times cols is more than"),
    ],
)
def test_impossible_problems(problem: Problem, part: str) -> None:
    """A matrix without rows or columns or with an unknown dtype is refused with the reason."""
    with pytest.raises(InputError) as caught:
        check_problem(problem)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("cols", "config", "part"),
    [
        (
            781,
            Config(1000, 8, 4),
            "BLOCK_SIZE is 1000; tl.arange takes a power of two, such as 1024",
        ),
        (781, Config(0, 8, 4), "BLOCK_SIZE is 0; tl.arange takes a power of two, such as 1024"),
        (781, Config(512, 8, 4), "BLOCK_SIZE is 512, below 781 cols"),
        (781, Config(2 * MOST_ELEMENTS, 8, 4), f"BLOCK_SIZE is {2 * MOST_ELEMENTS}; Triton holds"),
        (MOST_ELEMENTS + 1, Config(1024, 8, 4), f"a row of {MOST_ELEMENTS + 1} cols takes"),
        (MOST_ELEMENTS + 1, Config(2 * MOST_ELEMENTS, 8, 4), f"at most {MOST_ELEMENTS} elements"),
        (781, Config(1024, 8, 0), "num_stages is 0;"),
        (781, Config(1024, 8, 65), "num_stages is 65; at most 64 stages are compiled"),
        (781, Config(1024, 0, 4), "num_warps is 0; Triton takes a power of two"),
        (781, Config(1024, 12, 4), "num_warps is 12; Triton takes a power of two"),
        (781, Config(1024, 64, 4), "a program on sm_90 has at most 32 warps of 32 threads"),
    ],
)
def test_impossible_configurations(cols: int, config: Config, part: str) -> None:
    """A value that Triton does not take is refused, and the message names one that it does."""
    with pytest.raises(InputError) as caught:
        check_config(SOFTMAX, Problem(4096, cols), config, H100)
    assert part in str(caught.value)


@given(st.integers(1, MOST_ELEMENTS), st.integers(-10, 2 * MOST_ELEMENTS))
def test_the_named_block_size_is_taken(cols: int, block_size: int) -> None:
    """A value that a message suggests is never refused."""
    problem = Problem(4096, cols)
    if block_size.bit_count() == 1 and cols <= block_size <= MOST_ELEMENTS:
        check_config(SOFTMAX, problem, Config(block_size, 8, 4), H100)
        return
    with pytest.raises(InputError) as caught:
        check_config(SOFTMAX, problem, Config(block_size, 8, 4), H100)
    if named := re.search(r"(?:such as|use) (\d+)$", str(caught.value)):
        check_config(SOFTMAX, problem, Config(int(named[1]), 8, 4), H100)
    else:
        assert block_size > MOST_ELEMENTS
        assert f"at most {MOST_ELEMENTS} elements" in str(caught.value)


def test_blocks_need_not_hold_a_row() -> None:
    """A kernel over blocks of elements takes any power of two up to Triton's largest tensor."""
    problem = Problem(4096, 2 * MOST_ELEMENTS)
    for block_size in (1, 256, MOST_ELEMENTS):
        check_config(VECTOR_ADD, problem, Config(block_size, 4, 1), H100)
    with pytest.raises(InputError, match=f"^BLOCK_SIZE is {2 * MOST_ELEMENTS}; Triton holds"):
        check_config(VECTOR_ADD, problem, Config(2 * MOST_ELEMENTS, 4, 1), H100)


@pytest.mark.parametrize("gpu", bare_gpus().values(), ids=lambda gpu: gpu.key)
def test_a_program_has_at_most_1024_threads(gpu: Gpu) -> None:
    """NVIDIA and RDNA take 32 warps per program, AMD's GPUs with 64 threads per wave 16."""
    most = 16 if gpu.target.warp_size == 64 else 32
    for num_warps in (1, 2, 4, 8, 16, most):
        check_num_warps(num_warps, gpu.architecture)
    with pytest.raises(InputError, match=f"at most {most} (warps|waves) of {1024 // most} threads"):
        check_num_warps(2 * most, gpu.architecture)


@pytest.mark.parametrize(
    ("gpu", "cols", "num_warps", "num_stages"),
    [
        ("sm_89", 781, 8, 40),
        ("sm_120", 3000, 16, 9),
        ("h100", 32768, 32, 4),
    ],
)
def test_the_stages_said_to_fit_do(gpu: str, cols: int, num_warps: int, num_stages: int) -> None:
    """If stages do not fit, the message names the most that fit: one more does not.

    The kernel is one that does not say beforehand how much a stage takes.
    """
    problem, block_size = Problem(4096, cols), next_power_of_two(cols)
    unknown = dataclasses.replace(SOFTMAX, stage_bytes=None)

    def record(stages: int) -> int:
        config = Config(block_size, num_warps, stages)
        return make_record(unknown, problem, config, find_gpu(gpu)).resources.shared

    with pytest.raises(DoesNotFitError) as caught:
        record(num_stages)
    error = caught.value
    assert error.available == find_gpu(gpu).architecture.max_shared < error.needed
    assert f"at most {error.available} B of shared memory" in str(error)
    assert f"this one needs {error.needed} B" in str(error)
    said = re.search(r"num_stages (\d+) would fit, at (\d+) B a stage", str(error))
    fits, stage_bytes = int(said[1]), int(said[2])
    assert stage_bytes == block_size * 4
    assert record(fits) <= error.available
    with pytest.raises(DoesNotFitError) as one_more:
        record(fits + 1)
    assert one_more.value.needed == record(fits) + stage_bytes


@pytest.mark.parametrize(
    ("gpu", "dtype", "cols", "num_warps"),
    [
        ("sm_80", "float32", 12672, 8),
        ("h100", "float16", 32768, 16),
        ("sm_86", "bfloat16", 4096, 4),
    ],
)
def test_stages_that_cannot_fit_need_no_compile(
    gpu: str, dtype: str, cols: int, num_warps: int
) -> None:
    """More stages than fit are refused because of their size, and the most that fit compile."""
    problem, block_size = Problem(4096, cols, dtype), next_power_of_two(cols)
    with pytest.raises(DoesNotFitError) as caught:
        check_stages(SOFTMAX, problem, Config(block_size, num_warps, 64), find_gpu(gpu))
    said = re.search(r"num_stages (\d+) is the most that can fit", str(caught.value))
    config = Config(block_size, num_warps, int(said[1]))
    fits = make_record(SOFTMAX, problem, config, find_gpu(gpu)).resources
    assert fits.shared <= caught.value.available < caught.value.needed
    assert fits.shared + block_size * problem.item_bytes > caught.value.available


@settings(max_examples=15)
@given(
    gpu=st.sampled_from(["sm_80", "sm_90", "sm_120"]),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    cols=st.sampled_from([1, 2, 16, 48, 64, 784, 1024]) | st.integers(1, 2048),
    num_warps=st.sampled_from([1, 2, 4, 8]),
)
def test_a_stage_takes_what_is_said(gpu: str, dtype: str, cols: int, num_warps: int) -> None:
    """A compiled row in flight takes at least as much as the kernel says."""
    problem, config = Problem(4096, cols, dtype), Config(next_power_of_two(cols), num_warps, 3)
    resources = compile_resources(SOFTMAX, problem, config, find_gpu(gpu).target)
    assert 2 * SOFTMAX.stage_bytes(problem, config) <= (resources.pipeline_shared or 0)


KERNEL_FILE = Path(SOFTMAX.run.__code__.co_filename)


@pytest.mark.parametrize("asked", [781, np.int32(781), np.uint64(781), torch.tensor(781)])
def test_whole_numbers_of_every_kind(asked: Any) -> None:
    """A whole number may be of any type; several may be a list, an array or a text with commas."""
    found = whole_number("cols", asked)
    assert (type(found), found) == (int, 781)
    assert whole_numbers("cols", asked) == (781,)
    assert whole_numbers("cols", [asked, 7]) == (781, 7)


@pytest.mark.parametrize("asked", ["781,7", np.array([781, 7]), (781, 7), torch.tensor([781, 7])])
def test_several_whole_numbers(asked: Any) -> None:
    """Several numbers may also be a text with commas, an array or a tensor."""
    assert whole_numbers("cols", asked) == (781, 7)


NOT_WHOLE = [
    *(True, np.True_, 781.0, np.float32(781), None, "781", "many", [781], 1j, b"781"),
    *(torch.tensor([True])[0], torch.tensor(781.0)),
]


@pytest.mark.parametrize("asked", NOT_WHOLE, ids=repr)
@pytest.mark.parametrize("name", ["rows", "cols"])
def test_what_is_no_whole_number_is_named(name: str, asked: Any) -> None:
    """A bool, a float and a text are refused in one sentence that names the argument."""
    with pytest.raises(InputError, match=rf"^{name} is .*; give a whole number$"):
        chosen_problem(**{"rows": 1, "cols": 1, name: asked}, dtype="float32")


@pytest.mark.parametrize("asked", ["1,x", "1,,2", "1.5", [1, 2.0], [True], 1.5])
def test_lists_of_what_is_no_whole_number(asked: Any) -> None:
    """One bad number of several is refused too."""
    with pytest.raises(InputError, match=r"^num_warps is .*; give (a whole number|whole numbers)"):
        whole_numbers("num_warps", asked)


@pytest.mark.parametrize("asked", [torch.float16, "float16", "torch.float16", " float16 "])
def test_dtypes_of_torch(asked: Any) -> None:
    """A dtype is torch's own, or its name with or without `torch.`."""
    assert chosen_problem(4096, 781, asked) == Problem(4096, 781, "float16")
    both = chosen_problems(4096, 781, [asked, torch.bfloat16])
    assert [one.dtype for one in both] == ["float16", "bfloat16"]


@pytest.mark.parametrize("asked", [torch.float64, "torch.int32", 16, None, float, np.float16])
def test_other_dtypes_are_refused(asked: Any) -> None:
    """Other dtypes are refused, and the sentence names the possible ones."""
    with pytest.raises(InputError, match=r"^dtype .*give one of float32, float16, bfloat16"):
        chosen_problem(1, 1, asked)


def test_kernels_of_the_lab_and_of_files_keep_their_names(tmp_path: Path) -> None:
    """A Kernel has a name or a file if it comes from there, and otherwise neither."""
    assert chosen_kernel(SOFTMAX) == chosen_kernel("softmax") == ("softmax", SOFTMAX)
    file = tmp_path / "mine.py"
    shutil.copy(KERNEL_FILE, file)
    found = chosen_kernel(file)
    assert found.name == str(file)
    assert chosen_kernel(found.kernel) == found
    assert chosen_kernel(dataclasses.replace(SOFTMAX)).name is None
    with pytest.raises(InputError, match=r"^a measurement runs .*softmax is only an object here"):
        check_elsewhere(
            chosen_kernel(dataclasses.replace(SOFTMAX)), other_triton=False, measure=True
        )


def test_a_file_is_checked_before_it_is_imported(tmp_path: Path) -> None:
    """The check is called before a kernel's file is imported, but not for objects."""
    asked: list[str] = []
    with pytest.raises(InputError, match="there is no file"):
        chosen_kernels([SOFTMAX, tmp_path / "none.py"], asked.append)
    assert asked == [str(tmp_path / "none.py")]


@pytest.mark.parametrize("asked", [781, None, torch.float32, SOFTMAX.function, [SOFTMAX], b"x"])
def test_what_is_no_kernel_is_refused(asked: Any) -> None:
    """Only names, paths and Kernels are kernels: a JITFunction alone does not tell its launch."""
    with pytest.raises(InputError, match=r"^kernel is .*; give the name of a kernel, the path"):
        chosen_kernel(asked)


def test_several_kernels() -> None:
    """Several kernels are a list or a text with commas, each once; equal names are refused."""
    names = ["softmax", "softmax_row"]
    assert [one.name for one in chosen_kernels("softmax, softmax_row,softmax")] == names
    assert [one.name for one in chosen_kernels([SOFTMAX, "softmax_row"])] == names
    with pytest.raises(InputError, match="two kernels are both called softmax"):
        chosen_kernels(["softmax", dataclasses.replace(SOFTMAX)])


def test_gpus_by_name_and_by_object() -> None:
    """GPUs are names, Gpu objects or both, each once, in their order."""
    mi300x = find_gpu("mi300x")
    here = PresentGpu(H100, "NVIDIA H100", {}, 0, H100)
    for asked in ("h100,mi300x", ["h100", mi300x], (H100, "mi300x", H100), [here, mi300x]):
        assert asked_gpus(asked) == (H100, mi300x)
    assert asked_gpus(here) == asked_gpus(H100) == (H100,)


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ([], "gpu names none"),
        (90, "gpu is 90; give a name, such as h100, or a Gpu"),
        (["h100", None], "gpu is None"),
        ("h100,,", "has an empty part"),
        ([H100, dataclasses.replace(H100, multiprocessors=114)], "both called h100"),
    ],
)
def test_what_is_no_gpu_is_refused(asked: Any, part: str) -> None:
    """Anything else than a GPU is refused in one sentence."""
    with pytest.raises(InputError, match=part):
        asked_gpus(asked)


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.binary(max_size=4)
)


@given(ANYTHING | st.lists(ANYTHING, max_size=3) | st.dictionaries(ANYTHING, ANYTHING, max_size=2))
def test_anything_is_taken_or_refused(asked: Any) -> None:
    """Any argument is either understood or refused in one sentence."""
    for function in (
        asked_gpus,
        chosen_kernel,
        chosen_kernels,
        lambda one: whole_numbers("cols", one),
        lambda one: chosen_problem(1, 1, one),
        lambda one: chosen_knobs(num_warps=one),
    ):
        with contextlib.suppress(InputError):
            function(asked)


def test_a_kernel_with_configs_says_itself_what_it_takes() -> None:
    """Such a kernel takes any BLOCK_SIZE up to Triton's largest tensor that its constexprs take."""

    def constexprs(_problem: Problem, config: Config) -> dict[str, int]:
        if config.block_size % 3:
            msg = f"BLOCK_SIZE is {config.block_size}; it is a multiple of 3"
            raise InputError(msg)
        return {"BLOCK_SIZE": config.block_size}

    own = dataclasses.replace(SOFTMAX, configs=lambda _problem: (), constexprs=constexprs)
    problem = Problem(4096, 2 * MOST_ELEMENTS)
    check_config(own, problem, Config(384, 4, 1), H100)
    for block_size, part in (
        (0, "BLOCK_SIZE is 0; give 1 or more"),
        (385, "BLOCK_SIZE is 385; it is a multiple of 3"),
        (3 * MOST_ELEMENTS, "Triton holds at most"),
    ):
        with pytest.raises(InputError, match=part):
            check_config(own, problem, Config(block_size, 4, 1), H100)
    for config in (Config(384, 3, 1), Config(384, 4, 0)):
        with pytest.raises(InputError, match=r"num_warps|num_stages"):
            check_config(own, problem, config, H100)
