"""From a command line to launches: Triton's own specialization, or one sentence."""

import inspect
import itertools
import math
import re
import shlex
from types import SimpleNamespace
from typing import Any

import launched_kernels
import numpy as np
import pytest
import torch
import triton.language as tl
from hypothesis import example, given, settings
from hypothesis import strategies as st
from triton.tools.tensor_descriptor import TensorDescriptor

from occupancy_lab.arguments import Dtype, Pointer, plain
from occupancy_lab.assumed import RandomNumbers, assumption_words, elements
from occupancy_lab.compiling.compile import resource_key
from occupancy_lab.errors import InputError
from occupancy_lab.explaining.dry_run import variants
from occupancy_lab.kernel import innermost
from occupancy_lab.launch import Launch, launch_of
from occupancy_lab.notation import read_argument, read_constant, split, written
from occupancy_lab.signature import LaunchLine, read_assumed, read_launches
from occupancy_lab.values import Target

H100 = Target("cuda", "90", 32)
MI300X = Target("hip", "gfx942", 64)
KERNELS = {
    name: getattr(launched_kernels, name)
    for name in ("layer_norm", "matmul", "tuned_add", "oddities")
}
LAYER_NORM = "X=*fp16,Y=*fp16,W=*fp16,B=*fp16,Mean=*fp32,Rstd=*fp32,stride=i32:16,N=i32:16,eps=fp32"
MATMUL = (
    "a_ptr=*fp16, b_ptr=*fp16, c_ptr=*fp16, M=4096, N=4096, K=4096, stride_am=4096, stride_ak=1,"
    " stride_bk=4096, stride_bn=1, stride_cm=4096, stride_cn=1"
)
BLOCKS = ("BLOCK_SIZE_M=128", "BLOCK_SIZE_N=128", "BLOCK_SIZE_K=64", "GROUP_SIZE_M=8")


def test_arguments_are_written_as_they_are_read() -> None:
    """A signature that was written of arguments gives the same arguments; some have none."""
    tensors = {"x": Pointer("bfloat16", 6 << 20), "y": Pointer("int8", 77, aligned=False)}
    passed = {**tensors, "n": -(2**40), "scale": 1e-5, "flag": True, "none": None}
    constexprs = {"BLOCK": 64, "ACT": "a b", "T": Dtype("fp32")}
    found = written(passed | constexprs, constexprs.keys())
    assert found is not None
    entries = [one.split("=", 1) for one in split(found[0], "signature")]
    assert {name: plain(read_argument(name, text)) for name, text in entries} == passed
    constants = [one.split("=", 1) for one in found[1]]
    assert {name: read_constant(name, text) for name, text in constants} == constexprs
    for unwritten in ((1, 2), math.inf, Pointer("int8", 0)):
        assert written({"value": unwritten}, ()) is None


@pytest.mark.parametrize(
    ("text", "first", "step", "words"),
    [
        ("36*i", 0, 36, "36*i"),
        (" 36 * i + 4 ", 4, 36, "36*i + 4"),
        ("i", 0, 1, "1*i"),
        ("-2*i - 3", -3, -2, "-2*i - 3"),
    ],
)
def test_what_a_tensor_holds_may_grow_with_the_index(
    text: str, first: int, step: int, words: str
) -> None:
    """An assumption is a number, or a number for each index i that grows evenly."""
    (found,) = read_assumed([f"off={text}"], ["off"]).values()
    assert isinstance(found, range)
    assert (found.start, found.step) == (first, step)
    assert assumption_words(found) == words
    assert read_assumed({"off": text}, ["off"]) == {"off": found}
    assert read_assumed(["off=0*i + 7"], ["off"]) == {"off": 7}


def test_what_a_tensor_holds_may_be_random() -> None:
    """Elements are drawn between two limits, each about equally often, and are always the same."""
    (found,) = read_assumed(["x=-3 .. 12"], ["x"]).values()
    assert isinstance(found, RandomNumbers)
    assert assumption_words(found) == "-3..12"
    drawn = elements(found, np.arange(1 << 16))
    numbers, often = np.unique(drawn, return_counts=True)
    assert numbers.tolist() == [*range(-3, 13)]
    assert often.min() > 0.9 * often.max()
    assert (elements(found, np.arange(1 << 16)) == drawn).all()


