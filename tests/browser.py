"""A headless Chromium, driven over a pipe by the DevTools protocol."""

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
    *("--force-color-profile=srgb", "--proxy-server=127.0.0.1:1"),
)
PATIENCE = 60.0
"""Seconds that a command of the browser may take on a shared machine."""


def find_browser() -> str | None:
    """Return the path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class BrowserError(Exception):
    """An error reported by the browser."""


class Page:
    """A page of the browser, with its requests and its errors."""

    def __init__(self, send: Any, receive: Any) -> None:
        self._send, self._receive = send, receive
        self._ids = itertools.count(1)
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the browser's answer to a command of the protocol."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        self._send(message | ({"sessionId": self._session} if self._session else {}))
        while True:
            found = self._receive()
            if found.get("id") == number:
                if "error" in found:
                    raise BrowserError(found["error"]["message"])
                return found["result"]
            self._note(found)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.complaints.append(
                    details.get("exception", {}).get("description", str(details))
                )
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled" if params["type"] in {"error", "warning"}:
                self.complaints.append(str(params["args"]))

    def open(self, path: Path, address: str = "") -> None:
        """Open the file *path* with *address* after #, and wait until it is drawn."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=path.as_uri() + (f"#{address}" if address else ""))
        self.wait("document.readyState === 'complete' && Boolean(globalThis.occupancyLab)")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + PATIENCE
        while not self.value(condition):
            if time.monotonic() > until:
                msg = f"not true: {condition}; {self.complaints}"
                raise BrowserError(msg)
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """Return an expression's value in the page; a promise is awaited."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise BrowserError(str(found["exceptionDetails"].get("exception", found)))
        return found["result"].get("value")

    def drawn(self) -> None:
        """Wait until the page is drawn and the address is updated."""
        self.value("new Promise((done) => setTimeout(() => requestAnimationFrame(done), 250))")

    def text(self, selector: str) -> str:
        """Return the text of the first element."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).textContent"))

    def place(self, selector: str) -> dict[str, float]:
        """Return the first element's position on the screen, after scrolling to it."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{element}.scrollIntoView({{block: 'center'}})")
        return dict(self.value(f"{element}.getBoundingClientRect().toJSON()"))

    def mouse(self, kind: str, x: float, y: float, *, held: bool = True) -> None:
        """Press, move or release the mouse."""
        names = {"button": "left", "buttons": int(held), "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **names)

    def click(self, selector: str) -> None:
        """Click the middle of the first element."""
        box = self.place(selector)
        at = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        self.mouse("Moved", *at, held=False)
        self.mouse("Pressed", *at)
        self.mouse("Released", *at)
        self.drawn()

    def key(self, name: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        keys = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **keys, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **keys)
        self.drawn()

    def choose(self, selector: str, value: str, event: str = "change") -> None:
        """Choose an option of a select, or give another *event* what it is set to."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.value(
            f"{element}.value = {json.dumps(value)};"
            f" {element}.dispatchEvent(new Event('{event}', {{bubbles: true}}))"
        )
        self.drawn()

    def look(self, width: int, height: int, *, dark: bool = False, still: bool = False) -> None:
        """Set the screen's size, and the colours and motion that a user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        wanted = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if still else "no-preference",
        }
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.drawn()


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """Yield a page of a fresh browser, which is ended afterwards."""
    program = find_browser()
    if program is None:
        msg = "no Chromium is installed; `make browser` installs one"
        raise BrowserError(msg)
    (to_read, commands), (answers, to_write) = _pipe(), _pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # Chromium reads commands at descriptor 3 and writes answers at 4.
        start = (
            f"os.dup2({to_read}, 3); os.dup2({to_write}, 4); os.execv(sys.argv[1], sys.argv[1:])"
        )
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", f"import os, sys; {start}"),
                *(program, *FLAGS, f"--user-data-dir={folder}"),
            ],
            pass_fds=(to_read, to_write),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        try:
            yield _connected(commands, answers)
        finally:
            process.terminate()
            process.wait()
            os.close(commands)
            os.close(answers)


def _pipe() -> tuple[int, int]:
    """Return the ends of a pipe with other descriptors than 3 and 4."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]


def _connected(commands: int, answers: int) -> Page:
    left = bytearray()

    def send(message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(commands, data) :]

    def receive() -> dict[str, Any]:
        while b"\0" not in left:
            part = os.read(answers, 1 << 20)
            if not part:
                msg = "the browser ended"
                raise BrowserError(msg)
            left.extend(part)
        message, _, rest = bytes(left).partition(b"\0")
        left[:] = rest
        return dict(json.loads(message))

    return Page(send, receive)
