"""A user's KERNEL: the simplest one works everywhere, and each field adds something."""

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from in_process import run

import occupancy_lab
from occupancy_lab import (
    Config,
    Explanation,
    Grid,
    InputError,
    Kernel,
    MemoryStep,
    Problem,
    load_kernel,
)
from occupancy_lab.inputs import NamedKernel, check_measurable

FUNCTION = """
import triton
import triton.language as tl


@triton.jit
def double_rows(y_ptr, x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    cols = tl.arange(0, BLOCK_SIZE)
    place = tl.program_id(0) * n_cols + cols
    x = tl.load(x_ptr + place, mask=cols < n_cols)
    tl.store(y_ptr + place, 2 * x, mask=cols < n_cols)
"""
SIMPLEST = """

from occupancy_lab import Kernel, tensor


def arguments(problem):
    matrix = tensor((problem.rows, problem.cols), problem.dtype)
    return (matrix, matrix, problem.cols)


KERNEL = Kernel(double_rows, arguments)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a function and the simplest KERNEL."""
    path = tmp_path_factory.mktemp("kernels") / "doubled.py"
    path.write_text(FUNCTION + SIMPLEST, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def kernel(file: Path) -> Kernel:
    """The simplest KERNEL."""
    return load_kernel(str(file))


def lab(*words: object) -> subprocess.CompletedProcess[str]:
    """Run occupancy-lab on wide lines."""
    return run(*map(str, words), COLUMNS="200")


def explain(kernel: Kernel, **changes: Any) -> Explanation:
    """Explain *kernel* with some fields changed."""
    changed = dataclasses.replace(kernel, **changes)
    return occupancy_lab.explain(
        cols=781, kernel=changed, gpu="h100", **({"cache": False} if changes else {})
    )


def flat(document: str) -> str:
    """Return a text as one line without marks."""
    return " ".join(document.replace("`", "").replace("\\", "").split())


def test_what_is_usual(kernel: Kernel) -> None:
    """Fields that a KERNEL omits follow from its function, also after dataclasses.replace."""
    assert (kernel.name, kernel.title, kernel.grid) == ("double_rows", "double_rows", Grid.ROWS)
    config = kernel.default_config(Problem(3, 781), 0)
    assert config == Config(1024, 4, 1)
    assert kernel.constexprs(Problem(3, 781), config) == {"BLOCK_SIZE": 1024}
    assert dataclasses.replace(kernel) == kernel
    assert dataclasses.replace(kernel, name="other").title == "double_rows"


def test_constexprs_that_are_usual() -> None:
    """Each knob is passed if the function has a constexpr of its name; a loop has 2 stages."""
    function = load_kernel("softmax").function
    kernel = Kernel(function, lambda _problem: ())
    config = kernel.default_config(Problem(3, 781), 0)
    assert config == Config(1024, 4, 2)
    wide = Problem(2**16, 2**16)
    assert kernel.constexprs(wide, Config(2, 4, 3)) == {
        "BLOCK_SIZE": 2,
        "num_stages": 3,
        "INT64_OFFSETS": True,
    }


@pytest.mark.usefixtures("alone")
def test_the_simplest_kernel_is_explained(file: Path) -> None:
    """`explain` shows how many programs fit on each GPU, their work and their time."""
    done = lab("explain", "--cols", 781, "--kernel", file, "--gpu", "h100,mi300x")
    assert done.returncode == 0, done.stderr
    assert "double_rows, 4096 x 781 float32" in done.stdout
    assert "of a plain copy's speed" not in done.stdout
    full = lab("explain", "--cols", 781, "--kernel", file, "--gpu", "h100", "--json")
    assert full.returncode == 0, full.stderr
    (record,) = json.loads(full.stdout)["records"]
    assert record["predicted_us"] > record["speed_of_light_us"]
    assert record["dram_read_bytes"] == record["dram_written_bytes"] == 4096 * 781 * 4
    assert record["speed_of_light_us"] == pytest.approx(2 * 4096 * 781 * 4 / 3350e3, rel=0.01)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("sweep --gpu h100 --num-warps 4,8 --num-stages 1", "Times for H100 SXM rest on"),
        ("tune --gpu h100", "Best predicted: double_rows"),
        ("compare --gpu h100,mi300x", "MI300X"),
    ],
)
def test_every_command_takes_the_simplest_kernel(file: Path, command: str, words: str) -> None:
    """`sweep`, `tune` and `compare` take its file like a kernel of the lab."""
    done = lab(*command.split(), "--cols", 781, "--kernel", file)
    assert done.returncode == 0, done.stderr
    assert words in flat(done.stdout)


