"""The digest of a kernel's source: what makes another kernel, and what does not."""

import importlib.util
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from occupancy_lab.digest import source_digest

SOURCE = """
import triton
import triton.language as tl

FACTOR = tl.constexpr(2)
UNUSED = 3


@triton.jit
def inner(x):
    return x * x


@triton.jit
def helper(x):
    return inner(x) + 1


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, helper(x) * FACTOR + tl.cdiv(n, 2), mask=at < n)
"""


def load(folder: Path, source: str) -> Any:
    """Return the kernel in a file with *source*."""
    path = folder / f"file_{len([*folder.iterdir()])}.py"
    path.write_text(textwrap.dedent(source), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module.kernel


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.constexpr(2)", "tl.constexpr(3)"),
        ("tl.constexpr(2)", "tl.constexpr((2, tl.float16))"),
        ("return x * x", "return x + x"),
        ("inner(x) + 1", "inner(x) + 2"),
        ("helper(x) * FACTOR", "helper(x) + FACTOR"),
        ("mask=at < n)\n    tl.store", "mask=at < n)  # said\n    tl.store"),
        ("@triton.jit\ndef helper", "@triton.jit(noinline=True)\ndef helper"),
    ],
)
def test_what_triton_compiles_anew_is_another_kernel(tmp_path: Path, old: str, new: str) -> None:
    """A change that Triton's key notices changes the digest."""
    assert old in SOURCE
    one, other = load(tmp_path, SOURCE), load(tmp_path, SOURCE.replace(old, new))
    assert one.cache_key != other.cache_key
    assert source_digest(one) != source_digest(other)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("UNUSED = 3", "UNUSED = 4"),
        ("UNUSED = 3", "UNUSED = 3\n\n\ndef unused(): return 1"),
        ("@triton.jit\ndef kernel", "@triton.autotune([], key=[])\n@triton.jit\ndef kernel"),
    ],
)
def test_what_is_compiled_alike_is_the_same_kernel(tmp_path: Path, old: str, new: str) -> None:
    """Unused code, lines above and wrappers do not change the digest."""
    assert source_digest(load(tmp_path, SOURCE)) == source_digest(
        load(tmp_path, SOURCE.replace(old, new))
    )


def test_a_kernel_that_calls_itself_has_a_digest(tmp_path: Path) -> None:
    """Recursive functions are followed once."""
    around = SOURCE.replace("return x * x", "return helper(x)")
    assert source_digest(load(tmp_path, around)) != source_digest(load(tmp_path, SOURCE))
