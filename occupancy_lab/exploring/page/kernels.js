/** The page's compiled configurations as a table and a heat map, and a file's rows. */

import { html, table } from "./dom.js";
import { programsOf } from "./evaluate.js";
import { usageOf } from "./state.js";
import { microseconds, percent } from "./words.js";

/** The rows of kernels.json, which stores them as columns. */
export class Kernels {
  constructor(known, gpus) {
    this.known = known;
    this.gpus = gpus;
    const { names, columns } = known;
    this.rows = columns.cols.map((_, place) => {
      const row = {};
      for (const [name, cells] of Object.entries(columns)) {
        row[name] = name in names ? names[name][cells[place]] : cells[place];
      }
      return { ...row, usage: usageOf(row) };
    });
  }

  /** Return the rows of a GPU, or those of another of its architecture, without times. */
  of(gpu) {
    const own = this.rows.filter((row) => row.gpu === gpu);
    if (own.length) return own;
    const { architecture } = this.gpus.get(gpu);
    const twin = this.known.names.gpu.find(
      (key) => this.gpus.get(key).architecture === architecture,
    );
    const untimed = { predicted_us: null, measured_us: null };
    return this.rows.filter((row) => row.gpu === twin).map((row) => ({ ...row, ...untimed }));
  }

  /** Return the row of a configuration on a GPU, or null. */
  find(gpu, kernel) {
    if (!kernel) return null;
    const names = ["kernel", "cols", "dtype", "num_warps", "num_stages"];
    const same = (row) => names.every((name) => row[name] === kernel[name]);
    return this.of(gpu).find(same) ?? null;
  }

  /** Return the distinct values of a column. */
  values(name) {
    return [...new Set(this.rows.map((row) => row[name]))];
  }
}

/** Return bytes over the predicted time as GB/s, or null. */
export function gbs({ bytes, predicted_us: us }) {
  return us ? bytes / us / 1e3 : null;
}

const us = (time) => (time === null ? "-" : microseconds(time));
const measured = (row) =>
  row.measured_us === null ? "not measured" : `${us(row.measured_us)} (${row.measured_programs})`;

/** The columns of the table: the head, the number to sort by, and the text. */
const COLUMNS = [
  ["kernel", (row) => row.kernel, (row) => row.kernel],
  ["warps", (row) => row.num_warps, (row) => String(row.num_warps)],
  ["stages", (row) => row.num_stages, (row) => String(row.num_stages)],
  ["registers", (row) => row.usage.n_regs, spilling],
  ["shared, B", (row) => row.usage.shared, (row) => String(row.usage.shared)],
  ["programs", (row) => row.programs, (row) => String(row.programs)],
  ["occupancy", (row) => row.occupancy, (row) => percent(row.occupancy)],
  ["predicted", (row) => row.predicted_us, (row) => us(row.predicted_us)],
  ["GB/s", (row) => gbs(row), (row) => (gbs(row) === null ? "-" : gbs(row).toFixed(0))],
  ["measured (programs)", (row) => row.measured_us, measured],
];

function spilling(row) {
  return row.n_spills ? `${row.usage.n_regs} (${row.n_spills} spilled)` : String(row.usage.n_regs);
}

/** Return the rows of one matrix on one GPU that fit, sorted by *sort*. */
export function rowsShown(kernels, architecture, { gpu, cols, dtype }, sort) {
  const rows = kernels
    .of(gpu)
    .filter((row) => row.cols === cols && row.dtype === dtype)
    .map((row) => {
      const programs = programsOf(architecture, row.usage);
      return {
        ...row,
        programs,
        occupancy: (programs * row.num_warps) / architecture.numbers.max_warps,
      };
    });
  const [, value] = COLUMNS.find(([name]) => name === sort.by);
  const order = (one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === b) return 0;
    if (a === null || b === null) return a === null ? 1 : -1;
    return (a < b ? -1 : 1) * (sort.down ? -1 : 1);
  };
  return rows.sort(order);
}

const isSame = (row, kernel) =>
  kernel &&
  ["kernel", "num_warps", "num_stages", "cols", "dtype"].every(
    (name) => row[name] === kernel[name],
  );

