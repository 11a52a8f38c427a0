"""A scan has a row for every kernel of a cache, broken ones too."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hostile_files import HOSTILE, put, within

from occupancy_lab import InputError, find_gpu, scan
from occupancy_lab.compiling.resources import read_resources
from occupancy_lab.files import export
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.scanning.cache import find_entries, read_entry
from occupancy_lab.scanning.gains import FEWER_STAGES
from occupancy_lab.scanning.page import COLUMNS
from occupancy_lab.scanning.scan import on_gpu
from occupancy_lab.table.rows import to_csv

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Cache


def rows_by_entry(*folders: Path, gpu: Any = None) -> dict[str, dict[str, Any]]:
    """Return the rows of a scan by entry name."""
    return {Path(row["entry"]).name: row for row in scan(*folders, gpu=gpu).rows()}


def test_rows_have_what_triton_compiled(cache: Cache) -> None:
    """Name, target, num_warps, num_stages and shared are those of Triton's CompiledKernel."""
    rows = rows_by_entry(cache.folder)
    assert rows.keys() == cache.compiled.keys()
    for name, one in cache.compiled.items():
        row, metadata = rows[name], one.metadata
        assert row["kernel"] == metadata.name
        assert row["target"].removeprefix("sm_") == str(metadata.target.arch)
        for key in ("num_warps", "num_stages", "num_ctas", "shared", "triton_version"):
            assert row[key] == getattr(metadata, key)
        assert Path(row["entry"]) == cache.folder / name


def test_rows_have_the_calculated_occupancy(cache: Cache) -> None:
    """Each row has the resources, the occupancy and the next step of the full calculation."""
    rows = rows_by_entry(cache.folder)
    for name, one in cache.compiled.items():
        row = rows[name]
        gpu = find_gpu(row["gpu"])
        resources = read_resources(one.asm, one.metadata, gpu.target.backend)
        found = calculate(resources, gpu)
        assert row["n_regs"] == resources.n_regs
        assert row["local_bytes"] == resources.local_bytes
        assert row["programs_per_multiprocessor"] == found.occupancy.programs_per_multiprocessor
        assert row["occupancy"] == found.occupancy.occupancy
        assert row["limiter"] == "+".join(found.occupancy.limiters)
        assert row["next_programs"] == (None if row["local_accesses"] else found.next_programs)
        steps = {step.resource: step for step in found.next_steps}
        if row["fewer_registers"] is not None:
            fewer = steps["registers"].now - steps["registers"].most_for_one_more
            assert row["fewer_registers"] == fewer
            assert f"({steps['registers'].option})" in row["next_step"]


def test_warps_are_counted_as_launched(cache: Cache) -> None:
    """A kernel with warp specialization has the number of launched warps."""
    entry = cache.entry("specialized")
    row = rows_by_entry(cache.folder)[entry.name]
    ptx = (entry / "specialized.ptx").read_text(encoding="utf-8")
    threads = re.search(r"\.(?:req|max)ntid (\d+)", ptx)
    assert row["num_warps"] == int(threads[1]) // 32 > 4


def test_a_spill_is_counted_and_advised_against(cache: Cache) -> None:
    """A kernel that spills because of maxnreg is advised to drop it."""
    row = rows_by_entry(cache.folder)[cache.entry("row_softmax").name]
    assert row["local_bytes"] > 0
    assert row["local_accesses"] > 0
    assert row["gain_by"].startswith("without maxnreg=40: ")
    assert (row["gain"], row["bound"]) == (None, "")


def test_a_kernel_of_an_unknown_launch_has_no_gain(cache: Cache) -> None:
    """Without a time no gain is claimed; the step is named, or why there is none."""
    rows = rows_by_entry(cache.folder)
    full, tensor = (rows[cache.entry(name).name] for name in ("scale", "product"))
    assert (full["gain"], full["occupancy"], full["next_programs"]) == (None, 1.0, None)
    assert full["next_step"] == "none, warps are full"
    assert tensor["tensor_instructions"] > 0
    assert (tensor["gain"], tensor["bound"]) == (None, "")


