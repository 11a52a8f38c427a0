"""`tune --sizes`: the fastest predicted at each size, what is left out, and the search."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import launched_kernels
import pytest
import triton
import triton.language as tl
from hypothesis import strategies as st
from in_process import run

import occupancy_lab
from occupancy_lab.digest import source_digest
from occupancy_lab.errors import InputError
from occupancy_lab.kernel import load_function
from occupancy_lab.prediction import Part, Prediction
from occupancy_lab.tiles import tile_names
from occupancy_lab.tuning import by_size
from occupancy_lab.tuning.by_size import free_tiles, larger, neighbours
from occupancy_lab.tuning.tuned_file import TunedFile

EXAMPLES = Path(__file__).parents[2] / "examples"
MATMUL = {
    "kernel": f"{EXAMPLES / 'matmul.py'}:tuned_matmul",
    "signature": "*fp16,*fp16,*fp16,M,N,K,K,N,N",
    "grid": "cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)",
}
CUBES = [{"M": n, "N": n, "K": n} for n in (1024, 4096)]
NORM = {
    "kernel": f"{EXAMPLES / 'layer_norm.py'}:layer_norm",
    "signature": "*fp16,*fp16,*fp16,*fp16,*fp32,*fp32,N,N,1e-5",
    "grid": "4096",
}
POWERS = st.integers(4, 10).map(lambda power: 2**power)
DRAWN_CONFIGS = st.fixed_dictionaries(
    {
        "A": POWERS,
        "B": POWERS,
        "num_warps": st.integers(0, 4).map(lambda power: 2**power),
        "num_stages": st.integers(1, 7),
        "FLAG": st.booleans(),
    }
)


def test_the_fastest_of_each_size_is_chosen() -> None:
    """The choice is what `tune` ranks first, with time, range and bound."""
    found = occupancy_lab.tune_sizes(sizes=CUBES, gpu="h100,mi300x,sm_90", **MATMUL)
    assert found.kernel == "matmul"
    assert found.sizes == ("M", "N", "K")
    assert found.tensors == dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "fp16")
    assert found.constexprs == {}
    assert list(found.gpus) == ["h100", "mi300x"]
    pairs = [(gpu, *one) for gpu in found.gpus for one in zip(CUBES, found.gpus[gpu], strict=True)]
    for gpu, size, one in pairs:
        n = size["M"]
        signature = f"*fp16,*fp16,*fp16,{n},{n},{n},{n},{n},{n}"
        (ranked,) = occupancy_lab.tune_launches(**{**MATMUL, "signature": signature}, gpu=gpu)
        best = ranked.table.iloc[0]
        assert one.sizes == size
        assert {name: best[name] for name in one.config} == one.config
        times = (one.predicted_us, one.predicted_low_us, one.predicted_high_us)
        names = ("predicted_us", "predicted_low_us", "predicted_high_us")
        assert times == pytest.approx([best[name] for name in names], abs=1e-3)
        assert one.bound == best["bound"]
    (left,) = found.left_out
    assert (left.gpu, left.sizes) == ("sm_90", None)
    assert left.reason == "sm_90 is an architecture, not a GPU; name a GPU, such as h100"


def test_times_right_after_the_same_launch_are_compared() -> None:
    """With warm, times are at most those with an empty L2 cache."""
    small = [{"M": 512, "N": 512, "K": 512}]
    one = {**MATMUL, "gpu": "h100", "signature": "*fp16,*fp16,*fp16,512,512,512,512,512,512"}
    sizes = [
        occupancy_lab.tune_sizes(sizes=small, gpu="h100", warm=warm, **MATMUL)
        for warm in (False, True)
    ]
    alone = [occupancy_lab.tune_launches(**one, warm=warm)[0] for warm in (False, True)]
    times = [found.gpus["h100"][0].predicted_us for found in sizes]
    assert times == pytest.approx([found.best.predicted_us for found in alone], abs=1e-3)
    assert times[1] < times[0]
    for found in (sizes[1], alone[1]):
        assert "right after the same launch" in found.to_markdown()
    assert "warm" not in dict(alone[1].best.settings)


def test_where_no_gpu_has_a_time_it_is_an_error() -> None:
    """If no GPU has a predicted time, each is named with its reason."""
    with pytest.raises(InputError, match=r"h100: No time is predicted.*; sm_90: sm_90 is an"):
        occupancy_lab.tune_sizes(sizes=CUBES[:1], gpu="h100,sm_90", **{**MATMUL, "grid": None})


def test_warps_are_tuned_for_blocks_that_a_size_sets() -> None:
    """A size's constexpr belongs to the launch line, options to the file."""
    sizes = [{"N": 781, "BLOCK_SIZE": 1024}, {"N": 8192, "BLOCK_SIZE": 8192}]
    found = occupancy_lab.tune_sizes(sizes=sizes, gpu="h100", num_warps="1,16", **NORM)
    small, large = found.gpus["h100"]
    assert (small.config, large.config) == ({"num_warps": 1}, {"num_warps": 16})
    assert found.sizes == ("N", "BLOCK_SIZE")


