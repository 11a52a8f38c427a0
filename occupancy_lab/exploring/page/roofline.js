/** Draws the rows of a file under the roofs of their GPU; Python supplies numbers and words. */

import { byId, fillOnce, html, scroller, setText, svg, widthOf } from "./dom.js";
import { chooseOwn, data, ownChosen, page } from "./page.js";

const HEIGHT = 360;
const EDGES = { left: 52, right: 12, top: 22, bottom: 40 };
/** The least distance between the labels of two roofs, in pixels. */
const LINE = 11;

/** Return the pictures of the first GPU, or of the file's first one, by each kind of time. */
function picturesOf(gpu) {
  const own = data.rooflines.filter((one) => one.gpu === gpu);
  return own.length ? own : data.rooflines.filter((one) => one.gpu === data.rooflines[0].gpu);
}

/** Draw the roofline of the file's rows, if there are any, and mark the chosen one. */
export function drawRoofline() {
  if (!data.own) return;
  const place = byId("roofline");
  if (!data.rooflines.length) {
    const none =
      "No roofline: no row has FLOPs, bytes of device memory, a time and a GPU with known rates.";
    fillOnce(place, none, () => [html("p", { class: "hint" }, none)]);
    return;
  }
  const pictures = picturesOf(page.state.sides[0].gpu);
  const shown = pictures.find((one) => one.basis === page.basis) ?? pictures[0];
  const width = widthOf(place);
  fillOnce(place, `${shown.gpu} ${shown.basis} ${width}`, () => [
    html("h3", {}, `The roofline: ${shown.title}`),
    html("p", { class: "hint" }, shown.caption),
    pictures.length > 1 ? basisSelect(pictures, shown) : "",
    pictureOf(shown, width),
    html("p", { id: "roofline-says", class: "hint" }),
    html(
      "details",
      {},
      html("summary", {}, "The points as a list"),
      scroller("The points", listOf(shown)),
    ),
  ]);
  markChosen(shown);
}

function basisSelect(pictures, shown) {
  const options = pictures.map(({ basis }) =>
    html("option", { value: basis, selected: basis === shown.basis }, basis),
  );
  const pick = (event) => {
    page.basis = event.target.value;
    drawRoofline();
    byId("basis").focus();
  };
  const select = html("select", { id: "basis", onchange: pick }, ...options);
  return html("label", { class: "pick" }, "Times ", select);
}

/** Return functions that convert FLOPs per byte and FLOPs per second to pixels. */
function scalesOf({ left, right, bottom, top }, width) {
  const share = (value, from, to) => Math.log(value / from) / Math.log(to / from);
  const inner = width - EDGES.left - EDGES.right;
  const high = HEIGHT - EDGES.top - EDGES.bottom;
  return {
    x: (value) => EDGES.left + inner * share(value, left, right),
    y: (value) => EDGES.top + high * (1 - share(value, bottom, top)),
  };
}

function pictureOf(shown, width) {
  const scales = scalesOf(shown.frame, width);
  return svg(
    "svg",
    {
      width,
      height: HEIGHT,
      viewBox: `0 0 ${width} ${HEIGHT}`,
      role: "group",
      "aria-label": `The roofline: ${shown.title}. ${shown.lines.map((line) => line.words).join("; ")}`,
      class: "roofline",
    },
    ...axesOf(shown, width, scales),
    ...roofsOf(shown, width, scales),
    ...shown.points.map((point) => pointOf(point, width, scales)),
  );
}

function axesOf({ frame, ticks }, width, { x, y }) {
  const [across, up] = ticks;
  const grid = (x1, y1, x2, y2) => svg("line", { x1, y1, x2, y2, class: "grid" });
  const [left, right] = [x(frame.left), x(frame.right)];
  const [bottom, top] = [y(frame.bottom), y(frame.top)];
  return [
    ...across.flatMap(([at, words]) => [
      grid(x(at), bottom, x(at), top),
      svg("text", { x: x(at), y: bottom + 14, class: "tick middle" }, words),
    ]),
    ...up.flatMap(([at, words]) => [
      grid(left, y(at), right, y(at)),
      svg("text", { x: left - 6, y: y(at), class: "tick end" }, words),
    ]),
    svg("text", { x: 4, y: 12, class: "title" }, "FLOPs per second"),
    svg(
      "text",
      { x: (left + right) / 2, y: HEIGHT - 7, class: "title middle" },
      "FLOPs per byte of device memory",
    ),
  ];
}

/** Return the roofs, the bandwidth's first; of rates too close together only one has a label. */
function roofsOf({ lines }, width, { x, y }) {
  let above = -Infinity;
  return lines.flatMap(({ words, start, end }, place) => {
    const [x1, y1, x2, y2] = [x(start[0]), y(start[1]), x(end[0]), y(end[1])];
    const line = svg("line", { x1, y1, x2, y2, class: "roof" }, svg("title", {}, words));
    if (!place) {
      const at = { x: EDGES.left + 4, y: HEIGHT - EDGES.bottom - 6, class: "tick" };
      return [line, svg("text", at, words)];
    }
    if (y2 - above < LINE) return [line];
    above = y2;
    return [line, svg("text", { x: x2, y: y2 - 6, class: "tick end" }, words)];
  });
}

/** Return the point of a row, with its name beside it on hover and focus. */
function pointOf(point, width, { x, y }) {
  const { row, place, radius, name, words } = point;
  const [cx, cy] = [x(place[0]), y(place[1])];
  const onRight = cx > width / 2;
  const beside = onRight ? cx - radius - 6 : cx + radius + 6;
  const say = () => setText(byId("roofline-says"), words);
  const attributes = {
    class: "point",
    "data-row": row,
    role: "button",
    tabindex: 0,
    "aria-label": `Set the sliders to ${words}`,
    onpointerenter: say,
    onfocus: say,
    onclick: () => chooseOwn(row),
    onkeydown: (event) => {
      if (![" ", "Enter"].includes(event.key)) return;
      event.preventDefault();
      chooseOwn(row);
    },
  };
  return svg(
    "g",
    attributes,
    svg("title", {}, words),
    svg("circle", { cx, cy, r: radius }),
    svg("text", { x: beside, y: cy + 4, class: onRight ? "mark end" : "mark" }, name),
  );
}

/** Return a ring that shows a point even if others cover it. */
function ringAround(circle) {
  const [cx, cy, r] = ["cx", "cy", "r"].map((name) => Number(circle.getAttribute(name)));
  return svg("circle", { cx, cy, r: r + 3, class: "ring" });
}

/** Mark the point of the row that the sliders are set to, and name it. */
function markChosen({ points }) {
  const chosen = ownChosen();
  const picture = byId("roofline").querySelector("svg");
  picture.querySelector(".ring")?.remove();
  for (const point of picture.querySelectorAll(".point")) {
    const pressed = point.dataset.row === String(chosen);
    point.setAttribute("aria-pressed", String(pressed));
    if (pressed) picture.append(ringAround(point.querySelector("circle")));
  }
  const words = points.find((point) => point.row === chosen)?.words;
  setText(byId("roofline-says"), words ?? "Choose a point to set the sliders to its row.");
}

function listOf({ points }) {
  return html("ul", {}, ...points.map(({ words }) => html("li", {}, words)));
}
