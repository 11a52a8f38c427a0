"""Markdown on terminals of every width, with and without colour."""

import itertools
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.text.document import Block, Bullets, Document, Heading, Section, Table, literal
from occupancy_lab.text.printing import print_shown

LONG_WORD = "/home/somebody/" + "a_directory_with_a_rather_long_name/" * 6 + "kernel.py"
PAGE = Document(
    "softmax on H100 SXM",
    ("It holds **8 programs** of 8 warps, which is all that the SM has room for.", LONG_WORD),
    (
        Section(
            "Limits",
            (
                Table(
                    ("resource", "a program takes", "an SM has", "programs"),
                    (
                        ("registers", "`ceil(32 * 32 / 256) * 256 * 8 = 8192`", "65536", "8"),
                        ("shared", LONG_WORD, "233472", "17"),
                    ),
                    caption="What limits it",
                ),
            ),
            ("num_stages 4 keeps three rows in flight. " * 5, f"`{LONG_WORD}`"),
        ),
        Section("Found", (Table(("", "", ""), (("store", "ok", LONG_WORD),), prose=True),)),
    ),
).blocks()
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9\d|10\d)[;m]")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the environment variables that describe a terminal."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def printed(capsys: pytest.CaptureFixture[str], *blocks: Block) -> list[str]:
    """Return the lines printed for *blocks*, or for PAGE."""
    print_shown(blocks or PAGE)
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.endswith("\n")
    return captured.out.split("\n")[:-1]


def test_without_a_terminal_lines_have_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe gets plain text in lines of at most 80 columns without trailing blanks."""
    lines = printed(capsys)
    assert 60 < max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 132, 400])
def test_no_line_is_longer_than_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """Every line fits into COLUMNS even with long words."""
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, printed(capsys))) <= columns


@pytest.mark.parametrize("columns", [60, 80, 400])
def test_long_words_are_folded_and_not_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """Long words are folded without losing a character, in sentences and tables."""
    monkeypatch.setenv("COLUMNS", str(columns))
    table = Table(("a", "b"), (("x", LONG_WORD),), prose=True)
    for block in (LONG_WORD, Bullets((f"`{LONG_WORD}`",)), Heading(1, LONG_WORD), table):
        lines = printed(capsys, block)
        together = re.sub(r"[\s•━─│┃]", "", "".join(lines))
        assert LONG_WORD in together
        assert "…" not in together
        assert "..." not in together


def test_a_terminal_gets_colour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORCE_COLOR enables colour."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert COLOUR.search("\n".join(printed(capsys)))


def test_no_color_is_obeyed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO_COLOR disables colour even if it is forced."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLOUR.search("\n".join(printed(capsys)))


def test_styles_do_not_count_as_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With colour the visible part of a line still fits into COLUMNS."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "72")
    visible = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in printed(capsys)]
    assert 50 < max(map(len, visible)) <= 72


SWEPT = ("kernel", "BLOCK_SIZE", "num_warps", "num_stages", "n_regs", "predicted us", "measured us")
NAMES = st.text("abc_", min_size=1, max_size=24)


@pytest.mark.parametrize("columns", [60, 80, 100])
@settings(max_examples=40)
@given(data=st.data())
def test_no_word_of_a_table_is_broken(columns: int, data: st.DataObject) -> None:
    """Headers, numbers and names are not broken, except names after an underscore."""
    headers = [*SWEPT, *data.draw(st.lists(NAMES, max_size=6))]
    cells = st.one_of(NAMES, st.integers(0, 10**9).map(str), st.sampled_from(["latency, tail"]))
    rows = data.draw(st.lists(st.tuples(*[cells] * len(headers)), min_size=1, max_size=4))
    cells_of = tuple(tuple(map(literal, row)) for row in (headers, *rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        written: list[str] = []
        patch.setattr("sys.stdout.write", written.append)
        print_shown((Table(cells_of[0], cells_of[1:]),))
    lines = "".join(written).splitlines()
    assert max(map(len, lines)) <= columns
    pieces = Counter(word for line in lines for word in line.split())
    for text in (*headers, *itertools.chain(*rows)):
        for word in text.split():
            parts = re.findall(r"[^_]*_+|[^_]+", word)
            assert word in pieces or all(_begins(pieces, part) for part in parts), (word, lines)


def _begins(pieces: Counter[str], part: str) -> bool:
    """Return whether *part* is unbroken in some line."""
    return any(part in piece for piece in pieces)


def test_a_range_in_parentheses_is_not_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell breaks before the range of a time, and another column gives way for it."""
    monkeypatch.setenv("COLUMNS", "40")
    words = "registers and shared memory and named barriers of an SM"
    rows = (("64, 64", "230 us (158 to 379)", words), ("128, 64", "876 ms (593 to 1310)", words))
    lines = printed(capsys, Table(("a block", "time", "limited by what a program takes"), rows))
    assert any("(158 to 379)" in line for line in lines)
    assert any("(593 to 1310)" in line for line in lines)


def test_the_columns_of_a_wide_table_are_all_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns that do not fit continue below, with the first column repeated."""
    headers = ("kernel", *(f"column{n}of" for n in range(12)))
    rows = tuple((f"kernel{n}", *(str(n * m) for m in range(12))) for n in range(3))
    lines = printed(capsys, Table(headers, rows))
    text = "\n".join(lines)
    tables = [line for line in lines if line.lstrip().startswith("kernel ")]
    assert len(tables) > 1
    assert text.count("kernel2") == len(tables)
    assert [n for n in range(12) if f"column{n}of" not in text] == []
    assert max(map(len, lines)) <= 80


def test_a_name_gets_the_room_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A name is folded after an underscore only if the other columns leave no room."""
    name = "liger_cross_entropy_kernel"
    headers = ("kernel", "launches", "programs", "waves", "occupancy", "limiter", "us", "share")
    row = (name, "1200", "4096", "0.97", "62.5%", "registers", "12.5", "87%")
    lines = printed(capsys, Table(headers, (row,)))
    assert any(line.strip().startswith("liger_cross_ ") for line in lines)
    assert any(line.strip().startswith("entropy_kernel") for line in lines)
    lines = printed(capsys, Table(headers[:5], (row[:5],)))
    assert any(name in line for line in lines)
