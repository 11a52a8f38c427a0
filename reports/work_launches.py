"""Launches of public Triton kernels in sizes of real models, for record_work.py.

A group is a generator of pairs of a name and a function that makes the call. The groups of
foreign_kernels.py have small sizes; most launches here take 5 us to 2 ms on an H100. The most
wanted trials come first. Nothing is measured here, and results are not checked.
"""

from __future__ import annotations

import functools
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import foreign_kernels as small
import torch
import work_kernels as own
from foreign_kernels import both, compiled, liger, random, tutorial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Trials = Iterator[tuple[str, Callable[[], Any]]]

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
FLA_SIZES = (4, 2048, 8)
"""Batch, tokens and heads in the calls of flash-linear-attention."""
MATMUL_CONFIGS = (
    (128, 256, 64, 3, 8),
    (128, 128, 32, 4, 4),
    (64, 128, 64, 4, 4),
    (128, 64, 32, 4, 4),
    (64, 32, 32, 5, 2),
)
"""Blocks of M, N and K, stages and warps: a selection of the tutorial's."""


@functools.lru_cache(maxsize=12)
def kept(*shape: int, dtype: Any = HALF, which: int = 0) -> Any:
    """Return a random tensor that trials share; tensors of one launch differ in *which*."""
    del which
    return random(*shape, dtype=dtype)


def tensor(*shape: int, dtype: Any = BRAIN, grad: bool = True) -> Callable[[], Any]:
    """Return a function that returns three shared random tensors in turn."""
    turns = itertools.cycle(range(3))

    def make() -> Any:
        return kept(*shape, dtype=dtype, which=next(turns)).detach().requires_grad_(grad)

    return make


