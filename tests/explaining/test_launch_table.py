"""Launches side by side: the table of a sweep, a comparison and a ranking."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from stand_ins import GivenCompiler

from occupancy_lab.cli.options import VIEWED, chosen_view
from occupancy_lab.comparing.comparison import compare_launches
from occupancy_lab.errors import InputError
from occupancy_lab.explaining import dry_run, explanation
from occupancy_lab.explaining.dry_run import explain_launch
from occupancy_lab.explaining.variants import failed_sentences, named_reason
from occupancy_lab.sweeping.run import Swept, run
from occupancy_lab.text.document import to_markdown
from occupancy_lab.tuning.search import tune_launches
from occupancy_lab.values import Resources, Target

pytestmark = pytest.mark.usefixtures("given_times")

FILE = f"{__file__.rpartition('explaining')[0]}launched_kernels.py"
ADD = {"kernel": f"{FILE}:tuned_add", "signature": "x_ptr=*fp32,y_ptr=*fp32,n=1000000"}
MOVED = {"grid": "cdiv(n, BLOCK)", "bytes_read": "8 * n", "bytes_written": "4 * n"}
TRANSPOSE = {
    "kernel": f"{FILE}:transpose",
    "signature": "x_ptr=*fp16,y_ptr=*fp16,M=4096,N=i32",
    "constexprs": ["BLOCK=64"],
}


def outcome(keywords: Mapping[str, Any], target: Target) -> Resources | str:
    """Return the resources of a launch; nothing compiles with 16 warps."""
    warps = keywords.get("num_warps", 4)
    if warps == 16:
        return "no luck"
    found = Resources(8 * warps, warps, 4 * warps, local_bytes=0, instructions=90, binary=warps)
    found = found.replace(load_bytes=16, store_bytes=16, num_ctas=keywords.get("num_ctas", 1))
    return found if target.backend == "cuda" else found.replace(sgprs=20, agprs=0)


@pytest.fixture(autouse=True)
def _given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile nothing."""
    monkeypatch.setattr(dry_run, "Compiler", lambda *_, **__: GivenCompiler(outcome))


def sweep_launches(**asked: Any) -> Swept:
    """Return what a sweep prints for launches with the command line's arguments."""
    shown = {name: asked.pop(name, None) for name in VIEWED}
    given = {"form": None, "quiet": True, **asked}
    return run(*chosen_view(shown), launches=explain_launch, **given)


def test_a_sweep_of_launches(check_golden: Callable[[str, str], None]) -> None:
    """A sweep has a row for each combination of values and GPUs, and reasons for failures."""
    swept = sweep_launches(**TRANSPOSE, num_warps=[4, 8, 16], gpu="h100,mi300x", grid="64x32")
    assert swept.status == 0
    check_golden("launch_sweep.md", to_markdown(swept.shown))


def test_a_sweep_says_what_leaves_work_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The explanation's sentence on launches that do less work is below the table of a sweep."""
    monkeypatch.setattr(explanation, "less_work_sentences", lambda runs: [f"{len(runs)} do less."])
    asked: dict[str, Any] = {**TRANSPOSE, "num_warps": [4, 8], "gpu": "h100"}
    assert sweep_launches(**asked).shown[-1] == "2 do less."
    assert "do less" not in sweep_launches(**asked, form="csv").shown


def test_launches_compared(check_golden: Callable[[str, str], None]) -> None:
    """The golden file has the sections of `explain` with a column for each launch."""
    found = compare_launches(**TRANSPOSE, num_warps="4,8", gpu="h100,mi300x", grid="64x32")
    check_golden("launch_compare.md", found.to_markdown())
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_comparison_of_launches_that_do_not_fill_the_gpu() -> None:
    """The comparison says how many programs each launches, of those that could run at once."""
    page = compare_launches(**TRANSPOSE, num_warps="4,8", gpu="h100", grid="64x8").to_markdown()
    assert (
        "Occupancy limits neither: 512 of the 528 programs that could run at once are launched,"
        " against 512 of the 2112." in page
    )


def test_long_names_of_compared_launches_number_the_columns() -> None:
    """The page says which launch each number is, and its tables have the numbers as headers."""
    asked: dict[str, Any] = {**TRANSPOSE, "num_warps": "4,8", "num_stages": "2,3", "gpu": "h100"}
    found = compare_launches(**asked, grid="64x8").to_document()
    first, *_ = (said for said in found.answer if said.startswith("**1**"))
    assert first.startswith("**1** is num_warps 4, num_stages 2; **2** is num_warps 4, num_stages")
    assert {table.headers[1:] for table in found.tables} == {("1", "2", "3", "4")}


