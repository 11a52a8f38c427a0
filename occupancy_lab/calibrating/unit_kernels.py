"""Kernels that keep one unit of a GPU busy and nothing else, for `units.py`.

Operations that Triton cannot express are PTX, one `Probe` each: a loop between two readings of the
clock. All other kernels run on every GPU, and read no clock unless TICKS is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import triton
import triton.language as tl

WARP = 32
WIDE_THREADS = 1024
"""Threads of a program that keeps a whole multiprocessor busy."""
NOTED = 5
"""Numbers that each program notes: its first and last cycle, its first and last nanosecond, and the
result of its work."""


@triton.jit
def cycles_now():
    """Return the multiprocessor's clock, cycles."""
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit
def nanoseconds_now():
    """Return the GPU's clock, ns."""
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit
def probe_kernel(ticks_ptr, data_ptr, steps, PTX: tl.constexpr, THREADS: tl.constexpr):
    """Run PTX in THREADS threads, or with THREADS 1 in all with the same operands."""
    thread = tl.arange(0, THREADS)
    data = (thread * 0).to(tl.int64) + data_ptr.to(tl.int64)
    first, last, began, ended, found = tl.inline_asm_elementwise(
        PTX,
        "=l,=l,=l,=l,=r,l,r,r,r",
        [data, thread * 0 + steps, thread, thread * 0 + tl.program_id(0)],
        dtype=(tl.int64, tl.int64, tl.int64, tl.int64, tl.int32),
        is_pure=False,
        pack=1,
    )
    ticks_ptr += tl.program_id(0) * 5
    tl.store(ticks_ptr, tl.min(first, axis=0))
    tl.store(ticks_ptr + 1, tl.max(last, axis=0))
    tl.store(ticks_ptr + 2, tl.min(began, axis=0))
    tl.store(ticks_ptr + 3, tl.max(ended, axis=0))
    tl.store(ticks_ptr + 4, tl.max(found, axis=0).to(tl.int64))


@triton.jit
def empty_kernel(output_ptr):
    """Do nothing."""


@triton.jit
def move_kernel(
    output_ptr, input_ptr, BLOCK: tl.constexpr, READS: tl.constexpr, WRITES: tl.constexpr
):
    """Read block `program_id`, write it, or copy it; if it only reads, it writes the sum."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(input_ptr + place) if READS else tl.zeros((BLOCK,), tl.float32)
    if WRITES:
        tl.store(output_ptr + place, x)
    else:
        tl.store(output_ptr + tl.program_id(0), tl.sum(x, axis=0))


@triton.jit
def sweep_kernel(ticks_ptr, input_ptr, blocks, steps, BLOCK: tl.constexpr):
    """Read *steps* blocks past the L1 cache, programs in sequence, cycling through *blocks*."""
    place = tl.arange(0, BLOCK)
    found = tl.zeros((BLOCK,), tl.float32)
    first = cycles_now()
    began = nanoseconds_now()
    for step in range(steps):
        block = (tl.program_id(0) + step * tl.num_programs(0)) % blocks
        found += tl.load(input_ptr + block * BLOCK + place, cache_modifier=".cg")
    total = tl.sum(found, axis=0)
    last = cycles_now()
    ticks_ptr += tl.program_id(0) * 5
    tl.store(ticks_ptr, first)
    tl.store(ticks_ptr + 1, last)
    tl.store(ticks_ptr + 2, began)
    tl.store(ticks_ptr + 3, nanoseconds_now())
    tl.store(ticks_ptr + 4, total.to(tl.int64))


@triton.jit
def dot_kernel(
    ticks_ptr,
    output_ptr,
    a_ptr,
    b_ptr,
    steps,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    TICKS: tl.constexpr,
):
    """Multiply the same M x K and K x N matrices *steps* times, and add up the products."""
    rows, cols, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + rows[:, None] * K + inner[None, :])
    b = tl.load(b_ptr + inner[:, None] + cols[None, :] * K)
    sums = tl.zeros((M, N), output_ptr.dtype.element_ty)
    if TICKS:
        first = cycles_now()
        began = nanoseconds_now()
    for _ in range(steps):
        sums = tl.dot(a, b, sums, out_dtype=output_ptr.dtype.element_ty)
    if TICKS:
        ticks_ptr += tl.program_id(0) * 5
        tl.store(ticks_ptr, first)
        tl.store(ticks_ptr + 1, cycles_now())
        tl.store(ticks_ptr + 2, began)
        tl.store(ticks_ptr + 3, nanoseconds_now())
    tl.store(output_ptr + rows[:, None] * N + cols[None, :], sums)


FRAME = """{{
.reg .pred more, leads;
.reg .b32 left, thread, program, found, tid;
.reg .b64 data;
{declared}
mov.b64 data, $5;
mov.b32 left, $6;
mov.b32 thread, $7;
mov.b32 program, $8;
mov.b32 found, 0;
mov.u32 tid, %tid.x;
setp.eq.u32 leads, tid, 0;
{before}
mov.u64 $2, %globaltimer;
mov.u64 $0, %clock64;
again:
{steps}
sub.s32 left, left, 1;
setp.gt.s32 more, left, 0;
@more bra again;
{after}
mov.u64 $1, %clock64;
mov.u64 $3, %globaltimer;
done:
mov.b32 $4, found;
}}"""


@dataclass(frozen=True, slots=True)
class Probe:
    """PTX in a loop between two readings of the clock.

    It can use `data`, the address of a tensor; `left`, the remaining passes of the loop; `thread`,
    `program`, `tid`; and `leads`, which is true for one thread of a program.
    """

    step: str
    """The repeated text: `repeats` copies per pass, and as many passes as are asked for."""
    declared: str = ""
    before: str = ""
    after: str = ""
    """Sets `found`, so that the work is not optimized away."""
    repeats: int = 8
    threads: int = 1
    """1 for a single warp whose threads all do the same."""

    @property
    def ptx(self) -> str:
        """The text for `probe_kernel`."""
        steps = "\n".join([self.step] * self.repeats)
        before = self.before + ("\nbar.sync 0;" if self.threads > 1 else "")
        return FRAME.format(declared=self.declared, before=before, steps=steps, after=self.after)


CHAINS = range(8)
"""Independent chains of instructions in every warp."""


def _chained(instruction: str, kind: str, start: str, fold: str) -> Probe:
    """Return a probe of an instruction on 8 registers and y, which *start* initializes.

    The instruction changes {0}; {1} and {2} are two other registers; *fold* adds {1} to {0}.
    """
    names = [f"x{chain}" for chain in CHAINS]
    step = "\n".join(instruction.format(names[i], names[i - 1], names[i - 2]) for i in CHAINS)
    return Probe(
        step=step,
        declared=f".reg .{kind} {', '.join(names)}, y;",
        before="\n".join(start.format(name, place) for place, name in enumerate((*names, "y"))),
        after="\n".join(fold.format("y", name) for name in names) + "\nmov.b32 found, y;",
        threads=WIDE_THREADS,
    )


def chase(cache: str) -> Probe:
    """Return a probe whose loads give the next address; *cache* is PTX's operator, ca or cg."""
    return Probe(
        step=f"ld.global.{cache}.b64 data, [data];", after="cvt.u32.u64 found, data;", repeats=16
    )