def test_trips_are_assumed_by_the_line_of_a_loop() -> None:
    """A name of trips is no parameter, and its value is one number of trips."""
    assert read_assumed(["trips@12=37", "off=4"], ["off"]) == {"trips@12": 37, "off": 4}
    assert read_assumed({"trips@7": 0}, []) == {"trips@7": 0}
    for text in ("-1", "3*i", "1000001", "true", "0..4"):
        with pytest.raises(InputError, match="give the trips of the loop, a whole number from 0"):
            read_assumed([f"trips@12={text}"], ["off"])
    for name in ("trips@", "trips@x", "trips@0", "off@12"):
        with pytest.raises(InputError, match=r"is no NAME=VALUE, such as .* or trips@12=37"):
            read_assumed([f"{name}=3"], ["off"])


def test_an_assumption_that_is_neither_is_refused_in_a_sentence() -> None:
    """Anything else is refused in a sentence that says what may be given."""
    for text in ("1.5", "604*j", "9..0"):
        with pytest.raises(InputError) as caught:
            read_assumed([f"off={text}"], ["off"])
        assert str(caught.value) == (
            f"--assume off is '{text}'; give a whole number, one for each index i, such as 36*i, or"
            " random ones, such as 0..255"
        )


def test_a_number_may_be_worked_out() -> None:
    """Arithmetic of plain numbers is evaluated, and whole if it is whole."""
    eps = LAYER_NORM.replace("N=i32:16", "N=4*32*8*56").replace("eps=fp32", "eps=1/8")
    signature = eps.replace("stride=i32:16", "stride=4096/2")
    (line,) = launches("layer_norm", signature, constexprs="BLOCK_SIZE=1024")
    names = KERNELS["layer_norm"].arg_names
    passed = {**dict(zip(names, line.arguments, strict=False)), **line.keywords}
    assert repr([passed[name] for name in ("stride", "N", "eps")]) == "[2048, 57344, 0.125]"
    assert "nothing that a launch passes" in sentence("layer_norm", eps.replace("1/8", "1/0"))


def launches(kernel: str, signature: str | None = None, **options: Any) -> tuple[LaunchLine, ...]:
    """Return the launch lines of a kernel of this file."""
    return read_launches(KERNELS[kernel], signature=signature, **options)


def launch(function: Any, line: LaunchLine) -> Launch:
    """Return *line* in the form in which dry_run makes a Launch of it."""
    return launch_of(function, line.arguments, line.keywords, line.grid)


def sentence(kernel: str, signature: str | None = None, **options: Any) -> str:
    """Return the sentence that refuses a command line."""
    with pytest.raises(InputError) as caught:
        launches(kernel, signature, **options)
    return str(caught.value)


def from_example(kernel: str, words: str) -> tuple[LaunchLine, ...]:
    """Return the launches of the command line in a sentence."""
    options = shlex.split(words[words.index("give --") + len("give ") :])
    given = list(zip(options[::2], options[1::2], strict=True))
    signatures = [value for option, value in given if option == "--signature"]
    constexprs = [value for option, value in given if option == "--constexpr"]
    assert len(signatures) + len(constexprs) == len(given)
    return launches(kernel, *signatures, constexprs=constexprs)


@pytest.mark.parametrize("target", [H100, MI300X], ids=str)
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(("rows", "cols"), [(4096, 2048), (1, 2049), (2**16, 2**16)])
def test_layer_norms_are_specialized_as_their_launches(
    target: Target,
    aligned: bool,  # noqa: FBT001 - both kinds of address
    rows: int,
    cols: int,
) -> None:
    """Types with marks and sizes are specialized like tensors and numbers of such a launch."""
    function = KERNELS["layer_norm"]
    start = 0 if aligned else 1
    matrix = torch.empty(rows * cols + start, dtype=torch.float16, device="meta")[start:]
    column = torch.empty(rows, device="meta")
    real = launch_of(
        function,
        (matrix, matrix, matrix, matrix, column, column, cols, cols, 1e-5),
        {"BLOCK_SIZE": 2048, "num_warps": 8},
    )
    pointer = f"*fp16[{rows}x{cols}]" + ("" if aligned else ":1")
    number = "i32:16" if cols % 16 == 0 else "i32"
    signature = (
        f"{pointer}, {pointer}, {pointer}, {pointer}, *fp32, *fp32, {number}, {number}, fp32"
    )
    (line,) = launches("layer_norm", signature, constexprs=["BLOCK_SIZE=2048"], num_warps=8)
    written = launch(function, line)
    assert resource_key(function, written, target) == resource_key(function, real, target)