def test_constexprs_are_those_of_the_source(cache: Cache) -> None:
    """BLOCK_SIZE is the length of the range with its name; FACTOR is left out."""
    rows = rows_by_entry(cache.folder)
    assert rows[cache.entry("scale").name]["constexprs"] == {"BLOCK_SIZE": 1024}
    assert rows[cache.entry("scale", 1).name]["constexprs"] == {"BLOCK_SIZE": 4096}
    assert rows[cache.entry("product").name]["constexprs"] == {"BLOCK_SIZE": 64}


def test_equal_code_has_one_program(cache: Cache) -> None:
    """`program` differs for another block, but not for another target."""
    rows = rows_by_entry(cache.folder)
    first, block, target = (rows[cache.entry("scale", place).name] for place in range(3))
    assert first["program"] == target["program"] != block["program"]


def kernel_of(entry: Path) -> Any:
    """Return the kernel of an entry."""
    (found,) = find_entries([entry]).entries
    return read_entry(found)


def beside(
    entry: Path, capped: dict[tuple[int | None, int | None], int] | None = None, **others: Any
) -> dict[str, Any]:
    """Return an entry's columns on an H100, given the local memory of other caps."""
    (row,) = scan(entry, gpu="h100").kernels
    return on_gpu(kernel_of(entry), row, find_gpu("h100"), capped or {}, **others)


def with_metadata(folder: Path, **changes: Any) -> Path:
    """Return the folder of an entry after changing its metadata."""
    (file,) = (one for one in folder.glob("*.json") if not one.name.startswith("__grp__"))
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changes), encoding="utf-8")
    return folder


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_another_entry_may_refute_a_gain(cache: Cache, more: int) -> None:
    """Dropping maxnreg gains nothing if another entry without it spills as much."""
    entry = cache.entry("row_softmax")
    (row,) = scan(entry, gpu="h100").rows()
    found = beside(entry, {(None, None): row["local_bytes"] + more})
    assert found["gain_by"].startswith("without maxnreg=40" + (" it has" if more >= 0 else ":"))


def test_an_entry_with_the_cap_tells_what_it_spills(cache: Cache) -> None:
    """A cap on registers is proposed without a condition if another entry has it, and no spill."""
    entry = cache.entry("row_softmax", 3)
    alone, spills, fits = (beside(entry, one) for one in ({}, {(32, None): 8}, {(32, None): 0}))
    assert (alone["gain"], alone["next_programs"]) == (None, 2)
    assert alone["gain_by"].startswith("registers ")
    assert alone["gain_by"].endswith(", if it does not spill, which only a compile tells")
    assert (fits["gain_by"], fits["next_programs"]) == (fits["next_step"], 2)
    assert spills["next_step"] == "none, as with maxnreg=32 it has 8 B of local memory"
    assert (spills["next_programs"], spills["fewer_registers"]) == (None, None)


def test_less_shared_memory_is_no_gain_before_a_compile(cache: Cache, copied: Path) -> None:
    """Fewer stages and smaller blocks have costs of their own, so their gain is not known."""
    entry = with_metadata(copied / cache.entry("product").name, shared=150_000)
    columns = beside(entry)
    assert (columns["gain"], columns["next_programs"]) == (None, 2)
    assert columns["gain_by"].endswith(
        ", if each program takes no longer, which only a compile tells"
    )
    refuted = beside(entry, slower={FEWER_STAGES})
    assert refuted["next_step"] == "none, as another entry with fewer num_stages is not faster"
    assert refuted["next_programs"] is None


@pytest.mark.parametrize("launch", [{}, {"grid": "2048", "assume": "N=50272"}])
def test_no_advice_leads_to_a_slower_entry_of_the_cache(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launch: dict[str, Any]
) -> None:
    """The faster of two entries with other warps is not advised to change its warps."""
    monkeypatch.setenv("TRITON_CACHE_DIR", os.fspath(tmp_path))
    module = sys.modules["cached_kernels"]
    assert module.__file__ == os.fspath(cache.source)
    for warps in (8, 16):
        module.compiled(module.row_softmax, "90", 65536, "fp16", num_warps=warps)
    rows = scan(tmp_path, gpu="h100", **launch).rows()
    eight, sixteen = sorted(rows, key=lambda row: row["num_warps"])
    assert (sixteen["predicted_us"] or 0) < (eight["predicted_us"] or 1)
    assert eight["gain_by"].startswith("more num_warps: ")
    assert sixteen["local_accesses"]
    assert "num_warps" not in sixteen["gain_by"]


