"""A program that is run dry for several GPUs, with totals side by side."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from in_process import run

from occupancy_lab.checking.check import check
from occupancy_lab.tracing.dry import DryTraces, dry_traces

SCRIPT = """
import torch
import triton
import triton.language as tl


@triton.jit
def add(x, n, step, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, step):
        where = start + tl.arange(0, BLOCK)
        tl.store(x + where, tl.load(x + where) + 1)


if __name__ == "__main__":
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    x = torch.zeros(1 << 26, device="cuda")
    for _ in range(2):
        add[(programs,)](x, x.numel(), programs * 4096, BLOCK=4096)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> DryTraces:
    """Return the dry runs of a program whose grid depends on the GPU's size."""
    script = tmp_path_factory.mktemp("several") / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    return dry_traces((sys.executable, str(script)), gpu="h100,h200,rtx-pro-6000-server")


def rows(found: DryTraces, table: int) -> Sequence[Sequence[str]]:
    """Return the rows of a table of the page."""
    return found.to_document().sections[0].tables[table].rows


def test_each_gpu_is_asked_by_the_program_itself(found: DryTraces) -> None:
    """The grid follows each GPU's multiprocessors."""
    grids = {one.gpu.key: one.shown[0].main_grid for one in found.traces}
    assert grids == {"h100": (132,), "h200": (132,), "rtx-pro-6000-server": (188,)}
    assert list(found.table()["gpu"]) == ["h100", "h200", "rtx-pro-6000-server"]


def test_the_totals_are_side_by_side(found: DryTraces) -> None:
    """More bandwidth gives less time; the ratio is to the shortest total."""
    h100, h200, none = found.to_dict()["totals"]
    assert h200["predicted_total_us"] < h100["predicted_total_us"]
    for total in (h100, h200):
        low, us, high = (total[f"predicted_total_{name}us"] for name in ("low_", "", "high_"))
        assert low < us < high
        assert us > total["lost_us"] > 0
    assert (none["predicted_launches"], none["launches"]) == (0, 2)
    assert none["predicted_total_us"] is None
    ratio = h100["predicted_total_us"] / h200["predicted_total_us"]
    assert [row[-1] for row in rows(found, 0)] == [f"{ratio:.2f}", "1.00", "-"]
    assert [row[0] for row in rows(found, 1)] == ["add"]


def test_check_takes_the_rows_of_all_gpus(found: DryTraces, tmp_path: Path) -> None:
    """A condition applies to each GPU's row; an unknown time breaks it."""
    path = tmp_path / "trace.json"
    path.write_text(found.to_json(), encoding="utf-8")
    findings = check("lost_us < 1e9", str(path)).findings
    assert [(one.row.values["gpu"], one.kind) for one in findings] == [
        (found.traces[-1].gpu.key, "not known")
    ]


def test_a_gpu_without_times_is_named(found: DryTraces) -> None:
    """A GPU without times is not the fastest, and is named."""
    first, *others = found.to_document().answer
    assert first.endswith(" times as long on H100 SXM.")
    assert "are predicted on H200 SXM" in first
    assert others[-1] == "No time is predicted for RTX PRO 6000 Blackwell Server."
    said = found.to_document().sections[0].sentences
    assert (
        "RTX PRO 6000 Blackwell Server: No time is known for launches of add: no sum includes them."
        in said
    )


def test_what_brings_most_is_told_of_each_gpu_where_seconds_are_given(
    found: DryTraces, tmp_path: Path
) -> None:
    """Without seconds the page says how to get it."""
    (without,) = (one for one in found.to_document().sections[0].sentences if "brings" in one)
    assert without == "What brings most is shown for one GPU, or for each with `--actions SECONDS`."
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("programs,)", "33,)"), encoding="utf-8")
    path = tmp_path / "trace.json"
    words = ("trace", "--dry-run", "--gpu", "h100,h200", "--actions", "600", "--json")
    done = run(*words, "--output", str(path), "--", sys.executable, str(script))
    assert done.returncode == 0, done.stderr
    told = json.loads(path.read_text("utf-8"))
    actions = {row["gpu"]: row["action"] for row in told["rows"]}
    assert [*actions] == ["h100", "h200"]
    said = json.dumps(told["document"])
    for title, action in zip(("H100 SXM", "H200 SXM"), actions.values(), strict=True):
        assert f"**{title}**: What brings most: in add {action}, predicted to save" in said
    report = run("report", "--file", str(path)).stdout
    assert "trace --report for one GPU also writes" in " ".join(report.split())


def test_a_program_that_launches_nothing_says_so_once(tmp_path: Path) -> None:
    """There is no table of kernels, and the status is the program's."""
    script = tmp_path / "none.py"
    script.write_text("raise SystemExit(3)", encoding="utf-8")
    done = run("trace", "--dry-run", "--gpu", "h100,a100", "--", sys.executable, str(script))
    assert done.returncode == 3
    assert done.stdout.count("No Triton kernel was launched.") == 1
