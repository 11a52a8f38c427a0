"""`occupancy_lab.softmax` is torch.softmax, whatever the tensor and whoever looks at it.

On the CPU a stand-in launches: what is tested is all but the kernels. On a GPU they run too.
"""

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import DTYPES, INF, NAN, check_softmax, to_gpu
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import occupancy_lab
from occupancy_lab import InputError, softmax
from occupancy_lab.kernel import own_kernel
from occupancy_lab.operators import softmax as operator
from occupancy_lab.operators.planning import Rows
from occupancy_lab.operators.softmax import FORWARD
from occupancy_lab.values import Problem

Place = Callable[[Tensor], Tensor]


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Return normally distributed elements, always the same ones."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check(y: Tensor, x: Tensor, dim: int = -1) -> None:
    """Compare *y* with torch's softmax of *x* in float64, in dtype and strides too."""
    check_softmax(y.cpu(), x.cpu(), dim=dim)
    assert y.stride() == torch.softmax(x.cpu(), dim).stride()


SHAPES = [(5,), (1,), (3, 7), (1, 300), (9, 1), (2, 3, 50), (2, 3, 4, 64), (1, 1, 1, 1), (2, 1, 9)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_dim_of_any_shape(place: Place, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Each dimension of 1 to 4 gives torch's values and strides."""
    x = place(random(*shape, dtype=dtype))
    for dim in range(-len(shape), len(shape)):
        check(softmax(x, dim), x, dim)
    check(softmax(x), x)


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "padded rows": lambda: random(12, 400)[:, :300],
    "rows that are not aligned": lambda: random(12, 400)[:, 3:],
    "every second row": lambda: random(13, 257)[::2],
    "every second column": lambda: random(12, 400)[:, ::2],
    "transposed": lambda: random(300, 12).t(),
    "one row repeated": lambda: random(1, 257).expand(6, 257),
    "one element repeated": lambda: random(1, 1).expand(6, 257),
    "a slice of a batch": lambda: random(4, 6, 50)[:, 2:5],
    "heads before positions": lambda: random(2, 7, 3, 16).transpose(1, 2),
    "channels last": lambda: random(2, 8, 4, 4).to(memory_format=torch.channels_last),
    "reversed dimensions": lambda: random(3, 4, 5).permute(2, 1, 0),
    "from the middle of a storage": lambda: random(1000)[17:317],
}


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 4), (0, 0)])
def test_empty_tensors(place: Place, shape: tuple[int, ...]) -> None:
    """An empty tensor gives one of its shape, and a gradient of its shape."""
    x = place(torch.empty(shape)).requires_grad_()
    for dim in range(len(shape)):
        y = softmax(x, dim)
        assert y.shape == torch.softmax(x, dim).shape
        (dx,) = torch.autograd.grad(y.sum(), x)
        assert dx.shape == x.shape


def test_a_single_number(place: Place) -> None:
    """A tensor without dimensions gives 1, or NaN for infinities and NaN."""
    for number in (3.0, INF, NAN):
        x = place(torch.tensor(number))
        for dim in (0, -1):
            check(softmax(x, dim), x, dim)


def test_special_values(place: Place) -> None:
    """Rows with -inf, inf and NaN give NaN where torch does."""
    x = place(
        torch.tensor(
            [
                [0.0, 1.0, -INF, 2.0],
                [-INF, -INF, -INF, -INF],
                [INF, 1.0, 2.0, 3.0],
                [NAN, 1.0, 2.0, -INF],
                [1e30, -1e30, 0.0, 1e30],
            ]
        )
    )
    check(softmax(x), x)
    check(softmax(x, 0), x, 0)


