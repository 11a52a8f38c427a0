"""The page of the calculator: each limit that a launch may meet has its words."""

from collections.abc import Callable
from typing import Any

from occupancy_lab.explaining.limits import calculate_occupancy

CASES: dict[str, tuple[str, dict[str, int]]] = {
    "Clusters are counted whole, and fewer CTAs are a better num_ctas": ("h200", {"num_ctas": 4}),
    "No other num_ctas is better": ("h200", {"num_ctas": 2}),
    "Clusters that nobody can count": ("b200", {"num_ctas": 2}),
    "Tensor memory limits": ("b200", {"n_regs": 40, "shared": 12320, "tensor_memory": 100}),
    "Registers limit, which maxnreg may change": ("h100", {"n_regs": 91}),
    "Registers limit, which waves_per_eu may change": ("mi300x", {"n_regs": 91}),
    "AGPRs are in one file with ArchVGPRs": (
        "mi300x",
        {"n_regs": 508, "agprs": 252, "num_warps": 4},
    ),
}


def page(names: str, **amounts: Any) -> str:
    """Return the calculator's page."""
    asked = {"n_regs": 32, "shared": 0, "num_warps": 8} | amounts
    return calculate_occupancy(names, **asked).to_markdown()


def test_each_limit_has_its_words(check_golden: Callable[[str, str], None]) -> None:
    """The golden file has the answer, the arithmetic, and what can be tried, of each case."""
    pages = (f"# {title}\n\n{page(gpu, **given)}\n" for title, (gpu, given) in CASES.items())
    check_golden("calculator.md", "\n".join(pages))
