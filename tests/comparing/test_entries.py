"""The words of a comparison: golden files, and a behaviour of each sentence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from occupancy_lab.comparing import write_comparison
from occupancy_lab.values import Config

if TYPE_CHECKING:
    from collections.abc import Callable

    from occupancy_lab.comparing.entries import Entry

    Entries = Callable[..., tuple[Entry, ...]]

BIG = Config(16384, 8, 2)
STAGES = {"config": BIG, "shared": 65568, "pipeline_shared": 65536}


def said(entries: tuple[Entry, ...]) -> str:
    """Return the sentences on what differs, a line each."""
    return "\n".join(write_comparison(entries).sections[1].sentences)


def test_golden_vendors(entries: Entries, check_golden: Callable[[str, str], None]) -> None:
    """An NVIDIA and an AMD GPU stand side by side, and each difference has both numbers."""
    document = write_comparison(entries({"gpu": "h100"}, {"gpu": "mi300x"}))
    check_golden("h100_and_mi300x.md", document.to_markdown())


def test_golden_versions(entries: Entries, check_golden: Callable[[str, str], None]) -> None:
    """Registers that moved with the compiler are told, and the occupancy step that they cross."""
    made = entries(
        {"gpu": "a100", "triton": "3.6.0", "n_regs": 128, **STAGES},
        {"gpu": "a100", "triton": "3.9.0", "n_regs": 255, **STAGES},
    )
    check_golden("versions.md", write_comparison(made).to_markdown())


def test_a_step_up_has_its_cliff(entries: Entries) -> None:
    """Where the second version takes fewer registers, the step goes up and the first is over it."""
    text = said(entries({"triton": "3.6.0", "n_regs": 33}, {"triton": "3.9.0", "n_regs": 30}))
    assert "step up, from 6 programs per SM, 48 of 64 warps (75%), to 8 programs per SM" in text
    assert "Up to 32 registers per thread hold 8 programs; 33 are 1 too many." in text


def test_a_move_within_a_step_names_the_next(entries: Entries) -> None:
    """Registers that move without crossing a step are told with the step that comes next."""
    text = said(entries({"triton": "3.6.0", "n_regs": 25}, {"triton": "3.9.0", "n_regs": 31}))
    assert "No occupancy step is crossed: 8 programs per SM, 64 of 64 warps (100%)" in text
    assert "the next step down is at 33 registers per thread" in text


def test_another_limiter_hides_a_move(entries: Entries) -> None:
    """Where shared memory limits, what registers would allow by themselves is told."""
    both = {"gpu": "a100", "config": Config(16384, 4, 2), "shared": 65552}
    text = said(
        entries(
            {"triton": "3.6.0", "n_regs": 168, **both}, {"triton": "3.9.0", "n_regs": 255, **both}
        )
    )
    assert "limited by shared memory before and registers and shared memory after" in text
    assert "registers alone would allow 3 and 2" in text


def test_versions_that_agree_say_so(entries: Entries) -> None:
    """Two Tritons that compile to the same take the same, with the numbers, and nothing else."""
    text = said(entries({"triton": "3.6.0"}, {"triton": "3.9.0"}))
    assert text == (
        "**Triton 3.9.0** takes the same as Triton 3.6.0: 32 registers per thread and 12320 B of"
        " shared memory per program."
    )


def test_local_memory_that_is_not_known_is_no_0(entries: Entries) -> None:
    """What one of two does not know is told as not known."""
    text = said(entries({"triton": "3.6.0", "local_bytes": None}, {"triton": "3.9.0"}))
    assert "0 B of local memory per thread against not known" in text


def test_the_tutorial_is_told_where_it_errs(entries: Entries) -> None:
    """Between versions, the tutorial's formula is spoken of only if it is wrong for one."""
    right = said(entries({"triton": "3.6.0"}, {"triton": "3.9.0", "n_regs": 40}))
    wrong = said(entries({"triton": "3.6.0"}, {"triton": "3.9.0", "n_regs": 33}))
    assert "formula" not in right
    assert "**Triton 3.9.0**: The formula says 7 programs per SM where 6 fit: registers" in wrong


