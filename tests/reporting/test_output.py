"""The files of a report: their place, their form, and that they are the same every time."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from small_table import row, rows, table_of

from occupancy_lab.errors import InputError
from occupancy_lab.reporting.contents import run

NASTY = "<script>alert('x')</script> [a](javascript:b) | `c`"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a table of launches whose GPU has a name full of special characters."""
    path = tmp_path_factory.mktemp("rows") / "my rows.csv"
    table_of([one | {"device": NASTY} for one in rows()]).to_csv(path, index=False)
    return str(path)


@pytest.fixture(scope="module")
def markdown(file: str) -> str:
    """Return the printed report."""
    return run(file=file, form="markdown")


@pytest.fixture(scope="module")
def html(file: str) -> str:
    """Return the printed report as HTML."""
    return run(file=file, form="html")


class Outline(HTMLParser):
    """Collects the tags of a page, and checks that every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.alternatives: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the tag and its references."""
        self.tags.append(tag)
        if tag not in {"img", "meta"}:
            self.open.append(tag)
        values = dict(attrs)
        self.sources += [str(values[name]) for name in ("src", "href") if name in values]
        self.alternatives += [str(values["alt"])] if "alt" in values else []

    def handle_endtag(self, tag: str) -> None:
        """Close the last opened tag."""
        assert self.open.pop() == tag


def test_a_page_has_the_ending_of_one(file: str, tmp_path: Path) -> None:
    """An unknown suffix is refused; with an explicit form, any name is accepted."""
    folder = tmp_path / "o"
    folder.write_text("a file", encoding="utf-8")
    with pytest.raises(InputError, match=r"o\.txt does not end in \.md or \.html"):
        run(file=file, output=f"{folder}.txt")
    run(file=file, output=f"{folder}.txt", form="html")
    run(file=file, output=str(folder))
    assert all(Path(f"{folder}{ending}").read_text("utf-8") for ending in (".txt", ""))


def test_markdown_links_its_pictures(file: str, tmp_path: Path) -> None:
    """The folder beside the page has exactly the pictures that the page shows.

    Page and pictures have the same bytes when they are made again.
    """
    said = run(file=file, output=str(tmp_path / "my report.md"))
    text = (tmp_path / "my report.md").read_text(encoding="utf-8")
    links = re.findall(r"!\[[^\]]+\]\(my%20report/(\w+\.svg)\)", text)
    assert sorted(links) == sorted(one.name for one in (tmp_path / "my report").iterdir())
    assert len(links) == len(set(links)) == 4
    assert said == (
        f"{tmp_path / 'my report.md'} is written, with 4 pictures in {tmp_path / 'my report'}.\n"
    )
    made = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    run(file=file, output=str(tmp_path / "my report.md"))
    assert made == {path: path.read_bytes() for path in tmp_path.rglob("*.*")}


def test_html_needs_nothing_else(file: str, html: str, tmp_path: Path) -> None:
    """The HTML is one file that contains the tables and the pictures with their descriptions."""
    run(file=file, output=str(tmp_path / "a.HTML"))
    assert [one.name for one in tmp_path.iterdir()] == ["a.HTML"]
    assert (tmp_path / "a.HTML").read_text(encoding="utf-8") == html
    page = Outline()
    page.feed(html)
    assert not page.open
    assert (page.tags.count("h1"), page.tags.count("h2"), page.tags.count("img")) == (1, 6, 4)
    assert page.tags.count("table") > 5
    assert all(page.alternatives)
    for source in page.sources:
        kind, data = source.split(",", 1)
        assert kind == "data:image/svg+xml;base64"
        assert b"<svg" in base64.b64decode(data)


def test_html_shows_texts_as_they_are(html: str) -> None:
    """Text from a file makes no tags, no links and no scripts."""
    assert "&lt;script&gt;alert('x')&lt;/script&gt; [a](javascript:b) | `c`" in html
    assert not {"script", "a"} & set(re.findall(r"<(\w+)", html))


def test_unwritable_places_are_told_before_any_work(tmp_path: Path) -> None:
    """A missing folder, or a file in place of the pictures' folder, is refused before any work."""
    with pytest.raises(InputError, match="there is no directory"):
        run(file="nowhere.csv", output=str(tmp_path / "no" / "r.md"))
    (tmp_path / "r").write_text("in the way")
    with pytest.raises(InputError, match=r"there is no directory .*/r$"):
        run(file="nowhere.csv", output=str(tmp_path / "r.md"))


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_the_rows_are_not_overwritten(file: str, form: str) -> None:
    """A page is refused if it would overwrite its own rows."""
    before = Path(file).read_bytes()
    with pytest.raises(InputError, match="--output and --file both name"):
        run(file=file, output=file, form=form)
    assert Path(file).read_bytes() == before


def test_one_launch_is_a_report_too(tmp_path: Path) -> None:
    """A table of one launch gives a report; chapters without rows are a sentence each."""
    path = tmp_path / "one.csv"
    table_of([row()]).drop(columns="use").to_csv(path, index=False)
    text = run(file=str(path), form="markdown")
    assert text.count("\n## ") == 6
    assert text.count("Left out: ") == 3
