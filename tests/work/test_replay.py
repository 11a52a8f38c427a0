"""The replay of a warp: waits, overlap, and skipped passes of loops."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest
from compare_work import executed_of
from recorded_work import RecordedLaunch, recorded_launches

from occupancy_lab.gpus import architectures
from occupancy_lab.work import fetches, operations, replay
from occupancy_lab.work.counts import Amount, Place
from occupancy_lab.work.execution import CACHED_CYCLES, LATENCIES, GlobalAccess
from occupancy_lab.work.pipes import pipe_of
from occupancy_lab.work.replay import Replay
from occupancy_lab.work.slices import BRA, EXIT, read_code
from occupancy_lab.work.waits import DEPBAR, LDGDEPBAR

HOPPER = architectures()["sm_90"]
NONE = 7
MUFU = 0x108
ALWAYS = 7 << 12
MHZ = 1980


def word(
    opcode: int, *, stall: int = 1, result: int = NONE, operands: int = NONE, waits: int = 0
) -> int:
    """Return an instruction with a true guard and the given control bits."""
    control = stall | result << 5 | operands << 8 | waits << 11
    return opcode | ALWAYS | control << 105


def code_of(*words: int) -> Any:
    """Return the basic blocks of instructions followed by an EXIT."""
    end = word(EXIT | 0x800, stall=5) | 7 << 87
    data = b"".join(one.to_bytes(16, "little") for one in (*words, end))
    return read_code(data, 90)


def replay_of(
    code: Any,
    passes: float = 1.0,
    *,
    accesses: Mapping[int, GlobalAccess] = MappingProxyType({}),
    num_warps: int = 4,
) -> Replay:
    """Return the replay of a program that executes each loop *passes* times, and all else once."""
    executions = {start: passes if start in code.loops else 1.0 for start in code.blocks}
    entered = dict.fromkeys(code.loops, 1.0)
    pipes = {number: pipe_of(one, HOPPER) for number, one in enumerate(code.words)}
    known: dict[str, Any] = {"num_warps": num_warps, "architecture": HOPPER}
    return Replay(code, executions, entered, pipes, {}, accesses, **known)


def replayed(
    *words: int,
    num_warps: int = 4,
    latency: float = 500.0,
    accesses: Mapping[int, GlobalAccess] = MappingProxyType({}),
    local: float = CACHED_CYCLES,
    line: float = 0.0,
) -> float:
    """Return the cycles of a program that executes each instruction once.

    *line* is the time to fetch the next 128 bytes of its code.
    """
    found = replay_of(code_of(*words), accesses=accesses, num_warps=num_warps)
    return found.cycles(latency, local=local, code=line)


def access(*, cached: float = 0.0, asking: float = 1.0) -> GlobalAccess:
    """Return an access with the given L1 hit rate and share of executions that load anything."""
    amounts = [Amount.of(1)] * 6
    known = {"is_known": True, "cached": cached, "asking": asking}
    return GlobalAccess(Place("kernel.py", 1), 0, "load", "x", 4, *amounts, **known)


LOAD = word(operations.LDG | 0x200, result=0)
USE = word(0x221, stall=4, waits=1)
FREE = word(0x221, stall=4)
FAST = word(0x221, stall=1)


def looped(before: Sequence[int], body: Sequence[int], guard: int = 0) -> Any:
    """Return the basic blocks of *before* followed by a loop of *body*, left where P*guard* fails.

    With a guard of 7 it is never left.
    """
    back = word(BRA | 0x800, stall=5) & ~(7 << 12) | guard << 12 | 7 << 87
    distance = -(len(body) + 1) * 16
    jump = back | (distance // 4 & 0xFF) << 16 | (distance // 4 >> 8 & (1 << 48) - 1) << 34
    return code_of(*before, *body, jump & (1 << 128) - 1)


def pass_cycles(before: int, inside: int) -> float:
    """Return the cycles per pass of a loop of *inside* instructions behind *before* others."""
    code = looped([FAST] * before, [FAST] * inside)
    few, many = (replay_of(code, passes).cycles(500.0) for passes in (20.0, 40.0))
    return (many - few) / 20


def test_a_load_is_waited_for_where_it_is_used() -> None:
    """Only the instruction that waits for a load's scoreboard is delayed by its latency."""
    assert replayed(LOAD, USE) > 500
    assert replayed(LOAD, FREE, FREE, USE) == pytest.approx(replayed(LOAD, USE), abs=3)


def test_loads_in_flight_overlap() -> None:
    """Two loads in flight cost one latency; two dependent loads cost two."""
    together, apart = replayed(LOAD, LOAD, USE), replayed(LOAD, USE, LOAD, USE)
    assert together < 520
    assert apart > 1000


