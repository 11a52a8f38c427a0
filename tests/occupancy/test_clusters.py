"""Whole clusters: an H200's driver and launches, and properties of the formula."""

import csv
import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy.calculator import calculate, clusters, whole_clusters
from occupancy_lab.values import Resources

H200 = find_gpu("h200")
RECORDED = Path(__file__).with_name("recorded")
POWERS = (1, 2, 4, 8, 16)
GROUPS = st.lists(st.integers(1, 9).map(lambda tpcs: 2 * tpcs), min_size=1, max_size=12)


def recorded(name: str) -> list[dict[str, int]]:
    """Return the rows of a file recorded on H200s, where several agreed."""
    rows = csv.DictReader((RECORDED / name).read_text(encoding="utf-8").splitlines())
    return [{name: int(value) for name, value in row.items()} for row in rows]


def test_equals_the_driver_and_what_ran_at_once() -> None:
    """Clusters equal an H200's at every size and every CTAs per SM."""
    rows = recorded("h200_clusters.csv")
    assert len(rows) > 100
    for row in rows:
        found = whole_clusters(row["num_ctas"], row["ctas_per_sm"], H200)
        assert found == row["driver"] == row["resident"], row


def test_equals_the_driver_on_tritons_own_kernels() -> None:
    """48 kernels of Triton 3.6.0 have an H200's programs and clusters."""
    rows = recorded("h200_triton_clusters.csv")
    assert len(rows) == 48
    for row in rows:
        asked = Resources(row["n_regs"], row["num_warps"], row["shared"], num_ctas=row["num_ctas"])
        found = calculate(asked.replace(barriers=1), H200)
        assert found.occupancy.programs_per_multiprocessor == row["programs_per_sm"], row
        assert found.resident_programs == row["clusters"], row


@pytest.mark.parametrize(
    ("num_ctas", "programs", "resident"), [(4, 8, 248), (2, 8, 528), (4, 4, 124), (2, 3, 198)]
)
def test_steps_lead_to_the_clusters(num_ctas: int, programs: int, resident: int) -> None:
    """The steps cover every group of SMs, and their sum is the driver's answer."""
    found = clusters(num_ctas, programs, H200)
    assert found.resident == resident
    *groups, total = found.steps
    assert (
        sum(
            int(count) * int(each)
            for count, each in re.findall(r"(\d+) groups? .* = (\d+) clusters", "\n".join(groups))
        )
        == resident
    )
    assert total.startswith(f"{resident} clusters in all, {resident * num_ctas} CTAs in ")


def placed(num_ctas: int, ctas_per_sm: int, sms: int) -> int:
    """Return the clusters that fit a group of *sms* SMs, each CTA on its own SM."""
    free, clusters = [ctas_per_sm] * sms, 0
    while num_ctas <= sms and sorted(free)[-num_ctas]:
        for sm in sorted(range(sms), key=free.__getitem__)[-num_ctas:]:
            free[sm] -= 1
        clusters += 1
    return clusters


@given(GROUPS, st.integers(1, 16), st.integers(0, 40))
def test_clusters_are_those_that_can_be_placed(
    gpcs: list[int], num_ctas: int, programs: int
) -> None:
    """Clusters equal those found by placing one after another."""
    gpu = dataclasses.replace(H200, gpcs=tuple(gpcs))
    by_hand = sum(placed(num_ctas, min(programs, 8), sms) for sms in gpcs)
    assert whole_clusters(num_ctas, programs, gpu) == by_hand


@given(GROUPS, st.sampled_from(POWERS[1:]), st.integers(1, 40))
def test_the_next_step_changes_the_ctas_and_less_does_not(
    gpcs: list[int], num_ctas: int, programs: int
) -> None:
    """The next step is the nearest num_ctas that changes the CTAs."""
    gpu = dataclasses.replace(H200, gpcs=tuple(gpcs))
    found = clusters(num_ctas, programs, gpu)

    def ctas(size: int) -> int:
        return int(size * whole_clusters(size, programs, gpu))

    more, fewer = found.next_step.most_for_one_more, found.next_step.least_for_one_fewer
    for size in POWERS:
        if size < num_ctas and size > (more or 0):
            assert ctas(size) <= ctas(num_ctas)
        if num_ctas < size < (fewer or 32):
            assert ctas(size) >= ctas(num_ctas)
    assert more is None or ctas(more) > ctas(num_ctas)
    assert fewer is None or ctas(fewer) < ctas(num_ctas)


@pytest.mark.parametrize("name", ["h100", "b200", "sm_90", "gfx1250"])
def test_what_nobody_knows_is_none(name: str) -> None:
    """If the groups of SMs are not known, there is no number but a source."""
    found = calculate(Resources(32, 4, 0, num_ctas=2), find_gpu(name))
    assert (found.clusters.resident, found.resident_programs) == (None, None)
    assert (found.clusters.steps, found.clusters.next_step) == ((), None)
    assert "driver" in found.clusters.source
