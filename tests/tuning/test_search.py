"""`tune`: all configurations are ranked by prediction, and only the best are launched."""

import dataclasses

import pytest
from records import counted_record
from stand_ins import UNLISTED, Launches, put_here

import occupancy_lab
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu, present_gpus
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.kernel import load_kernel
from occupancy_lab.kernels.softmax import ALIKE
from occupancy_lab.prediction import CHOSEN
from occupancy_lab.sweeping.grid import grid_tasks
from occupancy_lab.sweeping.recorded import recorded_launches, recorded_ranking
from occupancy_lab.tuning.choice import choice_of
from occupancy_lab.tuning.search import tune
from occupancy_lab.values import Config, Problem

WARPS = (4, 8)
TRIED = {*ALIKE} - {"softmax_cooperative"}
"""The kernels with a configuration for 781 columns."""


def test_everything_is_ranked_by_prediction(launches: Launches) -> None:
    """Each configuration is a row, the best predicted first, and nothing is launched."""
    tuning = tune(781, num_warps=WARPS)
    table = tuning.table
    assert table["predicted_us"].is_monotonic_increasing
    kernels = [NamedKernel(name, load_kernel(name)) for name in ALIKE]
    tasks = grid_tasks(kernels, Problem(4096, 781), find_gpu("h200"), WARPS, ())
    ranked = table[["kernel", "BLOCK_SIZE", "num_warps", "num_stages"]].itertuples(index=False)
    assert sorted(map(tuple, ranked)) == sorted(
        (task.name, *dataclasses.astuple(task.matrix.config)) for task in tasks
    )
    assert set(table["kernel"]) == TRIED
    assert launches.asked == []
    assert tuning.best == tuning.best_predicted
    assert (tuning.best.predicted_us, tuning.best.us) == (table["predicted_us"].iloc[0], None)
    config = tuning.best.config
    alone = occupancy_lab.explain(
        781, gpu="h200", kernel=tuning.best.kernel, **dataclasses.asdict(config)
    )
    own = alone.records[0].prediction
    assert tuning.best.predicted_low_us == table["predicted_low_us"].iloc[0] == own.low_us
    assert tuning.best.predicted_high_us == table["predicted_high_us"].iloc[0]
    assert tuning.best.predicted_high_us == pytest.approx(own.high_us * CHOSEN)


def test_only_the_best_predicted_are_launched(launches: Launches) -> None:
    """With measure only the top rows are launched, and the fastest is chosen."""
    times = iter((12.0, 9.0, 10.0))
    launches.times = lambda _launch: next(times)
    tuning = tune(781, num_warps=WARPS, measure=True, top=3, runs=30)
    assert [launch.config for _, launch in launches.asked] == [
        Config(*map(int, row))
        for row in tuning.table[["BLOCK_SIZE", "num_warps", "num_stages"]].head(3).to_numpy()
    ]
    assert tuning.table["us"].tolist()[:3] == [12.0, 9.0, 10.0]
    assert tuning.table["us"][3:].isna().all()
    assert tuning.best.us == 9.0
    assert tuning.best.config == launches.asked[1][1].config
    assert tuning.best_predicted.us == 12.0


def test_launches_that_fail_are_not_chosen(launches: Launches) -> None:
    """Without any measured time the best predicted is chosen."""
    times = iter((None, 9.0))
    launches.times = lambda _launch: next(times)
    tuning = tune(781, num_warps=WARPS, measure=True, top=2)
    assert tuning.best.us == 9.0
    launches.times = lambda _launch: None
    tuning = tune(781, num_warps=WARPS, measure=True, top=2)
    assert tuning.best == tuning.best_predicted
    assert tuning.spent.configurations == 2


