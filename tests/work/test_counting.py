"""Counts of a launch from its kernel's texts: counted once, stored, or a reason why not."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from counted_kernels import bags, gather, multiply
from first_texts import compiled_texts, first_text
from launched_kernels import layer_norm

from occupancy_lab.arguments import Pointer
from occupancy_lab.assumed import Assumption
from occupancy_lab.compiling import Store
from occupancy_lab.compiling.texts import Texts
from occupancy_lab.launch import BoundLaunch, Launch
from occupancy_lab.work import walk
from occupancy_lab.work.counting import LATE, Counted, Counting, count_launch, count_launches
from occupancy_lab.work.counts import Amount

HALF, INDEX = Pointer("float16", 1 << 30), Pointer("int32", 4096)
SIZES = {"m": 64, "n": 64, "k": 128, "stride": 128}
PRODUCT = {"a": HALF, "b": HALF, "c": HALF, **SIZES, "M": 32, "N": 16, "K": 16}
GATHER = {"x": HALF, "index": INDEX, "out": HALF, "n": 1024, "B": 256}
BAGS = {"x": Pointer("float32", 1 << 20), "offsets": INDEX, "out": HALF, "B": 128}
NOWHERE = Store(None)


def texts_of(function: Any, arguments: dict[str, Any]) -> Texts:
    """Return the texts of a kernel, with only the TTIR."""
    return Texts(function.__name__, "cuda", 4, 1, 0, first_text(function, arguments))


def counted(  # noqa: PLR0913 - what counts depend on
    function: Any,
    arguments: dict[str, Any],
    grid: tuple[int, ...] | None,
    store: Store = NOWHERE,
    *,
    texts: Texts | None = None,
    typical: dict[str, str] | None = None,
    **assume: Assumption,
) -> Counted:
    """Return the counts of a launch."""
    launch = Launch((), arguments, grid, typical=typical or {})
    run = BoundLaunch.of(function, launch)
    found = texts or texts_of(function, arguments)
    return count_launch(Counting(found, run, grid, assume, 132), store)


def test_a_launch_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are stored completely, and counted again where the entry is damaged."""
    texts = texts_of(multiply, PRODUCT)
    first = counted(multiply, PRODUCT, (2, 4), Store(tmp_path), texts=texts)
    assert first.counts is not None
    assert first.counts.flops.low >= 2 * 64 * 64 * 128
    with monkeypatch.context() as patched:
        patched.setattr(walk, "count", pytest.fail)
        assert counted(multiply, PRODUCT, (2, 4), Store(tmp_path), texts=texts) == first
    (entry,) = (tmp_path / "counted").rglob("*.json")
    for damaged in ("", entry.read_text().replace("walked", "worked")):
        entry.write_text(damaged)
        assert counted(multiply, PRODUCT, (2, 4), Store(tmp_path), texts=texts) == first


def test_executed_counts_are_stored(tmp_path: Path) -> None:
    """The binary's instructions are stored too, and convert to plain values."""
    tensors = dict.fromkeys(("X", "Y", "W", "B", "Mean", "Rstd"), HALF)
    norm = {**tensors, "stride": 64, "N": 50, "eps": 1e-5, "BLOCK_SIZE": 64}
    texts = compiled_texts(layer_norm, Launch((), {**norm, "num_warps": 4}, (4,)))
    first = counted(layer_norm, norm, (4,), Store(tmp_path), texts=texts)
    assert first.executed is not None
    assert first.why_not_executed is None
    warps = 4 * 4
    assert first.executed.instructions.low > 10 * warps
    assert counted(layer_norm, norm, (4,), Store(tmp_path), texts=texts) == first
    plain = json.loads(json.dumps(first.executed.to_dict()))
    assert plain["instructions"]["low"] == first.executed.instructions.low
    without = counted(gather, GATHER, (4,), texts=texts_of(gather, GATHER))
    assert without.executed is None
    assert "it has no cubin" in str(without.why_not_executed)