def test_a_fence_for_the_gpu_waits_for_memory() -> None:
    """A fence takes as long as memory, after the loads before it; one for the program does not."""
    load = word(operations.LDG, result=0, stall=2)
    fence = word(operations.MEMBAR, stall=2) | operations.GPU_SCOPE << operations.SCOPE_BIT
    without, found = (replayed(load, *more, latency=500) for more in ((), (fence,)))
    assert found == pytest.approx(without + 500, abs=10)
    assert replayed(load, word(operations.MEMBAR, stall=2), latency=500) < without + 10


def test_a_jump_to_itself_ends_the_program() -> None:
    """What a failed assertion ends with is replayed once, and what is before it still counts."""
    found = replay_of(looped([LOAD, USE], [], guard=7))
    assert found.cycles(1500.0) - found.cycles(500.0) > 900


def test_local_memory_has_a_latency_of_its_own() -> None:
    """A load of a spilled register waits for local memory; other loads do not."""
    spilled = word(operations.LDL | 0x200, result=0)
    near, far = (replayed(spilled, USE, local=cycles) for cycles in (40.0, 340.0))
    assert far - near == pytest.approx(300)
    assert replayed(LOAD, USE, local=340.0) == replayed(LOAD, USE, local=40.0)


def test_code_is_waited_for_where_it_is_executed_faster_than_it_comes() -> None:
    """Code that runs faster than it is fetched takes the time of fetching."""
    fast, slow = (word(0x221, stall=stall) for stall in (1, 4))
    assert replayed(*[fast] * 64, line=18.0) - replayed(*[fast] * 64) == pytest.approx(80, abs=12)
    assert replayed(*[slow] * 64, line=18.0) == replayed(*[slow] * 64)


@pytest.mark.parametrize(
    ("kib", "cycles"), [(16, 8.4), (28, 8.2), (36, 17.8), (48, 22.5), (112, 22.4), (160, 48.2)]
)
def test_evicted_code_takes_the_measured_time(kib: int, cycles: float) -> None:
    """A line of repeatedly executed code takes the time measured on an H200, by the code's size."""
    lines = kib * 1024 // fetches.CODE_BYTES
    assert pass_cycles(0, 8 * lines - 1) / lines == pytest.approx(cycles, rel=0.22)


