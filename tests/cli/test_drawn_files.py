"""Randomly damaged files of rows and cache entries give an answer or one sentence."""

import contextlib
import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launched_kernels
import pytest
from compiled_rows import compiled, failed
from hostile_files import HOSTILE, put, within
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_process import SECONDS, check_answered, run

EXAMPLES = int(os.environ.get("OCCUPANCY_LAB_COMMAND_LINES", "300")) // 3
TOOL = Path(sys.executable).with_name("occupancy-lab")
ROWS = [compiled(constexprs={"BLOCK": 64}), compiled(gpu="mi300x", num_warps=4), failed()]
CSV = "kernel,gpu,n_regs,shared,num_warps,constexprs\nk,h100,32,0,4,BLOCK=64\nk,mi300x,91,32,8,\n"
DOCUMENTS = [
    ROWS,
    {"records": ROWS},
    {"rows": ROWS},
    {"lines": [{"place": "a.py:7", "rows": ROWS}]},
]
STRANGE: list[Any] = [
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**400, 1e308, 0.5, float("nan"), float("inf")),
    *("", "h10", "k" * 5000, "-" * 5000 + "1", "=1+1", "\x1b[31m", "a\nb", "\0", "%s", "é∞🙂"),
    *([], {}, [1], {"a": 1}, {"num_warps": 0}, ["x", None], [[[[]]]], {"BLOCK": [1]}),
]
ANY_ROWS = settings(
    max_examples=EXAMPLES,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Draw a table as JSON text with one or two changed values."""
    document = json.loads(json.dumps(draw(st.sampled_from(DOCUMENTS))))
    for _ in range(draw(st.integers(1, 2))):
        holder, key = None, None
        inside = document
        while isinstance(inside, dict | list) and inside and draw(st.integers(0, 4)):
            keys = list(inside) if isinstance(inside, dict) else range(len(inside))
            holder, key = inside, draw(st.sampled_from(keys))
            inside = inside[key]
        if holder is not None:
            holder[key] = copy.deepcopy(draw(st.sampled_from(STRANGE)))
    return json.dumps(document)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Draw the text of a table: unchanged, cut off, or with changed bytes."""
    content = draw(documents() | st.just(CSV)).encode()
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(content)))
        other = draw(
            st.sampled_from([b"", b'"', b",", b"\n", b"\xff", b"\0", b"9" * 400, b"{", b"]"])
        )
        end = draw(st.sampled_from([place, place + 1, place + 9, len(content)]))
        content = content[:place] + other + content[end:]
    return content


COMMANDS = [
    ("check", "n_regs < 40 and occupancy > 0.5", "FILE"),
    ("check", "BLOCK == 64", "FILE", "--unknown", "ok", "--json"),
    ("check", "local_bytes == 0", "GOOD", "FILE", "--github"),
    ("check", "kernel == 'x'", "FILE", "--junit", "PAGE", "--sarif", "OTHER"),
    ("diff", "GOOD", "FILE"),
    ("diff", "FILE", "GOOD", "--json"),
    ("diff", "FILE", "FILE", "--fail-on", "after_n_regs > before_n_regs"),
    ("explore", "--rows", "FILE", "--output", "PAGE"),
]


def answered(words: tuple[str, ...], **paths: Path) -> None:
    """Assert that a command line, in which names stand for *paths*, is answered in time."""
    given_words = [str(paths.get(word, word)) for word in words]
    with within(SECONDS):
        check_answered(given_words, run(*given_words))


@ANY_ROWS
@given(content=texts(), words=st.sampled_from(COMMANDS), suffix=st.sampled_from(["json", "csv"]))
def test_any_file_of_rows_is_answered(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, words: tuple[str, ...], suffix: str
) -> None:
    """check, diff and explore read any file of rows, or refuse it in one sentence."""
    folder = tmp_path_factory.mktemp("rows")
    file, good = folder / f"rows.{suffix}", folder / "good.json"
    file.write_bytes(content)
    good.write_text(json.dumps(ROWS))
    answered(words, FILE=file, GOOD=good, PAGE=folder / "page.html", OTHER=folder / "other")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Triton cache with a kernel for each vendor."""
    folder = tmp_path_factory.mktemp("cached")
    store, cache = folder / "store", folder / "cache"
    asked = ("--signature", "*fp16,*fp16,4096,4096", "--constexpr", "BLOCK=64")
    file = f"{launched_kernels.__file__}:transpose"
    words = [TOOL, "explain", file, *asked, "--gpu", "h100,mi300x"]
    environment = {**os.environ, "OCCUPANCY_LAB_CACHE_DIR": str(store)}
    subprocess.run(words, env=environment, check=True, capture_output=True)
    (store / "triton-cache").rename(cache)
    shutil.rmtree(store)
    return cache


def _cut(file: Path, content: bytes, place: int) -> None:
    file.write_bytes(content[:place])


def _flipped(file: Path, content: bytes, place: int) -> None:
    file.write_bytes(content[:place] + bytes([content[place] ^ 64]) + content[place + 1 :])


def _replaced(file: Path, content: bytes, place: int) -> None:
    """Put a strange value into a metadata file, or strange bytes into any other file."""
    with contextlib.suppress(ValueError):
        values = json.loads(content)
        values[list(values)[place % len(values)]] = STRANGE[place % len(STRANGE)]
        content = json.dumps(values).encode()
        place = 0
    file.write_bytes(content[:place] + b"\xff{\0" * (place > 0) + content[place:])


def _hostile(file: Path, _content: bytes, place: int) -> None:
    put(HOSTILE[place % len(HOSTILE)], file)


def _folder(file: Path, _content: bytes, _place: int) -> None:
    file.unlink()
    file.mkdir()


def _loop(file: Path, _content: bytes, _place: int) -> None:
    file.unlink()
    file.symlink_to(file)


CHANGES = [_cut, _flipped, _replaced, _hostile, _folder, _loop]
OF_A_CACHE = [
    ("scan", "CACHE"),
    ("scan", "CACHE", "--json"),
    ("scan", "CACHE", "--gpu", "h100,mi300x", "--csv"),
    ("check", "n_regs < 255", "CACHE", "--failures", "ok"),
    ("check", "--scan", "occupancy > 0.1", "CACHE", "--json"),
    ("diff", "GOOD", "CACHE"),
    ("diff", "CACHE", "GOOD", "--json"),
]


@ANY_ROWS
@given(
    change=st.sampled_from(CHANGES),
    words=st.sampled_from(OF_A_CACHE),
    places=st.tuples(st.integers(0, 1000), st.integers(0, 100_000)),
)
def test_any_entry_of_a_cache_is_answered(
    cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
    *,
    change: Callable[[Path, bytes, int], None],
    words: tuple[str, ...],
    places: tuple[int, int],
) -> None:
    """scan, check and diff handle a cache with a damaged file."""
    copied = tmp_path_factory.mktemp("copied") / "cache"
    shutil.copytree(cache, copied)
    files = sorted(one for one in copied.rglob("*") if one.is_file())
    file = files[places[0] % len(files)]
    content = file.read_bytes()
    change(file, content, places[1] % max(len(content), 1))
    answered(words, CACHE=copied, GOOD=cache)
    shutil.rmtree(copied)