def test_kernels_differ_in_launch_and_choice(entries: Entries) -> None:
    """Persistent programs and one a row: num_programs, waves, shared memory and own choices."""
    text = said(
        entries(
            {"kernel": "softmax"},
            {"kernel": "softmax_row", "n_regs": 24, "shared": 16, "pipeline_shared": 0},
        )
    )
    assert "num_warps is 8 in softmax, and 4 in softmax_row, each the kernel's own choice." in text
    assert "16 B of shared memory per program against 12320" in text
    assert "**softmax**: num_programs = min(4096 rows, 8 x 132 = 1056) = 1056." in text
    assert "**softmax_row**: One program per row: num_programs = 4096, 1.94 times" in text


def test_num_stages_cost_registers_on_amd_and_shared_memory_on_nvidia(entries: Entries) -> None:
    """Each vendor's num_stages is told against num_stages 1, as compiled."""
    nvidia = said(entries({"stages": 1, "shared": 32, "pipeline_shared": 0}, {"stages": 4}))
    amd = said(
        entries({"gpu": "mi300x", "stages": 1, "n_regs": 16}, {"gpu": "mi300x", "stages": 2})
    )
    assert "in flight in shared memory, 4096 B each: 12320 B against 32 B" in nvidia
    assert "in flight in VGPRs: 22 against 16 with num_stages 1" in amd
    assert "**num_stages 2** against num_stages 1: 22 VGPRs per thread against 16." in amd


def test_stages_of_one_binary_are_said_once_to_have_no_effect(entries: Entries) -> None:
    """Where all values of num_stages give one binary, that and why is all that is said of them."""
    flat = {"kernel": "softmax_row", "binary": 1, "shared": 16, "pipeline_shared": 0}
    flat |= {"instructions": 90, "loop_instructions": None}
    made = entries(*({**flat, "stages": stages} for stages in (1, 2, 3)))
    text = said(made)
    assert text == "num_stages has no effect on the binary: no loop is left to pipeline."
    looped = {"loop_instructions": 9, "single": {"n_regs": 32, "binary": 1}}
    one, two = ({**flat, **looped, "stages": 2, "binary": binary} for binary in (1, 2))
    text = said(entries({**one, "stages": 1}, one, {**two, "stages": 3}))
    assert "no effect" not in text
    assert "**num_stages 2** takes the same as num_stages 1" in text


@pytest.mark.parametrize(
    ("gpus", "word"), [(("h100", "h200"), "warp"), (("rx7900xtx", "rx9070xt"), "wave")]
)
def test_gpus_of_a_kind_do_not_speak_of_warp_size(
    entries: Entries, gpus: tuple[str, str], word: str
) -> None:
    """Nothing is said that does not differ: equal warps, register files and pools are left out."""
    text = said(entries(*({"gpu": gpu} for gpu in gpus)))
    assert f"a {word} is" not in text.lower()
    assert "quarters" not in text
    assert "B of LDS" not in text


def test_a_product_says_of_each_what_is_not_said_of_all(entries: Entries) -> None:
    """Two GPUs by two versions are four entries; a difference names the GPU that it is on."""
    made = entries(
        {"gpu": "h100", "triton": "3.6.0"},
        {"gpu": "h100", "triton": "3.9.0", "n_regs": 40},
        {"gpu": "mi300x", "triton": "3.6.0"},
        {"gpu": "mi300x", "triton": "3.9.0"},
    )
    assert [entry.title for entry in made][:2] == [
        "H100 SXM, Triton 3.6.0",
        "H100 SXM, Triton 3.9.0",
    ]
    text = said(made)
    assert "**H100 SXM**: **Triton 3.9.0** against Triton 3.6.0: 40 registers" in text
    assert "**MI300X**: **Triton 3.9.0** takes the same as Triton 3.6.0: 22 VGPRs" in text
    assert len(re.findall("a wave is 64 threads", text)) == 1


def test_programs_of_an_sm_and_of_a_cu_are_one_number(entries: Entries) -> None:
    """As many programs on an SM as on a CU are alike, and their limits are not set side by side."""
    made = entries({"gpu": "h100", "n_regs": 64}, {"gpu": "mi300x", "n_regs": 64})
    programs = {entry.record.occupancy.programs_per_multiprocessor for entry in made}
    page = write_comparison(made).to_markdown()
    assert programs == {4}
    assert "programs per multiprocessor 4" in page
    assert "| programs per multiprocessor" not in page
