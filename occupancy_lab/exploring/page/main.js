/** Puts the page together: one state, what changes it, and what is drawn of it. */

import { byId, forgetWidths, html, rich, scroller, table } from "./dom.js";
import { amountsOf, nextStepsOf, occupancyOf, programsAfter, tutorialPrograms, missingTerms } from "./evaluate.js";
import { Said, microseconds } from "./words.js";
import { FIELDS, addressOf, commandOf, firstState, stateOf, usageOf } from "./state.js";
import { slidersOf } from "./controls.js";
import { chipLegend, drawChip, sayNext } from "./chip.js";
import { cliffLegend, drawCliff, tabulateCliff } from "./cliffs.js";
import { Kernels, heatMap, kernelTable, ownTable, rowsShown } from "./kernels.js";
import { drawTimeline, passTable, scheduleOf, timelineLegend, timelineSentences, tooManySentence } from "./timeline.js";
import { STEPS } from "./lesson.js";

const data = JSON.parse(byId("data").textContent);
for (const architecture of Object.values(data.architectures)) {
  architecture.family = data.families[architecture.family];
}
const gpus = new Map(data.gpus.map((gpu) => [gpu.key, gpu]));
const architectureOf = (gpu) => data.architectures[gpus.get(gpu).architecture];
const saidOf = (gpu, usage) => new Said(data, architectureOf(gpu), usage);
const kernels = new Kernels(data.kernels, gpus);
const { rows: ROWS } = data.kernels;

let state = firstState();
let sort = { by: "predicted", down: false };
let playing = null;
let shownTime = Infinity;
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
let themeTurned = false;

// ---- what changes the state

/** Make *changes* and draw at the next frame; the address follows when nothing moves. */
function change(changes) {
  state = { ...state, ...changes };
  schedule();
}

let frame = 0;
let writing = 0;
function schedule() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    render();
  });
  clearTimeout(writing);
  writing = setTimeout(writeAddress, 150);
}

function writeAddress() {
  history.replaceState(null, "", `#${addressOf(state)}`);
}

/** Set one amount of one side, or of both. */
function setAmount(place, field, amount) {
  const sides = state.sides.map((side, at) => {
    if (at !== place && !state.together) return side;
    const padded = field === "n_regs" ? { allocated_vgprs: null } : {};
    return { ...side, usage: { ...side.usage, ...padded, [field]: amount } };
  });
  change({ sides });
}

/** Return the usage of a GPU with the kernel that is chosen, or as its sliders stood. */
function usageFor(gpu, kernel, usage) {
  return kernels.find(gpu, kernel)?.usage ?? usage;
}

function setGpus(keys) {
  const standing = stands(0);
  const sides = keys.map((gpu, place) => {
    const { usage } = state.sides[place] ?? state.sides[0];
    return { gpu, usage: standing ? usageFor(gpu, state.kernel, usage) : usage };
  });
  change({ sides });
}

/** Set the sliders of every side to a compiled kernel. */
function setKernel(kernel, others = {}) {
  const { kernel: name, cols, dtype, num_warps: warps, num_stages: stages } = kernel;
  const chosen = { kernel: name, cols, dtype, num_warps: warps, num_stages: stages };
  const sides = (others.sides ?? state.sides).map((side) => ({
    ...side,
    usage: usageFor(side.gpu, chosen, side.usage),
  }));
  shownTime = Infinity;
  change({ ...others, kernel: chosen, sides });
}

/** Return whether the sliders of a side stand where its compiled kernel stands. */
function stands(place) {
  const { gpu, usage } = state.sides[place];
  const row = kernels.find(gpu, state.kernel);
  return row !== null && Object.keys(FIELDS).every((name) => row.usage[name] === usage[name]);
}

// ---- one multiprocessor, and its cliffs

const panels = [];
/** Where one side has room for two columns; style.css has the same width. */
const wide = matchMedia("(min-width: 720px)");

function makePanels() {
  panels.splice(0);
  forgetWidths();
  for (const place of state.sides.keys()) {
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
    const panel = html("div", { class: "side" }, title, sliders.element, answer, launch, limits, next);
    const cliffs = html("div", { class: "cliffs" });
    for (const resource of ["registers", "shared"]) {
      const picture = html("div", { id: `cliff-${resource}-${place}` });
      const steps = scroller("Every step");
      const details = html("details", { ontoggle: schedule }, html("summary", {}, "Every step as a table"), steps);
      cliffs.append(html("div", {}, picture, details));
      parts.pictures[resource] = { picture, details, steps };
    }
    panels.push({ ...parts, sliders, panel, cliffs: html("div", { class: "side" }, parts.cliffTitle, cliffs, parts.verdict) });
  }
  const two = panels.length > 1 ? "sides two" : "sides one";
  byId("sides").replaceChildren(...panels.map((one) => one.panel));
  byId("cliffs").replaceChildren(...panels.map((one) => one.cliffs));
  byId("sides").className = two;
  byId("cliffs").className = two;
}