def test_matmuls_are_specialized_as_their_launches() -> None:
    """Values of a signature are specialized like the same values of a launch line."""
    function = KERNELS["matmul"]
    a = torch.empty(4096, 4096, dtype=torch.float16, device="meta")
    constexprs = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8}
    real = launch_of(
        function,
        (a, a, a, 4096, 4096, 4096, 4096, 1, 4096, 1, 4096, 1),
        {**constexprs, "ACTIVATION": "leaky_relu", "num_warps": 8, "num_stages": 3},
    )
    (by_name,) = launches(
        "matmul", MATMUL, constexprs=[*BLOCKS, "ACTIVATION=leaky_relu"], num_warps="8", num_stages=3
    )
    (in_order,) = launches(
        "matmul",
        "*fp16,*fp16,*fp16,i32:16,i32:16,i32:16,i32:16,i32:1,i32:16,1,i32:16,1,128,128,64,8,"
        "'leaky_relu'",
        num_warps=[8],
        num_stages="3",
    )
    expected = resource_key(function, real, MI300X)
    assert resource_key(function, launch(function, by_name), MI300X) == expected
    assert resource_key(function, launch(function, in_order), MI300X) == expected
    assert by_name.typical == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("i32", 7),
        ("i32:16", 48),
        ("i32:1", 1),
        ("i64", 2**40 + 1),
        ("i64:16", 2**40),
        ("u64", 2**63 + 1),
        ("u64:16", 2**63),
        ("fp32", 0.25),
        ("u1", False),
        ("2048", 2048),
        ("-3", -3),
        ("1e-5", 1e-5),
        ("True", True),
        ("None", None),
        ("*bf16", torch.empty(4, dtype=torch.bfloat16)),
        ("*fp8e4nv", torch.empty(16, dtype=torch.float8_e4m3fn)),
        ("*u1", torch.empty(16, dtype=torch.bool)),
        ("*fp16 : 16", torch.empty(16, dtype=torch.float16)),
        ("*fp16:1", torch.empty(16, dtype=torch.float16)[1:]),
        ("*fp32[32768, 32768]", torch.empty(2**30, device="meta")),
        ("*fp32", torch.empty(2**28, device="meta")),
        ("(i32, (*fp16, 1),)", (5, (torch.empty(16, dtype=torch.float16), 1))),
        (
            "tensordesc<fp16[128, 64]>",
            TensorDescriptor.from_tensor(torch.empty(128, 64, dtype=torch.float16), [128, 64]),
        ),
    ],
)
@pytest.mark.parametrize("target", [H100, MI300X], ids=str)
def test_types_are_those_of_a_launch(text: str, value: Any, target: Target) -> None:
    """Each type of the notation is specialized like an argument of a real launch."""
    function = KERNELS["matmul"]
    others = (*range(2, 13), 128, 128, 64, 8, None)
    written = launch_of(function, (read_argument("a_ptr", text), *others), {})
    real = launch_of(function, (value, *others), {})
    assert written.specialization(function, target) == real.specialization(function, target)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024", 1024),
        ("0.5", 0.5),
        ("True", True),
        ("None", None),
        ("leaky_relu", "leaky_relu"),
        ("'a, b'", "a, b"),
        ("(1, 'x')", (1, "x")),
        (".ca", ".ca"),
        ("tl.float16", Dtype("fp16")),
        ("tl.fp16", Dtype("fp16")),
        ("triton.language.int32", Dtype("int32")),
    ],
)
def test_constants_are_pythons(text: str, value: Any) -> None:
    """A constexpr is a literal of Python, a dtype, or a word."""
    assert read_constant("X", text) == value
    if isinstance(value, Dtype):
        assert tl.dtype(value.triton_name)


