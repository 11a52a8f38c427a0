"""From a launch and the texts of its kernel to what it does, or the reason why nobody knows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import BinaryError, TtirError
from occupancy_lab.work.counts import Counts, Executed  # noqa: TC001 - `from_line` reads the types
from occupancy_lab.workers.child import from_line, to_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from occupancy_lab.compiling.store import Store
    from occupancy_lab.compiling.texts import Texts
    from occupancy_lab.launch import BoundLaunch

COUNTERS = 10
"""Goes up whenever other numbers are counted of the same launch, so that older ones are not taken
from a store."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a launch does, or why that is not known."""

    counts: Counts | None = None
    why_not: str | None = None
    """None where there are counts."""
    executed: Executed | None = None
    """What its machine code executes; None where that is not known."""
    why_not_executed: str | None = None


def count_launch(  # noqa: PLR0913 - what counts depend on
    texts: Texts | None,
    run: BoundLaunch,
    grid: tuple[int, ...] | None,
    store: Store,
    *,
    assume: Mapping[str, int],
    resident: int | None,
) -> Counted:
    """Return what the launch *run* does, of whose kernel these are the *texts*, over *grid*.

    It is taken from *store*, or counted and kept there. *assume* has what is assumed of tensors and
    arguments, by the names of parameters; *resident* programs run at once, None where that is not
    known.
    """
    if texts is None:
        return Counted(why_not="its kernel's TTIR is not at hand")
    if grid is None:
        return Counted(why_not="no grid is given")
    unknown = run.launch.typical.keys() - run.constexprs
    known = {name: value for name, value in run.arguments.items() if name not in unknown}
    values = {name: held for name, held in run.launch.values.items() if name not in assume}
    key = {
        "counters": COUNTERS,
        "ttir": hashlib.sha256(texts.ttir.encode()).hexdigest(),
        "cubin": None if texts.cubin is None else hashlib.sha256(texts.cubin).hexdigest(),
        "arguments": repr(known),
        "values": hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest(),
        "grid": list(grid),
        "assume": dict(assume),
        "resident": resident,
    }
    kept = store.get_counted(key)
    if kept is not None:
        try:
            return from_line(Counted, kept)  # type: ignore[no-any-return] # it is one
        except ValueError:
            pass  # another hand was there
    found = _counted(texts.ttir, known, grid, values, assume=assume, resident=resident)
    if found.counts is not None:
        numbers = {name: value for name, value in assume.items() if name in unknown}
        found = _with_executed(found, texts, known | numbers, grid, values, resident=resident)
    store.put_counted(key, to_line(found))
    return found


def _counted(  # noqa: PLR0913 - as `count_launch`
    ttir: str,
    arguments: Mapping[str, Any],
    grid: tuple[int, ...],
    values: Mapping[str, Sequence[int]],
    *,
    assume: Mapping[str, int],
    resident: int | None,
) -> Counted:
    # Both need numpy, whose import takes a fifth of a page whose counts are kept.
    from occupancy_lab.work.ttir import read_ttir
    from occupancy_lab.work.walk import WorkError, count

    try:
        module = read_ttir(ttir)
        return Counted(
            count(module, arguments, grid, values=values, assume=assume, resident=resident)
        )
    except (TtirError, WorkError) as error:
        return Counted(why_not=str(error))
    except Exception as error:  # noqa: BLE001 - what is known without it is shown all the same
        return Counted(why_not=f"{type(error).__name__} in counting: {error}")


def _with_executed(  # noqa: PLR0913 - as `count_launch`
    found: Counted,
    texts: Texts,
    arguments: Mapping[str, Any],
    grid: tuple[int, ...],
    values: Mapping[str, Sequence[int]],
    *,
    resident: int | None,
) -> Counted:
    from occupancy_lab.work.executed import execute

    try:
        executed = execute(texts, arguments, grid, values=values, resident=resident)
        return replace(found, executed=executed)
    except BinaryError as error:
        return replace(found, why_not_executed=str(error))
    except Exception as error:  # noqa: BLE001 - what is known without it is shown all the same
        why = f"{type(error).__name__} in following its instructions: {error}"
        return replace(found, why_not_executed=why)
