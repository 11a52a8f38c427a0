"""Scripts run in forks of a process that has imported torch, which saves each a second."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import script_server
from shared_compilers import heard

from occupancy_lab.workers.child import Child, loading

SCRIPTS = "occupancy_lab.compiling.script_process"
LATER = {"CUDA_VISIBLE_DEVICES", "PATH", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
"""Variables that are not read before a script runs."""


class WarmScripts:
    """Opens the process of a script for a Child."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.warm = True
        self._server: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._variables = heard(LATER)
        self._asking = threading.Lock()
        start = Child._open
        patch.setattr(
            Child,
            "_open",
            lambda child, folder: (
                Fork(self, folder) if self._can_fork(child) else start(child, folder)
            ),
        )

    def _can_fork(self, child: Child) -> bool:
        """Return whether a new process would be like a fork."""
        alike = child._python == sys.executable and not child._environment
        return self.warm and alike and child._server == SCRIPTS and heard(LATER) == self._variables

    def ask(self, question: dict[str, Any], *streams: int) -> Any:
        """Return the server's answer."""
        with self._asking:
            if self._server is None:
                ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
                code = f"import runpy\nrunpy.run_path({script_server.__file__!r})['main']()"
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", f"{loading()}\n{code}"],
                    stdin=theirs,
                    start_new_session=True,
                )
                theirs.close()
                self._server = process, ours
            asking = self._server[1]
            socket.send_fds(asking, [json.dumps(question).encode()], streams)
            return json.loads(asking.recv(script_server.MOST))

    def end(self) -> None:
        """End the server."""
        if self._server is not None:
            process, asking = self._server
            asking.close()
            process.wait()


class Fork:
    """A fork of the server, with the interface of subprocess.Popen."""

    def __init__(self, scripts: WarmScripts, folder: Path) -> None:
        self._scripts, self._status = scripts, None
        (asked, asking), (answers, answering), (words, saying) = (os.pipe() for _ in range(3))
        question = {"folder": str(folder), "in": str(Path.cwd()), "variables": {**os.environ}}
        theirs = asked, answering, saying
        self.pid: int = scripts.ask(question, *theirs)
        for one in theirs:
            os.close(one)
        self.stdin = os.fdopen(asking, "wb")
        self.stdout, self.stderr = os.fdopen(answers, "rb", 0), os.fdopen(words, "rb", 0)

    def wait(self, timeout: float = 60.0) -> int:
        """Return the exit status once the fork has ended; raise TimeoutExpired after *timeout*."""
        until = time.monotonic() + timeout
        while self._status is None:
            try:
                self._status = self._scripts.ask({"ended": self.pid})
            except OSError:  # the server has ended, as when this is closed with the session
                return -signal.SIGKILL
            if self._status is None:
                if time.monotonic() >= until:
                    raise subprocess.TimeoutExpired(SCRIPTS, timeout)
                time.sleep(0.01)
        return self._status
