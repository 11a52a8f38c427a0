"""Draws programs whose steps run on the GPU and on the CPU, which must agree.

`python drawn_program.py NUMBER FILE` draws NUMBER of them, and writes to FILE each grid with which
it launched its kernel, and how often. It is run dry by test_drawn_programs.py.
"""

import collections
import json
import math
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DTYPES = (
    *(torch.float32, torch.float16, torch.bfloat16, torch.float64),
    *(torch.int64, torch.int32, torch.uint8, torch.bool),
)
UNARY = (
    *("abs", "neg", "sign", "exp", "sqrt", "relu", "floor", "logical_not", "bitwise_not", "isnan"),
    *("sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin", "count_nonzero"),
    *("nonzero", "unique", "flatten", "t", "tril", "clone", "contiguous", "zeros_like", "numel"),
    *("ones_like", "sort", "diff", "squeeze", "isfinite", "logsumexp", "std", "median", "trace"),
)
ALONG = (
    *("sum", "mean", "amax", "amin", "any", "all", "argmax", "cumsum", "cumprod", "softmax"),
    *(
        "sort",
        "argsort",
        "max",
        "min",
        "prod",
        "unsqueeze",
        "log_softmax",
        "norm",
        "flip",
        "unbind",
    ),
)
BINARY = (
    *("add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "maximum", "minimum", "eq"),
    *("lt", "ge", "logical_and", "logical_or", "bitwise_and", "bitwise_or", "bitwise_xor", "atan2"),
    *("matmul", "cat", "stack", "outer", "allclose", "equal", "isin", "dot"),
    *("searchsorted", "hypot", "fmod", "expand_as", "broadcast_tensors", "kron", "where", "cdist"),
)
IN_PLACE = ("add_", "mul_", "copy_", "sub_", "bitwise_and_", "fill_", "masked_fill_", "clamp_")
MOST = 1000
"""The most elements of a tensor: larger ones are not kept."""
LAUNCHED: collections.Counter[int] = collections.Counter()


@triton.jit  # type: ignore[untyped-decorator] # Triton has no types
def add(x: Any, n: int, BLOCK: tl.constexpr) -> None:  # noqa: N803 - as Triton's users write it
    """Add 1 to *n* numbers."""
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + where, tl.load(x + where, mask=where < n) + 1, mask=where < n)


@dataclass(eq=False)
class Pair:
    """A tensor on the GPU, and the same tensor on the CPU."""

    gpu: torch.Tensor
    cpu: torch.Tensor

    @property
    def storage(self) -> int:
        """The object that identifies the storage."""
        return self.cpu.untyped_storage().data_ptr()


