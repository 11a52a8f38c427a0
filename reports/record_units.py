"""Measures the units of the GPU at hand and writes the results.

`python reports/record_units.py OUT.json` prints each value with its unit and its meaning, and
writes all of them with the GPU's name, the date and the versions. `--only l2_cycles,products`
measures only those.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import time
from importlib.metadata import version
from pathlib import Path

from occupancy_lab.calibrating.units import MEASURES, measure_units
from occupancy_lab.text.document import to_markdown


def main() -> None:
    """Measure, print and write."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--only", help="names, with commas between them")
    asked = parser.parse_args()

    def said(name: str, value: object) -> None:
        if isinstance(value, Exception):
            print(f"{name}: {type(value).__name__}: {value}")

    start = time.monotonic()
    units = measure_units(asked.only.split(",") if asked.only else tuple(MEASURES), said)
    seconds = time.monotonic() - start
    where = {
        "device": torch.cuda.get_device_name(),
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "torch": version("torch"),
        "triton": version("triton"),
        "seconds": round(seconds, 1),
    }
    text = json.dumps({**where, "units": dataclasses.asdict(units)}, indent=1)
    asked.output.write_text(text + "\n", encoding="utf-8")
    print(to_markdown(units.to_section().blocks()))
    print(f"{where['device']}: {seconds:.0f} s, compiles included")


if __name__ == "__main__":
    main()
