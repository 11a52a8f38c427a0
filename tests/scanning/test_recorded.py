"""What a cache entry shows of its launch: only what is certain."""

import json
import time
from pathlib import Path

import pytest

from occupancy_lab.scanning.recorded import forget_sources, read_recorded, read_tuned

SOURCE = """\
import triton.language as tl


def kernel(X, N, BLOCK: tl.constexpr, OTHER: tl.constexpr, SIZE):
    rows = tl.arange(0, BLOCK)
    cols = tl.arange(0, SIZE)
    OTHER = 2 * OTHER
    more = tl.arange(0, OTHER)
    part = tl.arange(0, BLOCK // 2)
"""
LATER = time.time() + 1e6


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a file with a kernel."""
    forget_sources()
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def text(source: Path, line: int, column: int, first: int = 0, end: int = 64) -> str:
    """Return the compiler's text of a range at a place; columns begin at *first*."""
    return (
        f'#loc = loc("{source}":4:{first})\n'
        "  tt.func public @kernel(%X: !tt.ptr<f32>) {\n"
        f"    %a = tt.make_range {{end = {end} : i32, start = 0 : i32}} : tensor<xi32> loc(#loc3)\n"
        f'#loc2 = loc("{source}":{line}:{column})\n'
        '#loc3 = loc("rows"(#loc2))\n'
    )


@pytest.mark.parametrize(("column", "first"), [(24, 0), (11, 0), (12, 1), (25, 1)])
def test_a_range_of_a_constexpr_gives_its_value(source: Path, column: int, first: int) -> None:
    """The place is that of the call or the name; columns begin at 0, or from Triton 3.8 on at 1."""
    assert read_recorded(text(source, 5, column, first), LATER, {}).constexprs == {"BLOCK": 64}


@pytest.mark.parametrize(
    ("line", "column", "why"),
    [
        (5, 12, "nothing is there"),
        (6, 23, "SIZE is no constexpr"),
        (8, 24, "OTHER has another value by then"),
        (9, 24, "the range is of a part of BLOCK"),
    ],
)
def test_nothing_is_guessed(source: Path, line: int, column: int, why: str) -> None:
    """A range of anything but a constexpr's own value gives nothing."""
    assert read_recorded(text(source, line, column), LATER, {}).constexprs == {}, why


def test_a_name_with_two_values_is_left_out(source: Path) -> None:
    """A constexpr is left out if two ranges give it different lengths."""
    first, second = text(source, 5, 24), text(source, 5, 24, end=32)
    assert read_recorded(first + second, LATER, {}).constexprs == {}


@pytest.mark.parametrize("change", ["later", "gone", "moved", "no Python", "a folder"])
def test_another_source_gives_nothing(source: Path, change: str) -> None:
    """A file that changed, or whose function has moved, gives no constexprs."""
    compiled = LATER
    if change == "later":
        compiled = source.stat().st_mtime - 1
    elif change == "moved":
        source.write_text(f"\n{SOURCE}", encoding="utf-8")
    elif change == "no Python":
        source.write_text("def kernel(:", encoding="utf-8")
    else:
        source.unlink()
    if change == "a folder":
        source.mkdir()
    found = read_recorded(text(source, 5, 24), compiled, {})
    assert found.constexprs == {}
    assert found.source == f"{source}:4"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("%x: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %n: i64", "*bf16:16, i64"),
        ("%x: !tt.ptr<f8E4M3FN>, %e: f32", "*fp8e4nv, fp32"),
        (
            "%d: !tt.tensordesc<tensor<128x64xf16>>, %d_0: i32, %d_1: i64, %n: i32",
            "tensordesc<fp16[128, 64]>, i32",
        ),
        ("", ""),
    ],
)
def test_arguments_are_as_a_signature_has_them(header: str, expected: str) -> None:
    """Types have Triton's names, and the parts of a descriptor are not listed."""
    found = read_recorded(f"  tt.func public @k({header}) attributes {{}} {{\n", LATER, {})
    assert found.arguments == expected


@pytest.mark.parametrize("content", ["", "[1]", '{"XBLOCK": 4}', '{"triton_cache_hash": 3}'])
def test_other_files_have_no_blocks(tmp_path: Path, content: str) -> None:
    """A best-configuration file that names no entry is ignored."""
    file, missing = tmp_path / "a.best_config", tmp_path / "b.best_config"
    file.write_text(content, encoding="utf-8")
    assert read_tuned([str(file), str(missing)]) == {}


def test_blocks_are_those_in_capitals(tmp_path: Path) -> None:
    """Only the blocks of torchinductor's best configuration are constexprs."""
    best = {"XBLOCK": 8, "R0_BLOCK": 64, "num_warps": 2, "triton_cache_hash": "AB", "Y": None}
    file = tmp_path / "a.best_config"
    file.write_text(json.dumps(best), encoding="utf-8")
    assert read_tuned([str(file)]) == {"AB": {"XBLOCK": 8, "R0_BLOCK": 64}}
