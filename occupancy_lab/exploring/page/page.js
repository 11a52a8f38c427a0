/** The page's data, its state, and the functions that change the state. */

import { byId } from "./dom.js";
import { Kernels } from "./kernels.js";
import { FIELDS, addressOf, firstState, usageOf } from "./state.js";
import { Said } from "./words.js";

export const data = JSON.parse(byId("data").textContent);
for (const architecture of Object.values(data.architectures)) {
  architecture.family = data.families[architecture.family];
}
export const gpus = new Map(data.gpus.map((gpu) => [gpu.key, gpu]));
export const kernels = new Kernels(data.kernels, gpus);

/** The rows of the matrix of every compiled kernel. */
export const ROWS = data.kernels.rows;

/** The state, what the address leaves out, and the function that draws, which main.js sets. */
export const page = {
  state: firstState(),
  sort: { by: "predicted", down: false },
  time: Infinity,
  basis: null,
  render() {},
};

/** Return the architecture of a GPU. */
export function architectureOf(gpu) {
  return data.architectures[gpus.get(gpu).architecture];
}

/** Return the sentences about a usage on a GPU or an architecture. */
export function saidOf(gpu, usage) {
  return new Said(data, architectureOf(gpu), usage);
}

/** Apply *changes* and redraw at the next frame; the address follows when nothing moves. */
export function change(changes) {
  page.state = { ...page.state, ...changes };
  schedule();
}

let frame = 0;
let writing = 0;

/** Redraw at the next frame, and write the address when nothing moves any more. */
export function schedule() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    page.render();
  });
  clearTimeout(writing);
  writing = setTimeout(writeAddress, 150);
}

/** Write the state into the address. */
export function writeAddress() {
  history.replaceState(null, "", `#${addressOf(page.state)}`);
}

/** Set one amount on one side, or on both. */
export function setAmount(place, field, amount) {
  const sides = page.state.sides.map((side, at) => {
    if (at !== place && !page.state.together) return side;
    const padded = field === "n_regs" ? { allocated_vgprs: null } : {};
    return { ...side, usage: { ...side.usage, ...padded, [field]: amount } };
  });
  change({ sides });
}

/** Return the usage of the chosen kernel on a GPU, or that of its sliders. */
function usageFor(gpu, kernel, usage) {
  return kernels.find(gpu, kernel)?.usage ?? usage;
}

/** Show these GPUs; if the sliders are at a kernel, each shows what it compiles to there. */
export function setGpus(keys) {
  const standing = stands(0);
  const sides = keys.map((gpu, place) => {
    const { usage } = page.state.sides[place] ?? page.state.sides[0];
    return { gpu, usage: standing ? usageFor(gpu, page.state.kernel, usage) : usage };
  });
  change({ sides });
}

/** Set the sliders of every side to a compiled kernel. */
export function setKernel(kernel, others = {}) {
  const { kernel: name, cols, dtype, num_warps: warps, num_stages: stages } = kernel;
  const chosen = { kernel: name, cols, dtype, num_warps: warps, num_stages: stages };
  const sides = (others.sides ?? page.state.sides).map((side) => ({
    ...side,
    usage: usageFor(side.gpu, chosen, side.usage),
  }));
  page.time = Infinity;
  change({ ...others, kernel: chosen, sides });
}

/** Return whether the sliders of a side equal its compiled kernel. */
export function stands(place) {
  const { gpu, usage } = page.state.sides[place];
  const row = kernels.find(gpu, page.state.kernel);
  return row !== null && isSameUsage(row.usage, usage);
}

function isSameUsage(one, other) {
  return Object.keys(FIELDS).every((name) => one[name] === other[name]);
}

/** Show a row of the user's own file. */
export function chooseOwn(own) {
  const { gpu } = data.own[own];
  const side = { gpu, usage: usageOf(data.own[own]) };
  change({ own, sides: [side, ...page.state.sides.slice(1)] });
}

/** Return the chosen row of the user's own file, or null if the sliders were moved since. */
export function ownChosen() {
  const { own, sides } = page.state;
  const row = data.own?.[own];
  const stand = row?.gpu === sides[0].gpu && isSameUsage(usageOf(row), sides[0].usage);
  return stand ? own : null;
}
