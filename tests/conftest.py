"""What all tests share: a store of their own, and the reason why GPU tests are skipped."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let golden files be rewritten."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


def _why_no_gpu() -> str | None:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "no GPU that torch can use"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the GPU tests, with the reason, where there is no GPU."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_gpu() if marked else None
    if reason is not None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def _own_store(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Keep the user's store out of the tests, and the tests out of the user's store."""
    patch = pytest.MonkeyPatch()
    patch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path_factory.mktemp("store")))
    yield
    patch.undo()
