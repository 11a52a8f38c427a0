"""The L2 cache is emptied between timed launches, also of lines loaded with evict_last."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from occupancy_lab.measuring.l2 import FLUSH_BYTES, LINE_BYTES, LINES, Flush, demote_kernel
from occupancy_lab.measuring.measure import keeps_lines
from occupancy_lab.measuring.process import TimedLaunch
from occupancy_lab.values import Config

CONFIG = Config(1024, 4, 1)
KEEPING = """
import dataclasses

import triton
import triton.language as tl

from occupancy_lab.kernels import softmax_row


@triton.heuristics({})
@triton.jit
def kernel(x_ptr):
    tl.load(x_ptr, eviction_policy="evict_last")


KERNEL = dataclasses.replace(softmax_row.KERNEL, function=kernel)
"""


@pytest.mark.parametrize("capability", [80, 90, 100, 120])
def test_lines_are_demoted_by_the_instruction_for_it(capability: int) -> None:
    """The kernel compiles to one instruction for each line of a thread."""
    signature = dict.fromkeys(("LINES", "LINE_BYTES"), "constexpr")
    constants = {(2,): LINES, (3,): LINE_BYTES}
    source = ASTSource(demote_kernel, {"start": "i64", "lines": "i32"} | signature, constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    assert compiled.asm["ptx"].count("applypriority") == LINES // 128
    assert compiled.asm["cubin"]


def test_who_asks_the_cache_to_keep_lines(tmp_path: Path) -> None:
    """Only torch.compile and kernels whose file mentions it keep lines."""
    file = tmp_path / "keeping.py"
    file.write_text(KEEPING, encoding="utf-8")
    assert keeps_lines(TimedLaunch("torch.compile"))
    assert keeps_lines(TimedLaunch(str(file), CONFIG, 1))
    for name in ("copy", "torch", "naive", "liger", "quack"):
        assert not keeps_lines(TimedLaunch(name))
    for name in ("softmax", "softmax_row", "softmax_pieces", "softmax_naive"):
        assert not keeps_lines(TimedLaunch(name, CONFIG, 1))


def test_what_is_kept_is_demoted_before_the_cache_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kept tensors are demoted if possible, then the cache is written."""
    order: list[object] = []
    monkeypatch.setattr(Flush, "_demote", staticmethod(order.append))
    flush = Flush.__new__(Flush)
    flush._written = SimpleNamespace(zero_=lambda: order.append("written"))  # type: ignore[assignment] # of a GPU
    for flush._demotes in (True, False):
        flush(("a", "b"))  # type: ignore[arg-type] # nothing looks into them
    assert order == ["a", "b", "written", "written"]


@pytest.mark.gpu
def test_emptying_changes_nothing_that_is_kept() -> None:
    """Tensors at any address keep their values, and the cache is written."""
    whole = torch.randn(100_003, device="cuda")
    copy = whole.clone()
    flush = Flush()
    flush((whole, whole[5:77], whole[:0]))
    assert torch.equal(whole, copy)
    assert torch.cuda.get_device_properties(0).L2_cache_size * 2 <= FLUSH_BYTES
