"""Words for commands and pages: lists, units, sentences on several GPUs, and cells of tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.prediction import Prediction
    from occupancy_lab.values import Conditions


LEAST_US = 0.005
"""The shortest time that does not round to 0.00 us."""
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters that steer a terminal, end a line or change the direction of text, except tab
and newline."""


def visible(text: str) -> str:
    """Return *text* with escapes instead of invisible control characters."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Titled(Protocol):
    """Anything with a title, usually that of a GPU."""

    @property
    def title(self) -> str:
        """The title."""


Item = TypeVar("Item", bound=Titled)


def listed(words: Sequence[str]) -> str:
    """Return "a", "a and b", "a, b and c"."""
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def as_sentence(text: str) -> str:
    """Return *text* with a capital first letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def multiprocessor_words(gpus: Iterable[Gpu]) -> str:
    """Return what the vendors of *gpus* call a multiprocessor: "SM or CU"."""
    return " or ".join(dict.fromkeys(gpu.architecture.multiprocessor_word for gpu in gpus))


def percent(share: float) -> str:
    """Return 0.125 as "12.5%" and 1 as "100%"."""
    return f"{100 * share:.3g}%"


def change(share: float) -> str:
    """Return 0.024 as "+2.4%", and anything that rounds to zero as "0.0%"."""
    return f"{share:+.1%}" if round(share, 3) else "0.0%"


def _three_digits(number: float) -> str:
    """Return "7.63", "12.4", "285": three digits, the precision of a timer."""
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0  # noqa: PLR2004 - one more digit
    return f"{number:.{digits}f}"


def microseconds(us: float) -> str:
    """Return "7.63 us", "285 us", "8412 us"; a time of 10 ms or more as `duration` does."""
    return f"{_three_digits(us)} us" if us < 9999.5 else duration(us)  # noqa: PLR2004 - 10 ms


def or_more(us: float) -> str:
    """Return "7.63 us or more"; "" for a time so short that this would say nothing."""
    return f"{microseconds(us)} or more" if us >= LEAST_US else ""


def duration(us: float) -> str:
    """Return a time with three digits: "12.4 us", "8.41 ms", "41.3 s"."""
    if us < 999.5:  # noqa: PLR2004 - from here on it has more than three digits
        return microseconds(us)
    number, unit = (us / 1e3, "ms") if us < 999.5e3 else (us / 1e6, "s")  # noqa: PLR2004
    return f"{_three_digits(number)} {unit}"


_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
FEW = 1_000_000
"""Fewer bytes are written out."""


def scaled(number: float) -> str:
    """Return 137438953472 as "137 G", with three digits; numbers up to 999 without a prefix."""
    place = 0
    while abs(number) >= 999.5 and place < len(_PREFIXES) - 1:  # noqa: PLR2004 - of three digits
        number, place = number / 1000, place + 1
    if not place:
        return f"{number:.4g}"
    return f"{_three_digits(number)} {_PREFIXES[place]}"


def byte_words(number: int) -> str:
    """Return bytes as "25.6 MB" (1e6 bytes) with three digits; few bytes are written out."""
    return f"{number} B" if number < FEW else f"{scaled(number)}B"


def amount_words(low: int, high: int | None, words: Callable[[int], str]) -> str:
    """Return a number in *words*, or its range; *high* None is unlimited."""
    if high is None:
        return f"{words(low)} or more"
    return words(low) if words(low) == words(high) else f"{words(low)} to {words(high)}"


def article(word: str) -> str:
    """Return "a" or "an", by the pronunciation of *word*."""
    return "an" if word in {"SM", "address"} else "a"


def per_cta(text: str, num_ctas: int) -> str:
    """Return *text* with "CTA" instead of "program" if programs are clusters of *num_ctas* > 1.

    The CTAs of a cluster may be on different multiprocessors.
    """
    return text if num_ctas == 1 else re.sub(r"\b[Pp]rogram(?=s?\b)", "CTA", text)


def count(number: int, word: str) -> str:
    """Return "1 row", "2 rows", "2 launches", "2 passes"."""
    plural = "es" if word.endswith(("ch", "ss")) else "s"
    return f"{number} {word}{'' if number == 1 else plural}"


def known(value: object) -> str:
    """Return *value* as text, "not known" for None."""
    return "not known" if value is None else str(value)


