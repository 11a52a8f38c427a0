"""Predictions against simulated machines, and against this machine's GPU."""

import csv
import dataclasses
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import samples
import torch
from records import record_of

from occupancy_lab.compiled_records import compile_matrix
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.errors import DoesNotFitError, DriverError, InputError
from occupancy_lab.gpus import Gpu, PresentGpu, find_gpu, present_gpus
from occupancy_lab.inputs import NamedKernel, chosen_kernel
from occupancy_lab.kernel import load_kernel
from occupancy_lab.measuring import ncu
from occupancy_lab.measuring import verify as verify_module
from occupancy_lab.measuring.driver import DriverKernel
from occupancy_lab.measuring.ncu import NcuProfile, launch_once
from occupancy_lab.measuring.process import TimedLaunch
from occupancy_lab.measuring.verify import (
    LEAST_REGISTERS,
    Check,
    Verification,
    grid_of_configs,
    verify,
    verify_here,
)
from occupancy_lab.record import Record
from occupancy_lab.values import Config, Problem

DATA = Path(__file__).parents[2] / "reports" / "data"
PROBLEM = Problem(4096, 781)
CONFIG = Config(1024, 8, 4)
H200 = PresentGpu(
    find_gpu("h200"), "NVIDIA H200", MappingProxyType({}), index=0, table=find_gpu("h200")
)
CARVEOUT = 135168
"""132 KiB, one of the divisions that Hopper has."""


def sample_record(
    named: NamedKernel, problem: Problem, config: Config, gpu: Gpu, _compiler: Compiler
) -> Record:
    """Return a record of 32 registers and one row in flight per stage."""
    row = 4 * config.block_size
    resources = samples.H100.replace(
        num_warps=config.num_warps, shared=32 + row * (config.num_stages - 1)
    )
    return record_of(named.kernel, problem, config, gpu, resources, triton="3.7.1")


def predicted(problem: Problem, config: Config, kernel: str = "softmax") -> Record:
    """Return the prediction for the H200."""
    with closing(Compiler(None)) as compiler:
        return verify_module.compile_matrix(
            chosen_kernel(kernel), problem, config, H200.gpu, compiler
        )


