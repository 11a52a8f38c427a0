"""The words on what a launch does, and on the traffic that it wastes."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dry_lines import norm
from hand_made import access, executed, place, rows
from traced_kernels import worked

from occupancy_lab import InputError, explain
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.facts import predicted
from occupancy_lab.explaining.work import light_words, line_words, work_sentences, written_later
from occupancy_lab.prediction import Part, Prediction
from occupancy_lab.record import Record
from occupancy_lab.work.counts import Amount, Counts, Loop, Place, Unknown
from occupancy_lab.work.execution import Program, SharedAccess
from occupancy_lab.work.speed_of_light import SpeedOfLight

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
    """Return the short page of a launch with these counts."""
    return norm("h100", counts=counts, **asked).to_markdown()


def widths(found: Explanation) -> tuple[str, ...]:
    """Return the cells of an explanation on the widths of loads and stores."""
    rows_ = found.to_document().sections[0].tables[0].rows
    (cells,) = (row[1:] for row in rows_ if row[0] == "loads, stores")
    return cells


@pytest.mark.usefixtures("alone")
def test_widths_are_those_of_most_bytes() -> None:
    """An index of 8 bytes does not hide that the data is loaded by 2; atomics are stores."""
    found = launched("first_rows", "*fp16:1,*i64,*fp16", assume={"length": PROGRAMS})
    assert widths(found) == ("2 B, 16 B a thread for most bytes",)
    assert found.records[0].resources.load_bytes == 8
    file = KERNELS.with_name("launched_kernels.py")
    asked: dict[str, Any] = {"signature": "*fp32,*fp32,65536", "grid": 64, "gpu": "h100"}
    found = explain(kernel=f"{file}:sum_to_one", constexprs="BLOCK=1024", **asked)
    assert widths(found) == ("16 B, 4 B a thread",)


@pytest.mark.parametrize(("dtype", "offsets"), [("i64", True), ("u8", False)])
def test_a_page_without_a_time_begins_with_what_would_give_one(
    dtype: str, *, offsets: bool
) -> None:
    """The first sentence has the option to give, and suggests offsets only for dtypes of them."""
    found = launched("bags", f"*fp32,*{dtype},*fp32")
    first = found.to_document().answer[0]
    assert first.startswith("No time is predicted, as how often its loops run is not known:")
    assert "`--assume offsets=VALUE` gives the value of each element" in first
    assert ("offsets that are 64 apart" in first) is offsets
    assert found.to_markdown().count("No time is predicted") == 1
    assert "Without times only occupancy and local memory are compared" in found.to_markdown()


def test_an_architecture_has_no_data_sheet() -> None:
    """The page says so instead of naming rates that the data sheet lacks, and no bare command."""
    found = explain(781, gpu="sm_90")
    assert [one.partition(",")[0] for one in found.to_document().answer] == [
        "No time is predicted",
        "**sm_90**: 6 programs per SM",
    ]
    assert "sm_90 is an architecture without a data sheet, so no speed" in found.to_markdown()


@pytest.mark.usefixtures("alone")
def test_blocks_of_descriptors_are_copied_by_tma() -> None:
    """Loads and stores through descriptors are shown as TMA, or by width on a GPU without TMA."""
    asked: dict[str, Any] = {"signature": "*fp32,*fp32,4096,4096", "grid": 64, "gpu": "h100,a100"}
    found = explain(kernel=f"{KERNELS}:copy_block", constexprs={"M": 64, "N": 64}, **asked)
    assert widths(found) == ("both by TMA", "16 B, 16 B a thread")


def with_first(**changes: Any) -> Counts:
    """Return the counts of a copy with its load changed."""
    load, *others = PLAIN.accesses
    return dataclasses.replace(PLAIN, accesses=(dataclasses.replace(load, **changes), *others))


HERE = Place("/folder/kernel.py", 12)
GATHERED = dataclasses.replace(
    access("x", 3, 100, 64), sectors=Amount(2, 100), unique_bytes=Amount(64, None)
)
UNKNOWNS = tuple(
    Unknown(Place("/folder/kernel.py", line), f"values of {name}", "address")
    for line, name in ((7, "index"), (8, "index"), (9, "seqlens"), (10, "a"), (11, "b"))
)
ALIKE = (Unknown(HERE, "values of off", "loop", "36"),)
EMPTY, RUNNING = (Loop(HERE, 0, Amount.of(4096), Amount.of(trips), 0, 0) for trips in (0, 8))
LOAD = PLAIN.accesses[0]
DONE: dict[str, Counts] = {
    "Nothing is moved for nothing": PLAIN,
    "Lanes are masked off": with_first(elements=LOAD.elements * 4),
    "Of sectors little is used": with_first(sectors=LOAD.sectors * 8),
    "Rows are read three times": rows(65536, 65536, 1056, passes=3),
    "Values are not known, and operations not counted": dataclasses.replace(
        PLAIN,
        accesses=(GATHERED,),
        unknowns=UNKNOWNS,
        not_counted={"tt.elementwise_inline_asm": 2},
    ),
    "Offsets are assumed to be alike, so that a loop does not run": dataclasses.replace(
        PLAIN, unknowns=ALIKE, loops=(EMPTY,)
    ),
    "A loop runs by what is assumed": dataclasses.replace(PLAIN, unknowns=ALIKE, loops=(RUNNING,)),
}


def test_a_time_says_what_it_assumes_of_unknown_atomic_addresses() -> None:
    """Additions at unknown addresses may all go to one, which the sentence says with their line."""
    first, *others = PLAIN.accesses
    scatter = dataclasses.replace(first, reads=True, writes=True)
    for is_known in (True, False):
        one = dataclasses.replace(scatter, is_known=is_known)
        (record,) = norm("h100", counts=dataclasses.replace(PLAIN, accesses=(one, *others))).records
        assert record.prediction is not None
        found = [said for said in work_sentences(record) if "one address takes them" in said]
        assert len(found) == (not is_known)


def test_an_unknown_value_has_one_sentence() -> None:
    """A value that a loop, an address and a mask depend on is mentioned once."""
    unknowns = tuple(Unknown(HERE, "values of row", one) for one in ("loop", "address", "mask"))
    (record,) = norm("h100", counts=dataclasses.replace(PLAIN, unknowns=unknowns)).records
    (said,) = (one for one in work_sentences(record) if "Not known" in one)
    assert said == (
        "Not known: values of row at kernel.py:12, on which a loop, an address and a mask depend;"
        " amounts are ranges from the least to the most."
    )


def test_golden_work(check_golden: Callable[[str, str], None]) -> None:
    """The golden file has the sentences on launches that waste traffic or have unknown values.

    In the last launch, source and binary disagree.
    """
    parts = []
    for title, counts in DONE.items():
        (record,) = norm("h100", counts=counts).records
        parts.append(f"## {title}\n\n{light_words(record)}\n\n{listed(record)}")
    (record,) = norm("h100", counts=PLAIN).records
    other = dataclasses.replace(record, executed=executed([place(3)], 4096))
    parts.append(f"## The binary does otherwise\n\n{listed(other)}")
    check_golden("work.md", "\n".join(parts))


def listed(record: Record) -> str:
    """Return the sentences on what a launch does, one per line."""
    return "".join(f"- {sentence}\n" for sentence in work_sentences(record))


def test_given_bytes_are_not_called_reread() -> None:
    """If the user gives the bytes of a launch, the page does not say how often they are read."""
    assert "leave the L2 cache" not in page(rows(65536, 65536, 1056, passes=3), read=1, written=1)


def test_a_warm_launch_is_faster() -> None:
    """With a warm L2 cache a launch reads fewer bytes, takes less time, and its page says so."""
    (cold,) = norm("h100", counts=PLAIN).records
    asked = dataclasses.replace(cold.launch, warm=True)
    warm = dataclasses.replace(cold, launch=asked).with_time()
    assert warm.prediction.us < cold.prediction.us
    assert 0 < warm.row()["dram_read_bytes"] < cold.row()["dram_read_bytes"]
    assert (warm.row()["warm"], "warm" in cold.row()) == (True, False)
    (said,) = set(work_sentences(warm)) - set(work_sentences(cold))
    assert "72% of the data that it touches" in said


def test_the_speed_of_light_of_a_range_is_a_lower_bound() -> None:
    """If the bytes are a range, the speed of light is shown as "or more" and not as one number."""
    assert " or more at peak" not in page(PLAIN)
    first, *others = PLAIN.footprints
    open_ = dataclasses.replace(
        first, read=Amount(first.read.low, None), read_whole=Amount(first.read.low, None)
    )
    opened = with_first(sectors=Amount(PLAIN.accesses[0].sectors.low, None))
    counts = dataclasses.replace(opened, footprints=(open_, *others))
    (record,) = norm("h100", counts=counts).records
    assert " or more at peak" in light_words(record)
    assert "or more, binds" in norm("h100", counts=counts).to_markdown(full=True)
    row, told = record.row(), record.to_dict()["speed_of_light"]
    for name in ("speed_of_light_us", "least_us", "intensity", "lost_us"):
        assert row[name] is None
    assert (told["us"] > 0, told["most_us"], told["open"]) == (True, None, ["memory"])


def test_a_least_time_that_says_nothing_is_not_shown() -> None:
    """A range that begins at nothing has no speed of light, instead of "0.00 us or more"."""
    nothing = SpeedOfLight(0.001, "memory", (Part("memory", 0.001),), open=("memory",))
    (record,) = norm("h100").records
    short: Any = SimpleNamespace(prediction=None, speed_of_light=nothing)
    assert light_words(short) == predicted(short) == "-"
    assert light_words(record) != "-"


def test_a_line_of_tritons_library_is_that_which_calls_it() -> None:
    """What tl.sum does is at the kernel's line; a helper of the reader's own keeps its line."""
    kernel, helper = Place("/home/me/kernel.py", 12), Place("/home/me/helper.py", 3)
    inside = Place("/usr/lib/triton/language/standard.py", 293)
    for line, words in (
        (dataclasses.replace(inside, called_from=(helper, kernel)), "helper.py:3"),
        (dataclasses.replace(inside, called_from=(inside, kernel)), "kernel.py:12"),
        (dataclasses.replace(helper, called_from=(kernel,)), "helper.py:3"),
        (inside, "standard.py:293"),
    ):
        assert line_words(line) == words


@pytest.mark.usefixtures("alone")
def test_a_launch_of_unlimited_work_has_no_time() -> None:
    """If values in memory decide how much it does, the page names the option that gives them."""
    found = launched("halve", "*i32, *i32")
    (record,) = found.records
    assert record.prediction is None
    assert record.executed is None or record.executed.instructions.exact is None
    text = found.to_markdown()
    assert "No time is predicted, as how often its loops run is not known: `--assume" in text
    assert "predicted instead of" not in text


@pytest.mark.usefixtures("alone")
def test_a_launch_of_unknown_work_within_limits_has_a_wide_range() -> None:
    """Its range is more than twice as wide as with the values that it depends on."""
    signature = "*fp32, *i32, *fp32"
    (record,) = launched("first_rows", signature).records
    assert record.executed.instructions.exact is None
    whole = launched("first_rows", signature, assume={"length": PROGRAMS}).records[0].prediction
    found = record.prediction
    assert found.high_us / found.low_us > 2 * whole.high_us / whole.low_us
    assert found.low_us < whole.us


def line_of(kernel: str) -> int:
    """Return the line of the loop of one of counted_kernels.py."""
    lines = KERNELS.read_text("utf-8").splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith(f"def {kernel}("))
    loops = ("while ", "for ")
    return next(n for n in range(first, len(lines)) if lines[n].strip().startswith(loops)) + 1


@pytest.mark.usefixtures("alone")
def test_assumed_trips_give_a_time() -> None:
    """The page names the trips to assume; they give the time that the numbers in memory give."""
    asked: dict[str, Any] = {"signature": "*fp32, *i32, *fp32", "grid": 1024}
    name = f"trips@{line_of('sum_blocks')}"
    found = launched("sum_blocks", **asked)
    assert f"`--assume {name}=N` gives the trips of the loop" in found.to_document().answer[0]
    found = launched("sum_blocks", **asked, assume={name: 40})
    (record,), (other,) = (
        found.records,
        launched("sum_blocks", **asked, assume="lengths=40").records,
    )
    assert record.prediction == other.prediction is not None
    assert record.row()["executed_instructions"] == other.executed.instructions.exact
    assert "runs; 40 trips are assumed each time." in found.to_markdown()


@pytest.mark.usefixtures("alone")
def test_the_range_of_scattered_stores_begins_with_stores_in_order() -> None:
    """Elements stored at unknown places may lie apart or in a row: a permutation, a selection."""
    signature = "*fp32, *i64, *fp32"
    (unknown,) = launched("scatter", signature).records
    (ordered,) = launched("scatter", signature, assume="index=i").records
    assert unknown.prediction is not None
    assert unknown.prediction.low_us < 1.1 * ordered.prediction.us
    assert unknown.prediction.us > 2 * ordered.prediction.us
    assert "with scattered stores where addresses are not known" in unknown.prediction.basis
    assert ordered.counts.in_order is None


@pytest.mark.parametrize("gpu", ["h100", "mi300x"])
@pytest.mark.usefixtures("alone")
def test_a_limit_of_the_source_gives_a_range_of_times(gpu: str) -> None:
    """The time is that of the most trips, its range begins with that of the fewest, warm too."""
    name = f"trips@{line_of('escape')}"
    for warm in (False, True):
        asked: dict[str, Any] = {"signature": "*fp32, *fp32", "grid": 1024, "warm": warm}

        def launched_with(assume: dict[str, int], asked: dict[str, Any] = asked) -> Explanation:
            how = {"kernel": f"{KERNELS}:escape", "constexprs": {"B": BLOCK}, "gpu": gpu}
            return explain(**how, **asked, assume=assume)

        found = launched_with({})
        (record,) = found.records
        least, most = (launched_with({name: trips}).records[0].prediction for trips in (0, 50))
        assert record.prediction.us == most.us > least.us
        assert record.prediction.low_us == least.low_us
        assert record.prediction.high_us == most.high_us
        assert "most trips of its loops" in record.prediction.basis
        assert " makes 0 to 50 trips each time, as its data decides" in found.to_markdown()
        assert record.executed.instructions.high is not None


@pytest.mark.parametrize(
    ("kernel", "signature", "trips", "words"),
    [
        ("escape", "*fp32, *fp32", {0: 51}, " is of a loop that makes 0 to 50 trips"),
        ("escape", "*fp32, *fp32", {1: 5}, " is of a line without a loop whose trips depend on"),
        ("add_alone", "*fp32, *fp32, *i32", {0: 5}, " is of a loop in which programs wait for"),
        ("escape", "*fp32, *fp32", {0: -1}, "; give the trips of the loop, a whole number from 0"),
        ("escape", "*fp32, *fp32", {0: "0..9"}, "; give the trips of the loop, a whole number"),
    ],
)
def test_trips_that_no_loop_makes_are_refused(
    kernel: str, signature: str, trips: dict[int, Any], words: str
) -> None:
    """A wrong line, more trips than the source allows, and a loop that waits are refused."""
    ((further, number),) = trips.items()
    name = f"trips@{line_of(kernel) + further}"
    with pytest.raises(InputError, match=rf"^--assume {name}.*{re.escape(words)}"):
        launched(kernel, signature, assume={name: number})


def test_gathered_rows_are_assumed_to_differ() -> None:
    """Without --assume, a gather takes as long as if no row is read twice."""
    (record,) = launched("gather", "*fp32, *i32, *fp32, 67108864").records
    (other,) = launched("gather", "*fp32, *i32, *fp32, 67108864", assume={"index": 1}).records
    assert record.prediction.us > 2 * other.prediction.us


def test_atomics_on_one_address_are_serialized() -> None:
    """A launch whose programs all add to one address takes at least the time of all additions."""
    adds = dataclasses.replace(access("sum", 9, 1 << 20, 2, writes=True), reads=True)
    counts = dataclasses.replace(PLAIN, accesses=(*PLAIN.accesses, adds))
    (record,) = norm("h100", counts=counts).records
    parts = {one.name: one.us for one in record.prediction.parts}
    assert parts["atomics"] == pytest.approx((1 << 20) * 3.48 / 1980, rel=1e-3)
    assert record.prediction.us > parts["atomics"]
    assert record.prediction.bound == "atomics"


@pytest.mark.usefixtures("alone")
def test_an_access_out_of_bounds_is_named() -> None:
    """The page gives the size of the tensor and the last byte touched, if sizes are known."""
    words = "x has 4096 B, and the launch touches it up to byte"
    assert words in launched("copy", "*fp32[1024], *fp32, 67108864").to_markdown()
    assert "out of bounds" not in launched("copy", "*fp32, *fp32, 67108864").to_markdown()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("number", "is_beyond"), [(1, False), (1 << 20, True)])
def test_assumed_values_beyond_a_tensor_are_no_fault_of_the_launch(
    number: int, *, is_beyond: bool
) -> None:
    """The page says that an assumed index is too large, not that the kernel is wrong."""
    signature = "*fp32[1024], *i32, *fp32, 67108864"
    text = launched("gather", signature, assume={"index": number}).to_markdown()
    assert "out of bounds" not in text
    assert ("with the assumed values the launch touches it up to byte" in text) == is_beyond


def test_an_argument_that_is_passed_cannot_be_assumed() -> None:
    """--assume refuses an argument whose value the launch passes."""
    with pytest.raises(InputError, match="--assume n is of an argument that the launch passes"):
        launched("copy", "*fp32, *fp32, 67108864", assume={"n": 7})


@pytest.mark.parametrize(
    ("shuffles", "passes", "said"),
    [
        (600, 1, "60% of the cycles of shared memory and the L1 cache go to shuffles"),
        (
            0,
            16,
            "75% of the cycles of shared memory and the L1 cache go to bank conflicts: for a warp",
        ),
        (100, 1, ""),
    ],
)
def test_what_keeps_shared_memory_busy_is_named(shuffles: int, passes: int, said: str) -> None:
    """A launch that shared memory bounds is told of shuffles, or of the worst bank conflicts."""
    one = Place("kernel.py", 12)
    shared = SharedAccess(
        place=one,
        instruction=7,
        operation="store",
        thread_bytes=4,
        executions=Amount.of(50),
        bytes=Amount.of(6400),
        wavefronts=Amount.of(50 * passes),
        is_known=True,
    )
    program = Program({"lsu": 1000.0}, (1.0,) * 5, None, 0.0)
    run = dataclasses.replace(
        executed([one], 1),
        kinds={"shuffles": Amount.of(shuffles)},
        shared=(shared,),
        program=program,
    )
    record = norm("h100").records[0]
    time = Prediction(
        9.0, None, None, (Part("lsu", 8.0),), "", calibrated=True, low_us=8, high_us=9
    )
    found = [*work_sentences(dataclasses.replace(record, executed=run, prediction=time))]
    assert any(said in sentence for sentence in found)
    assert any("cycles of shared memory" in sentence for sentence in found) is bool(said)
    if passes > 1:
        (sentence,) = (one for one in found if "bank conflicts" in one)
        assert sentence.endswith("kernel.py:12 passes through the banks 16 times instead of 1.")
    issue = dataclasses.replace(time, parts=(Part("issue", 8.0),))
    other = dataclasses.replace(record, executed=run, prediction=issue)
    assert not any("cycles of shared memory" in sentence for sentence in work_sentences(other))


def test_the_page_says_which_writes_the_time_leaves_out() -> None:
    """These are what the L2 cache has at the end of a launch within a script."""
    record = worked()
    memory, written = record.memory, record.memory.dram_written_bytes
    few = dataclasses.replace(memory, written_within_bytes=written.scaled(0.25))
    parts = {"prediction": record.prediction, "launch": record.launch, "memory": few}
    (said,) = written_later(SimpleNamespace(**parts))
    assert said == (
        "67.6 MB of what it writes are still in the L2 cache when it ends: its time leaves them"
        " out, and the speed of light does not."
    )
    by_events = dataclasses.replace(record.launch, in_program=False)
    assert not [*written_later(SimpleNamespace(**{**parts, "launch": by_events}))]
    assert not [*written_later(SimpleNamespace(**{**parts, "memory": memory}))]


def test_the_full_page_says_of_how_many_programs_the_work_was_counted() -> None:
    """There is such a row only where it was scaled up from a sample."""
    some = dataclasses.replace(PLAIN, programs=4096, walked=512)
    rows_ = dict(norm("h100", counts=some).to_document(full=True).sections[1].tables[0].rows)
    assert rows_["programs counted, then scaled up"] == "512 of 4096"
    every = norm("h100", counts=dataclasses.replace(some, walked=4096)).to_markdown(full=True)
    assert "scaled up" not in every
