/** The sliders of a usage: each has a range, a number and a label. */

import { amountsOf } from "./evaluate.js";
import { html, setText } from "./dom.js";
import { FIELDS } from "./state.js";

const WARPS = [1, 2, 4, 8, 16, 32];

/** Return the range and the label of a field's slider; null if the GPU does not use the field. */
function sliderOf(field, architecture) {
  const { numbers, units, words, family, resources } = architecture;
  const given = {
    ...Object.fromEntries(Object.keys(FIELDS).map((name) => [name, 1])),
    allocated_vgprs: null,
  };
  const most = (name) => amountsOf(architecture, given)[name]?.[1];
  if (field in { barriers: 1, sgprs: 1, tensor_memory: 1 } && !family.optional.includes(field))
    return null;
  return {
    n_regs: { from: 1, to: most("registers"), label: units.registers },
    shared: { from: 0, to: most("shared"), label: units.shared },
    num_warps: {
      from: 1,
      to: numbers.max_warps_per_program,
      label: `${words.warp_word}s per program, num_warps`,
    },
    static_shared: { from: 0, to: most("shared"), label: `static ${units.shared}` },
    barriers: { from: 0, to: 16, label: `${resources.barriers} per program` },
    sgprs: { from: 0, to: most("sgprs"), label: units.sgprs },
    tensor_memory: { from: 0, to: most("tensor_memory"), label: units.tensor_memory },
  }[field];
}

/** A slider of one field of one side; *change* is called with the field and its new amount. */
class Slider {
  constructor(field, id, change) {
    this.field = field;
    this.optional = FIELDS[field].plain === null;
    this.label = html("label", { for: `${id}-range` });
    this.range = html("input", { type: "range", id: `${id}-range` });
    this.number = html("input", { type: "number", id, inputmode: "numeric", placeholder: "none" });
    this.element = html("div", { class: "slider" }, this.label, this.range, this.number);
    this.range.addEventListener("input", () =>
      change(field, this.amountAt(Number(this.range.value))),
    );
    this.number.addEventListener("input", () => {
      const { value } = this.number;
      if (value === "" && this.optional) change(field, null);
      else if (/^\d{1,7}$/.test(value))
        change(field, Math.max(Number(this.number.min), Number(value)));
    });
    this.number.addEventListener("blur", () => this.show(this.architecture, this.usage));
  }

  /** The slider of warps has only powers of two, which Triton launches. */
  amountAt(place) {
    return this.field === "num_warps" ? WARPS[place] : place;
  }

  show(architecture, usage) {
    this.architecture = architecture;
    this.usage = usage;
    const slider = sliderOf(this.field, architecture);
    this.element.hidden = slider === null;
    if (slider === null) return;
    const { from, to, label } = slider;
    const amount = usage[this.field];
    const isWarps = this.field === "num_warps";
    const lastWarps = WARPS.findLastIndex((warps) => warps <= to);
    setText(this.label, label);
    this.number.setAttribute("aria-label", label);
    this.number.min = from;
    this.range.min = isWarps ? 0 : from;
    this.range.max = isWarps ? lastWarps : to;
    this.range.value = isWarps
      ? Math.max(
          0,
          WARPS.findLastIndex((warps) => warps <= amount),
        )
      : (amount ?? 0);
    this.range.setAttribute("aria-valuetext", `${amount ?? "none"} ${label}`);
    if (document.activeElement !== this.number) this.number.value = amount ?? "";
  }
}

/** Return the sliders of a side: an element, and a function that sets them. */
export function slidersOf(side, change) {
  const make = (field) => new Slider(field, `${field}-${side}`, change);
  const main = ["n_regs", "shared", "num_warps"].map(make);
  const more = ["static_shared", "barriers", "sgprs", "tensor_memory"].map(make);
  const element = html(
    "div",
    { class: "controls" },
    ...main.map((slider) => slider.element),
    html(
      "details",
      { class: "more" },
      html("summary", {}, "More"),
      ...more.map((slider) => slider.element),
    ),
  );
  const show = (architecture, usage) =>
    [...main, ...more].forEach((slider) => slider.show(architecture, usage));
  return { element, show };
}
