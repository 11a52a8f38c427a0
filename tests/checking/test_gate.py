"""Gates end to end: a deliberate spill, this repository's workflow, and docs/check.md."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from runner import shell

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
KERNEL = '''"""A softmax of rows that a program holds whole."""

import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": 4096}, num_warps=8)]


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def softmax_rows(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n_cols + cols, x / tl.sum(x, axis=0), mask=cols < n_cols)
'''
PYPROJECT = """
[tool.occupancy-lab.checks]
no-spills = "local_bytes == 0"
"""
LAUNCH = ["kernels/rows.py:softmax_rows", "--signature", "*fp32,*fp32,4000", "--gpu", "h100"]


def gate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `occupancy-lab check` in *folder* as GitHub does."""
    command = [sys.executable, "-m", "occupancy_lab", "check", *arguments]
    environment = os.environ | {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(folder),
        "OCCUPANCY_LAB_CACHE_DIR": str(folder / "store"),
    }
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def commit(folder: Path, message: str) -> None:
    """Commit everything in *folder*."""
    git = shutil.which("git") or "git"
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["init", "-q"], ["add", "kernels", "pyproject.toml"]):
        subprocess.run([git, *command], cwd=folder, check=True)
    subprocess.run([git, *who, "commit", "-qm", message], cwd=folder, check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a kernel and a check that it meets."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "rows.py").write_text(KERNEL, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    commit(tmp_path, "A kernel")
    return tmp_path


CACHE = "store/triton-cache"
"""Where `gate` compiles."""


def stack_bytes(folder: Path) -> set[int]:
    """Return the local memory of every cubin in a cache as NVIDIA's cuobjdump reads it, bytes."""
    from triton import knobs

    cuobjdump = knobs.nvidia.cuobjdump.path
    found = set()
    for cubin in (folder / CACHE).rglob("*.cubin"):
        done = subprocess.run(
            [cuobjdump, "-res-usage", cubin], capture_output=True, text=True, check=True
        )
        found |= {int(one) for one in re.findall(r"STACK:(\d+)", done.stdout)}
    return found


@pytest.mark.slow
def test_a_deliberate_spill_is_caught(repository: Path) -> None:
    """The gate fails on the commit that spills, with the place, the bytes and a working fix."""
    passed = gate(repository, *LAUNCH)
    assert passed.returncode == 0, passed.stderr
    assert stack_bytes(repository) == {0}
    shutil.copytree(repository / CACHE, repository / "before")

    file = repository / "kernels" / "rows.py"
    file.write_text(KERNEL.replace("4096}, num_warps=8", "32768}, num_warps=4"), encoding="utf-8")
    commit(repository, "More columns")
    shutil.rmtree(repository / CACHE)
    outputs = ["--json", "--sarif", "checks.sarif", "--junit", "checks.xml"]
    caught = gate(repository, *LAUNCH, *outputs)
    assert caught.returncode == 1, caught.stderr
    (finding,) = json.loads(caught.stdout)["checks"][0]["findings"]
    assert finding["check"] == "no-spills"
    assert finding["values"]["kernel"] == "softmax_rows"
    assert finding["found"]["local_bytes"] > 0
    assert finding["found"]["local_bytes"] in stack_bytes(repository)

    line = 1 + KERNEL[: KERNEL.index("def softmax_rows")].count("\n")
    (annotation,) = caught.stderr.splitlines()
    assert annotation.startswith(f"::error file=kernels/rows.py,line={line},title=softmax_rows ")
    assert f"local_bytes is {finding['found']['local_bytes']}" in annotation
    ((option, value),) = finding["mend"]["changes"].items()
    fixed = f"32768}}, {option}={value}"
    file.write_text(KERNEL.replace("4096}, num_warps=8", fixed), encoding="utf-8")
    assert gate(repository, *LAUNCH).returncode == 0

    scanned = gate(repository, "--scan", CACHE, "--gpu", "h100")
    assert scanned.returncode == 1
    assert f"file=kernels/rows.py,line={line}," in scanned.stderr
    condition = "after_local_bytes > 0 and before_local_bytes is None"
    command = f"occupancy-lab diff before {CACHE} --gpu h100 --fail-on '{condition}'"
    assert shell(command, repository).returncode == 1


def runs(path: Path) -> list[str]:
    """Return the commands of a workflow that run the tool itself, in their order."""
    workflow: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    return [step["run"] for step in steps if "occupancy-lab" in step.get("run", "")]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_the_required_keys(path: Path) -> None:
    """A workflow is YAML with triggers, read permissions, jobs, and steps that do one thing."""
    workflow = yaml.safe_load(path.read_text("utf-8"))
    # YAML 1.1 reads the key "on" as true.
    assert workflow[True]
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])


