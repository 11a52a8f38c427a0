"""NVIDIA's own occupancy header as an oracle, and kernels and architectures for hypothesis."""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from occupancy_lab.gpus import CudaArchitecture, HipArchitecture, architectures
from occupancy_lab.values import Resources

Points = Mapping[str, np.ndarray]

HEADER = "cuda_occupancy.h"
ANSWER = ("error", "active", "warps", "registers", "shared", "programs", "barriers")
DEFAULT_SHARED_PER_PROGRAM = 49152
ANY_NUMBER_OF_SMS = 1

SHARED_BYTES = st.one_of(
    st.just(0),
    st.integers(1, 4096),
    st.integers(1, 65536),
    st.integers(1, 330_000),
    st.integers(1, 160).map(lambda kib: kib * 1024),
)
WARPS = st.one_of(st.sampled_from([1, 2, 4, 8, 16, 32]), st.integers(1, 33))

for kind in (CudaArchitecture, HipArchitecture):
    st.register_type_strategy(
        kind,
        st.sampled_from([item for item in architectures().values() if isinstance(item, kind)]),
    )
st.register_type_strategy(
    Resources,
    st.builds(
        Resources,
        n_regs=st.one_of(st.integers(0, 128), st.integers(0, 520)),
        num_warps=WARPS,
        shared=SHARED_BYTES,
        static_shared=st.one_of(st.just(0), SHARED_BYTES),
        barriers=st.none() | st.integers(0, 16),
        num_ctas=st.sampled_from([1, 2, 4, 8, 16]),
        tensor_memory=st.none() | st.integers(0, 520),
        sgprs=st.none() | st.integers(0, 108),
        allocated_vgprs=st.none() | st.integers(1, 520),
    ),
)


def include_directory() -> Path:
    """Return the folder of the header in the nvidia-cuda-runtime wheel."""
    files = metadata.files("nvidia-cuda-runtime") or []
    return next(Path(str(file.locate())).parent for file in files if file.name == HEADER)


def properties(sm: CudaArchitecture) -> list[int]:
    """Return the fields of cudaOccDeviceProp that the header leaves to its caller."""
    return [
        *map(int, sm.compute_capability.split(".")),
        sm.max_threads_per_program,
        sm.max_threads,
        sm.registers,
        sm.registers,
        sm.warp_size,
        DEFAULT_SHARED_PER_PROGRAM,
        sm.shared_per_multiprocessor,
        ANY_NUMBER_OF_SMS,
        sm.max_shared,
        sm.reserved_shared,
    ]


@pytest.fixture(scope="session")
def ask_header(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[CudaArchitecture, Points], Points]:
    """Return a function that gives the header an architecture and points, and returns answers."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("NVIDIA's occupancy header is C: no C compiler (cc) is installed here")
    program = tmp_path_factory.mktemp("header") / "oracle"
    source = Path(__file__).with_name("header_oracle.c")
    subprocess.run([compiler, "-O2", f"-I{include_directory()}", "-o", program, source], check=True)

    def ask(architecture: CudaArchitecture, points: Points) -> Points:
        columns = (
            points["num_warps"] * architecture.warp_size,
            points["n_regs"],
            points["static_shared"],
            points["shared"],
            points["barriers"],
        )
        asked = np.stack(columns, axis=1).astype(np.int32).tobytes()
        command = [program, *map(str, properties(architecture))]
        said = subprocess.run(command, input=asked, check=True, capture_output=True).stdout
        answers = np.frombuffer(said, np.int32).reshape(-1, len(ANSWER)).T
        assert len(answers[0]) == len(points["n_regs"])
        return dict(zip(ANSWER, answers, strict=True))

    return ask
