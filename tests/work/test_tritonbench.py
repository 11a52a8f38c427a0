"""What the lab counts of recorded launches, against the formulas of TritonBench's operators.

They are those of flops() and, before the division by the time, of gbps() in tritonbench/operators/
of https://github.com/meta-pytorch/tritonbench at commit db2155c807755c19f5d98c64917ec897f24061f3,
rewritten here. Where a launch does more or less, the difference is a function of its sizes.
"""

from collections.abc import Callable
from math import ceil
from typing import Any, NamedTuple

import pytest
from compare_work import counts_of
from recorded_work import RecordedLaunch, recorded_launches

from occupancy_lab.work.counts import total

pytestmark = pytest.mark.slow


def product_flops(m: int, n: int, k: int) -> int:
    """Return the FLOPs of gemm, grouped_gemm, fp8_gemm, fp8_gemm_rowwise and fp8_gemm_blockwise."""
    return 2 * m * n * k


def attention_flops(tokens: int, head: int, *, causal: bool = False, products: int = 2) -> int:
    """Return the FLOPs of flash_attention and blackwell_attentions.

    A forward pass has two products and a backward pass five. fp8_attention has the same formula but
    does not halve causal attention.
    """
    return products * 2 * HEADS * tokens**2 * head // (2 if causal else 1)


def _matrices(m: int, n: int, k: int, item: int, result_item: int) -> int:
    return item * (m * k + k * n) + result_item * m * n


BYTES: dict[str, Callable[..., int]] = {
    "gemm/operator.py": lambda m, n, k, item: _matrices(m, n, k, item, item),
    "addmm/operator.py": lambda m, n, k, item: _matrices(m, n, k, item, 2 * item),
    "fp8_gemm/fp8_gemm.py": _matrices,
    "fp8_gemm_rowwise/operator.py": _matrices,
    "flex_attention/operator.py": lambda heads, tokens, head, item: (
        4 * heads * tokens * head * item
    ),
    "decoding_attention/operator.py": lambda heads, tokens, head, item: (
        (heads + 2 * heads * tokens) * head * item
    ),
    "layer_norm/operator.py": lambda rows, cols, item, tensors=2: tensors * rows * cols * item,
    "low_mem_dropout/operator.py": lambda size, item: 3 * size * item,
    "softmax/operator.py": lambda rows, cols, item: 2 * rows * cols * item,
    "sum/operator.py": lambda rows, cols, item: rows * cols * item,
    "vector_add/operator.py": lambda size, item: 3 * size * item,
    "vector_exp/operator.py": lambda size, item: 3 * size * item,
}
"""Bytes by the operator's file; a layer norm has two tensors forward and three backward."""
HEADS = 2 * 16
"""Batch times heads of tutorial 6."""


def launches(group: str, trial: str, kernel: str) -> list[RecordedLaunch]:
    """Return the recorded launches of a kernel in a trial, one per configuration."""
    wanted = (group, trial, kernel)
    some = [
        one for one in recorded_launches("h200") if (one.group, one.trial, one.kernel) == wanted
    ]
    assert some
    return some


def multiplied(launch: RecordedLaunch) -> int | None:
    """Return the FLOPs that the lab counts for products of matrices."""
    return total(counts_of(launch).dot_flops.values()).exact


def moved(launch: RecordedLaunch) -> int | None:
    """Return the distinct bytes read and written, of all tensors."""
    return total(one.read + one.written for one in counts_of(launch).footprints).exact


def filled(sizes: tuple[int, ...], launch: RecordedLaunch) -> tuple[int, ...]:
    """Return m, n and k rounded up to whole blocks."""
    blocks: list[Any] = [launch.arguments[f"BLOCK_SIZE_{side}"] for side in "MNK"]
    return tuple(ceil(size / block) * block for size, block in zip(sizes, blocks, strict=True))


