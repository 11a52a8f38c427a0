"""Reuse distances of local memory, against a simulated cache."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work.execution import DISTANCES, LocalReuse
from occupancy_lab.work.operations import ALWAYS, LDG, LDGSTS, LDL, STACK, STG, STL
from occupancy_lab.work.program import NEVER, local_reuse

EXIT = 0x14D


def touch(opcode: int, place: int) -> int:
    """Return a 4-byte load or store at a place of local memory, or in global memory."""
    return opcode | ALWAYS << 12 | STACK << 24 | 4 * place << 40 | 4 << 73


def code(
    words: list[int], loops: dict[int, set[int]], starts: tuple[int, ...] = (0,), moved: int = 4
) -> Any:
    """Return a kernel of such instructions, with blocks that begin at *starts*.

    Accesses to global memory move *moved* bytes per thread.
    """
    stops = [*starts[1:], len(words)]
    blocks = {
        start: SimpleNamespace(start=start, stop=stop)
        for start, stop in zip(starts, stops, strict=True)
    }
    decoder = SimpleNamespace(moved_bytes=lambda _: moved)
    return SimpleNamespace(words=words, blocks=blocks, loops=loops, decoder=decoder)


def played(touches: list[tuple[int, int]]) -> list[float]:
    """Return the distance between each access and the one before, by a list in LRU order."""
    latest: list[tuple[str, int]] = []
    found = []
    for number, (opcode, place) in enumerate(touches):
        key = ("local", place) if opcode in {LDL, STL} else ("new", number)
        if key in latest:
            found.append(4.0 * (len(latest) - latest.index(key)))
            latest.remove(key)
        else:
            found.append(NEVER)
        latest.append(key)
    return found


def loaded(way: list[tuple[int, int]]) -> list[float]:
    """Return the L1 reuse distances of loads, for a program that follows another one."""
    seen = [one for one in way if one[0] != STG]
    twice = list(zip(seen * 2, played(seen * 2), strict=True))[len(seen) :]
    return [distance for (opcode, _), distance in twice if opcode == LDL]


def stored(way: list[tuple[int, int]]) -> list[float]:
    """Return the longest distance from each store to the next store to the same place."""
    twice = list(zip(way * 2, played(way * 2), strict=True))
    found = []
    for number, (opcode, place) in enumerate(way):
        if opcode != STL:
            continue
        farthest = 0.0
        for (later, other), distance in twice[number + 1 :]:
            if other == place and later in {LDL, STL}:
                farthest = max(farthest, distance)
                if later == STL:
                    break
        found.append(farthest)
    return found


def alike(found: tuple[float, ...], all_: list[float]) -> bool:
    """Tell whether quantiles match a full distribution."""
    if not all_:
        return found == ()
    shares = (
        np.mean(np.array(found) <= one) - np.mean(np.array(all_) <= one) for one in {*found, *all_}
    )
    return len(found) == DISTANCES and all(abs(one) <= 1 / DISTANCES for one in shares)


TOUCHES = st.lists(st.tuples(st.sampled_from([LDL, STL, LDG, STG]), st.integers(0, 12)), min_size=1)


@given(TOUCHES)
def test_straight_code(touches: list[tuple[int, int]]) -> None:
    """The distances of straight code are those of a simulated cache."""
    words = [touch(*one) for one in touches]
    found = local_reuse(code(words, {}), {0: 1.0}, {})
    if any(opcode in {LDL, STL} for opcode, _ in touches):
        assert alike(found.loads, loaded(touches))
        assert alike(found.stored, stored(touches))


@given(TOUCHES, TOUCHES, st.integers(2, 9))
def test_a_loop(before: list[tuple[int, int]], inside: list[tuple[int, int]], passes: int) -> None:
    """The distances in a loop are those of its passes, however many there are."""
    words = [touch(*one) for one in (*before, *inside)]
    kernel = code(words, {len(before): {len(before)}}, (0, len(before)))
    found = local_reuse(kernel, {0: 1.0, len(before): passes}, {len(before): 1.0})
    way = [*before, *itertools.chain(*[inside] * passes)]
    if any(opcode in {LDL, STL} for opcode, _ in way):
        assert alike(found.loads, loaded(way))


@pytest.mark.parametrize(("moved", "distance"), [(4, 8.0), (8, 12.0), (16, 4.0)])
def test_narrow_copies_go_through_the_l1_cache(moved: int, distance: float) -> None:
    """Copies of 4 or 8 bytes per thread go through the L1 cache, and wider ones do not.

    Without this, half of the measured time of two products in float32 was missing that spill and
    make 64 such copies per thread.
    """
    words = [touch(STL, 0), touch(LDGSTS, 0), touch(LDL, 0)]
    assert local_reuse(code(words, {}, moved=moved), {0: 1.0}, {}).loads == (distance,) * DISTANCES


def test_blocks_that_are_not_executed_do_not_count() -> None:
    """Blocks that are never executed do not count; with only a frame, distances are uniform."""
    words = [touch(STL, 0), touch(LDL, 1), touch(LDL, 0)]
    found = local_reuse(code(words, {}, (0, 1, 2)), {0: 1.0, 1: 0.0, 2: 1.0}, {})
    assert found.loads == (4.0,) * DISTANCES
    assert local_reuse(code([EXIT], {}), {0: 1.0}, {}) == LocalReuse()
    assert LocalReuse.uniform(160).loads[0] == 5.0
    assert max(LocalReuse.uniform(160).loads) < 160 == max(LocalReuse.uniform(160).stored)


def test_narrow_stores_fetch_their_words() -> None:
    """A store of 16 bits also counts as fetched, and the share of such stores is known."""
    words = [touch(STL, 0), touch(STL, 1) & ~(7 << 73) | 2 << 73, touch(LDL, 0), touch(LDL, 1)]
    found = local_reuse(code(words, {}), {0: 1.0}, {})
    assert found.narrow == 0.5
    assert found.fetched == (8.0,) * DISTANCES
    assert found.stored == (8.0,) * DISTANCES


def test_conditional_stores_do_not_count() -> None:
    """A conditional store, which is rarely executed, does not touch its place."""
    seldom = touch(STL, 0) & ~(15 << 12)
    found = local_reuse(
        code([touch(STL, 0), touch(STL, 1), seldom, touch(LDL, 0)], {}), {0: 1.0}, {}
    )
    assert found.loads == (8.0,) * DISTANCES
    assert len(set(found.stored)) == 1