def test_lists_give_a_launch_each() -> None:
    """Lists of constexprs, warps and stages give their product, texts with commas do not."""
    lines = launches(
        "matmul",
        MATMUL,
        constexprs=[*BLOCKS[:2], "BLOCK_SIZE_K=32,64,32", BLOCKS[3], "ACTIVATION='a,b',(1, 2)"],
        num_warps="4,8",
        num_stages=[2, 3, 4],
        options=["maxnreg=128", "enable_fp_fusion=False,True"],
    )
    names = ("BLOCK_SIZE_K", "ACTIVATION", "num_warps", "num_stages", "maxnreg", "enable_fp_fusion")
    found = [tuple(line.keywords[name] for name in names) for line in lines]
    lists = ((32, 64), ("a,b", (1, 2)), (4, 8), (2, 3, 4), (128,), (False, True))
    assert set(found) == set(itertools.product(*lists))
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        (4096, (4096,)),
        ("4096", (4096,)),
        ("32x16x8", (32, 16, 8)),
        ("32, 16", (32, 16)),
        ((3, 2), (3, 2)),
        ("cdiv(M, BLOCK_SIZE_M) * cdiv(N, BLOCK_SIZE_N)", (1024,)),
        ("cdiv(N, 1024), min(K, 2**6), num_warps", (4, 64, 8)),
        ("max(M // 3, -N) % 1000", (365,)),
        (None, None),
    ],
)
def test_grids_are_numbers_or_expressions(text: Any, grid: tuple[int, ...] | None) -> None:
    """A grid consists of sizes, or of expressions with arguments and constexprs."""
    constexprs = [*BLOCKS, "ACTIVATION=None"]
    (line,) = launches("matmul", MATMUL, constexprs=constexprs, num_warps=8, grid=text)
    assert line.grid == grid


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2 * (M * K + K * N)", 2**26),
        ("64MiB", 2**26),
        ("1.5 kB", 1500),
        ("2 GB", 2 * 10**9),
        ("0", 0),
        ("1e9", 10**9),
        (12, 12),
        ("7B", 7),
    ],
)
def test_bytes_are_numbers_or_expressions(text: Any, number: int) -> None:
    """Traffic is a number of bytes, with or without a unit, or an expression with arguments."""
    constexprs = [*BLOCKS, "ACTIVATION=None"]
    (line,) = launches("matmul", MATMUL, constexprs=constexprs, bytes_read=text, bytes_written=text)
    assert (line.read_bytes, line.written_bytes) == (number, number)


def test_types_have_no_value_to_calculate_with() -> None:
    """An expression with an argument that only has a type asks for its value by name."""
    asked = {"constexprs": ["BLOCK_SIZE=1024"]}
    for options in ({"grid": "cdiv(N, BLOCK_SIZE)"}, {"bytes_read": "2 * N * 4096"}):
        words = sentence("layer_norm", LAYER_NORM, **asked, **options)
        assert "value of N is asked for" in words
        assert "N=2048" in words
    assert "calculates with X, which is no number" in sentence(
        "layer_norm", LAYER_NORM, **asked, grid="X"
    )


def test_autotuners_and_heuristics_set_their_own() -> None:
    """What an autotuner or heuristics set may be omitted, and is known in the grid."""
    function = KERNELS["tuned_add"]
    for signature in ("*fp32, *fp32, 4096", "x_ptr=*fp32, y_ptr=*fp32, n=4096"):
        (line,) = read_launches(function, signature=signature, grid="cdiv(n, BLOCK)")
        found = list(variants(function, line.arguments, line.keywords, line.grid))
        assert [one.launch.grid for one in found] == [(16,), (4,)]
        assert [one.launch.keywords["EVEN"] for one in found] == [True, True]
    (line,) = read_launches(function, signature="*fp32, *fp32, i32")
    with pytest.raises(InputError, match="value of n is asked for"):
        list(variants(function, line.arguments, line.keywords))
    (line,) = read_launches(function, signature="*fp32, *fp32, 4096", grid="n // (BLOCK - 256)")
    with pytest.raises(InputError, match=r"^--grid 'n // \(BLOCK - 256\)' comes to no number"):
        list(variants(function, line.arguments, line.keywords, line.grid))
    assert "BLOCK is set by the autotuner" in sentence("tuned_add", "x_ptr=*fp32, BLOCK=256")
    assert "EVEN is set by the heuristics" in sentence("tuned_add", "*fp32, *fp32, 1, EVEN=True")
    assert "which the autotuner" in sentence("tuned_add", "*fp32, *fp32, 1", bytes_read="BLOCK")


