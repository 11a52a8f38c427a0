"""What would mend a row that breaks a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from compiled_rows import compiled, failed
from hypothesis import assume, given
from hypothesis import strategies as st

from occupancy_lab.checking import check
from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy import occupancy
from occupancy_lab.values import Resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.checking.mending import Mend


def mends(condition: str, *rows: dict[str, Any]) -> list[Mend]:
    """Return what would mend the first of *rows*."""
    return check(condition, list(rows)).findings[0].mends


def holds(row: Mapping[str, Any], least: float, most_local: int) -> bool:
    """Return whether the occupancy, worked out here, and the local memory are as asked for."""
    resources = Resources(row["n_regs"], row["num_warps"], row["shared"], row["static_shared"])
    held = occupancy(resources, find_gpu(row["gpu"]).architecture)
    return held.occupancy >= least and row["local_bytes"] <= most_local


@given(
    gpu=st.sampled_from(["h100", "a100", "rtx4090", "b200", "mi300x", "mi250x", "gfx1100"]),
    n_regs=st.integers(25, 255),
    shared=st.integers(0, 60000),
    local_bytes=st.integers(0, 600),
    num_warps=st.sampled_from([1, 2, 4, 8, 16]),
    least=st.sampled_from([0.1, 0.25, 0.4, 0.5, 0.75, 1.0]),
    most_local=st.sampled_from([0, 16, 100]),
)
def test_amounts_are_the_largest_that_do(
    gpu: str, least: float, most_local: int, **amounts: int
) -> None:
    """With the amounts of a mend the condition holds, and with one more of any it does not."""
    row = compiled(gpu=gpu, **amounts)
    assume(row["programs_per_multiprocessor"] > 0 and not holds(row, least, most_local))
    condition = f"occupancy >= {least} and local_bytes <= {most_local}"
    found = mends(condition, row)
    for one in found:
        changes = dict(one.changes)
        assert holds({**row, **changes}, least, most_local)
        for name in changes.keys() - {"num_warps"}:
            assert changes[name] < row[name]
            more = {**changes, name: changes[name] + 1}
            assert not holds({**row, **more}, least, most_local)
    if not any(one.changes.keys() - {"num_warps"} for one in found):
        lowest = {"n_regs": 32 if gpu == "mi250x" else 24, "shared": 0, "local_bytes": 0}
        lowest = {name: min(row[name], amount) for name, amount in lowest.items()}
        assert not holds({**row, **lowest}, least, most_local)


def test_any_condition_is_evaluated_anew() -> None:
    """The condition is evaluated with other amounts, whatever it says of them."""
    row = compiled(n_regs=200, shared=50000)
    (registers,) = mends("n_regs * num_warps <= 1000 or limiter == 'shared'", row)[:1]
    assert registers.changes == {"n_regs": 125}
    (shared,) = mends("cdiv(shared, 1024) <= 16 and shared % 2 in [0, 1]", row)
    assert shared.changes == {"shared": 16384}
    assert shared.option is None


def test_both_limiters_are_named_where_one_alone_brings_nothing() -> None:
    """Where registers and shared memory both limit, the mend has both."""
    row = compiled("matmul", n_regs=202, shared=147456)
    found = mends("occupancy >= 0.5", row)
    assert found[0].changes == {"n_regs": 64, "shared": 57344}
    assert found[0].option == "maxnreg=64"


@pytest.mark.parametrize(("share", "n_regs", "waves"), [(0.5, 128, 4), (0.375, 168, 3)])
def test_registers_are_asked_for_by_the_vendors_option(
    share: float, n_regs: int, waves: int
) -> None:
    """On AMD the option is waves_per_eu, as many as have registers enough."""
    row = compiled(gpu="mi300x", n_regs=213, num_warps=4, shared=16)
    (found,) = mends(f"occupancy >= {share}", row)[:1]
    assert (found.changes, found.option) == ({"n_regs": n_regs}, f"waves_per_eu={waves}")


def test_no_amount_is_proposed_that_cannot_be_had() -> None:
    """Fewer registers than ptxas compiles for are no mend, nor is what no amount brings."""
    assert mends("n_regs <= 20", compiled()) == []
    assert mends("kernel == 'other'", compiled()) == []
    finding = check("n_regs <= 20", [compiled()]).findings[0]
    assert finding.advice == "Nothing that is known of it would mend it."


def test_the_nearest_row_that_was_compiled_comes_first() -> None:
    """Of rows of the same problem that meet it, that with the fewest other knobs is the mend."""
    row = compiled(num_warps=2, n_regs=56, shared=8)
    far = compiled(num_warps=8, n_regs=32, num_stages=1, shared=8)
    near = compiled(num_warps=8, n_regs=32, shared=8)
    found = mends("occupancy >= 0.8", row, far, near)[0]
    assert found.compiled
    assert found.changes == {"num_warps": 8}
    assert found.words == "num_warps 8 instead of 2"


def test_a_launch_that_failed_is_no_mend() -> None:
    """What did not compile is not proposed, though its knobs meet the condition."""
    row = compiled(num_warps=4)
    assert not any(one.compiled for one in mends("num_warps >= 8", row, failed(num_warps=8)))
    assert mends("num_warps >= 8", row, compiled(num_warps=8))[0].compiled


@pytest.mark.parametrize(
    "other",
    [
        {"gpu": "h200"},
        {"kernel": "softmax_row"},
        {"cols": 12},
        {"HEAD_DIM": 64},
        {"arguments": "*fp16"},
        {"triton_version": "3.6.0"},
    ],
)
def test_another_problem_is_no_mend(other: dict[str, Any]) -> None:
    """A row of another kernel, GPU, problem or compiler is not proposed."""
    own = {"cols": 781, "HEAD_DIM": 128, "arguments": "*fp32", "triton_version": "3.7.1"}
    row = compiled(num_warps=2, n_regs=56, **own)
    found = mends("occupancy >= 0.8", row, compiled(num_warps=8, n_regs=32, **{**own, **other}))
    assert not any(one.compiled for one in found)


def test_another_block_is_proposed_with_a_doubt() -> None:
    """A constexpr is not the launch's to choose in every kernel, and the words say so."""
    row = compiled(BLOCK_SIZE=4096, n_regs=128)
    found = mends("occupancy >= 0.8", row, compiled(n_regs=32))
    assert found[0].words == "BLOCK_SIZE 1024 instead of 4096, if the kernel may be launched so"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_regs": 255}, "more warps per program or a smaller block"),
        ({"n_regs": 64, "num_warps": 32}, "fewer num_warps allow more registers"),
        ({"n_regs": 32, "maxnreg": 32}, "maxnreg=32 caps its registers"),
        ({"n_regs": 32}, "more than these 32 registers"),
    ],
)
def test_spills_say_where_registers_could_come_from(changes: dict[str, Any], words: str) -> None:
    """What a spill is blamed on depends on what keeps the registers from being more."""
    (found,) = mends("local_bytes == 0", compiled(local_bytes=96, shared=16, **changes))
    assert found.changes == {"local_bytes": 0}
    assert words in found.words


def test_a_row_that_does_not_say_all_is_not_worked_out_anew() -> None:
    """Where a row's occupancy is not that of its columns, no amount is proposed."""
    row = compiled(n_regs=80) | {"programs_per_multiprocessor": 1, "occupancy": 0.125}
    assert mends("occupancy >= 0.5", row) == []
