"""The GPU that a text means: a device, its driver's name for it, or a bare architecture."""

from __future__ import annotations

import difflib
import functools
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from occupancy_lab.errors import LONGEST_QUOTE, InputError, quoted, shortened
from occupancy_lab.gpus.table import aliases, bare_gpus, devices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.gpus.gpu import Gpu

_BRANDS = frozenset({"nvidia", "geforce", "tesla", "amd", "instinct", "radeon", "graphics"})
_CUDA = re.compile(r"(?:cuda:?|sm|compute)([0-9]{2,3})[af]?(?::([0-9]+))?")
_HIP = re.compile(r"(?:hip:?)?(gfx[0-9a-f]{3,})(?::(?:sramecc|xnack)\+?)*(?::([0-9]+))?")


def find_gpu(text: str) -> Gpu:
    """Return the GPU that *text* means; case, spaces, hyphens and underscores do not matter.

    Known are the table's devices by key, title or alias (h100, H100 SXM, NVIDIA H100 80GB HBM3)
    and its architectures (sm_90, sm_90a, cuda:90:32, gfx942, hip:gfx942:64). A bare architecture
    gives its limits, and None for its size and speed.

    Raises:
        InputError: nothing in the table has this name, or the warp size is not the architecture's.
    """
    squeezed = re.sub(r"[\s_-]+", "", text.lower())
    if match := _CUDA.fullmatch(squeezed):
        return _bare_gpu(f"sm_{match[1]}", match[2])
    if match := _HIP.fullmatch(squeezed):
        return _bare_gpu(match[1], match[2])
    device = find_device(text)
    if device is None:
        raise InputError(_unknown(text))
    return device


def find_gpus(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs of a comma-separated list, each once, in the order of their first mention.

    Raises:
        InputError: a part is empty or `find_gpu` does not know it.
    """
    parts = text.split(",")
    if not all(part.strip() for part in parts):
        message = f"The list of GPUs {quoted(text)} has an empty part; write it like h100,mi300x."
        raise InputError(message)
    return tuple({gpu.key: gpu for gpu in map(find_gpu, parts)}.values())


def find_device(name: str) -> Gpu | None:
    """Return the device that has exactly this *name*, brands aside, or None."""
    key = _keys().get(_normalized(name))
    return None if key is None else devices()[key]


@functools.cache
def _keys() -> Mapping[str, str]:
    return MappingProxyType(
        {
            _normalized(name): key
            for key, gpu in devices().items()
            for name in (key, gpu.title, *aliases()[key])
        }
    )


def _normalized(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in _BRANDS)


def _bare_gpu(name: str, warp_size: str | None) -> Gpu:
    gpu = bare_gpus().get(name)
    if gpu is None:
        known = ", ".join(other for other in bare_gpus() if other[:2] == name[:2])
        message = f"The architecture {shortened(name)} is not in the table, which has {known}."
        raise InputError(message)
    architecture = gpu.architecture
    if warp_size not in {None, str(architecture.warp_size)}:
        message = (
            f"Triton compiles {name} for {architecture.warp_word}s of {architecture.warp_size}, "
            f"not {shortened(str(warp_size))}; write {gpu.target}."
        )
        raise InputError(message)
    return gpu


def _unknown(text: str) -> str:
    normalized = _normalized(text)[:LONGEST_QUOTE]
    names = {**_keys(), **{_normalized(name): name for name in bare_gpus()}}
    close = [names[name] for name in difflib.get_close_matches(normalized, names, n=5)]
    question = f"; did you mean {' or '.join(dict.fromkeys(close))}?" if close else "."
    return f"No GPU is called {quoted(text)}{question} `occupancy-lab gpus` lists those it knows."
