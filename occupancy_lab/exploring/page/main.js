/** Puts the page together: redraws it after changes, and handles the buttons at its top. */

import { chipLegend } from "./chip.js";
import { cliffLegend } from "./cliffs.js";
import { byId, fillOnce, forgetWidths, html } from "./dom.js";
import { occupancyOf } from "./evaluate.js";
import { drawLesson } from "./guide.js";
import {
  architectureOf,
  change,
  data,
  gpus,
  ownChosen,
  page,
  saidOf,
  schedule,
  setKernel,
  stands,
  writeAddress,
} from "./page.js";
import { NONE, drawSide, gpuSelect, makePanels } from "./panels.js";
import { drawTime, nextPass, play, showWhole } from "./player.js";
import { drawRoofline } from "./roofline.js";
import { drawKernels, drawOwn } from "./shelf.js";
import { commandOf, stateOf, usageOf } from "./state.js";
import { timelineLegend } from "./timeline.js";

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
let themeTurned = false;

const drawn = { kernels: null, roofline: null, time: null, lesson: null, sides: 0 };

/** Redraw what has changed. */
function render() {
  if (drawn.sides !== page.state.sides.length) makePanels();
  drawn.sides = page.state.sides.length;
  byId("gpu").value = page.state.sides[0].gpu;
  byId("beside").value = page.state.sides[1]?.gpu ?? NONE;
  byId("together").checked = page.state.together;
  byId("together").closest("label").hidden = page.state.sides.length < 2;
  byId("too-many").checked = page.state.overfull;
  for (const place of page.state.sides.keys()) drawSide(place);
  const [{ gpu, usage }] = page.state.sides;
  const { programs } = occupancyOf(architectureOf(gpu), usage);
  const keys = {
    kernels: JSON.stringify([gpu, page.state.kernel, page.sort]),
    roofline: JSON.stringify([gpu, ownChosen()]),
    time: JSON.stringify([
      ...[gpu, programs, stands(0), page.state.kernel, page.state.overfull],
      ownChosen(),
    ]),
    lesson: String(page.state.lesson),
  };
  const draw = { kernels: drawKernels, roofline: drawRoofline, time: drawTime, lesson: drawLesson };
  for (const [name, key] of Object.entries(keys)) {
    if (drawn[name] === key) continue;
    drawn[name] = key;
    draw[name]();
  }
  const compiled = page.state.sides.every((_, place) => stands(place));
  const command = commandOf(page.state, compiled, (gpu) => architectureOf(gpu).family.optional);
  const parts = command.split(/(?= --| &&)/);
  fillOnce(byId("command"), command, () => parts.map((part) => html("span", {}, part)));
}

/** Redraw everything, after a change of width or colours. */
function renderAll() {
  forgetWidths();
  Object.assign(drawn, { kernels: null, roofline: null, time: null, lesson: null });
  schedule();
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    byId("copied").textContent = `${what} is copied.`;
  } catch {
    const field = html("textarea", { readonly: true, rows: 2, "aria-label": what }, text);
    byId("copied").replaceChildren("The browser does not allow copying; here it is: ", field);
    field.select();
  }
}

function readAddress() {
  const found = stateOf(location.hash, gpus);
  if (found) change(found);
  return found !== null;
}

/** Show the colours that the system prefers, or the other ones if the button was pressed. */
function showTheme() {
  const dark = prefersDark.matches !== themeTurned;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = dark ? "Light" : "Dark";
}

function start() {
  page.render = render;
  byId("together")
    .closest("label")
    .before(
      html(
        "div",
        { class: "bar" },
        gpuSelect("gpu", "GPU", false),
        gpuSelect("beside", "beside it", true),
      ),
    );
  byId("together").addEventListener("change", (event) =>
    change({ together: event.target.checked }),
  );
  byId("too-many").addEventListener("change", (event) => {
    page.time = Infinity;
    change({ overfull: event.target.checked });
  });
  byId("play").addEventListener("click", play);
  byId("next-pass").addEventListener("click", nextPass);
  byId("whole").addEventListener("click", showWhole);
  byId("copy-command").addEventListener("click", () =>
    copy(byId("command").textContent, "The command"),
  );
  byId("copy-link").addEventListener("click", () => {
    writeAddress();
    copy(location.href, "The link");
  });
  showTheme();
  prefersDark.addEventListener("change", showTheme);
  byId("theme").addEventListener("click", () => {
    themeTurned = !themeTurned;
    showTheme();
  });
  byId("play").hidden = matchMedia("(prefers-reduced-motion: reduce)").matches;
  byId("chip-legend").append(chipLegend());
  byId("cliff-legend").append(cliffLegend());
  byId("time-legend").append(timelineLegend());
  addEventListener("hashchange", readAddress);
  addEventListener("resize", renderAll);
  drawOwn();
  if (!readAddress()) setKernel(page.state.kernel);
  render();
}

start();

/** For the console and for tests: the formulas, and the sentences about a usage. */
globalThis.occupancyLab = {
  data,
  occupancyOf,
  saidOf,
  usageOf,
  get state() {
    return page.state;
  },
};