_VECTORS = "\n".join(
    f"ld.shared.v4.b32 {{a{i}, b{i}, c{i}, d{i}}}, [at{i}];\n"
    + "\n".join(f"add.u32 at{i}, at{i}, {part}{i};" for part in "abcd")
    for i in range(4)
)
_PLACES = "\n".join(
    f"add.u32 at{i}, at, {512 * i};\nand.b32 at{i}, at{i}, {WIDE_THREADS * 16 - 1};\n"
    f"add.u32 at{i}, at{i}, from;"
    for i in range(4)
)
_LOCAL = "\n".join(
    f"""sub.s32 slot, slot, 1;
and.b32 slot, slot, 15;
mad.wide.u32 from, slot, 16, frame_at;
ld.local.v4.b32 {{{loaded}0, {loaded}1, {loaded}2, {loaded}3}}, [from];
st.local.v4.b32 [to], {{{stored}0, {stored}1, {stored}2, {stored}3}};
mov.b64 to, from;"""
    for loaded, stored in ("ab", "ba")
)
_OWN_LINE = "mad.lo.u32 place, program, {threads}, thread;\nmad.wide.u32 at, place, 128, data;"
"""A separate line for each thread of all programs."""
LINE_SECTORS = 4
APART_BYTES = 4096
"""The distance between the places of two programs, which are in different parts of the L2 cache."""
LOCAL_BYTES_A_STEP, SHARED_BYTES_A_STEP = 64, 64
"""Bytes per thread: loaded and stored, and loaded."""
CODE_INSTRUCTIONS, CODE_LINES = 2048, 2048 * 16 // 128
"""Consecutive instructions, four chains of multiply-adds, and the 128-byte lines that they fill."""

