"""`explain`: what was asked for, the launch for a matrix, any launch, or a program run dry."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from occupancy_lab.errors import refuse
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.matrix import explain_matrix
from occupancy_lab.inputs import Integer

if TYPE_CHECKING:
    from occupancy_lab.tracing.script_runs import ScriptExplanation


@overload
def explain(cols: Integer, **asked: Any) -> Explanation: ...


@overload
def explain(cols: None = None, **asked: Any) -> Explanation | ScriptExplanation: ...


def explain(cols: Integer | None = None, **asked: Any) -> Explanation | ScriptExplanation:
    """Compile a kernel and explain its launch on each GPU: the launch for a matrix, or any launch.

    With *cols*, the other arguments are those of `explain_matrix`. Without, they are those of
    `explain_launch`, or `kernel` is "file.py:function", an ordinary function whose launches are
    explained.

    Raises:
        InputError: the arguments make no sense; the message says what would be accepted.
        CompileError: Triton cannot compile the kernel for a target, or not in time.
        DoesNotFitError: a GPU does not fit one program of the kernel.
    """
    of_matrix = _arguments(explain_matrix)
    if cols is not None and asked.keys() <= of_matrix:
        return explain_matrix(cols, **asked)
    # These imports take 20 ms, which the explanation of a matrix does not need.
    from occupancy_lab.compiling.script import names_script
    from occupancy_lab.explaining.dry_run import explain_launch
    from occupancy_lab.tracing.script_runs import check_described, explain_script

    of_launch = _arguments(explain_launch) | {"compared"}
    foreign = asked.keys() - (of_launch if cols is None else of_matrix)
    unknown = foreign - of_matrix - of_launch
    if unknown:
        msg = f"explain() takes no argument {min(unknown)!r}"
        raise TypeError(msg)
    if cols is not None:
        refuse(
            f"{min(foreign)} describes a launch of a Triton function, and cols a matrix;"
            " give only one of them"
        )
    if "kernel" not in asked or foreign:
        what = f"{min(foreign)} describes a matrix; give its cols too" if foreign else "give --cols"
        refuse(f"{what}, or a Triton function as FILE.py:FUNCTION with its --signature")
    kernel = asked["kernel"]
    if isinstance(kernel, str) and names_script(kernel):
        given = {name: asked[name] for name in asked if name != "kernel"}
        check_described(kernel, given, explain_script)
        return explain_script(kernel, **given)
    return explain_launch(**asked)


def _arguments(function: Callable[..., Any]) -> set[str]:
    return {*inspect.signature(function).parameters}
