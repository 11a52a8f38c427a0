"""The recorded comparison of a trace with the profiler."""

from pathlib import Path

from record_files import read_table


def recorded(name: str) -> tuple[list[dict[str, str]], list[float]]:
    """Return the rows of a recorded file, and the errors of the times above 10 us."""
    root = Path(__file__).parents[2]
    rows = read_table(root / "reports" / "data" / name)
    return rows, [
        float(row["off"]) for row in rows if row["off"] and float(row["profiled_us"]) > 10
    ]


def test_the_documents_figures_are_those_recorded() -> None:
    """docs/trace.md has the number of kernels whose counts and times agree with the profiler."""
    path = Path(__file__).parents[2] / "docs" / "trace.md"
    text = " ".join(path.read_text(encoding="utf-8").split())
    rows, off = recorded("trace-h200.csv")
    equal = sum(row["counts_equal"] == "True" for row in rows)
    close = sum(abs(one) <= 0.05 for one in off)
    assert f"Launch counts equal the profiler's for {equal} of {len(rows)} kernels" in text
    assert f"within 5% of the profiler's for {close} of the {len(off)} kernels" in text
    assert f"the largest difference is {max(map(abs, off)):.0%}." in text
    rows, off = recorded("trace-ranks-h200.csv")
    equal = sum(row["counts_equal"] == "True" and row["rank"] == row["device"] for row in rows)
    close = sum(abs(one) <= 0.02 for one in off)
    assert f"profiler's for {equal} of {len(rows)} kernels, each process on its own GPU" in text
    assert f"Times are within 2% for {close} of them" in text
    assert f"is {max(map(abs, off)):.0%} short" in text
