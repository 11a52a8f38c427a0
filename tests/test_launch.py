"""A launch as plain values is specialized as Triton's own binder specializes the real arguments."""

import functools
import json
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import example, given, settings
from hypothesis import strategies as st
from triton.compiler.compiler import make_backend
from triton.runtime.jit import compute_cache_key, create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from occupancy_lab.arguments import TRITON_DTYPES, Descriptor
from occupancy_lab.compiling import resource_key
from occupancy_lab.compiling.compile import check_options
from occupancy_lab.compiling.offline import default_options, gpu_target
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.launch import Launch, _stand_in, checked_grid, launch_of

SM_90, GFX942 = find_gpu("sm_90").target, find_gpu("gfx942").target
TARGETS = (SM_90, GFX942)
DTYPES = [getattr(torch, name) for name in TRITON_DTYPES]
GIB = 2**30


@triton.jit
def plain_kernel(a, b, c=3, *, D: tl.constexpr = 4):  # noqa: ANN001, ANN201, N803
    """Take three arguments and a constexpr."""


@triton.jit(do_not_specialize=["a"], do_not_specialize_on_alignment=["b"])
def unspecialized(a, b, c=3, *, D: tl.constexpr = 4):  # noqa: ANN001, ANN201, N803
    """Take arguments that are not specialized, or not on their alignment."""


@triton.jit
def annotated(a: tl.int64, b: tl.uint32, c: tl.float32 = 3, *, D: tl.constexpr = 4):  # noqa: ANN201, N803
    """Take arguments of annotated types."""


@triton.jit
def const(a: tl.const, b: tl.const, c=3, *, D: tl.constexpr = 4):  # noqa: ANN001, ANN201, N803
    """Take pointers that are only read through."""


KERNELS = (plain_kernel, unspecialized, annotated, const)


class Pair(NamedTuple):
    """A named tuple, which a kernel may be given."""

    first: Any
    second: Any


@functools.cache
def triton_binder(function: Any, target: Any) -> Any:
    """Return Triton's binding and specialization of a launch's arguments."""
    backend = make_backend(gpu_target(target))
    return create_function_from_signature(function.signature, function.params, backend)


def triton_key(
    function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], target: Any = SM_90
) -> str:
    """Return the key of Triton's own binder, by which a launch finds a compiled kernel."""
    _, specialization, options = triton_binder(function, target)(*arguments, **keywords)
    return str(compute_cache_key({}, specialization, options))


def own_key(
    function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], target: Any = SM_90
) -> str:
    """Return the key of the lab's store."""
    launch = launch_of(function, arguments, keywords)
    return json.dumps(resource_key(function, launch, target), sort_keys=True)


def stood_in(launch: Launch) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments that `warm_up` gives to Triton."""
    return (
        list(map(_stand_in, launch.arguments)),
        {name: _stand_in(value) for name, value in launch.keywords.items()},
    )


def real_tensor(dtype: torch.dtype, size: int, offset: int) -> torch.Tensor:
    """Return a tensor in memory that begins *offset* elements after an aligned address."""
    return torch.empty(size + offset, dtype=dtype)[offset:]


DTYPE = st.sampled_from(DTYPES)
NUMBERS = st.one_of(
    st.builds(
        operator.add,
        st.sampled_from([0, 1, 16, 2**31, -(2**31), 2**32, 2**62, -(2**62)]),
        st.integers(-33, 33),
    ),
    st.integers(-(2**63), 2**64 - 1),
)
TENSORS = st.builds(real_tensor, DTYPE, st.integers(0, 40), st.integers(0, 33))
SCALARS = st.one_of(
    NUMBERS, st.booleans(), st.none(), st.floats(allow_nan=False), TENSORS, st.just(plain_kernel)
)
ARGUMENTS = st.one_of(
    SCALARS,
    st.tuples(SCALARS, SCALARS),
    st.builds(Pair, SCALARS, SCALARS),
    st.tuples(st.tuples(SCALARS), SCALARS),
)
CONSTANTS = st.one_of(
    st.integers(-3, 2**70),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.sampled_from([tl.float16, tl.int64, tl.float32, plain_kernel, annotated]),
    st.tuples(st.integers(0, 3), st.sampled_from([tl.float16, "a"])),
)


@pytest.mark.parametrize("target", TARGETS, ids=operator.attrgetter("name"))
@given(st.sampled_from(KERNELS[:2]), ARGUMENTS, ARGUMENTS, ARGUMENTS, CONSTANTS)
@example(plain_kernel, 1, 16, 2**31, 1)
@example(plain_kernel, 2**63, 2**63 - 1, -(2**63), True)  # noqa: FBT003 - a constexpr
@example(plain_kernel, True, False, None, 1.0)  # noqa: FBT003 - arguments of a kernel
def test_stand_ins_are_specialized_as_the_arguments(  # noqa: PLR0913, PLR0917 - the arguments
    target: Any, function: Any, a: Any, b: Any, c: Any, constant: Any
) -> None:
    """The plain values of any launch have Triton's key of the arguments themselves."""
    launch = launch_of(function, (a, b, c), {"D": constant})
    arguments, keywords = stood_in(launch)
    assert triton_key(function, arguments, keywords, target) == triton_key(
        function, (a, b, c), {"D": constant}, target
    )