function drawSide(place) {
  const { gpu, usage } = state.sides[place];
  const { title, multiprocessors } = gpus.get(gpu);
  const said = saidOf(gpu, usage);
  const panel = panels[place];
  const columns = panels.length === 1 && wide.matches ? 2 : 1;
  const { mp } = said.named;
  const { programs } = said.occupancy;
  panel.title.textContent = title;
  panel.sliders.show(said.architecture, usage);
  panel.answer.textContent = `${said.answer()}.`;
  panel.launch.textContent = multiprocessors
    ? `num_programs that fill the GPU: ${programs} x ${multiprocessors} ${mp}s = ${programs * multiprocessors}.`
    : `How many ${mp}s it has is not known: this is an architecture.`;
  drawChip(panel.limits, said, columns);
  sayNext(panel.next, said);
  panel.cliffTitle.textContent = title;
  panel.verdict.replaceChildren(html("b", {}, "The tutorial's formula: "), ...rich(said.verdict()));
  for (const [resource, { picture, details, steps }] of Object.entries(panel.pictures)) {
    const field = resource === "registers" ? "n_regs" : "shared";
    const { exact, tutorial } = drawCliff(picture, said, resource, (amount) => setAmount(place, field, amount));
    if (details.open) tabulateCliff(steps, said, resource, exact, tutorial);
  }
  return said;
}

// ---- choices of GPUs

const NONE = "none";

function gpuSelect(id, text, none) {
  const options = none ? [html("option", { value: NONE }, "none")] : [];
  const groups = { "NVIDIA": [], "AMD": [], "Architectures": [] };
  for (const { key, title, multiprocessors, architecture } of gpus.values()) {
    const group = multiprocessors === null && key === architecture ? "Architectures" : data.architectures[architecture].words.vendor;
    groups[group].push(html("option", { value: key }, title));
  }
  const grouped = Object.entries(groups).map(([label, children]) => html("optgroup", { label }, ...children));
  const select = html("select", { id, onchange: pickGpus }, ...options, ...grouped);
  return html("label", { class: "pick" }, `${text} `, select);
}

function pickGpus() {
  setGpus([byId("gpu").value, byId("beside").value].filter((key) => key !== NONE));
}

// ---- real kernels

function option(value, text, current) {
  return html("option", { value, selected: String(value) === String(current) }, text);
}

function drawKernels() {
  const [{ gpu }] = state.sides;
  const kernel = state.kernel ?? firstState().kernel;
  const select = (name, text) => {
    const options = kernels.values(name).map((value) => option(value, value, kernel[name]));
    const chosen = (event) => setKernel({ ...kernel, [name]: name === "cols" ? Number(event.target.value) : event.target.value });
    return html("label", { class: "pick" }, `${text} `, html("select", { id: `pick-${name}`, onchange: chosen }, ...options));
  };
  const focused = document.activeElement?.id;
  byId("filters").replaceChildren(select("cols", "Columns"), select("dtype", "dtype"));
  if (focused?.startsWith("pick-")) byId(focused)?.focus();
  const rows = rowsShown(kernels, architectureOf(gpu), { gpu, ...kernel }, sort);
  const known = data.kernels.names.gpu.map((key) => gpus.get(key).title).join(", ");
  const { basis, triton, measured_triton: measured } = data.kernels;
  byId("kernels-hint").textContent = rows.length
    ? `softmax and softmax_row of ${ROWS} rows, compiled by Triton ${triton} for ${gpus.get(gpu).title}. ${
        basis[gpu] ? `Times are predicted; they rest on ${basis[gpu]}. Measured times are of what Triton ${measured} compiled.` : `Times are known of ${known}.`
      } Choose one and the sliders stand where it stands.`
    : `None was compiled for ${gpus.get(gpu).title}; there are some for ${known}.`;
  const map = heatMap(rows, kernel, setKernel);
  byId("heatmap").replaceChildren(map ?? html("p", { class: "hint" }, "No times are known here."));
  byId("heat-legend").textContent = map ? "softmax by num_stages, and softmax_row, which has no loop. Bright is fast. The cell with a border is the one that the sliders were set to." : "";
  const sortBy = (by) => {
    sort = { by, down: sort.by === by && !sort.down };
    drawn.kernels = null;
    schedule();
  };
  const place = byId("kernels");
  const { scrollTop } = place;
  const active = document.activeElement?.textContent;
  const inside = place.contains(document.activeElement) && document.activeElement !== place;
  place.replaceChildren(kernelTable(rows, kernel, sort, { choose: setKernel, sortBy }));
  place.scrollTop = scrollTop;
  if (inside) focusAgain(place, active);
}

