"""A program with a simulated GPU: kernels are compiled for sm_90, and their launches are noted.

`python traced_program.py WHAT` does what WHAT says, with any Triton, with or without torch.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any


class _NoTorch:
    """Prevents the import of torch, without which Triton starts sooner."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "torch":
            raise ModuleNotFoundError(name=name)


WITH_TORCH = {"profiled", "timed", "paced", "graph", "in_block"}
if __name__ in {"__main__", "__mp_main__"} and sys.argv[1] not in WITH_TORCH:
    sys.meta_path.insert(0, _NoTorch)

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import MockTensor

LAUNCHED = []
"""The grid of each launch that reached the driver."""


class Launcher:
    """Takes the arguments of Triton's own launchers."""

    num_ctas = 1

    def __init__(self, _src: Any, _metadata: Any) -> None:
        pass

    def __call__(
        self,
        x: Any,
        y: Any,
        z: Any,
        stream: Any,
        function: Any,
        _packed: Any,
        _metadata: Any,
        enter: Any,
        leave: Any,
        *_args: Any,
    ) -> Any:
        assert (stream, function) == (7, 2)
        LAUNCHED.append((x, y, z))


class Utils:
    """Returns what a driver returns for a device and a binary."""

    @staticmethod
    def load_binary(_name: Any, _binary: Any, _shared: Any, _device: Any) -> Any:
        return 1, 2, 32, 0, 1024

    @staticmethod
    def get_device_properties(_device: Any) -> Any:
        return {"max_shared_mem": 232448, "multiprocessor_count": 132}


class Driver:
    """Triton's driver of a GPU that is not here."""

    utils = Utils()
    launcher_cls = Launcher

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> Any:
        return 0

    def get_current_stream(self, _device: Any = None) -> Any:
        return 7

    def get_device_interface(self) -> Any:
        return SimpleNamespace(synchronize=lambda: None)

    def get_benchmarker(self) -> Any:
        def bench(call: Any, quantiles: Any) -> Any:
            for _ in range(3):
                call()
            return [1.0] * len(quantiles)

        return bench


driver.set_active(Driver())


@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Add y to x."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(x_ptr + offsets, total, mask=mask)


tuned = triton.autotune(
    configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})], key=["n"]
)(add)
X = MockTensor(tl.float32, [4096])


def launch(times: int, programs: int = 528, block: int = 256, **options: Any) -> None:
    """Launch the kernel *times* times."""
    for _ in range(times):
        add[(programs,)](X, X, 4096, BLOCK=block, **options)


class Buffer(MockTensor):
    """A tensor with memory of its own."""

    def untyped_storage(self) -> Any:
        """Return an object that identifies the storage."""
        return SimpleNamespace(data_ptr=lambda: id(self), nbytes=lambda: 4 * 4096)


def chained() -> Any:
    """Launch a kernel on the output of the launch before it."""
    one, two, three = (Buffer(tl.float32, [4096]) for _ in range(3))
    for _ in range(2):
        add[(16,)](one, two, 4096, BLOCK=256)
        add[(32,)](three, one, 4096, BLOCK=256)


def killed() -> Any:
    """Launch for longer than a flush takes, and be killed."""
    launch(3)
    for _ in range(15):
        time.sleep(0.1)
        launch(10)
    os.kill(os.getpid(), signal.SIGKILL)


def threads() -> Any:
    """Launch from four threads at once."""
    launch(1)
    several = [threading.Thread(target=launch, args=(5000,)) for _ in range(4)]
    for one in several:
        one.start()
    for one in several:
        one.join()


def forks() -> Any:
    """Launch, fork, and launch in both."""
    launch(3)
    child = os.fork()
    launch(4)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def spawns() -> Any:
    """Launch in processes of multiprocessing of both kinds, and in a subprocess."""
    import multiprocessing

    launch(1)
    for method in ("fork", "spawn"):
        child = multiprocessing.get_context(method).Process(target=launch, args=(2,))
        child.start()
        child.join()
    subprocess.run([sys.executable, __file__, "once"], check=True)