@pytest.mark.parametrize(
    ("kib", "us", "cold_us"),
    [(64, 5.6, 5.7), (96, 8.5, 8.5), (160, 23.1, 44.9), (192, 29.1, 58.2), (256, 41.2, 85.4)],
)
def test_straight_code_takes_the_measured_time(kib: int, us: float, cold_us: float) -> None:
    """Straight code takes the time measured on an H200, also with an empty L2 cache."""
    found = replay_of(code_of(*[FAST] * (kib * 1024 // 16)))
    cycles = found.cycles(500.0)
    assert cycles / MHZ == pytest.approx(us, rel=0.08)
    assert (cycles + found.fetches.memory_cycles) / MHZ == pytest.approx(cold_us, rel=0.08)


def test_only_a_loops_own_size_evicts_its_code() -> None:
    """A small loop does not wait for code, whatever is executed once before it."""
    assert pass_cycles(16_000, 800) == pytest.approx(pass_cycles(0, 800), rel=0.01)
    assert pass_cycles(0, 4_000) > 2.5 * 4_000


def test_time_without_fetching_code_again() -> None:
    """The time of large code without fetching it again can be computed."""
    made = replay_of(code_of(*[FAST] * 4_000))
    assert made.loses_code
    assert made.cycles(500.0, refetches=False) == pytest.approx(4_000, rel=0.01)
    assert made.cycles(500.0) > 2.5 * 4_000


def test_a_special_function_is_there_sooner_than_a_shuffle() -> None:
    """An exponential takes about 20 cycles, which is less than a shuffle."""
    special, shuffle = (
        replayed(word(opcode, result=0), USE) - replayed(FREE, FREE)
        for opcode in (MUFU, operations.SHFL)
    )
    assert 14 < special < 22
    assert special < shuffle


def test_l1_hits_are_fast() -> None:
    """A load that hits in L1 takes 10% of the latency of memory; other hit rates interpolate."""
    alone = replayed()
    whole, half, none = (
        replayed(LOAD, USE, accesses={0: access(cached=share)}) for share in (1.0, 0.5, 0.0)
    )
    assert whole - alone < 0.1 * (none - alone)
    assert half == pytest.approx((whole + none) / 2)


def test_l1_hits_do_not_overtake_misses() -> None:
    """An L1 hit returns after an earlier miss, one pass of all warps later."""
    first = replayed(LOAD, USE)
    other, cached = word(operations.LDG | 0x200, result=1), {1: access(cached=1.0)}
    behind = replayed(LOAD, other, USE, accesses=cached)
    waiting = word(0x221, stall=4, waits=2)
    both = replayed(LOAD, other, waiting, accesses=cached)
    assert behind == pytest.approx(first, abs=6)
    assert both == pytest.approx(first + 4, abs=2)


def test_masked_loads_are_not_waited_for() -> None:
    """A load that no thread makes takes no time; other shares interpolate.

    A copy always takes the latency, because it fills what it does not copy with zeros.
    """
    copy, wait = word(operations.LDGSTS), word(DEPBAR | 0x800) | 1 << 47
    for some in ((LOAD, USE), (copy, word(LDGDEPBAR), wait)):
        none, half, whole = (
            replayed(*some, accesses={0: access(asking=share)}) for share in (0.0, 0.5, 1.0)
        )
        assert half == pytest.approx((none + whole) / 2, abs=3)
        assert whole - none == pytest.approx(500 if some[0] == LOAD else 0, abs=4)


def test_transfers_delay_loads() -> None:
    """The transfer of 128 bytes delays a load, unless other work hides it."""
    code = code_of(LOAD, USE)
    busy = code_of(LOAD, *(FREE for _ in range(300)), USE)
    for one, waits in ((code, True), (busy, False)):
        replay = replay_of(one)
        assert replay.loaded == 4
        longer = replay.cycles(500.0, 8.0) - replay.cycles(500.0)
        assert longer == pytest.approx(8.0 * replay.loaded if waits else 0.0)


def test_more_warps_share_the_schedulers() -> None:
    """With eight warps a scheduler issues two of them in turn."""
    many = [FAST] * 200
    assert replayed(*many, num_warps=8) == pytest.approx(2 * replayed(*many), rel=0.05)


def test_groups_of_copies_are_waited_for_in_order() -> None:
    """DEPBAR.LE SB0, 1 waits for all groups but the last."""
    copy, end = word(operations.LDGSTS | 0x200), word(LDGDEPBAR, result=0)
    wait = [word(DEPBAR, stall=4) | 1 << 47 | left << 38 for left in (0, 1)]
    both, then = [copy, end, *[FREE] * 50, copy, end], [FREE] * 150
    all_there, first = (replayed(*both, one, *then) for one in wait)
    assert all_there - first == pytest.approx(200, abs=20)


@pytest.mark.parametrize(
    ("ahead", "groups", "within"),
    [(0, 1, 0.01), (1, 1, 0.01), (2, 1, 0.03), (3, 1, 0.01), (4, 1, 0.01), (3, 4, 0.01)],
)
def test_skipped_passes_take_as_long(
    monkeypatch: pytest.MonkeyPatch, ahead: int, groups: int, within: float
) -> None:
    """A loop takes as long with skipped passes, however far ahead it prefetches.

    The tolerance is for partial waits at the skipped passes.
    """
    copies = [word(operations.LDGSTS | 0x200), word(LDGDEPBAR, result=0)] * groups
    wait = word(DEPBAR, stall=4) | 1 << 47 | max(ahead - 1, 0) * groups << 38
    before = copies * ahead
    body = [wait, *[FREE] * 20, *copies] if ahead else [LOAD, FREE, USE]
    code = looped(before, body)
    (header,) = code.loops
    assert code.loops == {header: {header}}
    short = replay_of(code, 60.0).cycles(500.0)
    assert short < 60 * 600 / max(ahead, 1) + 1200
    monkeypatch.setattr(replay, "SETTLED", 10**9)
    assert short == pytest.approx(replay_of(code, 60.0).cycles(500.0), rel=within)


def some_launches() -> list[RecordedLaunch]:
    """Return a launch of every twelfth recorded kernel."""
    by_kernel = {one.kernel: one for one in recorded_launches() if one.row["num_ctas"] == "1"}
    return [one for _, one in sorted(by_kernel.items())][::12]


@pytest.mark.slow
@pytest.mark.parametrize("launch", some_launches(), ids=lambda one: one.kernel)
def test_no_program_is_faster_for_slower_memory(launch: RecordedLaunch) -> None:
    """A program's time grows with the latency of memory."""
    executed = executed_of(launch)
    if executed is None or executed.program is None:
        pytest.skip("what it executes is not known")
    alone = executed.program.alone
    assert list(alone) == sorted(alone)
    assert alone[0] > LATENCIES[0] / 10