def test_a_block_that_does_part_of_the_work_is_refused() -> None:
    """A block shorter than a row is refused, also at a larger size."""
    for sizes in ([{"N": 4096}], [{"N": 512}]):
        with pytest.raises(InputError, match="BLOCK_SIZE 1024 does not do the whole work at N"):
            occupancy_lab.tune_sizes(
                sizes=sizes, gpu="h100", constexprs="BLOCK_SIZE=1024,2048", **NORM
            )


@triton.jit
def scale(x_ptr, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201, N803 - a kernel
    """Multiply n elements."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * FACTOR, mask=at < n)


SCALE: dict[str, Any] = {
    "signature": "*fp32,n",
    "grid": "cdiv(n, BLOCK)",
    "gpu": "h100",
    "sizes": [{"n": 2**20}],
}


def test_constexprs_with_one_value_are_the_launch_lines() -> None:
    """Constexprs with several values are settings; others identify launches."""
    found = occupancy_lab.tune_sizes(
        scale, constexprs=["FACTOR=3", "BLOCK=64,1024"], num_warps=4, **SCALE
    )
    assert found.constexprs == {"FACTOR": 3}
    (one,) = found.gpus["h100"]
    assert one.config == {"BLOCK": 1024, "num_warps": 4}
    assert found.digest == source_digest(scale)


def heuristic(kernel: Any) -> Any:
    """Return *kernel* with a FACTOR that depends on its block."""
    return triton.heuristics({"FACTOR": lambda named: named.get("BLOCK", 2)})(kernel)


CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4, num_stages=1) for block in (64, 1024)]


@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize("around", [False, True])
def test_heuristics_may_stand_anywhere(
    monkeypatch: pytest.MonkeyPatch, *, around: bool, search: bool
) -> None:
    """Heuristics around or below the autotuner set what no configuration sets."""
    monkeypatch.setattr(by_size, "SEARCHED", 3)
    if around:
        kernel = heuristic(triton.autotune(CONFIGS, key=["n"])(scale))
    else:
        kernel = triton.autotune(CONFIGS, key=["n"])(heuristic(scale))
    (one,) = occupancy_lab.tune_sizes(kernel, search=search, **SCALE).gpus["h100"]
    assert one.config.keys() == {"BLOCK", "num_warps", "num_ctas", "num_stages"}
    assert one.config["BLOCK"] >= 1024


def test_a_decorated_kernel_is_tuned_as_it_was_before(tmp_path: Path) -> None:
    """`tuned` and the package's hooks do not restrict tuning."""
    hooks = {
        "early_config_prune": occupancy_lab.early_config_prune,
        "perf_model": occupancy_lab.perf_model,
        "top_k": 1,
    }
    below = triton.autotune(CONFIGS, key=["n"], prune_configs_by=hooks)(scale)
    decorated = occupancy_lab.tuned(tmp_path / "none.json")(below)
    plain = triton.autotune(CONFIGS, key=["n"])(scale)
    asked = {**SCALE, "constexprs": "FACTOR=3"}
    assert occupancy_lab.tune_sizes(decorated, **asked) == occupancy_lab.tune_sizes(plain, **asked)
    assert below.perf_model is occupancy_lab.perf_model


def test_what_json_cannot_hold_is_refused() -> None:
    """A dtype among the values is refused, since the file would hold a text."""
    with pytest.raises(InputError, match=r"FACTOR is .* in a configuration"):
        occupancy_lab.tune_sizes(
            scale, constexprs=["FACTOR=tl.float16,tl.float32", "BLOCK=64"], **SCALE
        )


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the list of compiled configurations."""
    found: list[dict[str, Any]] = []
    predicted = by_size.Tuner._predicted

    def noted(self: Any, candidates: Sequence[Any], gpu: Any) -> Any:
        found.extend(dict(one.config) for one in candidates)
        return predicted(self, candidates, gpu)

    monkeypatch.setattr(by_size.Tuner, "_predicted", noted)
    return found


def test_a_search_finds_more_and_ends(
    monkeypatch: pytest.MonkeyPatch, tried: list[dict[str, Any]]
) -> None:
    """The search goes to faster neighbours within its limit, and never back."""
    monkeypatch.setattr(by_size, "SEARCHED", 12)
    asked = {**MATMUL, "sizes": CUBES[:1], "gpu": "h100"}
    (given,) = occupancy_lab.tune_sizes(**asked).gpus["h100"]
    before = len(tried)
    file = occupancy_lab.tune_sizes(**asked, search=True)
    (found,) = file.gpus["h100"]
    assert found.predicted_us < given.predicted_us
    assert file.stopped == ("h100",)
    assert "The search stopped at its limit of compiles" in file.to_markdown()
    searched = tried[2 * before :]
    assert 0 < len(searched) <= 12
    assert found.config in searched
    assert len({repr(sorted(one.items())) for one in searched}) == len(searched)
    assert {one["GROUP_M"] for one in searched} == {8}


def test_a_search_keeps_a_block_of_one_size(tried: list[dict[str, Any]]) -> None:
    """A block with one given size is not searched, only warps and stages."""
    asked: dict[str, Any] = {"constexprs": ["FACTOR=3", "BLOCK=256"], "search": True, **SCALE}
    assert occupancy_lab.tune_sizes(scale, **asked).stopped == ()
    assert {one.get("BLOCK") for one in tried} == {None}
    assert len({one["num_warps"] for one in tried}) > 1
    assert len({one["num_stages"] for one in tried}) > 1


FAST = Prediction(
    1e-3, 1.0, None, (Part("launch", 1e-3),), "nothing", calibrated=False, low_us=1e-3, high_us=1e-3
)


def test_a_search_drops_what_does_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour that moves other bytes is never chosen."""
    monkeypatch.setattr(by_size, "SEARCHED", 6)
    moved, with_counts = by_size._moved, by_size.with_counts

    def is_given(run: Any) -> bool:
        return run.arguments["BLOCK"] in {512, 1024}

    def counted(*asked: Any) -> list[Any]:
        runs = with_counts(*asked)
        return [run if is_given(run) else replace(run, prediction=FAST) for run in runs]

    monkeypatch.setattr(by_size, "_moved", lambda run: moved(run) if is_given(run) else {})
    monkeypatch.setattr(by_size, "with_counts", counted)
    found = occupancy_lab.tune_sizes(
        scale, constexprs=["FACTOR=3", "BLOCK=512,1024"], search=True, **SCALE
    )
    assert found.gpus["h100"][0].config["BLOCK"] in {512, 1024}


@triton.jit
def copy_rows(x_ptr, y_ptr, n, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201, N803 - a kernel
    """Copy rows of up to a block."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n + at
    tl.store(y_ptr + row, tl.load(x_ptr + row, mask=at < n), mask=at < n)


def test_what_a_search_found_is_for_the_launches_it_looked_at() -> None:
    """A searched block is used only at its own size."""
    configs = [triton.Config({"BLOCK": block}, num_warps=4) for block in (1024, 2048)]
    asked: dict[str, Any] = {"signature": "*fp16,*fp16,n", "grid": "8192", "gpu": "h100"}
    asked |= {"kernel": triton.autotune(configs, key=["n"])(copy_rows), "sizes": [{"n": 500}]}
    (given,) = occupancy_lab.tune_sizes(**asked).gpus["h100"]
    (found,) = occupancy_lab.tune_sizes(**asked, search=True).gpus["h100"]
    assert (given.only, given.elsewhere) == (None, {})
    assert found.config["BLOCK"] == 512
    assert found.only == {"n": 500, "grid": [8192]}
    assert found.elsewhere == given.config


def test_the_command_writes_what_the_decorator_reads(tmp_path: Path) -> None:
    """The command writes the function's result for the kernel asked for."""
    sizes, output = tmp_path / "sizes.csv", tmp_path / "tuned.json"
    sizes.write_text("M,N,K\n4096,4096,4096\n", encoding="utf-8")
    words = ("--signature", MATMUL["signature"], "--grid", MATMUL["grid"], "--sizes", str(sizes))
    asked = ("tune", MATMUL["kernel"], *words, "--quiet")
    done = run(*asked, "--gpu", "h100,gfx942", "--output", str(output))
    assert done.returncode == 0, done.stderr
    assert "matmul: 1 size on H100 SXM" in done.stdout
    assert "gfx942 is left out" in done.stdout
    file = TunedFile.read(str(output))
    assert file == occupancy_lab.tune_sizes(sizes=CUBES[1:], gpu="h100,gfx942", **MATMUL)
    kernel, _ = load_function(MATMUL["kernel"])
    assert file.digest == source_digest(kernel)
    assert run(*asked, "--gpu", "h100,gfx942", "--json").stdout == output.read_text("utf-8")
    done = run(*asked, "--gpu", "gfx942", "--output", str(tmp_path / "none.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "gfx942: gfx942 is an architecture, not a GPU" in done.stderr
    assert not (tmp_path / "none.json").exists()


REFUSED = {
    "{kernel} --output tuned.json": "--output would be ignored without --sizes",
    "{kernel} --search": "--search would be ignored without --sizes",
    "{kernel} --sizes {sizes} --top 3": "--top would be ignored beside --sizes",
    "{kernel} --sizes {sizes} --measure": "--measure needs a GPU of this machine",
    "{kernel} --sizes {sizes} --measure --warm": "leave out --warm",
    "{kernel} --sizes {sizes} --output {sizes}": "sizes.csv",
    "{kernel} --sizes {sizes}": "has the column 'Q', which matmul does not take",
    "--cols 781 --sizes {sizes}": "--sizes describes the launch of a Triton function",
}


@pytest.mark.parametrize(("words", "why"), REFUSED.items())
def test_what_makes_no_sense_is_one_sentence(tmp_path: Path, words: str, why: str) -> None:
    """Useless options and invalid sizes are refused."""
    sizes = tmp_path / "sizes.csv"
    sizes.write_text("M,Q\n4096,4096\n", encoding="utf-8")
    done = run("tune", *words.format(kernel=MATMUL["kernel"], sizes=sizes).split())
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_size_that_the_signature_calculates_with_is_not_left_out() -> None:
    """An argument without a column is named, with what to do."""
    sizes = [{"M": 64, "N": 64}]
    with pytest.raises(InputError, match="needs a number for K, and the sizes have none; give"):
        occupancy_lab.tune_sizes(sizes=sizes, gpu="h100", **MATMUL)


@pytest.mark.parametrize(
    ("sizes", "free"),
    [((64, 128), True), ((64, 64), False), ((64, 96), False), ((64, None), False)],
)
def test_a_tile_is_free_where_its_author_varies_it(sizes: tuple[int, ...], *, free: bool) -> None:
    """A tile is free if its sizes are several powers of two."""
    configs = [{"TILE": size, "OTHER": 32, "GROUP": size} for size in sizes]
    assert free_tiles(tile_names(launched_kernels.handing), configs) == (["TILE"] if free else [])


@hypothesis.given(DRAWN_CONFIGS)
def test_neighbours_are_a_step_or_two_away(config: dict[str, int]) -> None:
    """Neighbours stay within limits and differ in two settings at most."""
    found = list(neighbours(config, ["A", "B"]))
    assert len({repr(sorted(one.items())) for one in found}) == len(found)
    for one in found:
        changed = {name for name in config if one[name] != config[name]}
        assert 1 <= len(changed) <= 2
        assert "FLAG" not in changed
        assert all(
            one[name] in {config[name] * 2, config[name] // 2} for name in changed - {"num_stages"}
        )
        assert abs(one["num_stages"] - config["num_stages"]) <= 1
        assert 16 <= one["A"] <= 2**16
        assert 1 <= one["num_warps"] <= 16


@hypothesis.given(st.integers(1, 10**6), POWERS)
def test_a_larger_size_is_more_than_any_tile(n: int, tile: int) -> None:
    """No tile has half of it, and Triton compiles the same binary."""
    found = larger({"N": n, "NAME": "x", "FLAG": True}, [{"A": tile}], ["A"])
    if found is None:
        assert n >= 2 * tile
        return
    assert found["N"] >= 2 * tile
    assert (found["N"] % 16 == 0) is (n % 16 == 0)
    assert (found["NAME"], found["FLAG"]) == ("x", True)
