/** Draws occupancy over registers and over shared memory: staircases, the point, the next steps. */

import { count, programsOf, staircase, tutorialPrograms, usageWith } from "./evaluate.js";
import { html, svg, swatches, table, widthOf } from "./dom.js";
import { grouped, percent } from "./words.js";

const HEIGHT = 220;
const EDGES = { left: 44, right: 26, top: 26, bottom: 40 };
/** The highest occupancy that the picture shows: the tutorial's formula exceeds 1. */
const TOP = 1.3;

/** Return the largest amount that the picture of *resource* shows. */
function mostOf(said, resource) {
  const { numbers } = said.architecture;
  if (resource === "shared") return Math.max(numbers.max_shared, said.usage.shared);
  const most = numbers.max_registers_per_thread ?? numbers.max_vgprs;
  return Math.max(most, said.usage.n_regs);
}

/** Return the points of a line of stairs, as an SVG path. */
function pathOf(stairs, most, x, y) {
  const parts = [];
  stairs.forEach(([amount, programs], place) => {
    const end = place + 1 < stairs.length ? stairs[place + 1][0] : most;
    parts.push(`${place ? "V" : `M${x(amount).toFixed(1)},`}${y(programs).toFixed(1)}`);
    parts.push(`H${x(end).toFixed(1)}`);
  });
  return parts.join("");
}

const known = new WeakMap();

/** Return both lines of a picture; they do not change while a drag moves along them. */
function stairsOf(place, said, resource, most) {
  const { architecture, usage } = said;
  const key = JSON.stringify([architecture.numbers, usageWith(usage, resource, 0), most]);
  if (known.get(place)?.key !== key) {
    const says = (one, asked) => tutorialPrograms(one, asked) ?? 0;
    const exact = staircase(architecture, usage, resource, most);
    known.set(place, {
      key,
      exact,
      tutorial: staircase(architecture, usage, resource, most, says),
    });
  }
  return known.get(place);
}

/** Draw the picture of *resource*; *choose* is called with the amount that a pointer is at. */
export function drawCliff(place, said, resource, choose) {
  const { architecture, usage, occupancy } = said;
  const most = mostOf(said, resource);
  const width = widthOf(place);
  const inner = {
    width: width - EDGES.left - EDGES.right,
    height: HEIGHT - EDGES.top - EDGES.bottom,
  };
  const x = (amount) => EDGES.left + (inner.width * amount) / most;
  const share = (programs) => (programs * usage.num_warps) / occupancy.maxWarps;
  const y = (programs) =>
    EDGES.top + inner.height * (1 - Math.min(share(programs), TOP + 0.2) / TOP);
  const stairs = stairsOf(place, said, resource, most);
  const { exact, tutorial } = stairs;
  const now = resource === "registers" ? usage.n_regs : usage.shared;
  const step = said.steps.find((one) => one.resource === resource);
  const unit = architecture.units[resource];
  const label = `${architecture.resources[resource]} of ${now}: ${said.answer()}`;
  const key = JSON.stringify([width, unit, label, step]);
  if (stairs.drawn === key) return stairs;
  stairs.drawn = key;
  const picture = svg("svg", {
    width,
    height: HEIGHT,
    viewBox: `0 0 ${width} ${HEIGHT}`,
    role: "img",
    "aria-label": `Occupancy over ${unit}, at ${label}. The table below has every step.`,
    class: "cliff",
  });
  const clip = `clip-${place.id}`;
  picture.append(
    svg(
      "clipPath",
      { id: clip },
      svg("rect", {
        x: EDGES.left,
        y: EDGES.top - 6,
        width: inner.width,
        height: HEIGHT - EDGES.top - EDGES.bottom + 8,
      }),
    ),
    ...axes({
      width,
      inner,
      most,
      x,
      unit,
      share: (one) => EDGES.top + inner.height * (1 - one / TOP),
    }),
    svg("path", {
      d: pathOf(tutorial, most, x, y),
      class: "tutorial",
      "clip-path": `url(#${clip})`,
    }),
    svg("path", { d: pathOf(exact, most, x, y), class: "exact", "clip-path": `url(#${clip})` }),
    ...stepMarks({ said, step, x, y, resource, width }),
    svg("line", {
      x1: x(now),
      x2: x(now),
      y1: EDGES.top,
      y2: HEIGHT - EDGES.bottom,
      class: "here",
    }),
    svg("circle", { cx: x(now), cy: y(occupancy.programs), r: 6, class: "here" }),
  );
  const at = (event) => {
    const box = picture.getBoundingClientRect();
    const amount = ((event.clientX - box.left - EDGES.left) / inner.width) * most;
    choose(Math.round(Math.min(most, Math.max(resource === "registers" ? 1 : 0, amount))));
  };
  place.onpointerdown = (event) => {
    place.setPointerCapture?.(event.pointerId);
    at(event);
  };
  place.onpointermove = (event) => event.buttons && at(event);
  place.replaceChildren(picture);
  return { exact, tutorial };
}

