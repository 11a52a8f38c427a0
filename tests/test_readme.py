"""README.md and docs/: every command runs, and the shown output is the tool's."""

import contextlib
import dataclasses
import os
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import in_process
import pytest
import readme
from runner import shell

from occupancy_lab import Kernel, notation
from occupancy_lab.compiling import Store, triton_version
from occupancy_lab.notation import read_argument

ROOT = Path(__file__).parent.parent
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = {path: path.read_text("utf-8") for path in (README, *sorted(DOCS.glob("*.md")))}
KERNELS = PAGES[DOCS / "kernels.md"]
OTHERS = ("autotune.md", "check.md", "explore.md", "softmax.md", "trace.md")
"""Pages with measured numbers, and parts of programs."""
WHOLE = "".join(text for path, text in PAGES.items() if path.name not in OTHERS)


def blocks(language: str, text: str = WHOLE) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(language: str = "sh") -> list[str]:
    """Return every shell command, each as one line."""
    return re.sub(r"\\\n *", "", "".join(blocks(language))).splitlines()


def tool(words: Sequence[str], folder: Path, **variables: str) -> CompletedProcess[str]:
    """Run the tool in *folder*, as a new process without a GPU would."""
    given = {"CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80", "GITHUB_ACTIONS": ""} | variables
    given["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with contextlib.chdir(folder):
        return in_process.run(*words, **given)


def ran(command: str, folder: Path) -> CompletedProcess[str]:
    """Run a command of a page in *folder*; what is more than the tool's words needs a shell."""
    line = command.replace("\\\n", "")
    if line.startswith("occupancy-lab") and not {*"\n|$"} & {*line}:
        return tool(shlex.split(line)[1:], folder)
    return shell(command, folder, "")


TOOLS = [*dict.fromkeys(line for line in commands() if "occupancy-lab" in line)]
"""The commands of the tool, each once."""
HELD_ELSEWHERE = {
    *(readme.SCRIPT, readme.TUNED),
    "occupancy-lab report --gpu h200 --output h200.html",
}
"""What a part of a page shows, and the page that tests/reports/test_remade.py remakes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the commands of a page need.

    All share it, as a compiling process of one folder is not another's.
    """
    folder = tmp_path_factory.mktemp("page")
    (folder / "examples").symlink_to(ROOT / "examples")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a Triton cache with a kernel."""
    folder = tmp_path_factory.mktemp("store")
    words = "sweep --cols 781 --gpu h100 --num-warps 8 --num-stages 2"
    tool(words.split(), folder, OCCUPANCY_LAB_CACHE_DIR=str(folder))
    return str(Store(folder).triton_cache)


@pytest.mark.parametrize("name", ["check.md", "trace.md"])
def test_consoles_show_what_the_tool_prints(
    name: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    """Each console block has the output of its commands; --update-golden rewrites it."""
    if triton_version() != readme.SHOWN_WITH:
        pytest.skip(f"made with Triton {readme.SHOWN_WITH}")
    page = DOCS / name
    assigned: list[str] = []

    def shown(block: re.Match[str]) -> str:
        # Lines with a prompt, and their continuation lines.
        asked = re.findall(r"^\$ ((?:.*[\\|]\n)*.*)", block[1], re.MULTILINE)
        done = ran("\n".join([*assigned, *asked]), folder)
        assigned.extend(one for one in asked if "=" in one.partition(" ")[0])
        assert not done.stderr
        lines = "".join(f"$ {one}\n" for one in asked)
        return f"```console\n{lines}{done.stdout.rstrip()}\n```"

    made = re.sub(r"```console\n(.*?)```", shown, PAGES[page], flags=re.DOTALL)
    if request.config.getoption("--update-golden"):
        page.write_text(made, encoding="utf-8")
    assert made == page.read_text("utf-8")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("block", blocks("sh", PAGES[DOCS / "trace.md"]))
def test_commands_on_each_others_files_run(block: str, folder: Path) -> None:
    """Each command of a block runs and prints no errors."""
    for command in block.splitlines():
        done = ran(command, folder)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("command", [one for one in TOOLS if one not in HELD_ELSEWHERE])
def test_command_runs(
    command: str, folder: Path, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each occupancy-lab command of the pages runs and prints something.

    Launches near those that a command explains have tests of their own.
    """
    if " scan" in command:
        monkeypatch.setenv("TRITON_CACHE_DIR", cache)
    done = ran(command, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", commands("bash"))
def test_command_that_launches_asks_for_a_gpu(command: str, folder: Path) -> None:
    """A GPU command of the pages parses without a GPU, and one sentence asks for one."""
    done = ran(command, folder)
    assert done.returncode == 2
    assert "GPU" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [line for line in commands() if line.startswith("make")])
def test_make_target_exists(command: str) -> None:
    """Each make command of the pages is a target; the tests themselves run inside one."""
    done = shell(f"{command} --dry-run", ROOT)
    assert done.returncode == 0, done.stderr


def test_every_command_is_run() -> None:
    """The tests above include every command of the pages."""
    assert all(line in TOOLS or line.startswith("make") for line in commands())
    assert {*TOOLS} >= HELD_ELSEWHERE


@pytest.mark.parametrize("example", blocks("python", WHOLE + PAGES[DOCS / "check.md"]))
def test_python_example_runs(
    example: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each Python example runs as it is, and those that print print something."""
    file = tmp_path / "example.py"
    file.write_text(example, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "examples")])
    runpy.run_path(str(file), run_name="__main__")
    assert capsys.readouterr().out or "print(" not in example


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    lines = page.read_text("utf-8").splitlines()
    titles = [line.strip("# ") for line in lines if line.startswith("#")]
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def links(page: Path) -> list[tuple[Path, str]]:
    """Return the file and the anchor of each link of a page within the repository."""
    words = re.sub(r"```.*?```", "", PAGES[page], flags=re.DOTALL)
    found = [one.partition("#") for one in re.findall(r"\]\((?!https?:)([^)]+)\)", words)]
    return [((page.parent / file).resolve() if file else page, to) for file, _, to in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Each link within the repository leads to an existing file and heading."""
    for file, anchor in links(page):
        assert file.exists(), file
        assert not anchor or anchor in headings(file), f"{file}#{anchor}"


def test_every_page_is_reachable() -> None:
    """README links to each page of docs/."""
    assert set(PAGES) - {README} <= {file for file, _ in links(README)}


def test_every_mark_of_a_signature_is_read() -> None:
    """The table of marks has exactly the marks that a signature takes."""
    entries = re.findall(r"^\| (`.*?) \| ", KERNELS.partition("| Entry |")[2], re.MULTILINE)
    entries = entries[: next(place for place, one in enumerate(entries) if "--" in one)]
    marks = re.findall(r"`(.*?)`", " ".join(entries))
    for mark in marks:
        read_argument("X", mark)
    documented = re.findall(r"`([^`]*)`", str(notation.__doc__).partition("is\n\n")[2])
    others = {"triton.tools.compile", "*fp16"}
    assert set(documented) - others <= set(marks)


def test_every_field_of_a_kernel_is_described() -> None:
    """The table of a KERNEL's fields has each optional one, once and in one row."""
    described = re.findall(r"^\| `(\w+)` \| ", KERNELS, re.MULTILINE)
    fields = [field.name for field in dataclasses.fields(Kernel)]
    assert sorted(described) == sorted(set(fields) - {"function", "arguments"})


@pytest.mark.parametrize("name", readme.PARTS)
def test_numbers_are_what_the_script_writes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of a page with numbers is what its script makes from the tool and the data."""
    if name in readme.COMPILED and triton_version() != readme.SHOWN_WITH:
        pytest.skip(f"made with Triton {readme.SHOWN_WITH}")
    monkeypatch.setattr(readme, "printed", lambda *given, **more: tool(*given, **more).stdout)
    (page,) = (PAGES[path] for path, names in readme.PAGES.items() if name in names)
    assert readme.fill(page, name) == page


def test_script_overwrites_what_was_typed() -> None:
    """The script corrects a number that was changed by hand."""
    page = PAGES[DOCS / "how-it-works.md"]
    typed = re.sub(r"median error \d", "median error 1", page)
    assert typed != page
    assert readme.fill(typed, "checks") == page


def test_no_time_or_share_is_typed() -> None:
    """Times, bandwidths, sizes and shares occur only in parts that a script or a test checks."""
    parts = r"<!-- (\w+): [^>]+ -->.*?<!-- end of \1 -->"
    by_hand = re.sub(parts, "", WHOLE, flags=re.DOTALL)
    assert not re.findall(r"[0-9] ?(?:us|MB|GB|GB/s|%)(?!\w)", by_hand)
