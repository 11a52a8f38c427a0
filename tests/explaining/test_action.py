"""`best_action` agrees with the explanation of the launch."""

import dataclasses
from collections.abc import Callable

import launched_kernels
import pytest
from samples import H100

from occupancy_lab import dry_run, tensor
from occupancy_lab.explaining.advice import best_action
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.explanation import Explanation, write_full
from occupancy_lab.explaining.short import write_short

ADDED = tensor((1 << 22,), "float32")


def added(block: int) -> Explanation:
    """Return the dry run of an addition in blocks of this size."""
    lab = dry_run(launched_kernels.tuned_add.fn.fn, "h100")
    grid = lambda named: (-(-(1 << 22) // named["BLOCK"]),)  # noqa: E731 - as a launch line has it
    return lab[grid](ADDED, ADDED, 1 << 22, EVEN=True, BLOCK=block)


@pytest.mark.parametrize(("block", "faster"), [(64, True), (1024, False)])
def test_an_action_is_the_first_sentence_of_the_explanation(
    block: int, only: Callable[..., None], *, faster: bool
) -> None:
    """The sentence, change and times are those that the explanation's first sentence has."""
    only("BLOCK")
    run = added(block)
    found = best_action(run.cases[0])
    assert run.to_document().answer[0] == f"**H100 SXM**: {found.sentence}"
    assert (found.change.startswith("BLOCK "), found.share > 0.1) == (faster, faster)
    assert found.change in found.sentence
    assert found.times.replace("instead", "predicted instead") in found.sentence


def test_wider_loads_are_an_action_if_they_help_most(only: Callable[..., None]) -> None:
    """The change names the arguments that the launch would have to pass."""
    only("padded", "num_warps")
    x, w, mean = (tensor(shape, "float16") for shape in ((4096, 2050), (2050,), (4096,)))
    lab = dry_run(launched_kernels.layer_norm, "h100")
    run = lab[(4096,)](x, x, w, w, mean, mean, 2050, 2050, 1e-5, BLOCK_SIZE=4096, num_warps=8)
    found = best_action(run.cases[0])
    words = "stride 2064 instead of 2050 and N 2064 instead of 2050"
    assert found.change == f"{words} (if the launch can pass that)"
    assert f"**H100 SXM**: {found.sentence}" in run.to_document().answer
    assert found.us < found.now_us


@pytest.mark.parametrize(("factor", "is_faster"), [(0.8, True), (0.99, False)])
def test_why_loads_are_narrow_is_told_in_full(
    factor: float, *, is_faster: bool, make_case: Callable[..., Case]
) -> None:
    """Wider loads are advised first if they help, and else only the full page has them."""
    case = make_case("h100", H100.replace(instructions=90, loop_instructions=172))
    own = case.record.prediction
    padded = dataclasses.replace(
        case.record,
        arguments={**case.record.arguments, "n_cols": 784},
        calculation=dataclasses.replace(
            case.calculation, resources=case.record.resources.replace(load_bytes=16)
        ),
        prediction=dataclasses.replace(own, us=own.us * factor),
    )
    case = dataclasses.replace(case, padded=padded)
    words = (
        "If the launch can pass n_cols 784 instead of 781 (if its results stay right), a thread's"
    )
    short, full = write_short((case,)), write_full((case,))
    assert any(words in one for one in short.answer) is is_faster
    assert (words in short.to_markdown(), full.to_markdown().count(words)) == (is_faster, 1)
