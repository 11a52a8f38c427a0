"""The recorded ranks of vLLM's tuned fused-MoE configurations by predicted time."""

import re
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent.parent
ROWS = pd.read_csv(ROOT / "reports" / "data" / "vllm-order.csv")
BEHIND = ROWS["tuned_us"] / ROWS["best_us"] - 1
NEAR = 0.10


def test_rows_are_of_one_ranking() -> None:
    """The tuned configuration is no faster than the best, and as fast if it is ranked first."""
    assert (BEHIND >= 0).all()
    assert ((ROWS["rank"] == 1) <= (BEHIND == 0)).all()
    assert (ROWS["rank"] <= ROWS["timed"]).all()
    assert (ROWS["timed"] <= ROWS["configs"]).all()
    assert ((ROWS["tuned"] == ROWS["best"]) <= (ROWS["rank"] == 1)).all()


def test_most_tuned_are_near_the_best_and_the_page_says_how_many() -> None:
    """The page has each GPU's problems, those near the best, the median and the 90th percentile."""
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
