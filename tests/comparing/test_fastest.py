"""The first sentence of a comparison: the fastest, by how much and why, or that none is."""

import dataclasses
from collections.abc import Callable

import pytest

from occupancy_lab.comparing.comparison import fastest_sentences, write_comparison
from occupancy_lab.comparing.entries import Entry
from occupancy_lab.prediction import Part, Prediction

Entries = Callable[..., tuple[Entry, ...]]

BASIS = "launches"


def timed(entry: Entry, us: float, *, calibrated: bool = True, **parts: float) -> Entry:
    """Return *entry* with a predicted time that has a range, made of *parts*."""
    made = tuple(Part(name, time) for name, time in (parts or {"tensor": us}).items())
    limits = {"low_us": us * 0.9, "high_us": us * 1.2}
    time = Prediction(us, None, None, made, BASIS, calibrated=calibrated, **limits)
    return dataclasses.replace(entry, record=dataclasses.replace(entry.record, prediction=time))


def of_stages(entries: Entries, *times: float) -> list[Entry]:
    """Return entries of 2, 3, ... stages with these times."""
    made = entries(*({"stages": stages} for stages in range(2, 2 + len(times))))
    return [timed(one, us, l2=us / 2) for one, us in zip(made, times, strict=True)]


def test_golden_fastest(entries: Entries, check_golden: Callable[[str, str], None]) -> None:
    """The golden file has the first sentences for one and several GPUs, with and without ties."""
    changes = [{"gpu": gpu, "stages": stages} for gpu in ("h100", "h200") for stages in (2, 3)]
    each = [timed(one, us) for one, us in zip(entries(*changes), (9, 5, 4, 8), strict=True)]
    across = [timed(one, us) for one, us in zip(entries(*changes[::2]), (9, 5), strict=True)]
    overlapping = [timed(one, us) for one, us in zip(entries(*changes[::2]), (7, 6), strict=True)]
    several = of_stages(entries, 476.0, 330.0, 343.0, 900.0)
    cases = {
        "One is the fastest": several,
        "Predictions tell none apart": of_stages(entries, 330.0, 343.0),
        "Times are equal": of_stages(entries, 330.0, 330.0),
        "Several settings on several GPUs": each,
        "One setting on each of two GPUs": across,
        "Ranges of two GPUs overlap": overlapping,
    }
    parts = (
        f"## {title}\n\n{chr(10).join(fastest_sentences(one))}\n" for title, one in cases.items()
    )
    check_golden("fastest.md", "\n".join(parts))
    first = write_comparison(tuple(several)).answer[0]
    assert first == next(iter(fastest_sentences(several)))


@pytest.mark.parametrize(("us", "overlap"), [(7.9, True), (8.1, False)])
def test_gpus_with_overlapping_ranges_are_not_ranked(
    entries: Entries, us: float, *, overlap: bool
) -> None:
    """A GPU is only called the fastest if its range ends below that of the other."""
    made = zip(entries({"gpu": "h100"}, {"gpu": "h200"}), (6.0, us), strict=True)
    (sentence,) = fastest_sentences([timed(one, time) for one, time in made])
    said = "The ranges of H100 SXM and H200 SXM overlap: either may be faster."
    assert sentence.endswith(said) == overlap
    assert ("is predicted to be the fastest" in sentence) != overlap


def test_other_work_has_no_fastest(entries: Entries) -> None:
    """If matrices differ, times are given and not ranked; without times nothing is said."""
    one, two = of_stages(entries, 900.0, 330.0)
    names = {**two.names, "matrix": "4096 x 784 float32"}
    (said,) = fastest_sentences([one, dataclasses.replace(two, names=names)])
    assert said == (
        "**num_stages 3** is predicted to take 330 us (297 to 396) against 900 us of"
        " **num_stages 2** (-63.3%); the part that shrinks most: L2 cache, from 450 us to 165 us."
        " They do different work."
    )
    assert [*fastest_sentences(entries({"stages": 2}, {"stages": 3}))] == []


def test_unconfirmed_times_have_one_sentence(entries: Entries) -> None:
    """A GPU of which none was measured has one sentence on what its times rest on."""
    made = entries(*({"gpu": "mi300x", "stages": stages} for stages in (1, 2)))
    page = write_comparison(tuple(timed(one, 9.0, calibrated=False) for one in made)).to_markdown()
    assert page.count("Times for MI300X rest on launches") == 1


def test_many_settings_are_a_number_in_the_title(entries: Entries) -> None:
    """A title names settings if they fit a line, and else counts them."""
    made = entries({"stages": 2}, {"stages": 3})
    assert write_comparison(made).title.endswith("on H100 SXM: num_stages 2 and num_stages 3")
    long = [
        dataclasses.replace(one, names={**one.names, "settings": f"BM {place}" + ", BN 64" * 6})
        for place, one in enumerate(made)
    ]
    assert write_comparison(tuple(long)).title.endswith("on H100 SXM: 2 configurations")