def test_padding_by_waves_per_eu_can_be_removed(cache: Cache) -> None:
    """The step is another waves_per_eu or none, and frees no register that is in use."""
    entry = cache.entry("scale", 2)
    (row,) = scan(entry, gpu="mi300x").kernels
    kernel = kernel_of(entry)
    padded = kernel.resources.replace(allocated_vgprs=264)
    columns = on_gpu(dataclasses.replace(kernel, resources=padded), row, find_gpu("mi300x"), {})
    used = padded.n_regs
    assert columns["next_step"] == f"VGPRs 264 to 256 ({used} are in use: waves_per_eu=2 or none)"
    assert (columns["next_programs"], columns["fewer_registers"]) == (2, None)
    assert "spill" not in columns["gain_by"]


def test_a_smaller_block_is_only_proposed_with_a_loop(cache: Cache, copied: Path) -> None:
    """Without a loop a smaller block would leave a part of the row undone."""
    rows = {}
    for kernel in ("scale", "product", "row_softmax"):
        changes = {"shared": 150_000, "num_stages": 1, "maxnreg": None}
        entry = with_metadata(copied / cache.entry(kernel).name, **changes)
        (rows[kernel],) = scan(entry, gpu="h100").rows()
    assert rows["scale"]["next_step"] == "shared memory 150000 to 115712"
    assert rows["product"]["next_step"] == "shared memory 150000 to 115712 (a smaller block)"
    assert rows["row_softmax"]["gain_by"].startswith("more num_warps: ")


