/** Seven steps for a newcomer. Each sets the sliders; each number is worked out or looked up. */

import { listed, microseconds, percent } from "./words.js";
import { count, usageWith } from "./evaluate.js";
import { gbs } from "./kernels.js";

const TUTORIAL = { kernel: "softmax", cols: 781, dtype: "float32", num_warps: 8, num_stages: 4 };
const bytes = { float32: 4, bfloat16: 2 };
const time = (row) => microseconds(row.predicted_us);
const block = (cols) => 2 ** Math.ceil(Math.log2(cols));

/** A step: its title, the GPUs and kernel that it sets, and its paragraphs. */
export const STEPS = [
  {
    title: "Why one row per program",
    gpus: ["h100"],
    kernel: TUTORIAL,
    says({ row, rows }) {
      const one = row("h100", TUTORIAL);
      const { cols, dtype } = TUTORIAL;
      const size = cols * bytes[dtype];
      return [
        `A softmax needs the largest element and the sum of a whole row. A program that has the row in registers, ${cols} elements or ${size} B, reads it once and writes it once: ${(one.bytes / 1e6).toFixed(1)} MB for ${rows} rows. A program with half a row would have to wait for the other half.`,
        `So each block in the picture is one program with one row. At ${time(one)} this launch moves ${gbs(one).toFixed(0)} GB/s; the question of this page is how many such programs run at once, and what stops the next one.`,
      ];
    },
  },
  {
    title: "Why a power of two",
    gpus: ["h100"],
    kernel: TUTORIAL,
    says({ row, lanes }) {
      const one = row("h100", TUTORIAL);
      const size = block(TUTORIAL.cols);
      const threads = TUTORIAL.num_warps * lanes("h100");
      return [
        `Triton's blocks have a power of two elements, so that they split evenly over warps, threads and the halving steps of a sum. A row of ${TUTORIAL.cols} takes BLOCK_SIZE ${one.BLOCK_SIZE}.`,
        `${TUTORIAL.num_warps} warps are ${threads} threads, and each has ${size / threads} of the ${size} elements. Its ${one.usage.n_regs} registers hold these, and addresses, and the copies under way.`,
      ];
    },
  },
  {
    title: "What a masked lane costs",
    gpus: ["h100"],
    kernel: { ...TUTORIAL, cols: block(TUTORIAL.cols) },
    says({ row }) {
      const masked = row("h100", TUTORIAL);
      const { cols } = TUTORIAL;
      const whole = row("h100", { ...TUTORIAL, cols: block(cols) });
      const idle = block(cols) - cols;
      return [
        `Of the ${block(cols)} lanes of a row of ${cols}, ${idle} (${percent(idle / block(cols))}) are masked: they load nothing, yet take registers and issue every instruction.`,
        `The sliders now stand at ${block(cols)} columns, the same block with no lane masked: ${whole.usage.n_regs} registers against ${masked.usage.n_regs}. It moves ${percent(whole.bytes / masked.bytes - 1)} more bytes in ${time(whole)} against ${time(masked)}: ${gbs(whole).toFixed(0)} GB/s against ${gbs(masked).toFixed(0)}. Masked lanes cost time, not correctness. A part of the gain is that rows of ${block(cols)} are aligned, so that loads are wider.`,
      ];
    },
  },
  {
    title: "What warps do",
    gpus: ["h100"],
    kernel: TUTORIAL,
    says({ row, said }) {
      const parts = [4, 8, 16].map((warps) => {
        const one = row("h100", { ...TUTORIAL, num_warps: warps });
        const found = said("h100", one.usage).occupancy;
        return [
          String(warps),
          String(one.usage.n_regs),
          String(found.programs),
          percent(found.warps / found.maxWarps),
          time(one),
        ];
      });
      const fine = said("h100", { ...row("h100", TUTORIAL).usage, n_regs: 32 });
      const edge = fine.steps.find((one) => one.resource === "registers").fewer;
      const alone = said("h100", usageWith(fine.usage, "registers", edge));
      return [
        `More warps share the row among more threads, so each needs fewer registers, but a program takes more of the warp slots. More resident warps do not mean less time: a reduction crosses more warps.`,
        [["warps", "registers", "programs", "occupancy", "time"], parts],
        `Drag the registers from ${fine.usage.n_regs} to ${edge} with ${fine.usage.num_warps} warps: ${fine.occupancy.programs} programs become ${alone.occupancy.programs}. The reason is the arithmetic of the registers: ${alone.occupancy.limits.find((one) => one.resource === "registers").steps.join("; ")}.`,
      ];
    },
  },
  {
    title: "What stages cost on each vendor",
    gpus: ["h100", "mi300x"],
    kernel: { ...TUTORIAL, num_stages: 4 },
    says({ row, said, resource }) {
      const list = (gpu) =>
        [1, 2, 3, 4].map((stages) => {
          const one = row(gpu, { ...TUTORIAL, num_stages: stages });
          const found = said(gpu, one.usage).occupancy;
          return [stages, one.usage.n_regs, one.usage.shared, found.programs]
            .map(String)
            .concat(time(one));
        });
      const step = (gpu, name) =>
        row(gpu, { ...TUTORIAL, num_stages: 4 }).usage[name] -
        row(gpu, { ...TUTORIAL, num_stages: 3 }).usage[name];
      const limits = (gpu) =>
        listed(
          said(gpu, row(gpu, TUTORIAL).usage).occupancy.limiters.map((name) => resource(gpu, name)),
        );
      return [
        `num_stages copies rows ahead. On an H100 the rows ahead wait in shared memory. A fourth stage costs ${step("h100", "shared")} B and ${step("h100", "n_regs")} registers more than three.`,
        [["stages", "registers", "shared, B", "programs", "time"], list("h100")],
        `On an MI300X the rows ahead wait in registers instead. A fourth stage costs ${step("mi300x", "n_regs")} VGPRs and ${step("mi300x", "shared")} B of LDS more than three. Four stages are limited by ${limits("h100")} on the H100 and by ${limits("mi300x")} on the MI300X.`,
        [["stages", "VGPRs", "LDS, B", "programs", "time"], list("mi300x")],
      ];
    },
  },
  {
    title: "Why num_programs",
    gpus: ["h100"],
    kernel: TUTORIAL,
    overfull: true,
    says({ row, said, gpu, tooMany, rows }) {
      const one = row("h100", TUTORIAL);
      const { programs } = said("h100", one.usage).occupancy;
      const sms = gpu("h100").multiprocessors;
      return [
        `A persistent kernel launches as many programs as run at once, ${programs} per SM x ${sms} SMs = ${programs * sms}, and each loops over its rows of the ${rows}. Fewer leave places empty.`,
        `${tooMany("h100", one)} That is why the count has to be exact: see it in the launch in time.`,
      ];
    },
  },
  {
    title: "Why AMD differs",
    gpus: ["h100", "mi300x"],
    kernel: { ...TUTORIAL, num_stages: 2 },
    says({ row, said, numbers, resource }) {
      const kernel = { ...TUTORIAL, num_stages: 2 };
      const one = row("mi300x", kernel);
      const { occupancy } = said("mi300x", one.usage);
      const amd = numbers("mi300x");
      const nvidia = numbers("h100");
      const registers = occupancy.limits.find((limit) => limit.resource === "registers");
      return [
        `A CU of the MI300X is ${amd.simds} SIMDs with ${amd.max_waves_per_simd} waves each, ${amd.max_warps} waves of ${amd.warp_size} lanes; an SM of the H100 has ${nvidia.max_warps} warps of ${nvidia.warp_size}. The same ${kernel.num_warps} warps are twice the threads, so each has half the elements: ${one.usage.n_regs} VGPRs.`,
        `Its registers would allow ${count(registers.programs, "program")}; ${occupancy.programs} run, limited by ${listed(occupancy.limiters.map((name) => resource("mi300x", name)))}. Registers come ${amd.vgpr_granule} at a time per lane there and ${nvidia.register_unit} at a time per warp here, so the cliffs lie elsewhere.`,
      ];
    },
  },
];