@settings(max_examples=60)
@given(st.data())
def test_any_view(data: st.DataObject) -> None:
    """Any permutation, slice and expansion works."""
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    whole = random(*(3 * size for size in sizes))
    steps = [
        slice(None, step * size, step) for size in sizes for step in [data.draw(st.integers(1, 3))]
    ]
    x = whole[tuple(steps)].permute(*data.draw(st.permutations(range(len(sizes)))))
    stride = operator._row_stride(x.shape, x.stride())
    if stride is None:
        return
    cols = x.shape[-1]
    rows = x.as_strided((x.numel() // cols, cols), (stride, 1))
    assert torch.equal(rows.reshape(x.shape), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["dense", *LAYOUTS])
def test_gradients_are_torchs(place: Place, layout: str, dtype: torch.dtype) -> None:
    """The gradient equals torch's in float64, along every dimension."""
    made = LAYOUTS.get(layout, lambda: random(6, 257))().to(dtype)
    for dim in range(made.dim()):
        x = place(made).detach().requires_grad_()
        dy = place(random(*made.shape, dtype=dtype, seed=1))
        (dx,) = torch.autograd.grad(softmax(x, dim), x, dy)
        exact = x.detach().double().requires_grad_()
        (expected,) = torch.autograd.grad(torch.softmax(exact, dim), exact, dy.double())
        units = 32 if dtype == torch.float32 else 4
        tolerance = units * torch.finfo(dtype).eps
        torch.testing.assert_close(dx.double(), expected, rtol=tolerance, atol=tolerance)
        assert (dx.dtype, dx.shape) == (dtype, x.shape)


def test_second_derivatives_are_torchs(place: Place) -> None:
    """A gradient can be differentiated again."""

    def second(function: Callable[[Tensor], Tensor], x: Tensor, v: Tensor) -> Tensor:
        (first,) = torch.autograd.grad((function(x) * v).sum(), x, create_graph=True)
        return torch.autograd.grad((first * v).sum(), x)[0]

    x, v = place(random(3, 9)).requires_grad_(), place(random(3, 9, seed=1))
    exact = x.detach().double().requires_grad_()
    torch.testing.assert_close(
        second(softmax, x, v).double(),
        second(lambda one: torch.softmax(one, -1), exact, v.double()),
        rtol=1e-4,
        atol=1e-6,
    )


def test_no_graph_where_none_is_asked_for(place: Place) -> None:
    """The result has a graph only if gradients are enabled and needed."""
    x = place(random(3, 9))
    assert not softmax(x).requires_grad
    x.requires_grad_()
    assert softmax(x).requires_grad
    with torch.no_grad():
        assert not softmax(x).requires_grad


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own
def test_forward_derivatives_are_torchs(place: Place) -> None:
    """Dual numbers keep their derivative."""
    x, v = place(random(3, 9)), place(random(3, 9, seed=1))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, v)
        found, expected = (
            torch.autograd.forward_ad.unpack_dual(one).tangent
            for one in (softmax(dual), torch.softmax(dual, -1))
        )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(3), "x is on cpu; give a tensor on a GPU, or use torch.softmax"),
        (torch.zeros(3, dtype=torch.float64), "x is of float64; give one of float32, float16"),
        (torch.zeros(3, dtype=torch.int64), "x is of int64; give one of"),
        (torch.zeros(0), "x is on cpu"),
        (torch.zeros(3).to_sparse(), "x is laid out as torch.sparse_coo; give a dense tensor"),
        ([1.0, 2.0], "x is a list; give a tensor of torch on a GPU"),
        (None, "x is a NoneType"),
    ],
)
def test_what_is_no_tensor_of_a_gpu_is_refused(x: Any, words: str) -> None:
    """Unsupported tensors are refused in one sentence."""
    with pytest.raises(InputError, match=words):
        softmax(x)


@pytest.mark.parametrize("dim", [2, -3, 100, "0", 0.5, [1], (0, 1), {}])
def test_a_dim_that_there_is_not_is_refused(place: Place, dim: Any) -> None:
    """An invalid dim is refused in one sentence."""
    x = place(random(3, 4))
    with pytest.raises(InputError, match="dim is"):
        softmax(x, dim)


def test_kernels_and_rows_that_are_asked_for(cpu_launches: Any) -> None:
    """Forward kernels get x without a copy, backward ones y and dy."""
    x = random(4, 5, 400)[:, :, 1:301].requires_grad_()
    y = softmax(x)
    y.backward(random(4, 5, 300))
    forward, backward = cpu_launches.asked
    problem = Problem(20, 300)
    assert forward == (FORWARD, problem, (Rows(300), Rows(400, aligned=False)))
    assert backward == (("softmax_backward",), problem, (Rows(300), Rows(300), Rows(300)))


