"""From a problem to a launch plan, for GPUs that are not here."""

import dataclasses
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import launched_kernels
import pytest
from hand_made import matmul
from records import compile_resources, make_record, plan_of
from stand_ins import CONDITIONS, MEASURED, dry, put_calibration

from occupancy_lab.arguments import tensor
from occupancy_lab.asked import Asked, ask
from occupancy_lab.compiled_records import compile_matrix, failed, record_of
from occupancy_lab.compiling import Store, store_directory, triton_version
from occupancy_lab.compiling.compile import failure_of
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.errors import (
    CompileError,
    CompileTimeoutError,
    DoesNotFitError,
    OccupancyLabError,
)
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.kernel import load_kernel, variants
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.record import Record
from occupancy_lab.signature import read_launches
from occupancy_lab.values import Config, Measurement, Problem, Resources

PROBLEM, CONFIG = Problem(4096, 781), Config(1024, 8, 4)
SOFTMAX = NamedKernel("softmax", load_kernel("softmax"))


@pytest.fixture(autouse=True)
def _calibrated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Provide constants for predictions."""
    put_calibration(monkeypatch, tmp_path)


X = tensor((4096, 2048), "float16")
WORK = ("flops", "load_sectors", "store_sectors", "l2_bytes", "dram_read_bytes", "intensity")


def _few(_keywords: object, _target: object) -> Resources:
    return Resources(32, 4, 2048)


def record(gpu: str = "h100", kernel: str = "softmax", config: Config = CONFIG) -> Record:
    """Return the record of a kernel for the example of the tutorial."""
    return make_record(load_kernel(kernel), PROBLEM, config, find_gpu(gpu))


def given(config: Config, resources: Resources) -> Record:
    """Return the record of the tutorial's example on an H200, compiled to *resources*."""
    asked = ask(SOFTMAX, PROBLEM, config, find_gpu("h200"))
    return record_of(asked, resources, triton="3.7.1")


@pytest.mark.parametrize(
    ("kernel", "name"),
    [("softmax", "h100"), ("softmax_row", "mi300x"), ("vector_add", "gfx1100")],
)
def test_a_record_is_every_step_of_the_road(kernel: str, name: str) -> None:
    """Resources, occupancy, plans and traffic equal the results of each function by itself."""
    found, gpu = record(name, kernel), find_gpu(name)
    assert repr(found) == str(found) == f"<Record: {kernel} on {gpu.title}>"
    own = load_kernel(kernel)
    assert found.gpu is gpu
    assert found.resources == compile_resources(own, PROBLEM, CONFIG, gpu.target, Store(None))
    assert found.calculation == calculate(found.resources, gpu)
    assert found.occupancy == found.calculation.occupancy
    assert found.tutorial == found.calculation.tutorial
    for plan, held in ((found.plan, found.occupancy), (found.tutorial_plan, found.tutorial)):
        programs = held.programs_per_multiprocessor
        assert plan == plan_of(own, PROBLEM, CONFIG, programs, gpu.multiprocessors)
    assert found.traffic == own.traffic(PROBLEM)
    assert found.prediction is None
    assert found.measurement is None
    assert found.triton_version == triton_version()


def test_a_row_is_flat() -> None:
    """A row has only plain values, with the same names for every GPU and kernel."""
    rows = [record().row(), record("gfx942", "vector_add").row()]
    assert rows[0].keys() == rows[1].keys()
    for row in rows:
        assert all(isinstance(value, str | int | float | None) for value in row.values())


def test_a_bare_architecture_leaves_the_launch_open() -> None:
    """Without the GPU's size the occupancy is known, but not the launch and the time."""
    plain = record("sm_90").to_dict()
    assert plain["programs_per_multiprocessor"] == record().occupancy.programs_per_multiprocessor
    unknown = ("num_programs", "waves", "rounds", "last_round", "least_us", "bandwidth_gbs")
    unknown += ("predicted_us", "predicted_gbs", "bound", "basis", "prediction", "measurement")
    assert {plain[name] for name in unknown} == {None}
    assert plain["read_bytes"] == plain["written_bytes"] == 4096 * 781 * 4


def test_a_record_is_plain_json() -> None:
    """A record survives JSON, with its row and its calculation."""
    found = record("mi300x")
    plain = found.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False))["least_us"] == plain["least_us"]
    assert plain["least_us"] == pytest.approx(2 * 4096 * 781 * 4 / (5300 * 1e9) * 1e6, rel=0.01)
    assert found.row().items() <= plain.items()
    assert found.calculation.to_dict().items() <= plain.items()


