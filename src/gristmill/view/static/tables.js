// Tables and lists of figures, which all pages share.
import { element, grouped } from "./page.js";

/** Return a table. heads: texts, with "#" before those of numbers, or elements; rows: arrays of texts, numbers or
 * elements, or elements. The caption is for screen readers unless `isCaptionShown`. */
export function table(caption, heads, rows, { isCaptionShown = false, ...attributes } = {}) {
  const isNumber = heads.map((head) => head[0] === "#");
  const cell = (tag, content, i, more = {}) => element(tag, { class: isNumber[i] ? "number" : null, ...more },
    typeof content === "number" ? grouped(content) : content);
  return element("table", attributes,
    element("caption", { class: isCaptionShown ? "hint" : "quiet" }, caption),
    element("thead", element("tr", heads.map((head, i) => cell("th", isNumber[i] ? head.slice(1) : head, i, { scope: "col" })))),
    element("tbody", rows.map((row) => (row instanceof Element ? row : element("tr", row.map((content, i) => cell("td", content, i)))))));
}

/** Return a box that scrolls if its content is too wide, also with the keys. */
export function scrolled(label, ...content) {
  return element("div.scroll", { tabindex: "0", role: "region", "aria-label": label }, content);
}

/** Return a table in a box that scrolls. */
export function scrolledTable(caption, heads, rows) {
  return scrolled(caption, table(caption, heads, rows));
}

/** Return the numbers of a chart as a table that can be unfolded. */
export function dataTable(caption, heads, rows) {
  return element("details.data", element("summary", "Data table"), scrolledTable(caption, heads, rows));
}

/** Return the entries of a description list: a name and a value each. */
export function terms(entries) {
  return entries.flatMap(([name, value]) => [element("dt", name), element("dd", value)]);
}

/** Return the entries of a list of figures, which are in a box each. */
export function figures(entries) {
  return entries.map((entry) => element("div", terms([entry])));
}

/** Return buttons that show other rows of a long list with `show(begin)`; "" if it is not long. */
export function pager({ begin, number, total, step, show }) {
  if (total <= number) return "";
  const button = (words, to, disabled) => element("button", { disabled, onclick: () => show(to) }, `${words} ${step}`);
  return element("div.row", button("Previous", Math.max(0, begin - step), begin === 0),
    element("span.hint", `${grouped(begin + 1)} to ${grouped(begin + number)} of ${grouped(total)}`),
    button("Next", begin + step, begin + number >= total));
}

/** Return a bar for a cell of a table: `share` of the width, from 0 to 1. */
export function meter(share) {
  const bar = element("span.meter", { "aria-hidden": "true" });
  bar.style.width = `${Math.round(1000 * Math.min(share, 1)) / 10}%`;
  return bar;
}
