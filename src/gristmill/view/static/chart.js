// A line chart on two canvases. The lower one keeps everything that will not change: axes and complete buckets; new
// records extend its lines. The upper one has the last, incomplete bucket, the cursor and the selection.

import { element } from "./page.js";
import { AXES } from "./run-charts.js";
import { bisect } from "./series.js";

const LEFT = 58, RIGHT = 10, TOP = 8, BOTTOM = 22;
const PALE_RUNS = 3; // with more runs, the pale lines of the records would hide each other
const FEW_POINTS = 60; // drawn as dots too
const DASHES = [[], [6, 4], [2, 3]];
const TABLE_ROWS = 20;
const DURATIONS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Return round numbers between `low` and `high`, about `number` of them. */
export function ticks(low, high, number, isTime = false) {
  const rough = (high - low) / Math.max(1, number);
  if (!(rough > 0) || !Number.isFinite(rough)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999);
  if (isTime) step = DURATIONS.find((each) => each >= rough) || 86400 * Math.ceil(rough / 86400);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12) + 1e-300 && found.length < 50; i++) found.push(i * step);
  return found;
}

function logTicks(low, high) {
  const factors = high < 30 * low ? [1, 1.5, 2, 3, 5, 7] : high < 3000 * low ? [1, 3] : [1];
  const every = Math.max(1, Math.ceil(Math.log10(high / low) / 6));
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    if (power % every === 0) found.push(...factors.map((factor) => factor * 10 ** power));
  }
  return found.filter((value) => value >= low && value <= high);
}