class Machine:
    """A machine that behaves as predicted, except for a test's changes."""

    def __init__(self) -> None:
        self.driver: dict[str, int] = {}
        """What the driver says otherwise."""
        self.held_more = 0
        """Programs that it holds beyond the prediction."""
        self.ncu: dict[str, Any] = {}
        """What Nsight Compute says otherwise."""
        self.failure: str | None = None
        """Why Nsight Compute fails."""
        self.launches: list[TimedLaunch] = []
        self.problems: list[Problem] = []
        """What Nsight Compute was given."""

    def ask_driver(self, _kernel: Any, problem: Problem, config: Config, _target: Any) -> Any:
        """Answer for the driver."""
        record = predicted(problem, config, _kernel.name)
        resources = record.resources
        said = DriverKernel(
            n_regs=resources.n_regs,
            local_bytes=resources.local_bytes or 0,
            static_shared=resources.static_shared,
            programs_per_multiprocessor=record.occupancy.programs_per_multiprocessor,
        )
        return dataclasses.replace(said, **self.driver)

    def accepts(self, kernel: Any, problem: Problem, config: Config, num_programs: int) -> bool:
        """Answer a cooperative launch."""
        held = predicted(problem, config, kernel.name).plan.resident_programs
        return num_programs <= (held or 0) + self.held_more

    def profile(self, problem: Problem, launch: TimedLaunch) -> NcuProfile:
        """Answer for Nsight Compute."""
        self.launches.append(launch)
        self.problems.append(problem)
        assert launch.config is not None
        if self.failure is not None:
            raise DriverError(self.failure)
        record = predicted(problem, launch.config, launch.kernel)
        limits = {limit.resource: limit.programs for limit in record.occupancy.limits}
        # The driver adds 1 KiB of its own, in units of 128 B.
        allocated = (record.resources.shared + 1024 + 127) // 128 * 128
        report = NcuProfile(
            num_programs=launch.num_programs,
            limit_registers=limits["registers"],
            limit_shared=CARVEOUT // allocated,
            limit_warps=limits["warps"],
            limit_programs=limits["programs"],
            theoretical_occupancy=record.occupancy.occupancy,
            achieved_occupancy=0.9 * record.occupancy.occupancy,
            read_bytes=problem.matrix_bytes + 4096,
            n_regs=record.resources.n_regs,
            carveout=CARVEOUT,
        )
        return dataclasses.replace(report, **self.ncu)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Replace the driver, the launches, Nsight Compute and the compiler by simulations."""
    made = Machine()
    monkeypatch.setattr(verify_module, "compile_matrix", sample_record)
    monkeypatch.setattr(verify_module, "ask_driver", made.ask_driver)
    monkeypatch.setattr(verify_module, "accepts_cooperative_launch", made.accepts)
    monkeypatch.setattr(verify_module, "profile", made.profile)
    return made


def differing(checks: tuple[Check, ...]) -> set[str]:
    """Return the checks that differ."""
    return {check.what for check in checks if check.agrees is False}


def test_a_machine_as_predicted_agrees(machine: Machine) -> None:
    """Every check is made and agrees."""
    checks = verify("softmax", PROBLEM, [CONFIG], H200)
    assert {check.source for check in checks} == {"driver", "cooperative launch", "ncu"}
    assert all(check.agrees is True for check in checks)
    assert machine.launches == [TimedLaunch("softmax", CONFIG, 1056)]


def test_what_triton_compiles_is_checked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prediction is from this Triton's binary, compiled without the machine."""
    monkeypatch.setattr(verify_module, "compile_matrix", compile_matrix)
    checks = verify("softmax", PROBLEM, [CONFIG], H200)
    assert all(check.agrees is True for check in checks)
    resources = predicted(PROBLEM, CONFIG).resources
    assert [check.predicted for check in checks[:3]] == [
        resources.n_regs,
        resources.local_bytes,
        resources.static_shared,
    ]
    assert machine.problems[0] == PROBLEM


@pytest.mark.parametrize(
    ("field", "what"),
    [
        ("n_regs", "registers per thread"),
        ("local_bytes", "local memory, B per thread"),
        ("static_shared", "static shared memory, B"),
        ("programs_per_multiprocessor", "programs per SM"),
    ],
)
def test_each_word_of_the_driver_counts(machine: Machine, field: str, what: str) -> None:
    """A changed number of the driver makes exactly its check differ."""
    machine.driver = {field: 77}
    checks = verify("softmax", PROBLEM, [CONFIG], H200)
    assert differing(checks) == {what}
    (check,) = [check for check in checks if check.agrees is False]
    assert check.found == 77
    assert check.source == "driver"


@pytest.mark.parametrize(("more", "programs"), [(1, 1057), (-1, 1056)])
def test_a_program_more_or_less_differs(machine: Machine, more: int, programs: int) -> None:
    """A GPU that holds one program more or fewer differs in one launch."""
    machine.held_more = more
    checks = verify("softmax", PROBLEM, [CONFIG], H200, profiled=0)
    assert differing(checks) == {f"{programs} programs at once"}


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("num_programs", 1, "programs launched"),
        ("n_regs", 1, "registers per thread"),
        ("limit_registers", 1, "programs per SM, by registers"),
        ("limit_warps", 1, "programs per SM, by warps"),
        ("limit_programs", 1, "programs per SM, by program slots"),
        ("limit_shared", 1, f"programs per SM, by {CARVEOUT} B of shared memory"),
        ("theoretical_occupancy", 0.998, "theoretical occupancy, %"),
        ("achieved_occupancy", 1.011, "achieved occupancy, %, at most"),
        ("read_bytes", PROBLEM.matrix_bytes * 89 // 100, "read from DRAM, B"),
        ("read_bytes", PROBLEM.matrix_bytes * 151 // 100, "read from DRAM, B"),
    ],
)
def test_each_count_counts(machine: Machine, field: str, value: float, what: str) -> None:
    """A changed count of Nsight Compute differs; a missing one is not checked."""
    machine.ncu = {field: value}
    checks = verify("softmax", PROBLEM, [CONFIG], H200)
    assert differing(checks) == {what}
    machine.ncu = {field: None}
    checks = verify("softmax", PROBLEM, [CONFIG], H200)
    (check,) = [check for check in checks if check.agrees is None]
    assert (check.what, check.source) == (what, "ncu")
    assert check.reason == "ncu does not say"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("theoretical_occupancy", 0.9991),
        ("achieved_occupancy", 1.009),
        ("achieved_occupancy", 0.0),
        ("read_bytes", PROBLEM.matrix_bytes * 91 // 100),
        ("read_bytes", PROBLEM.matrix_bytes * 149 // 100),
    ],
)
def test_what_may_vary_agrees(machine: Machine, field: str, value: float) -> None:
    """Rounding, idle warps and caches make no difference."""
    machine.ncu = {field: value}
    assert not differing(verify("softmax", PROBLEM, [CONFIG], H200))


