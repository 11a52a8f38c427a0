"""The page of a kernel's source: the lines that cost most, marked, and all others."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launched_kernels
import pytest
from dry_lines import matmul
from hand_made import executed
from hand_made import matmul as matmul_counts

from occupancy_lab import dry_run, explain, tensor
from occupancy_lab.explaining.source import SourceView, SourceViews, lines_of
from occupancy_lab.text.document import html_page
from occupancy_lab.text.printing import print_answer
from occupancy_lab.work.counts import Amount, Counts

KERNEL = launched_kernels.matmul
FIRST = KERNEL.starting_line_number
LINES = {
    7: "for step in range(",
    8: "a = tl.load(a_ptrs",
    9: "b = tl.load(b_ptrs",
    10: "total = tl.dot(",
    11: "total = tl.where(",
    12: "tl.store(c_ptrs",
}
"""The start of the kernel's source line for each line number of the hand-made counts."""


def placed(file: str, source: list[str], first: int) -> Counts:
    """Return the counts of a matmul with the line numbers of *source*."""
    lines = {
        old: next(first + place for place, line in enumerate(source) if words in line)
        for old, words in LINES.items()
    }

    def moved(ones: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            dataclasses.replace(
                one, place=dataclasses.replace(one.place, file=file, line=lines[one.place.line])
            )
            for one in ones
        )

    counts = matmul_counts(4096, 128, 132)
    return dataclasses.replace(
        counts,
        accesses=moved(counts.accesses),
        arithmetic=moved(counts.arithmetic),
        loops=moved(counts.loops),
    )


def view(gpus: str = "h200,h100", counts: Counts | None = None) -> SourceView:
    """Return the page of the source of a matmul."""
    counts = counts or placed(str(launched_kernels.__file__), KERNEL.raw_src, FIRST)
    return matmul(gpus, counts=counts, grid=(512,)).source


def test_the_page_of_a_source(check_golden: Callable[[str, str], None]) -> None:
    """The dot of a large matmul comes first, then its loads; the page has every source line."""
    page = re.sub(r"^( *(?:#\d)? +)\d+( |$)", r"\1..\2", view().to_markdown(), flags=re.MULTILINE)
    check_golden("source_matmul.md", page)


def test_a_narrow_terminal_has_room_for_the_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns the source has fewer numbers beside it, and costly lines have theirs below."""
    monkeypatch.setenv("COLUMNS", "80")
    print_answer(view("h100"), "terminal")
    page = capsys.readouterr().out
    top, _, source = page.partition("The source")
    assert "FLOPs" in top
    assert "FLOPs" not in source
    (dot,) = (line.strip() for line in KERNEL.raw_src if "tl.dot(" in line)
    assert f"\n    {dot}" in top
    assert dot in source


def test_the_page_is_html_and_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    """A notebook and an HTML file have the listing, and JSON has each line's numbers."""
    found = view("h100")
    assert '<pre><code class="language-text">' in found._repr_html_()
    page = found.to_document()
    assert html_page(page.title, page.blocks()).startswith("<!doctype html>")
    print_answer(found, "html")
    assert "&lt; M) &amp; (col" in capsys.readouterr().out
    (dot,) = (one for one in json.loads(found.to_json())["lines"] if one["flops"] == 2 * 4096**3)
    assert (dot["gpu"], dot["read_bytes"]) == ("h100", 0)


def test_a_script_has_the_source_of_its_file(tmp_path: Path) -> None:
    """Without the function, the source is read from its file or from the script's folder."""
    text = "import triton\n\n\n" + "".join(KERNEL.raw_src)
    (tmp_path / "mine.py").write_text(text)
    for file, near in ((tmp_path / "mine.py", None), (tmp_path / "gone" / "mine.py", tmp_path)):
        counts = placed(str(file), KERNEL.raw_src, 4)
        found = dataclasses.replace(view("h100", counts), function=None, near=near)
        page = SourceViews("mine.py:main", (found,)).to_document().to_markdown()
        assert "    4 " in page
        assert KERNEL.raw_src[-1].rstrip() in page


