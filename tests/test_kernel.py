"""How kernels are found: by name, and in a user's file."""

import sys
from pathlib import Path

import launched_kernels
import pytest
import triton

from occupancy_lab import kernels
from occupancy_lab.arguments import tensor
from occupancy_lab.errors import InputError
from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.kernel import kernel_names, load_file, load_function, load_kernel, variants

OWN_KERNEL = """
import dataclasses

from occupancy_lab.kernels import softmax_row


def arguments(problem):
    return softmax_row.KERNEL.arguments(problem)


KERNEL = dataclasses.replace(softmax_row.KERNEL, name="scale", arguments=arguments)
"""


@pytest.fixture
def own_kernel(tmp_path: Path) -> Path:
    """A user's kernel file."""
    file = tmp_path / "scale.py"
    file.write_text(OWN_KERNEL, encoding="utf-8")
    return file


def test_each_file_of_the_folder_is_a_kernel() -> None:
    """The kernels' names are the files of the folder, in order."""
    folder = Path(str(kernels.__file__)).parent
    files = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    assert kernel_names() == tuple(files)
    assert TUTORIAL_KERNEL in files


def test_a_file_is_meant_where_the_tool_is_run(
    own_kernel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A relative path starts at the working directory, also after that has changed."""
    other = tmp_path / "elsewhere"
    other.mkdir()
    source = OWN_KERNEL.replace('name="scale"', 'name="other"')
    (other / own_kernel.name).write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_kernel("scale.py").name == "scale"
    monkeypatch.chdir(other)
    assert load_kernel("scale.py").name == "other"
    assert load_kernel(str(own_kernel)).name == "scale"


def test_a_files_own_helpers_can_be_pickled_and_found(own_kernel: Path) -> None:
    """Python knows the module of a kernel file by the name that the file has for itself."""
    kernel = load_kernel(str(own_kernel))
    module = sys.modules[kernel.arguments.__module__]
    assert module.KERNEL is kernel


def test_unknown_names() -> None:
    """An unknown name is refused, and the sentence lists the kernels."""
    with pytest.raises(InputError) as caught:
        load_kernel("sofmax")
    assert "'sofmax'" in str(caught.value)
    assert ", ".join(kernel_names()) in str(caught.value)


@pytest.mark.parametrize("name", ["", "__init__", "softmax.txt", "os"])
def test_only_kernels_are_loaded_by_name(name: str) -> None:
    """Other modules and other files are not mistaken for kernels."""
    with pytest.raises(InputError, match="there is no kernel"):
        load_kernel(name)


@pytest.mark.parametrize("name", [".", "attn.cubin"])
def test_an_entry_of_a_cache_is_for_scan(name: str) -> None:
    """A folder or file of compiled kernels is refused with the command that reads it."""
    with pytest.raises(InputError, match="`scan` reads folders of compiled kernels"):
        load_kernel(name)


def test_missing_files(tmp_path: Path) -> None:
    """A missing file is named, and so is a folder with the name of a file."""
    (tmp_path / "folder.py").mkdir()
    for name in ("nowhere.py", "folder.py"):
        with pytest.raises(InputError, match=f"there is no file .*{name}"):
            load_kernel(str(tmp_path / name))


@pytest.mark.parametrize("source", ["", "KERNEL = 42", "kernel = None", "from triton import jit"])
def test_files_without_a_kernel(tmp_path: Path, source: str) -> None:
    """A file without KERNEL, or with a KERNEL of another type, is refused by name."""
    file = tmp_path / "empty.py"
    file.write_text(source, encoding="utf-8")
    with pytest.raises(InputError, match=r"empty\.py has no KERNEL"):
        load_kernel(str(file))


def test_a_file_of_several_kernels_has_each_by_name(own_kernel: Path) -> None:
    """`file.py:name` is the kernel that KERNELS has under this name, and no other."""
    with own_kernel.open("a", encoding="utf-8") as file:
        file.write('\nKERNELS = {"first": KERNEL}\n')
    assert load_kernel(f"{own_kernel}:first").name == "scale"
    with pytest.raises(InputError, match="no kernel 'second' in KERNELS"):
        load_kernel(f"{own_kernel}:second")


def test_a_function_of_python_is_not_taken_for_a_kernel(tmp_path: Path) -> None:
    """A function that launches kernels is refused as a kernel, and the kernels are listed."""
    path = tmp_path / "mine.py"
    path.write_text(
        "import triton\n\n@triton.jit\ndef add(x):\n    pass\n\ndef main():\n    pass\n"
    )
    with pytest.raises(InputError, match=r"mine\.py:main is a Python function.* it has add"):
        load_function(f"{path}:main")
    with pytest.raises(InputError, match=r"no Triton function 'none'; it has add"):
        load_function(f"{path}:none")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named"),
        ("def f(:", "SyntaxError: "),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
    ],
)
def test_files_that_fail(tmp_path: Path, source: str, reason: str) -> None:
    """A file that raises is refused with its reason, leaves nothing behind, and can be fixed."""
    file = tmp_path / "failing.py"
    file.write_text(source, encoding="utf-8")
    before = set(sys.modules)
    with pytest.raises(InputError, match="cannot be imported") as caught:
        load_kernel(str(file))
    assert reason in str(caught.value)
    assert not {name for name in set(sys.modules) - before if "failing" in name}
    file.write_text(OWN_KERNEL, encoding="utf-8")
    assert load_kernel(str(file)).name == "scale"


@pytest.mark.parametrize("name", ["=1+1", "a|b", "<b>", "*a*", "a\nb"])
def test_names_that_tables_would_misread_are_refused(tmp_path: Path, name: str) -> None:
    """A kernel's name appears in tables, pages and files, and so has none of their signs."""
    path = tmp_path / "own.py"
    path.write_text(OWN_KERNEL.replace('"scale"', repr(name)))
    with pytest.raises(InputError, match="calls its kernel"):
        load_kernel(str(path))


def test_a_launch_again_has_its_grid_and_heuristics_anew() -> None:
    """A launch with another block computes its programs and constexprs again.

    Settings of an autotuner may be changed too; heuristics around an autotuner are evaluated
    before.
    """
    x = tensor((1000,), "float32")
    grid = lambda named: (-(-named["n"] // named["BLOCK"]),)  # noqa: E731 - a launch line's
    tuned = launched_kernels.tuned_add
    for kernel, keywords in ((tuned, {}), (tuned.fn, {"BLOCK": 256})):
        first, *_ = variants(kernel, (x, x, 1024), keywords, grid)
        assert (first.launch.grid, first.launch.keywords["EVEN"]) == ((4,), True)
        again = first.relaunch({"BLOCK": 2048})
        assert (again.grid, again.keywords["BLOCK"], again.keywords["EVEN"]) == ((1,), 2048, False)
    outside = triton.heuristics({"EVEN": lambda named: named["n"] == 1})(
        triton.autotune([triton.Config({"BLOCK": 256})], key=["n"])(tuned.fn.fn)
    )
    (found,) = variants(outside, (x, x, 1024), {}, grid)
    assert found.relaunch({"BLOCK": 512}).keywords["EVEN"] is False


def test_a_file_imports_its_neighbours(tmp_path: Path) -> None:
    """A file can import from its folder while it is loaded, as Python allows; others cannot."""
    (tmp_path / "beside_it.py").write_text("NUMBER = 3\n")
    (tmp_path / "kernels_of_mine.py").write_text("from beside_it import NUMBER\n")
    before = [*sys.path]
    assert load_file(tmp_path / "kernels_of_mine.py").NUMBER == 3
    assert sys.path == before


def test_what_is_passed_by_position_is_launched_anew_there() -> None:
    """A block passed by position can be changed like one by name, and changes the grid."""
    x = tensor((64, 64), "float16")
    grid = lambda named: (64 // named["BLOCK_M"], 64 // named["BLOCK_N"])  # noqa: E731 - a launch line's
    (found,) = variants(launched_kernels.tiles, (x, x, 64, 64, 16), {"BLOCK_N": 32}, grid)
    again = found.relaunch({"BLOCK_M": 32, "BLOCK_N": 16, "num_warps": 8})
    assert again.arguments == (*found.launch.arguments[:4], 32)
    assert again.keywords == {"BLOCK_N": 16, "num_warps": 8}
    assert again.grid == (2, 4)
