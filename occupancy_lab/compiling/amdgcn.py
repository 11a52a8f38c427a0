"""Reads from AMD assembly which resources a kernel takes and which instructions it issues.

The assembly's metadata (YAML) is the content of the code object's note, and the assembler makes
the kernel descriptor from its directives. Sources: LLVM's "User Guide for AMDGPU Backend"
(AMDGPUUsage: Code Object V3 to V6 Metadata, Kernel Descriptor, compute_pgm_rsrc1), LLVM's "AMDGPU
Instruction Syntax" (global_, flat_ and buffer_ instructions), and the scalar branch instructions
(SOPP) of AMD's instruction set guides. A VOPD instruction, which does two operations, is one line
and counts once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from occupancy_lab.compiling.flow import Issued, Jump, count_issued
from occupancy_lab.errors import few_of, quoted, unreadable
from occupancy_lab.gpus import HipArchitecture, architectures

METADATA_END = "\n\t.end_amdgpu_metadata"
KERNELS = re.compile(r"^amdhsa\.kernels:\n((?: .*\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^(?:  -|   ) (\.\w+): +(\S+)$", re.MULTILINE)
"""A key of the kernel's own metadata, and its value; keys of its arguments are indented further."""
TARGET = re.compile(r'^\t\.amdgcn_target "[^"\n]*?-(gfx[0-9][\w-]*)[:"]', re.MULTILINE)
"""The gfx name in a target such as amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-."""
NEXT_FREE_VGPR = "next_free_vgpr"
"""The directive from which the assembler makes the descriptor's GRANULATED_WORKITEM_VGPR_COUNT."""
ARGUMENT = re.compile(
    r"^ +(?:- )?\.offset: +(\d{1,9})\n +\.size: +(\d{1,9})\n +\.value_kind: +(\w+)$", re.MULTILINE
)
"""The offset, the size in bytes and the kind of a kernel's argument."""

ACCESS = re.compile(
    r"^[ \t]*(global|flat|buffer|scratch)_(load|store)_(\w+)[ \t]+([^\n;]*)", re.MULTILINE
)
TO_LDS = r"\blds\b"
"""The operand that makes a load write to LDS where the instruction's name does not say so."""
AMDGCN_WIDTHS = (
    (re.compile(r"(?:^|_)dword(?:x(\d+))?$"), 4),
    (re.compile(r"(?:^|_)[us]?short(?:_d16)?(?:_hi)?$"), 2),
    (re.compile(r"(?:^|_)[us]?byte(?:_d16)?(?:_hi)?$"), 1),
)
AMDGCN_BITS = re.compile(r"(?:^|_)[bui](8|16|32|64|96|128)$")

LINE = re.compile(r"^(?:([\w.$]+):|[ \t]+([a-z]\w*)[ \t]*([^;\n]*))", re.MULTILINE)
"""A label, or an instruction and its operands; directives begin with a dot."""
BRANCHES = ("s_branch", "s_cbranch")
END = "s_endpgm"
KINDS = (
    (re.compile(r"ds_(?:bpermute|permute|swizzle)|v_permlane|v_readlane"), "shuffles"),
    (re.compile(r"s_barrier(?:_wait)?\b"), "barrier_waits"),
    (re.compile(r"ds_(?:load|store|read|write)"), "shared_accesses"),
    (re.compile(r"(?:v|v_s)_(?:exp|log|rcp|rsq|sqrt|sin|cos)_"), "special_functions"),
    (re.compile(r"v_(?:mfma|smfmac|wmma|swmmac)_"), "tensor_instructions"),
    (re.compile(rf"(?:global|flat|buffer)_load_(?:\w*lds|.*{TO_LDS})"), "async_copies"),
    (re.compile(r"(?:global|flat|buffer)_(?:load|store)"), "global_accesses"),
)
"""The instructions that have a counter of their own, as patterns, and the name of the counter.

A move between the lanes of a row (DPP) has none: it is an ordinary instruction. A load to LDS is an
asynchronous copy, like LDGSTS: it needs no register, takes the path of a global access, and a wave
waits for it only when it needs the data. The model therefore takes num_stages into account. The
load's write to LDS is not a separate instruction.
"""
UNKNOWN_TARGETS = ("s_setpc", "s_swappc", "s_call", "s_rfe")
"""Jumps to an address in registers, and calls of functions that are not inlined."""


