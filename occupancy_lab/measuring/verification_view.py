"""The checks of `verify` as a table: a section for each configuration, a line for each check."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from occupancy_lab.text.document import Section, Table, literal
from occupancy_lab.text.words import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from occupancy_lab.measuring.checks import Check
    from occupancy_lab.values import Config

HEADERS = ("", "predicted", "found", "asked", "")


def verification_table(checks: Iterable[Check]) -> str:
    """Return *checks* in markdown, with a last sentence on how many differ, and a newline."""
    checks = tuple(checks)
    groups = itertools.groupby(checks, lambda check: check.config)
    sections = [_section(config, group).to_markdown() for config, group in groups]
    return "\n\n".join([*sections, _sentence(checks)]) + "\n"


def _section(config: Config, checks: Iterable[Check]) -> Section:
    title = (
        f"BLOCK_SIZE {config.block_size}, num_warps {config.num_warps},"
        f" num_stages {config.num_stages}"
    )
    rows = tuple(
        (check.what, _shown(check.predicted), _shown(check.found), check.source, _verdict(check))
        for check in checks
    )
    return Section(title, (Table(HEADERS, rows, prose=True),))


def _shown(value: float | str | None) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _verdict(check: Check) -> str:
    if check.agrees is None:
        return f"not checked: {literal(str(check.reason))}"
    return "agrees" if check.agrees else "**DIFFERS**"


def _sentence(checks: tuple[Check, ...]) -> str:
    differ = sum(check.agrees is False for check in checks)
    unchecked = sum(check.agrees is None for check in checks)
    return (
        f"{count(len(checks), 'check')}, {differ} {'differs' if differ == 1 else 'differ'},"
        f" {unchecked} not checked."
    )
