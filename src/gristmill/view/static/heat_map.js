// The KL per latent dimension over the steps, as cells: one row per dimension, the one with the most KL on top.

import { element, hint, ofTheme, on } from "./page.js";
import { BOTTOM, clipped, figure, fitted, LEFT, RIGHT, themeColor } from "./chart.js";
import { plain } from "./numbers.js";
import { AXES } from "./run_charts.js";
import { table } from "./tables.js";

const RAMPS = { // from 0 to the most KL
  light: ["f1efed", "93b4f5", "1d4ed8", "0b1f5c"],
  dark: ["252220", "2b4a8f", "6d9cf8", "e2edff"],
};

export class HeatMap {
  constructor(run, view) {
    Object.assign(this, { run, view, drawn: [] });
    this.canvas = element("canvas", { role: "img" });
    this.hint = hint();
    const title = view.runs.length > 1 ? element("span", "KL per dimension of ", element("bdi", run.name)) : "KL per dimension";
    Object.assign(this, figure(`heat-map-${run.number}`, { title, unit: "nats", note: this.hint, words: `KL per dimension of ${run.name}` }, this.canvas));
    this.root.dataset.chart = "kl_per_dimension";
    on(this.disclosure, "toggle", () => this.fillTable());
    this.sizes = new ResizeObserver(() => this.refresh());
    this.sizes.observe(this.plot);
  }

  remove() {
    this.sizes.disconnect();
    this.root.remove();
  }

  /** Draw if the cells or the range have changed. */
  update() {
    const wanted = [this.run.posterior, this.view.range, this.view.axis];
    if (wanted.some((each, i) => each !== this.drawn[i])) this.refresh();
  }

  refresh() {
    const { run, view, view: { axis, range: [x0, x1] } } = this;
    const { cells, edges, latent_dim: latentDim, num_used: numUsed } = run.posterior || {};
    if (!cells) return;
    this.drawn = [run.posterior, view.range, axis];
    const { context, width, height } = fitted(this.canvas, this.plot);
    const bottom = height - BOTTOM;
    const highest = Math.max(...cells.flat());
    const rowHeight = bottom / cells.length;
    const xs = edges.map((edge) => LEFT + ((run.placeOf(axis, Math.max(0, edge)) - x0) / (x1 - x0 || 1)) * (width - LEFT - RIGHT));
    clipped(context, width, 0, bottom, () => [...cells].reverse().forEach((row, r) => row.forEach((value, s) => {
      // On a square-root scale: 0.1 nats is a dimension in use, and must be visible.
      context.fillStyle = ramp(Math.sqrt(Math.max(0, value) / Math.max(0.5, highest)));
      context.fillRect(xs[s], r * rowHeight, xs[s + 1] - xs[s] + 0.6, rowHeight + 0.6);
    })));
    const write = (text, x, y, textAlign, textBaseline) => {
      Object.assign(context, { fillStyle: themeColor("grey"), textAlign, textBaseline });
      context.fillText(text, x, y);
    };
    write("1", LEFT - 7, 2, "right", "top");
    write(String(latentDim), LEFT - 7, bottom, "right", "bottom");
    write(AXES[axis].named(x0), LEFT, bottom + 6, "left", "top");
    write(AXES[axis].named(x1), width - RIGHT, bottom + 6, "right", "top");
    const words = `${numUsed} of ${latentDim} dimensions have more than 0.1 nats at the last measurement. Highest: ${plain(highest)} nats.`;
    this.canvas.setAttribute("aria-label", `KL per dimension over the steps. ${words}`);
    this.hint.textContent = `Each row is a dimension, the one with the most KL on top; pale rows carry no information. ${words}`;
    this.fillTable();
  }

  fillTable() {
    const { cells, latent_dim: latentDim } = this.run.posterior || {};
    if (!this.disclosure.open || !cells) return;
    const perRow = Math.ceil(latentDim / cells.length);
    const first = (r) => latentDim - Math.min(latentDim, (cells.length - r) * perRow) + 1; // the group at the top may be smaller
    const name = (r) => (perRow > 1 ? `${first(r)} to ${first(r + 1) - 1}` : String(r + 1));
    const rows = [...cells].reverse().map((row, r) => [name(r), plain(row[0]), plain(row[row.length - 1])]);
    this.body.replaceChildren(table("KL per dimension", ["#Dimension, by its KL", "#First, nats", "#Last, nats"], rows));
  }
}

function ramp(share) {
  const colors = ofTheme(RAMPS).map((color) => [0, 2, 4].map((i) => parseInt(color.slice(i, i + 2), 16)));
  const place = Math.min(0.9999, share) * (colors.length - 1);
  const [from, to] = colors.slice(Math.floor(place));
  return `rgb(${from.map((value, i) => Math.round(value + (place % 1) * (to[i] - value))).join(",")})`;
}
