"""Makes the committed recording of public launches from the output of record_work.py.

`python reports/keep_work.py FOLDER... --gpu h100` merges recordings of one GPU into reports/data:

    work-h100.csv               a row for each launch: what it is, times, Nsight Compute's counters
    work-h100-launches.jsonl.xz its arguments, and values of small integer tensors
    work-h100-KIND.tar.xz       the texts of each binary: ttir, ttgir, cubin; ptx of counted ones
    work-h100-lines.csv.xz      each instruction of sampled launches: executed, stalled, sectors

Times of the same launch are merged. The files of another GPU have only the texts of binaries that
the H100's lack. Rows that are already in the files stay unless the recordings have newer ones.
Reading the samples takes NVIDIA's package `ncu-report`. recorded_work.py reads the files.
"""

from __future__ import annotations

import argparse
import collections
import csv
import io
import json
import lzma
import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elftools.elf.elffile import ELFFile
from record_files import DATA, lines_of, read_lines, read_table, table_bytes
from record_work import REPORT
from recorded_work import FIRST_GPU
from work_capture import columns_of_times
from work_ncu import BUSIEST, CORE, SPEED_OF_LIGHT, busiest, matched, read_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KINDS = ("ttir", "ttgir", "ptx", "cubin")
FOLDERS = {
    "tutorials": b"/triton/python//tutorials",
    "reports": b"/occupancy/reports",
    "inductor": b"/tmp/torchinductor/inductor",
}
"""The paths of the kernels' folders in the texts; a replacement in a binary must keep its
length."""
COLUMNS = (
    *("id", "use", "kernel", "package", "group", "trial", "binary"),
    *("grid", "num_warps", "num_ctas", "num_stages", "shared", "n_regs", "n_spills"),
    "tensor_bytes",
    *(f"{one}_us{tenth}" for one in ("cold", "warm") for tenth in ("", "_low", "_high")),
    *("repetitions", "sm_mhz", "empty_cold_us", "empty_warm_us"),
)
STALLS = "smsp__pcsamp_warps_issue_stalled_"
LINE_COLUMNS = {
    "executed": "inst_executed",
    "threads": "thread_inst_executed_true",
    "samples": "smsp__pcsamp_sample_count",
    "tag_requests": "memory_l1_tag_requests_global",
    "sectors": "memory_l2_theoretical_sectors_global",
    "sectors_ideal": "memory_l2_theoretical_sectors_global_ideal",
    "wavefronts": "memory_l1_wavefronts_shared",
    "wavefronts_ideal": "memory_l1_wavefronts_shared_ideal",
}
"""The kept columns of each instruction, with Nsight Compute's names."""


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a tar file."""
    with tarfile.open(path) as tar:
        for member in tar:
            if (file := tar.extractfile(member)) is not None:
                yield member.name, file.read()


class Recordings:
    """The contents of several recordings."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """Read *folders*."""
        self.launches: dict[str, dict[str, Any]] = {}
        self.texts: dict[str, Path] = {}
        self.times: dict[str, dict[str, list[float]]] = {}
        self.more: dict[str, dict[str, Any]] = {}
        self.counts: dict[str, dict[str, Any]] = {}
        self.reports: list[tuple[Path, list[str]]] = []
        for folder in folders:
            self._read(folder)

    def _read(self, folder: Path) -> None:
        for path in sorted(folder.glob("*.launches.jsonl")):
            for line in read_lines(path):
                self.launches.setdefault(line["id"], line)
        self.texts |= {path.name: path for path in (folder / "texts").iterdir()}
        for path in sorted(folder.glob("*.time.jsonl")):
            self._times(read_lines(path))
        for path in sorted(folder.glob("*.count.jsonl")):
            printed = path.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
            counts = matched(read_lines(path), read_counts(printed))
            self.counts |= {key: one | busiest(one) for key, one in counts.items()}
        for path in sorted(folder.glob("*.sample.jsonl")):
            report = path.with_name(path.name.replace(".sample.jsonl", REPORT))
            if report.exists():
                self.reports.append((report, [one["id"] for one in read_lines(path)]))

    def _times(self, lines: list[dict[str, Any]]) -> None:
        empty = next((line for line in lines if line["id"] == "empty"), None)
        for line in lines:
            pool = self.times.setdefault(line["id"], {"cold": [], "warm": []})
            for name in pool:
                pool[name] += line[name]
            self.more[line["id"]] = {"sm_mhz": line.get("sm_mhz")}
            if empty is not None:
                of_none = columns_of_times({name: empty[name] for name in ("cold", "warm")})
                self.more[line["id"]] |= {f"empty_{x}": of_none[x] for x in ("cold_us", "warm_us")}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each launch, by package and kernel."""
        found = []
        for one in sorted(self.launches.values(), key=_order):
            row = {**one, "grid": " x ".join(map(str, one["grid"]))}
            if one["id"] in self.times:
                times = self.times[one["id"]]
                row |= columns_of_times(times) | self.more[one["id"]]
                row["repetitions"] = len(times["cold"])
            found.append(row | self.counts.get(one["id"], {}))
        return found


def _order(launch: dict[str, Any]) -> tuple[str, ...]:
    return launch["package"], launch["kernel"], launch["binary"], launch["id"]


