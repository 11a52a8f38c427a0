"""Forks a process that has imported torch for each script."""

import json
import os
import socket
import sys
from pathlib import Path

from occupancy_lab.compiling import script_process
from occupancy_lab.compiling.compile import hash_triton
from occupancy_lab.workers.forked import _serve

MOST = 1 << 17
"""The most bytes of a question, which is mainly the environment."""


def run() -> None:
    """Serve a script in this fork, with standard streams like a new Python's."""
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    script_process.main()


def main() -> None:
    """Fork for each script, and report how forks end, until standard input ends."""
    import torch  # noqa: F401
    import triton  # noqa: F401

    hash_triton()
    asked = socket.socket(fileno=os.dup(0))
    while True:
        line, streams, *_ = socket.recv_fds(asked, MOST, 3)
        if not line:
            return
        question = json.loads(line)
        if "ended" in question:
            pid, status = os.waitpid(question["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if not answer:
                os.chdir(question["in"])
                os.environ.clear()
                os.environ.update(question["variables"])
                _serve(run, Path(question["folder"]), tuple(streams))
            for one in streams:
                os.close(one)
        asked.send(json.dumps(answer).encode())