def test_shared_memory_is_the_drivers_choice(machine: Machine) -> None:
    """The limit by shared memory uses the carve-out, if it is known."""
    record = predicted(PROBLEM, CONFIG)
    machine.ncu = {"carveout": 233472, "limit_shared": record.occupancy.limit("shared").programs}
    checks = verify("softmax", PROBLEM, [CONFIG], H200)
    assert all(check.agrees for check in checks)
    machine.ncu = {"carveout": None}
    checks = verify("softmax", PROBLEM, [CONFIG], H200)
    (check,) = [check for check in checks if check.agrees is None]
    assert check.what == "programs per SM, by shared memory"
    assert check.reason == "ncu does not say how much the driver carved out"


def test_a_failing_ncu_is_told(machine: Machine) -> None:
    """If Nsight Compute fails, one line says why, and other checks are made."""
    machine.failure = "no permission"
    checks = verify("softmax", PROBLEM, [CONFIG], H200)
    (check,) = [check for check in checks if check.source == "ncu"]
    assert (check.agrees, check.reason) == (None, "no permission")
    assert sum(check.agrees is True for check in checks) == 6


@pytest.mark.usefixtures("machine")
def test_what_does_not_fit_is_left_out() -> None:
    """A configuration that does not fit has no check; if none fits, that is the error."""
    wide = Problem(64, 32768)
    too_much, fits = Config(32768, 32, 4), Config(32768, 32, 1)
    checks = verify("softmax", wide, [too_much, fits], H200)
    assert {check.config for check in checks} == {fits}
    assert not differing(checks)
    with pytest.raises(DoesNotFitError, match="shared memory"):
        verify("softmax", wide, [too_much], H200)
    with pytest.raises(InputError, match="no configuration"):
        verify("softmax", wide, [], H200)


@pytest.mark.usefixtures("machine")
def test_a_kernel_of_rows_is_not_launched_beyond_them() -> None:
    """A kernel with one program per row is not launched with more."""
    config = Config(1024, 4, 1)
    held = predicted(PROBLEM, config, "softmax_row").plan.resident_programs
    few = verify("softmax_row", Problem(held, 781), [config], H200, profiled=0)
    launches = [check for check in few if check.source == "cooperative launch"]
    assert [check.agrees for check in launches] == [True, None]
    assert launches[1].reason == f"the matrix has work for {held} programs"
    enough = verify("softmax_row", Problem(held + 1, 781), [config], H200)
    assert all(check.agrees for check in enough)


def test_what_is_read_again_may_come_from_a_cache(machine: Machine) -> None:
    """Bytes that are read again may come from the L2 cache."""
    checks = verify("vector_add", Problem(4096, 1024), [Config(1024, 4, 1)], H200)
    assert not differing(checks)
    machine.ncu = {"read_bytes": 2 * 4096 * 1024 * 4}
    checks = verify("vector_add", Problem(4096, 1024), [Config(1024, 4, 1)], H200)
    assert not differing(checks)


