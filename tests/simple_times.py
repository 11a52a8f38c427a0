"""A simple model of time that replaces the lab's, so that golden texts do not depend on it."""

import dataclasses

from occupancy_lab.prediction import NOT_FOLLOWED, Part, Prediction
from occupancy_lab.record import Record
from occupancy_lab.values import LaunchPlan


def simple_prediction(record: Record, plan: LaunchPlan, programs: int) -> Prediction | None:
    """Return a simple prediction in place of the model's."""
    gpu, moved, resources = record.gpu, record.launch.work.traffic, record.resources
    if moved is None or None in {gpu.multiprocessors, gpu.bandwidth_gbs, resources.instructions}:
        return None
    floor = moved.floor_us(gpu.bandwidth_gbs) or 0.0
    loops = plan.is_persistent
    fit = programs * (gpu.multiprocessors or 0)
    issued = 4e-4 * (resources.instructions or 0)
    waiting = 7.0 if loops and (plan.num_programs or 0) > fit else 0.0
    parts = (
        Part("launch", 3.0 + (plan.num_programs or 0) / 1000),
        Part("latency", 2.0 * (plan.rounds or 0)),
        Part("issue", issued * resources.num_warps * plan.work / (gpu.multiprocessors or 1)),
        Part("bandwidth", floor * (1.1 if loops else 1.05)),
        Part("tail", 0.25 + waiting),
    )
    us = parts[0].us + max(part.us for part in parts[1:]) + waiting
    calibrated = gpu.vendor == "NVIDIA"
    return Prediction(
        us=us,
        gbs=moved.total_bytes / us / 1e3,
        copy_gbs=moved.total_bytes / (2.5 + 1.05 * floor) / 1e3,
        parts=parts,
        basis="launches of a test" if calibrated else f"the data sheet and {NOT_FOLLOWED}",
        calibrated=calibrated,
        low_us=0.9 * us,
        high_us=1.2 * us,
    )


def timed(record: Record) -> Record:
    """Return *record* with the times of `simple_prediction`."""
    assert record.plan is not None
    fit = record.occupancy.programs_per_multiprocessor
    others = {
        number: found
        for number, held in record.other_launches().items()
        if (plan := dataclasses.replace(record.plan, num_programs=number))
        and (found := simple_prediction(record, plan, held)) is not None
    }
    own = simple_prediction(record, record.plan, fit)
    return dataclasses.replace(record, prediction=own, with_others=others)
