"""From a kernel, a problem, a configuration and a target to the Resources of the compiled result.

`warmup` is the door: on Triton's own driver where the target's GPU is here, on an offline driver
where it is not. Nothing is launched either way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import threading
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.amdgcn import read_amdgcn
from occupancy_lab.compiling.assembly import (
    pipeline_shared_bytes,
    widest_load_bytes,
    widest_store_bytes,
)
from occupancy_lab.compiling.cubin import read_cubin
from occupancy_lab.compiling.hsaco import read_hsaco
from occupancy_lab.compiling.launch import Launch
from occupancy_lab.compiling.offline import offline
from occupancy_lab.compiling.silence import Printed, captured
from occupancy_lab.errors import BinaryError, CompileError, InputError, TargetError
from occupancy_lab.kernel import OPTIONS
from occupancy_lab.values import Resources

if TYPE_CHECKING:
    from occupancy_lab.compiling.store import Store
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.values import Config, Problem, Target

_COMPILING = threading.RLock()
"""Triton's active driver and the terminal's descriptors are the whole process's, not a thread's."""

KEY_VARIABLES = (
    "AMDGCN_ANALYZE_SMALL_TENSOR_RANGE",
    "AMDGCN_SCALARIZE_PACKED_FOPS",
    "PTXAS_OPTIONS",
    "TRITON_AMD_CODEGEN_PATH",
    "TRITON_DEBUG",
    "TRITON_INSTRUMENTATION_MODE",
    "TRITON_LIBDEVICE_PATH",
    "TRITON_MOCK_PTX_VERSION",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TRITON_PTXAS_PATH",
)
"""Variables that change a binary and that `get_cache_invalidating_env_vars` leaves out."""


def triton_version() -> str:
    """Return the installed Triton's version, without importing it."""
    from importlib.metadata import version

    return version("triton")


def resource_key(kernel: Kernel, launch: Launch, target: Target) -> dict[str, Any]:
    """Return everything that can change what *launch* compiles to, as plain JSON values."""
    from triton._C.libtriton import get_cache_invalidating_env_vars

    return {
        "triton": triton_version(),
        "kernel": getattr(kernel.function, "cache_key", None),
        "target": str(target),
        "arguments": launch.specialization(target),
        "keywords": launch.keywords,
        "environment": get_cache_invalidating_env_vars() | _variables(),
    }


def _variables() -> dict[str, str]:
    return {name: os.environ[name] for name in KEY_VARIABLES if name in os.environ}


def compile_resources(  # noqa: PLR0913 - what a compile depends on
    kernel: Kernel,
    problem: Problem,
    config: Config,
    target: Target,
    store: Store,
    *,
    present: bool = False,
) -> Resources:
    """Return what one program of *kernel* takes on *target*, from *store* or a compile.

    With *present* the target's GPU is here: where Triton can use it, its own driver compiles, the
    kernel is loaded, and what the driver says of it must equal what the binary says.

    Raises TargetError where the installed Triton has no compiler for *target*, CompileError where
    it cannot compile this kernel, BinaryError where the binary and the driver disagree.
    """
    if kernel.function is None:
        msg = f"{kernel.name} is made of torch operations: Triton compiles nothing of it"
        raise InputError(msg)
    if _interprets():
        msg = "TRITON_INTERPRET makes Triton interpret kernels; unset it to compile them"
        raise InputError(msg)
    launch = Launch.of(kernel, problem, config)
    key = resource_key(kernel, launch, target)
    resources = store.get(key)
    if resources is None:
        loadable = present and _has_active_driver()
        compiled = _compile(kernel, launch, target, present=loadable)
        resources = _read(compiled, target)
        if loadable:
            _check_loaded(compiled, resources)
        store.put(key, resources)
    return resources


def _interprets() -> bool:
    from triton import knobs

    return bool(knobs.runtime.interpret)


def _has_active_driver() -> bool:
    """Tell whether Triton finds a driver: a GPU can be here and torch be built without it."""
    from triton.runtime import driver

    try:
        return driver.active is not None
    except (RuntimeError, AssertionError):  # no driver, or no libcuda.so where Triton looks
        return False


def _warmup(function: Any, launch: Launch, target: Target, *, present: bool) -> Any:
    with contextlib.nullcontext() if present else offline(target):
        return function.warmup(*launch.stand_ins(), grid=(1,), **launch.keywords)


