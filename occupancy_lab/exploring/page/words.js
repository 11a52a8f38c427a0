/** The sentences of explain about an occupancy and its cliffs, from its own templates. */

import {
  count,
  fill,
  missingTerms,
  nextStepsOf,
  occupancyOf,
  programsAfter,
  tutorialPrograms,
} from "./evaluate.js";

/** Return "a", "a and b", "a, b and c". */
export function listed(words) {
  const [last] = words.slice(-1);
  return words.length < 2 ? (last ?? "") : `${words.slice(0, -1).join(", ")} and ${last}`;
}

const THREE_DIGITS = new Intl.NumberFormat("en", {
  maximumSignificantDigits: 3,
  roundingMode: "halfEven",
  useGrouping: false,
});

/** Return 0.125 as "12.5%". */
export function percent(share) {
  return `${THREE_DIGITS.format(100 * share)}%`;
}

/** Return "7.63 us", "12.4 us", "285 us". */
export function microseconds(us) {
  const digits = us < 9.995 ? 2 : us < 99.95 ? 1 : 0;
  return `${us.toFixed(digits)} us`;
}

/** Return a whole number with narrow spaces between thousands. */
export function grouped(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** Says of a usage on an architecture what explain says. */
export class Said {
  constructor(data, architecture, usage) {
    this.data = data;
    this.architecture = architecture;
    this.usage = usage;
    this.occupancy = occupancyOf(architecture, usage);
    this.steps = nextStepsOf(architecture, usage);
    this.tutorial = tutorialPrograms(architecture, usage);
  }

  /** The names that templates have. */
  get named() {
    const { words, resources } = this.architecture;
    const { programs, warps, maxWarps, numWarps, limiters } = this.occupancy;
    return {
      mp: words.multiprocessor_word,
      warp: words.warp_word,
      warps: `${words.warp_word}s`,
      shared: words.shared_word,
      more: programs + 1,
      taken: count(numWarps, words.warp_word),
      max_warps: maxWarps,
      resident: warps,
      percent: percent(warps / maxWarps),
      limiters: listed(limiters.map((name) => resources[name])),
    };
  }

  sentence(name, words = {}) {
    return fill(this.data.sentences[name], { ...this.named, ...words });
  }

  /** Return "6 programs per SM, 48 of 64 warps (75%), limited by registers". */
  answer() {
    const programs = this.sentence("programs", {
      programs: count(this.occupancy.programs, "program"),
    });
    return this.sentence("answer", { programs, occupancy: this.sentence("occupancy") });
  }

  /** Return what would let one program more in, or why nothing does. */
  nextProgram() {
    const { limiters, programs } = this.occupancy;
    const lacking = limiters.filter((name) => name in this.data.lacking);
    if (limiters.includes("warps")) {
      const fewer = lacking.length ? "" : this.sentence("fewer warps");
      return this.sentence("full of warps", { fewer });
    }
    if (lacking.length) {
      const missing = lacking.map((name) => this.data.lacking[name]).join(" and no ");
      return this.sentence("no slot", { lacking: missing });
    }
    const needs = this.steps
      .filter((step) => limiters.includes(step.resource) && step.more !== null)
      .map((step) => this.need(step));
    if (needs.length !== limiters.length) return this.sentence("no amount");
    const after = programsAfter(this.steps, this.architecture, this.usage) || programs + 1;
    const then =
      after > programs + 1 ? this.sentence("then", { programs: count(after, "program") }) : "";
    return this.sentence("takes", { needs: listed(needs), then });
  }

  need(step) {
    const unit = this.architecture.units[step.resource];
    const need = this.sentence("at most", { amount: step.more, unit });
    return step.option === null ? need : this.sentence("may spill", { need, option: step.option });
  }

  /** Return [unit, now, cell of one program more, cell of one fewer] for each step. */
  stepRows() {
    const none = this.occupancy.programs === 1 ? "does not launch" : "no step";
    return this.steps.map((step) => {
      const down = { amount: step.more, difference: step.now - step.more };
      const up = { amount: step.fewer, difference: step.fewer - step.now };
      const more = step.more >= step.now ? "allowed" : "down to";
      return [
        this.architecture.units[step.resource],
        String(step.now),
        step.more === null ? this.sentence("no step") : this.sentence(more, down),
        step.fewer === null ? this.sentence(none, step) : this.sentence("up to", up),
      ];
    });
  }

  /** Return the heads of the table of steps. */
  stepHeads() {
    const { programs } = this.occupancy;
    return [
      "",
      "now",
      this.sentence("one more", { programs: count(programs, "program") }),
      this.sentence("one fewer", { programs: count(programs, "program") }),
    ];
  }

  /** Return whether the tutorial's formula is right, and what it misses where it is not. */
  verdict() {
    const truth = this.occupancy.programs;
    const said = (name, words) => {
      const text = fill(this.data.verdicts[name], { ...this.named, ...words });
      return `${text[0].toUpperCase()}${text.slice(1)}.`;
    };
    if (this.tutorial === null) return said("fails", {});
    const says = count(this.tutorial, "program");
    if (this.tutorial === truth) return said("right", { says });
    const terms = missingTerms(this.architecture, this.usage);
    const reasons = terms.map((term) => this.architecture.terms[term]).join("; and ");
    return said("wrong", { says, truth, reasons });
  }
}