def test_a_second_call_asks_for_nothing(cpu_launches: Any) -> None:
    """A launch is remembered by shape, strides, dtype and alignment."""
    x = random(4, 5, 300)
    for one in (x, x + 1, x.clone()):
        check(softmax(one), one)
    assert len(cpu_launches.asked) == 1
    softmax(random(20, 300))
    softmax(x.half())
    assert len(cpu_launches.asked) == 3
    assert cpu_launches.streams == [7] * 5


def test_fake_tensors_take_the_operator() -> None:
    """A FakeTensor gives torch's shape, dtype and strides."""
    with FakeTensorMode():
        x = torch.empty(4, 3, 50, dtype=torch.float16, device="cuda").transpose(0, 1)
        y = softmax(x, 1)
        assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)
        assert y.stride() == torch.softmax(x, 1).stride()
        with pytest.raises(InputError, match="x is on cpu"):
            softmax(torch.empty(3, device="cpu"))
        for dim in (3, [1]):
            with pytest.raises(InputError, match=f"dim is {re.escape(str(dim))}"):
                softmax(x, dim)


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the operator compute with torch on the CPU."""

    def launched(kernels: tuple[str, ...], dim: int, *tensors: Tensor) -> Tensor:
        if kernels == operator.BACKWARD:
            y, dy = tensors
            return (y * (dy - (dy * y).sum(dim, keepdim=True))).contiguous()
        return torch.softmax(tensors[0], dim)

    monkeypatch.setattr(operator, "_launched", launched)
    monkeypatch.setattr(operator, "_check", lambda _: None)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def operator_place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the device for torch's own checks of the operator."""
    if request.param == "cpu":
        plain(monkeypatch)
    return str(request.param)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_operator_passes_opcheck(operator_place: str, dim: int) -> None:
    """Torch's opcheck accepts schema, fake, autograd and dynamic shapes."""
    x = random(6, 50).to(operator_place)
    torch.library.opcheck(operator._operator, (x, dim))
    torch.library.opcheck(operator._operator, (x.clone().requires_grad_(), dim))
    torch.library.opcheck(operator._operator, (x.t(), dim))
    torch.library.opcheck(operator._backward_operator, (x.softmax(dim), x, dim))


@pytest.mark.filterwarnings("ignore:::torch")  # inductor's own, of TensorFloat32 among others
@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_sees_one_operator(operator_place: str, *, dynamic: bool) -> None:
    """torch.compile(fullgraph=True) compiles a function with it and its gradient."""
    backend = "inductor" if operator_place == "cuda" else "aot_eager"

    @torch.compile(fullgraph=True, dynamic=dynamic, backend=backend)
    def attention(scores: Tensor) -> Tensor:
        return occupancy_lab.softmax(scores * 2.0, dim=-1) + 1.0

    for rows in (4, 6, 7):
        x = random(rows, 3, 50).to(operator_place).requires_grad_()
        v = random(rows, 3, 50, seed=1).to(operator_place)
        (dx,) = torch.autograd.grad((attention(x) * v).sum(), x)
        other = x.detach().requires_grad_()
        (expected,) = torch.autograd.grad(((torch.softmax(other * 2.0, -1) + 1.0) * v).sum(), other)
        torch.testing.assert_close(dx, expected, rtol=1e-4, atol=1e-6)
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own
def test_function_transforms(operator_place: str) -> None:
    """torch.func's grad and vmap give torch.softmax's results."""
    x = random(4, 50).to(operator_place)
    for transform in (torch.func.grad, torch.func.jacfwd):
        found = transform(lambda one: softmax(one)[2, 3])(x)
        torch.testing.assert_close(found, transform(lambda one: torch.softmax(one, -1)[2, 3])(x))
    torch.testing.assert_close(torch.vmap(softmax)(x), torch.softmax(x, -1))