def read_amdgcn(assembly: str, kernel_name: str) -> dict[str, Any]:
    """Return what *kernel_name* of *assembly* takes, by the names of the fields of Resources.

    Raises BinaryError if the assembly is cut off or does not have this kernel.
    """
    kernel = kernel_metadata(assembly, kernel_name)
    return {
        "n_regs": count(kernel, ".vgpr_count"),
        "static_shared": count(kernel, ".group_segment_fixed_size"),
        "local_bytes": count(kernel, ".private_segment_fixed_size"),
        "sgprs": count(kernel, ".sgpr_count"),
        "agprs": count_or_none(kernel, ".agpr_count"),
        "allocated_vgprs": allocated_vgprs(assembly, kernel_name, count(kernel, ".wavefront_size")),
        "vgpr_spills": count_or_none(kernel, ".vgpr_spill_count"),
        "sgpr_spills": count_or_none(kernel, ".sgpr_spill_count"),
    }


def kernel_metadata(assembly: str, kernel_name: str) -> Mapping[str, str]:
    """Return the metadata of *kernel_name*: the text of each value by its key."""
    return dict(ENTRY.findall(_kernel_entry(assembly, kernel_name)))


def kernel_arguments(assembly: str, kernel_name: str) -> list[tuple[int, int, str]]:
    """Return the offset, the bytes and the kind of each argument of *kernel_name*, in order.

    The runtime adds the last arguments, whose kinds begin with hidden_ (AMDGPUUsage, Code Object
    V5).
    """
    found = ARGUMENT.findall(_kernel_entry(assembly, kernel_name))
    return [(int(offset), int(size), kind) for offset, size, kind in found]


def _kernel_entry(assembly: str, kernel_name: str) -> str:
    metadata, end, _ = assembly.rpartition("\n\t.amdgpu_metadata\n")[2].partition(METADATA_END)
    kernels = KERNELS.search(metadata)
    if not end or kernels is None:
        unreadable("The amdgcn is cut off: it holds no metadata of kernels.")
    entries = re.split(r"^(?=  - )", kernels[1], flags=re.MULTILINE)
    named = {dict(ENTRY.findall(entry)).get(".name"): entry for entry in reversed(entries)}
    if kernel_name not in named:
        names = [name for name in reversed(named) if name is not None]
        unreadable(f"The amdgcn holds no kernel {kernel_name!r}, only {few_of(names)}.")
    return named[kernel_name]


def count(kernel: Mapping[str, str], key: str) -> int:
    """Return the number that the metadata holds under *key*."""
    number = count_or_none(kernel, key)
    if number is None:
        unreadable(f"The amdgcn's metadata has no {key!r}.")
    return number


def count_or_none(kernel: Mapping[str, str], key: str) -> int | None:
    """Return the number that the metadata holds under *key*, or None if it has no such key."""
    text = kernel.get(key)
    if text is not None and not re.fullmatch("[0-9]{1,18}", text):
        unreadable(f"The amdgcn's metadata is damaged: {key!r} is {quoted(text)}.")
    return None if text is None else int(text)


