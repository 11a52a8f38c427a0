"""How many instructions one wave issues of a kernel, read from AMD assembly.

Source: LLVM's "AMDGPU Instruction Syntax", and the scalar branch instructions (SOPP) of AMD's
instruction set guides. A VOPD instruction, two operations in one, is one line and counts once.
"""

from __future__ import annotations

import re

from occupancy_lab.compiling.assembly import TO_LDS, amdgcn_scratch_width
from occupancy_lab.compiling.flow import Issued, Jump, count_issued

LINE = re.compile(r"^(?:([\w.$]+):|[ \t]+([a-z]\w*)[ \t]*([^;\n]*))", re.MULTILINE)
"""A label, or an instruction and its operands; directives begin with a dot."""
BRANCHES = ("s_branch", "s_cbranch")
END = "s_endpgm"
KINDS = (
    (re.compile(r"ds_(?:bpermute|permute|swizzle)|v_permlane|v_readlane"), "shuffles"),
    (re.compile(r"s_barrier(?:_wait)?\b"), "barrier_waits"),
    (re.compile(r"ds_(?:load|store|read|write)"), "shared_accesses"),
    (re.compile(r"(?:v|v_s)_(?:exp|log|rcp|rsq|sqrt|sin|cos)_"), "special_functions"),
    (re.compile(rf"(?:global|flat|buffer)_load_(?:\w*lds|.*{TO_LDS})"), "async_copies"),
    (re.compile(r"(?:global|flat|buffer)_(?:load|store)"), "global_accesses"),
)
"""What is counted by itself; a move between the lanes of a row (DPP) is an ordinary instruction.

A load to LDS is an asynchronous copy, as LDGSTS is: it needs no register, takes the path of a
global access, and is not waited for until its data is needed. The model then takes num_stages into
account, and its write to LDS is no instruction of its own.
"""
UNKNOWN_TARGETS = ("s_setpc", "s_swappc", "s_call", "s_rfe")
"""Jumps to an address in registers, and calls of a function that is not inlined."""


def read_amdgcn(assembly: str, kernel_name: str) -> Issued:
    """Return what a wave issues of *kernel_name*, whose instructions are in *assembly*.

    Nothing is known of a kernel that jumps to an address in registers, or is not there.
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
        elif moved := amdgcn_scratch_width(f"{operation} {operands}"):
            local[length] = moved
            kinds[length] = "local_loads" if "load" in operation else "local_stores"
        elif kind := kind_of(f"{operation} {operands}"):
            kinds[length] = kind
        length += 1
    jumps = {
        number: Jump(None, always=True)
        if operation.startswith(END)
        else Jump(labels.get(target, -1), operation == "s_branch")
        for number, (operation, target) in branches.items()
    }
    return count_issued(length, jumps, local, kinds)


def kind_of(instruction: str) -> str | None:
    """Return the field that *instruction* counts in; None: only in those of all instructions."""
    return next((kind for form, kind in KINDS if form.match(instruction)), None)


def kernel_body(assembly: str, kernel_name: str) -> str:
    """Return the lines of a kernel between its label and its end; none where it has no label."""
    _, _, behind = f"\n{assembly}".partition(f"\n{kernel_name}:")
    return behind.partition("\n.Lfunc_end")[0].partition("\n")[2]
