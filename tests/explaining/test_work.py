"""What a page says of what a launch does, and of what it moves for nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dry_lines import norm
from hand_made import access, executed, place, rows

from occupancy_lab import InputError, explain
from occupancy_lab.explaining.work import light_words, work_sentences
from occupancy_lab.work.counts import Amount, Counts, Loop, Place, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.explaining.explanation import Explanation

PLAIN = rows(4096, 2048, 1056)


KERNELS = Path(__file__).parents[1] / "counted_kernels.py"
PROGRAMS, BLOCK = 1 << 16, 1024


def launched(kernel: str, signature: str, *, grid: int = PROGRAMS, **asked: Any) -> Explanation:
    """Return the explanation of a launch of one of counted_kernels.py."""
    return explain(
        kernel=f"{KERNELS}:{kernel}",
        signature=signature,
        constexprs={"B": BLOCK},
        grid=grid,
        gpu="h100",
        **asked,
    )


def page(counts: Counts, **asked: Any) -> str:
    """Return the short page of a launch that does this."""
    return norm("h100", counts=counts, **asked).to_markdown()


def with_first(**changes: Any) -> Counts:
    """Return the counts of a copy with its load changed."""
    load, *others = PLAIN.accesses
    return dataclasses.replace(PLAIN, accesses=(dataclasses.replace(load, **changes), *others))


def test_a_launch_that_wastes_nothing_has_nothing_said_of_it() -> None:
    """Of a copy of rows the page has the numbers and no sentence."""
    found = page(PLAIN)
    assert "| 16.8 MB, 16.8 MB, 33.6 MB " in found
    for words in ("masked off", "sector", "times over", "Not known", "Not counted"):
        assert words not in found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"elements": PLAIN.accesses[0].elements * 4},
            "60% of the lanes of its loads and stores are masked off.",
        ),
        (
            {"sectors": PLAIN.accesses[0].sectors * 8},
            (
                "Of the 32 bytes of each sector that is moved 22.2% are used; the load at"
                " kernel.py:3 uses 12.5%."
            ),
        ),
    ],
)
def test_what_is_moved_for_nothing_is_said(changes: Mapping[str, Any], words: str) -> None:
    """Lanes that are masked off, and sectors of which little is used, are said with their share."""
    assert f"- {words}\n" in page(with_first(**changes))


def test_bytes_that_come_again_are_said() -> None:
    """Rows that are read three times, and too many to stay in the cache, come almost thrice."""
    large = rows(65536, 65536, 1056, passes=3)
    found = page(large)
    assert "Device memory gives 8.59 GB 3.0 times over" in found
    assert "times over" not in page(large, read=1, written=1)


def test_a_launch_right_after_the_same_is_faster_and_says_so() -> None:
    """It has the bytes that the L2 cache does not have, a shorter time, and a column of its own."""
    (cold,) = norm("h100", counts=PLAIN).records
    asked = dataclasses.replace(cold.launch, warm=True)
    warm = dataclasses.replace(cold, launch=asked).with_time()
    assert cold.prediction is not None
    assert warm.prediction is not None
    assert warm.prediction.us < cold.prediction.us
    assert 0 < warm.row()["dram_read_bytes"] < cold.row()["dram_read_bytes"]
    assert (warm.row()["warm"], "warm" in cold.row()) == (True, False)
    (said,) = set(work_sentences(warm)) - set(work_sentences(cold))
    assert "72% of what it touches" in said


def test_what_is_not_known_is_named() -> None:
    """A value that nobody knows is named with what depends on it, and so is what is not counted."""
    unknowns = tuple(
        Unknown(Place("/folder/kernel.py", line), f"values of {name}", "address")
        for line, name in ((7, "index"), (8, "index"), (9, "seqlens"), (10, "a"), (11, "b"))
    )
    gathered = dataclasses.replace(
        access("x", 3, 100, 64), sectors=Amount(2, 100), unique_bytes=Amount(64, None)
    )
    found = page(
        dataclasses.replace(
            PLAIN,
            accesses=(gathered,),
            unknowns=unknowns,
            not_counted={"tt.elementwise_inline_asm": 2},
        )
    )
    assert (
        "- Not known: values of index at kernel.py:7, on which an address depends; amounts are"
        " from the least to the most.\n"
    ) in found
    assert found.count("Not known") == 3
    assert "1 further unknown in `--json`." in found
    assert "Not counted: tt.elementwise_inline_asm (2)." in found
    assert "64 B to 3200 B" in found


def test_offsets_that_are_all_alike_leave_a_loop_empty_and_the_page_says_so() -> None:
    """Where each offset is assumed to be alike, so that a loop does not run, the page says so."""
    here = Place("/folder/kernel.py", 12)
    counts = dataclasses.replace(
        PLAIN,
        unknowns=(Unknown(here, "values of off", "loop", "36"),),
        loops=(Loop(here, 0, Amount.of(4096), Amount.of(0), 0, 0),),
    )
    found = page(counts)
    assert (
        "Not known: values of off at kernel.py:12, on which a loop depends; 36 is assumed" in found
    )
    assert "So the loop at kernel.py:12 does not run. Of offsets, `--assume off=36*i`" in found
    runs = dataclasses.replace(counts, loops=(Loop(here, 0, Amount.of(4096), Amount.of(8), 1, 1),))
    assert "does not run" not in page(runs)


def test_the_least_time_of_an_amount_between_limits_is_that_or_more() -> None:
    """Where what is moved is known between limits, so is the speed of light."""
    assert " or more at peak" not in page(PLAIN)
    first, *others = PLAIN.footprints
    open_ = dataclasses.replace(
        first, read=Amount(first.read.low, None), read_whole=Amount(first.read.low, None)
    )
    opened = with_first(sectors=Amount(PLAIN.accesses[0].sectors.low, None))
    counts = dataclasses.replace(opened, footprints=(open_, *others))
    (record,) = norm("h100", counts=counts).records
    assert " or more at peak" in light_words(record)


def test_what_the_binary_does_otherwise_is_not_certain() -> None:
    """A number in which source and binary differ is named, with both and a reason."""
    (record,) = norm("h100", counts=PLAIN).records
    run = executed([place(3)], 4096)
    (sentence,) = (
        one
        for one in work_sentences(dataclasses.replace(record, executed=run))
        if "Not certain: bytes that loads" in one
    )
    assert "By the source they are 16.8 M, and its binary executes 2.10 M, as where" in sentence
    assert not list(work_sentences(record))


@pytest.mark.parametrize(
    ("kernel", "signature", "words", "assumed"),
    [
        ("first_rows", "*fp32, *i32, *fp32", "how much it does", {"length": PROGRAMS}),
        ("halve", "*i32, *i32", "how often its loops run", None),
    ],
)
def test_a_launch_that_may_do_much_or_nothing_has_no_time(
    kernel: str, signature: str, words: str, assumed: dict[str, int] | None
) -> None:
    """What memory holds decides it: no time, no advice by time, and the option that would tell."""
    found = launched(kernel, signature)
    (record,) = found.records
    assert record.prediction is None
    assert record.executed is None or record.executed.instructions.exact is None
    text = found.to_markdown()
    assert f"No time is predicted, as {words} is not known: `--assume" in text
    assert "predicted instead of" not in text
    if assumed is not None:
        (record,) = launched(kernel, signature, assume=assumed).records
        assert record.prediction is not None


def test_rows_by_number_are_taken_to_differ() -> None:
    """A gather takes as long as with an index of which nobody reads a row twice."""
    (record,) = launched("gather", "*fp32, *i32, *fp32, 67108864").records
    (other,) = launched("gather", "*fp32, *i32, *fp32, 67108864", assume={"index": 1}).records
    assert record.prediction is not None
    assert other.prediction is not None
    assert record.prediction.us > 2 * other.prediction.us


def test_atomics_on_one_address_come_one_after_the_other() -> None:
    """A launch whose programs all add to one number takes as long as so many additions at least."""
    adds = dataclasses.replace(access("sum", 9, 1 << 20, 2, writes=True), reads=True)
    counts = dataclasses.replace(PLAIN, accesses=(*PLAIN.accesses, adds))
    (record,) = norm("h100", counts=counts).records
    assert record.prediction is not None
    parts = {one.name: one.us for one in record.prediction.parts}
    assert parts["atomics"] == pytest.approx((1 << 20) * 3.48 / 1980, rel=1e-3)
    assert record.prediction.us > parts["atomics"]
    assert record.prediction.bound == "atomics"


def test_a_tensor_that_is_too_small_is_named() -> None:
    """With its size and how far the launch goes; not where the signature gives no size."""
    words = "x has 4096 B, and the launch touches it up to byte"
    assert words in launched("copy", "*fp32[1024], *fp32, 67108864").to_markdown()
    assert "what is not its own" not in launched("copy", "*fp32, *fp32, 67108864").to_markdown()


def test_a_number_that_is_passed_is_not_assumed() -> None:
    """--assume is for what a launch line does not have."""
    with pytest.raises(InputError, match="--assume n is of an argument that the launch passes"):
        launched("copy", "*fp32, *fp32, 67108864", assume={"n": 7})