/** Put the focus back where it was before a table was made anew. */
function focusAgain(place, text) {
  const plain = (one) => one.replace(/ [↑↓]$/, "");
  const heads = [...place.querySelectorAll("button.sort")];
  const again = heads.find((button) => plain(button.textContent) === plain(text)) ?? place.querySelector(".current button");
  again?.focus();
}

function drawOwn() {
  if (!data.own) return;
  const choose = (row, usage) => change({ sides: [{ gpu: row.gpu, usage }, ...state.sides.slice(1)] });
  byId("own").replaceChildren(
    html("h3", {}, "Rows of the file"),
    html("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Rows of the file" }, ownTable(data.own, architectureOf, choose)),
  );
}

// ---- the launch in time

function scheduleShown() {
  const [{ gpu, usage }] = state.sides;
  const { multiprocessors } = gpus.get(gpu);
  const row = stands(0) ? kernels.find(gpu, state.kernel) : null;
  const { programs } = occupancyOf(architectureOf(gpu), usage);
  if (!multiprocessors || !programs) return null;
  return scheduleOf({ rows: ROWS, programs, multiprocessors, row });
}

function drawTime() {
  const [{ gpu }] = state.sides;
  const word = architectureOf(gpu).words.multiprocessor_word;
  const shown = scheduleShown();
  for (const id of ["play", "next-pass", "whole"]) byId(id).disabled = shown === null;
  if (shown === null) {
    byId("time-says").replaceChildren(html("p", {}, "No launch is drawn where no program fits, or where the number of multiprocessors is not known."));
    byId("timeline").replaceChildren();
    byId("passes").replaceChildren();
    return;
  }
  const sentences = timelineSentences(shown, word, state.overfull);
  byId("time-says").replaceChildren(
    html("p", {}, html("b", {}, `${gpus.get(gpu).title}: `), `${ROWS} rows. `, ...rich(sentences.join(" "))),
  );
  const last = drawTimeline(byId("timeline"), shown, { word, tooMany: state.overfull, time: shownTime });
  byId("passes").replaceChildren(passTable(shown));
  const now = shown.timed ? microseconds(Math.min(shownTime, last)) : "";
  byId("time-now").textContent = Number.isFinite(shownTime) ? `at ${now || `pass ${shownTime.toFixed(1)}`}` : "";
  return last;
}

const PLAY_SECONDS = 6;

function stopPlaying() {
  cancelAnimationFrame(playing);
  playing = null;
  byId("play").textContent = "Play";
}

function play() {
  if (playing !== null) {
    stopPlaying();
    return;
  }
  const shown = scheduleShown();
  const last = shown.end + (state.overfull ? Math.max(shown.overfull ?? 0, 0) / 1e3 : 0);
  if (shownTime >= last) shownTime = 0;
  let before = null;
  byId("play").textContent = "Pause";
  const advance = (now) => {
    shownTime += before === null ? 0 : ((now - before) / 1e3 / PLAY_SECONDS) * last;
    before = now;
    if (shownTime >= last) {
      shownTime = Infinity;
      stopPlaying();
    } else {
      playing = requestAnimationFrame(advance);
    }
    drawTime();
  };
  playing = requestAnimationFrame(advance);
}

function nextPass() {
  stopPlaying();
  const { passes, end, overfull } = scheduleShown();
  const ends = [...passes.map((pass) => pass.to), end];
  if (state.overfull && overfull > 0) ends.push(end + overfull / 1e3);
  const from = Number.isFinite(shownTime) ? shownTime : 0;
  shownTime = ends.find((one) => one > from + 1e-6) ?? ends[0];
  drawTime();
}

// ---- the lesson

const lab = {
  rows: ROWS,
  row: (gpu, kernel) => kernels.find(gpu, kernel),
  said: saidOf,
  gpu: (gpu) => gpus.get(gpu),
  numbers: (gpu) => architectureOf(gpu).numbers,
  lanes: (gpu) => architectureOf(gpu).numbers.warp_size,
  resource: (gpu, name) => architectureOf(gpu).resources[name],
  tooMany(gpu, row) {
    const { programs } = occupancyOf(architectureOf(gpu), row.usage);
    return tooManySentence(scheduleOf({ rows: ROWS, programs, multiprocessors: gpus.get(gpu).multiprocessors, row }));
  },
};

