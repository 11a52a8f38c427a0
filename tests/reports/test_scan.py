"""The recorded scan of public kernels equals the driver's numbers."""

from pathlib import Path

from record_files import read_table

DATA = Path(__file__).parents[2] / "reports" / "data" / "scan-h200.csv"
HELD = ("n_regs", "local_bytes", "static_shared", "programs_per_multiprocessor")


def test_every_row_is_what_the_driver_says() -> None:
    """Registers, local and static memory and programs of each fitting kernel equal the driver's."""
    fitting = [row for row in read_table(DATA) if row["status"] == "ok"]
    assert len(fitting) > 1800
    assert {row["origin"].split()[0] for row in fitting} == {
        *("fla-core", "liger-kernel", "torch", "triton")
    }
    for row in fitting:
        assert [row[name] for name in HELD] == [row[f"driver_{name}"] for name in HELD], row


def test_the_documents_figures_are_those_recorded() -> None:
    """docs/scan.md has the number of compared kernels and of their names."""
    rows = read_table(DATA)
    fitting = [row for row in rows if row["status"] == "ok"]
    text = " ".join((DATA.parents[2] / "docs" / "scan.md").read_text(encoding="utf-8").split())
    names = len({row["kernel"] for row in fitting})
    assert f"{len(fitting)} of {len(fitting)} kernels with {names} different names" in text
