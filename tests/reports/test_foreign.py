"""Groups of calls, each in a process of its own."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from typing import TYPE_CHECKING

import foreign_kernels

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_group_that_dies_or_lasts_ends_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each group has a folder and a log; one that dies or runs too long takes no other with it."""
    groups = {"a: well": 0, "a: dead": 0, "a: long": 0, "b": 0}
    monkeypatch.setattr(foreign_kernels, "GROUPS", groups)
    ended: list[str] = []

    def run(group: str, folder: Path) -> None:
        os.write(1, group.encode())
        (folder / "done").touch()
        if group == "a: dead":
            os._exit(3)
        time.sleep(60 if group == "a: long" else 0)

    asked = Namespace(groups="a:", workers=2)
    foreign_kernels.run_groups(
        run, asked, tmp_path, time.monotonic() + 3, lambda: ended.append("one")
    )
    assert sorted(one.parent.name for one in tmp_path.glob("*/done")) == [
        "a-dead",
        "a-long",
        "a-well",
    ]
    assert len(ended) == 2
    printed = capfd.readouterr().out
    assert "a: dead: 0 s, ended with status 768" in printed
    assert "a: long: stopped, its time is over" in printed
    foreign_kernels.keep_logs(tmp_path, tmp_path)
    assert "=== a-well\na: well" in (tmp_path / "logs.txt").read_text(encoding="utf-8")


def test_calls_of_a_group_go_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that fails is named with its reason, until the GPU itself has failed."""

    def fails(why: str) -> None:
        raise ValueError(why)

    def trials() -> list[tuple[str, object]]:
        return [("good", lambda: None), ("bad", lambda: fails("odd"))]

    monkeypatch.setattr(foreign_kernels, "GROUPS", {"one": trials})
    monkeypatch.setattr(foreign_kernels.torch.cuda, "synchronize", lambda: None)
    found = dict(foreign_kernels.call_all("one"))
    assert found == {"good": "", "bad": "ValueError: ['odd']"}
    monkeypatch.setattr(
        foreign_kernels,
        "GROUPS",
        {"one": lambda: [(str(n), lambda: fails("CUDA error")) for n in range(3)]},
    )
    assert len(list(foreign_kernels.call_all("one"))) == 1
