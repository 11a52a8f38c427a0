"""The binaries and texts that Triton made, in tests/compiling/recorded."""

import gzip
import json
from pathlib import Path

FOLDER = Path(__file__).parent / "compiling" / "recorded"
BINARIES = {file.stem: gzip.decompress(file.read_bytes()) for file in sorted(FOLDER.glob("*.gz"))}
"""The recordings by name: sm_90.cubin, gfx942.hsaco, gfx942.amdgcn."""
ORACLES = json.loads((FOLDER / "oracles.json").read_text(encoding="utf-8"))
"""The numbers of cuobjdump and ptxas for each kernel of a cubin."""


def of_kind(kind: str) -> dict[str, bytes]:
    """Return the recordings of one *kind*, such as cubin."""
    return {name: content for name, content in BINARIES.items() if name.endswith(f".{kind}")}


def recorded(name: str) -> str:
    """Return a recorded text."""
    return BINARIES[name].decode()
