/** The launch in time: draws it, plays it, pauses it and steps through it. */

import { byId, html, rich } from "./dom.js";
import { occupancyOf } from "./evaluate.js";
import { ROWS, architectureOf, data, gpus, kernels, ownChosen, page, stands } from "./page.js";
import { drawTimeline, passTable, scheduleOf, timelineSentences, wavesOf } from "./timeline.js";
import { microseconds } from "./words.js";

let playing = null;

function scheduleShown() {
  const [{ gpu, usage }] = page.state.sides;
  const { multiprocessors } = gpus.get(gpu);
  const row = stands(0) ? kernels.find(gpu, page.state.kernel) : null;
  const { programs } = occupancyOf(architectureOf(gpu), usage);
  if (!multiprocessors || !programs) return null;
  const own = data.own?.[ownChosen()];
  if (own?.num_programs) return wavesOf({ row: own, programs, multiprocessors });
  return scheduleOf({ rows: ROWS, programs, multiprocessors, row });
}

/** Draw the launch of the first GPU up to the current time. */
export function drawTime() {
  const [{ gpu }] = page.state.sides;
  const word = architectureOf(gpu).words.multiprocessor_word;
  const shown = scheduleShown();
  for (const id of ["play", "next-pass", "whole"]) byId(id).disabled = shown === null;
  if (shown === null) {
    byId("time-says").replaceChildren(
      html(
        "p",
        {},
        "No launch is drawn if no program fits, if the number of multiprocessors is not known, or if there are more than 400 waves.",
      ),
    );
    byId("timeline").replaceChildren();
    byId("passes").replaceChildren();
    return;
  }
  const sentences = timelineSentences(shown, word, page.state.overfull);
  byId("time-says").replaceChildren(
    html(
      "p",
      {},
      html("b", {}, `${gpus.get(gpu).title}: `),
      shown.kernel ? `${shown.kernel}. ` : `${ROWS} rows. `,
      ...rich(sentences.join(" ")),
    ),
  );
  const last = drawTimeline(byId("timeline"), shown, {
    word,
    tooMany: page.state.overfull,
    time: page.time,
  });
  byId("passes").replaceChildren(passTable(shown));
  const now = shown.timed ? microseconds(Math.min(page.time, last)) : "";
  byId("time-now").textContent = Number.isFinite(page.time)
    ? `at ${now || `pass ${page.time.toFixed(1)}`}`
    : "";
  return last;
}

/** How long playing the whole launch takes. */
const PLAY_SECONDS = 6;

function stopPlaying() {
  cancelAnimationFrame(playing);
  playing = null;
  byId("play").textContent = "Play";
}

/** Play from the current time, or pause. */
export function play() {
  if (playing !== null) {
    stopPlaying();
    return;
  }
  const shown = scheduleShown();
  const last = shown.end + (page.state.overfull ? Math.max(shown.overfull ?? 0, 0) : 0);
  if (page.time >= last) page.time = 0;
  let before = null;
  byId("play").textContent = "Pause";
  const advance = (now) => {
    page.time += before === null ? 0 : ((now - before) / 1e3 / PLAY_SECONDS) * last;
    before = now;
    if (page.time >= last) {
      page.time = Infinity;
      stopPlaying();
    } else {
      playing = requestAnimationFrame(advance);
    }
    drawTime();
  };
  playing = requestAnimationFrame(advance);
}

/** Go to the end of the next pass. */
export function nextPass() {
  stopPlaying();
  const { passes, end, overfull } = scheduleShown();
  const ends = [...passes.map((pass) => pass.to), end];
  if (page.state.overfull && overfull > 0) ends.push(end + overfull);
  const from = Number.isFinite(page.time) ? page.time : 0;
  page.time = ends.find((one) => one > from + 1e-6) ?? ends[0];
  drawTime();
}

/** Show the whole launch. */
export function showWhole() {
  stopPlaying();
  page.time = Infinity;
  drawTime();
}
