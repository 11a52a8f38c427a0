"""What a formula is made of: rules, each the limit that one resource sets.

A rule's arithmetic is written once. Fed with whole numbers it explains one kernel; fed with numpy
arrays it works out a table of millions. Only `where` differs between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

UNLIMITED = 2**31 - 1
"""Programs where a resource sets no limit; NVIDIA's header uses the same number, INT_MAX."""


class Usage(Protocol):
    """What rules ask of a kernel: fields of Resources, each an int, an array of int64, or None."""

    @property
    def n_regs(self) -> Any:
        """Registers a thread."""

    @property
    def num_warps(self) -> Any:
        """Warps a program."""

    @property
    def shared(self) -> Any:
        """Dynamic shared memory, bytes."""

    @property
    def static_shared(self) -> Any:
        """Static shared memory, bytes."""

    @property
    def barriers(self) -> Any:
        """Named barriers."""

    @property
    def sgprs(self) -> Any:
        """Scalar registers a wave."""

    @property
    def allocated_vgprs(self) -> Any:
        """VGPRs that the kernel descriptor asks for."""


class Where(Protocol):
    """`numpy.where`, or its twin for single numbers."""

    def __call__(self, condition: Any, yes: Any, no: Any, /) -> Any:
        """Return *yes* where *condition* holds, else *no*."""


def scalar_where(condition: object, yes: int, no: int, /) -> int:
    """Return *yes* if *condition* holds, else *no*."""
    return yes if condition else no


def round_up(number: Any, unit: int) -> Any:
    """Return the smallest multiple of *unit* that is at least *number*."""
    return -(-number // unit) * unit


@dataclass(frozen=True, slots=True)
class Rule:
    """The limit that one resource sets on the programs of a multiprocessor.

    `work` takes a Usage, an architecture and a Where, and gives the named numbers on the way to
    the limit, the limit itself under "programs"; it is None where the rule does not apply.
    `steps` says the same in words: templates over those numbers, the architecture's and the
    usage's fields.
    """

    resource: str
    work: Callable[[Any, Any, Where], Mapping[str, Any] | None]
    steps: tuple[str, ...]