def norm_error(y: Tensor, x: Tensor) -> float:
    """Return |y - softmax(x)| / |softmax(x)| in float64."""
    expected = torch.softmax(x.double(), -1)
    return float((y.double() - expected).norm() / expected.norm())


LONG = [(4096, 781), (512, 4096), (64, 50257), (16, 131072), (2, 1048576), (1, 3000001)]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", LONG, ids=str)
def test_error_is_about_torchs(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """The error against float64 is about torch.softmax's."""
    x = random(*shape, dtype=dtype).cuda()
    own, torchs = norm_error(softmax(x), x), norm_error(torch.softmax(x, -1), x)
    print(f"{shape} {dtype}: error {own:.3g}, torch's {torchs:.3g}")
    # The last digits of two separately rounded results differ by chance, and the results of a
    # row share the rounding of its sum.
    assert own <= (1.03 if shape[0] > 100 else 1.5) * torchs


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", LONG, ids=str)
def test_gradients_of_long_rows(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Gradients of rows of any length are as accurate as torch's."""
    x = random(*shape, dtype=dtype).cuda().requires_grad_()
    dy = random(*shape, dtype=dtype, seed=1).cuda()
    y = softmax(x)
    (own,) = torch.autograd.grad(y, x, dy)
    torchs = torch._softmax_backward_data(dy, y.detach(), -1, dtype)
    exact = torch._softmax_backward_data(dy.double(), y.detach().double(), -1, torch.float64)

    def error(dx: Tensor) -> float:
        return float((dx.double() - exact).norm() / exact.norm())

    print(f"{shape} {dtype}: error {error(own):.3g}, torch's {error(torchs):.3g}")
    assert error(own) <= 1.02 * error(torchs) + 1e-7


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kernel", FORWARD)
def test_each_kernel_is_launched(
    monkeypatch: pytest.MonkeyPatch, kernel: str, dtype: torch.dtype
) -> None:
    """Every candidate gives torch's softmax, on every layout that it takes."""
    monkeypatch.setattr(operator, "FORWARD", (kernel,))
    padded = random(64, 792, dtype=dtype)
    apart = padded[:, :784] if own_kernel(kernel).rows_alike else padded[:, 3:784]
    for x in (random(1000, 784, dtype=dtype), apart):
        for one in [to_gpu(x)] * 3:
            check(softmax(one), one)


@pytest.mark.gpu
def test_a_cuda_graph_replays_it() -> None:
    """A capture of forward and backward replays on new values."""
    static = torch.randn(64, 781, device="cuda").requires_grad_()
    v = torch.randn_like(static)

    def step() -> tuple[Tensor, Tensor]:
        y = softmax(static)
        return y, torch.autograd.grad(y, static, v)[0]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, dx = step()
    for seed in range(3):
        x = random(64, 781, seed=seed).cuda()
        with torch.no_grad():
            static.copy_(x)
        graph.replay()
        torch.cuda.synchronize()
        check(y, x)
        other = x.clone().requires_grad_()
        (expected,) = torch.autograd.grad(torch.softmax(other, -1), other, v)
        torch.testing.assert_close(dx, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(256, 4096), (16, 131072), (4, 1048576)], ids=str)
def test_two_streams_at_once(shape: tuple[int, int]) -> None:
    """Overlapping launches from two threads do not disturb each other."""
    inputs = [random(*shape, seed=seed).cuda() for seed in range(2)]
    softmax(inputs[0])
    torch.cuda.synchronize()
    outputs: list[list[Tensor]] = [[], []]

    def work(place: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            outputs[place] = [softmax(inputs[place]) for _ in range(50)]
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x, found in zip(inputs, outputs, strict=True):
        assert len(found) == 50
        assert all(torch.equal(one, found[0]) for one in found)
        check(found[0], x)


@pytest.mark.gpu
def test_another_gpu_than_the_current() -> None:
    """A tensor of the second GPU is processed there."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x = torch.randn(64, 781, device="cuda:1")
    for _ in range(2):
        y = softmax(x)
        assert y.device == x.device
        check(y, x)
    assert torch.cuda.current_device() == 0
