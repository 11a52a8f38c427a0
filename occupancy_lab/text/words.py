"""Words of commands and pages: lists, sentences on several GPUs, and cells of tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.prediction import Prediction
    from occupancy_lab.values import Conditions


_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""The characters that steer a terminal, end a line or turn the direction of a text, and show
nothing: all but tab and newline."""


def visible(text: str) -> str:
    """Return *text* with the escape that stands for each character that is not seen."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Titled(Protocol):
    """Whatever has the name of a GPU."""

    @property
    def title(self) -> str:
        """What the GPU is called."""


Item = TypeVar("Item", bound=Titled)


def listed(words: Sequence[str]) -> str:
    """Return "a", "a and b", "a, b and c"."""
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def as_sentence(text: str) -> str:
    """Return *text* with a capital at its beginning and a full stop at its end."""
    return f"{text[0].upper()}{text[1:]}."


def multiprocessor_words(gpus: Iterable[Gpu]) -> str:
    """Return what the vendors of *gpus* call a multiprocessor: "SM or CU"."""
    return " or ".join(dict.fromkeys(gpu.architecture.multiprocessor_word for gpu in gpus))


def percent(share: float) -> str:
    """Return 0.125 as "12.5%" and 1 as "100%"."""
    return f"{100 * share:.3g}%"


def change(share: float) -> str:
    """Return 0.024 as "+2.4%", and what rounds to nothing as "+0.0%"."""
    return f"{round(share, 3) + 0.0:+.1%}"


def _three_digits(number: float) -> str:
    """Return "7.63", "12.4", "285", as many digits as a timer is worth."""
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0  # noqa: PLR2004 - one more digit
    return f"{number:.{digits}f}"


def microseconds(us: float) -> str:
    """Return "7.63 us", "12.4 us", "285 us"."""
    return f"{_three_digits(us)} us"


def duration(us: float) -> str:
    """Return a time of many launches: "12.4 us", "8.41 ms", "41.3 s", with three digits."""
    if us < 999.5:  # noqa: PLR2004 - from here on it has more than three digits
        return microseconds(us)
    number, unit = (us / 1e3, "ms") if us < 999.5e3 else (us / 1e6, "s")  # noqa: PLR2004
    return f"{_three_digits(number)} {unit}"


_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
FEW = 1_000_000
"""Bytes up to which they are told as they are."""


def scaled(number: float) -> str:
    """Return 137438953472 as "137 G", with three digits; up to 999 as it is."""
    place = 0
    while abs(number) >= 999.5 and place < len(_PREFIXES) - 1:  # noqa: PLR2004 - of three digits
        number, place = number / 1000, place + 1
    if not place:
        return f"{number:.4g}"
    return f"{_three_digits(number)} {_PREFIXES[place]}"


def byte_words(number: int) -> str:
    """Return bytes as "25.6 MB", of 1e6 bytes, with three digits; few bytes as they are."""
    return f"{number} B" if number < FEW else f"{scaled(number)}B"


def amount_words(low: int, high: int | None, words: Callable[[int], str]) -> str:
    """Return a number as *words* has it, or from which to which it is; None is no limit."""
    if high is None:
        return f"{words(low)} or more"
    return words(low) if words(low) == words(high) else f"{words(low)} to {words(high)}"


def article(word: str) -> str:
    """Return "a" or "an", as *word* is spoken."""
    return "an" if word in {"SM", "address"} else "a"


def per_cta(text: str, num_ctas: int) -> str:
    """Return *text*, on what a multiprocessor holds of programs, as it is of those of *num_ctas*.

    Where a program is a cluster of CTAs, each of them is on a multiprocessor of its own.
    """
    return text if num_ctas == 1 else re.sub(r"\b[Pp]rogram(?=s?\b)", "CTA", text)


def count(number: int, word: str) -> str:
    """Return "1 row", "2 rows", "2 launches"."""
    return f"{number} {word}{'' if number == 1 else 'es' if word.endswith('ch') else 's'}"


def known(value: object) -> str:
    """Return *value* as text, "not known" for None."""
    return "not known" if value is None else str(value)


def said_of_each(
    items: Sequence[Item], sentences: Callable[[Item], Iterable[str]], *, alike: bool = True
) -> tuple[str, ...]:
    """Return what *sentences* gives for all *items*, then for some, each sentence with its GPU.

    Unless what is *alike* in all is to be said it is left out.
    """
    texts = [tuple(sentences(item)) for item in items]
    common = set.intersection(*map(set, texts))
    apart = (
        f"**{item.title}**: {text}"
        for item, own in zip(items, texts, strict=True)
        for text in own
        if text not in common
    )
    return (*(text for text in texts[0] if alike and text in common), *apart)


@dataclass(frozen=True, slots=True)
class LimitWords:
    """What the resource of a limit is called."""

    initial: str
    """In a cell of a heat map."""
    nvidia: str
    amd: str
    unit: str = ""
    """What an amount of it counts, of the architecture's words; "" where no amount is stepped."""