@pytest.mark.parametrize("text", [None, "def matmul(:", "def other():\n    pass\n" * 60])
def test_a_source_that_is_gone_leaves_the_numbers(tmp_path: Path, text: str | None) -> None:
    """If the file is gone or has changed, the lines that cost most are shown by number."""
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    counts = placed(str(tmp_path / "mine.py"), KERNEL.raw_src, 4)
    page = dataclasses.replace(view("h100", counts), function=None).to_markdown()
    assert "The kernel's source is not in" in page
    assert "137 G" in page


def test_the_configuration_whose_source_is_shown_is_named() -> None:
    """Of several configurations, the page names the one that its numbers are of."""
    numbers = tensor((1 << 17,), "float32")
    found = explain(
        kernel=f"{launched_kernels.__file__}:scale_a_row",
        signature="*fp32,*fp32,4096",
        constexprs="BLOCK=4096,8192",
        grid=64,
        gpu="h100",
    )
    assert found.source.to_document().answer[0] == (
        "**H100 SXM**: of 2 configurations, BLOCK 4096 is shown, which is predicted to be the"
        " fastest."
    )
    lab = dry_run(launched_kernels.sum_to_one, "h100")
    alone = lab[(128,)](numbers, tensor((1,), "float32"), 1 << 17, BLOCK=1024)
    assert "is shown" not in alone.source.to_markdown()


def test_columns_that_are_left_out_are_named() -> None:
    """The page of a GPU whose machine code is not followed names the columns that it lacks."""
    page = explain(781, gpu="rx7900xtx").source.to_markdown()
    assert (
        "waves of 32 lanes are not followed. So the columns width, executed, live, spills and"
        " stalls are left out."
    ) in page
    assert "bytes are what programs ask for, from caches too" in page


def test_a_launch_that_is_not_counted() -> None:
    """The page of a launch whose work is not known says so."""
    page = matmul("h100", counts=None, grid=(512,)).source.to_markdown()
    assert "it is not known what the lines do: its kernel's TTIR is not at hand" in page


def test_an_atomic_operation_moves_its_bytes_once() -> None:
    """The bytes of an atomic add count as read and as written, but only once as moved."""
    numbers = tensor((1 << 17,), "float32")
    lab = dry_run(launched_kernels.sum_to_one, "h100")
    (record,) = lab[(128,)](numbers, tensor((1,), "float32"), 1 << 17, BLOCK=1024).records
    (line,) = (one for one in lines_of(record) if one.written.low)
    assert line.written.low == 128 * 4
    assert line.read.low == line.bytes.low == (1 << 17) * 4 + 128 * 4


def test_an_unknown_speed_of_light_is_left_out() -> None:
    """The page of an architecture, which has no rates, has the lines but no speed of light."""
    page = matmul("sm_90", counts=placed("mine.py", KERNEL.raw_src, 4), grid=(512,)).source
    assert "speed of light" not in page.to_markdown()
    assert "The lines that cost most" in page.to_markdown()


def test_lines_of_a_binary_have_widths_and_stalls() -> None:
    """If the binary was followed, the lines are ordered by stalls, and the page says so."""
    page = view("h100")
    (record,) = page.records
    run = executed([one.place for one in record.counts.accesses], 100)
    spilling = tuple(
        dataclasses.replace(one, local_bytes=Amount.of(3000), live=90 + place)
        for place, one in enumerate(run.lines)
    )
    run = dataclasses.replace(run, lines=spilling)
    found = dataclasses.replace(page, records=(dataclasses.replace(record, executed=run),))
    text = found.to_markdown()
    assert "The order is that of stalls" in text
    assert re.search(r"line +bytes +width +FLOPs +trips +executed +live +spills +stalls", text)
    most = spilling[-1].live
    assert f"the maximum is {most} of the {record.resources.n_regs} that a" in text
    assert re.search(r"#1 .* 3000 B +78% .*tl\.store\(c_ptrs", text)
    assert re.search(r" 16 B .*tl\.load\(a_ptrs", text)
    first = json.loads(found.to_json())["lines"][0]
    assert (first["local_bytes"], first["thread_bytes"]) == (3000, [])
