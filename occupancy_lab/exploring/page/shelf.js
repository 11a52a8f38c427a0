/** The part of the page with real kernels: the menus, the heat map, the tables. */

import { byId, html } from "./dom.js";
import { heatMap, kernelTable, ownTable, rowsShown } from "./kernels.js";
import {
  ROWS,
  architectureOf,
  chooseOwn,
  data,
  gpus,
  kernels,
  page,
  schedule,
  setKernel,
} from "./page.js";
import { firstState } from "./state.js";

function option(value, text, current) {
  return html("option", { value, selected: String(value) === String(current) }, text);
}

/** Draw the menus, the heat map and the table of the first GPU's kernels. */
export function drawKernels() {
  const [{ gpu }] = page.state.sides;
  const kernel = page.state.kernel ?? firstState().kernel;
  const select = (name, text) => {
    const options = kernels.values(name).map((value) => option(value, value, kernel[name]));
    const chosen = (event) =>
      setKernel({
        ...kernel,
        [name]: name === "cols" ? Number(event.target.value) : event.target.value,
      });
    return html(
      "label",
      { class: "pick" },
      `${text} `,
      html("select", { id: `pick-${name}`, onchange: chosen }, ...options),
    );
  };
  const focused = document.activeElement?.id;
  byId("filters").replaceChildren(select("cols", "Columns"), select("dtype", "dtype"));
  if (focused?.startsWith("pick-")) byId(focused)?.focus();
  const rows = rowsShown(kernels, architectureOf(gpu), { gpu, ...kernel }, page.sort);
  const known = data.kernels.names.gpu.map((key) => gpus.get(key).title).join(", ");
  const { basis, triton, measured_triton: measured } = data.kernels;
  byId("kernels-hint").textContent = rows.length
    ? `softmax and softmax_row of ${ROWS} rows, compiled by Triton ${triton} for ${gpus.get(gpu).title}. ${
        basis[gpu]
          ? `Times are predicted; they rest on ${basis[gpu]}. ${
              kernels.of(gpu).some((row) => row.measured_us !== null)
                ? `The measured kernels were compiled with Triton ${measured}.`
                : `Nothing was measured on ${gpus.get(gpu).title} to confirm them.`
            }`
          : `Times are known for ${known}.`
      } Choose one to set the sliders to it.`
    : `No kernel was compiled for ${gpus.get(gpu).title}; there are some for ${known}.`;
  const map = heatMap(rows, kernel, setKernel);
  byId("heatmap").replaceChildren(map ?? html("p", { class: "hint" }, "No times are known here."));
  byId("heat-legend").textContent = map
    ? "softmax by num_stages, and softmax_row, which has no loop. Bright is fast. The sliders were set to the cell with a border."
    : "";
  const sortBy = (by) => {
    page.sort = { by, down: page.sort.by === by && !page.sort.down };
    schedule();
  };
  const place = byId("kernels");
  const { scrollTop } = place;
  const active = document.activeElement?.textContent;
  const inside = place.contains(document.activeElement) && document.activeElement !== place;
  place.replaceChildren(kernelTable(rows, kernel, page.sort, { choose: setKernel, sortBy }));
  place.scrollTop = scrollTop;
  if (inside) focusAgain(place, active);
}

/** Restore the focus after a table was redrawn. */
function focusAgain(place, text) {
  const plain = (one) => one.replace(/ [↑↓]$/, "");
  const heads = [...place.querySelectorAll("button.sort")];
  const again =
    heads.find((button) => plain(button.textContent) === plain(text)) ??
    place.querySelector(".current button");
  again?.focus();
}

/** Draw the rows of the user's own file, if there is one. */
export function drawOwn() {
  if (!data.own) return;
  byId("own").replaceChildren(
    html("h3", {}, "Rows of the file"),
    html(
      "div",
      { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Rows of the file" },
      ownTable(data.own, architectureOf, chooseOwn),
    ),
  );
}