def _multiply(sizes: tuple[int, int, int], dtype: Any, config: tuple[int, ...], **more: Any) -> Any:
    (m, n, k), (bm, bn, bk, stages, warps) = sizes, config
    a, b = kept(m, k, dtype=dtype), kept(k, n, dtype=dtype, which=1)
    if more.pop("transposed", False):
        b = kept(n, k, dtype=dtype, which=1).T
    c = torch.empty(m, n, device=a.device, dtype=HALF)
    kernel = tutorial("03").matmul_kernel.fn
    kernel[(-(-m // bm) * -(-n // bn),)](
        *(a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride()),
        BLOCK_SIZE_M=bm,
        BLOCK_SIZE_N=bn,
        BLOCK_SIZE_K=bk,
        GROUP_SIZE_M=more.pop("group", 8),
        ACTIVATION=more.pop("activation", ""),
        num_stages=stages,
        num_warps=warps,
    )


def matmul_half() -> Trials:
    """Tutorial 3 in float16: sizes times configurations."""
    sizes = [(n, n, n) for n in (4096, 1024, 2048, 777, 512)]
    sizes += [(8192, 1024, 4096), (1000, 3000, 2000), (128, 8192, 8192)]
    for config, size in itertools.product(MATMUL_CONFIGS, sizes):
        yield f"matmul {size} {config}", partial(_multiply, size, HALF, config)
    yield "matmul 8192", partial(_multiply, (8192,) * 3, HALF, MATMUL_CONFIGS[0])


def matmul_others() -> Trials:
    """Tutorial 3 in other dtypes, with an activation, transposed and in another order."""
    first, second, third = MATMUL_CONFIGS[:3]
    for dtype, config in (
        *((BRAIN, first), (BRAIN, second)),
        *((torch.float8_e4m3fn, (128, 256, 128, 3, 8)), (torch.float8_e5m2, second)),
        *((SINGLE, (64, 64, 32, 3, 4)), (SINGLE, (128, 64, 32, 3, 4))),
    ):
        for n in (4096, 2048, 1000):
            size = (n, n, n)
            yield f"matmul {dtype} {n} {config}", partial(_multiply, size, dtype, config)
    for options in ({"activation": "leaky_relu"}, {"transposed": True}, {"group": 1}):
        for n in (3072, 1536):
            call = partial(_multiply, (n, n, n), HALF, third, **options)
            yield f"matmul {n} {options}", call


def _attend(shape: tuple[int, ...], *, causal: bool) -> None:
    q, k, v = (random(*shape, grad=True) for _ in range(3))
    small.backward(tutorial("06").attention(q, k, v, causal, shape[-1] ** -0.5, NO))


NO = False
"""Arguments that are passed by position: no warp specialization, nothing in place."""


def attention(head: int) -> Callable[[], Trials]:
    """Return a group of tutorial 6 forward and backward."""

    def group() -> Trials:
        for tokens, causal in itertools.product((2048, 512, 4096, 1024), (True, False)):
            shape = (2, 16, tokens, head)
            yield f"attention {shape} causal {causal}", partial(_attend, shape, causal=causal)

    return group


def layer_norm() -> Trials:
    """Tutorial 5 forward and backward, and its forward with chosen blocks and warps."""

    def call(rows: int, cols: int, dtype: Any) -> None:
        x, w, b = (
            random(*shape, dtype=dtype, grad=True) for shape in ((rows, cols), (cols,), (cols,))
        )
        small.backward(tutorial("05").layer_norm(x, (cols,), w, b, 1e-5))

    def forward(cols: int, block: int, warps: int) -> None:
        rows = 8192
        x, w, y = kept(rows, cols), kept(cols), torch.empty(rows, cols, device="cuda", dtype=HALF)
        mean, rstd = (torch.empty(rows, device="cuda") for _ in range(2))
        kernel = tutorial("05")._layer_norm_fwd_fused  # noqa: SLF001 - what the tutorial launches
        kernel[(rows,)](
            x, y, w, w, mean, rstd, x.stride(0), cols, 1e-5, BLOCK_SIZE=block, num_warps=warps
        )

    for cols, dtype in ((4096, HALF), (1024, HALF), (8192, HALF), (5000, HALF), (4096, SINGLE)):
        rows = 2**25 // cols
        yield f"layer_norm {rows} {cols} {dtype}", partial(call, rows, cols, dtype)
    for cols, block, warps in itertools.product((4096, 5120), (1024, 4096), (4, 16)):
        yield f"layer_norm {cols} {block} {warps}", partial(forward, cols, block, warps)
    yield "layer_norm one warp", partial(forward, 2048, 2048, 1)


def simple_tutorials() -> Trials:
    """Tutorials 1, 2, 4, 7 and 11."""
    from triton import cdiv

    def add(dtype: Any, size: int, block: int, warps: int) -> None:
        x = kept(size, dtype=dtype)
        kernel = tutorial("01").add_kernel[(cdiv(size, block),)]
        y = kept(size, dtype=dtype, which=1)
        kernel(x, y, torch.empty_like(x), size, BLOCK_SIZE=block, num_warps=warps)

    for dtype, size, block, warps in (
        *((SINGLE, 2**24, 1024, 4), (HALF, 2**25, 4096, 8), (SINGLE, 10**7 + 1, 512, 4)),
        *((SINGLE, 2**20, 1024, 4), (BRAIN, 2**26, 1024, 4), (torch.float64, 2**23, 256, 1)),
    ):
        yield f"add {dtype} {size} {block} {warps}", partial(add, dtype, size, block, warps)
    for rows, cols, dtype in (
        *((16384, 1024, SINGLE), (4096, 781, SINGLE), (8192, 4096, HALF), (32768, 127, HALF)),
        *((2048, 16384, SINGLE), (65536, 256, BRAIN)),
    ):
        yield (
            f"softmax {rows} {cols} {dtype}",
            lambda shape=(rows, cols), dtype=dtype: tutorial("02").softmax(
                random(*shape, dtype=dtype)
            ),
        )
    for size in (2**22, 2**24):
        yield (
            f"dropout {size}",
            lambda size=size: tutorial("04").seeded_dropout(kept(size, dtype=SINGLE), 0.5, 123),
        )
        yield (
            f"dropout by a mask {size}",
            lambda size=size: tutorial("04").dropout(
                kept(size, dtype=SINGLE), (kept(size, dtype=SINGLE) > 0).to(torch.int32), 0.5
            ),
        )

    def arcsine(size: int) -> None:
        x = kept(size, dtype=SINGLE).clamp(-1, 1)
        kernel = tutorial("07").asin_kernel[(cdiv(size, 1024),)]
        kernel(x, torch.empty_like(x), size, BLOCK_SIZE=1024)

    yield "asin", partial(arcsine, 2**24)
    yield (
        "tutorial 11",
        lambda: tutorial("11").add(kept(2**24, dtype=SINGLE), kept(2**24, dtype=SINGLE, which=1)),
    )


def persistent(dtype: Any) -> Callable[[], Trials]:
    """Return a group of tutorial 9's matmuls of a dtype."""

    def call(name: str, sizes: tuple[int, int, int], *further: Any) -> None:
        m, n, k = sizes
        a, b = kept(m, k, dtype=dtype), kept(n, k, dtype=dtype, which=1)
        takes_transposed = name in {"matmul", "matmul_persistent"}
        getattr(tutorial("09"), name)(a, b.T if takes_transposed else b, *further)

    def group() -> Trials:
        sizes = ((4096, 4096, 2048), (1024, 1536, 4096), (8192, 2048, 512))
        for size, name in itertools.product(
            sizes,
            ("matmul_tma_persistent", "matmul", "matmul_persistent", "matmul_tma"),
        ):
            further = (NO,) if "tma" in name else ()
            yield f"{name} {dtype} {size}", partial(call, name, size, *further)
        yield (
            f"matmul_descriptor_persistent {dtype}",
            partial(call, "matmul_descriptor_persistent", sizes[0], NO),
        )

    return group


def grouped() -> Trials:
    """Tutorial 8 unchanged, and block-scaled products of tutorial 10."""
    yield from small.grouped_tutorials()


def liger_norms() -> Trials:
    """Normalizations of Liger, forward and backward."""
    for rows, cols, dtype in (
        *((8192, 4096, BRAIN), (16384, 1024, BRAIN), (2048, 8192, SINGLE), (4096, 5120, BRAIN)),
    ):
        x, w = tensor(rows, cols, dtype=dtype), tensor(cols, dtype=dtype)
        name = f"{rows} {cols} {dtype}"
        yield f"rms_norm {name}", both(liger("RMSNorm"), x, w, 1e-6, 0.0, "llama", NO)
        yield f"layer_norm {name}", both(liger("LayerNorm"), x, w, w, 1e-5)
        add_norm = liger("FusedAddRMSNorm")
        yield f"fused_add_rms_norm {name}", both(add_norm, x, x, w, 1e-6, 0.0, "llama", NO)
    for images, channels, pixels, groups in ((16, 256, 4096, 32), (8, 512, 1024, 8)):
        x, w = tensor(images, channels, pixels), tensor(channels)
        call = both(liger("GroupNorm"), x, w, w, channels, groups, 1e-5)
        yield f"group_norm {images} {channels} {pixels} {groups}", call
    x, w, one = tensor(8192, 4096), tensor(4096), tensor(1)
    yield "dyt", both(liger("DyT"), x, one, w, w)
    yield "poly_norm", both(liger("PolyNorm"), x, tensor(3), one, 1e-6, NO)


def liger_pointwise() -> Trials:
    """Activations, rotary embeddings and softmaxes of Liger, forward and backward."""
    for rows, cols, dtype in ((4096, 11008, BRAIN), (8192, 4096, BRAIN), (4096, 2048, SINGLE)):
        x = tensor(rows, cols, dtype=dtype)
        yield from small.liger_activations(x, f"{rows} {cols} {dtype}")
    yield "sparsemax", both(liger("Sparsemax"), tensor(4096, 1024), -1)
    for heads, tokens, head in ((32, 2048, 128), (16, 4096, 64)):
        name = f"{heads} {tokens} {head}"
        yield from small.liger_rotary(tensor, (heads, heads // 4), tokens, head, name)


def liger_losses() -> Trials:
    """Losses of Liger, forward and backward."""
    for rows, most, dtype in ((2048, 32000, BRAIN), (1024, 50257, BRAIN), (4096, 4096, SINGLE)):
        x, name = tensor(rows, most, dtype=dtype), f"{rows} {most} {dtype}"
        y = partial(torch.randint, 0, most, (rows,), device="cuda")
        yield f"cross_entropy {name}", both(liger("CrossEntropy"), x, y, None)
        chance = tensor(rows, most, dtype=dtype, grad=False)
        yield from small.liger_divergences(x, chance, name, log_target=False)
    weight, x = tensor(32000, 1024), tensor(2048, 1024)
    labels = partial(torch.randint, 0, 32000, (2048,), device="cuda")
    yield "fused_linear_cross_entropy", both(liger("FusedLinearCrossEntropy"), x, weight, labels)


def fla(*operations: str, heads: tuple[int, ...] = (64, 128)) -> Callable[[], Trials]:
    """Return a group of operations of flash-linear-attention."""

    def call(operation: str, head: int) -> None:
        small.FLA_SIZES = FLA_SIZES
        small.fla_call(operation, head, BRAIN)

    def group() -> Trials:
        for head, operation in itertools.product(heads, operations):
            yield f"{operation} {head}", partial(call, operation, head)

    return group


def fla_layers() -> Trials:
    """Layers of flash-linear-attention, forward and backward."""
    for size in (2048, 1024, 4096):
        yield from small.fla_row_layers((4, 2**22 // size, size))
    yield "RotaryEmbedding", partial(small.fla_layer, "RotaryEmbedding", (4, 2048, 16, 64), 2, 64)
    yield "L2Norm", partial(small.fla_layer, "L2Norm", (4, 2048, 1024), 1)


def transformer(width: int, dtype: Any, tokens: int) -> Callable[[], Trials]:
    """Return a training step of a small transformer under torch.compile."""

    def step() -> None:
        torch._dynamo.reset()  # noqa: SLF001 - as PyTorch's own tests begin
        model = small.Transformer(width, 1).to("cuda", dtype)
        given = torch.randint(0, 1000, (8, tokens), device="cuda")
        torch.compile(model)(given).backward()

    def group() -> Trials:
        yield f"transformer {width} {dtype} {tokens}", step

    return group


def operations(*names: str) -> Callable[[], Trials]:
    """Return a group of reductions, scans and pointwise operations under torch.compile."""
    functional = torch.nn.functional
    functions = {
        **small.OPERATIONS,
        "layer_norm": lambda x: functional.layer_norm(functional.silu(x) * x, x.shape[-1:]),
        "cross_entropy": lambda x: functional.cross_entropy(
            x.float(), torch.arange(len(x), device=x.device) % x.shape[-1]
        ),
        "index": lambda x: x[torch.arange(len(x) - 1, -1, -1, device=x.device)] * 2,
    }

    def group() -> Trials:
        for shape, dtype in (((4096, 8192), BRAIN), ((3000, 1001), SINGLE)):
            for name in names:
                yield (
                    f"{name} {shape} {dtype}",
                    compiled(functions[name], tensor(*shape, dtype=dtype)),
                )

    return group


def flexible() -> Trials:
    """Flex-attention and Triton's matmul template under torch.compile."""
    for head in (64, 128):
        yield f"flex_attention {head}", partial(small.attend, 2, 16, 2048, head)


def whole(most: int, *shape: int, dtype: Any = torch.int64) -> Callable[[], Any]:
    """Return a function that returns random integers below *most*."""
    return lambda: torch.randint(0, most, shape, device="cuda").to(dtype)


def half(*shape: int, dtype: Any = HALF, which: int = 0) -> Callable[[], Any]:
    """Return a function that returns a shared random tensor."""
    return partial(kept, *shape, dtype=dtype, which=which)


single = partial(half, dtype=SINGLE)
brain = partial(half, dtype=BRAIN)


def call(function: Callable[..., Any], *given: Any, **options: Any) -> Callable[[], Any]:
    """Return a call of *function*; functions among its arguments are called for tensors."""
    return lambda: function(*(one() if callable(one) else one for one in given), **options)


def own_memory() -> Trials:
    """Kernels of work_kernels.py that move, gather and transform."""
    for *shape, dtype, block in (
        *((8192, 8192, HALF, (64, 64)), (8192, 8192, HALF, (32, 128))),
        *((4096, 4096, SINGLE, (32, 32)), (5000, 3001, HALF, (64, 64))),
    ):
        name = f"transpose {shape[0]} {shape[1]} {dtype} {block}"
        yield name, call(own.transpose, half(*shape, dtype=dtype), block)
    table = half(50257, 1024)
    yield "embedding", call(own.embedding, whole(50257, 16384), table)
    ordered = whole(500, 16384)
    yield "embedding sorted", lambda: own.embedding(ordered().sort().values, table())
    yield "gather 2**22", call(own.gather, whole(2**24, 2**22), single(2**24))
    yield "gather small", call(own.gather, whole(4096, 4096), single(4096), 256)
    yield "scatter_add", call(own.scatter_add, whole(50257, 8192), half(8192, 1024), 50257)
    yield "scatter_add few", call(own.scatter_add, whole(64, 4096), half(4096, 1024), 64)
    for size in (4096, 1500):
        yield f"stencil {size}", call(own.stencil, single(size, size))
    for width in (2048, 1000):
        convolution = call(own.causal_convolution, half(8192, width), half(width, 4))
        yield f"causal_convolution {width}", convolution
    angles = half(4096, 64), half(4096, 64, which=1)
    yield "rope", call(own.rope, half(32, 4096, 128), *angles)
    for rows, width in ((4096, 22016), (2048, 9000)):
        yield f"swiglu {width}", call(own.swiglu, brain(rows, width))
    for size in (2**24, 2**26, 10**6):
        yield f"dropout {size}", call(own.dropout, half(size), 0.1, 7)
    for size in (2**25, 2**22):
        yield f"persistent_gelu {size}", call(own.persistent_gelu, half(size))
    one_stage = call(own.persistent_gelu, half(2**25), 4096, 1, 4 * own.SMS)
    yield "persistent_gelu stages 1", one_stage
    for shift in (1, 8, 777):
        yield f"shifted {shift}", call(own.shifted, half(2**24), shift)
    yield "interleaved", call(own.interleaved, single(2**24))
    yield "interleaved half", call(own.interleaved, half(2**25))
    yield "sort 1024", call(own.sort, single(8192, 1024))
    yield "sort 200", call(own.sort, single(16384, 200))

    def search(edges: int, size: int) -> None:
        own.search(kept(edges, dtype=SINGLE).sort().values, kept(size, dtype=SINGLE))

    yield "search", partial(search, 65536, 2**22)
    yield "search few", partial(search, 1000, 10**6)


def own_reductions() -> Trials:
    """Kernels of work_kernels.py that reduce, scan and multiply."""
    for rows, cols, block in ((4096, 8192, 1024), (1024, 30000, 4096), (512, 1000, 256)):
        yield f"scan {rows} {cols} {block}", call(own.scan, single(rows, cols), block)
    steps = single(8192, 1024)
    yield "recurrence", lambda: own.recurrence(steps().sigmoid(), steps())
    for m, n, k, split in (
        *((512, 512, 16384, 16), (1024, 1024, 8192, 4), (256, 300, 10000, 8), (64, 4096, 4096, 8)),
    ):
        product = call(own.split_k, half(m, k), half(k, n, which=1), split=split)
        yield f"split_k {m} {n} {k} {split}", product
    for n, block, warps in (
        *((4096, (128, 128, 64), 4), (2048, (64, 64, 128), 4), (4096, (128, 256, 64), 8)),
    ):
        numbers = whole(100, n, n, dtype=torch.int8)
        product = call(own.int8_matmul, numbers, numbers, single(n), block, num_warps=warps)
        yield f"int8_matmul {n} {block}", product
    for n, block, warps in (
        *((4096, (128, 128, 64), 4), (4096, (128, 256, 64), 8), (1000, (64, 64, 64), 4)),
    ):
        matrices = half(n, n), half(n, n, which=1)
        product = call(own.descriptor_matmul, *matrices, block, num_warps=warps)
        yield f"descriptor_matmul {n} {block}", product
    for images, channels, pixels, groups in (
        *((16, 320, 4096, 32), (8, 128, 16384, 8), (32, 64, 900, 4)),
    ):
        given = half(images, channels, pixels), single(channels), single(channels, which=1)
        name = f"group_norm {images} {channels} {pixels} {groups}"
        yield name, call(own.group_norm, *given, groups)
    for rows, cols, dtype in ((8192, 4096, BRAIN), (16384, 777, HALF), (2048, 16384, SINGLE)):
        given = half(rows, cols, dtype=dtype), half(cols, dtype=dtype)
        yield f"rms_norm {rows} {cols} {dtype}", call(own.rms_norm, *given)
    for rows, cols, block in ((4096, 50257, 4096), (8192, 32000, 2048)):
        loss = call(own.cross_entropy, brain(rows, cols), whole(cols, rows), block)
        yield f"cross_entropy {rows} {cols}", loss
    for name, function, most, count, bins in (
        ("histogram", own.histogram, 256, 2**22, 256),
        ("histogram of many", own.histogram, 2**20, 2**22, 2**20),
        ("block_histogram", own.block_histogram, 256, 2**24, 256),
    ):
        yield name, call(function, whole(most, count, dtype=torch.int32), bins)

    def sparse(rows: int, share: float) -> None:
        dense = kept(rows, 4096, dtype=SINGLE)
        own.sparse_rows((dense * (dense > share)).to_sparse_csr(), kept(4096, dtype=SINGLE))

    yield "sparse_rows", partial(sparse, 8192, 2.0)
    yield "sparse_rows few", partial(sparse, 1000, 2.5)
    for rows, cols in ((16384, 4096), (100000, 512)):
        yield f"column_sum {rows} {cols}", call(own.column_sum, single(rows, cols))
    for rows, cols in ((16384, 4096), (5000, 5001)):
        yield f"matrix_vector {rows} {cols}", call(own.matrix_vector, half(rows, cols), half(cols))
    for rows, cols in ((8192, 4096), (4096, 11008)):
        yield f"quantize {rows} {cols}", call(own.quantize, brain(rows, cols))
    for heads, *size, split in ((32, 8192, 128, 16), (64, 4096, 64, 8), (8, 5000, 128, 32)):
        keys, values = half(heads, *size), half(heads, *size, which=1)
        decoded = call(own.decode, half(heads, size[1]), keys, values, split)
        yield f"decode {heads} {size[0]} {size[1]} {split}", decoded


def clusters(ctas: int, names: Sequence[str]) -> Callable[[], Trials]:
    """Return a group with trials of other groups, whose programs are clusters of *ctas* CTAs."""
    from triton.runtime import JITFunction

    run = JITFunction.run

    def launched(call: Callable[[], Any]) -> None:
        with mock.patch.object(
            JITFunction, "run", lambda *args, **options: run(*args, **options | {"num_ctas": ctas})
        ):
            call()

    def group() -> Trials:
        of_all = (own_memory(), own_reductions(), matmul_half(), simple_tutorials())
        calls = dict(itertools.chain(*of_all))
        for name in names:
            yield f"{name}, {ctas} CTAs", partial(launched, calls[name])

    return group


IN_CLUSTERS = {
    "moving": ("rope", "swiglu 22016", "shifted 8", "interleaved", "embedding"),
    "others": (
        *("gather 2**22", "stencil 4096", "causal_convolution 2048", "dropout 16777216"),
        *("persistent_gelu 33554432", "histogram", "block_histogram", "column_sum 16384 4096"),
    ),
    "adding": ("add torch.float32 16777216 1024 4", "add torch.float16 33554432 4096 8"),
    "products": (
        *("split_k 1024 1024 8192 4", "split_k 512 512 16384 16"),
        *("int8_matmul 4096 (128, 128, 64)", "int8_matmul 4096 (128, 256, 64)"),
        *(
            f"matmul {size} {config}"
            for size in ((4096,) * 3, (2048,) * 3, (8192, 1024, 4096))
            for config in MATMUL_CONFIGS[:3]
        ),
    ),
}
"""Trials whose kernels Triton 3.6 compiles as clusters."""


GROUPS: dict[str, Callable[[], Any]] = {
    "inductor: transformer 1024": transformer(1024, BRAIN, 512),
    "triton: 6, head 128": attention(128),
    "triton: 6, head 64": attention(64),
    "triton: 3, fp16": matmul_half,
    "triton: 3, others": matmul_others,
    "triton: 9, fp16": persistent(HALF),
    "own: reductions": own_reductions,
    "own: memory": own_memory,
    "inductor: reductions": operations(
        "softmax", "layer_norm", "cross_entropy", "norm of columns", "argmax", "logsumexp of all"
    ),
    "inductor: pointwise": operations(
        "gelu of the transpose", "rand", "index", "max_pool", "interpolate"
    ),
    "fla: delta_rule": fla("chunk_delta_rule", "fused_recurrent_delta_rule"),
    "fla: gla": fla("chunk_gla", "fused_recurrent_gla"),
    "liger: norms": liger_norms,
    "liger: losses": liger_losses,
    "triton: 5": layer_norm,
    "triton: simple": simple_tutorials,
    "liger: pointwise": liger_pointwise,
    "fla: gated_delta_rule": fla("chunk_gated_delta_rule", heads=(128,)),
    "fla: simple_gla": fla("chunk_simple_gla", "chunk_retention", heads=(64,)),
    "inductor: scans": operations("cumsum", "var_mean", "sort"),
    "inductor: flex_attention": flexible,
    "fla: layers": fla_layers,
    "fla: kda": fla("chunk_kda", heads=(64,)),
    "fla: attention": fla("parallel_attn", "parallel_forgetting_attn", heads=(64,)),
    "triton: 9, fp8": persistent(torch.float8_e4m3fn),
    "fla: gsa": fla("chunk_gsa", heads=(64,)),
    "fla: rwkv": fla("chunk_rwkv7", heads=(64,)),
    "inductor: transformer 512": transformer(512, SINGLE, 300),
    "triton: 8, 10": grouped,
    **{
        f"clusters: {ctas}, {sort}": clusters(ctas, names)
        for ctas in (2, 4)
        for sort, names in IN_CLUSTERS.items()
    },
}
"""The groups, the most wanted and the longest to compile first."""

LARGE = ("triton: 3", "triton: 6", "triton: 9", "liger", "own", "inductor: t", "triton: 5", "clu")
"""The beginnings of the names of groups with large tensors."""