def test_what_a_launch_does_not_pass_is_its_default() -> None:
    """The JSON of a launch has the warps and stages that its binary was compiled with."""
    for passed, warps in (({}, 4), ({"num_warps": 8}, 8)):
        (run,) = dry(
            launched_kernels.transpose, "h100", _few, X, X, 64, 64, BLOCK=64, **passed
        ).records
        plain = run.to_dict()
        assert (plain["num_warps"], plain["num_stages"]) == (warps, 3)


def counted(problem: Problem, config: Config, gpu: str = "h200") -> Record:
    """Return the record of the tutorial's softmax with its counts."""
    with closing(Compiler(store_directory())) as compiler:
        return compile_matrix(SOFTMAX, problem, config, find_gpu(gpu), compiler)


def test_a_prediction_is_in_the_row_and_in_json() -> None:
    """The row has its time, bandwidth, bound and basis; JSON has its parts too."""
    found = counted(PROBLEM, CONFIG)
    predicted, plain = found.prediction, found.to_dict()
    names = ("predicted_us", "predicted_low_us", "predicted_high_us", "predicted_gbs", "bound")
    values = (predicted.us, predicted.low_us, predicted.high_us, predicted.gbs, predicted.bound)
    assert tuple(plain[name] for name in names) == values
    assert plain["basis"] == predicted.basis
    assert plain["prediction"] == {
        "us": predicted.us,
        "low_us": predicted.low_us,
        "high_us": predicted.high_us,
        "gbs": predicted.gbs,
        "share_of_copy": predicted.gbs / predicted.copy_gbs,
        "bound": max(plain["prediction"]["parts"], key=plain["prediction"]["parts"].get),
        "parts": {part.name: part.us for part in predicted.parts},
        "arithmetic": {
            part.name: dataclasses.asdict(part.quotient)
            for part in predicted.parts
            if part.quotient is not None
        },
        "busiest": predicted.busiest.name,
        "busiest_us": predicted.busiest.us,
        "basis": predicted.basis,
        "calibrated": True,
    }


def test_a_miscounted_launch_is_predicted_too() -> None:
    """If the tutorial launches more programs than fit, JSON has the times of both launches."""
    found = counted(PROBLEM, Config(1024, 16, 1), "h100")
    assert found.miscount > found.plan.num_programs
    plain = found.to_dict()
    assert plain["tutorial_prediction"]["us"] > plain["prediction"]["us"]
    assert plain["tutorial_prediction"].keys() == plain["prediction"].keys()


def test_clusters_are_no_miscount() -> None:
    """The tutorial's programs are whole clusters too: one number per SM is one launch."""
    found = given(CONFIG, Resources(32, 8, 12320, num_ctas=2))
    programs = found.occupancy.programs_per_multiprocessor
    assert found.tutorial.programs_per_multiprocessor == programs
    assert found.plan.resident_programs != programs * 132
    assert found.tutorial_plan == found.plan
    assert found.miscount is None


@pytest.mark.parametrize("num_warps", [1, 8])
def test_nothing_is_said_of_a_launch_that_is_not_another(num_warps: int) -> None:
    """If the tutorial's formula is right, or gives no number, it has no launch of its own."""
    resources = Resources(40, num_warps, 0 if num_warps == 1 else 32)
    found = given(Config(1024, num_warps, 1), resources)
    assert (found.tutorial_plan.num_programs is None) is (num_warps == 1)
    assert (found.miscount, found.to_dict()["tutorial_prediction"]) == (None, None)


def test_a_measurement_is_put_beside_the_prediction() -> None:
    """A copy with a measurement has its times in the row and all of it in JSON."""
    before = record()
    found = dataclasses.replace(before, measurement=MEASURED)
    assert before.measurement is None
    assert found.prediction == before.prediction
    times = {"us": 12.4, "us_low": 12.2, "us_high": 13.1}
    lost = {"lost_us": 12.4 - before.row()["speed_of_light_us"], "lost_of": "measured"}
    assert found.row() == before.row() | times | lost
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["measurement"] == dataclasses.asdict(MEASURED)
    assert plain["measurement"]["conditions"]["device"] == "NVIDIA H200"


@pytest.mark.parametrize("error", [float("nan"), float("inf")])
def test_a_failed_measurement_is_plain_json(error: float) -> None:
    """A launch without a time has the reason; an error that is no number is null."""
    failed = Measurement("wrong result", CONDITIONS, "differs by nan", relative_error=error)
    plain = dataclasses.replace(record(), measurement=failed).to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False))["measurement"]["reason"]
    assert plain["measurement"]["relative_error"] is None
    assert plain["us"] is None


MOVED = {"read": 2**24, "written": 2**24}


