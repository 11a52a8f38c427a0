"""What a GPU does besides Triton's kernels, summed from torch.profiler's events."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_trace import command, run

from occupancy_lab.tracing.hook import Profile, summed
from occupancy_lab.tracing.trace import trace_program
from occupancy_lab.tracing.traced import GpuTime


@pytest.mark.slow
def test_the_shares_of_the_gpus_time_are_told() -> None:
    """Annotations, host calls and spin kernels do not count as work."""
    found = trace_program(command("profiled"), profile=60)
    (process,) = found.found.processes
    assert process.errors == ()
    gemm = "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n"
    assert process.gpu_time == GpuTime(10.0, 9.0, 5.0, 2.0, {gemm: 3.0})
    answer = found.to_document().answer
    assert (
        "Of 10.0 us that torch.profiler saw, the GPU was 50% in Triton's kernels, 30% in other"
        " kernels, 20% in copies and 10% waiting."
    ) in answer
    assert f"The other kernels that took longest: {gemm} 3.00 us." in answer
    plain = json.loads(found.to_json())["processes"][0]["gpu_time"]
    assert (plain["span_us"], plain["others"]) == (10.0, {gemm: 3.0})


@pytest.mark.slow
def test_without_a_profile_the_page_says_nothing_of_it() -> None:
    """A profiler is started only if it is asked for."""
    found = run(command("profiled"), ["--actions", "0"])
    assert b"torch.profiler" not in found.stderr


def event(start: int, took: int, device: int) -> Any:
    """Return a kernel's event as in a torch whose events have no kinds."""
    names = {"name": "k", "device_type": "DeviceType.CUDA", "device_index": device}
    values = {**names, "start_ns": start, "duration_ns": took}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(0, 1)), min_size=1)


@given(SPANS)
def test_busy_is_each_moment_once(spans: list[tuple[int, int, int]]) -> None:
    """Busy time is the number of moments in which a device does anything."""
    found = summed([event(*one) for one in spans])
    moments = {(device, at) for start, took, device in spans for at in range(start, start + took)}
    of_devices: dict[int, list[int]] = {}
    for device, at in moments:
        of_devices.setdefault(device, []).append(at)
    assert found["busy_ns"] == len(moments)
    assert found["span_ns"] == sum(max(one) + 1 - min(one) for one in of_devices.values())
    assert found["kernels"]["k"] == [len(spans), sum(took for _, took, _ in spans)]


def test_a_profiler_that_fails_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the profiler fails to start, the program goes on without it."""
    import torch

    tries = []

    def fails(**_: Any) -> Any:
        tries.append(1)
        msg = "a profiler runs already"
        raise RuntimeError(msg)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.profiler, "profile", fails)
    profile = Profile(60)
    with pytest.raises(RuntimeError, match="runs already"):
        profile.look()
    profile.look()
    profile.end()
    assert (len(tries), profile.facts) == (1, {})
