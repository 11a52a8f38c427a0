/** The state of the page as one object, and as the address after #. */

/** The fields of a usage: their name in the address, and their default. */
export const FIELDS = {
  n_regs: { key: "regs", plain: 32 },
  shared: { key: "shared", plain: 0 },
  num_warps: { key: "warps", plain: 8 },
  static_shared: { key: "static", plain: 0 },
  barriers: { key: "barriers", plain: null },
  sgprs: { key: "sgprs", plain: null },
  tensor_memory: { key: "tensor", plain: null },
  allocated_vgprs: { key: "vgprs", plain: null },
};
const MOST = 2 ** 31 - 1;

/** Return a usage with *fields*, and defaults for the others. */
export function usageOf(fields) {
  const entries = Object.entries(FIELDS).map(([name, { plain }]) => [name, fields[name] ?? plain]);
  const usage = Object.fromEntries(entries);
  return { ...usage, num_warps: Math.max(1, usage.num_warps) };
}

/** Return the initial state. */
export function firstState() {
  return {
    sides: [{ gpu: "h100", usage: usageOf({}) }],
    together: true,
    kernel: { kernel: "softmax", cols: 781, dtype: "float32", num_warps: 8, num_stages: 4 },
    overfull: false,
    lesson: 0,
    own: null,
  };
}

/** Return the address of *state*, without the #. */
export function addressOf(state) {
  const { sides, kernel } = state;
  const parts = [["gpu", sides.map((side) => side.gpu).join(",")]];
  for (const [name, { key, plain }] of Object.entries(FIELDS)) {
    const amounts = sides.map((side) => side.usage[name]);
    const always = ["n_regs", "shared", "num_warps"].includes(name);
    if (always || amounts.some((amount) => amount !== plain)) {
      parts.push([key, amounts.map((amount) => amount ?? "-").join(",")]);
    }
  }
  if (kernel) {
    const { kernel: name, cols, dtype, num_warps: warps, num_stages: stages } = kernel;
    parts.push(["kernel", [name, cols, dtype, warps, stages].join("/")]);
  }
  if (!state.together) parts.push(["apart", "1"]);
  if (state.overfull) parts.push(["toomany", "1"]);
  if (state.own !== null) parts.push(["row", String(state.own)]);
  if (state.lesson) parts.push(["lesson", String(state.lesson)]);
  return parts.map(([name, value]) => `${name}=${encodeURI(value)}`).join("&");
}

/** Return the state that *address* describes, or null; invalid parts are ignored. */
export function stateOf(address, gpus) {
  const asked = new URLSearchParams(address.replace(/^#/, ""));
  const known = (asked.get("gpu") ?? "").split(",").filter((key) => gpus.has(key));
  if (!known.length) return null;
  const sides = known.slice(0, 2).map((gpu, place) => ({ gpu, usage: usageAt(asked, place) }));
  return {
    sides,
    together: asked.get("apart") !== "1",
    kernel: kernelOf(asked.get("kernel")),
    overfull: asked.get("toomany") === "1",
    lesson: wholeOf(asked.get("lesson")) ?? 0,
    own: wholeOf(asked.get("row")),
  };
}

function usageAt(asked, place) {
  const fields = {};
  for (const [name, { key, plain }] of Object.entries(FIELDS)) {
    const cells = (asked.get(key) ?? "").split(",");
    const cell = cells[place] ?? cells[0];
    fields[name] = cell === "-" ? null : (wholeOf(cell) ?? plain);
  }
  return usageOf(fields);
}

/** Return the integer in a text if it is 0 or more, else null. */
export function wholeOf(text) {
  return /^\d{1,10}$/.test(text ?? "") ? Math.min(Number(text), MOST) : null;
}

function kernelOf(text) {
  const [kernel, cols, dtype, warps, stages] = (text ?? "").split("/");
  const numbers = [cols, warps, stages].map(wholeOf);
  if (!kernel || !dtype || numbers.includes(null)) return null;
  return { kernel, cols: numbers[0], dtype, num_warps: numbers[1], num_stages: numbers[2] };
}

/** Return the command that prints in a terminal what the page shows. *compiled* tells whether the
 * page shows a compiled kernel; *optionalOf* returns the fields that only some GPUs have. */
export function commandOf(state, compiled, optionalOf) {
  const gpus = state.sides.map((side) => side.gpu).join(",");
  if (compiled) {
    const { kernel, cols, dtype, num_warps: warps, num_stages: stages } = state.kernel;
    const named = `--kernel ${kernel} --dtype ${dtype} --num-warps ${warps} --num-stages ${stages}`;
    return `occupancy-lab explain --cols ${cols} --gpu ${gpus} ${named}`;
  }
  const usages = state.sides.map(({ gpu, usage }) => optionsOf(usage, optionalOf(gpu)));
  const alike = usages.every((options) => options === usages[0]);
  if (alike) return `occupancy-lab occupancy --gpu ${gpus} ${usages[0]}`;
  return state.sides
    .map(({ gpu }, place) => `occupancy-lab occupancy --gpu ${gpu} ${usages[place]}`)
    .join(" && ");
}

function optionsOf(usage, optional) {
  return Object.entries(usage)
    .filter(([name, amount]) => amount !== null && name !== "allocated_vgprs")
    .filter(([name]) => FIELDS[name].plain !== null || optional.includes(name))
    .filter(([name, amount]) => name !== "static_shared" || amount > 0)
    .map(([name, amount]) => `--${name.replaceAll("_", "-")} ${amount}`)
    .join(" ");
}
