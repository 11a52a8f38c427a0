"""`tune FILE.py:main`: the sizes that a program launches, its kernels, and what is refused."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from in_process import run

import occupancy_lab
from occupancy_lab.errors import InputError
from occupancy_lab.tracing.script_runs import explain_script
from occupancy_lab.tuning import by_size
from occupancy_lab.tuning.of_script import size_names, tune_script
from occupancy_lab.tuning.tuned_file import TunedFile

SCRIPT = """
import torch
import triton
import triton.language as tl

import occupancy_lab


@triton.autotune(
    [triton.Config({"BLOCK": size}, num_warps=4, num_stages=1) for size in (64, 1024)], key=["n"]
)
@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + where, tl.load(x + where, mask=where < n) * 2, mask=where < n)


@triton.heuristics({"WHOLE": lambda named: named["n"] % named["BLOCK"] == 0})
@triton.jit
def copy(x, y, x_stride, n, SCALE: tl.constexpr, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        if WHOLE:
            value = tl.load(x + row * x_stride + at)
        else:
            value = tl.load(x + row * x_stride + at, mask=at < n)
        tl.store(y + row * n + at, value * SCALE, mask=at < n)


def launch(n=1 << 20):
    x = torch.rand(n, device="cuda")
    double[lambda named: (triton.cdiv(n, named["BLOCK"]),)](x, n)


def copied(n, dtype=torch.float16, block=256):
    x = torch.rand(4096, n, device="cuda", dtype=dtype)
    copy[(4096,)](x, torch.empty_like(x), x.stride(0), n, 2, BLOCK=block)


def main():
    for n in (1 << 20, 1000, 1 << 20):
        launch(n)


def both():
    main()
    copied(2048)


def untuned():
    copied(2048)
    copied(1000)


def dtypes():
    copied(2048)
    copied(1000, torch.float32)


def blocks():
    copied(2048, block=512)
    copied(1000, block=128)


def per_gpu():
    count = torch.cuda.get_device_properties("cuda").multi_processor_count
    x = torch.rand(count, 2048, device="cuda", dtype=torch.float16)
    copy[(count,)](x, x, x.stride(0), 2048, count, BLOCK=256)


def asking():
    launch(int(torch.rand(1 << 24, device="cuda").sum().item() > 0) + 1000)


def failing():
    main()
    raise ValueError("no more")


def nothing():
    pass
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    """Return the path of a file with programs that launch kernels."""
    path = tmp_path / "bench.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return str(path)


def choices(file: TunedFile) -> dict[str, list[tuple[Any, Any]]]:
    """Return the configuration of each size on each GPU of a file."""
    return {gpu: [(one.sizes, one.config) for one in ones] for gpu, ones in file.gpus.items()}


def test_a_program_is_tuned_as_its_description_is(script: str) -> None:
    """The file has the choices for the same sizes, signature and grid, with each size once."""
    sizes = [{"n": 1 << 20}, {"n": 1000}]
    asked: dict[str, Any] = {"gpu": "h100,mi300x,sm_90"}
    described = occupancy_lab.tune_sizes(
        f"{script}:double", sizes, signature="*fp32,n", grid="cdiv(n, BLOCK)", **asked
    )
    found = tune_script(f"{script}:main", **asked)
    assert choices(found) == choices(described)
    times = {"gpus": described.gpus, "basis": described.basis}
    assert dataclasses.replace(found, **times) == described
    assert [len(described.gpus[gpu]) for gpu in ("h100", "mi300x")] == [2, 2]


def test_a_page_of_tune_and_one_of_explain_have_the_same_times(script: str) -> None:
    """Both are within the program, and say so; without a program it is the time between events."""
    file = tune_script(f"{script}:main", gpu="h100")
    explained = explain_script(f"{script}:main", gpu="h100", compared=False)
    times = [line.record.prediction for line in explained.lines if line.record is not None]
    assert [(one.predicted_us, one.predicted_high_us) for one in file.gpus["h100"]] == [
        (round(one.us, 3), round(one.high_us, 3)) for one in times if one is not None
    ][:2]
    assert "each is as a profiler gives it." in file.to_markdown()
    asked: dict[str, Any] = {"signature": "*fp32,n", "grid": "cdiv(n, BLOCK)", "gpu": "h100"}
    apart = occupancy_lab.tune_sizes(f"{script}:double", [{"n": 1000}], **asked)
    assert "each is between events." in apart.to_markdown()
    assert apart.gpus["h100"][0].predicted_us > file.gpus["h100"][1].predicted_us + 1.5


@pytest.mark.usefixtures("alone")
def test_what_the_program_writes_down_is_found_at_its_launches(script: str, tmp_path: Path) -> None:
    """Decorated, the program launches each size by the file, and is tuned as it was before.

    `explain` shows it as it is launched: by the file, also for another size near, but not on
    another GPU.
    """
    decorated = SCRIPT.replace(
        "@triton.autotune", '@occupancy_lab.tuned("tuned.json")\n@triton.autotune'
    )
    Path(script).write_text(decorated, encoding="utf-8")
    explained = ("explain", f"{script}:launch", "--gpu")
    own = "2 of 2 configurations"
    assert own in " ".join(run(*explained, "h100").stdout.split())
    file = tune_script(f"{script}:main", gpu="h100")
    (tmp_path / "tuned.json").write_text(file.to_json(), encoding="utf-8")
    found = explain_script(f"{script}:main", gpu="h100", compared=False)
    launched = [line.first.bound.launch for line in found.lines]
    assert [one.chosen_by for one in launched] == ["tuned.json", "tuned.json"]
    blocks = [one.keywords["BLOCK"] for one in launched]
    assert blocks == [one.config["BLOCK"] for one in file.gpus["h100"]]
    assert tune_script(f"{script}:main", gpu="h100") == file
    after = run(*explained, "h100").stdout
    row = next(line for line in after.splitlines() if line.strip().startswith("BLOCK"))
    assert row.split()[1] == str(blocks[0])
    assert after.partition("num_warps")[2].splitlines()[0].strip() == "4, tuned.json"
    other = run(*explained, "h200")
    assert own in " ".join(other.stdout.split())
    assert "the file has h100, and this is h200" in other.stdout + other.stderr
    Path(script).write_text(decorated.replace("n=1 << 20", "n=1 << 19"), encoding="utf-8")
    assert "4, tuned.json, nearest size n 1048576" in run(*explained, "h100").stdout


def test_values_are_tuned_of_a_kernel_without_an_autotuner(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the file; what heuristics set follows them, and is not.

    Strides do not tell sizes apart that other numbers do.
    """
    seen: list[Any] = []
    predicted = by_size.Tuner._predicted

    def noted(self: Any, candidates: Any, gpu: Any) -> Any:
        seen.extend(one.variant.launch.keywords | one.size for one in candidates)
        return predicted(self, candidates, gpu)

    monkeypatch.setattr(by_size.Tuner, "_predicted", noted)
    asked: dict[str, Any] = {"constexprs": "BLOCK=128,1024", "num_warps": "1,4", "gpu": "h100"}
    file = tune_script(f"{script}:untuned", **asked)
    assert (file.kernel, file.sizes, file.constexprs) == ("copy", ("n",), {"SCALE": 2})
    launches = file.gpus["h100"]
    assert [one.sizes for one in launches] == [{"n": 2048}, {"n": 1000}]
    assert all(one.config.keys() == {"BLOCK", "num_warps"} for one in launches)
    assert {(one["n"], one["BLOCK"]) for one in seen} == {
        (n, block) for n in (2048, 1000) for block in (128, 1024)
    }
    assert all(one["WHOLE"] is (one["n"] % one["BLOCK"] == 0) for one in seen)


def test_one_of_several_kernels_is_tuned(script: str) -> None:
    """The named one alone, with what is given of values."""
    file = tune_script(f"{script}:both", kernel="copy", num_warps="1,4", gpu="h100")
    assert [one.config.keys() for one in file.gpus["h100"]] == [{"num_warps"}]


def test_constexprs_that_differ_are_sizes(script: str) -> None:
    """A constexpr is a column where its values differ, also where they only do between GPUs."""
    file = tune_script(f"{script}:blocks", num_warps="1,4", gpu="h100")
    assert [one.sizes for one in file.gpus["h100"]] == [
        {"n": 2048, "BLOCK": 512},
        {"n": 1000, "BLOCK": 128},
    ]
    file = tune_script(f"{script}:per_gpu", num_warps="4,8", gpu="h100,b200")
    sizes = {gpu: [one.sizes for one in file.gpus[gpu]] for gpu in file.gpus}
    assert sizes == {"h100": [{"n": 2048, "SCALE": 132}], "b200": [{"n": 2048, "SCALE": 148}]}


M_AND_N = ({"m": 4, "n": 4, "x_stride": 4}, {"m": 8, "n": 4, "x_stride": 4})


@pytest.mark.parametrize(
    ("launches", "names"),
    [
        ([M_AND_N], ["m"]),
        ([M_AND_N[:1]], ["m", "n"]),
        ([[*M_AND_N, {"m": 4, "n": 4, "x_stride": 8}]], ["m", "x_stride"]),
        ([[*M_AND_N, {"m": 2, "n": 2, "x_stride": 2}]], ["m", "n"]),
        ([M_AND_N[:1], M_AND_N[1:]], ["m", "n"]),
        ([[M_AND_N[0], {**M_AND_N[0], "x_stride": 1}]], ["m", "n", "x_stride"]),
        ([[{"x_stride": 4}], [{"x_stride": 4}]], []),
    ],
)
def test_sizes_are_named_by_what_differs(launches: Any, names: list[str]) -> None:
    """Strides are left out where they follow; if nothing else differs, all other numbers count."""
    assert size_names(launches, ()) == names


REFUSED = {
    "both num_warps=2,4": r"several kernels that can be tuned; choose one with --kernel: double, c",
    "main kernel=copy": r"bench\.py:main launches no kernel 'copy'; it launches double$",
    "both kernel=copy": r"^copy has no autotuner; give several values by --constexpr,",
    "untuned": r"^no kernel that .*:untuned launches has an autotuner: copy; give several values",
    "both kernel=copy num_warps=2,4 constexprs=OTHER=2": r"has the constexpr OTHER; what they have",
    "main options=maxnreg=64,128 kernel=double constexprs=SCALE=2": r"has the constexpr SCALE",
    "both constexprs=SCALE=2,3 kernel=double": r"^double takes no SCALE",
    "both num_warps=1,4 constexprs=SCALE=2 kernel=double": r"no configuration with|takes no SCALE",
    "dtypes num_warps=2,4": r"with x of fp16 and of fp32, and a file has one dtype for each tensor",
    "failing": r"bench\.py:\d+: ValueError: no more$",
    "nothing": r"bench\.py:nothing launches no Triton kernel$",
    "main num_warps=2,8": r"the autotuner has no configuration with",
}


@pytest.mark.parametrize(("asked", "said"), REFUSED.items())
def test_what_cannot_be_tuned_is_one_sentence(script: str, asked: str, said: str) -> None:
    """The sentence names the kernels or the option, and what would do."""
    entry, *words = asked.split()
    given: dict[str, Any] = dict(word.split("=", 1) for word in words)
    with pytest.raises(InputError, match=said):
        tune_script(f"{script}:{entry}", gpu="h100", **given)


def test_a_block_is_refused_whose_grid_does_not_follow(tmp_path: Path) -> None:
    """With a grid of its own, a smaller block leaves a part of the work undone."""
    path = tmp_path / "bench.py"
    grid = 'lambda named: (triton.cdiv(n, named["BLOCK"]),)'
    fixed = SCRIPT.replace(f"double[{grid}](x, n)", "double.fn[(n // 512,)](x, n, BLOCK=512)")
    path.write_text(fixed.replace("1000, ", ""), encoding="utf-8")
    with pytest.raises(InputError, match=r"BLOCK 256 does not do the whole work at n 1048576"):
        tune_script(f"{path}:main", constexprs="BLOCK=256,512", gpu="h100")


def test_a_search_goes_on_in_the_program(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that only the search tried has the grid that the program gives it."""
    monkeypatch.setattr(by_size, "SEARCHED", 12)
    found = tune_script(f"{script}:main", gpu="h100", search=True).gpus["h100"][1]
    assert found.config["BLOCK"] not in {64, 1024}
    assert found.only == {"n": 1000, "grid": [-(-1000 // found.config["BLOCK"])]}
    assert found.elsewhere["BLOCK"] in {64, 1024}


def test_a_search_leaves_out_what_the_program_refuses(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block for which the program's grid function fails is not tried."""
    monkeypatch.setattr(by_size, "SEARCHED", 4)
    grid = '(triton.cdiv(n, named["BLOCK"]),)'
    picky = SCRIPT.replace(grid, f'{grid} if named["BLOCK"] in (64, 1024) else 1 / 0')
    Path(script).write_text(picky, encoding="utf-8")
    found = tune_script(f"{script}:main", gpu="h100", search=True).gpus["h100"]
    assert {one.config["BLOCK"] for one in found} <= {64, 1024}


def test_a_search_needs_no_autotuner(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warps and stages are searched from those of the launch, or from Triton's."""
    monkeypatch.setattr(by_size, "SEARCHED", 4)
    (found,) = tune_script(f"{script}:per_gpu", gpu="h100", search=True).gpus["h100"]
    assert found.config.keys() == {"num_warps", "num_stages"}


def test_the_command_writes_what_the_program_needs(script: str, tmp_path: Path) -> None:
    """The command prints the tables and writes the file, which tells what was assumed."""
    output = tmp_path / "tuned.json"
    asked = ("tune", f"{script}:asking", "--gpu", "h100", "--quiet")
    done = run(*asked, "--output", str(output))
    assert done.returncode == 0, done.stderr
    assert "double: 1 size on H100 SXM" in done.stdout
    assert "Assumed: nan for a value at" in " ".join(done.stdout.split())
    file = TunedFile.read(str(output))
    assert file == tune_script(f"{script}:asking", gpu="h100")
    assert run(*asked, "--json").stdout == output.read_text("utf-8")
    assert json.loads(output.read_text("utf-8"))["notes"] == list(file.notes)


COMMANDS = {
    "--sizes {script}": "--sizes has no use for",
    "--signature *fp16": "--signature has no use for",
    "--grid 4": "--grid has no use for",
    "--top 3": "--top would be ignored for",
    "--cols 4": "--cols applies only to matrix kernels",
    "--measure": "--measure needs a GPU of this machine",
    "--kernel copy": "launches no kernel 'copy'",
}


@pytest.mark.parametrize(("words", "why"), COMMANDS.items())
def test_options_without_use_are_refused(script: str, words: str, why: str) -> None:
    """What the program says itself cannot be given too."""
    done = run("tune", f"{script}:main", "--gpu", "h100", *words.format(script=script).split())
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """The file that is missing is named, not the options that need it."""
    done = run("tune", f"{tmp_path}/none.py:main", "--output", str(tmp_path / "tuned.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no file {tmp_path}/none.py" in done.stderr