def shortened(name: str, content: bytes) -> bytes:
    """Return a text without one machine's folders, and a cubin without its copy of the PTX."""
    if name.endswith(".cubin"):
        section = ELFFile(io.BytesIO(content)).get_section_by_name(".nv_debug_ptx_txt")
        if section is not None:
            start, size = section["sh_offset"], section["sh_size"]
            content = content[:start] + bytes(size) + content[start + size :]
    for folder, other in FOLDERS.items():
        for found in set(re.findall(rb"/[\w./-]+/" + folder.encode() + rb"(?=[/\"\0])", content)):
            if len(found) == len(other):
                content = content.replace(found, other)
    return content


def archive(texts: dict[str, bytes]) -> bytes:
    """Return a compressed tar file of *texts*."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in texts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return lzma.compress(buffer.getvalue(), preset=9)


def instructions(report: Path, ids: list[str]) -> Iterator[dict[str, Any]]:
    """Yield each instruction of the launches in a report of Nsight Compute."""
    import ncu_report

    found = ncu_report.load_report(str(report)).range_by_idx(0)
    for key, place in zip(ids, range(found.num_actions()), strict=True):
        action = found.action_by_idx(place)
        columns: dict[int, dict[str, Any]] = collections.defaultdict(dict)
        stalls = [
            name
            for name in action.metric_names()
            if name.startswith(STALLS) and not name.endswith("_not_issued")
        ]
        wanted = LINE_COLUMNS | {name.removeprefix(STALLS): name for name in stalls}
        for column, name in wanted.items():
            if (metric := action.metric_by_name(name)) is None:
                continue
            places = metric.correlation_ids()
            for one in range(metric.num_instances()):
                if value := metric.as_uint64(one):
                    columns[places.as_uint64(one)][column] = value
        first = min(columns)
        for address in sorted(columns):
            row = columns[address]
            waits = [f"{name}={row[name]}" for name in wanted if name in row]
            yield {
                "id": key,
                "offset": address - first,
                "sass": " ".join(action.sass_by_pc(address).split()),
                **row,
                "stalls": " ".join(one for one in waits if one.split("=")[0] not in LINE_COLUMNS),
            }


def kept(output: Path, gpu: str) -> list[dict[str, Any]]:
    """Return the rows that the files have already, or nothing if there are no files."""
    path = output / f"work-{gpu}.csv"
    if not path.exists():
        return []
    with lzma.open(output / f"work-{gpu}-launches.jsonl.xz") as file:
        further = {one["id"]: one for one in lines_of(file.read())}
    return [one | further[one["id"]] for one in read_table(path)]


def merged(old: Iterable[dict[str, Any]], new: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of both; for a launch in both, the new values replace the old ones."""
    rows = {one["id"]: one for one in old}
    for one in new:
        known = {name: value for name, value in one.items() if value is not None and value != ""}
        rows[one["id"]] = rows.get(one["id"], {}) | known if one["id"] in rows else one
    return sorted(rows.values(), key=_order)


def keep(folders: list[Path], output: Path, gpu: str) -> None:
    """Write the files."""
    recordings = Recordings(folders)
    rows = merged(kept(output, gpu), recordings.rows())
    counters = [
        name
        for name in (*CORE, *SPEED_OF_LIGHT, *BUSIEST)
        if any(str(one.get(name, "")) for one in rows)
    ]
    (output / f"work-{gpu}.csv").write_bytes(table_bytes((*COLUMNS, *counters), rows))
    launches = [
        {
            "id": one["id"],
            "entry": one["entry"],
            "file": re.sub(r".*/(?=(tutorials|reports|inductor)/)", "", one["file"] or ""),
            **{name: one[name] for name in ("line", "constexprs", "signature")},
            **{name: one[name] for name in ("arguments", "storages", "values")},
        }
        for one in rows
    ]
    content = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in launches)
    (output / f"work-{gpu}-launches.jsonl.xz").write_bytes(lzma.compress(content.encode()))
    sampled = keep_sampled(recordings.reports, output / f"work-{gpu}-lines.csv.xz")
    binaries = dict.fromkeys(one["binary"] for one in rows)
    counted = [one for one in rows if one["id"] in sampled or one.get(CORE[0])]
    for kind in KINDS:
        path = output / f"work-{gpu}-{kind}.tar.xz"
        first = (
            set()
            if gpu == FIRST_GPU
            else {name for name, _ in members(output / f"work-{FIRST_GPU}-{kind}.tar.xz")}
        )
        texts = dict(members(path)) if path.exists() else {}
        for name, one in recordings.texts.items():
            if one.suffix == f".{kind}":
                texts[name] = shortened(name, one.read_bytes())
        some = dict.fromkeys(one["binary"] for one in counted) if kind == "ptx" else binaries
        names = (name for one in some if (name := f"{one}.{kind}") not in first)
        path.write_bytes(archive({name: texts[name] for name in names}))


def keep_sampled(reports: Iterable[tuple[Path, list[str]]], path: Path) -> set[str]:
    """Write the instructions of sampled launches, and return the launches."""
    sampled = [row for report, ids in reports for row in instructions(report, ids)]
    anew = {one["id"] for one in sampled}
    if path.exists():
        with lzma.open(path, "rt", encoding="utf-8") as file:
            sampled = [one for one in csv.DictReader(file) if one["id"] not in anew] + sampled
    lines = table_bytes(("id", "offset", "sass", *LINE_COLUMNS, "stalls"), sampled)
    path.write_bytes(lzma.compress(lines, preset=9))
    return {one["id"] for one in sampled}


def main() -> None:
    """Make the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=DATA)
    parser.add_argument("--gpu", default="h100")
    chosen = parser.parse_args()
    keep(chosen.folders, chosen.output, chosen.gpu)


if __name__ == "__main__":
    main()
