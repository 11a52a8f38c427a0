"""What differs between GPUs: each sentence with the numbers of all of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from occupancy_lab.comparing.entry import PLACE
from occupancy_lab.explaining.compiled import elements_per_thread, threads_words
from occupancy_lab.explaining.launch import resident_words
from occupancy_lab.explaining.limits import resource_word
from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.text.words import article, count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from occupancy_lab.comparing.entry import Entry, Slice


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _multiprocessor(entry: Entry) -> str:
    word = entry.architecture.multiprocessor_word
    return f"{article(word)} {word}"


def _warp_size(part: Slice) -> Iterator[str]:
    if len({entry.architecture.warp_size for entry in part.entries}) == 1:
        return
    sizes = part.said(
        lambda entry: f"a {entry.architecture.warp_word} is {entry.architecture.warp_size} threads"
    )
    programs = part.said(
        lambda entry: (
            f"{threads_words(entry)} threads with {elements_per_thread(entry):g} elements each"
        )
    )
    yield _sentence(f"{sizes}; a program is {programs}" if programs else f"{sizes}")


def _register_file(entry: Entry) -> str:
    architecture = entry.architecture
    if isinstance(architecture, CudaArchitecture):
        quarter = architecture.registers // architecture.register_partitions
        return (
            f"a warp's registers {PLACE} come from one of {architecture.register_partitions}"
            f" quarters of an SM, which have {quarter} each and give out"
            f" {architecture.register_unit} at a time"
        )
    return (
        f"a wave's VGPRs {PLACE} come from one of {architecture.simds} SIMDs of"
        f" {_multiprocessor(entry)}, which have {architecture.vgprs_per_simd} a lane each and give"
        f" out {architecture.vgpr_granule} at a time"
    )


def _shared_pool(entry: Entry) -> str:
    architecture = entry.architecture
    reserve = ""
    if isinstance(architecture, CudaArchitecture):
        reserve = f" with {architecture.reserved_shared} B a program for the driver"
    return (
        f"{_multiprocessor(entry)} {PLACE} has {architecture.shared_per_multiprocessor} B of"
        f" {architecture.shared_word}, given out {architecture.shared_unit} B at a time{reserve}"
    )


def _sgpr_file(entry: Entry) -> str:
    if isinstance(entry.architecture, CudaArchitecture):
        return "there are no SGPRs"
    file = entry.architecture.sgprs_per_simd
    return "SGPRs cannot run out" if file is None else f"a SIMD has {file} SGPRs"


def _unsaid(_entry: Entry) -> None:
    return None


def _allowed(entry: Entry, resource: str) -> str | None:
    """Return what a limit allows with its arithmetic: "VGPRs allow 10 programs (...)"."""
    limit = next((one for one in entry.record.occupancy.limits if one.resource == resource), None)
    if limit is None:
        return None
    word, limiters = resource_word(entry.calculation, resource), entry.record.occupancy.limiters
    if limit.programs is None:
        return f"no {word} {PLACE} is used"
    verb = "allow" if word.endswith("s") else "allows"
    limiter = f", {'the' if len(limiters) == 1 else 'a'} limiter" if resource in limiters else ""
    programs = count(limit.programs, "program")
    return f"{word} {verb} {programs} {PLACE}{limiter} ({'; '.join(limit.steps)})"


POOLS: Mapping[str, Callable[[Entry], str | None]] = {
    "warps": _unsaid,
    "registers": _register_file,
    "sgprs": _sgpr_file,
    "shared": _shared_pool,
}
"""By limit: what is said of the hardware behind it."""


def _limits(part: Slice) -> Iterator[str]:
    limits = [limit.resource for entry in part.entries for limit in entry.record.occupancy.limits]
    limiters = [name for entry in part.entries for name in entry.record.occupancy.limiters]
    for resource in dict.fromkeys(limits):
        if resource not in POOLS and resource not in limiters:
            continue
        pool = part.said(POOLS.get(resource, _unsaid))
        allowed = part.said(partial(_allowed, resource=resource))
        said = [_sentence(text) for text in (pool, allowed) if text]
        if said:
            yield " ".join(said)


def _size(part: Slice) -> Iterator[str]:
    sizes, held = part.said(_multiprocessors), part.said(resident_words)
    said = [f"there are {sizes}"] if sizes else []
    if held:
        said.append(f"programs at once are {held}")
    if said:
        yield _sentence("; ".join(said))


def _multiprocessors(entry: Entry) -> str:
    number, word = entry.record.gpu.multiprocessors, entry.architecture.multiprocessor_word
    words = "WGPs of two CUs" if word == "WGP" else f"{word}s"
    return f"an unknown number of {words}" if number is None else f"{number} {words}"


def between_gpus(part: Slice) -> Iterator[str]:
    """Say what differs between the GPUs of *part*."""
    yield from _warp_size(part)
    yield from _limits(part)
    yield from _size(part)