@pytest.mark.parametrize("target", TARGETS, ids=operator.attrgetter("name"))
@pytest.mark.parametrize("function", KERNELS, ids=operator.attrgetter("__name__"))
@settings(max_examples=30)
@given(st.lists(st.tuples(TENSORS | NUMBERS, TENSORS | NUMBERS, NUMBERS), min_size=2, max_size=5))
@example([(1, 1, 1), (7, 7, 7), (16, 16, 16), (2**40, 2**40, 2**40), (2**63, 3, 1)])
def test_keys_are_equal_just_where_tritons_are(
    target: Any, function: Any, launches: list[tuple[Any, ...]]
) -> None:
    """Two launches share a key of the store exactly if Triton would launch one kernel."""
    if function is annotated:  # Triton refuses a tensor in place of a number only when it compiles
        launches = [
            tuple(7 if isinstance(one, torch.Tensor) else one for one in launch)
            for launch in launches
        ]
    theirs = [triton_key(function, launch, {}, target) for launch in launches]
    ours = [own_key(function, launch, {}, target) for launch in launches]
    for one in range(len(launches)):
        for other in range(one):
            assert (ours[one] == ours[other]) == (theirs[one] == theirs[other]), (
                launches[one],
                launches[other],
            )


@given(st.lists(CONSTANTS, min_size=2, max_size=5))
@example([1, True, 1.0, "1", tl.float16, "fp16", "tl.fp16", None, "None", (1, "a"), "(1, 'a')"])
def test_keys_tell_constexprs_apart(constants: list[Any]) -> None:
    """Two values of a constexpr share a key of the store exactly if they share Triton's."""
    theirs = [triton_key(plain_kernel, (1, 2), {"D": constant}) for constant in constants]
    ours = [own_key(plain_kernel, (1, 2), {"D": constant}) for constant in constants]
    for one in range(len(constants)):
        for other in range(one):
            assert (ours[one] == ours[other]) == (theirs[one] == theirs[other]), (
                constants[one],
                constants[other],
            )


@pytest.mark.parametrize(
    "elements", [2 * GIB - 17, 2 * GIB - 1, 2 * GIB, 2 * GIB + 1, 4 * GIB, 0, 1]
)
@pytest.mark.parametrize("target", TARGETS, ids=operator.attrgetter("name"))
def test_tensors_around_two_gib(elements: int, target: Any) -> None:
    """The range of a pointer on AMD is Triton's own, on both sides of 2 GiB."""
    on_meta = torch.empty(elements, dtype=torch.int8, device="meta")
    arguments, _ = stood_in(launch_of(plain_kernel, (on_meta, 3), {}))
    assert triton_key(plain_kernel, arguments, {}, target) == triton_key(
        plain_kernel, (on_meta, 3), {}, target
    )
    small = torch.empty(1, dtype=torch.int8, device="meta")
    alike = own_key(plain_kernel, (on_meta, 3), {}, target) == own_key(
        plain_kernel, (small, 3), {}, target
    )
    assert alike == (target is SM_90 or elements < 2 * GIB)


@given(
    st.sampled_from([torch.float16, torch.float32, torch.bfloat16, torch.int8]),
    st.lists(st.sampled_from([16, 32, 64]), min_size=1, max_size=3),
    st.sampled_from(["zero", "nan"]),
)
def test_descriptors(dtype: torch.dtype, block: list[int], padding: str) -> None:
    """A tensor descriptor is specialized like Triton's; its block shape, dtype and more count."""
    real = torch.empty([64] * len(block), dtype=dtype)
    padding = padding if dtype.is_floating_point else "zero"
    given_ = TensorDescriptor.from_tensor(real, block, padding)
    launch = launch_of(plain_kernel, (given_, 3), {})
    assert isinstance(launch.arguments[0], Descriptor)
    arguments, _ = stood_in(launch)
    assert triton_key(plain_kernel, arguments, {}) == triton_key(plain_kernel, (given_, 3), {})
    other = TensorDescriptor.from_tensor(real, [8, *block[1:]], padding)
    assert own_key(plain_kernel, (given_, 3), {}) != own_key(plain_kernel, (other, 3), {})