def test_the_simplest_kernel_in_python(kernel: Kernel) -> None:
    """Python explains a Kernel object; without memory steps, the minimal traffic is None."""
    found = explain(kernel)
    (record,) = found.records
    assert (record.plan.num_programs, record.traffic) == (4096, None)
    assert record.to_dict()["read_bytes"] is None
    assert record.prediction.share_of_copy is None
    table = occupancy_lab.sweep(781, kernel=kernel, gpu="h100", num_warps=4, num_stages=1)
    assert [*table["predicted_us"]] == [record.prediction.us]


def test_memory_steps_bring_a_copy(kernel: Kernel) -> None:
    """Memory steps set a kernel beside a plain copy, and beside torch operations."""

    def once(problem: Problem) -> tuple[MemoryStep, ...]:
        elements = problem.rows * problem.cols
        return (MemoryStep("double", elements, elements),)

    found = explain(kernel, memory_steps=once)
    (record,) = found.records
    assert record.traffic.total_bytes == 2 * record.problem.matrix_bytes
    assert record.prediction is not None
    text = flat(found.to_markdown(full=True))
    assert "No time is predicted" not in text
    assert "12.8 MB, 12.8 MB" in text
    own = dataclasses.replace(kernel, memory_steps=once)
    assert occupancy_lab.tune(781, kernel=own, gpu="h100", num_warps=4).best.kernel == "double_rows"
    compared = explain(kernel, memory_steps=once, compared_with="softmax_naive")
    assert "softmax_naive, 5 torch operations" in flat(compared.to_markdown(full=True))