class Program:
    """A program that is drawn step by step."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.pairs: list[Pair] = []
        self.unknown: dict[int, Any] = {}
        """The storages that a kernel wrote to, and what was made of them, by their addresses."""

    def draw(self, strategy: Any) -> Any:
        """Draw a value from a strategy."""
        return self.data.draw(strategy)

    def some(self) -> Pair:
        """Return one of the pairs."""
        return self.draw(st.sampled_from(self.pairs))

    def forget(self, pair: Pair) -> None:
        """Mark the values in the pair's storage as not known."""
        self.unknown[pair.storage] = pair.cpu.untyped_storage()

    def make(self) -> None:
        """Make a tensor on both devices."""
        shape = self.draw(st.lists(st.integers(0, 4), max_size=3))
        dtype = self.draw(st.sampled_from(DTYPES))
        size = math.prod(shape)
        numbers = self.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
        cpu = torch.tensor(numbers, dtype=dtype).reshape(shape)
        gpu = torch.tensor(numbers, dtype=dtype, device="cuda").reshape(shape)
        self.pairs.append(Pair(gpu, cpu))

    def same(self, call: Any, *pairs: Pair) -> None:
        """Call *call* with *pairs* on both devices, and compare."""
        unknown = any(pair.storage in self.unknown for pair in pairs)
        shapes = [tuple(pair.cpu.shape) for pair in pairs]
        try:
            of_cpu = call(*(pair.cpu for pair in pairs))
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            return  # the CPU may lack a kernel that a GPU has
        of_gpu = call(*(pair.gpu for pair in pairs))
        for gpu, cpu in zip(_leaves(of_gpu), _leaves(of_cpu), strict=not unknown):
            if not isinstance(cpu, torch.Tensor):
                assert unknown or gpu == cpu, (gpu, cpu, shapes)
                continue
            assert gpu.is_cuda, gpu.device
            assert gpu.dtype == cpu.dtype, (gpu.dtype, cpu.dtype)
            pair = Pair(gpu, cpu)
            if unknown and gpu.shape != cpu.shape:  # as values differ from run to run
                pair = Pair(torch.empty_like(cpu, device="cuda"), cpu)
            if unknown:
                self.forget(pair)
            assert _place(pair.gpu) == _place(cpu), (shapes, gpu.dtype)
            if not unknown:
                torch.testing.assert_close(gpu.cpu(), cpu, equal_nan=True)
            if cpu.numel() <= MOST:
                self.pairs.append(pair)

    def unary(self) -> None:
        """Do an operation on one tensor."""
        name = self.draw(st.sampled_from(UNARY))
        self.same(
            lambda x: getattr(x, name)() if hasattr(x, name) else getattr(torch, name)(x),
            self.some(),
        )

    def along(self) -> None:
        """Do an operation along a dimension."""
        name, dim = self.draw(st.sampled_from(ALONG)), self.draw(st.integers(-2, 2))
        if name == "flip":
            self.same(lambda x: x.flip([dim]), self.some())
        elif "softmax" in name:  # without elements, the CPU accepts other types too
            self.same(lambda x: getattr(x.float(), name)(dim=dim), self.some())
        else:
            self.same(lambda x: getattr(x, name)(dim=dim), self.some())

    def binary(self) -> None:
        """Do an operation on two tensors, or on a tensor and a number."""
        name, left = self.draw(st.sampled_from(BINARY)), self.some()
        function = getattr(torch, name, None) or getattr(torch.Tensor, name)
        if name in {"cat", "stack"}:
            self.same(lambda x, y: function([x, y]), left, self.some())
        elif name == "where":
            self.same(lambda x, y: function(x > 1, x, y), left, self.some())
        elif self.draw(st.booleans()):
            self.same(function, left, self.some())
        else:
            number = self.draw(st.sampled_from([0, 1, 3, 2.5, True]))
            turned = self.draw(st.booleans())
            self.same(lambda x: function(number, x) if turned else function(x, number), left)

    def index(self) -> None:
        """Index a tensor with numbers, slices, masks or indices."""
        pair, other, place = self.some(), self.some(), self.draw(st.integers(-2, 2))
        how = self.draw(st.sampled_from(["number", "slice", "mask", "places", "last", "select"]))
        calls = {
            "number": lambda x, _: x[place],
            "slice": lambda x, _: x[place::2],
            "mask": lambda x, _: x[x > 1],
            "places": lambda x, y: x[_tame(y).long() % max(len(x), 1)],
            "last": lambda x, _: x[..., -1:],
            "select": lambda x, y: x.index_select(0, _tame(y).long().flatten() % max(len(x), 1)),
        }
        self.same(calls[how], pair, other)

    def reshape(self) -> None:
        """View a tensor with another shape or dtype."""
        dtype, pair = self.draw(st.sampled_from(DTYPES)), self.some()
        calls = (
            lambda x: x.reshape(-1),
            lambda x: x.transpose(0, -1),
            lambda x: _tame(x).to(dtype),
            lambda x: x[None].expand(3, *x.shape),
            lambda x: x.unsqueeze(-1).repeat_interleave(2, -1),
            lambda x: torch.nn.functional.pad(x, (1, 2)),
            lambda x: torch.bincount(x.flatten()),
            lambda x: x.view(torch.uint8),
            lambda x: x.repeat(2, *[1] * x.dim()),
            lambda x: x.new_full((2, 3), 1),
            lambda x: torch.nn.functional.one_hot(_tame(x).long(), 12),
        )
        self.same(self.draw(st.sampled_from(calls)), pair)

    def change(self) -> None:
        """Change a tensor in place, and so every tensor that shares its storage."""
        pair, other = self.some(), self.some()
        name = self.draw(st.sampled_from([*IN_PLACE, "set", "scatter"]))
        number = self.draw(st.sampled_from([0, 1, 3]))
        if pair.cpu.numel() != pair.cpu.untyped_storage().nbytes() // pair.cpu.element_size():
            return  # an element may occur in it twice

        def call(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            match name:
                case "set":
                    x[_tame(y).long() % max(len(x), 1)] = number
                case "scatter":
                    x.index_fill_(0, _tame(y).long().flatten() % max(len(x), 1), number)
                case "masked_fill_":
                    x.masked_fill_(x > 1, number)
                case "fill_" | "clamp_":
                    getattr(x, name)(number)
                case _:
                    getattr(x, name)(_tame(y))
            return x

        if other.storage in self.unknown:
            self.forget(pair)
        try:
            call(pair.cpu.clone(), other.cpu)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            return
        self.same(call, pair, other)

    def gradient(self) -> None:
        """Compute the gradient of a layer."""
        name = self.draw(
            st.sampled_from(["gelu", "silu", "softplus", "normalize", "linear", "sdpa"])
        )
        dtype = self.draw(st.sampled_from([None, torch.bfloat16]))

        def call(x: torch.Tensor) -> torch.Tensor:
            x = x.detach().float().requires_grad_()
            with torch.autocast(x.device.type, dtype=dtype, enabled=dtype is not None):
                if name == "sdpa":
                    y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
                elif name == "linear":
                    y = torch.nn.functional.linear(x, torch.ones_like(x))
                else:
                    y = getattr(torch.nn.functional, name)(x)
            return torch.autograd.grad(y.float().square().sum(), x)[0].contiguous()

        self.same(call, self.some())

    def launch(self) -> None:
        """Launch the kernel with a grid that depends on a value, and write to that value."""
        pair = self.some()
        programs = 1 + int(self.known_sum(pair)) % 7
        if not pair.gpu.numel() or pair.cpu.dtype == torch.bool:
            return
        add[(programs,)](pair.gpu, pair.gpu.numel(), BLOCK=16)
        LAUNCHED[programs] += 1
        self.forget(pair)

    def known_sum(self, pair: Pair) -> int:
        """Return a number that the program reads from the GPU."""
        if pair.storage in self.unknown or pair.cpu.is_floating_point():
            return pair.cpu.numel()
        found = pair.gpu.sum().item()
        assert found == pair.cpu.sum().item()
        return int(found)


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a tensor's sizes and the strides that determine where its elements lie."""
    if not tensor.numel():
        return tuple(tensor.shape)
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple((size, stride if size > 1 else 0) for size, stride in pairs)


def _tame(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose values fit every dtype, so that conversions are well defined."""
    return tensor.nan_to_num(0, 9, 0).clamp(0, 9) if tensor.is_floating_point() else tensor


def _leaves(value: Any) -> list[Any]:
    return [*value] if isinstance(value, tuple | list) else [value]


def main() -> None:
    """Draw programs."""
    number, file = int(sys.argv[1]), Path(sys.argv[2])

    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(st.data())
    def drawn(data: st.DataObject) -> None:
        program = Program(data)
        program.make()
        steps = (
            *(program.make, program.unary, program.along, program.binary, program.index),
            *(program.reshape, program.change, program.gradient, program.launch),
        )
        for _ in range(data.draw(st.integers(1, 12))):
            data.draw(st.sampled_from(steps))()

    try:
        drawn()
    except BaseException:
        traceback.print_exc()
        raise
    file.write_text(json.dumps(LAUNCHED), encoding="utf-8")


if __name__ == "__main__":
    main()
