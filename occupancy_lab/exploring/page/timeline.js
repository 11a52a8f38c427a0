/** Draws a launch over time: the programs of two multiprocessors by pass, and one too many. */

import { html, svg, swatches, table, widthOf } from "./dom.js";
import { count } from "./evaluate.js";
import { microseconds, percent } from "./words.js";

const EDGES = { left: 8, right: 8, top: 24, bottom: 26 };

/**
 * Return a launch as passes over the rows. Each place of a full GPU does a row per pass: in the
 * loop of a persistent program, or by the next program that takes the place. Times are null if no
 * kernel was compiled with the values of the sliders.
 */
export function scheduleOf({ rows, programs, multiprocessors, row }) {
  const places = programs * multiprocessors;
  const full = Math.floor(rows / places);
  const left = rows % places;
  const timed = row !== null && row.predicted_us !== null;
  const [start, length] = timed ? [row.start_us, row.round_us] : [0, 1];
  const end = timed ? row.predicted_us : full + (left ? 1 : 0);
  const passes = [];
  for (let pass = 0; pass < full; pass += 1) {
    passes.push({ from: start + pass * length, to: start + (pass + 1) * length, rows: places });
  }
  if (left) passes.push({ from: start + full * length, to: end, rows: left });
  const persistent = row === null || row.kernel !== "softmax_row";
  return {
    rows,
    programs,
    multiprocessors,
    places,
    full,
    left,
    start,
    end,
    passes,
    timed,
    measured: timed && row.measured_us !== null,
    persistent,
    overfull: timed ? row.overfull_us : null,
  };
}

/** The most waves that are drawn: more would be too thin to see. */
const MOST_WAVES = 400;

/**
 * Return a launch of any kernel as equally long waves of programs: a row of a file has only their
 * total time. Null if there are too many to draw.
 */
export function wavesOf({ row, programs, multiprocessors }) {
  const launched = row.num_programs;
  const places = programs * multiprocessors;
  const full = Math.floor(launched / places);
  const left = launched % places;
  const waves = full + (left ? 1 : 0);
  if (waves > MOST_WAVES) return null;
  const us = row.grids > 1 ? null : (row.us ?? row.predicted_us ?? null);
  const length = us === null ? 1 : us / waves;
  const passes = Array.from({ length: waves }, (_, wave) => ({
    from: wave * length,
    to: (wave + 1) * length,
    rows: wave < full ? places : left,
  }));
  return {
    rows: launched,
    programs,
    multiprocessors,
    places,
    full,
    left,
    start: 0,
    end: waves * length,
    passes,
    timed: us !== null,
    measured: row.us !== undefined,
    persistent: false,
    overfull: null,
    kernel: row.kernel,
  };
}

/** Return sentences about the launch of a file's row. */
function waveSentences({ rows, programs, multiprocessors, places, full, left, end, timed, measured }, word) {
  const held = `${programs} x ${multiprocessors} ${word}s = ${places}`;
  const found = [
    `${count(rows, "program")} ${rows === 1 ? "is" : "are"} launched; ${held} ${full ? "run at once, in waves" : "would run at once"}.`,
  ];
  if (full && left)
    found.push(
      `${count(full, "full wave")}, then a tail: ${left} of ${places} places (${percent(left / places)}) have a program, and the others are idle.`,
    );
  else if (left) found.push(`${left} of ${places} places (${percent(left / places)}) are taken.`);
  else found.push("Every wave is full, and there is no tail.");
  const drawn = full ? "; its waves are drawn equally long" : "";
  found.push(
    timed
      ? `${measured ? "It took" : "The model predicts"} ${microseconds(end)}${drawn}.`
      : "Widths are waves, not time: the row has no time for this grid.",
  );
  return found;
}

/** Return sentences about the picture; *word* is the name of a multiprocessor. */
export function timelineSentences(schedule, word, tooMany) {
  if (schedule.kernel) return waveSentences(schedule, word);
  const {
    rows,
    programs,
    multiprocessors: mps,
    places,
    full,
    left,
    end,
    timed,
    measured,
    persistent,
  } = schedule;
  const found = [
    rows <= places
      ? `${rows} programs are launched, one per row; ${programs} x ${mps} ${word}s = ${places} would run at once.`
      : persistent
        ? `${places} programs are launched, ${programs} x ${mps} ${word}s; each takes a row, then the row ${places} further on.`
        : `${rows} programs are launched, one per row; ${programs} x ${mps} ${word}s = ${places} run at once, in waves.`,
  ];
  if (full && left) {
    const whole = full === 1 ? "1 full pass" : `${full} full passes`;
    found.push(
      `${whole}, then a tail: ${left} of ${places} programs (${percent(left / places)}) have a last row, and the other places are idle.`,
    );
  } else if (left) {
    found.push(
      `There are fewer rows than places: ${left} of ${places} (${percent(left / places)}) are taken.`,
    );
  } else {
    found.push(`The rows divide evenly: every pass is full, and there is no tail.`);
  }
  if (timed)
    found.push(
      `The model predicts ${microseconds(end)} for the launch${measured ? "" : ", which was not measured"}.`,
    );
  else
    found.push("Widths are passes, not time: choose a compiled configuration above for its times.");
  if (tooMany) found.push(tooManySentence(schedule));
  return found;
}

