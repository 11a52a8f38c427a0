"""Reading sizes from CSV, and the launches that a signature makes of them."""

from pathlib import Path
from typing import Any

import pytest
import triton
from launched_kernels import layer_norm, matmul

from occupancy_lab.errors import InputError, quoted
from occupancy_lab.tuning.by_size import tune_sizes
from occupancy_lab.tuning.sizes import launches_at, read_sizes

SIGNATURE = "*fp16,*fp16,*fp16,*fp16,*fp32,*fp32,N,N,1e-5"


def read(folder: Path, text: str, kernel: Any = layer_norm) -> Any:
    """Return the sizes in a file with *text*."""
    path = folder / "sizes.csv"
    path.write_text(text, encoding="utf-8")
    return read_sizes(str(path), kernel)


def test_sizes_are_read_by_name(tmp_path: Path) -> None:
    """Spaces and empty lines are ignored, and duplicate sizes are dropped."""
    text = " N , BLOCK_SIZE\n\n1024, 1024\n781 , 1024\n1024,1024\n"
    file = quoted(tmp_path / "sizes.csv")
    found = read(tmp_path, text)
    assert [*found.values()] == [
        {"N": 1024, "BLOCK_SIZE": 1024},
        {"N": 781, "BLOCK_SIZE": 1024},
    ]
    assert [*found] == [f"{file}, line {line}" for line in (3, 4)]
    assert read_sizes([{"N": 5}], layer_norm) == {"size 1": {"N": 5}}
    numbers = r"does not take; it takes stride, N, eps, BLOCK_SIZE$"
    with pytest.raises(InputError, match=numbers):
        read_sizes([{"M": 5}], layer_norm, SIGNATURE.split(","))


def test_a_size_whose_grid_is_none_is_named(tmp_path: Path) -> None:
    """A size with an invalid grid is named by file and line."""
    path = tmp_path / "sizes.csv"
    path.write_text("N\n1024\n-4\n", encoding="utf-8")
    asked = {"signature": SIGNATURE, "constexprs": "BLOCK_SIZE=64", "gpu": "h100", "cache": False}
    with pytest.raises(
        InputError, match=r", line 3, N -4: dimension 0 of the grid is '0'; give a whole"
    ):
        tune_sizes(layer_norm, str(path), grid="cdiv(N, BLOCK_SIZE)", **asked)
    with pytest.raises(
        InputError, match=r"^size 1, N -4: dimension 0 of the grid is '-4'; give a whole"
    ):
        tune_sizes(layer_norm, [{"N": -4}], grid="N", **asked)


REFUSED = {
    "": "has no sizes",
    "N\n": "has no sizes",
    "M\n5": "has the column 'M', which layer_norm does not take; it takes X, Y",
    "N,N\n5,6": "has the column 'N' 2 times",
    "N,stride\n5": ", line 2: found 1 fields, expected 2",
    "N,stride\n5,6\n7,": "has other arguments than the first size: N",
    "N\n5.5": "has '5.5' for N; give a whole number",
    "N\n*fp16": "N=",
    "N\nNone": "has 'None' for N; give a whole number",
    "BLOCK_SIZE\ntl.float16": "for BLOCK_SIZE; give a number, True or a text",
}


@pytest.mark.parametrize(("text", "why"), REFUSED.items(), ids=range(len(REFUSED)))
def test_what_is_no_size_is_one_sentence(tmp_path: Path, text: str, why: str) -> None:
    """Invalid sizes are refused with the reason."""
    with pytest.raises(InputError) as raised:
        read(tmp_path, text)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_an_autotuner_sets_is_no_size(tmp_path: Path) -> None:
    """A column that an autotuner's configurations set is refused."""
    tuned = triton.autotune([triton.Config({"BLOCK_SIZE": 64})], key=[])(layer_norm)
    with pytest.raises(InputError, match="BLOCK_SIZE, which the autotuner of layer_norm sets"):
        read(tmp_path, "BLOCK_SIZE\n64", tuned)


def test_entries_calculate_with_the_size() -> None:
    """Expressions are evaluated at each size; other sizes are passed by name."""
    one, other = (
        launches_at(
            layer_norm,
            size,
            signature="*fp16,*fp16,*fp16,*fp16,*fp32,*fp32,2 * N,N,1e-5",
            constexprs=(),
            num_warps="2,4",
            grid="cdiv(N, BLOCK_SIZE)",
        )
        for size in ({"N": 1000, "BLOCK_SIZE": 1024}, {"N": 64, "BLOCK_SIZE": 64})
    )
    assert [line.arguments[6:] for line in one] == [(2000, 1000, 1e-5)] * 2
    assert [line.keywords["num_warps"] for line in one] == [2, 4]
    assert {line.keywords["BLOCK_SIZE"] for line in other} == {64}
    assert {line.grid for line in one + other} == {(1,)}
    (line,) = launches_at(
        layer_norm,
        {"N": 1000},
        signature="X=*fp16, Y=*fp16, W=*fp16, B=*fp16, Mean=*fp32, Rstd=*fp32, stride=N + 24,"
        " eps=1e-5",
        constexprs="BLOCK_SIZE=1024",
    )
    assert (line.arguments[6], {**line.keywords, "N": 1000}["N"]) == (1024, 1000)


def test_a_size_in_another_place_is_refused() -> None:
    """A signature that passes another value for a size is refused."""
    with pytest.raises(InputError, match="passes '64' as M, whose size is '32'; give M in its"):
        launches_at(
            matmul,
            {"M": 32, "N": 64, "K": 128},
            signature="*fp16,*fp16,*fp16,N,M,K,K,1,N,1,N,1",
            constexprs={
                **dict.fromkeys(("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"), 32),
                "GROUP_SIZE_M": 8,
                "ACTIVATION": "",
            },
        )


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("*fp16,*fp16,*fp16,*fp16,*fp32,*fp32,N,M,1e-5", "'N=M'"),
        ("*fp16,*fp16,*fp16,*fp16,*fp32,*fp32,N and N,N,1e-5", "not a condition"),
        ("*fp16,*fp16,*fp16,*fp16,*fp32,*fp32,N // 0,N,1e-5", "comes to no number"),
        ("*fp16,*fp16,*fp16,*fp16,*fp32,*fp32,2048,2048,1e-5", "N is twice in --signature"),
    ],
)
def test_an_entry_that_is_no_number_is_refused(signature: str, why: str) -> None:
    """Unknown names, conditions and sizes given twice are refused."""
    with pytest.raises(InputError, match=why):
        launches_at(layer_norm, {"N": 1000}, signature=signature, constexprs="BLOCK_SIZE=1024")
