"""Measures what the units of the GPU at hand do, and writes it down.

`python reports/record_units.py OUT.json` prints each value with its unit and what it means, and
writes all of them, with the GPU's name, the date and the versions. `--only l2_cycles,products`
measures those alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import time
from importlib.metadata import version
from pathlib import Path

from occupancy_lab.calibrating.units import MEASURES, Product, Ramp, Units, measure_units

FIELDS = {field.name: field.metadata for field in dataclasses.fields(Units)}


def words(value: object) -> str:
    """Return a value of `Units` for a person."""
    match value:
        case float():
            return f"{value:.5g}"
        case Ramp():
            return f"\n    {value.us:8.3f} us of {value.bytes >> 20} MiB"
        case Product():
            tile = f"{value.dtype} {value.m} x {value.n}, {value.num_warps} warps"
            return f"\n    {value.tflops or 0:8.1f} at {value.mhz or 0:.0f} MHz, {tile}"
        case tuple():
            return "".join(map(words, value))
        case Exception():
            return f"not measured: {type(value).__name__}: {value}"
    return str(value)


def say(name: str, value: object) -> None:
    """Print one line of the table."""
    unit, meaning = FIELDS[name]["unit"], FIELDS[name]["meaning"]
    print(f"{name:20} {unit:13} {meaning}: {words(value)}", flush=True)


def main() -> None:
    """Measure, print and write."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--only", help="names, with commas between them")
    asked = parser.parse_args()
    start = time.monotonic()
    units = measure_units(asked.only.split(",") if asked.only else tuple(MEASURES), say)
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
    print(f"{where['device']}: {seconds:.0f} s, compiles included")


if __name__ == "__main__":
    main()
