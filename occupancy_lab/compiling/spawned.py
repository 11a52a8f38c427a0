"""Pythons that a script starts: those of multiprocessing note launches, others are reported."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import util
from pathlib import Path
from typing import Any
from unittest import mock

from occupancy_lab.compiling.assumptions import Value
from occupancy_lab.compiling.dry_gpu import seed
from occupancy_lab.compiling.recorder import Recorder
from occupancy_lab.compiling.store import Store
from occupancy_lab.errors import shortened
from occupancy_lab.gpus import Gpu
from occupancy_lab.workers.child import from_line, loading, to_line

BEGIN = """
from occupancy_lab.compiling.spawned import begin
begin({gpu!r}, {store!r}, {folder!r}, {given!r})
"""
"""Code that runs before what a process of multiprocessing is to run."""
STARTS = ("from multiprocessing.spawn import", "from multiprocessing.forkserver import")
"""The beginning of the code of a process of multiprocessing."""
LISTS_GPUS = {"cuda": "nvidia-smi", "hip": "rocm-smi"}
"""The program that lists GPUs: programs learn the GPU's vendor from its exit status."""
_process = contextlib.ExitStack()
"""Lives as long as a spawned process."""


@contextlib.contextmanager
def recording_all(recorder: Recorder) -> Iterator[None]:
    """Make *recorder* record in the block, also in processes that multiprocessing spawns there."""
    gpu, store = recorder.gpu, recorder.store
    begin = loading() + BEGIN.format(
        gpu=to_line(gpu),
        store=str(store.directory) if store.keeps else None,
        folder=str(recorder.folder),
        given=dict(recorder.given),
    )
    spawn, start = util.spawnv_passfds, subprocess.Popen.__init__

    def spawn_noting(path: Any, command: Sequence[Any], *others: Any) -> int:
        words = [
            f"{begin}{word}" if isinstance(word, str) and word.startswith(STARTS) else word
            for word in command
        ]
        return spawn(path, words, *others)

    def start_named(process: Any, command: Any, *args: Any, **keywords: Any) -> None:
        words = [command] if isinstance(command, str | bytes | os.PathLike) else list(command)
        if words == [LISTS_GPUS[gpu.target.backend]]:
            command = ["echo", gpu.title]
        if Path(os.fsdecode(words[0])).name.startswith("python"):
            command_text = shortened(shlex.join(map(os.fsdecode, words)))
            recorder.tell(f"{command_text} was started as a separate program, which is not run dry")
        start(process, command, *args, **keywords)

    with (
        mock.patch.object(util, "spawnv_passfds", spawn_noting),
        mock.patch.object(subprocess.Popen, "__init__", start_named),
        recorder.recording(),
    ):
        yield


def begin(gpu: str, store: str | None, folder: str, given: Mapping[str, Value]) -> None:
    """Note the launches of this process, for as long as it lives."""
    recorder = Recorder(from_line(Gpu, gpu), Store(store), Path(folder), given)
    recorder.begin_process()
    seed()
    _process.enter_context(recording_all(recorder))