@pytest.mark.parametrize(
    ("arguments", "keywords", "words"),
    [
        ((), {}, "plain_kernel is not given a, b; its parameters are a, b, c, D"),
        ((1, 2, 3, 4, 5), {}, "plain_kernel is given 5 arguments and has 4 parameters"),
        ((1, 2), {"a": 1}, "plain_kernel is given a by position and by name; give it once"),
        ((1,), {}, "plain_kernel is not given b"),
    ],
)
def test_arguments_that_do_not_fit(
    arguments: tuple[Any, ...], keywords: dict[str, Any], words: str
) -> None:
    """Missing, superfluous and repeated arguments are named in a sentence."""
    with pytest.raises(InputError) as caught:
        launch_of(plain_kernel, arguments, keywords)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


OPTIONS = {
    "sm_90": {
        "num_warps": 8,
        "num_stages": 2,
        "num_ctas": 2,
        "maxnreg": 64,
        "enable_fp_fusion": False,
        "launch_pdl": True,
        "launch_cooperative_grid": True,
    },
    "gfx942": {
        "num_warps": 8,
        "num_stages": 1,
        "waves_per_eu": 2,
        "matrix_instr_nonkdim": 16,
        "kpack": 2,
        "enable_fp_fusion": False,
    },
}


@pytest.mark.parametrize("target", TARGETS, ids=operator.attrgetter("name"))
def test_options_of_each_vendor(target: Any) -> None:
    """Every option of a vendor is accepted and distinguishes keys; other vendors' are refused."""
    keys = {own_key(plain_kernel, (1, 2), {}, target)}
    for name, value in OPTIONS[target.name].items():
        assert name in default_options(target)
        launch = launch_of(plain_kernel, (1, 2), {name: value})
        check_options(plain_kernel, launch, target)
        assert launch.options(plain_kernel) == {name: value}
        keys.add(own_key(plain_kernel, (1, 2), {name: value}, target))
    assert len(keys) == len(OPTIONS[target.name]) + 1
    (other,) = (OPTIONS[one.name] for one in TARGETS if one is not target)
    for name in other.keys() - default_options(target).keys():
        launch = launch_of(plain_kernel, (1, 2), {name: other[name]})
        with pytest.raises(InputError, match=rf"{name} is neither a parameter of plain_kernel"):
            check_options(plain_kernel, launch, target)


@given(st.from_regex(r"[a-z]{1,12}(_[a-z]{1,6})?", fullmatch=True))
def test_an_unknown_option_is_refused(name: str) -> None:
    """A name that is no parameter and no option is refused in a sentence with the parameters."""
    known = {"a", "b", "c", "D", *default_options(SM_90)}
    launch = launch_of(plain_kernel, (), {"a": 1, "b": 2, name: 1})
    if name in known:
        check_options(plain_kernel, launch, SM_90)
        return
    with pytest.raises(InputError) as caught:
        check_options(plain_kernel, launch, SM_90)
    assert str(caught.value).startswith(f"{name} is neither a parameter of plain_kernel (a, b, c")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ((0,), "dimension 0 of the grid is '0'; give a whole number from 1 to 2147483647"),
        ((1, 65536), "dimension 1 of the grid is '65536'; give a whole number from 1 to 65535"),
        ((), "a grid has 1 to 3 dimensions, and this one has 0"),
        (("x",), "dimension 0 of the grid is 'x'"),
        ((2.5,), "dimension 0 of the grid is '2.5'"),
        (lambda meta: (meta["E"],), "the grid cannot be worked out: KeyError: 'E'"),
    ],
)
def test_a_wrong_grid_is_refused(grid: Any, words: str) -> None:
    """An impossible grid is named in a sentence."""
    with pytest.raises(InputError) as caught:
        launch_of(plain_kernel, (1, 2), {}, grid)
    assert words in str(caught.value)


def test_a_grid_is_worked_out_as_tritons() -> None:
    """A grid function gets the arguments by name, with defaults and constexprs."""
    launch = launch_of(plain_kernel, (1, 20), {}, lambda meta: (meta["b"] // meta["D"], meta["c"]))
    assert launch.grid == (5, 3)
    assert launch.num_programs == 15
    assert checked_grid(7) == (7,)
    assert launch_of(plain_kernel, (1, 2), {}, (2, 3, 4, 5)).grid == (2, 3, 4)
    with pytest.raises(InputError, match="a grid has 1 to 3 dimensions, and this one has 4"):
        checked_grid((2, 3, 4, 5))