def test_each_launch_is_stored_as_soon_as_it_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where counting many launches is interrupted, the launches counted so far are stored."""
    store, run = Store(tmp_path), BoundLaunch.of(gather, Launch((), GATHER, (4,)))
    some = [Counting(texts_of(gather, GATHER), run, (4,), {}, number) for number in (1, 2)]
    count = Counting.count

    def interrupted(one: Counting) -> Counted:
        if one is some[1]:
            raise KeyboardInterrupt
        return count(one)

    monkeypatch.setattr(Counting, "count", interrupted)
    with pytest.raises(KeyboardInterrupt):
        count_launches(some, store)
    assert [one.kept(store) is not None for one in some] == [True, False]


@pytest.mark.parametrize("jobs", [1, 2])
def test_counts_that_begin_too_late_are_not_stored(tmp_path: Path, jobs: int) -> None:
    """What is stored already is found, and everything else has the reason that it took too long."""
    store, run = Store(tmp_path), BoundLaunch.of(gather, Launch((), GATHER, (4,)))
    some = [Counting(texts_of(gather, GATHER), run, (4,), {}, number) for number in range(1, 6)]
    (first,) = count_launches(some[:1], store)
    assert count_launches(some, store, jobs, until=0.0) == [first, *[LATE] * 4]
    assert [one.kept(store) for one in some] == [first, *[None] * 4]


@pytest.mark.parametrize("changed", [{"k": 64}, {"stride": 133}])
def test_other_launches_are_counted_anew(tmp_path: Path, changed: dict[str, int]) -> None:
    """A launch with another argument or grid does not get the stored counts."""
    texts, store = texts_of(multiply, PRODUCT), Store(tmp_path)
    first = counted(multiply, PRODUCT, (2, 4), store, texts=texts)
    assert counted(multiply, PRODUCT | changed, (2, 4), store, texts=texts) != first
    assert counted(multiply, PRODUCT, (2, 3), store, texts=texts) != first


def test_a_reason_is_given_where_nothing_is_counted() -> None:
    """Without a grid, TTIR or a valid text, the reason is given."""
    texts = texts_of(gather, GATHER)
    launch = BoundLaunch.of(gather, Launch((), GATHER))
    none = count_launch(Counting(None, launch, (4,), {}, None), NOWHERE)
    assert (none.counts, none.why_not) == (None, "its kernel's TTIR is not at hand")
    assert counted(gather, GATHER, None, texts=texts).why_not == "no grid is given"
    damaged = dataclasses.replace(texts, ttir="module { no }")
    why = counted(gather, GATHER, (4,), texts=damaged).why_not
    assert why


def test_an_error_in_counting_becomes_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error in counting becomes the reason, and is not stored."""

    def failing(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(walk, "count", failing)
        failed = counted(gather, GATHER, (4,), Store(tmp_path))
        assert "ZeroDivisionError" in str(failed.why_not)
    assert counted(gather, GATHER, (4,), Store(tmp_path)).counts is not None


def test_unknown_values_can_be_assumed() -> None:
    """Contents of a tensor and an argument without a value can be assumed by name."""
    texts = texts_of(gather, GATHER)
    open_ = counted(gather, GATHER, (4,), texts=texts).counts
    assert open_ is not None
    assert open_.unknowns
    assert not open_.load_sectors.is_exact
    given = counted(gather, GATHER, (4,), texts=texts, index=7).counts
    assert given is not None
    assert given.load_sectors.is_exact
    typed = counted(gather, GATHER, (4,), texts=texts, typical={"n": "i32"}).counts
    assert typed is not None
    assert not typed.written_bytes.is_exact
    assumed = counted(gather, GATHER, (4,), texts=texts, typical={"n": "i32"}, n=1024).counts
    assert assumed is not None
    assert assumed.written_bytes == Amount.of(2 * 1024)


def test_a_range_can_be_assumed() -> None:
    """A tensor assumed to hold 3*i + 2 is counted as if its values were given."""
    texts = compiled_texts(bags, Launch((), BAGS, (64,)))
    known = Launch((), BAGS, (64,), values={"offsets": tuple(range(2, 3 * 65 + 2, 3))})
    read = count_launch(Counting(texts, BoundLaunch.of(bags, known), (64,), {}, 132), NOWHERE)
    grown = counted(bags, BAGS, (64,), texts=texts, offsets=range(2, 3 * (1 << 20) + 2, 3))
    for one in (read, grown):
        assert one.counts is not None
        assert one.executed is not None
        assert [loop.trips for loop in one.counts.loops] == [Amount.of(3 * 64)]
    assert grown.counts.read_bytes == read.counts.read_bytes
    assert grown.executed.instructions == read.executed.instructions
    assert {one.assumed for one in grown.counts.unknowns} == {"3*i + 2"}
    alike = counted(bags, BAGS, (64,), texts=texts, offsets=7)
    assert alike.counts is not None
    assert [loop.trips for loop in alike.counts.loops] == [Amount.of(0)]


def test_a_for_loop_of_unknown_length_has_its_step_and_names_its_tensor_in_order() -> None:
    """A `for` loop between values of a tensor is no `while`, and the first one is named first."""
    texts = compiled_texts(bags, Launch((), BAGS, (64,)))
    found = counted(bags, BAGS, (64,), texts=texts).counts
    assert found is not None
    assert [(one.trips, one.step) for one in found.loops] == [(Amount(0, None), 1)]
    columns = [one.place.column for one in found.unknowns if one.steers == "loop"]
    assert len(columns) == 2
    assert columns == sorted(columns)


def test_contents_of_tensors_make_counts_exact(tmp_path: Path) -> None:
    """Values of a tensor make counts exact, and are part of the key in the store."""
    texts, store, some = texts_of(gather, GATHER), Store(tmp_path), []
    for index in (tuple(range(1024)), (3,) * 1024):
        launch = Launch((), GATHER, (4,), values={"index": index})
        run = BoundLaunch.of(gather, launch)
        found = count_launch(Counting(texts, run, (4,), {}, 132), store).counts
        assert found is not None
        assert not found.unknowns
        some.append(found.unique_read_bytes)
    assert some == [Amount.of(4096 + 2 * 1024), Amount.of(4096 + 2)]
    assumed = count_launch(Counting(texts, run, (4,), {"index": 7}, 132), store).counts
    assert assumed is not None
    assert [one.assumed for one in assumed.unknowns] != []