def allocated_vgprs(assembly: str, kernel_name: str, wavefront_size: int) -> int | None:
    """Return the VGPRs that the kernel descriptor asks for: the used VGPRs, rounded up or padded.

    Return None if the table of GPUs lacks the architecture or has another wave size for it: the
    descriptor itself does not say how VGPRs are rounded.
    """
    used = descriptor_number(assembly, kernel_name, NEXT_FREE_VGPR)
    if TARGET.search(assembly) is None or used is None:
        unreadable(f"The amdgcn holds no kernel descriptor of {kernel_name!r}, or no target.")
    architecture = architecture_of(assembly)
    if architecture is None or architecture.warp_size != wavefront_size:
        return None
    granule = architecture.descriptor_granule
    return max(-(-used // granule), 1) * granule


def architecture_of(assembly: str) -> HipArchitecture | None:
    """Return the architecture that *assembly* is for, or None if the table of GPUs lacks it."""
    target = TARGET.search(assembly)
    found = None if target is None else architectures().get(target[1])
    return found if isinstance(found, HipArchitecture) else None


def descriptor_number(assembly: str, kernel_name: str, directive: str) -> int | None:
    """Return the number of an .amdhsa_ *directive* of *kernel_name*, or None without it."""
    _, _, behind = assembly.partition(f"\n\t.amdhsa_kernel {kernel_name}\n")
    descriptor = behind.partition("\n\t.end_amdhsa_kernel")[0]
    found = re.search(rf"^\t\t\.amdhsa_{directive} (\d{{1,9}})$", descriptor, re.MULTILINE)
    return None if found is None else int(found[1])


def read_issued(assembly: str, kernel_name: str) -> Issued:
    """Return the instructions that a wave issues of *kernel_name*, counted by kind.

    The result is empty (not known) if the kernel jumps to an address in registers, or if *assembly*
    does not have it.
    """
    labels: dict[str, int] = {}
    branches: dict[int, tuple[str, str]] = {}
    local: dict[int, int] = {}
    kinds: dict[int, str] = {}
    length = 0
    for label, operation, operands in LINE.findall(kernel_body(assembly, kernel_name)):
        if label:
            labels[label] = length
            continue
        if operation.startswith((*BRANCHES, END)):
            branches[length] = operation, operands.strip()
        elif operation.startswith(UNKNOWN_TARGETS):
            return Issued()
        if kind := kind_of(text := f"{operation} {operands}"):
            kinds[length] = kind
        if moved := scratch_width(text):
            local[length] = moved
        length += 1
    jumps = {
        number: Jump(None, always=True)
        if operation.startswith(END)
        else Jump(labels.get(target, -1), operation == "s_branch")
        for number, (operation, target) in branches.items()
    }
    return count_issued(length, jumps, local, kinds)


def kind_of(instruction: str) -> str | None:
    """Return the counter of this kind of *instruction*, or None if the kind has no counter."""
    if scratch_width(instruction):
        return "local_loads" if "load" in instruction.partition(" ")[0] else "local_stores"
    return next((kind for form, kind in KINDS if form.match(instruction)), None)


def kernel_body(assembly: str, kernel_name: str) -> str:
    """Return the lines of a kernel between its label and its end, or "" if it has no label."""
    _, _, behind = f"\n{assembly}".partition(f"\n{kernel_name}:")
    return behind.partition("\n.Lfunc_end")[0].partition("\n")[2]


def amdgcn_widths(assembly: str, *, store: bool) -> Iterator[int]:
    """Return the bytes that each access to global memory in AMD assembly moves per lane."""
    for space, operation, form, operands in ACCESS.findall(assembly):
        width = lane_width(form)
        if (operation == "store") == store and width and not is_scratch(space, operands):
            yield width


def scratch_width(instruction: str) -> int | None:
    """Return the bytes per lane that *instruction* moves to or from scratch, or None for none."""
    access = ACCESS.match(instruction)
    return lane_width(access[3]) if access and is_scratch(access[1], access[4]) else None


def is_scratch(space: str, operands: str) -> bool:
    """Return whether an access is to scratch.

    A buffer instruction with `off` as its address has no address that differs between lanes.
    Targets without scratch instructions (gfx908, gfx90a, gfx10.3) access scratch in this way. Loads
    to LDS are the exception: nothing loads from scratch to LDS.
    """
    off = re.search(r"(^|,)\s*off\s*,", operands) and not re.search(TO_LDS, operands)
    return space == "scratch" or (space == "buffer" and bool(off))


def lane_width(form: str) -> int | None:
    """Return the bytes per lane that an opcode's last part means: 16 for dwordx4 and for b128."""
    if bits := AMDGCN_BITS.search(form):
        return int(bits[1]) // 8
    for pattern, size in AMDGCN_WIDTHS:
        if found := pattern.search(form):
            return size * int(found[1] or 1) if pattern.groups else size
    return None
