// The KL per latent dimension over the steps, as cells: one row per dimension, the one with the most KL on top.

import { element } from "./page.js";
import { AXES, plain } from "./run-charts.js";

const LEFT = 58, RIGHT = 10, BOTTOM = 22;
const RAMPS = { // from 0 to the most KL
  light: ["#f1efed", "#93b4f5", "#1d4ed8", "#0b1f5c"],
  dark: ["#252220", "#2b4a8f", "#6d9cf8", "#e2edff"],
};

export class HeatMap {
  constructor(run, view) {
    Object.assign(this, { run, view, drawn: null });
    this.canvas = element("canvas", { role: "img" });
    this.plot = element("div", { class: "plot" }, this.canvas);
    this.body = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `KL per dimension of ${run.name}` });
    this.disclosure = element("details", { ontoggle: () => this.fillTable() }, element("summary", {}, "Data table"), this.body);
    const id = `heat-map-${run.number}`;
    const title = view.runs.length > 1 ? ["KL per dimension of ", element("bdi", {}, run.name)] : "KL per dimension";
    this.hint = element("p", { class: "hint" });
    this.root = element("figure", { class: "chart", "aria-labelledby": id, "data-chart": "kl_per_dimension" },
      element("figcaption", {}, element("h4", { id }, title), element("span", { class: "grey" }, "nats")), this.plot, this.hint, this.disclosure);
    this.sizes = new ResizeObserver(() => this.refresh());
    this.sizes.observe(this.plot);
  }

  remove() {
    this.sizes.disconnect();
    this.root.remove();
  }

  /** Draw if the cells or the range have changed. */
  update() {
    const { posterior } = this.run;
    if (this.drawn && this.drawn.posterior === posterior && this.drawn.range === this.view.range && this.drawn.axis === this.view.axis) return;
    this.refresh();
  }

  refresh() {
    const { run, view, canvas } = this;
    const { cells, edges, latent_dim: latentDim, num_used: numUsed } = run.posterior || {};
    if (!cells) return;
    this.drawn = { posterior: run.posterior, range: view.range, axis: view.axis };
    const { width, height } = this.plot.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [x0, x1] = view.range;
    const bottom = height - BOTTOM;
    const toX = (step) => LEFT + ((run.placeOf(view.axis, step) - x0) / (x1 - x0 || 1)) * (width - LEFT - RIGHT);
    const most = Math.max(0.5, ...cells.flat());
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT - RIGHT, bottom);
    context.clip();
    const rowHeight = bottom / cells.length;
    const xs = edges.map((edge) => toX(Math.max(0, edge)));
    [...cells].reverse().forEach((row, r) => row.forEach((value, s) => {
      context.fillStyle = ramp(Math.sqrt(Math.max(0, value) / most)); // 0.1 nats is a dimension in use, and must be visible
      context.fillRect(xs[s], r * rowHeight, xs[s + 1] - xs[s] + 0.6, rowHeight + 0.6);
    }));
    context.restore();
    const style = getComputedStyle(document.documentElement);
    context.fillStyle = style.getPropertyValue("--grey");
    context.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
    context.textAlign = "right";
    context.textBaseline = "top";
    context.fillText("1", LEFT - 7, 2);
    context.textBaseline = "bottom";
    context.fillText(String(latentDim), LEFT - 7, bottom);
    context.textBaseline = "top";
    context.fillText(AXES[view.axis].named(x1), width - RIGHT, bottom + 6);
    context.textAlign = "left";
    context.fillText(AXES[view.axis].named(x0), LEFT, bottom + 6);
    const words = `${numUsed} of ${latentDim} dimensions have more than 0.1 nats at the last measurement. Highest: ${plain(Math.max(...cells.flat()))} nats.`;
    canvas.setAttribute("aria-label", `KL per dimension over the steps. ${words}`);
    this.hint.textContent = `Each row is a dimension, the one with the most KL on top; pale rows carry no information. ${words}`;
    this.fillTable();
  }

  fillTable() {
    const { cells, latent_dim: latentDim } = this.run.posterior || {};
    if (!this.disclosure.open || !cells) return;
    const perRow = latentDim / cells.length;
    const rows = [...cells].reverse().map((row, r) => element("tr", {},
      element("th", { scope: "row" }, perRow > 1 ? `${Math.round(r * perRow) + 1} to ${Math.min(latentDim, Math.round((r + 1) * perRow))}` : String(r + 1)),
      element("td", { class: "number" }, plain(row[0])), element("td", { class: "number" }, plain(row[row.length - 1]))));
    this.body.replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Dimension, by its KL"),
      element("th", { scope: "col", class: "number" }, "First, nats"), element("th", { scope: "col", class: "number" }, "Last, nats"))), element("tbody", {}, rows)));
  }
}

function ramp(share) {
  const colors = RAMPS[document.documentElement.dataset.theme] || RAMPS.light;
  const place = Math.min(0.9999, share) * (colors.length - 1);
  const [from, to] = [colors[Math.floor(place)], colors[Math.floor(place) + 1]];
  const mixed = [1, 3, 5].map((i) => Math.round(parseInt(from.slice(i, i + 2), 16) + (place % 1) * (parseInt(to.slice(i, i + 2), 16) - parseInt(from.slice(i, i + 2), 16))));
  return `rgb(${mixed.join(",")})`;
}
