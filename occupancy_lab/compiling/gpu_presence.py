"""Makes torch's library believe that a GPU is here, for autograd and for copies of tensors.

Autograd and copies ask C++ objects: one sets the current device and its streams, another knows of
GPUs. The objects' virtual function tables are copied, and in the copies the functions that would
fail are replaced by functions that return a number. The header files that come with torch say which
function is at which place.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from occupancy_lab.errors import refuse

CUDA, META = 1, 14
"""Types of devices as torch's library numbers them."""
CUDA_0 = CUDA
"""The device cuda:0, whose index is in the second byte; also the device's default stream."""
GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
"""The objects that set the current device, one for each type of device."""
HOOKS = "_ZN2at6detail12getCUDAHooksEv"
"""The function that returns the object that knows of GPUs."""
GUARD_HEADER = "c10/core/impl/DeviceGuardImplInterface.h"
HOOK_HEADERS = "ATen/detail/AcceleratorHooksInterface.h", "ATen/detail/CUDAHooksInterface.h"
GUARD_ANSWERS = dict.fromkeys(
    (
        *("exchangeDevice", "getDevice", "exchangeStream"),
        *("getStream", "getDefaultStream", "getNewStream", "getStreamFromGlobalPool"),
    ),
    CUDA_0,
) | dict.fromkeys(
    (
        *("record", "block", "destroyEvent", "recordDataPtrOnStream", "isStreamCapturing"),
        *("synchronizeStream", "synchronizeEvent", "synchronizeDevice"),
    ),
    0,
)
GUARD_ANSWERS |= {"queryEvent": 1, "queryStream": 1}
HOOK_ANSWERS = {"isBuilt": 1, "isAvailable": 1, "hasCUDA": 1, "hasPrimaryContext": 1}
MOST_FUNCTIONS = 128
MACHINES = ("x86_64", "aarch64")

_Table = ctypes.c_void_p * MOST_FUNCTIONS


def _returning(number: int) -> bytes:
    """Return machine code of a function that returns *number*, and 0 as the second word."""
    if platform.machine() == "x86_64":
        return b"\xb8" + number.to_bytes(4, "little") + b"\x31\xd2\xc3"
    words = 0xD2800000 | number << 5, 0xD2800001, 0xD65F03C0
    return b"".join(word.to_bytes(4, "little") for word in words)


def _functions(*headers: str) -> list[str]:
    """Return the virtual functions that *headers* of torch declare, each destructor twice."""
    found = []
    for header in headers:
        text = (Path(torch.__file__).parent / "include" / header).read_text("utf-8")
        for words in re.findall(r"^  virtual ([^;{]+?)\(", text, re.MULTILINE):
            name = words.split()[-1].lstrip("*&")
            found += [name, name] if name.startswith("~") else [name]
    return found


def _answering(table: int, names: list[str], answers: Mapping[str, int], code: mmap.mmap) -> Any:
    """Return a copy of a *table* of functions in which those in *answers* return a number."""
    copy = _Table.from_buffer_copy(_Table.from_address(table))
    for place, name in enumerate(names):
        if name in answers:
            copy[place] = ctypes.addressof(ctypes.c_char.from_buffer(code, code.tell()))
            code.write(_returning(answers[name]))
    return copy


@contextlib.contextmanager
def gpu_presence() -> Iterator[None]:
    """Make torch's library believe in the block that there is a CUDA GPU."""
    if platform.machine() not in MACHINES:
        refuse(f"a dry run needs a CPU of {' or '.join(MACHINES)}")
    libraries = Path(torch.__file__).parent / "lib"
    guards = (ctypes.c_void_p * (META + 1)).in_dll(
        ctypes.CDLL(str(libraries / "libc10.so")), GUARDS
    )
    hooks_of = getattr(ctypes.CDLL(str(libraries / "libtorch_cpu.so")), HOOKS)
    hooks_of.restype = ctypes.c_void_p
    hooks = ctypes.c_void_p.from_address(hooks_of())
    idle = ctypes.c_void_p.from_address(guards[META] or 0)
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    guard_table = _answering(idle.value or 0, _functions(GUARD_HEADER), GUARD_ANSWERS, code)
    hook_table = _answering(hooks.value or 0, _functions(*HOOK_HEADERS), HOOK_ANSWERS, code)
    guard = ctypes.c_void_p(ctypes.addressof(guard_table))
    before = guards[CUDA], hooks.value
    threads = torch.autograd.is_multithreading_enabled()
    guards[CUDA], hooks.value = ctypes.addressof(guard), ctypes.addressof(hook_table)
    torch.autograd.set_multithreading_enabled(False)
    try:
        yield
    finally:
        guards[CUDA], hooks.value = before
        torch.autograd.set_multithreading_enabled(threads)