@pytest.mark.parametrize(
    ("asked", "blocks"),
    [
        ({"constexprs": ["BLOCK=256"]}, [256]),
        ({"constexprs": {"BLOCK": [256, 1024]}}, [256, 1024]),
        ({"constexprs": ["BLOCK=1024,4096"], "num_warps": "4,8"}, [1024]),
        ({"options": ["num_ctas=1"]}, [256, 1024]),
    ],
)
def test_what_an_autotuner_sets_chooses_its_configurations(
    asked: dict[str, Any], blocks: list[int]
) -> None:
    """Given values of a constexpr, a knob or an option select the configurations that have them."""
    function = KERNELS["tuned_add"]
    (line,) = launches("tuned_add", "*fp32, *fp32, 4096", **asked)
    found = line.choose(list(variants(function, line.arguments, line.keywords)))
    assert [one.tuned["BLOCK"] for one in found] == blocks


def test_a_configuration_that_there_is_not_is_refused() -> None:
    """The sentence names what was asked for, and the possible values."""
    function = KERNELS["tuned_add"]
    (line,) = launches("tuned_add", "*fp32, *fp32, 4096", constexprs=["BLOCK=64,True"])
    words = "no configuration with 'BLOCK=64,True'; there are BLOCK=256, BLOCK=1024$"
    with pytest.raises(InputError, match=words):
        line.choose(list(variants(function, line.arguments, line.keywords)))
    assert "num_warps is '6'" in sentence("tuned_add", "*fp32, *fp32, 1", num_warps=6)


def test_declared_types_are_the_kernels() -> None:
    """A parameter with a declared type takes only that type."""
    desc = "tensordesc<fp16[128,64]>"
    (line,) = launches("oddities", f"{desc}, (1, fp32), i64, fp16, 3, num_warps=i32")
    assert line.keywords["num_stages"] == 3
    assert line.typical == {"pair": "(1, fp32)", "wide": "i64", "half": "fp16", "num_warps": "i32"}
    words = sentence("oddities", f"{desc}, (1, fp32), i64, fp16, i32")
    assert words == "num_stages is 'i32'; give a whole number from 1 to 64"
    words = sentence("oddities", f"{desc}, (1, fp32), i32")
    assert "'wide=i32' is nothing that a launch passes; the kernel declares it as i64" in words


