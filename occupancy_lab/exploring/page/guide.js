/** The part of the page with the lesson: its steps, and the text of the current one. */

import { byId, html, rich, scroller, table } from "./dom.js";
import { occupancyOf } from "./evaluate.js";
import { STEPS } from "./lesson.js";
import { ROWS, architectureOf, gpus, kernels, page, saidOf, setKernel } from "./page.js";
import { usageOf } from "./state.js";
import { scheduleOf, tooManySentence } from "./timeline.js";

/** The data that the steps of the lesson use. */
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
    return tooManySentence(
      scheduleOf({ rows: ROWS, programs, multiprocessors: gpus.get(gpu).multiprocessors, row }),
    );
  },
};

/** Set the page to a step. */
function takeStep(number) {
  const step = STEPS[number - 1];
  const sides = step.gpus.map((gpu) => ({ gpu, usage: usageOf({}) }));
  setKernel(step.kernel, { sides, lesson: number, overfull: Boolean(step.overfull) });
}

/** Draw the steps, and the text of the current one. */
export function drawLesson() {
  const step = STEPS[page.state.lesson - 1];
  const buttons = STEPS.map(({ title }, place) => {
    const current = page.state.lesson === place + 1 ? "step" : null;
    return html(
      "li",
      {},
      html(
        "button",
        {
          type: "button",
          id: `step-${place + 1}`,
          "aria-current": current,
          onclick: () => takeStep(place + 1),
        },
        `${place + 1}. ${title}`,
      ),
    );
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
