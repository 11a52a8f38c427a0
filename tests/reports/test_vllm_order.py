"""Where vLLM's tuned fused-MoE configurations stand among predicted times, as recorded."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.parent.parent
ROWS = pd.read_csv(ROOT / "reports" / "data" / "vllm-order.csv")
BEHIND = ROWS["tuned_us"] / ROWS["best_us"] - 1
NEAR = 0.10


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return reports/vllm_order.py."""
    monkeypatch.syspath_prepend(ROOT / "reports")
    return importlib.import_module("vllm_order")


def test_rows_are_of_one_ranking() -> None:
    """The tuned one is no faster than the best, and as fast where it is the first."""
    assert (BEHIND >= 0).all()
    assert ((ROWS["rank"] == 1) <= (BEHIND == 0)).all()
    assert (ROWS["rank"] <= ROWS["timed"]).all()
    assert (ROWS["timed"] <= ROWS["configs"]).all()
    assert ((ROWS["tuned"] == ROWS["best"]) <= (ROWS["rank"] == 1)).all()


def test_most_tuned_are_near_the_best_and_the_page_says_how_many() -> None:
    """Of each GPU the page has the problems, those near the best, and the median and 90 %."""
    page = " ".join((ROOT / "docs" / "tuning.md").read_text(encoding="utf-8").split())
    for key in (*ROWS["gpu"].unique(), "all"):
        behind = BEHIND if key == "all" else BEHIND[ROWS["gpu"] == key]
        shares = [f"{behind.quantile(share):.1%}" for share in (0.5, 0.9)]
        cells = [key, len(behind), (behind <= NEAR).sum(), *shares]
        assert re.search(r"\| " + r" \| ".join(map(str, cells)) + r" \|", page), cells
    many, few = BEHIND[ROWS["tokens"] >= 256], BEHIND[ROWS["tokens"] < 256]
    assert f"{(many <= NEAR).sum()} of {len(many)} are near" in page
    assert f"{(few <= NEAR).sum()} of {len(few)}" in page
    assert (BEHIND <= NEAR).mean() >= 0.8


@pytest.mark.parametrize("block", [16, 64])
def test_every_slot_is_in_a_block_of_its_expert(script: ModuleType, block: int) -> None:
    """Each token's experts are distinct, and a block of slots is of one expert, filled up."""
    experts, top_k, slots = 8, 2, 96
    ids, owners, (used,) = script._routed(experts, slots, top_k, block).values()
    assert sorted(one for one in ids if one < slots) == list(range(slots))
    assert used % block == 0
    assert used <= len(ids) == slots + experts * (block - 1)
    owner = {slot: owners[place // block] for place, slot in enumerate(ids[:used]) if slot < slots}
    assert all(owner[2 * token] != owner[2 * token + 1] for token in range(slots // 2))
    assert len(owners) * block >= len(ids)


@pytest.mark.parametrize(
    ("tokens", "change", "searched"),
    [
        (16, {}, True),
        (16, {"BLOCK_SIZE_M": 128}, False),
        (64, {"BLOCK_SIZE_M": 128}, True),
        (16, {"GROUP_SIZE_M": 4}, False),
        (64, {"GROUP_SIZE_M": 4}, True),
        (8, {"BLOCK_SIZE_M": 32, "matrix_instr_nonkdim": 32}, False),
        (64, {"BLOCK_SIZE_M": 32, "matrix_instr_nonkdim": 32}, True),
        (16, {"BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 256}, False),
        (4096, {}, False),
        (4096, {"BLOCK_SIZE_M": 64, "num_warps": 4}, True),
    ],
)
def test_on_amd_the_tuner_leaves_out_blocks_that_do_not_suit(
    script: ModuleType, tokens: int, change: dict[str, int], *, searched: bool
) -> None:
    """Blocks beyond the tokens or the LDS, and of large products small ones."""
    config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    config |= {"num_warps": 2, "matrix_instr_nonkdim": 16} | change
    assert script.is_searched((8, 3584, 4096, 2), tokens, config) is searched
