"""Tables of times, predicted and measured: their cells, and the notes below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from occupancy_lab.text.words import change, microseconds

if TYPE_CHECKING:
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.values import Conditions


def cell(us: float | None) -> str:
    """Return a time for a column of us: "7.63", "-" for None."""
    return "-" if us is None else microseconds(us).removesuffix(" us")


def difference(predicted_us: Any, measured_us: Any) -> Any:
    """Return how far a prediction is off, as a share of what was measured; columns too."""
    return predicted_us / measured_us - 1.0


def difference_cell(predicted_us: float | None, measured_us: float | None) -> str:
    """Return how far a prediction is off: "+2.4%", "-" where one of the two is None."""
    if predicted_us is None or measured_us is None:
        return "-"
    return change(difference(predicted_us, measured_us))


def basis_sentence(gpu: Gpu, words: str, *, calibrated: bool) -> str:
    """Return what the predictions for *gpu* rest on, and whether a GPU of its kind was measured."""
    if calibrated:
        return f"Predictions for {gpu.title}: {words}."
    amd = gpu.vendor == "AMD"
    unknown = "no AMD GPU has confirmed them" if amd else f"no {gpu.title} was calibrated"
    return f"Predictions for {gpu.title} rest on {words}; {unknown}."


def conditions_words(taken: Conditions) -> str:
    """Return with what, and in which state of the GPU, launches were timed."""
    driver = "" if taken.driver is None else f"driver {taken.driver}, "
    clock = "" if taken.sm_mhz is None else f", SM clock {taken.sm_mhz} MHz"
    held = "" if taken.throttled is None else f", held down by {taken.throttled}"
    return (
        f"{driver}torch {taken.torch}, Triton {taken.triton}, timed with {taken.timer}, L2 cache"
        f" {taken.l2}{clock}{held}"
    )


def place_words(taken: Conditions) -> str:
    """Return where and, where it is known, when launches were timed."""
    return taken.device if taken.date is None else f"{taken.device}, {taken.date}"


def median_words(runs: int | None) -> str:
    """Return of how many launches a time is the median."""
    return "a median" if runs is None else f"the median of {runs} launches"


def conditions_sentence(taken: Conditions, runs: int | None) -> str:
    """Return where, when and how *runs* launches were measured."""
    return f"Measured on {place_words(taken)} ({conditions_words(taken)}): {median_words(runs)}."
