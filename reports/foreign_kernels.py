"""Calls of public Triton kernels, in small sizes, for record_launches.py and record_scan.py.

A group is a generator of pairs of a name and a function that makes the call. Nothing is measured
here, and results are not checked.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
import random as shuffler
import sys
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Trials = Iterator[tuple[str, Callable[[], Any]]]


DEVICE = "cuda"
TUTORIALS = Path("tutorials")
"""The folder python/tutorials of the installed Triton's version."""


NO = False
"""An argument of functions that take it only by position."""
SHORT = (512,)
"""The numbers of rows that are tried in every way."""


def tutorial(number: str) -> Any:
    """Import a tutorial, which runs its examples on import, but none of its benchmarks."""
    import triton

    class Unmeasured:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __call__(self, _function: Any) -> Any:
            return self

        def run(self, *_: Any, **__: Any) -> None:
            pass

    triton.testing.perf_report = Unmeasured
    with contextlib.suppress(AttributeError, ImportError):
        from triton._C.libtriton import nvidia

        nvidia.cublas.CublasLt = Unmeasured  # tutorial 9 compares itself with it
    (path,) = TUTORIALS.glob(f"{number}-*.py")
    name = f"tutorial_{number}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path.resolve())
        if spec is None or spec.loader is None:
            raise ImportError(path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)  # in sys.modules even if the end of it fails
    return sys.modules[name]


def random(*shape: int, dtype: Any = torch.float16, grad: bool = False) -> Any:
    """Return a random tensor on the GPU."""
    made = torch.randn(shape, device=DEVICE, dtype=torch.float32).to(dtype)
    return made.requires_grad_(grad)


def backward(outputs: Any) -> None:
    """Run the backward pass of the first differentiable one of *outputs*, or of all of them."""
    found = outputs if isinstance(outputs, tuple | list) else (outputs,)
    found = [one for one in found if isinstance(one, torch.Tensor) and one.requires_grad]
    if found:
        torch.autograd.backward(found, [torch.ones_like(one) for one in found])