def waits() -> None:
    """Print a signal that arrives, and go on."""

    def hear(*_: Any) -> None:
        launch(1)
        print("heard", flush=True)
        sys.exit(9)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, hear)
    launch(1)
    print("ready", flush=True)
    time.sleep(30)


class Gpu:
    """A GPU that does one thing after another, and a host whose calls take 5 us each."""

    host = free = 0.0

    @classmethod
    def does(cls, us: Any) -> Any:
        """Queue work that takes *us*, and return when it ends."""
        cls.host += 5
        cls.free = max(cls.host, cls.free) + us
        return cls.free


class Event:
    """An event of torch, on that GPU."""

    def __init__(self, enable_timing: Any) -> None:
        assert enable_timing

    def record(self, stream: Any) -> Any:
        assert stream.cuda_stream == 7
        self.at = Gpu.does(0)

    def query(self) -> Any:
        Gpu.host += 5
        return Gpu.host >= self.at

    def elapsed_time(self, other: Any) -> Any:
        assert other.query()
        return (other.at - self.at) / 1000


capturing: list[Any] = []


def modelled(us: Any) -> None:
    """Have the model launch kernels, each of *us* of how many were launched before.

    Beginning and ending a kernel takes the GPU what it takes an H200, which its events see.
    """
    import torch

    cuda = torch.cuda
    cuda.is_initialized = lambda: True
    cuda.get_device_name = lambda _device: "NVIDIA H200"
    cuda.current_stream = lambda: SimpleNamespace(
        cuda_stream=7, device_index=0, query=lambda: Gpu.host >= Gpu.free
    )
    cuda.stream = lambda _stream: contextlib.nullcontext()
    cuda.Event = Event
    cuda._sleep = lambda cycles: Gpu.does(cycles / 2000)
    cuda.is_current_stream_capturing = lambda: bool(capturing)
    call = Launcher.__call__
    Launcher.__call__ = lambda *args: (Gpu.does(us(len(LAUNCHED)) + 0.93), call(*args))[1]


def timed() -> None:
    """Launch 200 kernels of 40 us each; the GPU waits for the host in the first 150."""
    modelled(lambda _: 40)
    for number in range(200):
        launch(1)
        Gpu.host += 100 if number < 150 else 0  # later launches come faster than the GPU does them
    Gpu.host += 1e6


class Noted:
    """An event of Kineto, as torch 2.11 has them."""

    def __init__(self, kind: str, name: str, start: int, took: int, device: Any = 0) -> None:
        for what, value in (
            ("activity_type", kind),
            ("device_type", "DeviceType.CPU" if kind == "cuda_runtime" else "DeviceType.CUDA"),
            ("name", name),
            ("start_ns", start),
            ("duration_ns", took),
            ("device_index", device),
        ):
            setattr(self, what, lambda value=value: value)


