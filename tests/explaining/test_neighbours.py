"""The neighbours of a launch: which are compiled, their words, and which is the best."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import launched_kernels
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stand_ins import dry

from occupancy_lab.arguments import Descriptor, Pointer, tensor
from occupancy_lab.asked import Asked
from occupancy_lab.explaining.advice import (
    in_one_sentence,
    of_neighbours,
    without_blocks,
    worth_showing,
)
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.explanation import Explanation, write_full
from occupancy_lab.explaining.grids import same_work
from occupancy_lab.explaining.neighbours import (
    Neighbour,
    best_of,
    block_changes,
    changed,
    changes,
    fewest_aligned,
    no_effect,
    pairs,
    predicted_us,
    rank,
)
from occupancy_lab.explaining.short import write_short
from occupancy_lab.kernel import variants
from occupancy_lab.launch import BoundLaunch
from occupancy_lab.prediction import Part, Prediction
from occupancy_lab.record import Record
from occupancy_lab.text.words import listed
from occupancy_lab.values import Resources, Target
from occupancy_lab.work.counts import NOTHING, Amount, Counts, Footprint, Loop, Place, Unknown

Outcome = Callable[[Mapping[str, Any], Target], Resources | str]

pytestmark = pytest.mark.usefixtures("given_times")

X = tensor((4096, 2048), "float16")


def launched(outcome: Outcome, gpu: str = "h100", **asked: Any) -> Explanation:
    """Return the dry run of a transpose."""
    return dry(launched_kernels.transpose, gpu, outcome, X, X, 64, 64, BLOCK=64, **asked)


def tried(outcome: Outcome, gpu: str = "h100", **asked: Any) -> Case:
    """Return the case of a transpose, with its neighbours."""
    (found,) = launched(outcome, gpu, **asked).cases
    return found


def constant(**changes: Any) -> Outcome:
    """Return an outcome that gives every launch the same resources."""
    usual = {"n_regs": 32, "shared": 0, "binary": 1, "instructions": 9, "local_bytes": 0}
    return lambda keywords, _: Resources(
        **{**usual, "num_warps": keywords.get("num_warps", 4), **changes}
    )


@pytest.mark.parametrize(
    ("gpu", "asked", "found"),
    [
        (
            "h100",
            {},
            [
                *(("num_warps", value) for value in (2, 8)),
                *(("num_stages", value) for value in (1, 2, 4)),
            ],
        ),
        ("h100", {"num_warps": 1, "num_stages": 1}, [("num_warps", 2), ("num_stages", 2)]),
        ("h100", {"num_warps": 32, "num_stages": 1}, [("num_warps", 16), ("num_stages", 2)]),
        ("mi300x", {"num_warps": 16, "num_stages": 1}, [("num_warps", 8), ("num_stages", 2)]),
    ],
)
def test_changes_of_warps_and_stages(
    gpu: str, asked: dict[str, Any], found: list[tuple[str, int]]
) -> None:
    """Half and twice the warps, one stage, and one stage fewer and more are tried."""
    (record,) = launched(constant(n_regs=16), gpu, **asked).records
    assert [pair for one in changes(record) for pair in one.items()] == found


@pytest.mark.parametrize(("gpu", "name"), [("h100", "maxnreg"), ("mi300x", "waves_per_eu")])
def test_registers_that_limit_are_capped(gpu: str, name: str) -> None:
    """If only registers limit, a neighbour has the cap with which one more program fits."""
    run = tried(constant(n_regs=168), gpu)
    (cap,) = (one.changes[name] for one in run.neighbours if name in one.changes)
    if name == "maxnreg":
        assert cap == 128
    else:
        assert cap == run.record.calculation.occupancy.warps_per_multiprocessor // 4 + 1


def test_pages_say_what_a_cap_compiles_to() -> None:
    """Both pages say alike what the cap does that lets one more program in, or why it fails."""

    def failing(reason: str) -> Outcome:
        return lambda keywords, target: (
            reason if "maxnreg" in keywords else constant(n_regs=168)(keywords, target)
        )

    low = "Insufficient registers (128). Try to compile with register target of 130 or higher."
    for outcome, said in (
        (constant(n_regs=168), "it spills nothing"),
        (failing(low), "the compiler needs at least 130"),
        (failing("no luck\nat all"), "compile failed: no luck"),
    ):
        for write in (write_short, write_full):
            page = write((tried(outcome),)).to_markdown()
            assert f"at most 128 registers per thread (`maxnreg=128`: {said})" in page


def test_a_full_multiprocessor_needs_no_further_program() -> None:
    """If all warps are resident, no sentence says why no further program fits."""
    for warps, said in ((16, False), (32, True)):  # an SM of sm_86 holds 48 warps
        case = tried(constant(n_regs=16), "sm_86", num_warps=warps)
        assert (case.record.occupancy.occupancy < 1) is said
        for write in (write_short, write_full):
            assert ("cannot fit" in write((case,)).to_markdown()) is said


def test_a_cap_that_was_not_reached() -> None:
    """If the compiler takes more registers than maxnreg asks for, a sentence has both numbers."""
    for cap, said in ((7, True), (24, False)):
        page = write_short((tried(constant(n_regs=24), maxnreg=cap),)).to_markdown()
        sentence = "maxnreg 7 was not reached: the kernel still takes 24 registers per thread."
        assert (sentence in page) is said


def test_padding_is_an_effect_and_is_left_out() -> None:
    """A waves_per_eu that pads the allocation has an effect, and leaving it out is tried."""

    def outcome(keywords: Mapping[str, Any], _target: Target) -> Resources:
        padded = {None: 24, 2: 176, 3: 168}[keywords.get("waves_per_eu")]
        warps = keywords.get("num_warps", 4)
        return Resources(23, warps, 0, binary=1, local_bytes=0, allocated_vgprs=padded)

    run = tried(outcome, "mi300x", waves_per_eu=2)
    reasons = {one.words: one.reason for one in run.neighbours if "waves_per_eu" in one.changes}
    assert reasons == {"no waves_per_eu": "", "waves_per_eu 3": ""}
    page = write_short((run,)).to_markdown()
    assert "asks for 176 VGPRs, more than the 23 in use" in page


def test_changes_of_a_launch_that_spills() -> None:
    """Four times the warps and the launch without its cap are tried only if it spills."""
    keywords: dict[str, Any] = {"maxnreg": 64, "num_warps": 4}
    found = [one.words for one in tried(constant(local_bytes=8), **keywords).neighbours]
    assert {"num_warps 8", "num_warps 16", "no maxnreg"} <= {*found}
    calm = [one.words for one in tried(constant(), **keywords).neighbours]
    assert not {"num_warps 16", "no maxnreg"} & {*calm}


def timed(us: float, bound: str = "latency", low_us: float | None = 1.0) -> Prediction:
    """Return a predicted time with *bound* as its longest part."""
    parts = (Part(bound, us), Part("issue", us / 2))
    return Prediction(us, None, None, parts, "", calibrated=True, low_us=low_us, high_us=us * 2)


def in_blocks(blocks: Mapping[str, int], bound: str, **changes: Any) -> Record:
    """Return the record of a launch with these blocks, whose time has *bound* as longest part."""
    record = tried(constant(n_regs=changes.pop("n_regs", 32))).record
    usual = {"arguments": blocks, "constexprs": (*blocks,), "counts": Counts(8, 8)}
    return dataclasses.replace(
        record,
        tiles=(*blocks,),
        launch=dataclasses.replace(record.launch, arguments=()),
        prediction=timed(9.0, bound),
        **{**usual, **changes},
    )


@pytest.mark.parametrize(("gpu", "registers"), [("h100", 192), ("mi300x", 384)])
def test_half_the_warps_of_a_full_register_file_are_not_tried(gpu: str, registers: int) -> None:
    """From three quarters of the possible registers per thread on, half the warps are not tried."""
    for n_regs, halved in ((registers - 1, True), (registers, False)):
        (record,) = launched(constant(n_regs=n_regs), gpu).records
        assert ({"num_warps": 2} in changes(record)) is halved


def test_one_other_number_of_stages_is_tried_without_a_pipeline() -> None:
    """For a kernel without dots or asynchronous copies, one launch shows that stages do nothing."""
    (record,) = launched(constant()).records
    stages = [one for one in changes(record) if "num_stages" in one]
    assert len(stages) == 3
    counted = dataclasses.replace(record, counts=Counts(1, 1))
    assert [one for one in changes(counted) if "num_stages" in one] == stages[:1]
    ahead = dataclasses.replace(record.resources, async_copies=8)
    loading = dataclasses.replace(
        counted, calculation=dataclasses.replace(record.calculation, resources=ahead)
    )
    assert [one for one in changes(loading) if "num_stages" in one] == stages


def test_warps_and_stages_change_together() -> None:
    """Each num_warps is paired with each num_stages, if neither alone is slower or useless."""
    record = dataclasses.replace(tried(constant()).record, prediction=timed(9.0))

    def of(us: float, reason: str = "", **changes: int) -> Neighbour:
        return Neighbour(changes, dataclasses.replace(record, prediction=timed(us)), reason=reason)

    fine = [of(8.9, num_warps=2), of(9.0, num_stages=1), of(8.0, num_stages=4)]
    slow = [of(30.0, num_warps=8), of(30.0, num_stages=2)]
    useless = [of(9.0, "num_stages has no effect.", num_stages=5)]
    others = [of(8.0, num_warps=1, maxnreg=64), Neighbour({"num_warps": 16}, None, "timed out")]
    assert [*pairs(record, [*fine, *slow, *useless, *others])] == [
        {"num_warps": 2, "num_stages": 1},
        {"num_warps": 2, "num_stages": 4},
    ]
    assert not [*pairs(dataclasses.replace(record, prediction=None), fine)]
    both = [of(7.0, num_warps=2, num_stages=1), of(5.0, num_warps=2, num_stages=4)]
    case = Case(record, neighbours=(*fine, *both))
    assert worth_showing(case) == [*fine, both[1]]
    assert "1 pair of num_warps and num_stages was compiled too" in " ".join(of_neighbours(case))


def test_a_launch_bound_by_latency_tries_more_stages() -> None:
    """Two more stages are tried only if latency bounds the launch."""
    record = tried(constant()).record
    for bound, stages in (("latency", [1, 2, 4, 5]), ("issue", [1, 2, 4])):
        own = dataclasses.replace(record, prediction=timed(9.0, bound))
        assert [one["num_stages"] for one in changes(own) if "num_stages" in one] == stages


@given(
    sizes=st.lists(st.sampled_from([1, 3, 2, 16, 128, 256, 4096, 32768]), min_size=1, max_size=3),
    bound=st.sampled_from(["latency", "launch"]),
    warps=st.sampled_from([1, 4, 32]),
)
def test_blocks_are_halved_and_doubled(sizes: list[int], bound: str, warps: int) -> None:
    """Each block is halved, doubled, and doubled with twice the warps, within the limits.

    No block becomes too large to compile quickly, and a launch bound by its start tries none.
    """
    blocks = {f"BLOCK_{place}": size for place, size in enumerate(sizes)}
    others = {"arguments": {**blocks, "N": 8}, "constexprs": (*blocks, "N")}
    found = list(block_changes(in_blocks(blocks, bound, options={"num_warps": warps}, **others)))
    shapes = {name: size for name, size in blocks.items() if size != 3}
    for one in found:
        ((name, block), *rest) = one.items()
        times = block / blocks[name]
        assert times in {0.5, 2, 4}
        assert block == int(block) >= 1
        assert times < 1 or math.prod(sorted({**shapes, name: block}.values())[-2:]) <= 1 << 15
        assert rest in ([], [("num_warps", warps * times)])
        assert times > 1 or not rest
        assert all(value <= 32 for _, value in rest)
    small = [name for name, size in blocks.items() if size in {2, 16}]
    small += [
        name  # a block of 1 can only be doubled
        for name, size in blocks.items()
        if size == 1 and math.prod(sorted({**shapes, name: 2}.values())[-2:]) <= 1 << 15
    ]
    usable = bound != "launch" and max(sizes) <= 256
    assert not usable or {name for one in found for name in one} >= {*small}
    assert bound != "launch" or not found


def test_no_tile_is_doubled_where_registers_are_full() -> None:
    """With crowded registers a tile is doubled only with twice the warps; BLOCK_K always is."""
    blocks = {"BLOCK_M": 64, "BLOCK_K": 64}
    for n_regs, doubled in ((32, True), (255, False)):
        found = list(block_changes(in_blocks(blocks, "tensor", n_regs=n_regs)))
        assert ({"BLOCK_M": 128} in found) is doubled
        assert {"BLOCK_M": 128, "num_warps": 8} in found
        assert {"BLOCK_K": 128} in found


@pytest.mark.parametrize(
    ("steers", "assumed", "shaped"),
    [
        ("address", None, False),
        ("loop", None, False),
        ("address", "8*i", True),
        ("loop", "8", True),
    ],
)
def test_blocks_are_tried_where_values_from_memory_are_assumed(
    steers: str, assumed: str | None, *, shaped: bool
) -> None:
    """Other blocks are tried only if all values that addresses and loops depend on are assumed."""
    unknown = Unknown(Place("kernel.py", 7), "values of index", steers, assumed)
    counts = Counts(8, 8, unknowns=(unknown,))
    named = in_blocks({"BLOCK_D": 128}, "bandwidth", counts=counts)
    assert any(block_changes(named)) is shaped


@pytest.mark.parametrize(
    ("enough", "named"),
    [("N", {"N"}), ("M and N", {"M", "N"}), ("M or N", {"M", "N"})],
)
def test_only_needed_roundings_are_kept(enough: str, named: set[str]) -> None:
    """Roundings that do not help by themselves are dropped; if either would do, both are kept."""
    kernel, sizes = launched_kernels.transpose, {"M": 65, "N": 63}
    (variant,) = variants(kernel, (X, X, *sizes.values()), {"BLOCK": 64}, (2, 1))
    (record,) = dry(kernel, "h100", constant(), X, X, *sizes.values(), BLOCK=64).records
    asked = Asked(variant.function, variant.launch, record.gpu)

    def compiled(launches: Sequence[Asked]) -> list[Record]:
        found = []
        for one in launches:
            values = BoundLaunch.of(kernel, one.launch).arguments
            wide = eval(enough, {name: values[name] % 16 == 0 for name in sizes})  # noqa: S307
            resources = record.resources.replace(load_bytes=16 if wide else 2)
            calculation = dataclasses.replace(record.calculation, resources=resources)
            us = timed(3.0 if wide else 9.0)
            made = dataclasses.replace(record, calculation=calculation, prediction=us)
            found.append(dataclasses.replace(made, arguments=values))
        return found

    both = dataclasses.replace(asked.launch, arguments=(X, X, 80, 64))
    before, padded = compiled([asked, dataclasses.replace(asked, launch=both)])
    found = fewest_aligned(asked, before, padded, compiled)
    assert {name for name, size in sizes.items() if found.arguments[name] != size} == named


@st.composite
def _footprints(draw: st.DrawFn) -> tuple[Footprint, ...]:
    number = st.sampled_from([0, 4096, 4100, 8192]).map(Amount.of)
    names = draw(st.sets(st.sampled_from(["x", "y"])))
    return tuple(Footprint(name, draw(number), draw(number), NOTHING, NOTHING) for name in names)


@given(one=_footprints(), other=_footprints(), walked=st.sampled_from([4, 8]))
def test_the_same_work_is_the_same_bytes_of_each_tensor(
    one: tuple[Footprint, ...], other: tuple[Footprint, ...], walked: int
) -> None:
    """Two launches do the same work if bytes agree, within 2% if they are extrapolated."""
    first, second = (
        dataclasses.replace(
            tried(constant()).record, counts=Counts(8, number, footprints=footprints)
        )
        for number, footprints in ((8, one), (walked, other))
    )
    close = 0.02 if walked < 8 else 0.0
    mine, its = (
        {found.tensor: (found.read.low, found.written.low) for found in some}
        for some in (one, other)
    )
    expected = mine.keys() == its.keys() and all(
        abs(a - b) <= close * max(a, b)
        for name in mine
        for a, b in zip(mine[name], its[name], strict=True)
    )
    assert same_work(first, second) is expected


def test_as_many_bytes_elsewhere_are_other_work() -> None:
    """Different bounds are other work, even for equal bytes; unknown bounds are ignored."""
    all_of_it, beyond, unknown = (
        Footprint("x", *[Amount.of(8192)] * 4, bounds=bounds)
        for bounds in ((0, 8192), (0, 12288), None)
    )
    first, *others = (
        dataclasses.replace(tried(constant()).record, counts=Counts(8, 8, footprints=(one,)))
        for one in (all_of_it, all_of_it, beyond, unknown)
    )
    assert [same_work(first, one) for one in others] == [True, False, True]


def test_failed_neighbours_have_a_status() -> None:
    """A neighbour that fails has the status of its failure."""

    def outcome(keywords: Mapping[str, Any], _target: Target) -> Resources | str:
        if keywords.get("num_warps") == 2:
            return "it takes longer than 2 s"
        if keywords.get("num_stages") == 2:
            return "no"
        return Resources(32, keywords.get("num_warps", 4), keywords.get("num_stages", 3) * 70_000)

    status = {one.words: one.status for one in tried(outcome).neighbours}
    assert status == {
        "num_warps 2": "timed out",
        "num_warps 8": "",
        "num_stages 1": "",
        "num_stages 2": "compile failed",
        "num_stages 4": "does not fit",
    }


@pytest.mark.parametrize(
    ("gpu", "changed", "reason"),
    [
        ("h100", {}, "no loop is left to pipeline"),
        ("h100", {"loop_instructions": 9}, "Triton pipelines only loads that feed `tl.dot`"),
        ("mi300x", {"loop_instructions": 9}, "Triton pipelines only loads that feed `tl.dot`"),
        ("sm_75", {"loop_instructions": 9}, "sm_75 cannot copy ahead into shared memory"),
        ("h100", {"loop_instructions": 9, "async_copies": 2}, "the loop itself sets its number"),
    ],
)
def test_no_effect_has_its_reason(gpu: str, changed: dict[str, Any], reason: str) -> None:
    """If num_stages gives the same binary, the reason depends on the kernel and the GPU."""
    reasons = {one.reason for one in tried(constant(**changed), gpu).neighbours if one.reason}
    assert len(reasons) == 1
    assert reason in reasons.pop()


def test_a_while_loop_is_not_pipelined() -> None:
    """If all loops of a kernel are `while` loops, that is the reason why stages do nothing."""
    record = tried(constant(loop_instructions=9)).record
    loops = (
        Loop(Place("k.py", 1), 0, Amount.of(1), Amount.of(9), 9, 9, None),
        Loop(*(Place("k.py", 2), 0, Amount.of(1), Amount.of(9), 9, 9, 1)),
    )
    for chosen, is_while in ((loops[:1], True), (loops, False), ((), False)):
        other = dataclasses.replace(record, counts=Counts(1, 1, loops=chosen))
        assert ("is a `while`" in no_effect(other, record, "num_stages")) == is_while


MOVED = {"grid": (4096,), "read": 2**25, "written": 2**25}


@pytest.mark.parametrize("gpu", ["h200", "h100", "mi300x"])
@pytest.mark.parametrize("instructions", range(60, 6000, 1188))
def test_predicted_times_decide(gpu: str, instructions: int) -> None:
    """The best neighbour is the fastest by prediction if noticeably faster, whatever occupancy."""

    def outcome(keywords: Mapping[str, Any], _target: Target) -> Resources:
        warps = keywords.get("num_warps", 4)
        issued = instructions if warps == 4 else 60
        return Resources(128 if warps == 8 else 32, warps, 0, instructions=issued, binary=warps)

    found = tried(outcome, gpu, **MOVED)
    own = predicted_us(found.record)
    times = {one.words: predicted_us(one.record) for one in found.neighbours if one.record}
    fastest = min(times, key=lambda words: times[words])
    chosen = best_of(found.record, found.neighbours)
    best = None if chosen is None else chosen.words
    least = found.record.prediction.noticeable
    assert best == (fastest if times[fastest] / own - 1 <= -least else None)


def test_equally_fast_neighbours_are_ranked_by_fewest_changes() -> None:
    """A second change has to gain more than 2%, and so has a larger one."""
    record = dataclasses.replace(tried(constant()).record, prediction=timed(20.0))
    both, block = {"BLOCK": 128, "num_warps": 8, "grid": (8,)}, {"BLOCK": 128, "grid": (8,)}
    for us, best in ((10.1, block), (10.3, both)):
        neighbours = [
            Neighbour(changes, dataclasses.replace(record, prediction=timed(time)))
            for changes, time in (({"num_warps": 8}, 19.9), (both, 10.0), (block, us))
        ]
        found = best_of(record, neighbours)
        assert found.changes == best
    steps = ({"BLOCK": 512}, {"BLOCK": 128})
    neighbours = [
        Neighbour(one, dataclasses.replace(record, prediction=timed(10.0))) for one in steps
    ]
    assert best_of(record, neighbours).changes == {"BLOCK": 128}


@pytest.mark.parametrize(
    ("blocks", "bound", "said"),
    [
        ({"BLOCK": 64}, "latency", ["No other size of BLOCK is compared, because none"]),
        ({"BLOCK": 64, "x": Descriptor(Pointer("float16", 64), (8,), (1,), (8,))}, "latency", [
            "Other blocks were not tried, because a tensor descriptor is made for these blocks."
        ]),
        ({"BLOCK": 63}, "latency", []),
        ({"BLOCK": 64}, "launch", []),
    ],
)  # fmt: skip
def test_blocks_that_were_not_tried_have_a_reason(
    blocks: dict[str, Any], bound: str, said: list[str]
) -> None:
    """If a launch has blocks but no others were tried, the page says why."""
    case = tried(constant())
    own = dataclasses.replace(
        case.record, arguments=blocks, tiles=("BLOCK",), prediction=timed(9.0, bound)
    )
    found = [*without_blocks(dataclasses.replace(case, record=own))]
    assert [one.startswith(start) for one, start in zip(found, said, strict=True)] == [True] * len(
        said
    )


GPUS = st.sampled_from(["h100", "mi300x"])
NUMBERS = st.tuples(st.integers(16, 255), st.sampled_from([0, 0, 8, 64]), st.integers(0, 60_000))


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.integers(0, 9), NUMBERS, min_size=10, max_size=10), GPUS)
def test_the_advice_is_what_the_table_shows(
    drawn: dict[int, tuple[int, int, int]], gpu: str
) -> None:
    """Without times, the named neighbour is the best of the table; if none is, the page says so."""

    def outcome(keywords: Mapping[str, Any], _target: Target) -> Resources:
        warps, stages = keywords.get("num_warps", 4), keywords.get("num_stages", 3)
        place = sum(map(ord, f"{warps} {stages} {keywords.get('maxnreg')}")) % 10
        registers, spilled, shared = drawn[place]
        return Resources(registers, warps, shared, local_bytes=spilled, binary=place)

    run = launched(outcome, gpu)
    (found,) = run.cases
    page = run.to_markdown()
    own = rank(found.record)
    shown = {
        one.words: rank(one.record) for one in found.neighbours if one.record and not one.reason
    }
    best = best_of(found.record, found.neighbours)
    if best is None:
        assert all(other <= own for other in shown.values())
        more = any(resident > own[1] for _, resident in shown.values())
        assert (": none of these keeps more" in page) == (bool(shown) and not more)
        assert ("resident spill more." in page) == more
        return
    spills, resident = shown[best.words]
    assert (spills, resident) == max(shown.values()) > own
    alike = [words for words, one in shown.items() if one == max(shown.values())]
    have = "has" if len(alike) == 1 else "have"
    assert f": {listed(alike)} {have} " in page
    assert ("B in local memory instead of" in page) == (spills > own[0])
    assert ("at an occupancy of" in page) == (resident < own[1])


def test_what_spills_more_is_not_called_faster() -> None:
    """A faster neighbour that adds local memory is shown but not recommended."""

    def outcome(keywords: Mapping[str, Any], _target: Target) -> Resources:
        warps = keywords.get("num_warps", 4)
        issued, spilled = (60, 64) if warps == 8 else (16_000 // warps, 0)
        taken = {"instructions": issued, "local_bytes": spilled, "binary": warps}
        return Resources(32, warps, 0, **taken)

    page = launched(outcome, "h200", **MOVED).to_markdown()
    assert ", 64 B in local memory" in page
    assert "without more local memory than now, which num_warps 8 takes." in page
    assert "num_warps 8 is predicted to be faster" not in page


def test_changes_that_do_not_compile_are_not_counted_as_tried() -> None:
    """Of a launch whose only other change fails to compile, the page names no hidden change."""

    def outcome(keywords: Mapping[str, Any], _target: Target) -> Resources | str:
        if "maxnreg" in keywords or keywords.get("num_warps", 4) != 4:
            return "it does not compile"
        return Resources(168, 4, 0, local_bytes=0, instructions=4000, binary=1)

    assert "compiled too" not in launched(outcome, "h200", **MOVED).to_markdown()


def test_a_faster_change_that_spills_is_explained_beside_the_best() -> None:
    """The page names the best change that spills no more, and says why a faster one is not it."""

    def outcome(keywords: Mapping[str, Any], _target: Target) -> Resources:
        warps = keywords.get("num_warps", 4)
        issued, spilled = {2: (60, 64), 8: (600, 0)}.get(warps, (16_000 // warps, 0))
        taken = {"instructions": issued, "local_bytes": spilled, "binary": warps}
        return Resources(32, warps, 0, **taken)

    page = " ".join(launched(outcome, "h200", **MOVED).to_markdown().split())
    assert "num_warps 8 instead of 4: " in page
    assert "num_warps 2 is predicted to be faster still, " in page
    assert " but uses more local memory than now" in page


def test_too_many_programs_come_before_a_change_that_starts_as_many() -> None:
    """What starting the programs takes is said first, and only once."""
    case = tried(constant(), **MOVED)
    slow, fast = timed(9.0, "dispatch"), timed(6.0, "dispatch")
    record = dataclasses.replace(case.record, prediction=slow)
    best = Neighbour({"num_warps": 2}, dataclasses.replace(case.record, prediction=fast))
    case = dataclasses.replace(case, record=record, neighbours=(best,))
    first, words = in_one_sentence(case), f"Starting {record.plan.num_programs} program"
    assert first.startswith(words)
    assert "Let each program do several pieces of the work. num_warps 2 instead of 4: " in first
    assert write_short((case,)).to_markdown().count(words) == 1


def test_a_block_by_position_is_changed_there() -> None:
    """A block passed by position is changed in its position, and options as keywords."""
    (asked,) = dry(launched_kernels.tiles, "h100", constant(), X, X, 64, 64, 16, BLOCK_N=16).asked
    other = changed(asked, {"BLOCK_M": 32, "num_warps": 8})
    assert other.launch.arguments == (*asked.launch.arguments[:4], 32)
    assert other.launch.keywords == {"BLOCK_N": 16, "num_warps": 8}
