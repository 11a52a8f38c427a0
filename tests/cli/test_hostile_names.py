"""Names from files and programs never act as terminal codes or GitHub commands."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from compiled_rows import compiled
from in_process import run
from runner import commands_in

from occupancy_lab.gpus import find_gpu
from occupancy_lab.text.printing import print_answer, print_shown
from occupancy_lab.tracing.dry import dry_trace
from occupancy_lab.tracing.page import write_trace
from occupancy_lab.tracing.records import read_records

HOSTILE = "k\x1b[31m\x9b2J\u202e\u2028\r\n::error::x ##[stop-commands]y " + "::set-output::z " * 20
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture(autouse=True)
def _folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put_entry: Callable[..., None]
) -> None:
    """Work in a folder with a cache and two tables, as on a GitHub runner."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.chdir(tmp_path)
    row = compiled(HOSTILE, reason=HOSTILE, arguments=HOSTILE)
    for name, n_regs in (("before.json", 32), ("after.json", 48)):
        Path(name).write_text(json.dumps([row | {"n_regs": n_regs}]), encoding="utf-8")
    shutil.copy("before.json", f"{HOSTILE[:40]}.json")
    put_entry(Path("cache \x1b[31m", "ENTRY"), "sm_90", name=HOSTILE, triton_version=HOSTILE)


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
    """Output has no terminal codes and no GitHub commands but check's annotations."""
    done = run(*command)
    printed = done.stdout + done.stderr
    annotated = command[0] == "check" and "--no-github" not in command
    check_harmless(printed, "::error title=" if annotated else None)


PROGRAM = f"""
import subprocess, sys, torch, triton, triton.language as tl
NAME = {HOSTILE!r}

def named(x, WORD: tl.constexpr):
    tl.store(x, 1.0)

named.__name__ = named.__qualname__ = NAME

@triton.jit
def refused(x, WORD: tl.constexpr):
    tl.static_assert(False, WORD)

@triton.autotune([triton.Config({{"WORD": word}}) for word in (NAME, "two")], key=[])
@triton.jit
def tuned(x, WORD: tl.constexpr):
    tl.store(x, 1.0)

x = torch.empty(16, device="cuda")
for kernel in (triton.jit(named), refused):
    kernel[(1,)](x, WORD=NAME)
tuned[(1,)](x)
subprocess.run([sys.executable, "-c", "pass", NAME], check=False)
raise ValueError(NAME)
"""


def check_harmless(printed: str, expected: str | None = None) -> None:
    """Assert that a page has no terminal codes and no GitHub commands but *expected* ones."""
    assert printed
    assert not UNSEEN.search(printed)
    found = commands_in(printed)
    assert all(expected and line.startswith(expected) for line in found), found


@pytest.mark.slow
def test_no_name_of_a_program_gives_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of files, kernels and constexprs in a dry run are harmless."""
    program = f"{HOSTILE[:40]}.py"
    Path(program).write_text(PROGRAM, encoding="utf-8")
    found = dry_trace((sys.executable, program, HOSTILE), gpu="h100")
    for form in ("terminal", "json", "markdown"):
        capsys.readouterr()
        print_answer(found, form)
        page = capsys.readouterr().out
        check_harmless(page)
        words = " ".join(page.split())
        for said in ("tuned", "cannot compile refused", "ValueError", "as a separate program"):
            assert said in words


def test_no_name_in_the_records_of_a_trace_gives_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names and errors noted by a traced program are harmless."""
    facts = {"pid": 1, "argv": [HOSTILE], "triton": HOSTILE, "torch": HOSTILE, "rank": HOSTILE}
    kernel = {"kernel": 0, "name": HOSTILE, "hash": "1", "kept": "k", "n_regs": 32, "n_spills": 0}
    kernel |= {"metadata": {"num_warps": 4, "shared": 0}, "constexprs": {HOSTILE: HOSTILE}}
    launches = {"grid": [1, 1, 1], "count": 1, "tuning": 0, "captured": 0, "samples": 0}
    place = tmp_path / "records" / "1-1"
    place.mkdir(parents=True)
    lines = "".join(json.dumps(line) + "\n" for line in (facts, kernel))
    (place / "kernels.jsonl").write_text(lines, encoding="utf-8")
    counts = {"kernels": {"0": [launches]}, "errors": [HOSTILE]}
    (place / "counts.json").write_text(json.dumps(counts), encoding="utf-8")
    page = write_trace(read_records(place.parent, find_gpu("h100")), None)
    print_shown(page.blocks())
    for printed in (capsys.readouterr().out, page.to_markdown()):
        check_harmless(printed)
        assert "x1b" in printed
