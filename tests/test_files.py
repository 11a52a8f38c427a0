"""How the tool writes and reads files."""

import csv
import io
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_files import put, within
from hypothesis import example, given
from hypothesis import strategies as st

from occupancy_lab.errors import InputError
from occupancy_lab.files import (
    check_outputs,
    csv_text,
    export,
    read_bytes,
    read_cell,
    read_given,
    write_file,
)


@pytest.fixture
def umask() -> Iterator[None]:
    """Use a umask that lets the group write."""
    before = os.umask(0o002)
    yield
    os.umask(before)


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed write, the old content remains and nothing is left beside it."""
    path = tmp_path / "rows.csv"
    path.write_text("old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match=r"rows\.csv cannot be written: No space left"):
        export(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_sees_the_old_or_the_new(tmp_path: Path) -> None:
    """A reader that has opened the file reads the old content to its end."""
    path = tmp_path / "rows.csv"
    export(path, "old")
    with path.open() as reader:
        export(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"


@pytest.mark.usefixtures("umask")
def test_permissions_are_those_of_a_plain_write(tmp_path: Path) -> None:
    """A new file follows the umask; an old one keeps its permissions."""
    new, old = tmp_path / "new", tmp_path / "old"
    old.touch(mode=0o600)
    for path in (new, old):
        write_file(path, b"text")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (new, old)] == [0o664, 0o600]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_a_link(tmp_path: Path, exists: bool) -> None:  # noqa: FBT001 - two cases
    """The target of a link is written, whether or not it exists."""
    (tmp_path / "folder").mkdir()
    place, link = tmp_path / "folder" / "rows.csv", tmp_path / "link"
    link.symlink_to(place)
    if exists:
        place.write_text("old")
    write_file(link, b"new")
    assert link.is_symlink()
    assert place.read_text() == "new"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """A pipe receives the content and stays a pipe."""
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, b"text")
    reader.join(10)
    assert read == [b"text"]
    assert pipe.is_fifo()


def test_standard_output_is_written_to(tmp_path: Path) -> None:
    """/dev/stdout and devices are written directly."""
    write_file(Path("/dev/null"), b"text")
    assert Path("/dev/null").is_char_device()
    with (tmp_path / "out").open("wb") as out:
        write_file(Path(f"/proc/self/fd/{out.fileno()}"), b"text")
        assert os.fstat(out.fileno()).st_nlink == 1
    assert (tmp_path / "out").read_bytes() == b"text"


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ({"outputs": {"--a": "x", "--b": "x"}}, "--a and --b both name x"),
        ({"outputs": {"--a": "x", "--b": "folder/../x"}}, "--a and --b both name x"),
        ({"outputs": {"--a": "x", "--b": "link"}}, "--a and --b both name x"),
        ({"outputs": {"--a": "x"}, "inputs": {"--file": "./x"}}, "--a and --file both name x"),
        (
            {"outputs": {"--a": "folder/heatmap-h100.svg"}, "pictures": {"--plot": "folder"}},
            "--plot and --a both name",
        ),
        ({"outputs": {"--a": "new"}, "pictures": {"--plot": "new"}}, "--plot and --a both name"),
        ({"outputs": {"--a": "new"}, "pictures": {"--plot": "new/in"}}, "--plot and --a both"),
        (
            {"outputs": {}, "inputs": {"--file": "folder/x.PNG"}, "pictures": {"--p": "folder"}},
            "--p and --file both name",
        ),
        ({"outputs": {"--a": "none/x"}}, "none/x cannot be written: there is no directory none"),
        ({"outputs": {}, "pictures": {"--plot": "x/in"}}, "there is no directory x"),
    ],
)
def test_files_that_overwrite_each_other_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: dict[str, Any], words: str
) -> None:
    """Two options that name one file, by whatever paths, are an error that names both."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("x").touch()
    Path("link").symlink_to("x")
    with pytest.raises(InputError, match=words):
        check_outputs(**paths)


def test_files_beside_each_other_are_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other files may be beside pictures, a folder may be new, and options may be left out."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    check_outputs(
        {"--a": "folder/rows.csv", "--b": "rows.csv", "--c": None},
        inputs={"--file": "folder/other.csv", "--kernel": None},
        pictures={"--plot": "folder", "--more": "new/folder", "--none": None},
    )


texts = st.text(st.sampled_from("=+-@'a1 \t\r\n,\""), max_size=5) | st.text(max_size=5)


@given(st.lists(texts, min_size=1))
@example(["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''=1", "'a", "a=1", ""])
def test_texts_are_no_formulas_and_come_back(cells: list[str]) -> None:
    """No text in a CSV file begins like a formula, and reading restores the text."""
    lines = io.StringIO(csv_text(["text", "number"], [(cell, -1.5) for cell in cells]), newline="")
    read = [row["text"] for row in csv.DictReader(lines)]
    assert not any(text.startswith(("=", "+", "-", "@", "\t", "\r")) for text in read)
    assert [read_cell(text) for text in read] == cells


def test_names_of_columns_are_no_formulas() -> None:
    """The header is escaped too."""
    assert csv_text(["=1+1"], [[1]]) == "'=1+1\n1\n"


@pytest.mark.parametrize(
    ("what", "words"),
    [("a pipe", "no regular file"), ("a device", "no regular file"), ("a large file", "larger")],
)
def test_only_regular_files_of_a_sensible_size_are_read(
    tmp_path: Path, what: str, words: str
) -> None:
    """Pipes are not waited for, endless devices and files of 2 GB are not read."""
    path = put(what, tmp_path / "rows.json")
    with within(5):
        with pytest.raises(OSError, match=words):
            read_bytes(path)
        with pytest.raises(InputError, match=rf"cannot be read: it is .*{words}"):
            read_given(str(path))


def test_standard_input_without_end_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is read of standard input, or of a shell's pipe, than of a file."""
    with Path("/dev/zero").open(encoding="utf-8") as endless:
        monkeypatch.setattr("sys.stdin", endless)
        for name in ("-", f"/dev/fd/{endless.fileno()}"):
            with pytest.raises(InputError, match="cannot be read: it is larger than 1 MiB"):
                read_given(name, most=1 << 20)