class Case(NamedTuple):
    """A recorded launch that does the work of an operator."""

    operator: str
    group: str
    trial: str
    kernel: str
    sizes: tuple[int, ...]
    more: int = 0
    """The bytes that it moves in addition to the formula."""


SIZES = (1024, 1536, 4096)


@pytest.mark.parametrize(
    ("group", "trial", "kernel", "sizes"),
    [
        ("3, fp16", "matmul 8192", "matmul_kernel", (8192,) * 3),
        (
            "9, fp16",
            f"matmul_tma_persistent torch.float16 {SIZES}",
            "matmul_kernel_tma_persistent",
            SIZES,
        ),
        (
            "9, fp8",
            f"matmul_persistent torch.float8_e4m3fn {SIZES}",
            "matmul_kernel_persistent",
            SIZES,
        ),
        ("8, 10", "tutorial 10 mxfp8", "block_scaled_matmul_kernel", (512,) * 3),
    ],
)
def test_flops_of_whole_blocks(
    group: str, trial: str, kernel: str, sizes: tuple[int, int, int]
) -> None:
    """A product of matrices in whole blocks has the FLOPs of the formula."""
    for launch in launches(f"triton: {group}", trial, kernel):
        assert multiplied(launch) == product_flops(*sizes)


def test_flops_of_an_int8_product() -> None:
    """A product of integers has the FLOPs of the formula."""
    trial = "int8_matmul 4096 (128, 256, 64)"
    for launch in launches("own: reductions", trial, "int8_matmul_kernel"):
        assert multiplied(launch) == product_flops(4096, 4096, 4096)


@pytest.mark.parametrize("config", ["(128, 256, 64, 3, 8)", "(64, 128, 64, 4, 4)"])
@pytest.mark.parametrize("sizes", [(777, 777, 777), (1000, 3000, 2000)])
def test_blocks_at_edges_are_multiplied_whole(sizes: tuple[int, int, int], config: str) -> None:
    """A product with partial blocks has the formula's FLOPs for whole blocks."""
    (launch,) = launches("triton: 3, fp16", f"matmul {sizes} {config}", "matmul_kernel")
    assert multiplied(launch) == product_flops(*filled(sizes, launch)) > product_flops(*sizes)


@pytest.mark.parametrize("kernel", ["grouped_matmul_kernel", "grouped_matmul_tma_kernel"])
def test_grouped_products_are_equal(kernel: str) -> None:
    """The FLOPs of grouped products add up to the formula for whole blocks."""
    equal = []
    for launch in launches("triton: 8, 10", "tutorial 08 as it runs", kernel):
        sides = iter(launch.values["group_gemm_sizes"])
        sizes = list(zip(sides, sides, sides, strict=True))
        whole = [filled(one, launch) for one in sizes]
        assert multiplied(launch) == sum(product_flops(*one) for one in whole)
        equal.append(whole == sizes)
    assert any(equal)


def test_addmm_counts_its_sum() -> None:
    """The formula of addmm adds one FLOP for each element of the sum to those of the dots."""
    sizes = m, n, _ = 1024, 1024, 8192
    (launch,) = launches("own: reductions", "split_k 1024 1024 8192 4", "split_k_kernel")
    addmm = product_flops(*sizes) + m * n
    assert multiplied(launch) == addmm - m * n


@pytest.mark.parametrize("head", [64, 128])
@pytest.mark.parametrize("tokens", [512, 4096])
def test_attention_to_all_tokens_is_equal(tokens: int, head: int) -> None:
    """Attention without a mask has the two products of the formula."""
    trial = f"attention (2, 16, {tokens}, {head}) causal False"
    for launch in launches(f"triton: 6, head {head}", trial, "_attn_fwd"):
        assert multiplied(launch) == attention_flops(tokens, head)