/** Return the cost of one program more than fit, in words. */
export function tooManySentence({ overfull, places, end, persistent, rows, timed }) {
  if (!persistent)
    return "A launch of one program per row has none too many: a program starts when a place is free.";
  if (!timed) return "The cost of one program too many is known only for compiled configurations.";
  if (overfull === null)
    return `All ${rows} rows have a program at once: one more would have nothing to do.`;
  const cost =
    overfull > 0
      ? `starts when the first of the others ends, and runs on nearly alone: ${microseconds(end)} become ${microseconds(end + overfull)} (+${percent(overfull / end)})`
      : "has no predicted cost here";
  return `With ${places + 1} programs, one too many, the last finds no place: it ${cost}.`;
}

/** Draw the schedule up to *time* us, all of it for Infinity; return the time of its end. */
export function drawTimeline(place, schedule, { word, tooMany, time }) {
  const { programs, multiprocessors, rows, start, passes, end, timed, overfull } = schedule;
  const extra = tooMany ? Math.max(overfull ?? 0, 0) : 0;
  const last = end + extra;
  const width = widthOf(place);
  const lane = Math.max(4, Math.min(16, Math.floor(130 / programs)));
  const block = programs * (lane + 1);
  const waiting = extra > 0 ? lane + 1 : 0;
  const tops = [EDGES.top, EDGES.top + block + waiting + 26];
  const height = tops[1] + block + EDGES.bottom;
  const x = (at) => EDGES.left + ((width - EDGES.left - EDGES.right) * at) / last;
  const bar = (from, to, y, kind) =>
    svg("rect", {
      x: x(from),
      y,
      width: Math.max(x(Math.min(to, time)) - x(from) - 1, 0),
      height: lane,
      class: kind,
    });
  const picture = svg("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": `${timelineSentences(schedule, word, tooMany).join(" ")} The table below has every pass.`,
  });
  const shown = [0, multiprocessors - 1];
  shown.forEach((mp, group) => {
    picture.append(
      svg(
        "text",
        { x: EDGES.left, y: tops[group] - 7, class: "title" },
        `${word} ${mp + 1} of ${multiprocessors}: its ${count(programs, "place")}`,
      ),
    );
    for (let slot = 0; slot < programs; slot += 1) {
      const y = tops[group] + slot * (lane + 1);
      if (start && time > 0) picture.append(bar(0, start, y, "launching"));
      passes.forEach(({ from, to }, pass) => {
        if (from >= time) return;
        const taken = pass * schedule.places + slot * multiprocessors + mp < rows;
        const kind = taken ? (pass % 2 && !schedule.persistent ? "odd" : "even") : "idle";
        picture.append(bar(from, to, y, kind));
      });
    }
  });
  if (extra) {
    const y = tops[0] + block;
    picture.append(bar(0, end, y, "waits"));
    if (time > end) picture.append(bar(end, last, y, "over"));
    if (x(last) - x(end) > 60)
      picture.append(
        svg(
          "text",
          { x: x(end) - 4, y: height - EDGES.bottom + 14, class: "tick end" },
          microseconds(end),
        ),
      );
  }
  const bottom = height - EDGES.bottom + 14;
  picture.append(
    svg("text", { x: EDGES.left, y: bottom, class: "tick" }, timed ? "0 us" : "pass 1"),
    svg(
      "text",
      { x: width - EDGES.right, y: bottom, class: "tick end" },
      timed ? microseconds(last) : `pass ${passes.length}`,
    ),
  );
  if (Number.isFinite(time))
    picture.append(
      svg("line", { x1: x(time), x2: x(time), y1: 8, y2: height - 20, class: "here" }),
    );
  place.replaceChildren(picture);
  return last;
}

/** Return the legend of the picture. */
export function timelineLegend() {
  return html(
    "p",
    { class: "legend" },
    ...swatches({
      even: "a running program",
      idle: "nothing left: idle",
      launching: "launching",
      waits: "waits for a place",
      over: "runs on, nearly alone",
    }),
  );
}

/** Return the passes as a table. */
export function passTable({ passes, places, timed, kernel }) {
  const at = (time) => (timed ? microseconds(time) : "-");
  const rows = passes.map(({ from, to, rows: done }, pass) => [
    String(pass + 1),
    at(from),
    at(to),
    String(done),
    percent(done / places),
  ]);
  const [pass, row] = kernel ? ["wave", "programs"] : ["pass", "rows"];
  return table([pass, "from", "to", row, "places taken"], rows);
}
