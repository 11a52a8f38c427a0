"""occupancy-lab: how a Triton kernel will sit on a GPU, and why, before it is launched.

A kernel can be given by its name, as the path of a Python file with a `KERNEL`, or as a `Kernel`; a
GPU by a name or as a `Gpu`, or several of them. A dtype is a name or torch's dtype, and an integer
may be any integral type. `repr` of a result is one line, `str` is the page, and results have
`to_markdown`, `to_json` and `to_dict`.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # The only list of the public names: `_homes` reads it.
    from occupancy_lab.arguments import Pointer as Pointer
    from occupancy_lab.arguments import tensor as tensor
    from occupancy_lab.calibrating.units import Calibrated as Calibrated
    from occupancy_lab.calibrating.units import calibrate_here as calibrate_here
    from occupancy_lab.checking.check import Checked as Checked
    from occupancy_lab.checking.check import check as check
    from occupancy_lab.checking.conditions import read_checks as read_checks
    from occupancy_lab.checking.diff import Diff as Diff
    from occupancy_lab.checking.diff import diff as diff
    from occupancy_lab.comparing.comparison import Comparison as Comparison
    from occupancy_lab.comparing.comparison import compare as compare
    from occupancy_lab.comparing.comparison import compare_launches as compare_launches
    from occupancy_lab.errors import BinaryError as BinaryError
    from occupancy_lab.errors import CompileError as CompileError
    from occupancy_lab.errors import DoesNotFitError as DoesNotFitError
    from occupancy_lab.errors import DriverError as DriverError
    from occupancy_lab.errors import InputError as InputError
    from occupancy_lab.errors import OccupancyLabError as OccupancyLabError
    from occupancy_lab.errors import TargetError as TargetError
    from occupancy_lab.errors import refuse as refuse
    from occupancy_lab.evaluating import Evaluation as Evaluation
    from occupancy_lab.evaluating import evaluate as evaluate
    from occupancy_lab.explaining.dry_run import dry_run as dry_run
    from occupancy_lab.explaining.dry_run import explain_launch as explain_launch
    from occupancy_lab.explaining.explanation import Explanation as Explanation
    from occupancy_lab.explaining.limits import Calculations as Calculations
    from occupancy_lab.explaining.limits import calculate_occupancy as calculate_occupancy
    from occupancy_lab.explaining.matrix import explain_matrix as explain_matrix
    from occupancy_lab.exploring.page import explore as explore
    from occupancy_lab.gpus import CudaArchitecture as CudaArchitecture
    from occupancy_lab.gpus import Gpu as Gpu
    from occupancy_lab.gpus import HipArchitecture as HipArchitecture
    from occupancy_lab.gpus import PresentGpu as PresentGpu
    from occupancy_lab.gpus import find_gpu as find_gpu
    from occupancy_lab.gpus import present_gpus as present_gpus
    from occupancy_lab.kernel import OPTIONS as OPTIONS
    from occupancy_lab.kernel import Grid as Grid
    from occupancy_lab.kernel import Kernel as Kernel
    from occupancy_lab.kernel import MemoryStep as MemoryStep
    from occupancy_lab.kernel import kernel_names as kernel_names
    from occupancy_lab.kernel import load_kernel as load_kernel
    from occupancy_lab.kernel import workspace_of as workspace_of
    from occupancy_lab.launch import Launch as Launch
    from occupancy_lab.measuring.side_by_side import SideBySide as SideBySide
    from occupancy_lab.measuring.side_by_side import measure_side_by_side as measure_side_by_side
    from occupancy_lab.measuring.verify import Verification as Verification
    from occupancy_lab.measuring.verify import verify_here as verify_here
    from occupancy_lab.occupancy.calculator import Calculation as Calculation
    from occupancy_lab.operators.softmax import softmax as softmax
    from occupancy_lab.prediction import Prediction as Prediction
    from occupancy_lab.record import Failed as Failed
    from occupancy_lab.record import Record as Record
    from occupancy_lab.reporting import Page as Page
    from occupancy_lab.reporting import make_report as make_report
    from occupancy_lab.reporting.contents import to_html as to_html
    from occupancy_lab.reporting.contents import write_markdown as write_markdown
    from occupancy_lab.scanning.page import Scan as Scan
    from occupancy_lab.scanning.scan import scan as scan
    from occupancy_lab.sweeping.recorded import read_table as read_table
    from occupancy_lab.sweeping.recorded import recorded_table as recorded_table
    from occupancy_lab.sweeping.run import sweep as sweep
    from occupancy_lab.tracing.explain import explain as explain
    from occupancy_lab.tracing.script_runs import ScriptExplanation as ScriptExplanation
    from occupancy_lab.tracing.script_runs import explain_script as explain_script
    from occupancy_lab.tracing.trace import Trace as Trace
    from occupancy_lab.tracing.trace import trace as trace
    from occupancy_lab.tracing.trace import trace_program as trace_program
    from occupancy_lab.tuning.autotuner import early_config_prune as early_config_prune
    from occupancy_lab.tuning.autotuner import perf_model as perf_model
    from occupancy_lab.tuning.by_size import tune_sizes as tune_sizes
    from occupancy_lab.tuning.choice import Tuning as Tuning
    from occupancy_lab.tuning.of_script import tune_script as tune_script
    from occupancy_lab.tuning.search import tune as tune
    from occupancy_lab.tuning.search import tune_launches as tune_launches
    from occupancy_lab.tuning.tuned import UntunedWarning as UntunedWarning
    from occupancy_lab.tuning.tuned import tuned as tuned
    from occupancy_lab.tuning.tuned_file import TunedFile as TunedFile
    from occupancy_lab.values import Config as Config
    from occupancy_lab.values import Measurement as Measurement
    from occupancy_lab.values import Occupancy as Occupancy
    from occupancy_lab.values import Problem as Problem
    from occupancy_lab.values import Resources as Resources

__version__ = "0.1.0"


@cache
def _homes() -> dict[str, str]:
    """Return the module of each public name, from the imports for type checkers."""
    import ast
    import inspect

    source = ast.parse(inspect.getsource(sys.modules[__name__]))
    imports = [node for node in ast.walk(source) if isinstance(node, ast.ImportFrom)]
    return {one.name: str(node.module) for node in imports for one in node.names if one.asname}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import occupancy_lab` is cheap."""
    if name == "__all__":
        return sorted(_homes())
    if name.startswith("_") or name not in _homes():
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    found = globals()[name] = getattr(import_module(_homes()[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes()})
