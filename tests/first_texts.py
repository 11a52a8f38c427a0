"""The TTIR of a kernel that a test defines, for an H100, without the rest of its compilation."""

import types
import warnings
from collections.abc import Mapping
from typing import Any

import pytest

from occupancy_lab.compiling.offline import offline
from occupancy_lab.launch import Launch
from occupancy_lab.values import Target

SM_90 = Target("cuda", "90", 32)


def first_text(function: Any, arguments: Mapping[str, Any], target: Target = SM_90) -> str:
    """Return the TTIR of *function*, launched with *arguments*."""
    with (
        pytest.MonkeyPatch.context() as patched,
        offline(target),
        warnings.catch_warnings(action="ignore"),
    ):
        patched.setattr("triton.compiler.compile", _first_stage)
        text: str = Launch((), dict(arguments)).warm_up(function).ttir
    return text


def _first_stage(source: Any, target: Any, options: Mapping[str, Any], **_: object) -> Any:
    """Do the part of `triton.compiler.compile` that makes TTIR."""
    from triton._C.libtriton import ir
    from triton.compiler import make_backend

    backend = make_backend(target)
    parsed = backend.parse_options({**options})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(parsed)
    module = source.make_ir(target, parsed, functions, backend.get_module_map(), context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, source.language)
    return types.SimpleNamespace(ttir=str(stages["ttir"](module, {})))