def both(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Callable[[], Any]:
    """Return a call of *function* forward and backward; each shape in *arguments* is a tensor."""

    def call() -> None:
        made = [one() if callable(one) else one for one in arguments]
        backward(function(*made, **keywords))

    return call


def small_tutorials() -> Trials:
    """Tutorials 1, 2, 4, 7 and 11, and 1 in other dtypes, block sizes and numbers of warps."""
    for number in ("01", "02", "04", "07", "11"):
        yield f"tutorial {number} as it runs", partial(tutorial, number)

    def add(dtype: Any, size: int, offset: int, **options: Any) -> None:
        x = random(size + offset, dtype=dtype)[offset:]
        block = options.pop("block")
        tutorial("01").add_kernel[(-(-size // block),)](
            x, x, torch.empty_like(x), size, BLOCK_SIZE=block, **options
        )

    for dtype, size, offset in (
        (torch.float16, 4096, 0),
        (torch.bfloat16, 4097, 1),
        (torch.float64, 1, 0),
    ):
        for block, warps in ((256, 1), (4096, 8)):
            yield (
                f"tutorial 01 {dtype} {size} {offset} {block} {warps}",
                partial(add, dtype, size, offset, block=block, num_warps=warps),
            )
    yield (
        "tutorial 01 maxnreg",
        partial(add, torch.float32, 4096, 0, block=4096, num_warps=4, maxnreg=32),
    )
    yield "tutorial 01 num_ctas", partial(add, torch.float32, 4096, 0, block=1024, num_ctas=2)
    for cols, dtype in itertools.product((127, 1024, 5000), (torch.float32, torch.float16)):
        yield (
            f"tutorial 02 {cols} {dtype}",
            lambda cols=cols, dtype=dtype: tutorial("02").softmax(random(512, cols, dtype=dtype)),
        )
    for on in (False, True):
        yield (
            f"tutorial 11 launch_pdl {on}",
            lambda on=on: tutorial("11").add(random(5000), random(5000), launch_pdl=on),
        )


def layer_norm_tutorial() -> Trials:
    """Tutorial 5 forward and backward, and its forward with other warps, stages and clusters."""
    for cols, dtype in itertools.product((512, 1151, 8192), (torch.float16, torch.float32)):
        yield (
            f"tutorial 05 {cols} {dtype}",
            lambda cols=cols, dtype=dtype: tutorial("05").test_layer_norm(256, cols, dtype),
        )

    def forward(cols: int, **options: Any) -> None:
        x, w, y = random(64, cols), random(cols), random(64, cols)
        mean, rstd = random(64, dtype=torch.float32), random(64, dtype=torch.float32)
        kernel = tutorial("05")._layer_norm_fwd_fused  # noqa: SLF001 - what the tutorial launches
        kernel[(64,)](x, y, w, w, mean, rstd, x.stride(0), cols, 1e-5, **options)

    for block, warps, ctas in itertools.product((1024, 4096), (1, 4, 16), (1, 2, 4)):
        if ctas == 1 or warps == 4:  # noqa: PLR2004 - one number of warps is enough for clusters
            yield (
                f"tutorial 05 forward {block} {warps} {ctas}",
                partial(forward, 2048, BLOCK_SIZE=block, num_warps=warps, num_ctas=ctas),
            )


def matmul_tutorial() -> Trials:
    """Tutorial 3 with its autotuner, fp8, and with chosen blocks, warps, stages and clusters."""
    yield "tutorial 03 as it runs", partial(tutorial, "03")

    def relu() -> None:
        tutorial("03").matmul(random(512, 256), random(256, 320), activation="leaky_relu")

    yield "tutorial 03 leaky_relu", relu

    def one(dtype: Any, block: int, **options: Any) -> None:
        a, b, c = random(512, 512, dtype=dtype), random(512, 512, dtype=dtype), random(512, 512)
        kernel = tutorial("03").matmul_kernel.fn
        kernel[((512 // block) ** 2,)](
            *(a, b, c, 512, 512, 512, 512, 1, 512, 1, 512, 1),
            BLOCK_SIZE_M=block,
            BLOCK_SIZE_N=block,
            BLOCK_SIZE_K=64,
            GROUP_SIZE_M=8,
            ACTIVATION="",
            **options,
        )

    for dtype, block, warps, stages in (
        (torch.float16, 128, 8, 3),
        (torch.float16, 128, 4, 4),
        (torch.float16, 64, 4, 1),
        (torch.bfloat16, 64, 8, 5),
        (torch.float32, 32, 4, 2),
        (torch.float32, 64, 2, 3),
    ):
        yield (
            f"tutorial 03 {dtype} {block} {warps} {stages}",
            partial(one, dtype, block, num_warps=warps, num_stages=stages),
        )
    for ctas in (2, 4):
        yield (
            f"tutorial 03 num_ctas {ctas}",
            partial(one, torch.float16, 128, num_warps=4, num_stages=3, num_ctas=ctas),
        )


def attention_tutorial() -> Trials:
    """Tutorial 6 forward and backward with its autotuner."""

    def attend(head: int, *, causal: bool, specialize: bool, dtype: Any) -> None:
        q, k, v = (random(1, 2, 256, head, grad=dtype is torch.float16) for _ in range(3))
        if dtype is not torch.float16:
            q, k, v = (one.to(dtype) for one in (q, k, v.transpose(2, 3).contiguous()))
            v = v.transpose(2, 3)
        backward(tutorial("06").attention(q, k, v, causal, 0.5, specialize))

    for head, causal in itertools.product((64, 128), (True, False)):
        yield (
            f"tutorial 06 head {head} causal {causal}",
            partial(attend, head, causal=causal, specialize=False, dtype=torch.float16),
        )
    yield (
        "tutorial 06 fp8",
        partial(attend, 64, causal=True, specialize=False, dtype=torch.float8_e5m2),
    )
    yield (
        "tutorial 06 head 32",
        partial(attend, 32, causal=True, specialize=False, dtype=torch.float16),
    )


def grouped_tutorials() -> Trials:
    """Tutorials 8 and 10."""
    yield "tutorial 08 as it runs", partial(tutorial, "08")

    def scaled(kind: str) -> None:
        tutorial("10").validate_block_scaled(512, 512, 512, block_scale_type=kind)

    for kind in ("nvfp4", "mxfp8"):
        yield f"tutorial 10 {kind}", partial(scaled, kind)


def persistent_tutorial() -> Trials:
    """Tutorial 9: persistent matmuls with and without TMA descriptors, fp16 and fp8."""

    def call(name: str, dtype: Any, *further: Any) -> None:
        module = tutorial("09")
        a, b = random(512, 512).to(dtype), random(512, 512).to(dtype)
        takes_transposed = name in {"matmul", "matmul_persistent"}
        getattr(module, name)(a, b.T if takes_transposed else b, *further)

    for dtype, (name, *further) in itertools.product(
        (torch.float16, torch.float8_e4m3fn),
        (
            ("matmul",),
            ("matmul_persistent",),
            ("matmul_tma", False),
            ("matmul_tma_persistent", False),
            ("matmul_descriptor_persistent", False),
            ("matmul_tma_persistent", True),
            ("matmul_tma", True),
        ),
    ):
        yield (
            f"tutorial 09 {name} {dtype} {' '.join(map(str, further))}",
            partial(call, name, dtype, *further),
        )


def liger(name: str) -> Callable[..., Any]:
    """Return the function of Liger's autograd function *name*."""

    def apply(*arguments: Any) -> Any:
        from liger_kernel import ops

        return getattr(ops, f"Liger{name}Function").apply(*arguments)

    return apply


def _tensor(*shape: int, dtype: Any = torch.bfloat16, grad: bool = True) -> Callable[[], Any]:
    return partial(random, *shape, dtype=dtype, grad=grad)


def _classes(count: int, most: int) -> Callable[[], Any]:
    return lambda: torch.randint(0, most, (count,), device=DEVICE)


def liger_norms() -> Trials:
    """Normalizations of Liger, forward and backward."""
    for cols, dtype in itertools.product((512, 1000, 4096), (torch.bfloat16, torch.float32)):
        x, w = _tensor(64, cols, dtype=dtype), _tensor(cols, dtype=dtype)
        for casting in ("llama", "gemma", "none") if cols in SHORT else ("llama",):
            yield (
                f"rms_norm {cols} {dtype} {casting}",
                both(liger("RMSNorm"), x, w, 1e-6, 0.0, casting, NO),
            )
        yield f"layer_norm {cols} {dtype}", both(liger("LayerNorm"), x, w, w, 1e-5)
        yield (
            f"fused_add_rms_norm {cols} {dtype}",
            both(liger("FusedAddRMSNorm"), x, x, w, 1e-6, 0.0, "llama", NO),
        )
    for groups in (4, 8):
        yield (
            f"group_norm {groups}",
            both(
                *(liger("GroupNorm"), _tensor(4, 32, 64), _tensor(32), _tensor(32)),
                *(32, groups, 1e-5),
            ),
        )
    scale, cols = _tensor(1), 1024
    yield "dyt", both(liger("DyT"), _tensor(64, cols), scale, _tensor(cols), _tensor(cols))
    yield "poly_norm", both(liger("PolyNorm"), _tensor(64, cols), _tensor(3), scale, 1e-6, NO)


def liger_activations(x: Callable[[], Any], name: str) -> Trials:
    """Activations and the softmax of Liger on *x*, forward and backward."""
    yield f"swiglu {name}", both(liger("SiLUMul"), x, x)
    yield f"geglu {name}", both(liger("GELUMul"), x, x)
    yield f"relu_squared {name}", both(liger("ReLUSquared"), x)
    yield f"softmax {name}", both(liger("Softmax"), x)


def liger_rotary(
    made: Callable[..., Any], heads: tuple[int, int], tokens: int, head: int, name: str
) -> Trials:
    """Rotary embeddings of Liger on tensors of *made*; *heads* are those of queries and keys."""
    angle = made(1, tokens, head, grad=False)
    q, k = (made(2, count, tokens, head) for count in heads)
    yield f"rope {name}", both(liger("Rope"), q, k, angle, angle)
    angles = made(3, 2, tokens, head, grad=False)
    section = [head // 8, head // 16 * 3, head // 16 * 3]
    yield f"qwen2vl_mrope {name}", both(liger("Qwen2VLMRope"), q, k, angles, angles, section)


def liger_pointwise() -> Trials:
    """Activations and rotary embeddings of Liger, forward and backward."""
    for cols, dtype in itertools.product((512, 1000, 8192), (torch.bfloat16, torch.float32)):
        x = _tensor(64, cols, dtype=dtype)
        yield from liger_activations(x, f"{cols} {dtype}")
        yield f"sparsemax {cols} {dtype}", both(liger("Sparsemax"), x, -1)
    for head, heads in ((64, 4), (128, 8)):
        yield from liger_rotary(_tensor, (heads, heads // 2), 128, head, str(head))


def liger_divergences(
    x: Callable[[], Any], chance: Callable[[], Any], name: str, *, log_target: bool
) -> Trials:
    """Losses of Liger between two distributions, forward and backward."""
    yield f"kl_div {name}", both(liger("KLDivLoss"), x, chance, "batchmean", log_target)
    yield f"jsd {name}", both(liger("JSD"), x, chance, None, 0.5)
    yield f"tvd {name}", both(liger("TVDLoss"), x, chance)


def liger_losses() -> Trials:
    """Losses of Liger, forward and backward."""
    for most, dtype in itertools.product((1000, 4096, 32768), (torch.bfloat16, torch.float32)):
        x, y = _tensor(64, most, dtype=dtype), _classes(64, most)
        yield f"cross_entropy {most} {dtype}", both(liger("CrossEntropy"), x, y, None)
        yield (
            f"cross_entropy smoothed {most} {dtype}",
            both(liger("CrossEntropy"), x, y, None, -100, 1e-4, 0.1, "mean", 30.0),
        )
        chance = _tensor(64, most, dtype=dtype, grad=False)
        yield from liger_divergences(x, chance, f"{most} {dtype}", log_target=True)
    weight, x = _tensor(4096, 256), _tensor(64, 256)
    yield (
        "fused_linear_cross_entropy",
        both(liger("FusedLinearCrossEntropy"), x, weight, _classes(64, 4096)),
    )
    yield "fused_linear_jsd", both(liger("FusedLinearJSD"), x, weight, x, weight)


PER_HEAD = {
    *("beta", "log_alpha", "log_mu", "g_atk", "beta_atk", "delta", "eta"),
}
"""Arguments of flash-linear-attention that are one number per token and head."""
GATED_PER_HEAD = (
    *("simple_gla", "gated_delta", "forgetting", "comba", "mesa", "log_linear", "cyfa"),
)
"""Operations whose gate `g` is such an argument too."""
OPTIONAL = {
    "simple_gla": ("g",),
    "recurrent_gla": ("gk",),
    "gated_delta_rule": ("g", "beta"),
    "delta_rule": ("beta",),
    "comba": ("beta",),
    "gsa": ("g",),
}
"""Optional arguments that an operation is given."""


FLA_SIZES = (2, 256, 2)
"""Batch, tokens and heads of the arguments of flash-linear-attention."""


def fla_argument(operation: str, name: str, head: int, dtype: Any) -> Any:
    """Return the argument *name* of an operation of flash-linear-attention."""
    batch, tokens, heads = FLA_SIZES
    full = (batch, tokens, heads, head)
    if name in {"layer_idx", "num_layers"}:
        return {"layer_idx": 1, "num_layers": 4}[name]
    if name == "beta" or name in PER_HEAD:
        made = random(batch, tokens, heads, dtype=dtype).sigmoid()
    elif name == "g" and any(word in operation for word in GATED_PER_HEAD):
        made = torch.nn.functional.logsigmoid(random(batch, tokens, heads, dtype=torch.float32))
    elif name in {"g", "gk", "w"}:
        made = torch.nn.functional.logsigmoid(random(*full, dtype=torch.float32)).to(dtype)
    elif name in {"u", "lamb"}:
        made = random(heads, head, dtype=dtype).abs() + 1
    elif name == "s":
        made = random(batch, tokens, heads, 64, dtype=dtype)
    elif name == "level_scales":
        made = random(batch, tokens, heads, 9, dtype=dtype).abs()
    else:
        made = torch.nn.functional.normalize(random(*full, dtype=torch.float32), dim=-1).to(dtype)
    return made.detach().requires_grad_()


def fla_call(operation: str, head: int, dtype: Any, tokens: int | None = None) -> None:
    """Call an operation of flash-linear-attention by its name, forward and backward."""
    import fla.ops

    function = getattr(fla.ops, operation)
    needed = [
        name
        for name, one in inspect.signature(function).parameters.items()
        if one.default is inspect.Parameter.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    for word, further in OPTIONAL.items():
        if word in operation:
            needed += [name for name in further if name not in needed]
            break
    arguments = {name: fla_argument(operation, name, head, dtype) for name in needed}
    if tokens:
        arguments = {
            name: one[:, :tokens].detach().requires_grad_()
            if isinstance(one, torch.Tensor) and one.dim() > 2  # noqa: PLR2004 - it has tokens
            else one
            for name, one in arguments.items()
        }
    backward(function(**arguments))


def fla(*operations: str, heads: tuple[int, ...] = (64, 128)) -> Callable[[], Trials]:
    """Return a group of operations of flash-linear-attention."""

    def group() -> Trials:
        for head, operation in itertools.product(heads, operations):
            yield f"{operation} {head}", partial(fla_call, operation, head, torch.bfloat16)
        for operation in operations:
            yield (
                f"{operation} fp32 of 100 tokens",
                partial(fla_call, operation, 32, torch.float32, 100),
            )

    return group


def fla_layer(name: str, shape: tuple[int, ...], count: int, *sizes: Any, **more: Any) -> None:
    """Run a layer of flash-linear-attention, built with *sizes*, on *count* tensors of *shape*."""
    import fla.modules

    layer = getattr(fla.modules, name)(*sizes, **more).to(DEVICE, torch.bfloat16)
    backward(layer(*(random(*shape, dtype=torch.bfloat16, grad=True) for _ in range(count))))


def fla_row_layers(shape: tuple[int, int, int]) -> Trials:
    """Layers of flash-linear-attention over the last dimension of *shape*."""
    size, layer = shape[-1], fla_layer
    yield f"LayerNorm {size}", partial(layer, "LayerNorm", shape, 1, size)
    yield f"RMSNorm {size}", partial(layer, "RMSNorm", shape, 1, size)
    yield f"FusedRMSNormGated {size}", partial(layer, "FusedRMSNormGated", shape, 2, size)
    convolution = partial(layer, "ShortConvolution", shape, 1, size, 4, activation="silu")
    yield f"ShortConvolution {size}", convolution


def fla_modules() -> Trials:
    """Layers of flash-linear-attention, forward and backward."""
    for size in (64, 512, 2048):
        yield from fla_row_layers((2, 128, size))
    yield "GroupNorm", partial(fla_layer, "GroupNorm", (2, 128, 512), 1, 4, 512)
    yield "RotaryEmbedding", partial(fla_layer, "RotaryEmbedding", (2, 128, 4, 64), 2, 64)
    yield "L2Norm", partial(fla_layer, "L2Norm", (2, 128, 64), 1)


class Block(torch.nn.Module):
    """A block of a small transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList([torch.nn.RMSNorm(width), torch.nn.LayerNorm(width)])
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width)
        self.gate = torch.nn.Linear(width, 8 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """Apply the attention and the feed-forward part."""
        batch, tokens, width = x.shape
        split = self.qkv(self.norms[0](x)).view(batch, tokens, 3, self.heads, -1)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) / (width // self.heads) ** 0.5
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width))
        gate, up = self.gate(self.norms[1](x)).chunk(2, -1)
        return x + torch.nn.functional.dropout(
            self.down(torch.nn.functional.silu(gate) * up), 0.1, self.training
        )


class Transformer(torch.nn.Module):
    """A small transformer with its loss."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(1000, width)
        self.blocks = torch.nn.ModuleList([Block(width, 4) for _ in range(layers)])
        self.head = torch.nn.Linear(width, 1000)

    def forward(self, tokens: Any) -> Any:
        """Return the loss of predicting each next token."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)[:, :-1].flatten(0, 1).float()
        return torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())


def compiled(function: Any, *arguments: Any, **options: Any) -> Callable[[], Any]:
    """Return a call of the *function* compiled by torch.compile, forward and backward."""

    def call() -> None:
        torch._dynamo.reset()  # noqa: SLF001 - as PyTorch's own tests begin
        made = [one() if callable(one) else one for one in arguments]
        backward(torch.compile(function, **options)(*made))

    return call


def inductor_transformer() -> Trials:
    """A training step of a small transformer under torch.compile."""
    for width, dtype, tokens in (
        (256, torch.bfloat16, 128),
        (192, torch.float32, 100),
        (1024, torch.float16, 512),
    ):

        def step(width: int = width, dtype: Any = dtype, tokens: int = tokens) -> None:
            torch._dynamo.reset()  # noqa: SLF001 - as PyTorch's own tests begin
            model = Transformer(width, 1).to(DEVICE, dtype)
            optimizer = torch.optim.AdamW(model.parameters(), fused=False)
            given = torch.randint(0, 1000, (2, tokens), device=DEVICE)
            torch.compile(model)(given).backward()
            if width == 256:  # noqa: PLR2004 - one is enough
                torch.compile(optimizer.step)()

        yield f"transformer {width} {dtype}", step


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: x.softmax(-1),
    "var_mean": lambda x: torch.var_mean(x, -1),
    "cumsum": lambda x: x.cumsum(-1),
    "logsumexp of all": lambda x: x.logsumexp((0, 1)),
    "argmax": lambda x: x.argmax(-1),
    "gelu of the transpose": lambda x: torch.nn.functional.gelu(x.T.contiguous() + 1),
    "norm of columns": lambda x: x.norm(dim=0),
    "max_pool": lambda x: torch.nn.functional.max_pool2d(x[None, None], 3),
    "interpolate": lambda x: torch.nn.functional.interpolate(
        x[None, None], scale_factor=0.5, mode="bilinear"
    ),
    "sort": lambda x: x[:, :256].sort(-1).values,
    "rand": lambda x: x * torch.rand_like(x),
    "index": lambda x: x[torch.arange(63, -1, -1, device=x.device)] * 2,
}


def inductor_operations() -> Trials:
    """Reductions, scans and pointwise operations under torch.compile, static and dynamic."""
    x, big = _tensor(64, 1000), _tensor(512, 4096, dtype=torch.float32)
    for name, function in OPERATIONS.items():
        yield name, compiled(function, x)
        yield f"{name}, large", compiled(function, big)
    yield "softmax of any size", compiled(OPERATIONS["softmax"], x, dynamic=True)


def attend(*shape: int) -> None:
    """Run flex-attention under torch.compile, forward and backward, on tensors of *shape*."""
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.reset()  # noqa: SLF001 - as PyTorch's own tests begin
    q, k, v = (random(*shape, dtype=torch.bfloat16, grad=True) for _ in range(3))
    backward(torch.compile(flex_attention)(q, k, v, lambda s, *_: s * 0.5))


def inductor_matmuls() -> Trials:
    """Triton's matmul templates and flex-attention under torch.compile."""
    for head in (64, 128):
        yield f"flex_attention {head}", partial(attend, 1, 2, 256, head)
    options = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}
    for dtype, function in itertools.product(
        (torch.bfloat16, torch.float32),
        (lambda a: (a @ a).relu(), lambda a: torch.bmm(a.view(8, 64, -1), a.view(8, -1, 64))),
    ):
        yield (
            f"matmul {dtype}",
            compiled(function, _tensor(512, 512, dtype=dtype, grad=False), options=options),
        )


GROUPS: dict[str, Callable[[], Any]] = {
    "triton: 3": matmul_tutorial,
    "triton: 9": persistent_tutorial,
    "triton: 6": attention_tutorial,
    "inductor: transformer": inductor_transformer,
    "fla: delta_rule": fla("chunk_delta_rule", "fused_recurrent_delta_rule"),
    "fla: gla": fla("chunk_gla", "fused_recurrent_gla"),
    "fla: gated_delta_rule": fla("chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule"),
    "liger: losses": liger_losses,
    "liger: norms": liger_norms,
    "triton: 5": layer_norm_tutorial,
    "triton: small": small_tutorials,
    "fla: simple_gla": fla("chunk_simple_gla", "parallel_simple_gla", heads=(64,)),
    "fla: kda": fla("chunk_kda", "fused_recurrent_kda", heads=(64,)),
    "inductor: matmuls": inductor_matmuls,
    "inductor: operations": inductor_operations,
    "liger: pointwise": liger_pointwise,
    "triton: 8, 10": grouped_tutorials,
    "fla: attention": fla("parallel_attn", "parallel_forgetting_attn", "parallel_based"),
    "fla: rwkv": fla("chunk_rwkv7", "fused_recurrent_rwkv6", "chunk_rwkv6", heads=(64,)),
    "fla: linear": fla("chunk_linear_attn", "fused_chunk_linear_attn", "chunk_retention"),
    "fla: gsa": fla("chunk_gsa", "chunk_abc", "fused_recurrent_hgrn", heads=(64,)),
    "fla: generalized": fla("chunk_dplr_delta_rule", "chunk_iplr_delta_rule", heads=(64,)),
    "fla: modules": fla_modules,
    "fla: comba": fla("chunk_comba", "chunk_mesa_net", "parallel_path_attn", heads=(64,)),
}
"""The groups, the most wanted first."""


PACKAGES = {
    "fla": "fla-core",
    "liger_kernel": "liger-kernel",
    "torch": "torch",
    "triton": "triton",
    "tutorial": "triton",
    "tutorials": "triton",
}
"""The packages of the modules that kernels come from."""


def package_words(module: str) -> str:
    """Return the package of a top-level *module* with its version."""
    package = PACKAGES.get(module, "torch")
    with contextlib.suppress(PackageNotFoundError):
        return f"{package} {version(package)}"
    return package


def package_of(function: Any) -> str:
    """Return the package of a kernel with its version."""
    module = str(getattr(function, "__module__", ""))
    if module.startswith("tutorial_"):
        return f"{package_words('tutorial')} {module.replace('_', ' ')}"
    if module == "work_kernels":
        return "own"
    return package_words(module.split(".", maxsplit=1)[0])


@contextlib.contextmanager
def few_configurations(most: int) -> Iterator[None]:
    """Limit every autotuner to *most* of its configurations, spread over all, each run once."""
    from triton.runtime import Autotuner

    prune = Autotuner.prune_configs

    def fewer(tuner: Any, keywords: Any) -> Any:
        left = prune(tuner, keywords)
        return left[:: max(1, -(-len(left) // most))]

    def once(call: Callable[[], Any], **_: Any) -> list[float]:
        call()
        return [1.0, 1.0, 1.0]

    with (
        mock.patch.object(Autotuner, "prune_configs", fewer),
        mock.patch.object(Autotuner, "do_bench", property(lambda _: once)),
    ):
        yield


def chosen_groups(parts: str) -> list[str]:
    """Return the groups whose names have one of *parts*, which commas separate."""
    return [group for group in GROUPS if any(part in group for part in parts.split(","))]


def call_all(
    group: str, before: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[str, str]]:
    """Call all of *group*; yield each call's name and why it failed, or "" if it did not.

    *before* gets each name before its call. The order is shuffled with a fixed seed, so that a
    group that does not finish has covered some of each kind.
    """
    trials = list(GROUPS[group]())
    shuffler.Random(0).shuffle(trials)  # noqa: S311 - nothing secret
    for trial, call in trials:
        before(trial)
        try:
            call()
            torch.cuda.synchronize()
            why = ""
        except Exception as error:  # noqa: BLE001 - it is named
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"[:200]
        yield trial, why
        if "CUDA error" in why:  # no later launch of this process would work
            return