LIMITS: Mapping[str, LimitWords] = {
    "warps": LimitWords("W", "warps", "waves"),
    "registers": LimitWords("R", "registers", "VGPRs", "{0.register_word}s per thread"),
    "sgprs": LimitWords("G", "SGPRs", "SGPRs", "SGPRs per wave"),
    "shared": LimitWords("S", "shared memory", "LDS", "B of {0.shared_word} per program"),
    "programs": LimitWords("P", "program slots", "program slots"),
    "barriers": LimitWords("B", "named barriers", "named barriers"),
    "tensor_memory": LimitWords(
        "T", "tensor memory", "tensor memory", "columns of tensor memory per program"
    ),
}
"""The words of each limit that a rule of `occupancy` may have."""


def resource_word(vendor: str, resource: str) -> str:
    """Return the vendor's name of a limit's resource."""
    words = LIMITS[resource]
    return words.amd if vendor == "AMD" else words.nvidia


def limiter_list(vendor: str, limiter: str) -> list[str]:
    """Return the limiters of a row, "registers+warps", by the vendor's names."""
    return [resource_word(vendor, resource) for resource in limiter.split("+")]


def formatted(value: float | str | None, form: str = "") -> str:
    """Return *value* as *form*, such as ".0%", has it in a cell; "-" for None."""
    return "-" if value is None else format(value, form)


def cell(us: float | None) -> str:
    """Return a time for a column of us: "7.63", "-" for None."""
    return "-" if us is None else _three_digits(us)


def difference(predicted_us: Any, measured_us: Any) -> Any:
    """Return how far a prediction, or a column of them, is off, as a share of the measured time."""
    return predicted_us / measured_us - 1.0


def difference_cell(predicted_us: float | None, measured_us: float | None) -> str:
    """Return how far a prediction is off: "+2.4%", "-" where one of the two is None."""
    if predicted_us is None or measured_us is None:
        return "-"
    return change(difference(predicted_us, measured_us))


def prediction_words(prediction: Prediction) -> str:
    """Return a predicted time and its range: "83.0 us (70.0 to 100)"."""
    limits = (_three_digits(one) for one in (prediction.low_us, prediction.high_us))
    return f"{microseconds(prediction.us)} ({' to '.join(limits)})"


def overlap_sentence(ranges: Mapping[str, tuple[float, float]]) -> str:
    """Say which *ranges* reach below the end of the first, the fastest's; "" where none does."""
    first, *others = ranges
    near = [name for name in others if ranges[name][0] < ranges[first][1]]
    if not near:
        return ""
    which = "either may be faster" if len(near) == 1 else "any of them may be the fastest"
    return f"The ranges of {listed([first, *near])} overlap: {which}."


def range_sentence(
    gpu: Gpu, basis: str, *, calibrated: bool, limits: str = "the two limits"
) -> str:
    """Return what times with a range rest on for *gpu*, on *basis* as a Prediction has it.

    *limits* is what the ends of that range are called where they stand.
    """
    measured = "" if calibrated else f"; no {gpu.title} was measured"
    return (
        f"Times for {gpu.title} rest on {basis}; of kernels that the model was not fitted to,"
        f" eight in ten launches took between {limits}{measured}."
    )


def conditions_words(taken: Conditions) -> str:
    """Return with what, and in which state of the GPU, launches were timed."""
    driver = "" if taken.driver is None else f"driver {taken.driver}, "
    clock = "" if taken.sm_mhz is None else f", SM clock {taken.sm_mhz} MHz"
    throttled = "" if taken.throttled is None else f", held down by {taken.throttled}"
    return (
        f"{driver}torch {taken.torch}, Triton {taken.triton}, timed with {taken.timer}, L2 cache"
        f" {taken.l2}{clock}{throttled}"
    )


def place_words(taken: Conditions) -> str:
    """Return where, where it is known when, and how launches were timed."""
    place = taken.device if taken.date is None else f"{taken.device}, {taken.date}"
    return f"{place} ({conditions_words(taken)})"


def median_words(runs: int | None) -> str:
    """Return of how many launches a time is the median."""
    return "a median" if runs is None else f"the median of {runs} launches"


def conditions_sentence(taken: Conditions, runs: int | None) -> str:
    """Return where, when and how *runs* launches were measured."""
    return f"Measured on {place_words(taken)}: {median_words(runs)}."