def launched(gpu: str = "h100", *, fit: int = 0, **asked: Any) -> Record:
    """Return the record of a launch without a loop, with given resources."""
    found = Resources(32, 4, fit, local_bytes=0, instructions=90, load_bytes=16, store_bytes=16)
    tensors = (tensor((4096, 2048), "float16"),) * 2
    run = dry(
        *(launched_kernels.transpose, gpu, lambda *_: found, *tensors, 4096, 2048),
        **{"BLOCK": 64, "grid": (64, 32), **asked},
    )
    (one,) = run.records
    return one


def test_a_launch_has_a_row() -> None:
    """A launch's row has its constexprs, its options, and numbers of its binary and its grid."""
    row = launched(num_warps=4, **MOVED).row()
    assert row["BLOCK"] == 64
    assert row["num_warps"] == row["launched_warps"] == 4
    assert "M" not in row
    assert row["num_programs"] == 64 * 32
    assert row["least_us"] > 0
    assert row["limiter"] == "warps+registers"


def test_what_is_not_known_of_a_launch_is_none() -> None:
    """Without a grid and bytes, waves and times are None, and JSON has null, never 0."""
    plain = json.loads(json.dumps(launched(grid=None).to_dict(), allow_nan=False))
    for name in ("grid", "num_programs", "waves", "predicted_us", "least_us"):
        assert plain[name] is None


@pytest.mark.parametrize("given", [{"read": 2**24}, {"written": 2**24}])
def test_half_of_the_bytes_are_no_traffic(given: dict[str, int]) -> None:
    """If only the bytes read or the bytes written are known, the least time is that of these."""
    one = launched(**given)
    assert one.traffic is None
    assert one.launch.work.known_bytes == 2**24
    assert one.least_us is not None


def test_typical_values_are_shown_nowhere() -> None:
    """JSON has the type of an argument that was given a type, not a typical number."""
    (line,) = read_launches(
        launched_kernels.transpose,
        signature="x_ptr=*fp16,y_ptr=*fp16,M=i32:16,N=77",
        constexprs="BLOCK=64",
    )
    launch = next(
        variants(launched_kernels.transpose, line.arguments, line.keywords, line.grid)
    ).launch
    launch = dataclasses.replace(launch, typical=line.typical)
    asked = Asked(launched_kernels.transpose, launch, find_gpu("h100"))
    made = record_of(asked, Resources(32, 4, 0), triton="3.7.1")
    arguments = made.to_dict()["arguments"]
    assert arguments["M"] == "i32:16"
    assert arguments["N"] == 77
    assert arguments["BLOCK"] == 64


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (DoesNotFitError("too much", needed=2, available=1), "does not fit"),
        (CompileTimeoutError("too slow"), "timed out"),
        (CompileError("no luck"), "compile failed"),
    ],
)
def test_a_launch_without_a_record_says_why(error: OccupancyLabError, status: str) -> None:
    """A launch that fails keeps its columns, with a status and the reason."""
    one = launched()
    asked = Asked(launched_kernels.transpose, one.launch, find_gpu("h100"))
    row = failed(asked, failure_of(error), "3.7.1").to_dict()
    assert (row["status"], row["reason"]) == (status, str(error))
    assert row["BLOCK"] == 64
    assert "n_regs" not in row


def test_no_number_of_stages_is_said_to_fit_of_any_kernel() -> None:
    """The number of buffers for stages is known only for the lab's own kernels."""
    x = tensor((64, 64), "float16")
    outcome = Resources(32, 4, 300_000, pipeline_shared=290_000)
    with pytest.raises(DoesNotFitError, match="300000 B") as raised:
        dry(launched_kernels.transpose, "h100", lambda *_: outcome, x, x, 64, 64, BLOCK=64)
    assert "would fit" not in str(raised.value)


def test_a_record_has_what_its_launch_does() -> None:
    """The counts of a launch are in its columns and in its JSON, if there are any."""
    plain = dry(launched_kernels.transpose, "h100", _few, X, X, 4096, 2048, BLOCK=64, grid=(64, 32))
    (run,) = plain.records
    assert run.speed_of_light is None
    assert {run.row()[name] for name in WORK} == {None}
    counts = matmul(4096, 128, 132)
    found = dataclasses.replace(run, counts=counts)
    row = found.row()
    assert row["flops"] == 2 * 4096**3 + 4096**2
    assert row["dram_written_bytes"] == 4096 * 4096 * 2
    assert row["load_sectors"] * 32 == 2 * 4096 * 4096 * 2 * 32
    assert row["speed_of_light_us"] == pytest.approx(138.9, abs=0.1)
    assert row["least_us"] < row["speed_of_light_us"]
    assert row["intensity"] == row["flops"] / (row["dram_read_bytes"] + row["dram_written_bytes"])
    told = json.loads(json.dumps(found.to_dict()))
    assert told["speed_of_light"]["binds"] == "fp16 tensor cores"
    assert told["counts"]["loops"][0]["trips"]["low"] == 32 * 32 * 4096 // 64