export class Chart {
  /** view: {runs, axis, range, yScale, smoothing, cursor, color(run, line), zoom(x0, x1), moveCursor(x), step(direction, by)}. */
  constructor(definition, view) {
    Object.assign(this, { definition, view, isVisible: false, isOutdated: true, scale: null, states: new Map() });
    const id = `chart-${definition.id.replace(/[^a-z0-9_]/gi, "-")}`;
    this.lines = element("canvas", { role: "img", "aria-label": definition.title });
    this.over = element("canvas", { "aria-hidden": "true" });
    this.slider = element("div", { class: "cursor", role: "slider", tabindex: "0", "aria-label": `Cursor in ${definition.title}`,
      "aria-valuemin": "0", "aria-valuemax": "1", "aria-valuenow": "0", "aria-valuetext": "No position. The arrow keys move the cursor." });
    this.plot = element("div", { class: "plot" }, this.lines, this.over, this.slider);
    this.legend = element("ul", { class: "legend" });
    this.disclosure = element("details", { ontoggle: () => this.fillTable() }, element("summary", {}, "Data table"), element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Data of ${definition.title}` }));
    this.root = element("figure", { class: definition.wide ? "chart wide" : "chart", "aria-labelledby": id, "data-chart": definition.id },
      element("figcaption", {}, element("h4", { id }, definition.title), definition.unit && element("span", { class: "grey" }, definition.unit)),
      this.plot, this.legend, definition.note && element("p", { class: "hint" }, definition.note), this.disclosure);
    this.listen();
    this.sizes = new ResizeObserver(() => this.refresh());
    this.sizes.observe(this.plot);
    this.sights = new IntersectionObserver(([entry]) => {
      this.isVisible = entry.isIntersecting;
      if (this.isVisible && this.isOutdated) this.refresh();
    }, { rootMargin: "200px" });
    this.sights.observe(this.plot);
  }

  remove() {
    this.sizes.disconnect();
    this.sights.disconnect();
    this.root.remove();
  }

  /** The visible runs that have one of the lines, each with its lines. */
  shown() {
    return this.view.runs.filter((run) => run.visible).map((run) => ({
      run, lines: this.definition.lines.map((line, number) => ({ ...line, number })).filter(({ table, column }) => run.tables[table] && run.tables[table].has(column)),
    })).filter(({ lines }) => lines.length);
  }

  /** Draw everything again, with a new scale. */
  refresh() {
    if (!this.isVisible) { this.isOutdated = true; return; }
    this.isOutdated = false;
    this.measure();
    this.scale = this.newScale();
    this.states.clear();
    this.root.dataset.redraws = Number(this.root.dataset.redraws || 0) + 1;
    this.drawAxes();
    this.extend();
    this.fillLegend();
    this.describe();
  }

  /** Draw what is new. Draws everything again only if it does not fit into the scale. */
  update() {
    if (!this.isVisible) { this.isOutdated = true; return; }
    const [x0, x1] = this.view.range;
    if (!this.scale || this.isOutdated || x0 !== this.scale.x0 || x1 !== this.scale.x1 || !this.fits()) { this.refresh(); return; }
    this.root.dataset.extensions = Number(this.root.dataset.extensions || 0) + 1;
    this.extend();
    if (Date.now() - this.described > 5000) this.describe();
  }

  measure() {
    const { width, height } = this.plot.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    this.width = Math.max(120, width);
    this.height = Math.max(80, height);
    for (const canvas of [this.lines, this.over]) {
      const [w, h] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
      if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    const style = getComputedStyle(document.documentElement);
    this.colors = Object.fromEntries(["ink", "grey", "rule", "paper", "rust", "warn-wash"].map((name) => [name, style.getPropertyValue(`--${name}`)]));
    this.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
  }

  newScale() {
    const { definition, view } = this;
    const [x0, x1] = view.range;
    let [low, high, positive] = [Infinity, -Infinity, Infinity];
    this.eachBucket(x0, x1, (from, to) => {
      low = Math.min(low, from);
      high = Math.max(high, to);
      if (from > 0) positive = Math.min(positive, from);
    });
    if (!(high >= low)) [low, high] = [0, 1];
    const isLog = high > 0 && Number.isFinite(positive) && (view.yScale === "log" || (view.yScale === "auto" && !definition.zero && low > 0 && high >= definition.enough * low));
    let y0, y1;
    if (isLog) {
      y0 = positive / 1.08;
      y1 = high * 1.08;
    } else if (definition.zero && view.yScale !== "log") {
      y0 = Math.min(0, 1.06 * low);
      y1 = high > 0 ? 1.12 * high : low < 0 ? 0 : 1;
    } else {
      const pad = high > low ? 0.06 * (high - low) : 0.1 * Math.abs(low) + 0.01;
      y0 = low - pad;
      y1 = high + pad;
    }
    return { x0, x1, y0, y1, isLog };
  }

  /** Call `visit(lowest, highest)` for each bucket in a range that will be drawn. */
  eachBucket(x0, x1, visit) {
    const drawsRange = this.drawsRange();
    for (const { run, lines } of this.shown()) {
      for (const line of lines) {
        const table = run.table(line.table);
        const { mean, min, max } = table.columns.get(line.column) || { mean: [] };
        const place = (i) => run.place(line.table, table, this.view.axis, i);
        const [from, to] = line.noisy && drawsRange ? [min, max] : [mean, mean];
        for (let i = bisect(place, mean.length, x0); i < mean.length && place(i) <= x1; i++) {
          if (!Number.isNaN(mean[i])) visit(from[i], to[i]);
        }
      }
    }
  }

  drawsRange() {
    return this.view.runs.filter((run) => run.visible).length <= PALE_RUNS;
  }

  /** Whether the buckets since the last drawing are inside the scale. */
  fits() {
    const { y0, y1, x1, isLog } = this.scale;
    const drawsRange = this.drawsRange();
    for (const { run, lines } of this.shown()) {
      for (const line of lines) {
        const state = this.states.get(`${run.number} ${line.number}`);
        const table = run.table(line.table);
        if (!state || state.table !== table || state.shape !== table.shape || state.generation !== run.generation) return false;
        const { mean, min, max } = table.columns.get(line.column);
        const [from, to] = line.noisy && drawsRange ? [min, max] : [mean, mean];
        for (let i = Math.min(state.done, table.complete); i < mean.length; i++) {
          if (run.place(line.table, table, this.view.axis, i) > x1) break;
          if ((from[i] < y0 && !(isLog && from[i] <= 0)) || to[i] > y1) return false;
        }
      }
    }
    return true;
  }

  toX(x) {
    const { x0, x1 } = this.scale;
    return LEFT + ((x - x0) / (x1 - x0 || 1)) * (this.width - LEFT - RIGHT);
  }

  fromX(pixel) {
    const { x0, x1 } = this.scale;
    return x0 + Math.min(1, Math.max(0, (pixel - LEFT) / (this.width - LEFT - RIGHT))) * (x1 - x0);
  }

  toY(y) {
    const { y0, y1, isLog } = this.scale;
    const share = isLog ? Math.log(Math.max(y, y0 / 10) / y0) / Math.log(y1 / y0) : (y - y0) / (y1 - y0);
    return this.height - BOTTOM - share * (this.height - TOP - BOTTOM);
  }

  drawAxes() {
    const { view, scale, definition, colors } = this;
    const context = this.lines.getContext("2d");
    const [right, bottom] = [this.width - RIGHT, this.height - BOTTOM];
    context.clearRect(0, 0, this.width, this.height);
    context.font = this.font;
    context.lineWidth = 1;
    for (const { run } of this.shown()) this.shade(context, run);
    context.textBaseline = "middle";
    context.textAlign = "right";
    const values = scale.isLog ? logTicks(scale.y0, scale.y1) : ticks(scale.y0, scale.y1, Math.max(2, this.height / 50));
    let above = Infinity;
    for (const value of values) {
      const y = Math.round(this.toY(value)) + 0.5;
      if (above - y < 13) continue;
      above = y;
      context.strokeStyle = colors.rule;
      line(context, LEFT, y, right, y);
      context.fillStyle = colors.grey;
      context.fillText(tickText(definition, value), LEFT - 7, y);
    }
    context.textBaseline = "top";
    context.textAlign = "center";
    const axis = AXES[view.axis];
    let before = -Infinity;
    for (const value of ticks(scale.x0, scale.x1, Math.max(2, this.width / 110), view.axis === "seconds")) {
      const text = value ? axis.tick(value) : "0";
      const half = context.measureText(text).width / 2;
      const x = Math.min(this.toX(value), this.width - half);
      if (x - half < before + 8) continue;
      before = x + half;
      context.fillText(text, x, bottom + 6);
      line(context, this.toX(value), bottom, this.toX(value), bottom + 4);
    }
    context.strokeStyle = colors.rule;
    line(context, LEFT, bottom + 0.5, right, bottom + 0.5);
  }

  /** Mark the alarms and events of a run. */
  shade(context, run) {
    const { view, colors, scale } = this;
    const bottom = this.height - BOTTOM;
    const inside = (x) => Math.min(this.width - RIGHT, Math.max(LEFT, this.toX(x)));
    for (const span of run.posterior ? run.posterior.spans : []) {
      const [first, last] = [run.placeOf(view.axis, span.first), run.placeOf(view.axis, span.last)];
      if (!(last >= scale.x0 && first <= scale.x1)) continue;
      context.fillStyle = colors["warn-wash"];
      context.fillRect(inside(first), TOP, Math.max(1, inside(last) - inside(first)), bottom - TOP);
      context.strokeStyle = colors.rust;
      if (first >= scale.x0) line(context, this.toX(first), TOP, this.toX(first), bottom);
    }
    for (const { step, message } of run.events) {
      const x = run.placeOf(view.axis, step);
      if (!(x >= scale.x0 && x <= scale.x1)) continue;
      const isStop = message.includes("The run is stopped");
      context.strokeStyle = isStop ? colors.rust : colors.grey;
      context.setLineDash(isStop ? [4, 3] : []);
      line(context, this.toX(x), isStop ? TOP : bottom - 6, this.toX(x), bottom);
      context.setLineDash([]);
    }
  }

  /** Draw the buckets that are complete and not drawn yet, then the upper canvas. */
  extend() {
    const context = this.lines.getContext("2d");
    this.clipped(context, () => {
      for (const { run, lines } of this.shown()) {
        for (const each of lines) {
          const state = this.stateOf(run, each);
          this.drawLine(context, run, each, state, state.table.complete, true);
        }
      }
    });
    this.drawOver();
    if (this.disclosure.open) this.fillTable();
  }

  stateOf(run, each) {
    const key = `${run.number} ${each.number}`;
    let state = this.states.get(key);
    if (!state) {
      const table = run.table(each.table);
      const { x0, x1 } = this.scale;
      const place = (i) => run.place(each.table, table, this.view.axis, i);
      const [first, end] = [x0, x1].map((x) => bisect(place, table.complete, x));
      const width = each.noisy ? Math.round(this.view.smoothing * (end - first)) : 0;
      const from = Math.max(0, first - 1);
      // done, pale: numbers of the buckets up to which the mean and the records are drawn; last*: where their paths are.
      state = { table, shape: table.shape, generation: run.generation, width, done: from, pale: from, last: null, lastPale: null, number: 0, sums: [0], counts: [0] };
      this.states.set(key, state);
    }
    return state;
  }

  clipped(context, draw) {
    context.save();
    context.beginPath();
    context.rect(LEFT, TOP - 4, this.width - LEFT - RIGHT, this.height - TOP - BOTTOM + 8);
    context.clip();
    draw();
    context.restore();
  }

  /** Draw a line from where `state` is up to bucket number `end`; isFinal: and no further than later records can change. */
  drawLine(context, run, each, state, end, isFinal) {
    const { view } = this;
    const { table, width, sums, counts } = state;
    const column = table.columns.get(each.column);
    const hasPale = each.noisy && this.drawsRange() && (width > 0 || column.min !== column.mean);
    const isFew = each.dots && table.length <= FEW_POINTS;
    const [bold, pale, marks] = [new Path2D(), new Path2D(), new Path2D()];
    for (let i = sums.length - 1; i < end; i++) {
      const isKnown = !Number.isNaN(column.mean[i]);
      sums.push(sums[i] + (isKnown ? column.mean[i] : 0));
      counts.push(counts[i] + (isKnown ? 1 : 0));
    }
    const isBand = table.size > 1; // between the lowest and highest values of the buckets; otherwise a line
    const back = [];
    for (let isStart = true; hasPale && state.pale < end; state.pale++) {
      const i = state.pale;
      const x = this.toX(run.place(each.table, table, view.axis, i));
      if (Number.isNaN(column.mean[i]) || Number.isNaN(x)) continue;
      const point = [x, this.toY(column.max[i]), this.toY(column.min[i])];
      for (const [px, high, low] of isStart && state.lastPale ? [state.lastPale, point] : [point]) {
        if (isStart) pale.moveTo(px, high);
        else pale.lineTo(px, high);
        back.push([px, low]);
        isStart = false;
      }
      state.lastPale = point;
    }
    const band = new Path2D(pale);
    back.reverse().forEach((point) => band.lineTo(...point));
    if (state.last) bold.moveTo(...state.last);
    for (; state.done < end; state.done++) {
      const i = state.done;
      // As in the report: at the beginning, where curves are steep, the window is narrower; at the end it is one-sided.
      const after = Math.min(i, width);
      if (isFinal && i + after >= end) break;
      const x = this.toX(run.place(each.table, table, view.axis, i));
      if (Number.isNaN(column.mean[i]) || Number.isNaN(x)) continue;
      const [from, to] = [i - after, Math.min(end, i + after + 1)];
      const y = this.toY(width ? (sums[to] - sums[from]) / (counts[to] - counts[from]) : column.mean[i]);
      if (each.diamonds) diamond(marks, x, y);
      else if (state.last) bold.lineTo(x, y);
      else bold.moveTo(x, y);
      if (isFew) { marks.moveTo(x + 2.4, y); marks.arc(x, y, 2.4, 0, 7); }
      state.last = [x, y];
      state.number++;
    }
    context.strokeStyle = context.fillStyle = view.color(run, each);
    context.lineJoin = "round";
    if (hasPale) {
      context.globalAlpha = 0.28;
      context.lineWidth = 0.9;
      if (isBand) context.fill(band);
      context.stroke(pale); // without the band's lower edge: a spike of one bucket would be too thin to see
      context.globalAlpha = 1;
    }
    context.setLineDash(this.dash(each));
    context.lineWidth = 1.7;
    if (each.diamonds) context.fillStyle = this.colors.paper;
    context.fill(marks);
    context.stroke(each.diamonds ? marks : bold);
    context.setLineDash([]);
  }

  dash(each) {
    if (each.dots || each.diamonds || this.view.runs.length === 1) return each.column === "mutual_information_limit" ? DASHES[1] : DASHES[0];
    return DASHES[each.number % DASHES.length];
  }

  /** Draw the incomplete buckets, the ends of the lines, the cursor and the selection. */
  drawOver() {
    const context = this.over.getContext("2d");
    context.clearRect(0, 0, this.width, this.height);
    if (!this.scale) return;
    this.clipped(context, () => {
      for (const { run, lines } of this.shown()) {
        for (const each of lines) {
          const known = this.stateOf(run, each);
          const state = { ...known };
          this.drawLine(context, run, each, state, state.table.length, false);
          known.sums.length = known.counts.length = Math.min(known.sums.length, state.table.complete + 1);
          if (!each.diamonds && state.last) dot(context, ...state.last, state.number === 1 ? 3.5 : 2.6);
        }
      }
    });
    if (this.selection) {
      const [from, to] = this.selection.map((x) => this.toX(x));
      context.globalAlpha = 0.14;
      context.fillStyle = this.colors.ink;
      context.fillRect(Math.min(from, to), TOP, Math.abs(to - from), this.height - TOP - BOTTOM);
      context.globalAlpha = 1;
    }
    const { cursor } = this.view;
    if (cursor !== null && cursor >= this.scale.x0 && cursor <= this.scale.x1) {
      context.strokeStyle = this.colors.ink;
      context.lineWidth = 1;
      line(context, this.toX(cursor), TOP, this.toX(cursor), this.height - BOTTOM);
      for (const { run, lines } of this.shown()) {
        for (const each of lines) {
          const found = this.valueAt(run, each, cursor);
          if (!found) continue;
          context.fillStyle = this.view.color(run, each);
          dot(context, this.toX(found.x), this.toY(found.value), 3.2);
        }
      }
    }
    this.fillValues();
  }

  /** Return the value of a line at the last record up to `x`, or null. `x` null: the last one. */
  valueAt(run, each, x) {
    const table = run.table(each.table);
    const column = table.columns.get(each.column);
    if (!column) return null;
    const place = (i) => run.place(each.table, table, this.view.axis, i);
    let i = x === null ? table.length - 1 : Math.min(bisect(place, table.length, x), table.length - 1);
    if (x !== null && i > 0 && Math.abs(place(i - 1) - x) < Math.abs(place(i) - x)) i--;
    for (; i >= 0; i--) if (!Number.isNaN(column.mean[i])) return { value: column.mean[i], low: column.min[i], high: column.max[i], x: place(i) };
    return null;
  }

  // Texts: the legend with the values at the cursor, the summary, and the table.

  fillLegend() {
    const shown = this.shown();
    this.values = [];
    const value = (run, each) => {
      const place = element("span", { class: "value" });
      this.values.push({ run, each, place });
      return place;
    };
    const words = (each) => (this.definition.lines.length > 1 ? each.words : "");
    this.legend.replaceChildren(...(this.view.runs.length === 1
      ? shown.flatMap(({ run, lines }) => lines.map((each) => element("li", {}, this.swatch(run, each), words(each) || "last", " ", value(run, each))))
      : shown.map(({ run, lines }) => element("li", {}, this.swatch(run, lines[0]), element("bdi", { class: "name" }, run.name),
        lines.map((each) => [" ", words(each) && element("span", { class: "grey" }, `${words(each)} `), value(run, each)]).flat()))));
    this.position = element("li", { class: "grey" });
    this.legend.append(this.position);
    if (shown.length > 8) this.legend.setAttribute("tabindex", "0");
    this.fillValues();
  }

  swatch(run, each) {
    const made = element("span", { class: each.diamonds ? "swatch diamond" : "swatch", "aria-hidden": "true" });
    made.style.color = this.view.color(run, each);
    return made;
  }

  fillValues() {
    const { cursor, axis } = this.view;
    for (const { run, each, place } of this.values || []) {
      const found = this.valueAt(run, each, cursor);
      place.textContent = found ? this.definition.format(found.value) : "–";
    }
    if (this.position) this.position.textContent = cursor === null ? "" : `at ${AXES[axis].named(cursor)}`;
    if (cursor === null || document.activeElement !== this.slider) return;
    this.slider.setAttribute("aria-valuenow", String(Math.round(cursor)));
    const parts = (this.values || []).map(({ run, each, place }) => `${this.view.runs.length > 1 ? `${run.name} ` : ""}${each.words} ${place.textContent}`);
    this.slider.setAttribute("aria-valuetext", `${AXES[axis].named(cursor)}: ${parts.join(", ")}`);
  }

  /** Write the summary for screen readers. */
  describe() {
    this.described = Date.now();
    const { definition, view } = this;
    const parts = this.shown().flatMap(({ run, lines }) => lines.map((each) => {
      const column = run.table(each.table).columns.get(each.column);
      const last = this.valueAt(run, each, null);
      if (!last || !column) return "";
      let [low, high] = [Infinity, -Infinity];
      for (let i = 0; i < column.mean.length; i++) {
        if (column.min[i] < low) low = column.min[i];
        if (column.max[i] > high) high = column.max[i];
      }
      const name = view.runs.length > 1 ? `${run.name}, ${each.words}` : each.words;
      return `${name}: last ${definition.format(last.value)}, lowest ${definition.format(low)}, highest ${definition.format(high)}, ${trend(column.mean)}`;
    })).filter(Boolean);
    this.lines.setAttribute("aria-label", `${definition.title}${definition.unit ? ` (${definition.unit})` : ""} by ${AXES[view.axis].words.toLowerCase()}. ${parts.join(". ")}.`);
    this.slider.setAttribute("aria-valuemin", String(Math.round(this.scale.x0)));
    this.slider.setAttribute("aria-valuemax", String(Math.round(this.scale.x1)));
  }

  fillTable() {
    if (!this.disclosure.open || !this.scale) return;
    const shown = this.shown();
    const first = shown[0];
    if (!first) return;
    const columns = shown.flatMap(({ run, lines }) => lines.map((each) => ({ run, each })));
    const table = first.run.table(first.lines[0].table);
    const rows = [];
    for (let i = table.length - 1; i >= 0 && rows.length < TABLE_ROWS; i--) {
      const x = first.run.place(first.lines[0].table, table, this.view.axis, i);
      if (x > this.scale.x1) continue;
      if (x < this.scale.x0) break;
      rows.push(element("tr", {}, element("th", { scope: "row", class: "number" }, AXES[this.view.axis].format(x)),
        columns.map(({ run, each }) => {
          const found = this.valueAt(run, each, x);
          return element("td", { class: "number" }, found ? this.definition.format(found.value) : "–");
        })));
    }
    const heads = columns.map(({ run, each }) => element("th", { scope: "col", class: "number" }, this.view.runs.length > 1 ? `${run.name}, ${each.words}` : each.words));
    const note = table.size > 1 ? `Means of ${table.size} records, the newest first.` : "The newest first.";
    this.disclosure.querySelector(".scroll").replaceChildren(element("table", {}, element("caption", { class: "hint" }, note),
      element("thead", {}, element("tr", {}, element("th", { scope: "col", class: "number" }, AXES[this.view.axis].words), heads)), element("tbody", {}, rows)));
  }

  // Pointer and keys.

  listen() {
    const { slider, view } = this;
    const at = (event) => this.fromX(event.clientX - this.plot.getBoundingClientRect().left);
    let start = null;
    slider.addEventListener("pointerdown", (event) => {
      if (event.button || !this.scale) return;
      start = { pixel: event.clientX, x: at(event) };
      slider.setPointerCapture(event.pointerId);
    });
    slider.addEventListener("pointermove", (event) => {
      if (!this.scale) return;
      this.selection = start && Math.abs(event.clientX - start.pixel) > 6 ? [start.x, at(event)] : null;
      view.moveCursor(at(event));
    });
    const end = (event) => {
      const chosen = this.selection;
      start = this.selection = null;
      if (event.type === "pointerup" && chosen) view.zoom(Math.min(...chosen), Math.max(...chosen));
      else this.drawOver();
    };
    slider.addEventListener("pointerup", end);
    slider.addEventListener("pointercancel", end);
    slider.addEventListener("pointerleave", () => { if (!start && document.activeElement !== slider) view.moveCursor(null); });
    slider.addEventListener("blur", () => view.moveCursor(null));
    slider.addEventListener("dblclick", () => view.zoom());
    slider.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    if (!this.scale || event.ctrlKey || event.metaKey || event.altKey) return;
    const { view, scale } = this;
    const pixel = (scale.x1 - scale.x0) / (this.width - LEFT - RIGHT);
    const last = Math.max(...this.shown().map(({ run }) => run.end(view.axis)), scale.x0);
    const now = view.cursor === null ? Math.min(last, scale.x1) : view.cursor;
    const by = pixel * (event.shiftKey ? 50 : 5);
    const moves = { ArrowLeft: now - by, ArrowDown: now - by, ArrowRight: now + by, ArrowUp: now + by, PageDown: now - 100 * pixel, PageUp: now + 100 * pixel, Home: scale.x0, End: Math.min(last, scale.x1) };
    if (event.key in moves) view.moveCursor(Math.min(scale.x1, Math.max(scale.x0, moves[event.key])));
    else if (event.key === "+" || event.key === "=") view.step(1, now);
    else if (event.key === "-") view.step(-1, now);
    else if (event.key === "0" || event.key === "Escape") view.zoom();
    else return;
    event.preventDefault();
  }
}

function tickText(definition, value) {
  if (value === 0) return "0";
  const text = definition.format(value);
  return /^-?[\d,]*\.\d+$/.test(text) ? String(Number(value.toPrecision(3))) : text;
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

function dot(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  context.fill();
}

function diamond(path, x, y) {
  path.moveTo(x, y - 4.5);
  path.lineTo(x + 4.5, y);
  path.lineTo(x, y + 4.5);
  path.lineTo(x - 4.5, y);
  path.closePath();
}

/** Compare the last tenth of a column with the tenth before it. */
function trend(column) {
  const known = column.filter((value) => !Number.isNaN(value));
  const tenth = Math.max(1, Math.floor(known.length / 10));
  if (known.length < 2) return "one record";
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [now, before] = [mean(known.slice(-tenth)), mean(known.slice(-2 * tenth, -tenth))];
  const change = (now - before) / (Math.abs(before) || 1);
  return Math.abs(change) < 0.005 ? "steady" : change < 0 ? "falling" : "rising";
}
