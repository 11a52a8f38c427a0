"""The recorded scan of public kernels equals the driver's numbers."""

import csv
from pathlib import Path

from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy import occupancy
from occupancy_lab.values import Resources

DATA = Path(__file__).parents[2] / "reports" / "data" / "scan-h200.csv"
HELD = ("n_regs", "local_bytes", "static_shared", "programs_per_multiprocessor")


def recorded() -> list[dict[str, str]]:
    """Return the rows."""
    with DATA.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_row_is_what_the_driver_says() -> None:
    """Registers, local and static memory and programs of each fitting kernel equal the driver's."""
    fitting = [row for row in recorded() if row["status"] == "ok"]
    assert len(fitting) > 1800
    assert {row["origin"].split()[0] for row in fitting} == {
        *("fla-core", "liger-kernel", "torch", "triton")
    }
    for row in fitting:
        assert [row[name] for name in HELD] == [row[f"driver_{name}"] for name in HELD], row


def test_the_formula_still_gives_the_drivers_programs() -> None:
    """Programs per SM calculated from each row's resources equal the driver's."""
    architecture = find_gpu("h200").architecture
    fields = ("n_regs", "num_warps", "shared", "static_shared", "num_ctas")
    for row in recorded():
        if row["n_regs"]:
            taken = Resources(**{name: int(row[name]) for name in fields})
            programs = occupancy(taken, architecture).programs_per_multiprocessor
            assert programs == int(row["driver_programs_per_multiprocessor"] or 0), row


def test_the_documents_figures_are_those_recorded() -> None:
    """docs/scan.md has the number of compared kernels and of their names."""
    rows = recorded()
    fitting = [row for row in rows if row["status"] == "ok"]
    text = " ".join((DATA.parents[2] / "docs" / "scan.md").read_text(encoding="utf-8").split())
    names = len({row["kernel"] for row in fitting})
    assert f"{len(fitting)} of {len(fitting)} kernels with {names} different names" in text