def _compile(kernel: Kernel, launch: Launch, target: Target, *, present: bool) -> Any:
    printed = Printed()
    try:
        with _COMPILING, captured() as printed:
            return _warmup(kernel.function, launch, target, present=present)
    except Exception as error:
        error.add_note(printed.text)
        if not can_compile(target):
            msg = f"Triton {triton_version()} has no compiler for {target.name}"
            raise TargetError(msg) from error
        msg = (
            f"Triton {triton_version()} cannot compile {kernel.name} for {target.name}:"
            f" {_reason(error, printed.text)}"
        )
        raise CompileError(msg) from error


def can_compile(target: Target) -> bool:
    """Tell whether the smallest kernel there is compiles for *target*."""
    from occupancy_lab.compiling.probe import probe_kernel

    try:
        with _COMPILING, captured(), offline(target):
            probe_kernel.warmup(grid=(1,), **OPTIONS)
    except Exception:  # noqa: BLE001 - any failure at all means that nothing compiles
        return False
    return True


def _reason(error: BaseException, printed: str) -> str:
    """Return in one line what a compiler printed, or else what *error* came from."""
    while error.__cause__ is not None:
        error = error.__cause__
    # Triton's own errors begin with the source of the kernel; their message comes after it.
    said = getattr(error, "error_message", None) or str(error)
    return _telling_line(printed) or _telling_line(said) or type(error).__name__


def _telling_line(text: str) -> str:
    if match := re.search(r"\b(?:error|fatal) *: *(\S.*)", text):
        return match[1]
    lines = (line.strip("= ").strip() for line in text.splitlines())
    return next((line for line in lines if line), "")


def _read(compiled: Any, target: Target) -> Resources:
    return _read_cuda(compiled) if target.backend == "cuda" else _read_hip(compiled)


def _pipeline_shared(compiled: Any) -> int:
    shared: int = compiled.metadata.shared
    return min(pipeline_shared_bytes(compiled.asm["ttgir"]), shared)


def _read_cuda(compiled: Any) -> Resources:
    metadata, asm = compiled.metadata, compiled.asm
    found = read_cubin(asm["cubin"], metadata.name)
    return Resources(
        n_regs=found.n_regs,
        num_warps=metadata.num_warps,
        shared=metadata.shared,
        static_shared=found.static_shared,
        local_bytes=found.local_bytes,
        barriers=found.barriers,
        pipeline_shared=_pipeline_shared(compiled),
        load_bytes=widest_load_bytes(asm["ptx"], "ptx"),
        store_bytes=widest_store_bytes(asm["ptx"], "ptx"),
        **dataclasses.asdict(found.issued),
    )


def _read_hip(compiled: Any) -> Resources:
    metadata, asm = compiled.metadata, compiled.asm
    found = read_hsaco(asm["hsaco"], metadata.name)
    return Resources(
        n_regs=found.vgprs,
        num_warps=metadata.num_warps,
        shared=metadata.shared,
        static_shared=found.static_lds,
        local_bytes=found.scratch_bytes,
        sgprs=found.sgprs,
        agprs=found.agprs,
        allocated_vgprs=found.allocated_vgprs,
        vgpr_spills=found.vgpr_spills,
        sgpr_spills=found.sgpr_spills,
        pipeline_shared=_pipeline_shared(compiled),
        load_bytes=widest_load_bytes(asm["amdgcn"], "amdgcn"),
        store_bytes=widest_store_bytes(asm["amdgcn"], "amdgcn"),
        **dataclasses.asdict(read_amdgcn(asm["amdgcn"], metadata.name)),
    )


def load_compiled(kernel: Kernel, launch: Launch, target: Target) -> Any:
    """Compile *launch* on Triton's own driver and load it on the GPU at hand.

    Gives Triton's CompiledKernel. Raises CompileError where Triton cannot compile it.
    """
    compiled = _compile(kernel, launch, target, present=True)
    compiled._init_handles()  # noqa: SLF001 - nothing else loads a kernel without launching it
    return compiled


def _check_loaded(compiled: Any, resources: Resources) -> None:
    """Load the kernel on the GPU and compare what the driver says with *resources*.

    A kernel that takes more than the GPU has cannot be loaded, so there is nothing to compare.
    """
    from triton.runtime.errors import OutOfResources

    try:
        compiled._init_handles()  # noqa: SLF001 - nothing else loads a kernel without a launch
    except OutOfResources:
        return
    said = {"n_regs": compiled.n_regs, "n_spills": compiled.n_spills}
    read = {"n_regs": resources.n_regs, "n_spills": resources.n_spills}
    if said != read:
        msg = f"the driver says {said} of {compiled.name}, its binary says {read}"
        raise BinaryError(msg)
