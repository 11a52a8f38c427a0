"""Numbers and sentences that several pages have."""

from occupancy_lab.gpus import find_gpu
from occupancy_lab.prediction import Part, Prediction
from occupancy_lab.text.words import microseconds, prediction_words, range_sentence


def predicted(us: float) -> Prediction:
    """Return a predicted time of which the range is a quarter less to a half more."""
    parts = (Part("issue", us),)
    low, high = us * 0.75, us * 1.5
    return Prediction(us, None, None, parts, "", calibrated=True, low_us=low, high_us=high)


def test_long_times_are_in_milliseconds() -> None:
    """A time of 10,000 us or more has three digits in ms, and its range is in the same unit."""
    assert [*map(microseconds, (9.994, 9999.4, 9999.6, 876_000))] == [
        "9.99 us",
        "9999 us",
        "10.0 ms",
        "876 ms",
    ]
    assert prediction_words(predicted(876_000)) == "876 ms (657 to 1314)"
    assert prediction_words(predicted(94.3)) == "94.3 us (70.7 to 141)"


def test_a_range_is_named_by_where_it_is() -> None:
    """The sentence about the range does not call its ends limits, which are those of a GPU."""
    gpu = find_gpu("h100")
    assert range_sentence(gpu, "the data sheet", calibrated=True) == (
        "Times for H100 SXM rest on the data sheet; of kernels that the model was not fitted to,"
        " 80% of the launches took a time within the range in parentheses."
    )