def said_of_each(
    items: Sequence[Item], sentences: Callable[[Item], Iterable[str]]
) -> tuple[str, ...]:
    """Return the *sentences* common to all *items* first, then the others, each with its title."""
    texts = [tuple(sentences(item)) for item in items]
    common = set.intersection(*map(set, texts)) if texts else set()
    apart = (
        f"**{item.title}**: {text}"
        for item, own in zip(items, texts, strict=True)
        for text in own
        if text not in common
    )
    return (*(text for text in (texts[0] if texts else ()) if text in common), *apart)


@dataclass(frozen=True, slots=True)
class LimitWords:
    """The words for the resource of a limit."""

    initial: str
    """The letter in a cell of a heat map."""
    nvidia: str
    amd: str
    unit: str = ""
    """The unit of its amounts, a template of the architecture; "" without next steps."""


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
    """Return the vendor's term for a limit's resource."""
    words = LIMITS[resource]
    return words.amd if vendor == "AMD" else words.nvidia


def limiter_list(vendor: str, limiter: str) -> list[str]:
    """Return the limiters of a row, "registers+warps", in the vendor's terms."""
    return [resource_word(vendor, resource) for resource in limiter.split("+")]


def formatted(value: float | str | None, form: str = "") -> str:
    """Return *value* formatted with *form*, such as ".0%", for a cell; "-" for None."""
    return "-" if value is None else format(value, form)


def cell(us: float | None) -> str:
    """Return a time for a column of us: "7.63", "-" for None."""
    return "-" if us is None else _three_digits(us)


def difference(predicted_us: Any, measured_us: Any) -> Any:
    """Return the relative error of a prediction, or of a column of predictions."""
    return predicted_us / measured_us - 1.0


def difference_cell(predicted_us: float | None, measured_us: float | None) -> str:
    """Return the relative error of a prediction: "+2.4%", or "-" if one of the two is None."""
    if predicted_us is None or measured_us is None:
        return "-"
    return change(difference(predicted_us, measured_us))


def prediction_words(prediction: Prediction) -> str:
    """Return a predicted time and its range in the same unit: "83.0 us (70.0 to 100)"."""
    time = microseconds(prediction.us)
    unit = {"us": 1.0, "ms": 1e3, "s": 1e6}[time.rpartition(" ")[2]]
    limits = (_three_digits(one / unit) for one in (prediction.low_us, prediction.high_us))
    return f"{time} ({' to '.join(limits)})"


def overlap_sentence(ranges: Mapping[str, tuple[float, float]]) -> str:
    """Say which *ranges* overlap with the first, the fastest's; "" if none does."""
    first, *others = ranges
    near = [name for name in others if ranges[name][0] < ranges[first][1]]
    if not near:
        return ""
    which = "either may be faster" if len(near) == 1 else "any of them may be the fastest"
    return f"The ranges of {listed([first, *near])} overlap: {which}."


def range_sentence(
    gpu: Gpu, basis: str, *, calibrated: bool, within: str = "within the range in parentheses"
) -> str:
    """Return what predicted times for *gpu* rest on, with *basis* as in a Prediction.

    *within* has the words for the range.
    """
    measured = "" if calibrated else f"; no {gpu.title} was measured"
    return (
        f"Times for {gpu.title} rest on {basis}; of kernels that the model was not fitted to,"
        f" 80% of the launches took a time {within}{measured}."
    )


def conditions_words(taken: Conditions) -> str:
    """Return the software, timer and state of the GPU with which launches were timed."""
    driver = "" if taken.driver is None else f"driver {taken.driver}, "
    clock = "" if taken.sm_mhz is None else f", SM clock {taken.sm_mhz} MHz"
    throttled = "" if taken.throttled is None else f", throttled by {taken.throttled}"
    return (
        f"{driver}torch {taken.torch}, Triton {taken.triton}, timed with {taken.timer}, L2 cache"
        f" {taken.l2}{clock}{throttled}"
    )


def place_words(taken: Conditions) -> str:
    """Return where, when (if known) and how launches were timed."""
    place = taken.device if taken.date is None else f"{taken.device}, {taken.date}"
    return f"{place} ({conditions_words(taken)})"


def median_words(runs: int | None) -> str:
    """Return the words for the median of *runs* launches."""
    return "a median" if runs is None else f"the median of {runs} launches"


def conditions_sentence(taken: Conditions, runs: int | None) -> str:
    """Return where, when and how *runs* launches were measured."""
    return f"Measured on {place_words(taken)}: {median_words(runs)}."
