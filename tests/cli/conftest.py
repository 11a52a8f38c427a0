"""Entries of a Triton cache for tests of the commands that read one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded_binaries import BINARIES

METADATA: dict[str, Any] = {
    "name": "row_softmax",
    "target": {"backend": "cuda", "arch": 90, "warp_size": 32},
    "num_warps": 4,
    "num_stages": 2,
    "num_ctas": 1,
    "shared": 16,
    "tmem_size": 0,
    "maxnreg": None,
    "triton_version": "3.6.0",
}


@pytest.fixture
def put_entry() -> Callable[..., None]:
    """Return a function that puts a compiled kernel into a folder, as Triton does."""

    def put(folder: Path, recording: str, **changes: Any) -> None:
        folder.mkdir(parents=True)
        (folder / "row_softmax.cubin").write_bytes(BINARIES[f"{recording}.cubin"])
        text = json.dumps(METADATA | changes)
        (folder / "row_softmax.json").write_text(text, encoding="utf-8")

    return put