GH = """#!/bin/sh
case "$1 $2 $3" in
"run list --workflow") {listed} ;;
"run download 7") {downloaded} ;;
*) exit 9 ;;
esac
"""
KEPT = 'mkdir -p "$RUNNER_TEMP/base/after" && echo [] > "$RUNNER_TEMP/base/after/softmax.json"'


@pytest.mark.parametrize(
    ("listed", "downloaded", "found"),
    [
        ("echo 7", KEPT, True),
        ("echo 7", "exit 1", False),
        ("echo 7", ":", False),
        ("", KEPT, False),
        ("exit 4", KEPT, False),
    ],
    ids=["artefact", "expired", "another layout", "no run", "no answer"],
)
def test_the_base_branch_rows_are_fetched(
    tmp_path: Path, listed: str, downloaded: str, *, found: bool
) -> None:
    """The step downloads the artefact of the last run; without one, the base is compiled."""
    path = ROOT / ".github" / "workflows" / "kernels.yml"
    steps = yaml.safe_load(path.read_text("utf-8"))["jobs"]["check"]["steps"]
    (command,) = (step["run"] for step in steps if "gh run download" in step.get("run", ""))
    (tmp_path / "build").mkdir()
    gh = tmp_path / "gh"
    gh.write_text(GH.format(listed=listed, downloaded=downloaded), "utf-8")
    gh.chmod(0o755)
    # The tool's own folder comes first in the PATH and has no gh.
    command = f'PATH="$PWD:$PATH"\n{command}'
    done = shell(command, tmp_path, RUNNER_TEMP=str(tmp_path / "temp"), GITHUB_BASE_REF="main")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "build" / "before" / "softmax.json").exists() == found
    assert (tmp_path / "build" / "before").exists() == found
    guarded = [step for step in steps if "hashFiles('build/before/*.json') == ''" in str(step)]
    assert ["ref" in step.get("with", {}) for step in guarded] == [True, False]


@pytest.mark.slow
def test_the_checks_of_this_repository_hold(tmp_path: Path) -> None:
    """Each command of the kernels' workflow runs, and kernels that each check is for pass.

    The workflow itself compiles more of them.
    """
    path = ROOT / ".github" / "workflows" / "kernels.yml"
    launches = yaml.safe_load(path.read_text("utf-8"))["env"]["LAUNCHES"]
    for more, fewer in (("781,4096,12672", "781,4096"), ("8,16", "8"), ("1,2", "2")):
        assert f" {more} " in launches
        launches = launches.replace(f" {more} ", f" {fewer} ")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels")
    (tmp_path / "base").symlink_to(tmp_path)  # the same files, which are compiled once
    summary = tmp_path / "summary.md"
    commands = runs(path)
    assert len(commands) == 4
    for command in commands:
        done = shell(
            command,
            tmp_path,
            LAUNCHES=launches,
            GITHUB_STEP_SUMMARY=str(summary),
            GITHUB_ACTIONS="true",
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "::error" not in done.stderr
    assert summary.read_text("utf-8").count("4 unchanged.") == 3
    assert (tmp_path / "build" / "checks.xml").exists()


@pytest.mark.slow
@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL))
def test_the_workflow_runs(block: str, tmp_path: Path) -> None:
    """Each occupancy-lab command of a workflow in the docs runs as on GitHub, and passes."""
    workflow = yaml.safe_load(block)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "rows.py").write_text(KERNEL, encoding="utf-8")
    (tmp_path / "base").symlink_to(tmp_path)  # the same file, which is compiled once
    checks = "[tool.occupancy-lab.checks]\nno-spills = 'local_bytes == 0'\n"
    (tmp_path / "pyproject.toml").write_text(checks, encoding="utf-8")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    ours = [
        step["run"] for step in steps if re.match("(?s).*occupancy-lab (?!$)", step.get("run", ""))
    ]
    ours = [one for one in ours if not one.startswith("pip install")]
    assert len(ours) >= 2
    variables = {
        **workflow.get("env", {}),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_ACTIONS": "true",
        "OCCUPANCY_LAB_CACHE_DIR": str(tmp_path / "store"),
    }
    for one in ours:
        done = shell(one, tmp_path, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "::error" not in done.stderr