@pytest.mark.parametrize("head", [64, 128])
@pytest.mark.parametrize("tokens", [512, 4096])
def test_blocks_on_the_diagonal_are_multiplied_whole(tokens: int, head: int) -> None:
    """Causal attention does the formula's half, and the other halves of blocks on the diagonal."""
    trial = f"attention (2, 16, {tokens}, {head}) causal True"
    for launch in launches(f"triton: 6, head {head}", trial, "_attn_fwd"):
        block: Any = launch.arguments["BLOCK_M"]
        diagonal = HEADS * tokens * head * 2 * block
        assert multiplied(launch) == attention_flops(tokens, head, causal=True) + diagonal


@pytest.mark.parametrize("causal", [False, True])
def test_the_backward_pass_does_two_products_twice(causal: bool) -> None:  # noqa: FBT001
    """Of the formula's five products, a launch repeats two: one for dQ, and one for dK and dV."""
    tokens, head, block = 2048, 64, 128
    trial = f"attention (2, 16, {tokens}, {head}) causal {causal}"
    theirs = attention_flops(tokens, head, causal=causal, products=5)
    again = attention_flops(tokens, head, causal=causal, products=2)
    diagonal = 7 * HEADS * tokens * head * block if causal else 0
    for launch in launches("triton: 6, head 64", trial, "_attn_bwd"):
        assert launch.arguments["BLOCK_N1"] == launch.arguments["BLOCK_M2"] == block
        assert multiplied(launch) == theirs + again + diagonal


@pytest.mark.parametrize("head", [64, 128])
def test_flops_of_flex_attention(head: int) -> None:
    """The dots are those of attention; the formula adds two operations per score going forward."""
    group, trial, kernel = "inductor: flex_attention", f"flex_attention {head}", "triton_tem_fused"
    forward, backward = (attention_flops(2048, head, products=number) for number in (2, 5))
    for launch in launches(group, trial, f"{kernel}_flex_attention_4"):
        assert multiplied(launch) == forward
    for launch in launches(group, trial, f"{kernel}_flex_attention_backward_1"):
        assert multiplied(launch) == backward + forward


@pytest.mark.parametrize(
    ("trial", "kernel", "choices"),
    [("dropout", "_seeded_dropout", 0), ("dropout by a mask", "_dropout", 2**24)],
)
def test_flops_of_dropout(trial: str, kernel: str, choices: int) -> None:
    """The formula of low_mem_dropout has two FLOPs per element, one of them for choosing it.

    A launch divides each element, scales each random number that it draws, and computes 1 - p once
    per program.
    """
    (launch,) = launches("triton: simple", f"{trial} {2**24}", kernel)
    assert counts_of(launch).flops.exact == 2 * 2**24 - choices + launch.grid[0]


@pytest.mark.parametrize(
    "case",
    [
        *(
            Case(
                "gemm/operator.py",
                "triton: 3, fp16",
                f"matmul {sizes} (128, 256, 64, 3, 8)",
                "matmul_kernel",
                (*sizes, 2),
            )
            for sizes in ((777, 777, 777), (1000, 3000, 2000), (8192, 1024, 4096))
        ),
        Case(
            "fp8_gemm/fp8_gemm.py",
            "triton: 3, others",
            "matmul torch.float8_e4m3fn 1000 (128, 256, 128, 3, 8)",
            "matmul_kernel",
            (1000, 1000, 1000, 1, 2),
        ),
        *(
            Case("vector_add/operator.py", "triton: simple", f"add {trial}", "add_kernel", sizes)
            for trial, sizes in {
                "torch.float32 10000001 512 4": (10**7 + 1, 4),
                "torch.bfloat16 67108864 1024 4": (2**26, 2),
            }.items()
        ),
        *(
            Case("softmax/operator.py", group, f"softmax {trial}", kernel, sizes)
            for group, trial, kernel, sizes in (
                ("triton: simple", "4096 781 torch.float32", "softmax_kernel", (4096, 781, 4)),
                (
                    "liger: pointwise",
                    "4096 11008 torch.bfloat16",
                    "_softmax_single_block_forward_kernel",
                    (4096, 11008, 2),
                ),
            )
        ),
        Case(
            "low_mem_dropout/operator.py",
            "triton: simple",
            "dropout by a mask 16777216",
            "_dropout",
            (2**24, 4),
        ),
    ],
)
def test_bytes_are_equal(case: Case) -> None:
    """The least bytes of a launch are each tensor of the formula once, whatever the blocks."""
    for launch in launches(case.group, case.trial, case.kernel):
        assert moved(launch) == BYTES[case.operator](*case.sizes)