PROBES: Mapping[str, Probe] = MappingProxyType(
    {
        "l1": chase("ca"),
        "l2": chase("cg"),
        "shared": Probe(
            declared=".shared .align 8 .b32 cell;\n.reg .b32 at;",
            before="mov.u32 at, cell;\nst.shared.b32 [at], at;",
            step="ld.volatile.shared.b32 at, [at];",
            after="mov.b32 found, at;",
        ),
        "atomic": Probe(
            declared=".reg .b32 value;",
            before=f"mad.wide.u32 data, program, {APART_BYTES}, data;\n"
            "ld.global.b32 value, [data];\n@!leads bra done;",
            step="atom.global.add.u32 value, [data], value;",
            after="mov.b32 found, value;",
        ),
        "atomic same": Probe(
            declared=".reg .f32 one;",
            before="mov.f32 one, 0f3F800000;\n@!leads bra done;",
            step="red.global.add.f32 [data], one;",
            after="membar.gl;",
        ),
        "atomic apart": Probe(
            declared=".reg .f32 one;\n.reg .b32 place;\n.reg .b64 at;",
            before=f"mov.f32 one, 0f3F800000;\nmad.lo.u32 place, program, {WIDE_THREADS}, thread;\n"
            "mad.wide.u32 at, place, 4, data;",
            step="red.global.add.f32 [at], one;",
            after="membar.gl;",
            threads=WIDE_THREADS,
        ),
        "l2 loads": Probe(
            declared=f".reg .b32 place, x<{LINE_SECTORS}>;\n.reg .b64 at;",
            before=_OWN_LINE.format(threads=WIDE_THREADS),
            step="\n".join(
                f"ld.relaxed.gpu.global.b32 x{i}, [at+{32 * i}];" for i in range(LINE_SECTORS)
            )
            + "".join(f"\nadd.u32 found, found, x{i};" for i in range(LINE_SECTORS)),
            repeats=1,
            threads=WIDE_THREADS,
        ),
        "l2 stores": Probe(
            declared=".reg .b32 place;\n.reg .b64 at;",
            before=_OWN_LINE.format(threads=WIDE_THREADS),
            step="\n".join(f"st.global.b32 [at+{32 * i}], left;" for i in range(LINE_SECTORS)),
            after="membar.gl;",
            repeats=1,
            threads=WIDE_THREADS,
        ),
        "shared bytes": Probe(
            declared=f".shared .align 16 .b8 block[{WIDE_THREADS * 16}];\n"
            ".reg .b32 at<4>, a<4>, b<4>, c<4>, d<4>, at, from;",
            before="mov.u32 from, block;\nshl.b32 at, thread, 4;\n"
            + _PLACES
            + "\nmov.b32 a0, 0;\nst.shared.v4.b32 [at0], {a0, a0, a0, a0};",
            step=_VECTORS,
            after="add.u32 at0, at0, at1;\nadd.u32 at2, at2, at3;\nadd.u32 found, at0, at2;",
            threads=WIDE_THREADS,
        ),
        "local bytes": Probe(
            declared=".shared .align 16 .b8 filler[40960];\n.local .align 16 .b8 frame[256];\n"
            ".reg .b32 slot, a<4>, b<4>;\n.reg .b64 frame_at, from, to;",
            before="mov.u64 frame_at, frame;\nmov.b32 slot, left;\nmov.b64 to, frame_at;\n"
            "mov.b32 a0, filler;\n"
            + "\n".join(
                f"mov.b32 {name}, thread;" for name in ("a1", "a2", "a3", "b0", "b1", "b2", "b3")
            ),
            step=_LOCAL,
            after="\n".join(f"xor.b32 found, found, {part}{i};" for part in "ab" for i in range(4)),
            repeats=1,
            threads=WIDE_THREADS,
        ),
        "fma": _chained(
            "fma.rn.f32 {0}, {0}, y, y;",
            "f32",
            "add.u32 tid, thread, {1};\ncvt.rn.f32.u32 {0}, tid;",
            "add.f32 {0}, {0}, {1};",
        ),
        "integer": _chained(
            "lop3.b32 {0}, {0}, {1}, {2}, 0x96;",
            "b32",
            "mad.lo.u32 {0}, thread, left, {1};",
            "xor.b32 {0}, {0}, {1};",
        ),
        "special": _chained(
            "ex2.approx.ftz.f32 {0}, {0};",
            "f32",
            "add.u32 tid, thread, {1};\ncvt.rn.f32.u32 {0}, tid;",
            "add.f32 {0}, {0}, {1};",
        ),
        "code": Probe(
            declared=".reg .f32 x<4>;",
            before="cvt.rn.f32.u32 x0, program;\n"
            + "\n".join(f"add.f32 x{i + 1}, x{i}, x{i};" for i in range(3)),
            step="\n".join(f"fma.rn.f32 x{i}, x{i}, x{i}, x{i};" for i in range(4)),
            after="\n".join(f"add.f32 x0, x0, x{i};" for i in (1, 2, 3)) + "\nmov.b32 found, x0;",
            repeats=CODE_INSTRUCTIONS // 4,
        ),
    }
)
"""The probes that the clock times, by name."""
FILLER = replace(PROBES["code"], repeats=8 * PROBES["code"].repeats)
"""256 KiB of code, more than an instruction cache holds."""