def test_a_changed_source_gives_no_constexprs(cache: Cache) -> None:
    """A file that was written after the compile is not used, even with the same text."""
    before = cache.source.stat()
    try:
        cache.source.touch()
        assert not any(row["constexprs"] for row in scan(cache.folder).rows())
    finally:
        os.utime(cache.source, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_arguments_and_source_are_recorded(cache: Cache) -> None:
    """A row has the argument types in the notation of signatures, and the kernel's line."""
    row = rows_by_entry(cache.folder)[cache.entry("scale").name]
    assert row["arguments"] == "*fp32:16, *fp32:16, i32:16"
    lines = cache.source.read_text(encoding="utf-8").splitlines()
    file, _, line = row["source"].rpartition(":")
    assert Path(file) == cache.source
    assert lines[int(line) - 1].startswith("def scale(")


def test_torchinductors_blocks_are_found_by_the_entry(cache: Cache, copied: Path) -> None:
    """The blocks of a *.best_config belong to the entry that it names."""
    name = cache.entry("scale").name
    best = {"XBLOCK": 64, "num_warps": 4, "configs_hash": "x", "triton_cache_hash": name}
    (copied / "cabc.best_config").write_text(json.dumps(best), encoding="utf-8")
    rows = rows_by_entry(copied)
    assert rows[name]["constexprs"]["XBLOCK"] == 64
    assert "num_warps" not in rows[name]["constexprs"]
    assert "XBLOCK" not in rows[cache.entry("scale", 1).name]["constexprs"]


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("name", ["cabc.best_config", "scale.ttir", "scale.source"])
def test_files_that_are_not_regular_are_ignored(
    cache: Cache, tmp_path: Path, name: str, what: str
) -> None:
    """A scan ignores a pipe, a device or a file of 2 GB in place of Triton's."""
    shutil.copytree(cache.entry("scale"), tmp_path / "A")
    put(what, tmp_path / "A" / name)
    with within(10):
        (row,) = scan(tmp_path).rows()
    assert row["status"] == "ok"


@pytest.mark.parametrize("what", HOSTILE)
def test_a_source_that_is_not_regular_is_ignored(cache: Cache, tmp_path: Path, what: str) -> None:
    """An entry whose source is now a pipe, a device or a huge file has no constexprs."""
    entry = Path(shutil.copytree(cache.entry("scale"), tmp_path / "A"))
    source = put(what, tmp_path / "kernel.py")
    for text in (entry / "scale.source", entry / "scale.ttir"):
        text.write_text(text.read_text("utf-8").replace(str(cache.source), str(source)), "utf-8")
    with within(10):
        (row,) = scan(entry).rows()
    assert row["constexprs"] == {}


def test_each_target_has_its_usual_gpu(cache: Cache) -> None:
    """Without --gpu each target gets its usual GPU, which the page names."""
    found = scan(cache.folder)
    assert {row["target"]: row["gpu"] for row in found.rows()} == {
        "sm_80": "a100",
        "sm_100": "b200",
        "sm_90": "h100",
        "gfx942": "mi300x",
    }
    assert "H100 SXM (5 for sm_90)" in str(found)


def test_kernels_for_another_target_say_so(cache: Cache) -> None:
    """With --gpu, kernels for other targets have a status and a reason instead of results."""
    rows = scan(cache.folder, gpu="h200").rows()
    assert {row["gpu"] for row in rows if row["target"] == "sm_90"} == {"h200"}
    others = [row for row in rows if row["target"] != "sm_90"]
    assert {row["status"] for row in others} == {"other target"}
    assert all("h200 runs sm_90" in row["reason"] for row in others)
    assert all(row["n_regs"] for row in others)


def test_two_gpus_of_one_target_are_refused(cache: Cache) -> None:
    """Two GPUs of the same target are refused."""
    with pytest.raises(InputError, match="h100 and h200 are both sm_90"):
        scan(cache.folder, gpu="h100,h200")


def test_a_kernel_that_is_too_large_does_not_fit(cache: Cache, copied: Path) -> None:
    """A kernel that does not fit has no programs, a reason, and the step with which it fits."""
    entry = with_metadata(copied / cache.entry("product").name, shared=240_000)
    (row,) = scan(entry, gpu="h100").rows()
    assert (row["status"], row["programs_per_multiprocessor"]) == ("does not fit", 0)
    assert "more shared memory than H100 SXM gives a program" in row["reason"]
    assert row["next_step"] == "shared memory 240000 to 232448 (fewer num_stages)"
    assert (row["gain"], row["next_programs"]) == (None, 1)


def damaged(folder: Path, name: str, change: Any) -> dict[str, Any]:
    """Return the row of an entry after *change* was made of its folder."""
    change(folder / name)
    (row,) = (row for row in scan(folder).rows() if Path(row["entry"]).name == name)
    return row


BREAKS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no metadata": ("json", Path.unlink, "no .json file"),
    "half a json": ("json", lambda at: at.write_text('{"hash": "1'), "cut off or not JSON"),
    "another json": ("json", lambda at: at.write_text("[1]"), "not the metadata of a kernel"),
    "no cubin": ("cubin", Path.unlink, "the .cubin file is missing"),
    "half a cubin": ("cubin", lambda at: os.truncate(at, 1000), "cut off or damaged"),
    "another cubin": ("cubin", lambda at: at.write_bytes(b"hello"), "not a cubin"),
    "a link to itself": ("cubin", lambda at: (at.unlink(), at.symlink_to(at)), "cannot be read"),
    "a pipe": ("cubin", partial(put, "a pipe"), "cannot be read: it is no regular file"),
    "a device": ("cubin", partial(put, "a device"), "cannot be read: it is no regular file"),
    "a large file": ("cubin", partial(put, "a large file"), "it is larger than 64 MiB"),
    "a folder": ("cubin", lambda at: (at.unlink(), at.mkdir()), "missing"),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_entry_is_a_row_that_says_so(cache: Cache, copied: Path, broken: str) -> None:
    """A missing or damaged file is the reason of its row; the other entries are read."""
    suffix, change, reason = BREAKS[broken]
    entry = cache.entry("scale").name
    row = damaged(copied, entry, lambda folder: change(folder / f"scale.{suffix}"))
    assert row["status"] == "unreadable"
    assert reason in row["reason"]
    assert row["n_regs"] is None
    others = [one for one in scan(copied).rows() if one["entry"] != row["entry"]]
    assert {one["status"] for one in others} == {"ok"}
    assert len(others) == len(cache.compiled) - 1


def test_an_unfinished_compile_has_a_status_of_its_own(cache: Cache, copied: Path) -> None:
    """An entry with only the compiler's texts is "not compiled" rather than unreadable."""
    row = damaged(copied, cache.entry("scale").name, unfinished)
    assert (row["status"], row["reason"]) == ("not compiled", "its compile did not finish")
    assert (row["kernel"], row["n_regs"]) == ("scale", None)


def unfinished(entry: Path) -> None:
    """Remove what an entry lacks if its compile fails in the last step."""
    for suffix in ("json", "cubin"):
        (entry / f"scale.{suffix}").unlink()


def test_an_unknown_backend_is_named(cache: Cache, copied: Path) -> None:
    """The row of a kernel for another backend names the backend."""
    target = {"backend": "xpu", "arch": "pvc", "warp_size": 32}
    entry = with_metadata(copied / cache.entry("scale").name, target=target)
    (row,) = scan(entry).rows()
    assert row["status"] == "unknown target"
    assert "'xpu'" in row["reason"]


def test_an_hsaco_alone_says_what_is_missing(cache: Cache, copied: Path) -> None:
    """Without the assembly, from which registers are read, the row says what is missing."""
    entry = copied / cache.entry("scale", 2).name
    (entry / "scale.amdgcn").unlink()
    (row,) = scan(entry).rows()
    assert row["status"] == "unreadable"
    assert row["reason"] == "there is no amdgcn, from which the registers are read"


def test_other_files_have_no_row(cache: Cache, tmp_path: Path) -> None:
    """Launchers, tuning results and unrelated files of a cache have no row."""
    shutil.copytree(cache.entry("scale"), tmp_path / "A")
    for name, file in (("B", "cuda_utils.so"), ("C", "scale.autotune.json"), ("D", "notes.txt")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}", encoding="utf-8")
    (tmp_path / "A" / "tmp.pid_7_x").mkdir()
    (tmp_path / "A" / "tmp.pid_7_x" / "scale.cubin").write_bytes(b"half")
    assert [row["kernel"] for row in scan(tmp_path).rows()] == ["scale"]


def test_links_that_lead_back_are_followed_once(cache: Cache, tmp_path: Path) -> None:
    """A folder that is reached twice, or contains itself, is read once."""
    shutil.copytree(cache.entry("scale"), tmp_path / "A")
    (tmp_path / "back").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "itself").symlink_to("itself")
    assert len(scan(tmp_path, tmp_path / "A").rows()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_a_row(cache: Cache, copied: Path) -> None:
    """A folder without permission is a row with the reason."""
    folder = copied / cache.entry("scale").name
    folder.chmod(0)
    try:
        rows = rows_by_entry(copied)
    finally:
        folder.chmod(0o755)
    assert "Permission denied" in rows[folder.name]["reason"]


def test_default_caches_are_tritons_and_inductors(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a folder, Triton's own cache and torchinductor's for each device are read."""
    home, inductor = tmp_path / "home", tmp_path / "inductor"
    shutil.copytree(cache.entry("scale"), home / ".triton" / "cache" / "A")
    shutil.copytree(cache.entry("product"), inductor / "triton" / "0" / "B")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.setenv("TRITON_HOME", str(home))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(inductor))
    assert sorted(row["kernel"] for row in scan().rows()) == ["product", "scale"]
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "gone"))
    assert [row["kernel"] for row in scan().rows()] == ["product"]


def test_the_default_folders_are_tritons_and_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default folders are those that Triton and torch report."""
    cache_dir_utils = pytest.importorskip("torch._inductor.runtime.cache_dir_utils")
    from triton import knobs

    from occupancy_lab.scanning.cache import default_directories

    for name in ("TRITON_CACHE_DIR", "TRITON_HOME", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    triton_folder, inductor = default_directories()
    assert Path(triton_folder) == Path(knobs.cache.dir)
    assert Path(inductor) == Path(cache_dir_utils.default_cache_dir())


def test_a_name_that_is_no_unicode_is_a_row(cache: Cache, tmp_path: Path) -> None:
    """Folders and kernels may have any name; exports replace invalid characters."""
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
    shutil.copytree(cache.entry("scale"), folder)
    with_metadata(folder, name="\ud800")
    (row,) = scan(tmp_path).rows()
    assert row["status"] == "unreadable"
    output = tmp_path / "rows.csv"
    export(output, to_csv(COLUMNS, scan(tmp_path).rows()))
    assert b"?" in output.read_bytes()