NOTED = [
    Noted("cuda_runtime", "cudaLaunchKernel", 0, 5000),
    Noted("kernel", "add", 1000, 4000),
    Noted("kernel", "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n", 5000, 3000),
    Noted("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 6000, 1000),  # during the kernel
    Noted("gpu_user_annotation", "ProfilerStep#1", 1000, 9000),
    Noted("kernel", "at::cuda::(anonymous namespace)::spin_kernel(long)", 8000, 900),
    Noted("gpu_memset", "Memset (Device)", 9000, 1000),
    Noted("kernel", "add", 10000, 1000),
]
"""The GPU's 10 us: 5 us of Triton, 3 us of others, 2 us of copies, and 1 us idle."""


def profiled() -> None:
    """Launch 20 kernels under a profiler that saw NOTED."""
    from torch import profiler

    def profile(activities: Any) -> Any:
        assert activities == [profiler.ProfilerActivity.CUDA]
        results = SimpleNamespace(events=lambda: NOTED)
        noting = SimpleNamespace(kineto_results=results)
        return SimpleNamespace(start=bool, stop=bool, profiler=noting)

    modelled(lambda _: 40)
    profiler.profile = profile
    launch(20)
    Gpu.host += 1e6


def slows() -> None:
    """Launch 300 kernels on a GPU that slows from 10 to 12 us, with no time to time more launches.

    There is time for the first ones, which are timed whatever it takes.
    """
    sys.modules["_occupancy_lab_trace.noted"].Timer.has_time = lambda _: False
    modelled(lambda number: 10 if number < 50 else 12)
    for _ in range(300):
        launch(1)
        Gpu.host += 100
    Gpu.host += 1e6


def waits_long() -> None:
    """Launch 300 kernels of 10 us, each while the GPU ends the previous one."""
    sys.modules["_occupancy_lab_trace.noted"].Timer.has_time = lambda _: False
    modelled(lambda _: 10)
    for _ in range(300):
        Gpu.host += 100
        Gpu.does(8)
        launch(1, 264)
    Gpu.host += 1e6


def few() -> None:
    """Launch three kernels of 10, 20 and 60 us."""
    modelled(lambda number: (10, 20, 60)[number])
    for _ in range(3):
        launch(1, 132)
        Gpu.host += 100
    Gpu.host += 1e6


def paced() -> None:
    """Do the three above, each in a fork and over its own grid, once torch is imported."""
    import torch  # noqa: F401

    for what in (slows, waits_long, few):
        child = os.fork()
        if child == 0:
            what()
            sys.exit()
        os.waitpid(child, 0)


def graph() -> None:
    """Make 3 launches that a CUDA graph captures, and replay the graph 10 times."""
    from torch.cuda import graphs

    base: Any = graphs._CUDAGraph
    base.__new__ = lambda kind, *_: object.__new__(kind)
    base.__init__ = lambda *_: None
    base.capture_begin = lambda *_, **__: capturing.append(capturing)
    base.capture_end = lambda *_: capturing.clear()
    base.replay = lambda *_: None
    timed()
    made = graphs.CUDAGraph()
    made.capture_begin()
    launch(3)
    made.capture_end()
    for _ in range(10):
        made.replay()


def hurt() -> None:
    """Launch while noting launches fails."""

    def fail(*_: Any) -> None:
        msg = "a fault of the tool"
        raise RuntimeError(msg)

    launch(1)
    sys.modules["_occupancy_lab_trace.hook"].Session._due = fail
    launch(9)
    print(len(LAUNCHED))


def in_block() -> Any:
    """Trace a block of this process, with a kernel loaded before, and a block inside it."""
    import occupancy_lab

    launch(2)
    with occupancy_lab.trace() as outer:
        launch(5)
        with occupancy_lab.trace() as inner:
            launch(7, 264)
    launch(11)
    print(outer)
    print([(one.grid, one.launches) for one in outer.kernels[0].grids])
    print([(one.grid, one.launches) for one in inner.kernels[0].grids])
    print(len(LAUNCHED))


WHAT = {
    "once": lambda: launch(1),
    "some": lambda: (launch(5), launch(2, 4), launch(1, 1, 512, num_warps=8)),
    "tuned": lambda: [tuned[(16,)](X, X, 4096) for _ in range(4)],
    "empty": lambda: add[(0,)](X, X, 4096, BLOCK=256),
    "chained": chained,
    "status": lambda: (launch(1), sys.exit(7)),
    "killed": killed,
    "threads": threads,
    "forks": forks,
    "spawns": spawns,
    "waits": waits,
    "timed": timed,
    "profiled": profiled,
    "paced": paced,
    "graph": graph,
    "hurt": hurt,
    "in_block": in_block,
}

if __name__ == "__main__":
    print("out")
    print("err", file=sys.stderr)
    WHAT[sys.argv[1]]()