@pytest.mark.parametrize(
    ("signature", "options", "words"),
    [
        (LAYER_NORM.replace("fp32,s", "fp23,s"), {}, r"'Rstd=\*fp23' has no dtype of a tensor"),
        (LAYER_NORM.replace("N=i32:16", "N=i8"), {}, "'N=i8' is nothing that a launch passes; a"),
        (LAYER_NORM.replace("N=i32:16", "N=fp16"), {}, "a launch passes i32, i64, u64, fp32, u1"),
        (LAYER_NORM.replace("N=i32:16", "N=i32:8"), {}, "'N=i32:8' has a mark that is not"),
        (LAYER_NORM.replace("eps=fp32", "eps=fp32:16"), {}, "fp32 and u1 have no mark"),
        (LAYER_NORM.replace("X=*fp16", "X=*fp16:8"), {}, "neither 16 nor 1"),
        (LAYER_NORM.replace("X=*fp16", "X=*fp16[0]"), {}, "has no sizes in elements"),
        (LAYER_NORM.replace("N=i32:16", "N='a'"), {}, "is no argument of a launch; give N a type"),
        (LAYER_NORM.replace("N=i32:16", "N=" + "9" * 4000), {}, "at most 64 bits"),
        (LAYER_NORM.replace("N=i32:16", "Nn=i32"), {}, "'Nn', which .* not have; the nearest is N"),
        (LAYER_NORM + ",N=i32", {}, "N is twice in --signature"),
        (LAYER_NORM.replace("N=i32:16", "N="), {}, "entry of N in --signature is empty"),
        (LAYER_NORM + ",", {}, "'' in --signature has no name, and comes after eps="),
        (LAYER_NORM + ",BLOCK_SIZE=8", {}, "a constexpr of layer_norm; give it as --constexpr BL"),
        ("*fp16,,i32", {}, "entry of Y in --signature is empty"),
        ("*fp16," * 11 + "*fp16", {}, "more entries than layer_norm has parameters"),
        ("X=(*fp16", {}, r'"?.\).? is missing in --signature'),
        ("X=*fp16)", {}, "closes no bracket in --signature"),
        ("*" * 20_000, {}, "--signature has 20000 characters"),
        (LAYER_NORM, {"constexprs": ["BLOCKSIZE=8"]}, "the nearest is BLOCK_SIZE"),
        (LAYER_NORM, {"constexprs": ["N=8"]}, "N is no constexpr of layer_norm; give it in --sig"),
        (LAYER_NORM, {"constexprs": ["8"]}, "'8' is no NAME=VALUE, such as BLOCK_SIZE=1024"),
        (LAYER_NORM, {"constexprs": ["BLOCK_SIZE=8,,16"]}, "BLOCK_SIZE is '8,,16', where a value"),
        (LAYER_NORM, {"constexprs": ["BLOCK_SIZE=2*8"]}, r"'BLOCK_SIZE=2\*8' is no value"),
        (LAYER_NORM, {"constexprs": ["ROWS=64,BLOCK_SIZE=8"]}, "--constexpr repeats, with one"),
        (LAYER_NORM, {"constexprs": ["BLOCK_SIZE=tl.x"]}, "is no dtype of triton.language"),
        (LAYER_NORM, {"constexprs": ["BLOCK_SIZE=1", "BLOCK_SIZE=2"]}, "BLOCK_SIZE is given twice"),
        (LAYER_NORM, {"constexprs": ["num_warps=4"]}, "no constexpr of layer_norm; give --num-w"),
        (LAYER_NORM, {"options": ["BLOCK_SIZE=4"]}, "BLOCK_SIZE is a constexpr of layer_norm; gi"),
        (LAYER_NORM, {"options": ["num_warps=4"], "num_warps": 8}, "num_warps is given twice"),
        (LAYER_NORM, {"num_warps": "3"}, "num_warps is '3'; give a power of two, such as 4 or 8"),
        (LAYER_NORM, {"num_stages": "65"}, "num_stages is '65'; give a whole number from 1 to 64"),
        (LAYER_NORM, {"num_stages": []}, "num_stages has no value"),
        (LAYER_NORM, {}, "layer_norm is not given BLOCK_SIZE; give --signature .*BLOCK_SIZE=VALUE"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(signature: str, options: dict[str, Any], words: str) -> None:
    """Each mistake is named in one sentence."""
    found = sentence("layer_norm", signature, **options)
    assert re.search(words, found), found
    assert len(found) < 400
    assert "\n" not in found


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ("0", "dimension 0 of the grid is '0'"),
        ("1x2x3x4", "this one has 4"),
        ("N / 2.0", "dimension 0 of the grid is '1024.0'; give a whole number"),
        ("N // 0", "comes to no number"),
        ("10**10**10", "comes to no number"),
        ("Nn", "'Nn', which layer_norm does not have; the nearest is N"),
        ("cdiv(N)", "has no place in it"),
        ("__import__('os')", "has no place in it"),
        ("N,", "is no expression"),
        ("(N", "is missing in --grid"),
        ("N == 1", "is a condition, and a number is expected"),
    ],
)
def test_grids_that_are_none_are_refused(grid: str, words: str) -> None:
    """An impossible grid is named in one sentence."""
    signature = LAYER_NORM.replace("N=i32:16", "N=2048")
    found = sentence("layer_norm", signature, constexprs=["BLOCK_SIZE=1"], grid=grid)
    assert words in found


@pytest.mark.parametrize("given", ["-1", "N", "1e999", "3 parsecs", "9" * 30])
def test_bytes_that_are_none_are_refused(given: str) -> None:
    """Traffic that is no number of bytes is refused in one sentence that names the option."""
    signature = LAYER_NORM.replace("N=i32:16", "N=-5")
    found = sentence("layer_norm", signature, constexprs=["BLOCK_SIZE=1"], bytes_read=given)
    assert given[:5] in found


def test_too_many_launches_are_refused() -> None:
    """The product of lists is limited before it is built."""
    many = ",".join(map(str, range(1500)))
    constexprs = [f"BLOCK_SIZE={many}"]
    assert "more than 10000 launches" in sentence(
        "layer_norm", LAYER_NORM, constexprs=constexprs, num_stages="1,2,3,4,5,6,7"
    )


def test_other_things_are_no_kernel() -> None:
    """Anything that triton.jit did not make is refused by name."""
    with pytest.raises(InputError, match="'sentence' is no function that triton"):
        read_launches(sentence, signature="")


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_example_of_nothing_given_parses(kernel: str) -> None:
    """If nothing is given, the sentence has a command line that gives everything."""
    (line,) = from_example(kernel, sentence(kernel))
    assert list(variants(KERNELS[kernel], line.arguments, line.keywords))


def test_the_examples_are_likely_launches() -> None:
    """Pointers and numbers of an example fit the kernel, and constexprs are left open."""
    assert sentence("layer_norm").endswith(
        "give --signature 'X=*fp16, Y=*fp16, W=*fp16, B=*fp16, Mean=*fp16, Rstd=*fp16, stride=i32,"
        " N=i32, eps=fp32' --constexpr BLOCK_SIZE=VALUE"
    )
    assert sentence("tuned_add").endswith("--signature 'x_ptr=*fp16, y_ptr=*fp16, n=2048'")
    with pytest.raises(InputError, match=r"x_idx_ptr=\*i32. --constexpr IS_ODD=VALUE"):
        read_launches(JITFunction(["x_idx_ptr", "IS_ODD"]))


class JITFunction:
    """Stands in for a kernel with the named parameters."""

    fn = None
    raw_src = ("def crowded(): ...",)

    def __init__(self, names: list[str]) -> None:
        """Take the names of the parameters; those in capitals are constexprs."""
        self.__name__ = "crowded"
        self.params = [
            SimpleNamespace(
                name=name,
                is_constexpr=name.isupper(),
                annotation_type="",
                default=inspect.Parameter.empty,
            )
            for name in names
        ]


@pytest.mark.parametrize("count", [1, 10, 20, 30, 60, 500])
@pytest.mark.parametrize("width", [3, 12, 300])
def test_examples_of_many_parameters_fit_a_line(count: int, width: int) -> None:
    """An example is by name, or in order if that is shorter, and has at least one parameter."""
    names = [f"{'n' if place % 3 else 'N'}{place:0{width}}" for place in range(count)]
    function = JITFunction(names)
    with pytest.raises(InputError) as caught:
        read_launches(function)
    words = str(caught.value)
    assert len(words) < 400
    assert "; give --" in words
    if not words.endswith("and so on"):
        options = shlex.split(words[words.index("--") :])
        assert options[0] in {"--signature", "--constexpr"}
        signature = options[1] if options[0] == "--signature" else ""
        assert read_launches(
            function,
            signature=signature,
            constexprs=[value for value in options[1::2] if value != signature],
        )


parameters = {name: [p.name for p in getattr(f, "params", ())] for name, f in KERNELS.items()}
names = st.sampled_from(
    [name for found in parameters.values() for name in found]
    + ["x_ptr", "n", "BLOCK", "EVEN", "maxnreg", "num_ctas", "é", "", "x" * 500]
)
types = st.sampled_from(
    [
        *("*fp16", "*fp32:16", "*u1:1", "*bf16[8388608]", "*fp16[4096x2048]:1", "i32", "i32:16"),
        *("i64", "u64:16", "fp32", "u1", "2048", "1", "1e-5", "True", "None", "(i32, *fp16)"),
        *("tensordesc<fp16[128,64]>", "i8", "fp16", "'a'", "tl.float16", "leaky_relu", ""),
        *("9" * 5000, "*" * 500, "(" * 200, "((((1))))", "0x10", "nan", "1e999", "-0.0", "é"),
    ]
)
anything = st.text(max_size=30) | st.text("*:=,[]()<>'\"\\\n xifp0123456789", max_size=30)
constants = types | anything | st.lists(types, max_size=4).map(",".join)
pairs = st.builds("{}={}".format, names, constants) | anything
entries = st.lists(types | st.builds("{}={}".format, names, types) | anything, max_size=14)
calculations = st.recursive(
    names | st.sampled_from(["1", "1024", "0.5", "9" * 300, "1e308"]),
    lambda part: (
        st.builds("({} {} {})".format, part, st.sampled_from(["+", "*", "//", "**", "%"]), part)
        | st.builds("{}({}, {})".format, st.sampled_from(["cdiv", "min", "abs"]), part, part)
    ),
    max_leaves=8,
)  # fmt: skip
grids = calculations | anything | st.sampled_from(["4096", "32x32", "1x" * 50 + "1", "-1", ""])


def checked(kernel: str, signature: str | None, **options: Any) -> None:
    """Require launches, or one sentence whose example parses."""
    try:
        lines = launches(kernel, signature, **options)
    except InputError as error:
        words = str(error)
        assert words
        assert len(words) < 400, words
        assert words.isprintable(), words
        if re.search(r"; give --\w+ .*[^n]$", words) and "is not given" in words:
            assert from_example(kernel, words)
        return
    assert lines
    if KERNELS[kernel] is innermost(KERNELS[kernel]):  # otherwise an autotuner gives the rest
        for line in lines[:3]:
            launch(KERNELS[kernel], line)


kernels = st.sampled_from([*KERNELS])


@pytest.mark.slow
@settings(max_examples=100)
@given(kernels, entries.map(",".join), st.lists(pairs, max_size=3))
@example("layer_norm", "*fp16,'\\", [])
@example("layer_norm", LAYER_NORM, [f"{'x' * 500}=)"])
def test_any_signature_gives_launches_or_a_sentence(
    kernel: str, signature: str, constexprs: list[str]
) -> None:
    """Entries of every kind in any order give launches or one sentence."""
    checked(kernel, signature, constexprs=constexprs)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.data())