def test_long_names_of_settings_are_below_the_table_of_configurations() -> None:
    """A column of the values of many settings has a short header, which the page explains."""
    asked: dict[str, Any] = {**TRANSPOSE, "num_warps": "4,8", "num_stages": "1,2", "gpu": "h100"}
    (table, *_), answer = (page := explain_launch(**asked).to_document()).tables, page.answer
    assert table.headers[0] == "num_warps, num_stages"
    more = explain_launch(**{**asked, "constexprs": ["BLOCK=32,64"]}).to_document()
    assert more.tables[0].headers[0] == "configuration"
    assert more.tables[0].rows[0][0] == "32 4 1"
    assert "A configuration is BLOCK, num_warps, num_stages." in more.answer
    assert not [said for said in answer if said.startswith("A configuration is")]


def test_a_failure_does_not_make_triton_differ() -> None:
    """A launch that does not compile differs only in its settings; other facts stay."""
    page = compare_launches(**TRANSPOSE, num_warps="4,8,16", gpu="h100").to_markdown()
    assert "| num_warps" in page
    assert "| registers" in page
    assert "num_warps 16: no luck" in page
    assert "Triton 3" not in page.partition("| the launch")[0]


def test_launches_ranked(check_golden: Callable[[str, str], None]) -> None:
    """The golden file has each GPU's launches by predicted time, with ties."""
    found = tune_launches(**ADD, **MOVED, gpu="h100,mi300x")
    check_golden("launch_tune.md", found.to_document(2).to_markdown())
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_table_of_clusters_speaks_of_ctas() -> None:
    """A table counts CTAs for a launch of clusters, beside programs for another launch."""
    asked: dict[str, Any] = {**TRANSPOSE, "grid": "64x32", "gpu": "h200"}
    table = explain_launch(**asked, options="num_ctas=1,2").to_markdown()
    assert "16 (100%)" in table
    assert "16 CTAs (100%)" in table


def test_a_ranking_says_what_it_lacks() -> None:
    """A launch that does not compile is counted among those without a time."""
    asked = {**TRANSPOSE, "num_warps": "2,4,8,16", "grid": "64x32"}
    found = tune_launches(**asked, bytes_read="16MiB", bytes_written="16MiB", gpu="h100")
    page = found.to_document(1).to_markdown()
    assert "1 configuration did not compile: no luck." in page
    assert "These are 1 of 3; `--top` shows more." in page
    assert len([line for line in page.splitlines() if line.startswith("| ")]) == 2


def test_failures_are_grouped_by_status() -> None:
    """Each status has one sentence with the number of configurations and the first reasons."""
    failures = [("does not fit", f"it needs {number} B") for number in range(5)]
    assert [*failed_sentences([*failures, ("timed out", "2 s")])] == [
        (
            "5 configurations do not fit: it needs 0 B; it needs 1 B; it needs 2 B;"
            " 2 further reasons in `--json`."
        ),
        "1 configuration timed out: 2 s.",
    ]


def test_configurations_that_do_not_fit_are_named() -> None:
    """The sentence has what a GPU gives once, and what each configuration needs by its name."""
    reasons = [f"it gives 101376 B, and this one needs {number} B" for number in (7, 9)]
    named = map(named_reason, reasons, ("BM 64, BN 128", "BM 64, BN 256"))
    (said,) = failed_sentences(("does not fit", one) for one in named)
    assert said == (
        "2 configurations do not fit: it gives 101376 B, and BM 64, BN 128 needs 7 B; BM 64, BN 256"
        " needs 9 B."
    )
    assert named_reason(reasons[0], "") == reasons[0]


def test_a_launch_without_counts_is_not_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message asks for the grid and not for bytes, which would not give a time."""
    looped = Resources(32, 4, 0, instructions=90, loop_instructions=70)
    monkeypatch.setattr(dry_run, "Compiler", lambda *_, **__: GivenCompiler(lambda *_: looped))
    with pytest.raises(InputError, match="as no --grid is given; `sweep` lists"):
        tune_launches(**TRANSPOSE, gpu="h100")
