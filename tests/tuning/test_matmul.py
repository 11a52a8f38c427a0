"""Configurations of a matrix product, ranked without a GPU."""

from pathlib import Path

from occupancy_lab.tuning.search import tune_launches

MATMUL = Path(__file__).parents[2] / "examples" / "matmul.py"
ASKED = {
    "kernel": f"{MATMUL}:tuned_matmul",
    "signature": "*fp16,*fp16,*fp16,4096,4096,4096,4096,4096,4096",
    "constexprs": ["GROUP_M=8"],
    "grid": "cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)",
}


def test_configurations_of_a_matmul_are_ranked_by_time() -> None:
    """The large block is first, as in recorded times, with range and tensor cores."""
    (found,) = tune_launches(**ASKED, gpu="h100")
    best = found.table.iloc[0]
    assert (best["BLOCK_M"], best["BLOCK_N"], best["BLOCK_K"]) == (128, 256, 64)
    # On an H100 with Triton 3.6.0 it took 189.9 us.
    assert best["predicted_low_us"] < 189.9 < best["predicted_high_us"]
    times = found.table["predicted_us"].dropna()
    assert list(times) == sorted(times)
    page = found.to_markdown()
    assert "what takes longest is tensor cores" in page
    assert "rest on launches of 96 public kernels on an NVIDIA H100" in page
    assert found.to_dict()["calibrated"] is True
