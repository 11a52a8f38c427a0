"""The texts of a kernel that a test defines: its TTIR alone, or all that a compile gives."""

import types
import warnings
from collections.abc import Mapping
from typing import Any

import pytest

from occupancy_lab.compiling.offline import offline
from occupancy_lab.compiling.texts import Texts, texts_of
from occupancy_lab.launch import Launch
from occupancy_lab.values import Target

SM_90 = Target("cuda", "90", 32)


def first_text(function: Any, arguments: Mapping[str, Any], target: Target = SM_90) -> str:
    """Return the TTIR of *function*, launched with *arguments*, without compiling the rest."""
    with (
        pytest.MonkeyPatch.context() as patched,
        offline(target),
        warnings.catch_warnings(action="ignore"),
    ):
        patched.setattr("triton.compiler.compile", _first_stage)
        text: str = Launch((), dict(arguments)).warm_up(function).ttir
    return text


def compiled_texts(function: Any, launch: Launch, target: Target = SM_90) -> Texts:
    """Return the texts of *function*, compiled for a launch."""
    with offline(target):
        made = launch.warm_up(function)
    texts = texts_of(made.asm, made.metadata, target.backend)
    assert texts is not None
    return texts


def _first_stage(source: Any, target: Any, options: Mapping[str, Any], **_: object) -> Any:
    """Run the first stage of `triton.compiler.compile`."""
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