def test_recorded_times_stand_beside_the_predicted() -> None:
    """Recorded launches have their times; the fastest is the one explain names."""
    tuning = occupancy_lab.tune(781, gpu="h200", num_warps=[4, 8], num_stages=[1, 4])
    fastest = recorded_ranking("h200", Problem(4096, 781), ALIKE)[0]
    assert tuning.best_recorded == fastest
    times = {
        (one.kernel, one.config, one.num_programs): one.measurement.us
        for one in recorded_launches("h200", Problem(4096, 781))
    }
    choices = [choice_of(row) for row in tuning.table.to_dict("records")]
    found = {(one.kernel, one.config, one.num_programs): one.recorded_us for one in choices}
    assert found == {name: times.get(name) for name in found}
    assert {us is None for us in found.values()} == {True, False}
    text = tuning.to_markdown()
    assert "recorded us" in text
    assert f"Fastest recorded: {fastest.kernel}, BLOCK_SIZE" in text
    assert f"{fastest.num_programs} programs: {fastest.measurement.us:.1f} us." in text
    page = occupancy_lab.explain(781, gpu="h200").to_markdown()
    assert f"is {fastest.kernel}, BLOCK_SIZE" in page
    assert f": {fastest.measurement.us:.1f} us." in page
    assert occupancy_lab.tune(779, gpu="h200", num_warps=[4], num_stages=[1]).best_recorded is None


def test_rows_that_no_program_holds_are_tuned(launches: Launches) -> None:
    """For rows too long for one program, kernels that divide rows are left."""
    tuning = tune(2**20 + 1, rows=3, num_warps=(32,), num_stages=(1,))
    dividing = {"softmax_loop", "softmax_cooperative"}
    assert tuning.best.kernel in dividing
    assert set(tuning.table.loc[tuning.table["status"] == "ok", "kernel"]) == dividing
    assert launches.asked == []


@pytest.mark.parametrize(("cols", "is_miscount"), [(781, False), (500, True)])
def test_tutorial_and_defaults_stand_beside_it(
    launches: Launches, cols: int, *, is_miscount: bool
) -> None:
    """The tutorial's launch and each author's default are always predicted.

    Where the tutorial's formula launches another number of programs, its time is of that.
    """
    names = ("softmax", "softmax_row")
    tuning = tune(cols, rows=20_000, kernel=names, num_warps=(2,), num_stages=(1,))
    assert set(tuning.compared) == {"tutorial", *(f"default of {name}" for name in names)}
    tutorial, default = (tuning.compared[name] for name in ("tutorial", "default of softmax"))
    record = counted_record(
        load_kernel("softmax"), Problem(20_000, cols), default.config, find_gpu("h200")
    )
    assert (default.config.num_warps, default.config.num_stages) == (8, 4)
    assert tutorial.num_programs == record.tutorial_plan.num_programs
    assert default.num_programs == record.plan.num_programs
    assert (record.miscount is not None) is is_miscount
    timed = record.tutorial_prediction if is_miscount else record.prediction
    assert tutorial.predicted_us == pytest.approx(timed.us)
    assert (tutorial.predicted_us == default.predicted_us) is not is_miscount
    row = tuning.compared["default of softmax_row"].config
    assert (row.num_warps, row.num_stages) == (4, 1)
    best = tuning.best.predicted_us
    assert all(best <= one.predicted_us for one in tuning.compared.values())
    assert launches.asked == []


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"gpu": "sm_90"}, "is an architecture, not a GPU"),
        ({"gpu": "h100,h200"}, "one GPU is tuned for at a time"),
        ({"gpu": "a100", "measure": True}, "the GPU here, which is H200 SXM; asked for is A100"),
        ({"top": 0}, "top is 0"),
        ({"rows": 0}, "rows is 0"),
        ({"kernel": "softmax_naive"}, "torch operations"),
        ({"kernel": "softmax", "num_warps": (64,), "num_stages": (0,)}, None),
    ],
)
def test_what_cannot_be_tuned_is_said(
    launches: Launches, asked: dict[str, object], word: str | None
) -> None:
    """Invalid arguments are errors; a bad configuration is only a row."""
    if word is None:
        table = tune(781, **asked).table
        assert list(table["status"]) == ["ok", "skipped"]
    else:
        with pytest.raises(InputError, match=word):
            tune(781, **asked)
    assert launches.asked == []


