"""Names that others gave, in what commands print: no code for a terminal, no command on GitHub."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from compiled_rows import compiled
from in_process import run
from runner import commands_in

HOSTILE = "k\x1b[31m\x9b2J\u202e\u2028\r\n::error::x ##[stop-commands]y " + "::set-output::z " * 20
RECORDED = Path(__file__).parents[1] / "compiling" / "recorded"
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
METADATA = {
    "name": HOSTILE,
    "target": {"backend": "cuda", "arch": 90, "warp_size": 32},
    "num_warps": 4,
    "num_stages": 2,
    "num_ctas": 1,
    "shared": 16,
    "triton_version": HOSTILE,
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin in a folder with a cache and two tables, on a runner of GitHub."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.chdir(tmp_path)
    row = compiled(HOSTILE, reason=HOSTILE, arguments=HOSTILE)
    for name, n_regs in (("before.json", 32), ("after.json", 48)):
        Path(name).write_text(json.dumps([row | {"n_regs": n_regs}]), encoding="utf-8")
    shutil.copy("before.json", f"{HOSTILE[:40]}.json")
    import gzip

    entry = Path("cache \x1b[31m", "ENTRY")
    entry.mkdir(parents=True)
    entry.joinpath("x.json").write_text(json.dumps(METADATA), encoding="utf-8")
    cubin = gzip.decompress((RECORDED / "sm_90.cubin.gz").read_bytes())
    entry.joinpath("x.cubin").write_bytes(cubin)


@pytest.mark.parametrize(
    "command",
    [
        ["diff", "before.json", "after.json"],
        ["diff", "before.json", "after.json", "--format", "markdown"],
        ["diff", "before.json", "after.json", "--json"],
        ["diff", f"{HOSTILE[:40]}.json", "after.json"],
        ["check", "n_regs > 99", "after.json", "--no-github"],
        ["check", "n_regs > 99", "after.json", "--github"],
        ["check", f"kernel == '{HOSTILE}' and n_regs > 99", "after.json", "--format", "markdown"],
        ["check", "n_regs > 99", "cache \x1b[31m", "--gpu", "h100"],
        ["scan", "cache \x1b[31m"],
        ["scan", "cache \x1b[31m", "--csv"],
        ["scan", "cache \x1b[31m", "--json"],
        ["scan", HOSTILE[:40]],
        ["explain", "--cols", "781", "--gpu", HOSTILE],
        ["compare", "--cols", "781", "--kernel", f"{HOSTILE[:40]}.py,softmax", "--gpu", "h100"],
        ["sweep", "--cols", "781", "--where", f"kernel == {HOSTILE}"],
        [HOSTILE],
    ],
)
def test_no_name_gives_a_command(command: list[str]) -> None:
    """Neither a terminal nor a runner is given a command, but for the annotations of a check."""
    done = run(*command)
    printed = done.stdout + done.stderr
    assert printed
    assert not UNSEEN.search(printed)
    annotated = command[0] == "check" and "--no-github" not in command
    found = commands_in(printed)
    assert all(annotated and line.startswith("::error title=") for line in found), found
