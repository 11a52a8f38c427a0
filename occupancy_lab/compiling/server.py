"""The process that compiles for others: a request a line comes in, an answer a line goes out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from occupancy_lab.child import serve
from occupancy_lab.compiling.compile import (
    compile_resources,
    resource_key,
    triton_version,
    would_fail_again,
)
from occupancy_lab.compiling.launch import Launch
from occupancy_lab.compiling.request import Request
from occupancy_lab.compiling.store import Store, key_as_json
from occupancy_lab.errors import OccupancyLabError
from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.kernel import Kernel


class _NoTorch(ModuleType):
    """Stands for torch where Triton imports it to tell what a tensor is."""

    class Tensor:
        """No argument is one."""


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """Keep Triton from importing torch, which takes 1.3 s a process, unless the kernel has.

    Here no argument is ever a tensor, and the environment of another Triton may have no torch.
    """
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = _NoTorch("torch")
    try:
        yield
    finally:
        del sys.modules["torch"]


def answer(request: Request) -> dict[str, Any]:
    """Return the resources that *request* compiles to, or why there are none."""
    store = Store(None if request.store is None else Path(request.store))
    try:
        kernel = load_kernel(request.kernel)
        with _without_torch():
            differences = _differences(kernel, request)
    except OccupancyLabError as error:
        return _failed(str(error))
    if differences:
        return _failed(f"on {socket.gethostname()} {' and '.join(differences)}")
    try:
        with _without_torch():
            resources = compile_resources(
                kernel, request.problem, request.config, request.target, store
            )
    except OccupancyLabError as error:
        return _failed(str(error), lasting=would_fail_again(error))
    return {"resources": dataclasses.asdict(resources), "triton_version": triton_version()}


def _failed(reason: str, *, lasting: bool = False) -> dict[str, Any]:
    return {"failure": dataclasses.asdict(Failure("compile failed", reason, lasting=lasting))}


def _differences(kernel: Kernel, request: Request) -> list[str]:
    """Return in words what would compile another binary here than where it was asked for."""
    if request.key is None:
        return []
    asked = json.loads(request.key)
    launch = Launch.of(kernel, request.problem, request.config)
    own = json.loads(key_as_json(resource_key(kernel, launch, request.target)))
    words = {
        "triton": f"Triton is {own['triton']}, not {asked['triton']}",
        "environment": f"the environment differs ({_changed(own, asked)})",
    }
    names = [name for name in own if own[name] != asked.get(name)]
    return list(dict.fromkeys(words.get(name, "the kernel file differs") for name in names))


def _changed(own: dict[str, Any], asked: dict[str, Any]) -> str:
    """Return the names of the environment's variables that differ, with commas."""
    pairs = own["environment"].items() ^ asked["environment"].items()
    return ", ".join(sorted({name for name, _ in pairs}))


def main() -> None:
    """Serve, once Triton is imported, so that a time limit is a compile's alone."""
    import triton  # noqa: F401

    serve(lambda line: json.dumps(answer(Request.from_json(line))))


if __name__ == "__main__":
    main()
