"""The occupancy of given resources, without a kernel or a compile."""

import json

import pytest

from occupancy_lab.errors import DoesNotFitError, InputError
from occupancy_lab.explaining.limits import calculate_occupancy
from occupancy_lab.gpus import Gpu, bare_gpus, find_gpu
from occupancy_lab.occupancy.calculator import calculate, check_fits
from occupancy_lab.values import Resources


def test_each_gpu_is_worked_out_in_its_turn() -> None:
    """A list of GPUs gives a calculation for each, in order, of the same resources."""
    found = calculate_occupancy("mi300x,h100,sm_90", n_regs=32, shared=8192, num_warps=8)
    assert [one.gpu for one in found] == [find_gpu(name) for name in ("mi300x", "h100", "sm_90")]
    for one in found:
        assert one.resources == Resources(n_regs=32, num_warps=8, shared=8192)
        assert one == calculate(one.resources, one.gpu)
    assert found[2].resident_programs is None
    assert found[2].to_dict()["multiprocessors"] is None


def test_registers_name_the_option_that_caps_them() -> None:
    """Where registers limit, the next step is maxnreg or waves_per_eu."""
    found = calculate_occupancy("h100,mi300x", n_regs=91, shared=0, num_warps=8)
    options = {one.gpu.key: one.next_steps[0].option for one in found}
    assert options == {"h100": "maxnreg=80", "mi300x": "waves_per_eu=6"}
    (fewer,) = calculate_occupancy("h100", n_regs=80, shared=0, num_warps=8)
    assert fewer.occupancy.programs_per_multiprocessor == 3
    (full,) = calculate_occupancy("h100", n_regs=16, shared=0, num_warps=8)
    assert [step.option for step in full.next_steps] == [None, None]


@pytest.mark.parametrize(
    ("names", "amounts", "part"),
    [
        ("h100", {"n_regs": -1}, "n_regs is -1; "),
        ("h100", {"shared": -8}, "shared is -8; "),
        ("mi300x", {"sgprs": -2}, "sgprs is -2; "),
        ("h100", {"static_shared": -2}, "static_shared is -2; "),
        ("h100", {"num_warps": 0}, "num_warps is 0; "),
        ("h100", {"num_warps": -4}, "num_warps is -4; "),
        ("h100", {"num_warps": 6}, "power of two"),
        ("h100,mi300x", {"num_warps": 32}, "a program on gfx942 has at most 16 waves"),
        ("h100,gfx1100", {"sgprs": 5}, "sgprs is 5, and no limit of 'h100,gfx1100' depends on it"),
        ("mi300x", {"barriers": 5}, "barriers is 5, and no limit of 'mi300x' depends on it"),
        ("h100,mi300x", {"tensor_memory": 32}, "tensor_memory is 32, and no limit of"),
        ("h100", {"agprs": 4}, "agprs is 4, and no limit of"),
        ("mi300x", {"agprs": 33}, "agprs is 33, more than the 32 of n_regs"),
        ("h100", {"num_ctas": 3}, "num_ctas is 3; a program has 1, 2, 4, 8 or 16 CTAs"),
        ("h100", {"num_ctas": 32}, "num_ctas is 32; a program has"),
        ("h100,a100", {"num_ctas": 2}, "num_ctas is 2, and A100 SXM 80 GB has no clusters"),
        ("mi300x", {"num_ctas": 2}, "num_ctas is 2, and MI300X has no clusters; use 1"),
        ("h1000", {}, "No GPU is called 'h1000'"),
        ("h100,,mi300x", {}, "empty part"),
    ],
)
def test_impossible_questions(names: str, amounts: dict[str, int], part: str) -> None:
    """A negative amount, an impossible num_warps and an unknown GPU are refused."""
    with pytest.raises(InputError) as caught:
        calculate_occupancy(names, **({"n_regs": 32, "shared": 0, "num_warps": 8} | amounts))
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("names", "amounts", "available"),
    [
        ("h100,rtx4090", {"shared": 150_000}, 101_376),
        ("h100", {"n_regs": 300}, 256),
        ("h100", {"n_regs": 128, "num_warps": 32}, 64),
        ("mi300x", {"n_regs": 513, "num_warps": 1}, 512),
    ],
)
def test_what_fits_nowhere(names: str, amounts: dict[str, int], available: int) -> None:
    """If a GPU holds no program, the error says what that GPU offers."""
    with pytest.raises(DoesNotFitError) as caught:
        calculate_occupancy(names, **({"n_regs": 32, "shared": 0, "num_warps": 8} | amounts))
    assert caught.value.available == available
    assert caught.value.needed in amounts.values()


@pytest.mark.parametrize("gpu", bare_gpus().values(), ids=lambda gpu: gpu.key)
def test_the_registers_said_to_fit_do(gpu: Gpu) -> None:
    """The message names the most registers per thread that fit with these warps."""
    num_warps = 1
    while num_warps <= gpu.architecture.max_warps_per_program:
        with pytest.raises(DoesNotFitError) as caught:
            check_fits(calculate(Resources(2000, num_warps, 0), gpu))
        error = caught.value
        assert (error.needed, f"may have {error.available}" in str(error)) == (2000, True)
        check_fits(calculate(Resources(error.available, num_warps, 0), gpu))
        with pytest.raises(DoesNotFitError):
            check_fits(calculate(Resources(error.available + 1, num_warps, 0), gpu))
        num_warps *= 2


def test_shared_memory_without_stages_to_take_away() -> None:
    """If stages cannot help, the message has only the limit."""
    h100 = find_gpu("h100")
    said = "at most 232448 B of shared memory, and this one needs 232449 B$"
    with pytest.raises(DoesNotFitError, match=said) as caught:
        check_fits(calculate(Resources(32, 8, 232_000, static_shared=449), h100), num_stages=1)
    assert (caught.value.needed, caught.value.available) == (232_449, 232_448)
    check_fits(calculate(Resources(32, 8, 232_000, static_shared=448), h100))


def test_other_limits_are_named() -> None:
    """If neither memory nor registers are the reason, the message names it."""
    with pytest.raises(DoesNotFitError, match="for want of sgprs"):
        check_fits(calculate(Resources(32, 16, 0, sgprs=400), find_gpu("mi300x")))


def test_a_calculation_is_plain_json() -> None:
    """A calculation survives JSON, with n_spills among its resources."""
    (found,) = calculate_occupancy("mi300x", n_regs=32, shared=0, num_warps=1, local_bytes=24)
    plain = found.to_dict()
    assert json.loads(json.dumps(plain)) == json.loads(json.dumps(plain, allow_nan=False))
    assert plain["resources"]["n_spills"] == 6
    assert plain["resources"]["sgprs"] is None
    assert plain["tutorial"]["programs_per_multiprocessor"] is None
    assert plain["limiters"] == list(found.occupancy.limiters)
    assert plain["resident_programs"] == found.resident_programs
