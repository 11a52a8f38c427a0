"""Fixtures that open the page in a browser."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browser, find_browser

from occupancy_lab.exploring.page import explore

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
RUN_AXE = "axe.run().then((done) => done.violations.map((one) => [one.id, one.nodes[0].html]))"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page as the command writes it."""
    return explore(tmp_path_factory.mktemp("page") / "explore.html")


@pytest.fixture(scope="module")
def browsing() -> Iterator[Page]:
    """Yield the one browser page that all tests share."""
    if find_browser() is None:
        pytest.skip("no Chromium is installed; `make browser` installs one")
    with browser() as page:
        yield page


@pytest.fixture
def page(browsing: Page, file: Path) -> Iterator[Page]:
    """Yield the freshly opened page; the test fails if the browser reports an error."""
    browsing.complaints.clear()
    browsing.requests.clear()
    browsing.look(1280, 900)
    browsing.open(file)
    yield browsing
    assert browsing.complaints == []
    assert all(url.startswith(("file:", "data:", "about:")) for url in browsing.requests)


@pytest.fixture
def opened(page: Page, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that opens the page of rows and returns its file."""

    def open_rows(*rows: dict[str, Any]) -> Path:
        (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
        file = explore(tmp_path / "own.html", rows=tmp_path / "rows.json")
        page.open(file)
        page.drawn()
        return file

    return open_rows


@pytest.fixture
def violations(page: Page) -> Callable[[], Any]:
    """Return a function that returns axe-core's violations on the page."""
    if not AXE.is_file():
        pytest.skip("no axe-core is installed; `make browser` installs it")

    def ask() -> Any:
        page.value(f"{AXE.read_text()}; 1")
        return page.value(RUN_AXE)

    return ask
