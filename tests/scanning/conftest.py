"""A Triton cache with a few kernels, compiled once for all tests of a scan."""

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LAUNCHES: tuple[tuple[str, str, int, str, dict[str, int]], ...] = (
    ("scale", "90", 1024, "fp32", {"num_warps": 4}),
    ("scale", "90", 4096, "fp32", {"num_warps": 8}),
    ("scale", "gfx942", 1024, "fp32", {"num_warps": 4}),
    ("row_softmax", "90", 8192, "fp32", {"num_warps": 4, "maxnreg": 40}),
    ("row_softmax", "80", 16384, "fp32", {"num_warps": 32}),
    ("product", "90", 64, "fp16", {"num_warps": 4, "num_stages": 3}),
    ("specialized", "100", 128, "fp16", {"num_warps": 4, "num_stages": 3}),
    ("row_softmax", "gfx942", 32768, "fp32", {"num_warps": 4}),
    ("row_softmax", "90", 32768, "fp16", {"num_warps": 32}),
)
"""Kernel, architecture, BLOCK_SIZE, dtype and options; the first row_softmax spills, and
the last has too few programs."""


@dataclass(frozen=True)
class Cache:
    """A cache, and Triton's own account of what it compiled."""

    folder: Path
    source: Path
    compiled: Mapping[str, Any]
    """Triton's CompiledKernel by the name of its entry."""

    def entry(self, kernel: str, place: int = 0) -> Path:
        """Return the folder of a kernel's entry, in the order of LAUNCHES."""
        return (
            self.folder
            / [name for name, one in self.compiled.items() if one.metadata.name == kernel][place]
        )


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    """Return a cache with the kernels of LAUNCHES, compiled from a file of its own."""
    pytest.importorskip("triton")
    home = tmp_path_factory.mktemp("scan")
    source = home / "cached_kernels.py"
    shutil.copy(Path(__file__).with_name("cached_kernels.py"), source)
    specification = importlib.util.spec_from_file_location("cached_kernels", source)
    module = importlib.util.module_from_spec(specification)
    sys.modules["cached_kernels"] = module
    specification.loader.exec_module(module)
    found: dict[str, Any] = {}
    folder = home / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        for kernel, arch, block_size, dtype, options in LAUNCHES:
            before = set(folder.iterdir()) if folder.exists() else set()
            one = module.compiled(getattr(module, kernel), arch, block_size, dtype, **options)
            (added,) = (path for path in set(folder.iterdir()) - before if [*path.glob("*.json")])
            found[added.name] = one
    return Cache(folder, source, found)


@pytest.fixture
def copied(cache: Cache, tmp_path: Path) -> Path:
    """Return a copy of the cache that a test may damage."""
    return Path(shutil.copytree(cache.folder, tmp_path / "cache"))
