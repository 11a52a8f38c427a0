"""A sweep as the command makes it, and as a screen shows it."""

from typing import Any

import pandas as pd

from occupancy_lab.cli.options import VIEWED, chosen_view
from occupancy_lab.sweeping.run import Swept, run, to_screen
from occupancy_lab.text.document import to_markdown


def run_sweep(**asked: Any) -> Swept:
    """Return the output of a sweep with the options *asked*."""
    options = {**dict.fromkeys((*VIEWED, "form", "plot")), "quiet": True, **asked}
    return run(*chosen_view(options), **options)


def on_screen(table: pd.DataFrame) -> str:
    """Return *table* as a screen shows it, in markdown."""
    return to_markdown(to_screen(table))
