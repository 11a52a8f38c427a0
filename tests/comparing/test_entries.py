"""The words of a comparison, as golden files."""

from collections.abc import Callable
from typing import Any

from occupancy_lab.comparing.comparison import write_comparison
from occupancy_lab.comparing.entries import Entry
from occupancy_lab.values import Config

Entries = Callable[..., tuple[Entry, ...]]

BIG = Config(16384, 8, 2)
STAGES = {"config": BIG, "shared": 65568, "pipeline_shared": 65536}


def said(entries: tuple[Entry, ...]) -> str:
    """Return the sentences on what differs, one per line."""
    return "\n".join(write_comparison(entries).sections[-1].sentences)


def test_golden_vendors(entries: Entries, check_golden: Callable[[str, str], None]) -> None:
    """The golden file compares an NVIDIA with an AMD GPU."""
    document = write_comparison(entries({"gpu": "h100"}, {"gpu": "mi300x"}))
    check_golden("h100_and_mi300x.md", document.to_markdown())


def test_golden_versions(entries: Entries, check_golden: Callable[[str, str], None]) -> None:
    """The golden file has registers that change with the compiler and cross an occupancy step."""
    made = entries(
        {"gpu": "a100", "triton": "3.6.0", "n_regs": 128, **STAGES},
        {"gpu": "a100", "triton": "3.9.0", "n_regs": 255, **STAGES},
    )
    check_golden("versions.md", write_comparison(made).to_markdown())


OLD, NEW = {"triton": "3.6.0"}, {"triton": "3.9.0"}
FULL = {"gpu": "a100", "config": Config(16384, 4, 2), "shared": 65552}
FLAT = {"kernel": "softmax_row", "binary": 1, "shared": 16, "pipeline_shared": 0}
FLAT |= {"instructions": 90, "loop_instructions": None}
LOOPED = {**FLAT, "loop_instructions": 9}
DIFFERENCES: dict[str, list[dict[str, Any]]] = {
    "Fewer registers are a step up": [OLD | {"n_regs": 33}, NEW | {"n_regs": 30}],
    "No step is crossed": [OLD | {"n_regs": 25}, NEW | {"n_regs": 31}],
    "Another limiter hides a move": [OLD | FULL | {"n_regs": 168}, NEW | FULL | {"n_regs": 255}],
    "Two versions agree": [OLD, NEW],
    "Local memory is not known of one": [OLD | {"local_bytes": None}, NEW],
    "Persistent programs, and one a row": [
        {"kernel": "softmax"},
        {"kernel": "softmax_row", "n_regs": 24, "shared": 16, "pipeline_shared": 0},
    ],
    "num_stages on NVIDIA": [{"stages": 1, "shared": 32, "pipeline_shared": 0}, {"stages": 4}],
    "num_stages on AMD": [
        {"gpu": "mi300x", "stages": 1, "n_regs": 16},
        {"gpu": "mi300x", "stages": 2},
    ],
    "All values of num_stages give one binary": [FLAT | {"stages": one} for one in (1, 2, 3)],
    "Two of three values of num_stages give one binary": [
        LOOPED | {"stages": 1},
        LOOPED | {"stages": 2},
        LOOPED | {"stages": 3, "binary": 2},
    ],
    "Two GPUs by two versions": [
        {"gpu": "h100", **OLD},
        {"gpu": "h100", **NEW, "n_regs": 40},
        {"gpu": "mi300x", **OLD},
        {"gpu": "mi300x", **NEW},
    ],
}


def test_golden_differences(entries: Entries, check_golden: Callable[[str, str], None]) -> None:
    """The golden file has the sentences on each kind of difference."""
    parts = (f"## {title}\n\n{said(entries(*them))}\n" for title, them in DIFFERENCES.items())
    check_golden("differences.md", "\n".join(parts))