function axes({ width, inner, most, x, unit, share }) {
  const bottom = HEIGHT - EDGES.bottom;
  const parts = [0, 0.25, 0.5, 0.75, 1].flatMap((one) => [
    svg("line", {
      x1: EDGES.left,
      x2: EDGES.left + inner.width,
      y1: share(one),
      y2: share(one),
      class: "grid",
    }),
    svg("text", { x: EDGES.left - 6, y: share(one), class: "tick end" }, percent(one)),
  ]);
  const ticks = [16, 32, 64, 128, 256, 16384, 32768, 65536].find(
    (one) => most / one <= (width < 420 ? 4 : 8),
  );
  for (let tick = 0; tick <= most; tick += ticks) {
    const text = tick >= 1024 ? `${tick / 1024} KiB` : String(tick);
    parts.push(svg("text", { x: x(tick), y: bottom + 14, class: "tick middle" }, text));
  }
  const title = { x: EDGES.left + inner.width / 2, y: HEIGHT - 7, class: "title middle" };
  return [
    ...parts,
    svg("text", title, unit),
    svg("text", { x: 4, y: 12, class: "title" }, "occupancy"),
  ];
}

/** Return the marks of the next step on either side, each with its amount and its programs. */
function stepMarks({ said, step, x, y, resource, width }) {
  const marks = [];
  const more = step.more !== null && step.more < step.now ? step.more : null;
  for (const amount of [more, step.fewer]) {
    if (amount === null) continue;
    const programs = programsOf(said.architecture, usageWith(said.usage, resource, amount));
    const text = `${grouped(amount)}: ${count(programs, "program")}`;
    // Stairs go down, so that above and to the right of a step is free.
    const end = x(amount) + 9 + text.length * 6.4 > width;
    const from = { x: end ? width - 2 : x(amount) + 9, y: y(programs) - 7 };
    marks.push(
      svg("circle", { cx: x(amount), cy: y(programs), r: 4, class: "step" }),
      svg("text", { ...from, class: end ? "mark end" : "mark" }, text),
    );
  }
  return marks;
}

/** Fill *place* with the steps of a staircase, as a table. */
export function tabulateCliff(place, said, resource, exact, tutorial) {
  const unit = said.architecture.units[resource];
  const { num_warps: warps } = said.usage;
  const rows = exact.map(([amount, programs], at) => {
    const end = at + 1 < exact.length ? exact[at + 1][0] - 1 : null;
    const says = tutorial.findLast(([from]) => from <= amount);
    return [
      end === null ? `${grouped(amount)} or more` : `${grouped(amount)} to ${grouped(end)}`,
      String(programs),
      percent((programs * warps) / said.occupancy.maxWarps),
      says ? String(says[1]) : "-",
    ];
  });
  const heads = [unit, "programs", "occupancy", "tutorial, at the first"];
  place.replaceChildren(table(heads, rows));
}

/** Return what the two lines of the pictures are. */
export function cliffLegend() {
  return html(
    "p",
    { class: "legend" },
    ...swatches({
      exact: "what fits",
      tutorial: "the tutorial's formula",
      here: "now: drag it",
      step: "the next step on either side",
    }),
  );
}
