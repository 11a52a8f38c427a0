"""What a driver says of one GPU, before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class DriverReport:
    """One GPU as its driver reports it."""

    index: int
    """Its place among the vendor's GPUs, in the driver's order."""
    name: str | None
    """The driver's name for it; None where the driver gives none (AMD's kernel driver)."""
    target_name: str
    """The architecture: sm_90, gfx942."""
    numbers: Mapping[str, int]
    """What was reported, by name; a number that the driver would not give is left out."""
    uuid: str | None = None
    """What tells this very device from others of its kind; None where the driver does not say."""
