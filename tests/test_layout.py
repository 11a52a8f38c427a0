"""Imports follow CONTRIBUTING's table, and there are no cycles."""

import ast
import functools
import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "occupancy_lab"
ABOVE = "all above"
FACADE = {"__init__", "__main__"}
"""The modules that are the package's interface: they name objects of all others."""


def modules() -> dict[str, Path]:
    """Return the file of each module by its dotted name within the package."""
    folders = {ROOT / PACKAGE: "", ROOT / "kernels": "kernels."}
    return {
        prefix
        + ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
        for folder, prefix in folders.items()
        for path in folder.rglob("*.py")
    }


def imported(source: str, names: Mapping[str, object]) -> set[str]:
    """Return the modules among *names* that *source* imports anywhere, for types too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            asked = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            asked = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in asked:
            inside = name.removeprefix(f"{PACKAGE}.")
            found.add(inside if inside in names else inside.rpartition(".")[0])
    return found & names.keys() - {""}


@functools.cache
def graph() -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    files = modules()
    return {name: imported(path.read_text("utf-8"), files) - {name} for name, path in files.items()}


def read_table(text: str) -> dict[str, set[str]]:
    """Return what each folder or file may import by the table in *text*."""
    rows: dict[str, set[str]] = {}
    for first, cell in re.findall(r"^\| (`.*?) \|.*\| ?(.*?) ?\|$", text, re.MULTILINE):
        names = {name.removesuffix(".py").rstrip("/") for name in re.findall(r"`(.+?)`", first)}
        allowed, _, but = cell.partition(" but ")
        listed = set(filter(None, re.split(", ?", allowed)))
        if ABOVE in listed:
            listed = (listed - {ABOVE}) | set(rows)
        rows |= dict.fromkeys(names, listed - set(re.split(", ?", but)))
    return rows


TABLE = read_table((ROOT / "CONTRIBUTING.md").read_text("utf-8"))


def test_the_table_names_every_part() -> None:
    """Each folder and file of the package has a row, and every row has its folder or file."""
    parts = {name.partition(".")[0] for name in graph()} - FACADE
    assert parts == TABLE.keys() - {"reports", "tests"}
    assert set.union(*TABLE.values()) - {"all"} <= parts


@pytest.mark.parametrize("part", sorted(TABLE.keys() - {"reports", "tests"}))
def test_imports_are_those_of_the_table(part: str) -> None:
    """Each part imports only itself and what its row allows."""
    allowed = TABLE[part] | {part}
    wrong = {
        f"{name} imports {other}"
        for name, others in graph().items()
        for other in others
        if name.partition(".")[0] == part and other.partition(".")[0] not in allowed
    }
    assert "all" in allowed or not wrong


def test_no_imports_go_round() -> None:
    """The modules have an order in which each imports only earlier ones, for types too."""
    assert list(TopologicalSorter(graph()).static_order())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from occupancy_lab.gpus import find_gpu", {"gpus"}),
        ("from occupancy_lab.gpus import table", {"gpus.table"}),
        ("def f():\n    import occupancy_lab.gpus.table", {"gpus.table"}),
        ("if TYPE_CHECKING:\n    from occupancy_lab.gpus import Gpu", {"gpus"}),
        ("import json", set()),
    ],
)
def test_imports_are_found(source: str, found: set[str]) -> None:
    """Imports are found at the top of a module, in its functions, and among those for types."""
    assert imported(source, dict.fromkeys(["gpus", "gpus.table"])) == found


def test_what_the_table_does_not_allow_is_found() -> None:
    """A row is read as its list, as the rows above it, or as these without some."""
    text = "| `a.py`, `b/` | x | |\n| `c/` | y | a |\n| `d/` | z | all above but b |"
    assert read_table(text) == {"a": set(), "b": set(), "c": {"a"}, "d": {"a", "c"}}
