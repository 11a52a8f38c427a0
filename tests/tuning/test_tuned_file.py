"""The file of `tune --output`, and which choice is the nearest."""

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.errors import InputError
from occupancy_lab.tuning.tuned_file import LeftOut, TunedFile, TunedLaunch

SIZES = st.tuples(st.integers(1, 2**31), st.integers(1, 2**31), st.sampled_from(["a", "b", True]))


def launch(m: int, n: int, kind: Any, **config: Any) -> TunedLaunch:
    """Return a launch for a file."""
    return TunedLaunch({"M": m, "N": n, "KIND": kind}, config, 2.5, 2.0, None, "latency")


def file_of(*launches: TunedLaunch) -> TunedFile:
    """Return a file with *launches* on an H100."""
    left = (LeftOut("b200", "no time"), LeftOut("h100", "no loop", {"M": 1, "N": 2, "KIND": "a"}))
    return TunedFile(
        *("kernel", "digest", "3.7.1", ("M", "N", "KIND"), {"x": "fp16"}, {"ACT": None}),
        gpus={"h100": launches},
        basis={"h100": "launches of kernels"},
        left_out=left,
    )


def test_json_keeps_everything() -> None:
    """Reading what was written gives an equal file, also with unknown times."""
    file = file_of(launch(1, 2, "a", BLOCK=64, num_warps=4), launch(4, 2, "a", BLOCK=32, FLAG=True))
    assert TunedFile.of(json.loads(file.to_json()), "tuned.json") == file


@given(st.lists(SIZES, min_size=1, max_size=8, unique=True), SIZES)
def test_the_nearest_is_of_the_nearest_logarithms(
    known: list[tuple[int, int, Any]], asked: tuple[int, int, Any]
) -> None:
    """The choice is at the size with the nearest logarithms."""
    file = file_of(*(launch(*size) for size in known))
    found = file.choice("h100", dict(zip(("M", "N", "KIND"), asked, strict=True)))

    def distance(size: Any) -> float:
        return math.dist(list(map(math.log2, size[:2])), list(map(math.log2, asked[:2])))

    alike = [size for size in known if size[2] == asked[2]]
    if found is None:
        assert alike == []
        return
    size = tuple(found.sizes.values())
    assert size[2] == asked[2]
    assert distance(size) <= min(map(distance, alike)) + 1e-9
    assert asked not in known or size == asked


def test_zero_and_less_are_sizes_too() -> None:
    """A size without a logarithm counts as 1."""
    file = file_of(launch(0, 2, "a", BLOCK=1), launch(64, 2, "a", BLOCK=2))
    found = file.choice("h100", {"M": -5, "N": 2, "KIND": "a"})
    assert found.config == {"BLOCK": 1}


def test_the_page_has_each_choice_and_what_is_left_out() -> None:
    """Settings that differ are columns, equal ones a sentence."""
    file = file_of(
        launch(1, 2, "a", BLOCK=64, num_warps=4), launch(4, 2, "a", BLOCK=32, num_warps=4)
    )
    page = file.to_markdown()
    assert page.startswith("# kernel: 2 sizes on H100 SXM\n")
    assert "B200 is left out: no time." in page
    assert "H100 SXM has none for M 1, N 2, KIND a: no loop." in page
    assert "| M   |   N |   KIND |   BLOCK |   us |   bound |" in page
    assert "Each has num_warps 4." in page
    assert "The times rest on launches of kernels." in page


def test_what_only_a_search_tried_is_said() -> None:
    """The page counts sizes whose choice applies to no other launch."""
    found = launch(1, 2, "a", BLOCK=64)
    found = dataclasses.replace(found, only={"N": 2, "grid": [8]}, elsewhere={"BLOCK": 128})
    file = file_of(found, launch(4, 2, "a", BLOCK=32))
    assert TunedFile.of(json.loads(file.to_json()), "tuned.json") == file
    assert "At 1 size a block was chosen that only the search tried" in file.to_markdown()
    assert "only the search" not in file_of(launch(4, 2, "a", BLOCK=32)).to_markdown()


def test_ranges_that_are_alike_are_one_sentence() -> None:
    """Equally wide ranges are one sentence, others are in the table."""
    one, other = (
        dataclasses.replace(launch(m, 2, "a", BLOCK=64), predicted_us=us, predicted_high_us=high)
        for m, us, high in ((1, 2.5, 4.0), (2, 5.0, 8.0))
    )
    other = dataclasses.replace(other, predicted_low_us=4.0)
    page = file_of(one, other).to_markdown()
    assert "launches that are chosen for it should take 0.80 to 1.60 times that." in page
    assert "(" not in page.split("KIND |")[1].split("Each has")[0]
    wider = dataclasses.replace(other, predicted_high_us=9.0)
    assert "5.00 (4.00 to 9.00)" in file_of(one, wider).to_markdown()


@pytest.mark.parametrize("text", ["[]", "{", "3", '{"format": "occupancy-lab tuned"}'])
def test_another_file_is_one_sentence(tmp_path: Any, text: str) -> None:
    """A file of another format is refused by name."""
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"other\.json"):
        TunedFile.read(str(path))
