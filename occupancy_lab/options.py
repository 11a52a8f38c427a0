"""The compiler options that a launch chooses; every list of them is derived from here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """An option of Triton's compiler."""

    name: str
    usual: tuple[int | None, ...] = ()
    """The values that need not be shown."""
    in_config: bool = False
    """Whether every Config has it, and the command line has an option for it."""
    in_binary: bool = False
    """Whether it changes a launch only through its binary, and through fields of Resources."""
    also_constexpr: bool = False
    """Whether a constexpr of its name also sets it."""
    caps_registers: bool = False
    """Whether it caps the registers of a thread."""


OPTIONS = (
    Option("num_warps", in_config=True, in_binary=True, also_constexpr=True),
    Option("num_stages", in_config=True, in_binary=True, also_constexpr=True),
    Option("num_ctas", usual=(1, None), in_binary=True, also_constexpr=True),
    Option("maxnreg", usual=(None,), in_binary=True, also_constexpr=True, caps_registers=True),
    Option("waves_per_eu", usual=(0, None), caps_registers=True),
)
"""In the order in which pages show them."""
NAMES = tuple(one.name for one in OPTIONS)
KNOBS = tuple(one.name for one in OPTIONS if one.in_config)
"""The options that every launch of the lab sets."""
CAPS = tuple(one.name for one in OPTIONS if one.caps_registers)