@pytest.mark.parametrize(
    ("changes", "programs"),
    [({"grid": Grid.BLOCKS}, 4096 * 781 // 1024), ({"grid": Grid.PERSISTENT}, 8 * 2 * 132)],
)
def test_grid(kernel: Kernel, changes: dict[str, Any], programs: int) -> None:
    """The grid determines how many programs are launched."""
    (record,) = explain(kernel, **changes).records
    assert record.plan.num_programs == programs


def test_without_run_nothing_is_measured(kernel: Kernel) -> None:
    """A measurement is refused in one sentence that names what the KERNEL lacks."""
    with pytest.raises(InputError, match=r"double_rows cannot be measured: its KERNEL has no run"):
        check_measurable(NamedKernel("doubled.py", kernel))
    with pytest.raises(InputError, match="has no run"):
        kernel.run_on(None)
    runs = dataclasses.replace(kernel, run=lambda *launched: launched)
    check_measurable(NamedKernel("doubled.py", runs))
    assert runs.run_on(1, 2, 3) == (1, 2, 3)


def test_a_missing_constexpr_is_named(kernel: Kernel) -> None:
    """A constexpr that is not usual must be given, and the error names it."""
    with pytest.raises(occupancy_lab.OccupancyLabError, match="BLOCK_SIZE"):
        explain(kernel, constexprs=lambda _problem, _config: {})


def test_passes_allow_a_block_below_a_row(kernel: Kernel) -> None:
    """A kernel with passes over a row takes a BLOCK_SIZE below it; another kernel does not."""
    small = {"default_config": lambda _problem, _most: Config(256, 4, 1)}
    with pytest.raises(InputError, match="a program holds a whole row"):
        explain(kernel, **small)
    found = explain(
        kernel, passes=lambda problem, config: -(-problem.cols // config.block_size), **small
    )
    assert found.records[0].config.block_size == 256


TILE = """

@triton.jit
def double_tile(y_ptr, x_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    place, mask = rows * n_cols + cols, (rows < n_rows) & (cols < n_cols)
    tl.store(y_ptr + place, 2 * tl.load(x_ptr + place, mask=mask), mask=mask)


from occupancy_lab import Config, InputError, Kernel, MemoryStep, tensor


def arguments(problem):
    matrix = tensor((problem.rows, problem.cols), problem.dtype)
    return (matrix, matrix, problem.rows, problem.cols)


def constexprs(problem, config):
    rows, rest = divmod(config.block_size, 3)
    if rest:
        raise InputError(f"BLOCK_SIZE is {config.block_size}; it is 3 times the rows of a program")
    return {"ROWS": rows, "COLS": 1 << (problem.cols - 1).bit_length(), "maxnreg": 40}


KERNEL = Kernel(
    double_tile,
    arguments,
    constexprs=constexprs,
    default_config=lambda problem, most: Config(12, 4, 1),
    configs=lambda problem: (Config(6, 4, 1), Config(24, 4, 1), Config(25, 4, 1)),
    work=lambda problem, config: -(-problem.rows // (config.block_size // 3)),
    memory_steps=lambda problem: (
        MemoryStep("double", problem.rows * problem.cols, problem.rows * problem.cols),
    ),
)
"""


@pytest.fixture(scope="module")
def tile_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a KERNEL whose programs take several rows each, with its own blocks."""
    path = tmp_path_factory.mktemp("kernels") / "tiled.py"
    path.write_text(FUNCTION + TILE, encoding="utf-8")
    return path


@pytest.mark.usefixtures("alone")
def test_a_kernel_may_choose_its_own_blocks(tile_file: Path) -> None:
    """`explain` takes the default block, and describes the plan in pieces."""
    found = occupancy_lab.explain(
        cols=60, rows=4095, kernel=tile_file, gpu="h100,mi300x", num_warps=8
    )
    assert [one.config for one in found.records] == [Config(12, 8, 1)] * 2
    assert [one.plan.num_programs for one in found.records] == [1024, 1024]
    assert all(one.prediction is not None for one in found.records)
    full = flat(found.to_markdown(full=True))
    assert "One program per piece: num_programs = 1024" in full


def test_a_block_that_a_kernel_refuses_is_refused_at_once(tile_file: Path) -> None:
    """`explain` exits with 2 and its sentence, and a sweep has a skipped row."""
    sentence = "BLOCK_SIZE is 7; it is 3 times the rows of a program"
    kernel = ("--cols", 60, "--kernel", tile_file, "--gpu", "h100")
    done = lab("explain", *kernel, "--block-size", 7)
    assert (done.returncode, done.stdout) == (2, "")
    assert flat(done.stderr).endswith(sentence)
    table = occupancy_lab.sweep(
        60, kernel=tile_file, gpu="h100", block_size=(7, 24), num_warps=4, num_stages=1
    )
    assert list(table["status"]) == ["skipped", "ok"]
    assert table["reason"][0] == sentence
    assert table["num_programs"][1] == 512


def test_constexprs_may_set_options_of_one_vendor(kernel: Kernel) -> None:
    """Only NVIDIA's compiler gets an option such as maxnreg, from `constexprs` or `options`."""
    loaded = {
        "constexprs": lambda _problem, config: {"BLOCK_SIZE": config.block_size, "maxnreg": 24},
        "default_config": lambda _problem, _most: Config(16_384, 4, 1),
    }
    limited = dataclasses.replace(kernel, **loaded)
    by_option = dataclasses.replace(
        kernel, options={"maxnreg": 24}, default_config=limited.default_config
    )
    asked = {"cols": 9000, "gpu": "h100,mi300x", "cache": False}
    for one in (limited, by_option):
        found = occupancy_lab.explain(kernel=one, **asked)
        assert found.records[0].resources.n_regs <= 24
        assert found.records[1].resources.n_regs > 24
    with pytest.raises(InputError, match="maxnregs is neither a parameter of double_rows"):
        explain(kernel, options={"maxnregs": 24})


def test_programs_that_wait_for_each_other_must_fit(kernel: Kernel) -> None:
    """One program too many is refused in a sentence, is a row that does not fit, and not chosen."""
    fit = explain(kernel).records[0].plan.resident_programs
    steps = (MemoryStep("double", 4096 * 781, 4096 * 781),)
    timed = dataclasses.replace(kernel, memory_steps=lambda _problem: steps)
    for needed, status in ((fit, "ok"), (fit + 1, "does not fit")):
        waiting = dataclasses.replace(timed, together=lambda _problem, _config, n=needed: n)
        table = occupancy_lab.sweep(781, kernel=waiting, gpu="h100", num_warps=4, num_stages=1)
        assert list(table["status"]) == [status]
        assert table["predicted_us"].isna().all() == (status != "ok")
    why = (
        rf"H100 SXM holds {fit} programs of this kernel at once, and {fit + 1} wait for each other"
    )
    assert table["reason"].str.contains(why).all()
    with pytest.raises(occupancy_lab.DoesNotFitError, match=why):
        explain(waiting, title="waiting")
    with pytest.raises(InputError, match=rf"not one configuration is ok.*{fit + 1} wait"):
        occupancy_lab.tune(781, kernel=waiting, gpu="h100", num_warps=4)