function takeStep(number) {
  const step = STEPS[number - 1];
  const sides = step.gpus.map((gpu) => ({ gpu, usage: usageOf({}) }));
  setKernel(step.kernel, { sides, lesson: number, overfull: Boolean(step.overfull) });
}

function drawLesson() {
  const step = STEPS[state.lesson - 1];
  const buttons = STEPS.map(({ title }, place) => {
    const current = state.lesson === place + 1 ? "step" : null;
    return html("li", {}, html("button", { type: "button", id: `step-${place + 1}`, "aria-current": current, onclick: () => takeStep(place + 1) }, `${place + 1}. ${title}`));
  });
  const focused = document.activeElement?.id;
  byId("steps").replaceChildren(...buttons);
  if (focused?.startsWith("step-")) byId(focused)?.focus();
  byId("step").replaceChildren(...(step ? step.says(lab).map(lessonPart) : []));
}

/** Return a paragraph, or the table of [heads, rows]. */
function lessonPart(part) {
  if (typeof part === "string") return html("p", {}, ...rich(part));
  const [heads, rows] = part;
  return scroller("Numbers of this step", table(heads, rows, { class: "lesson-table" }));
}

// ---- all of it

const drawn = { kernels: null, time: null, lesson: null, sides: 0 };

/** Draw what has changed. */
function render() {
  if (drawn.sides !== state.sides.length) makePanels();
  drawn.sides = state.sides.length;
  byId("gpu").value = state.sides[0].gpu;
  byId("beside").value = state.sides[1]?.gpu ?? NONE;
  byId("together").checked = state.together;
  byId("together").closest("label").hidden = state.sides.length < 2;
  byId("too-many").checked = state.overfull;
  for (const place of state.sides.keys()) drawSide(place);
  const [{ gpu, usage }] = state.sides;
  const keys = {
    kernels: JSON.stringify([gpu, state.kernel, sort]),
    time: JSON.stringify([gpu, usage, state.kernel, state.overfull]),
    lesson: String(state.lesson),
  };
  const draw = { kernels: drawKernels, time: drawTime, lesson: drawLesson };
  for (const [name, key] of Object.entries(keys)) {
    if (drawn[name] === key) continue;
    drawn[name] = key;
    draw[name]();
  }
  const compiled = state.sides.every((_, place) => stands(place));
  const command = commandOf(state, compiled, (gpu) => architectureOf(gpu).family.optional);
  byId("command").replaceChildren(...command.split(/(?= --| &&)/).map((part) => html("span", {}, part)));
}

/** Draw everything anew, as after a change of width or colours. */
function renderAll() {
  forgetWidths();
  Object.assign(drawn, { kernels: null, time: null, lesson: null });
  schedule();
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    byId("copied").textContent = `${what} is copied.`;
  } catch {
    const field = html("textarea", { readonly: true, rows: 2, "aria-label": what }, text);
    byId("copied").replaceChildren("The browser allows no copying; here it is: ", field);
    field.select();
  }
}

function readAddress() {
  const found = stateOf(location.hash, gpus);
  if (found) change(found);
  return found !== null;
}

/** Show the colours that the system asks for, or the other ones where the button was pressed. */
function showTheme() {
  const dark = prefersDark.matches !== themeTurned;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = dark ? "Light" : "Dark";
}

function start() {
  byId("together").closest("label").before(html("div", { class: "bar" }, gpuSelect("gpu", "GPU", false), gpuSelect("beside", "beside it", true)));
  byId("together").addEventListener("change", (event) => change({ together: event.target.checked }));
  byId("too-many").addEventListener("change", (event) => {
    shownTime = Infinity;
    change({ overfull: event.target.checked });
  });
  byId("play").addEventListener("click", play);
  byId("next-pass").addEventListener("click", nextPass);
  byId("whole").addEventListener("click", () => {
    stopPlaying();
    shownTime = Infinity;
    drawTime();
  });
  byId("copy-command").addEventListener("click", () => copy(byId("command").textContent, "The command"));
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
  if (!readAddress()) setKernel(state.kernel);
  cancelAnimationFrame(frame);
  frame = 0;
  render();
}

start();

/** For the console, and for tests: the formulas, and what is said of a usage. */
globalThis.occupancyLab = {
  data, gpus, architectureOf, saidOf, usageOf, occupancyOf, nextStepsOf, programsAfter, tutorialPrograms, missingTerms, amountsOf,
  get state() {
    return state;
  },
};
