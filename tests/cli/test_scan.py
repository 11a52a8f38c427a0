"""`occupancy-lab scan`: its rows, forms and exit status."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import run

PutEntry = Callable[..., None]


@pytest.fixture
def cache(tmp_path: Path, put_entry: PutEntry) -> Path:
    """Return a cache with a good kernel, a spilling one, and a cut-off one."""
    put_entry(tmp_path / "FINE", "sm_90")
    put_entry(tmp_path / "SPILLING", "sm_90_spilling", shared=100_000)
    put_entry(tmp_path / "HALF", "sm_90")
    (tmp_path / "HALF" / "row_softmax.json").write_text("{", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--where", "local_accesses > 0"], ["SPILLING"]),
        (["--where", "occupancy >= 0.5"], ["FINE"]),
        (["--where", "status != 'ok'"], ["HALF"]),
        (["--where", "n_regs is None"], ["HALF"]),
        (["--sort", "shared"], ["FINE", "SPILLING", "HALF"]),
        (["--sort", "-shared"], ["SPILLING", "FINE", "HALF"]),
        (["--sort", "-shared", "--top", "1"], ["SPILLING"]),
    ],
)
def test_rows_are_chosen_and_sorted(cache: Path, words: list[str], expected: list[str]) -> None:
    """Rows meet the condition and are sorted, unknown values last."""
    done = run("scan", str(cache), *words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [Path(row["entry"]).name for row in json.loads(done.stdout)] == expected


def test_exports_are_written_beside_the_page(cache: Path, tmp_path: Path) -> None:
    """Exports have the chosen rows, and the page is still printed."""
    files = {form: tmp_path / f"out.{form}" for form in ("csv", "json", "markdown")}
    options = [word for form, file in files.items() for word in (f"--export-{form}", str(file))]
    done = run("scan", str(cache), "--where", "status == 'ok'", *options)
    assert done.returncode == 0
    assert "2 kernels in" in done.stdout
    assert len(json.loads(files["json"].read_text(encoding="utf-8"))) == 2
    assert len(files["csv"].read_text(encoding="utf-8").splitlines()) == 3
    assert files["markdown"].read_text(encoding="utf-8").count("row_softmax") == 2


def test_no_kernel_that_can_be_read_is_exit_1(cache: Path) -> None:
    """A cache with only broken entries is exit 1, with one good kernel exit 0."""
    assert run("scan", str(cache / "HALF")).returncode == 1
    assert run("scan", str(cache)).returncode == 0
    assert run("scan", str(cache), "--where", "n_regs == 1").returncode == 0


def test_an_empty_cache_is_one_sentence(tmp_path: Path) -> None:
    """An empty folder is reported to have no kernels, with exit 1."""
    done = run("scan", str(tmp_path), COLUMNS="200")
    assert done.returncode == 1
    assert f"No kernel was found in {tmp_path}." in done.stdout
