"""The options and the output of Nsight Compute, for record_work.py.

The command line and the raw page are described in NVIDIA's manual:
https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from occupancy_lab.measuring.ncu import number_in, programs_of, read_page

if TYPE_CHECKING:
    from collections.abc import Mapping

CORE = (
    *("smsp__inst_executed.sum", "smsp__thread_inst_executed.sum", "smsp__cycles_active.avg"),
    *(
        f"smsp__inst_executed_pipe_{pipe}.sum"
        for pipe in ("alu", "fma", "fp16", "xu", "lsu", "uniform")
    ),
    *("sm__inst_executed_pipe_tensor.sum", "sm__inst_executed_pipe_tensor_op_gmma.sum"),
    *("sm__inst_executed_pipe_tensor_op_hmma.sum", "sm__inst_executed_pipe_tensor_op_imma.sum"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    *(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{one}.sum" for one in ("ld", "st", "red", "atom")),
    *(f"l1tex__t_requests_pipe_lsu_mem_global_op_{one}.sum" for one in ("ld", "st")),
    *(f"smsp__inst_executed_op_{one}.sum" for one in ("global_ld", "global_st", "ldgsts", "ldsm")),
    *(f"smsp__inst_executed_op_{one}.sum" for one in ("shared_ld", "shared_st")),
    *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{one}.sum" for one in ("ld", "st")),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{one}.sum" for one in ("ld", "st")),
    *("lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum"),
    *("lts__t_sectors_srcunit_tex.sum", "l1tex__m_xbar2l1tex_read_sectors.sum"),
    *("dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"),
    *("launch__waves_per_multiprocessor", "launch__registers_per_thread"),
)
"""The metrics that are counted."""
SPEED_OF_LIGHT = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
)
SHARES = (*SPEED_OF_LIGHT, *(f"breakdown:{one}" for one in SPEED_OF_LIGHT))
"""The metrics that show the busiest unit; counted only if there is time, as they take many
passes."""
UNITS = (
    (r"dram__|fbpa__", "bandwidth"),
    (r"lts__|l1tex__m_", "l2"),
    (r"l1tex__", "lsu"),
    (r"sm__(issue|inst_issued|inst_executed$)", "issue"),
    (r"sm__\w*(tensor|gmma|hmma|pipe_shared)", "tensor"),
    (r"sm__\w*_xu", "xu"),
    (r"sm__\w*_(fma|fp16)", "fma"),
    (r"sm__\w*_alu", "alu"),
    (r"sm__\w*_lsu|sm__mio", "lsu"),
)
"""The beginnings of Nsight Compute's counters, and the lab's names of the units that they count."""
BUSIEST = ("ncu_busiest", "ncu_speed_of_light")
"""The columns of the unit that works at the highest share of its peak, and of that share."""
OPTIONS = (
    *("--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off"),
    *("--clock-control", "none", "--cache-control", "all", "--replay-mode", "kernel"),
    *("--target-processes", "application-only"),
)
SAMPLING_OPTIONS = (
    *("--section", "SourceCounters", "--profile-from-start", "off", "--clock-control", "none"),
    *("--cache-control", "all", "--replay-mode", "kernel"),
    *("--target-processes", "application-only", "--force-overwrite"),
)


def read_counts(printed: str) -> list[dict[str, Any]]:
    """Return the name, the programs and the counters of each kernel of a raw CSV page."""
    found = []
    for row in read_page(printed)[1]:
        programs = programs_of(row) or 1
        counts = {
            name: int(number) if number.is_integer() else number
            for name, text in row.items()
            if name and "__" in name and (number := number_in(text)) is not None
        }
        for name in [one for one in counts if _misses_one(counts, one, programs)]:
            del counts[name]
        columns = {"kernel": row.get("Kernel Name", ""), "programs": programs}
        found.append({**columns, "counts": counts})
    return found


def _misses_one(counts: dict[str, Any], name: str, programs: int) -> bool:
    """Tell whether a counter lacks a multiprocessor, though programs ran on all of them.

    It happened in five launches of one process on an H100: one of 132 counted nothing in some
    passes.
    """
    unit, _, kind = name.partition("__")
    if unit not in {"sm", "smsp", "l1tex"} or not kind.endswith(".sum"):
        return False
    least, mean, most = (
        counts.get(name.removesuffix("sum") + one, 1) for one in ("min", "avg", "max")
    )
    everywhere = programs >= 2 * counts.get("launch__sm_count", math.inf)
    return bool(everywhere and least == 0 and mean > most / 2)


def busiest(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of BUSIEST; {} if SHARES were not counted."""
    shares = {
        name.split(".")[0]: share / 100
        for name, share in counts.items()
        if ".avg.pct_of_peak_sustained_elapsed" in name and "throughput" not in name
    }
    if not shares:
        return {}
    name = max(shares, key=shares.__getitem__)
    unit = next((unit for start, unit in UNITS if re.match(start, name)), name)
    return dict(zip(BUSIEST, (unit, shares[name]), strict=True))


def matched(order: list[dict[str, Any]], rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the counts of each launch by its id, from rows in the order of the launches.

    A row belongs to the next launch with its kernel and its number of programs. Launches in between
    have no row, and rows without a launch are left out.
    """
    found, place = {}, 0
    for row in rows:
        for ahead in range(place, len(order)):
            one = order[ahead]
            name = re.split(r"[(<]", row["kernel"])[0].strip()
            if (one["kernel"], one["programs"]) == (name, row["programs"]):
                found[one["id"]], place = row["counts"], ahead + 1
                break
    return found
