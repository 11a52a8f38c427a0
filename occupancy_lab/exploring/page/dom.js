/** Makes elements. Texts become text nodes, so that a name from a file is never read as HTML. */

const SVG = "http://www.w3.org/2000/svg";

function withParts(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return an HTML element. */
export function html(name, attributes = {}, ...children) {
  return withParts(document.createElement(name), attributes, children);
}

/** Return an SVG element. */
export function svg(name, attributes = {}, ...children) {
  return withParts(document.createElementNS(SVG, name), attributes, children);
}

/** Return the element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Return a text as nodes, with what stands between backticks as code. */
export function rich(text) {
  return text.split("`").map((part, place) => (place % 2 ? html("code", {}, part) : part));
}

/** Return a table: heads, then rows of texts or nodes. The first cell of a row is its head. */
export function table(heads, rows, attributes = {}) {
  const head = heads.map((text) => html(text ? "th" : "td", text ? { scope: "col" } : {}, text));
  const body = rows.map(([first, ...cells]) =>
    html(
      "tr",
      {},
      html("th", { scope: "row" }, first),
      ...cells.map((cell) => html("td", {}, cell)),
    ),
  );
  return html(
    "table",
    attributes,
    html("thead", {}, html("tr", {}, ...head)),
    html("tbody", {}, ...body),
  );
}

let widths = new WeakMap();

/** Return the width that pictures have in *element*, in pixels: measuring costs a layout. */
export function widthOf(element) {
  if (!widths.has(element)) widths.set(element, Math.max(200, Math.round(element.clientWidth)));
  return widths.get(element);
}

/** Have widths measured anew, as the page's has changed. */
export function forgetWidths() {
  widths = new WeakMap();
}

/** Return the parts of a legend: for each class of a mark, what it is. */
export function swatches(kinds) {
  return Object.entries(kinds).map(([kind, text]) =>
    html("span", { class: "key" }, html("span", { class: `swatch ${kind}` }), text),
  );
}

/** Return an element that scrolls sideways, with the keyboard too. */
export function scroller(label, ...children) {
  return html(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": label },
    ...children,
  );
}

/** Set the text of an element; the same text costs no layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const drawnKeys = new WeakMap();

/** Fill *place* with the result of *draw*, unless it was drawn for the same *key*. */
export function fillOnce(place, key, draw) {
  if (drawnKeys.get(place) === key) return;
  drawnKeys.set(place, key);
  place.replaceChildren(...draw());
}
