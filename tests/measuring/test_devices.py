"""Which GPUs of the machine launches are timed on, and why none."""

from __future__ import annotations

import re

import pytest
import torch
from stand_ins import put_here

from occupancy_lab.errors import InputError
from occupancy_lab.measuring.devices import chosen_devices


def test_first_gpu_is_taken_as_the_process_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a wish the first GPU measures, and what is visible is left as it is."""
    put_here(monkeypatch, "h200", "h100")
    gpu, names = chosen_devices("measure")
    assert (gpu.key, names) == ("h200", (None,))


def test_all_are_those_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """`all` takes every GPU of the first one's kind."""
    put_here(monkeypatch, "h200", "h100", "h200")
    gpu, names = chosen_devices("measure", "all")
    assert (gpu.key, names) == ("h200", ("0", "2"))


def test_visible_devices_are_named_as_they_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CUDA_VISIBLE_DEVICES lists GPUs, their numbers are places in that list."""
    put_here(monkeypatch, "h200", "h200")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-0123")
    assert chosen_devices("measure", "1,0")[1] == ("GPU-0123", "5")


def test_amd_gpus_keep_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An AMD GPU has the number that its driver gives it, whatever CUDA is told."""
    put_here(monkeypatch, "mi300x", "mi300x")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert chosen_devices("measure", [1])[1] == ("1",)


@pytest.mark.parametrize(
    ("here", "asked", "word"),
    [
        ((), None, "measure needs a GPU of this machine; none was found"),
        (("h200", "h100"), "0,1", "not alike"),
        (("h200", "h200"), "2", "no GPU 2 here; there is 0, 1"),
        (("h200",), "first", "names no GPUs"),
        (("h200",), "", "names no GPUs"),
        (("h200",), "0,,1", "names no GPUs"),
    ],
)
def test_what_cannot_be_had_is_said(
    monkeypatch: pytest.MonkeyPatch, here: tuple[str, ...], asked: str | None, word: str
) -> None:
    """No GPU, one that is not there, unlike ones and nonsense are errors that say so."""
    put_here(monkeypatch, *here)
    with pytest.raises(InputError, match=word):
        chosen_devices("measure", asked)


def test_torch_without_the_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that the installed torch cannot use is an error that names torch's version."""
    put_here(monkeypatch, "h200")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=re.escape(torch.__version__)):
        chosen_devices("measure")
