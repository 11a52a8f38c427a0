"""Signals on the command line arrive, cannot be swallowed, and set the exit status."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from occupancy_lab.workers import signals
from occupancy_lab.workers.signals import SIGNALS, Interrupted

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}

BLOCK = """
import signal
import sys
import time

from occupancy_lab.workers import signals
from occupancy_lab.workers.signals import Interrupted

with signals.handled():
    print("ready", flush=True)
    {block}
"""
SWALLOWED = """
    class Deaf:
        def __del__(self):
            time.sleep(60)

    deaf = Deaf()
    del deaf
    time.sleep(60)
"""
FINISHED = """
    try:
        time.sleep(60)
    except Interrupted as interrupt:
        signals.arrived()
        time.sleep(2 * signals.GRACE)
        print("written", flush=True)
        sys.exit(interrupt.exit_status)
"""


def end_of(block: str, number: int) -> subprocess.CompletedProcess[str]:
    """Return how a process ends that gets the signal *number* during *block*."""
    code = BLOCK.format(block=block.strip())
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(number)
        printed, complaints = process.communicate(timeout=30)
    return subprocess.CompletedProcess([], process.returncode, printed, complaints)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_raised_in_the_main_thread(number: int) -> None:
    """Each signal raises a KeyboardInterrupt with its exit status."""
    with pytest.raises(KeyboardInterrupt) as caught, signals.handled():
        signal.raise_signal(number)
    assert isinstance(caught.value, Interrupted)
    assert caught.value.signal == number
    assert caught.value.exit_status == STATUS[signal.Signals(number)]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_swallowed_signal_ends_the_process(number: int) -> None:
    """Code that swallows the exception cannot keep the process alive."""
    done = end_of(SWALLOWED, number)
    assert done.returncode == STATUS[signal.Signals(number)]
    assert done.stderr.endswith("occupancy-lab: interrupted\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_what_took_notice_may_take_its_time(number: int) -> None:
    """After `arrived`, a process may finish writing."""
    done = end_of(FINISHED, number)
    assert done.returncode == STATUS[signal.Signals(number)]
    assert done.stdout == "written\n"


def test_a_signal_sent_twice_does_not_disturb() -> None:
    """A second SIGHUP or SIGTERM is not raised; Ctrl-C is."""
    with signals.handled():
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGHUP)
        signals.arrived()
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)


def test_the_exit_status_is_the_signals_own() -> None:
    """An error caused by a signal has its exit status, others 130."""
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError from Interrupted(signal.SIGTERM)
    assert signals.exit_status(caught.value) == 143
    assert signals.exit_status(Interrupted(signal.SIGHUP)) == 129
    assert signals.exit_status(KeyboardInterrupt()) == 130


def test_handlers_are_put_back() -> None:
    """Handlers are restored, and ignored signals stay ignored."""
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        before = [signal.getsignal(number) for number in SIGNALS]
        with signals.handled():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGINT) != before[0]
        assert [signal.getsignal(number) for number in SIGNALS] == before
    finally:
        signal.signal(signal.SIGHUP, old)


def test_other_threads_change_nothing() -> None:
    """Outside the main thread the block just runs."""
    done: list[bool] = []

    def run() -> None:
        with signals.handled():
            done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [True]