def test_no_nvidia_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an NVIDIA GPU there is nothing to verify against."""
    mi300x = dataclasses.replace(H200, gpu=find_gpu("mi300x"), name="MI300X")
    with pytest.raises(InputError, match="MI300X is no NVIDIA GPU"):
        verify("softmax", PROBLEM, [CONFIG], mi300x)
    for present in ((), (mi300x,)):
        monkeypatch.setattr(verify_module, "present_gpus", lambda present=present: present)
        with pytest.raises(InputError, match="none is at hand"):
            verify_here()


def test_table(machine: Machine, check_golden: Callable[[str, str], None]) -> None:
    """The table says for each configuration what agrees, differs or was not checked."""
    machine.ncu = {"limit_registers": 7, "read_bytes": None}
    good = verify("softmax", PROBLEM, [CONFIG], H200)
    machine.failure = "Nsight Compute is not installed"
    bare = verify("softmax", PROBLEM, [Config(1024, 4, 1)], H200)
    check_golden("verification.md", Verification((*good, *bare)).to_markdown())


@pytest.mark.parametrize("name", ["softmax", "vector_add"])
def test_one_launch_is_the_kernels_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch for a profiler runs the kernel once and waits."""
    seen: list[Any] = []
    kernel = dataclasses.replace(load_kernel(name), run=lambda *given: seen.append(given))
    monkeypatch.setattr(ncu, "load_kernel", lambda _name: kernel)
    monkeypatch.setattr(ncu, "operands", lambda *asked: [asked] * asked[3])
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: seen.append("done"))
    launch_once(Problem(3, 5, "bfloat16"), TimedLaunch(name, CONFIG, 7))
    ((matrix, config, num_programs, *others), done) = seen
    assert matrix == (3, 5, "bfloat16", kernel.operands)
    assert others == [matrix] * (kernel.operands - 1)
    assert (config, num_programs, done) == (CONFIG, 7, "done")


def test_no_thread_takes_many_more_elements_than_its_author_gives_one() -> None:
    """Given warps take the blocks of a kernel's own configurations, but not too much of one."""
    kernel, problem = load_kernel("softmax_tile"), Problem(4096, 781)
    configs = grid_of_configs(kernel, problem, find_gpu("h200"), (2, 4), (1, 2))
    blocks = {(one.num_warps, one.block_size) for one in configs}
    assert {one.num_stages for one in configs} == {1, 2}
    assert blocks == {(2, 1024), (2, 2048), (4, 1024), (4, 2048), (4, 4096)}
    assert max(one.block_size / one.num_warps for one in kernel.configs(problem)) == 1024


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_nsight_compute_reports_some_registers_at_least(gpu: str) -> None:
    """Nsight Compute reports 16 registers for every recorded launch with fewer."""
    with (DATA / f"work-{gpu}.csv").open(encoding="utf-8") as file:
        rows = [one for one in csv.DictReader(file) if one["launch__registers_per_thread"]]
    few = [one for one in rows if int(one["n_regs"]) < LEAST_REGISTERS]
    assert len(few) > 5
    assert {float(one["launch__registers_per_thread"]) for one in few} == {LEAST_REGISTERS}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("cols", [100, 781, 4096, 12672, 32768])
@pytest.mark.parametrize("kernel", ["softmax", "softmax_row", "vector_add"])
def test_the_gpu_at_hand_agrees(kernel: str, cols: int, dtype: str) -> None:
    """The GPU, its driver and Nsight Compute agree with every prediction."""
    present = present_gpus()[0]
    if present.gpu.vendor != "NVIDIA":
        pytest.skip("no NVIDIA GPU")
    problem = Problem(8192, cols, dtype)
    configs = grid_of_configs(load_kernel(kernel), problem, present.gpu)
    checks = verify(kernel, problem, configs, present, profiled=1)
    assert not [check for check in checks if check.agrees is False]
    assert {check.agrees for check in checks if check.source == "driver"} == {True}