/** Return the table of *rows*: a row's button calls *choose*, and a head calls *sortBy*. */
export function kernelTable(rows, kernel, sort, { choose, sortBy }) {
  const heads = COLUMNS.map(([name]) => {
    const sorted = sort.by === name ? (sort.down ? "descending" : "ascending") : null;
    const mark = sorted ? (sort.down ? " ↓" : " ↑") : "";
    const button = html(
      "button",
      { type: "button", class: "sort", onclick: () => sortBy(name) },
      name + mark,
    );
    return html("th", { scope: "col", "aria-sort": sorted }, button);
  });
  const body = rows.map((row) => {
    const current = isSame(row, kernel);
    const cells = COLUMNS.slice(1).map(([, , text]) => html("td", {}, text(row)));
    const name = `${row.kernel}, num_warps ${row.num_warps}, num_stages ${row.num_stages}`;
    const button = html(
      "button",
      {
        type: "button",
        "aria-pressed": String(Boolean(current)),
        "aria-label": `Set the sliders to ${name}`,
        onclick: () => choose(row),
      },
      row.kernel,
    );
    return html(
      "tr",
      { class: current ? "current" : null },
      html("th", { scope: "row" }, button),
      ...cells,
    );
  });
  return html(
    "table",
    { class: "kernels" },
    html("thead", {}, html("tr", {}, ...heads)),
    html("tbody", {}, ...body),
  );
}

/** The shades of a heat map: cividis, which looks the same with any colour vision. */
const SHADES = 10;

/** Return GB/s over num_warps and num_stages as a coloured table; a cell calls *choose*. */
export function heatMap(rows, kernel, choose) {
  const speeds = rows.map((row) => gbs(row)).filter((speed) => speed !== null);
  if (!speeds.length) return null;
  const [least, most] = [Math.min(...speeds), Math.max(...speeds)];
  const shade = (speed) =>
    Math.min(SHADES - 1, Math.floor(((speed - least) / (most - least || 1)) * SHADES));
  const columns = [...new Set(rows.map((row) => `${row.kernel} ${row.num_stages}`))].sort();
  const warps = [...new Set(rows.map((row) => row.num_warps))].sort((a, b) => a - b);
  const cell = (row) => {
    if (!row || gbs(row) === null) return html("span", { class: "none" }, "-");
    const current = Boolean(isSame(row, kernel));
    const label = `num_warps ${row.num_warps}, ${row.kernel}, num_stages ${row.num_stages}: ${gbs(row).toFixed(0)} GB/s`;
    const attributes = {
      type: "button",
      class: `heat heat-${shade(gbs(row))}`,
      "aria-pressed": String(current),
      "aria-label": label,
      onclick: () => choose(row),
    };
    return html("button", attributes, gbs(row).toFixed(0));
  };
  const body = warps.map((one) => [
    String(one),
    ...columns.map((column) =>
      cell(
        rows.find((row) => row.num_warps === one && `${row.kernel} ${row.num_stages}` === column),
      ),
    ),
  ]);
  const heads = columns.map((column) => {
    const [name, stages] = column.split(" ");
    return name === "softmax_row" ? "no loop" : `${stages} ${stages === "1" ? "stage" : "stages"}`;
  });
  return table(["warps", ...heads], body, { class: "heatmap" });
}

/** Return the table of a file's rows; a button calls *choose* with the index of its row. */
export function ownTable(rows, architectureOf, choose) {
  const body = rows.map((row, place) => {
    const usage = usageOf(row);
    const architecture = architectureOf(row.gpu);
    const programs = programsOf(architecture, usage);
    const button = html(
      "button",
      { type: "button", onclick: () => choose(place) },
      row.kernel,
    );
    const details = ["cols", "dtype", "BLOCK_SIZE", "num_stages", "constexprs"]
      .filter((name) => row[name])
      .map((name) => `${name} ${row[name]}`);
    return [
      button,
      row.gpu,
      details.join(", ") || "-",
      String(usage.n_regs),
      String(usage.shared),
      String(usage.num_warps),
      String(programs),
      percent((programs * usage.num_warps) / architecture.numbers.max_warps),
      row.predicted_us ? microseconds(row.predicted_us) : "-",
      row.us ? microseconds(row.us) : "-",
    ];
  });
  const heads = [
    "kernel",
    "GPU",
    "of",
    "registers",
    "shared, B",
    "num_warps",
    "programs",
    "occupancy",
    "predicted",
    "measured",
  ];
  return table(heads, body, { class: "kernels own" });
}
