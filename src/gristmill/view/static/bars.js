// Charts without a library: bars, and a line on logarithmic axes.
import { short } from "./numbers.js";
import { element, on } from "./page.js";

/** Return a bar chart. bars: [{value, title}] (title: shown on hover); labels: texts along the axis, evenly spaced;
 * summary: what the chart shows, in words, for screen readers. */
export function barChart({ bars, labels, title, summary }) {
  const most = Math.max(1, ...bars.map((bar) => bar.value));
  const readout = element("p.chart-readout", { "aria-hidden": "true" });
  const columns = bars.map((bar) => {
    const column = element("span", { onpointerenter: () => { readout.textContent = bar.title; } });
    column.style.height = bar.value ? `max(2px, ${(100 * bar.value) / most}%)` : "0";
    return column;
  });
  return element("div",
    element("p.chart-title", title),
    element("div.bars", { role: "img", "aria-label": summary, onpointerleave: () => { readout.textContent = ""; } }, columns),
    element("div.bar-labels", { "aria-hidden": "true" }, labels.map((label) => element("span", label))),
    readout);
}

/** Return a line chart with two logarithmic axes, redrawn when its width changes. points: [[x, y]], all > 0;
 * describe(point): text of the point under the pointer. */
export function logChart({ points, title, summary, describe }) {
  const drawing = svg("svg", { role: "img", "aria-label": summary });
  const readout = element("p.chart-readout", { "aria-hidden": "true" });
  const box = element("div.log-chart", element("p.chart-title", title), drawing, readout);
  const [left, right, top, bottom, height] = [52, 10, 8, 24, 240];
  const xs = decades(points.map((point) => point[0]));
  const ys = decades(points.map((point) => point[1]));
  let width = 0;
  const x = (value) => left + ((Math.log10(value) - xs[0]) / (xs[1] - xs[0])) * (width - left - right);
  const y = (value) => height - bottom - ((Math.log10(value) - ys[0]) / (ys[1] - ys[0])) * (height - top - bottom);
  const dot = svg("circle", { class: "dot", r: 4, visibility: "hidden" });

  function draw() {
    width = Math.max(box.clientWidth, 200);
    const parts = [];
    for (let power = xs[0]; power <= xs[1]; power++) {
      const place = x(10 ** power);
      parts.push(svg("line", { class: "grid", x1: place, x2: place, y1: top, y2: height - bottom }));
      parts.push(svg("text", { x: Math.min(place, width - right), y: height - 6, "text-anchor": power === xs[1] ? "end" : "middle" }, short(10 ** power)));
    }
    for (let power = ys[0]; power <= ys[1]; power++) {
      const place = y(10 ** power);
      parts.push(svg("line", { class: "grid", x1: left, x2: width - right, y1: place, y2: place }));
      parts.push(svg("text", { x: left - 6, y: place + 4, "text-anchor": "end" }, short(10 ** power)));
    }
    parts.push(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
    parts.push(svg("polyline", { class: "line", points: points.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(" ") }));
    drawing.replaceChildren(...parts, dot);
  }
  on(drawing, "pointermove", (event) => {
    const place = event.clientX - drawing.getBoundingClientRect().left;
    const near = points.reduce((best, point) => (Math.abs(x(point[0]) - place) < Math.abs(x(best[0]) - place) ? point : best));
    setAttributes(dot, { cx: x(near[0]), cy: y(near[1]), visibility: "visible" });
    readout.textContent = describe(near);
  });
  on(drawing, "pointerleave", () => {
    dot.setAttribute("visibility", "hidden");
    readout.textContent = "";
  });
  new ResizeObserver(() => { if (box.clientWidth !== width) draw(); }).observe(box);
  draw();
  return box;
}

function decades(values) {
  const low = Math.floor(Math.log10(Math.min(...values)));
  return [low, Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))))];
}

function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
}

function svg(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(made, attributes);
  if (text !== undefined) made.textContent = text;
  return made;
}