DIFFERENT = {
    "a result of half the size counts as the first tensor": Case(
        "gemm/operator.py",
        "triton: 3, others",
        "matmul torch.float32 2048 (64, 64, 32, 3, 4)",
        "matmul_kernel",
        (2048, 2048, 2048, 4),
        2048 * 2048 * (2 - 4),
    ),
    "a sum of twice the size counts as the first tensor": Case(
        "addmm/operator.py",
        "own: reductions",
        "split_k 1024 1024 8192 4",
        "split_k_kernel",
        (1024, 1024, 8192, 2),
        2 * 1024 * 1024 * (4 - 2),
    ),
    "scales are read": Case(
        "fp8_gemm_rowwise/operator.py",
        "own: reductions",
        "int8_matmul 4096 (128, 256, 64)",
        "int8_matmul_kernel",
        (4096, 4096, 4096, 1, 2),
        4096 * 4,
    ),
    "logarithms of sums are written, and two numbers of the block mask read": Case(
        "flex_attention/operator.py",
        "inductor: flex_attention",
        "flex_attention 64",
        "triton_tem_fused_flex_attention_4",
        (HEADS, 2048, 64, 2),
        HEADS * 2048 * 4 + 2 * 4,
    ),
    "results of each part are written, with their sums and largest scores": Case(
        "decoding_attention/operator.py",
        "own: reductions",
        "decode 32 8192 128 16",
        "decode_kernel",
        (32, 8192, 128, 2),
        32 * 16 * (128 + 2) * 4,
    ),
    "weights and biases are read, means and deviations written": Case(
        "layer_norm/operator.py",
        "triton: 5",
        "layer_norm 6710 5000 torch.float16",
        "_layer_norm_fwd_fused",
        (6710, 5000, 2),
        2 * 5000 * 2 + 2 * 6710 * 4,
    ),
    "backward weights, means and deviations are read, two sums of each program written": Case(
        "layer_norm/operator.py",
        "liger: norms",
        "layer_norm 8192 4096 torch.bfloat16",
        "_layer_norm_backward_kernel",
        (8192, 4096, 2, 3),
        4096 * 2 + 2 * 8192 * 4 + 2 * 132 * 4096 * 4,
    ),
    "a mask that is drawn is not read": Case(
        "low_mem_dropout/operator.py",
        "triton: simple",
        "dropout 16777216",
        "_seeded_dropout",
        (2**24, 4),
        -(2**24) * 4,
    ),
    "sums are written": Case(
        "sum/operator.py",
        "own: reductions",
        "column_sum 100000 512",
        "column_sum_kernel",
        (100000, 512, 4),
        512 * 4,
    ),
    "there is no third tensor": Case(
        "vector_exp/operator.py",
        "own: memory",
        "persistent_gelu 33554432",
        "persistent_gelu_kernel",
        (2**25, 2),
        -(2**25) * 2,
    ),
}
"""The launches by what the formula leaves out, or includes although it is not moved."""


@pytest.mark.parametrize("case", DIFFERENT.values(), ids=DIFFERENT)
def test_bytes_differ_by_the_listed_amount(case: Case) -> None:
    """The least bytes of a launch differ from the formula by exactly the listed amount."""
    assert case.more != 0
    for launch in launches(case.group, case.trial, case.kernel):
        assert moved(launch) == BYTES[case.operator](*case.sizes) + case.more
