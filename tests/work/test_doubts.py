"""Doubts where a kernel's TTIR and its machine code disagree on what a launch does."""

import dataclasses

import pytest
from compare_work import counts_of, executed_of
from hand_made import executed, matmul, place, rows
from recorded_work import recorded_launches

from occupancy_lab.work.counting import doubts
from occupancy_lab.work.counts import Amount, Counts, Unknown
from occupancy_lab.work.execution import Executed

LOADS = "bytes that loads ask for"
COUNTS = rows(64, 4096, 132)
"""A kernel that reads 2 bytes for each of 64 x 4096 elements, and writes as many."""
ELEMENTS = 64 * 4096


def moving(loaded: int, stored: int) -> Executed:
    """Return machine code whose threads load and store *loaded* and *stored* elements."""
    run = executed([place(3)], 100)
    (access,) = run.accesses
    return dataclasses.replace(
        run,
        accesses=tuple(
            dataclasses.replace(
                access, operation=operation, thread_bytes=2, threads=Amount.of(threads)
            )
            for operation, threads in (("load", loaded), ("store", stored))
        ),
    )


def multiplying(*flops: int | None) -> Executed:
    """Return machine code with the given FLOPs of tensor instructions on each line."""
    run = executed([place(10 + one) for one in range(len(flops))], 100)
    lines = tuple(
        dataclasses.replace(line, tensor_flops=None if one is None else Amount.of(one))
        for line, one in zip(run.lines, flops, strict=True)
    )
    return dataclasses.replace(run, lines=lines, kinds={"bulk_copies": Amount.of(1)})


@pytest.mark.parametrize(
    ("loaded", "stored", "numbers"),
    [
        (ELEMENTS, ELEMENTS, []),
        (ELEMENTS + 99, ELEMENTS - 99, []),
        (16 * ELEMENTS, ELEMENTS, []),
        (ELEMENTS // 2, ELEMENTS, [LOADS]),
        (ELEMENTS, ELEMENTS // 2, ["bytes that stores write"]),
        (ELEMENTS, ELEMENTS * 2, ["bytes that stores write"]),
    ],
)
def test_bytes_must_agree(loaded: int, stored: int, numbers: list[str]) -> None:
    """Differences above 1% are doubted, unless several threads load the same bytes."""
    found = doubts(COUNTS, moving(loaded, stored))
    assert [one.number for one in found] == numbers
    for one in found:
        assert one.counted == 2 * ELEMENTS
        assert one.executed in {2 * loaded, 2 * stored}


@pytest.mark.parametrize(
    ("of_the_dot", "numbers"),
    [(1.0, 0), (4.0, 0), (3.0, 0), (0.75, 1), (1.5, 1), (0.0, 1)],
)
def test_products_must_agree(of_the_dot: float, numbers: int) -> None:
    """FLOPs of dots may be repeated by a power of two of warps, or three times as in tf32x3."""
    counts = matmul(4096, 128, 132)
    found = doubts(counts, multiplying(round(of_the_dot * 2 * 4096**3)))
    assert [one.number for one in found] == ["FLOPs of dots"] * numbers


@pytest.mark.parametrize(("done", "numbers"), [(3.0, 0), (5.0, 0), (2.5, 1)])
def test_some_products_may_be_repeated(done: float, numbers: int) -> None:
    """One of two dots may be repeated by two or four warps while the other is not."""
    counts = matmul(4096, 128, 132)
    dots = [one for one in counts.arithmetic if one.operation == "dot"]
    counts = dataclasses.replace(counts, arithmetic=(*dots, *dots))
    found = doubts(counts, multiplying(round(done * dots[0].flops.low)))
    assert len(found) == numbers


def test_unknown_numbers_are_not_doubted() -> None:
    """Nothing is doubted where a value, the code or the shape of a product is not known."""
    counts = matmul(4096, 128, 132)
    assert doubts(counts, multiplying(7, None)) == ()
    assert doubts(counts, None) == doubts(None, multiplying(7)) == ()
    unknown = (Unknown(place(3), "values of x", "mask"),)
    assert doubts(dataclasses.replace(counts, unknowns=unknown), multiplying(7)) == ()
    run = dataclasses.replace(multiplying(7), unknowns=unknown)
    assert doubts(counts, run) == ()


def of_recorded() -> list[tuple[str, Counts, Executed]]:
    """Return the counts of recorded launches whose binaries can be followed."""
    return [
        (one.kernel, counts_of(one), found)
        for one in recorded_launches()
        if (one.is_counted or one.instructions) and (found := executed_of(one)) is not None
    ]


@pytest.mark.slow
def test_few_recorded_launches_are_doubted() -> None:
    """Doubts of public launches are causal products, and loads shared by threads.

    Nsight Compute confirms the instructions of all these launches.
    """
    found = {
        (kernel, one.number) for kernel, counts, run in of_recorded() for one in doubts(counts, run)
    }
    assert found == {
        ("chunk_bwd_kernel_dv", "FLOPs of dots"),
        ("chunk_gsa_bwd_kernel_dqkvg", "FLOPs of dots"),
        ("chunk_gsa_fwd_kernel_inter", "FLOPs of dots"),
        ("triton_poi_fused__to_copy__unsafe_index_add_mul_sub_unsqueeze_6", LOADS),
        ("triton_poi_fused_index_put_mul_new_zeros_1", LOADS),
    }
