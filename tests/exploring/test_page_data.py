"""The data of the page: GPUs, words, and the rows of a file."""

import json
from pathlib import Path
from typing import Any

import pytest
from in_process import refused, run

from occupancy_lab.errors import InputError
from occupancy_lab.exploring.page import bundle, explore, make_page, page_data, read_rows
from occupancy_lab.gpus.gpu import architectures, devices
from occupancy_lab.occupancy.exact import exact_rules
from occupancy_lab.occupancy.tutorial import terms_of

ROW = {"gpu": "h100", "n_regs": 38, "shared": 12320, "num_warps": 8}


def write(path: Path, rows: Any) -> Path:
    """Write *rows* as JSON, or unchanged if they are text."""
    path.write_text(rows if isinstance(rows, str) else json.dumps(rows), encoding="utf-8")
    return path


def test_every_gpu_is_there_with_all_its_words() -> None:
    """Each device and architecture of the table has its formulas, and each limit a name."""
    data = page_data()
    assert {gpu["key"] for gpu in data["gpus"]} == {*devices(), *architectures()}
    for name, told in data["architectures"].items():
        architecture = architectures()[name]
        family = data["families"][told["family"]]
        rules = [rule["resource"] for rule in family["rules"]]
        assert rules == [rule.resource for rule in exact_rules(architecture)]
        assert all(told["resources"][resource] for resource in rules)
        assert set(told["terms"]) == {term.name for term in terms_of(architecture)}
    assert len(data["families"]) < len(architectures())


def test_a_number_is_in_the_page_once() -> None:
    """An architecture's numbers are only in the page's data, not in the script."""
    script = bundle("main")
    for number in ("65536", "233472", "232448", "1024 B", "512 VGPRs"):
        assert script.replace("16384, 32768, 65536]", "").count(number) == 0


def test_rows_of_a_sweep_are_read(tmp_path: Path) -> None:
    """A row keeps its amounts, its name and its times; a row without resources is left out."""
    text = "gpu,kernel,cols,n_regs,shared,num_warps,barriers,predicted_us\n"
    text += "mi300x,mine,781,22,32,8,,15.5\nmi300x,mine,99999,,,8,,\n"
    assert read_rows(write(tmp_path / "rows.csv", text)) == [
        {
            "gpu": "mi300x",
            "kernel": "mine",
            "cols": "781",
            "n_regs": 22,
            "shared": 32,
            "num_warps": 8,
            "predicted_us": 15.5,
        }
    ]


def test_rows_that_were_not_read_are_left_out(tmp_path: Path) -> None:
    """A scanned kernel with an unknown target does not keep the other rows from the page."""
    other = {**ROW, "gpu": "", "target": "sm_61", "status": "unknown target"}
    rows = [other, {**ROW, "status": "ok", "constexprs": {"BLOCK": 64}}]
    (found,) = read_rows(write(tmp_path / "rows.json", rows))
    assert found == {**ROW, "kernel": "kernel", "constexprs": "BLOCK=64"}


def test_constexprs_tell_the_configurations_of_a_trace_apart(tmp_path: Path) -> None:
    """In a trace's export the constexprs are separate columns; each row shows its own kernel's."""
    rows = [
        {**ROW, "kernel": "matmul", "BM": 128, "BN": 256, "launches": 3, "expected": True},
        {**ROW, "kernel": "matmul", "BM": 64, "BN": 64, "launches": 3, "expected": False},
        {**ROW, "kernel": "add", "BLOCK_SIZE": 64, "EVEN": "True", "SCALE": None},
    ]
    found = read_rows(write(tmp_path / "trace.json", {"rows": rows}))
    assert [one["constexprs"] for one in found] == ["BM=128, BN=256", "BM=64, BN=64", "EVEN=True"]
    assert found[2]["BLOCK_SIZE"] == "64"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "gpu,cols\nh100,3\n", "has no row with gpu or target, n_regs"),
        ("a.json", "{", "is no JSON"),
        ("a.json", [{**ROW, "gpu": "h10"}], "row 1: gpu is 'h10'; No GPU is called 'h10'"),
        (
            "a.json",
            [ROW, {**ROW, "n_regs": -1}],
            "row 2: n_regs is '-1'; a whole number, 0",
        ),
        ("a.json", [{**ROW, "n_regs": 3.5}], "row 1: n_regs is '3.5'; a whole number, 0 or more"),
        ("a.json", [{**ROW, "num_warps": 0}], "row 1: num_warps is '0'; a whole number from 1"),
        ("a.json", [{**ROW, "n_regs": "x"}], "row 1: "),
        ("a.json", [{**ROW, "us": "nan"}], "row 1: us is 'nan'"),
        ("a.json", [{**ROW, "n_regs": [1]}], "row 1: "),
        ("a.json", [{**ROW, "flops": [1]}], "row 1: flops is '[1]'; a whole number, 0 or more"),
        ("a.json", [{**ROW, "n_regs": 2**31}], "row 1: n_regs is '2147483648'; a whole number fr"),
        ("a.json", 3, "has no row"),
        ("a.json", [{**ROW, "n_regs": 10**400}], "row 1: n_regs is '1000"),
        ("a.json", [{**ROW, "us": 10**400}], "row 1: us is '1000"),
        ("a.json", "[" * 100_000, "is no JSON: it is nested too deeply"),
        ("a.csv", 'gpu\n"h100\n', "cannot be read as a table"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(
    tmp_path: Path, name: str, content: Any, words: str
) -> None:
    """One sentence names the row and the error, and no page is written."""
    rows = write(tmp_path / name, content)
    with pytest.raises(InputError) as caught:
        explore(tmp_path / "page.html", rows=rows)
    assert words in str(caught.value)
    assert not (tmp_path / "page.html").exists()


def test_a_name_cannot_end_the_script(tmp_path: Path) -> None:
    """A name from a file cannot leave the page's data."""
    rows = write(tmp_path / "rows.json", [{**ROW, "kernel": "</script><!--<script>"}])
    page = make_page(rows)
    assert page.count("</script>") == make_page().count("</script>") == 2
    assert "<!--" not in page


def test_the_command_writes_the_page_and_says_where(tmp_path: Path) -> None:
    """The command prints the path that it wrote; a path that cannot be written is one sentence."""
    done = run("explore", "--output", str(tmp_path / "page.html"))
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'page.html'}\n")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == make_page()
    said = refused("explore", "--output", str(tmp_path / "no" / "page.html"))
    assert "there is no directory" in said