def test_measuring_without_a_gpu_is_refused(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU, tuning predicts for an H100, and measuring is an error."""
    put_here(monkeypatch)
    assert tune(781, num_warps=WARPS, kernel="softmax_row").gpu.key == "h100"
    with pytest.raises(InputError, match="tune --measure needs a GPU of this machine"):
        tune(781, measure=True)
    assert launches.asked == []


def test_without_a_bandwidth_nothing_is_ranked(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a bandwidth, the error comes before any compile."""
    put_here(monkeypatch, dataclasses.replace(UNLISTED, bandwidth_gbs=None))
    monkeypatch.setattr("occupancy_lab.tuning.search.run_tasks", pytest.fail)
    why = "nothing can be predicted for NVIDIA H100 XYZ: its bandwidth is not known"
    with pytest.raises(InputError, match=why):
        tune(781)
    assert launches.asked == []


def test_without_a_clock_nothing_is_ranked(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no launch has a predicted time, the error says why."""
    put_here(monkeypatch, dataclasses.replace(UNLISTED, boost_mhz=None))
    with pytest.raises(InputError, match="its clock is not known"):
        tune(781, kernel="softmax_row", num_warps=(4,))
    assert launches.asked == []


@pytest.mark.gpu
def test_the_best_predicted_are_good_on_the_gpu_here() -> None:
    """On a real GPU the best of five launches is near the fastest of all."""
    if present_gpus()[0].gpu.key != "h200":
        pytest.skip("the share was found on an H200")
    few = tune(781, measure=True)
    every = tune(781, measure=True, top=len(few.table))
    assert few.best.us < 1.25 * every.best.us


@pytest.mark.parametrize(
    ("warps", "stages", "expected"),
    [
        ((), (), [(48, 4, 1), (96, 8, 2)]),
        ((16,), (), [(48, 16, 1), (48, 16, 2), (96, 16, 1), (96, 16, 2)]),
        ((), (3,), [(48, 4, 3), (48, 8, 3), (96, 4, 3), (96, 8, 3)]),
        ((1, 2), (3,), [(48, 1, 3), (48, 2, 3), (96, 1, 3), (96, 2, 3)]),
    ],
)
def test_a_kernels_own_configurations_are_tried(
    warps: tuple[int, ...], stages: tuple[int, ...], expected: list[tuple[int, ...]]
) -> None:
    """By default a kernel's own configurations are tried, else their blocks."""
    kernel = dataclasses.replace(
        load_kernel("softmax_row"),
        configs=lambda _problem: (Config(48, 4, 1), Config(96, 8, 2)),
        default_config=lambda _problem, _most: Config(192, 4, 1),
    )
    problem, gpu = Problem(64, 781), find_gpu("h200")
    tasks = grid_tasks([NamedKernel(None, kernel)], problem, gpu, warps, stages)
    assert [task.matrix.config for task in tasks] == [
        *(Config(*knobs) for knobs in expected),
        Config(192, 4, 1),
    ]
    none = dataclasses.replace(kernel, configs=lambda _problem: ())
    (task,) = grid_tasks([NamedKernel(None, none)], problem, gpu, warps, stages)
    assert task.matrix.config == Config(192, 4, 1)


def test_a_kernel_that_tries_nothing_is_left_out_beside_others() -> None:
    """Blocks too large to compile quickly are left out beside others."""
    gpu, problem = find_gpu("h200"), Problem(64, 2**20)
    several = [NamedKernel(name, load_kernel(name)) for name in ALIKE]
    assert {task.matrix.kernel.name for task in grid_tasks(several, problem, gpu, (), ())} == {
        "softmax",
        "softmax_row",
        "softmax_cooperative",
        "softmax_loop",
    }
    alone = [NamedKernel("softmax_pieces", load_kernel("softmax_pieces"))]
    assert len(list(grid_tasks(alone, problem, gpu, (), ()))) == 1
