"""The formula gives the recorded numbers of a real driver."""

from pathlib import Path

import pytest
from record_files import read_table

from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy import occupancy
from occupancy_lab.values import Resources

DATA = Path(__file__).parent.parent.parent / "reports" / "data"
FILES = sorted(DATA.glob("driver-*.csv"))
ALL = [*FILES, *sorted(DATA.glob("launches-*.csv")), *sorted(DATA.glob("scan-*.csv"))]


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_formula_gives_the_drivers_programs(path: Path) -> None:
    """For every recorded kernel the formula gives cuOccupancyMaxActiveBlocksPerMultiprocessor."""
    recorded = [row for row in read_table(path) if row["driver_n_regs"]]
    assert len(recorded) > 500
    for row in recorded:
        resources = Resources(
            n_regs=int(row["driver_n_regs"]),
            num_warps=int(row["num_warps"]),
            shared=int(row["shared"]),
            static_shared=int(row["driver_static_shared"]),
        )
        held = occupancy(resources, find_gpu(row.get("target", "sm_90")).architecture)
        assert held.programs_per_multiprocessor == int(row["driver_programs_per_multiprocessor"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_binary_said_what_the_driver_said(path: Path) -> None:
    """Registers and local memory read from the binary equal those of the loaded kernel."""
    for row in read_table(path):
        assert row["n_regs"] == row["driver_n_regs"]
        assert row["local_bytes"] == row["driver_local_bytes"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cooperative_launches_ended_where_predicted(path: Path) -> None:
    """Each cooperative launch was accepted with the predicted programs, refused with one more."""
    tried = [row for row in read_table(path) if row["accepted"]]
    assert len(tried) > 100
    assert {(row["accepted"], row["accepted_one_more"]) for row in tried} == {("True", "False")}