def test_mutated_signatures_give_launches_or_a_sentence(data: st.DataObject) -> None:
    """A correct command line with any change gives launches or one sentence."""
    kernel, signature, constexprs = data.draw(
        st.sampled_from(
            [
                ("layer_norm", LAYER_NORM, ["BLOCK_SIZE=1024,2048"]),
                ("matmul", MATMUL, [*BLOCKS, "ACTIVATION='a,b',None"]),
                ("oddities", "tensordesc<fp16[128,64]>,(1, fp32),i64,fp16,3,i32", []),
            ]
        )
    )
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(signature))] * 2)))
    mutated = signature[:start] + data.draw(anything | types) + signature[min(end, start + 8) :]
    if constexprs:
        place = data.draw(st.integers(0, len(constexprs) - 1))
        constexprs = [*constexprs]
        constexprs[place] = data.draw(st.just(constexprs[place]) | pairs)
    checked(kernel, mutated, constexprs=constexprs)


@pytest.mark.slow
@settings(max_examples=100)
@given(grids, grids, constants, constants, st.lists(pairs, max_size=2))
def test_any_option_gives_launches_or_a_sentence(
    grid: str, traffic: str, num_warps: str, num_stages: str, options: list[str]
) -> None:
    """Any text for the other options gives launches or one sentence."""
    checked("matmul", MATMUL, constexprs=[*BLOCKS, "ACTIVATION=None"], grid=grid)
    checked("matmul", MATMUL, constexprs=[*BLOCKS, "ACTIVATION=None"], bytes_read=traffic)
    asked = {"num_warps": num_warps, "num_stages": num_stages, "options": options}
    checked("matmul", MATMUL, constexprs=[*BLOCKS, "ACTIVATION=None"], **asked)
    checked("tuned_add", "*fp32, *fp32, 4096", grid=grid)


def test_a_name_in_a_signature_is_said_to_need_sizes() -> None:
    """A launch without sizes that passes the name of a size is told of `tune --sizes`."""
    words = sentence("layer_norm", LAYER_NORM.replace("N=i32:16", "N=M"))
    assert words.endswith("and `tune --sizes FILE` columns of the file by name")
