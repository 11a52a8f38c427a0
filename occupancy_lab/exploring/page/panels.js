/** A panel for each GPU: its sliders, its multiprocessor, its limits and its cliffs. */

import { drawChip, sayNext } from "./chip.js";
import { drawCliff, tabulateCliff } from "./cliffs.js";
import { slidersOf } from "./controls.js";
import { byId, fillOnce, forgetWidths, html, rich, scroller, setText } from "./dom.js";
import { data, gpus, page, saidOf, schedule, setAmount, setGpus } from "./page.js";

const panels = [];
/** The width from which a side has two columns; style.css has the same one. */
const wide = matchMedia("(min-width: 720px)");

/** Make the panels of the shown GPUs. */
export function makePanels() {
  panels.splice(0);
  forgetWidths();
  for (const place of page.state.sides.keys()) {
    const sliders = slidersOf(place, (field, amount) => setAmount(place, field, amount));
    const parts = {
      title: html("h3"),
      answer: html("p", { class: "answer", "aria-live": "polite" }),
      launch: html("p", { class: "hint" }),
      limits: html("ul", { class: "limitlist", "aria-label": "Limits" }),
      next: html("div"),
      cliffTitle: html("h3"),
      verdict: html("p", { class: "verdict" }),
      pictures: {},
    };
    const { title, answer, launch, limits, next } = parts;
    const panel = html(
      "div",
      { class: "side" },
      title,
      sliders.element,
      answer,
      launch,
      limits,
      next,
    );
    const cliffs = html("div", { class: "cliffs" });
    for (const resource of ["registers", "shared"]) {
      const picture = html("div", { id: `cliff-${resource}-${place}` });
      const steps = scroller("Every step");
      const details = html(
        "details",
        { ontoggle: schedule },
        html("summary", {}, "Every step as a table"),
        steps,
      );
      cliffs.append(html("div", {}, picture, details));
      parts.pictures[resource] = { picture, details, steps };
    }
    panels.push({
      ...parts,
      sliders,
      panel,
      cliffs: html("div", { class: "side" }, parts.cliffTitle, cliffs, parts.verdict),
    });
  }
  const two = panels.length > 1 ? "sides two" : "sides one";
  byId("sides").replaceChildren(...panels.map((one) => one.panel));
  byId("cliffs").replaceChildren(...panels.map((one) => one.cliffs));
  byId("sides").className = two;
  byId("cliffs").className = two;
}

/** Draw the panel of one GPU. */
export function drawSide(place) {
  const { gpu, usage } = page.state.sides[place];
  const { title, multiprocessors } = gpus.get(gpu);
  const said = saidOf(gpu, usage);
  const panel = panels[place];
  const columns = panels.length === 1 && wide.matches ? 2 : 1;
  const { mp } = said.named;
  const { programs } = said.occupancy;
  setText(panel.title, title);
  panel.sliders.show(said.architecture, usage);
  setText(panel.answer, `${said.answer()}.`);
  const launch = multiprocessors
    ? `num_programs that fill the GPU: ${programs} x ${multiprocessors} ${mp}s = ${programs * multiprocessors}.`
    : `The number of ${mp}s is not known: this is an architecture.`;
  setText(panel.launch, launch);
  drawChip(panel.limits, said, columns);
  sayNext(panel.next, said);
  setText(panel.cliffTitle, title);
  const verdict = said.verdict();
  fillOnce(panel.verdict, verdict, () => [
    html("b", {}, "The tutorial's formula: "),
    ...rich(verdict),
  ]);
  for (const [resource, { picture, details, steps }] of Object.entries(panel.pictures)) {
    const field = resource === "registers" ? "n_regs" : "shared";
    const { exact, tutorial } = drawCliff(picture, said, resource, (amount) =>
      setAmount(place, field, amount),
    );
    if (details.open) tabulateCliff(steps, said, resource, exact, tutorial);
  }
  return said;
}

/** The option for no second GPU. */
export const NONE = "none";

/** Return a menu of all GPUs. */
export function gpuSelect(id, text, none) {
  const options = none ? [html("option", { value: NONE }, "none")] : [];
  const groups = { NVIDIA: [], AMD: [], Architectures: [] };
  for (const { key, title, multiprocessors, architecture } of gpus.values()) {
    const group =
      multiprocessors === null && key === architecture
        ? "Architectures"
        : data.architectures[architecture].words.vendor;
    groups[group].push(html("option", { value: key }, title));
  }
  const grouped = Object.entries(groups).map(([label, children]) =>
    html("optgroup", { label }, ...children),
  );
  const select = html("select", { id, onchange: pickGpus }, ...options, ...grouped);
  return html("label", { class: "pick" }, `${text} `, select);
}

function pickGpus() {
  setGpus([byId("gpu").value, byId("beside").value].filter((key) => key !== NONE));
}
