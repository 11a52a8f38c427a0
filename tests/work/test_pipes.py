"""The pipes of instructions, against Nsight Compute and white papers."""

import pytest
from compare_work import executed_of
from recorded_work import RecordedLaunch, recorded_launches

from occupancy_lab.gpus import CudaArchitecture, architectures, devices
from occupancy_lab.work.pipes import (
    ALU,
    OTHER_CYCLES,
    SCHEDULERS,
    TENSOR,
    XU,
    XU_CYCLES,
    fma_cycles,
    pipe_of,
)

HOPPER = architectures()["sm_90"]
COUNTER = "smsp__inst_executed_pipe_{}.sum"


def counted() -> list[RecordedLaunch]:
    """Return launches of different kernels with a counter of xu instructions."""
    some = {one.kernel: one for one in recorded_launches() if one.number(COUNTER.format(XU))}
    return [one for _, one in sorted(some.items())][::4]


@pytest.mark.slow
@pytest.mark.parametrize("launch", counted(), ids=lambda one: one.kernel)
def test_pipes_execute_what_was_counted(launch: RecordedLaunch) -> None:
    """Cycles of the alu and xu pipes match the instructions that the profiler counted for them."""
    executed = executed_of(launch)
    if executed is None or executed.program is None or executed.unknowns:
        pytest.skip("what it executes is not known")
    for pipe, each in ((ALU, OTHER_CYCLES), (XU, XU_CYCLES)):
        cycles = executed.program.pipes.get(pipe, 0.0) * executed.programs * SCHEDULERS
        assert cycles / each == pytest.approx(launch.number(COUNTER.format(pipe)), rel=0.02)


def test_results_a_cycle_are_those_of_data_sheets() -> None:
    """FP32 and FP64 rates per cycle and SM are within 5% of the data sheet's TFLOPS."""
    known = 0
    for gpu in devices().values():
        cycles, limits = (gpu.multiprocessors or 0) * (gpu.boost_mhz or 0) * 2e-6, gpu.architecture
        if cycles and isinstance(limits, CudaArchitecture):
            known += 1
            assert limits.fp32_results * cycles == pytest.approx(gpu.fp32_tflops, rel=0.05)
            if gpu.fp64_tflops:
                assert limits.fp64_results * cycles == pytest.approx(gpu.fp64_tflops, rel=0.05)
    assert known > 20


def test_one_half_of_the_fma_pipe_does_integers_alone() -> None:
    """FP32 uses both halves of Hopper's fma pipe, and integers one; an A100 has a single half."""
    ampere = architectures()["sm_80"]
    assert isinstance(HOPPER, CudaArchitecture)
    assert isinstance(ampere, CudaArchitecture)
    assert [fma_cycles(8, heavy, HOPPER) for heavy in (0, 4, 20)] == [8, 10, 20]
    assert fma_cycles(16, 4, ampere) == 20


@pytest.mark.parametrize(("columns", "cycles"), [(256, 128.0), (128, 64.0), (64, 32.0), (8, 16.0)])
def test_a_product_of_a_warp_group_takes_its_share_of_the_white_papers_rate(
    columns: int, cycles: float
) -> None:
    """A warp group's product takes N / 2 cycles, as in the white paper, but at least 16."""
    word = 0x1F0 | (columns // 8 - 1) << 53
    assert pipe_of(word, HOPPER) == (TENSOR, cycles)
