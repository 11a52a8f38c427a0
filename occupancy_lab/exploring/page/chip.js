/** Draws an SM or CU: each pool to scale with its programs, and what is left over or full. */

import { fillOnce, html, rich, scroller, svg, swatches, table, widthOf } from "./dom.js";
import { count } from "./evaluate.js";
import { grouped } from "./words.js";

/** The share of a picture's width that a full pool takes; the rest shows what does not fit. */
const FULL = 0.86;
const ROW = 15;
const GAP = 3;
/** The space between the mark of an item and its picture. */
const PADDING = 28;

/** The numbers of a limit that its pool is drawn from: parts, the size of each, and of a piece. */
const POOLS = {
  NVIDIA: {
    warps: { parts: "register_partitions", size: (n) => n.max_warps / n.register_partitions },
    registers: {
      parts: "register_partitions",
      size: (n) => n.partition,
      piece: (n) => n.registers_per_warp,
    },
    shared: { size: (n) => n.shared_per_multiprocessor, piece: (n) => n.allocated, whole: true },
    programs: { size: (n) => n.max_programs, whole: true },
    barriers: { size: (n) => n.max_barriers, piece: (n) => n.barriers, whole: true },
    tensor_memory: { size: (n) => n.columns_per_sm, piece: (n) => n.allocated, whole: true },
  },
  AMD: {
    warps: { parts: "simds", size: (n) => n.max_waves_per_simd },
    registers: { parts: "simds", size: (n) => n.vgprs_per_simd, piece: (n) => n.vgprs_per_wave },
    sgprs: { parts: "simds", size: (n) => n.sgprs_per_simd, piece: (n) => n.sgprs_per_wave },
    shared: { size: (n) => n.shared_per_multiprocessor, piece: (n) => n.allocated, whole: true },
    programs: { size: (n) => n.max_multiwave_programs, whole: true },
  },
};

/** Return the parts of a limit's pool, the size of each, and the pieces of a program. */
export function poolOf(vendor, limit) {
  const { parts, size, piece, whole } = POOLS[vendor][limit.resource];
  const n = limit.numbers;
  return {
    parts: parts ? n[parts] : 1,
    size: size(n),
    piece: piece ? piece(n) : 1,
    pieces: whole ? 1 : n.num_warps,
  };
}

/** Return how much of a pool is used and how much is left over, in words. */
function leftOver(pool, programs, unit) {
  const all = pool.parts * pool.size;
  const used = programs * pool.pieces * pool.piece;
  const parts = pool.parts > 1 ? ` in ${pool.parts} parts` : "";
  return `${grouped(used)} of ${grouped(all)}${unit}${parts}, ${grouped(all - used)} left over`;
}

/** Return the picture of a pool with *programs* in it, and the outline of the next. */
export function drawPool(pool, programs, width) {
  const row = pool.parts > 1 ? ROW - 3 : ROW + 3;
  const height = pool.parts * (row + GAP) - GAP;
  const scale = (width * FULL) / pool.size;
  const picture = svg("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    "aria-hidden": true,
  });
  const filled = new Array(pool.parts).fill(0);
  for (let part = 0; part < pool.parts; part += 1) {
    const box = { x: 0, y: part * (row + GAP), width: width * FULL, height: row };
    picture.append(svg("rect", { ...box, class: "pool" }));
  }
  const most = Math.ceil((pool.parts * pool.size) / Math.max(pool.piece, 1)) + pool.pieces;
  const pieces = Math.min(programs * pool.pieces, most);
  for (let place = 0; place < pieces + Math.min(pool.pieces, pool.parts); place += 1) {
    const part = place % pool.parts;
    const y = part * (row + GAP);
    const x = filled[part] * scale;
    const program = Math.floor(place / pool.pieces);
    const next = place >= pieces;
    const over = filled[part] + pool.piece > pool.size;
    filled[part] += pool.piece;
    const end = Math.min(x + pool.piece * scale, width - 1);
    if (end - x < 0.25) continue;
    const kind = next ? (over ? "over" : "next") : program % 2 ? "odd" : "even";
    const edge = end - x > 4 ? 1 : 0.25;
    picture.append(
      svg("rect", { x, y, width: Math.max(end - x - edge, 0.25), height: row, class: kind }),
    );
    const first = place % pool.pieces === 0;
    if (!next && first && end - x > 16) {
      const at = { x: (x + end) / 2, y: y + row / 2, class: `number ${kind}` };
      picture.append(svg("text", at, String(program + 1)));
    }
  }
  const end = width * FULL;
  picture.append(svg("line", { x1: end, x2: end, y1: 0, y2: height, class: "end" }));
  return picture;
}

/**
 * Fill *place* with every limit of *said*, in *columns* columns: its programs, its picture and its
 * arithmetic.
 */
export function drawChip(place, said, columns) {
  const { occupancy, architecture } = said;
  const { vendor } = architecture.words;
  const width = widthOf(place) / columns - PADDING;
  const before = shown.get(place) ?? new Map();
  const items = new Map();
  for (const limit of occupancy.limits) {
    const { programs, steps, numbers } = limit;
    const pool = poolOf(vendor, limit);
    const binds = occupancy.limiters.includes(limit.resource);
    const key = JSON.stringify([
      width,
      occupancy.programs,
      numbers.num_warps,
      programs,
      steps,
      pool,
      binds,
    ]);
    const same = before.get(limit.resource);
    items.set(
      limit.resource,
      same?.key === key ? same : { key, element: limitItem(limit, pool, binds, said, width) },
    );
  }
  const changed = [...items.values()].some((item) => ![...before.values()].includes(item));
  shown.set(place, items);
  if (changed || before.size !== items.size) {
    place.replaceChildren(...[...items.values()].map((item) => item.element));
  }
}

/** The items of each list of limits, so that a drag redraws only those that change. */
const shown = new WeakMap();

function limitItem(limit, pool, binds, said, width) {
  const { occupancy, architecture } = said;
  const known = limit.programs !== null;
  const unit = limit.resource === "shared" ? " B" : "";
  return html(
    "li",
    { class: binds ? "limit limits" : "limit", "data-resource": limit.resource },
    html(
      "h4",
      {},
      html("span", { class: "name" }, architecture.resources[limit.resource]),
      known ? ` allows ${count(limit.programs, "program")}` : " no limit",
      binds ? html("strong", { class: "limiter" }, "limiter") : null,
    ),
    known ? drawPool(pool, occupancy.programs, width) : null,
    html("p", { class: "left" }, known ? leftOver(pool, occupancy.programs, unit) : ""),
    html("p", { class: "because" }, known ? limit.steps.join("; ") : said.sentence("no limit")),
  );
}

/** Fill *place* with the next steps: the sentence and the table. */
export function sayNext(place, said) {
  const [sentence, heads, rows] = [said.nextProgram(), said.stepHeads(), said.stepRows()];
  fillOnce(place, JSON.stringify([sentence, heads, rows]), () => [
    html("p", { class: "next-program" }, ...rich(sentence)),
    scroller("The next steps", table(heads, rows)),
  ]);
}

/** Return the legend of the pictures. */
export function chipLegend() {
  const kinds = {
    even: "programs, in alternating shades",
    next: "the next program",
    over: "it does not fit",
    pool: "left over",
  };
  return html("p", { class: "legend" }, "Each pool is drawn to scale: ", ...swatches(kinds));
}
