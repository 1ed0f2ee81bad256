// A line chart on two canvases. The lower one keeps what will not change: axes and complete buckets; new records extend
// its lines. The upper one has the last, incomplete bucket, the cursor and the selection.

import { element, hint, on, setText } from "./page.js";
import { AXES } from "./run_charts.js";
import { bisect } from "./series.js";
import { scrolled, table as tableOf } from "./tables.js";

export const LEFT = 58, RIGHT = 10, BOTTOM = 22;
const TOP = 8;
const PALE_RUNS = 3; // with more runs, the pale lines of the records would hide each other
const FEW_POINTS = 60; // drawn as dots too
const DASHES = [[], [6, 4], [2, 3]];
const TABLE_ROWS = 20;
const DURATIONS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const { abs, floor, log10, max, min, round } = Math;
const { isNaN } = Number;

/** Return round numbers between `low` and `high`, about `number` of them. */
function ticks(low, high, number, isTime = false) {
  const rough = (high - low) / max(1, number);
  if (!(rough > 0) || rough === Infinity) return [];
  const power = 10 ** floor(log10(rough));
  const step = isTime ? DURATIONS.find((each) => each >= rough) || 86400 * Math.ceil(rough / 86400)
    : [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high && found.length < 50; i++) found.push(i * step);
  return found;
}

function logTicks(low, high) {
  const factors = high < 30 * low ? [1, 1.5, 2, 3, 5, 7] : high < 3000 * low ? [1, 3] : [1];
  const every = max(1, Math.ceil(log10(high / low) / 6));
  const found = [];
  for (let power = floor(log10(low)); power <= log10(high); power++) {
    if (power % every === 0) found.push(...factors.map((factor) => factor * 10 ** power));
  }
  return found.filter((value) => value >= low && value <= high);
}

/** Give a canvas the size of the plot in device pixels; return its context and its size in CSS pixels. */
export function fitted(canvas, plot) {
  const { width, height } = plot.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [round(width * ratio), round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
  return { context, width, height };
}

/** Draw between the two vertical edges of the plot, from `top` to `bottom`. */
export function clipped(context, width, top, bottom, draw) {
  context.save();
  context.beginPath();
  context.rect(LEFT, top, width - LEFT - RIGHT, bottom - top);
  context.clip();
  draw();
  context.restore();
}

export function themeColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
}

/** Return the parts that every figure has: {root, plot, disclosure, body}. */
export function figure(id, { title, unit, note, isWide, words }, ...children) {
  const plot = element("div.plot", children);
  const body = scrolled(`Data of ${words}`);
  const disclosure = element("details", element("summary", "Data table"), body);
  const root = element("figure", { class: isWide ? "chart wide" : "chart", "aria-labelledby": id },
    element("figcaption", element("h4", { id }, title), unit && element("span.grey", unit)), plot, note, disclosure);
  return { root, plot, disclosure, body };
}

export class Chart {
  /** view: {runs, visible, end, axis, range, scale, smoothing, cursor, color(run, line), zoom(x0, x1), zoomBy(direction, x), moveCursor(x)}. */
  constructor(definition, view) {
    const { id, title, unit, note, wide: isWide } = definition;
    Object.assign(this, { definition, view, isVisible: false, isOutdated: true, scale: null, states: new Map() });
    this.lines = element("canvas", { role: "img", "aria-label": title });
    this.over = element("canvas", { "aria-hidden": "true" });
    this.slider = element("div.cursor", { role: "slider", tabindex: "0", "aria-label": `Cursor in ${title}`,
      "aria-valuemin": "0", "aria-valuemax": "1", "aria-valuenow": "0", "aria-valuetext": "No position. The arrow keys move the cursor." });
    this.legend = element("ul.legend");
    const below = element("div", this.legend, note && hint(note));
    Object.assign(this, figure(`chart-${id.replace(/\W/g, "-")}`, { title, unit, note: below, isWide, words: title }, this.lines, this.over, this.slider));
    this.root.dataset.chart = id;
    on(this.disclosure, "toggle", () => this.fillTable());
    this.listen();
    this.observers = [
      new ResizeObserver(() => this.refresh()),
      new IntersectionObserver(([entry]) => {
        this.isVisible = entry.isIntersecting;
        if (this.isVisible && this.isOutdated) this.refresh();
      }, { rootMargin: "200px" }),
    ];
    this.observers.forEach((observer) => observer.observe(this.plot));
  }

  remove() {
    this.observers.forEach((observer) => observer.disconnect());
    this.root.remove();
  }

  /** Return the lines of the visible runs: {run, line, table, column, place(i), low, high, words}; low and high are what is drawn. */
  series() {
    const { view, definition } = this;
    const { visible } = view;
    this.drawsRange = visible.length <= PALE_RUNS;
    return visible.flatMap((run) => definition.lines.map((line, number) => {
      const table = run.table(line.table);
      const column = table.columns.get(line.column);
      if (!column || !run.tables[line.table].has(line.column)) return null;
      const isRange = line.noisy && this.drawsRange;
      return { run, line: { ...line, number }, table, column, key: `${run.number} ${number}`, place: (i) => run.place(line.table, table, view.axis, i),
        low: isRange ? column.min : column.mean, high: isRange ? column.max : column.mean, words: view.runs.length > 1 ? `${run.name}, ${line.words}` : line.words };
    })).filter(Boolean);
  }

  /** Draw everything again, with a new scale. */
  refresh() {
    this.isOutdated = !this.isVisible;
    if (this.isOutdated) return;
    Object.assign(this, fitted(this.lines, this.plot));
    this.top = fitted(this.over, this.plot).context;
    this.colors = Object.fromEntries(["ink", "grey", "rule", "paper", "rust", "warn-wash"].map((name) => [name, themeColor(name)]));
    const series = this.series();
    this.scale = this.newScale(series);
    this.states.clear();
    this.count("redraws");
    this.drawAxes();
    this.extend(series);
    this.fillLegend(series);
    this.describe(series);
  }

  /** Draw what is new; everything again only if it does not fit into the scale. */
  update() {
    if (!this.isVisible) { this.isOutdated = true; return; }
    const series = this.series();
    const [x0, x1] = this.view.range;
    if (this.isOutdated || x0 !== this.scale.x0 || x1 !== this.scale.x1 || !series.every((each) => this.fits(each))) { this.refresh(); return; }
    this.count("extensions");
    this.extend(series);
    if (Date.now() - this.described > 5000) this.describe(series);
  }

  count(name) {
    this.root.dataset[name] = Number(this.root.dataset[name] || 0) + 1;
  }

  newScale(series) {
    const { definition: { zero, enough }, view: { scale, range: [x0, x1] } } = this;
    let [low, high, positive] = [Infinity, -Infinity, Infinity];
    for (const { place, column: { mean }, low: lows, high: highs } of series) {
      for (let i = bisect(place, mean.length, x0); i < mean.length && place(i) <= x1; i++) {
        if (isNaN(mean[i])) continue;
        low = min(low, lows[i]);
        high = max(high, highs[i]);
        if (lows[i] > 0) positive = min(positive, lows[i]);
      }
    }
    if (!(high >= low)) [low, high] = [0, 1];
    const isLog = positive < Infinity && (scale === "log" || (scale === "auto" && !zero && low > 0 && high >= enough * low));
    if (isLog) return { x0, x1, isLog, y0: positive / 1.08, y1: high * 1.08 };
    if (zero) return { x0, x1, y0: min(0, 1.06 * low), y1: high > 0 ? 1.12 * high : low < 0 ? 0 : 1 };
    const pad = high > low ? 0.06 * (high - low) : 0.1 * abs(low) + 0.01;
    return { x0, x1, y0: low - pad, y1: high + pad };
  }

  /** Whether the buckets of a line since the last drawing are inside the scale. */
  fits({ run, table, key, place, low, high }) {
    const { y0, y1, x1, isLog } = this.scale;
    const state = this.states.get(key);
    if (!state || state.table !== table || state.shape !== table.shape || state.generation !== run.generation) return false;
    for (let i = min(state.done, table.complete); i < table.length && place(i) <= x1; i++) {
      if ((low[i] < y0 && !(isLog && low[i] <= 0)) || high[i] > y1) return false;
    }
    return true;
  }

  toX(x) {
    return LEFT + ((x - this.scale.x0) / (this.scale.x1 - this.scale.x0 || 1)) * (this.width - LEFT - RIGHT);
  }

  toY(y) {
    const { y0, y1, isLog } = this.scale;
    const share = isLog ? Math.log(max(y, y0 / 10) / y0) / Math.log(y1 / y0) : (y - y0) / (y1 - y0);
    return this.height - BOTTOM - share * (this.height - TOP - BOTTOM);
  }

  drawAxes() {
    const { view, scale, definition, colors, context, width, height } = this;
    const bottom = height - BOTTOM;
    for (const run of view.runs) if (run.visible) this.drawMarks(run);
    Object.assign(context, { lineWidth: 1, textBaseline: "middle", textAlign: "right", fillStyle: colors.grey, strokeStyle: colors.rule });
    let above = Infinity;
    for (const value of scale.isLog ? logTicks(scale.y0, scale.y1) : ticks(scale.y0, scale.y1, max(2, height / 50))) {
      const y = round(this.toY(value)) + 0.5;
      if (above - y < 13) continue;
      above = y;
      stroke(context, LEFT, y, width - RIGHT, y);
      const text = definition.format(value);
      context.fillText(/^-?[\d,]*\.\d+$/.test(text) ? String(Number(value.toPrecision(3))) : text, LEFT - 7, y);
    }
    Object.assign(context, { textBaseline: "top", textAlign: "center" });
    let before = -Infinity;
    for (const value of ticks(scale.x0, scale.x1, max(2, width / 110), view.axis === "seconds")) {
      const text = value ? AXES[view.axis].tick(value) : "0";
      const half = context.measureText(text).width / 2;
      const x = min(this.toX(value), width - half);
      if (x - half < before + 8) continue;
      before = x + half;
      context.fillText(text, x, bottom + 6);
      stroke(context, this.toX(value), bottom, this.toX(value), bottom + 4);
    }
    stroke(context, LEFT, bottom + 0.5, width - RIGHT, bottom + 0.5);
  }

  /** Mark the alarms and messages of a run. */
  drawMarks(run) {
    const { view, colors, context, scale: { x0, x1 } } = this;
    const bottom = this.height - BOTTOM;
    for (const span of run.posterior?.spans ?? []) {
      const [first, last] = [span.first, span.last].map((step) => run.placeOf(view.axis, step));
      if (!(last >= x0 && first <= x1)) continue;
      const [left, right] = [max(first, x0), min(last, x1)].map((x) => this.toX(x));
      Object.assign(context, { fillStyle: colors["warn-wash"], strokeStyle: colors.rust });
      context.fillRect(left, TOP, max(1, right - left), bottom - TOP);
      if (first >= x0) stroke(context, left, TOP, left, bottom);
    }
    for (const { step, message } of run.events) {
      const x = run.placeOf(view.axis, step);
      if (!(x >= x0 && x <= x1)) continue;
      const isStop = message.includes("The run is stopped");
      context.strokeStyle = isStop ? colors.rust : colors.grey;
      stroke(context, this.toX(x), isStop ? TOP : bottom - 6, this.toX(x), bottom);
    }
  }

  /** Draw the buckets that are complete and not drawn yet, then the upper canvas. */
  extend(series = this.series()) {
    this.clipped(this.context, () => series.forEach((each) => this.drawLine(this.context, each, this.stateOf(each), true)));
    this.drawOver(series);
    this.fillTable(series);
  }

  stateOf({ run, line, table, key, place }) {
    if (!this.states.has(key)) {
      const [first, end] = this.view.range.map((x) => bisect(place, table.complete, x));
      const from = max(0, first - 1);
      // done, pale: the buckets up to which the mean and the records are drawn; last, lastPale: where their paths are.
      this.states.set(key, { table, shape: table.shape, generation: run.generation, width: line.noisy ? round(this.view.smoothing / 100 * (end - first)) : 0,
        done: from, pale: from, last: null, lastPale: null, number: 0, sums: [0], counts: [0] });
    }
    return this.states.get(key);
  }

  clipped(context, draw) {
    clipped(context, this.width, TOP - 4, this.height - BOTTOM + 4, draw);
  }

  /** Draw a line from where `state` is to its end; isFinal: only the part that later records will not change. */
  drawLine(context, { run, line, table, column, place }, state, isFinal) {
    const { width, sums, counts } = state;
    const end = isFinal ? table.complete : table.length;
    const isBand = table.size > 1; // between the lowest and highest values of the buckets; otherwise a line
    const hasPale = line.noisy && this.drawsRange && (width > 0 || isBand);
    const isFew = line.dots && table.length <= FEW_POINTS;
    const [bold, pale, marks, back] = [new Path2D(), new Path2D(), new Path2D(), []];
    for (let i = sums.length - 1; i < end; i++) {
      sums.push(sums[i] + (column.mean[i] || 0));
      counts.push(counts[i] + !isNaN(column.mean[i]));
    }
    for (let isStart = true; hasPale && state.pale < end; state.pale++) {
      const i = state.pale;
      const point = [this.toX(place(i)), this.toY(column.max[i]), this.toY(column.min[i])];
      if (point.some(isNaN)) continue;
      for (const [x, high, low] of isStart && state.lastPale ? [state.lastPale, point] : [point]) {
        pale[isStart ? "moveTo" : "lineTo"](x, high);
        back.push([x, low]);
        isStart = false;
      }
      state.lastPale = point;
    }
    if (state.last) bold.moveTo(...state.last);
    for (; state.done < end; state.done++) {
      const i = state.done;
      // As in the report: at the beginning, where curves are steep, the window is narrower; at the end it is one-sided.
      const reach = min(i, width);
      if (isFinal && i + reach >= end) break;
      const [from, to] = [i - reach, min(end, i + reach + 1)];
      const x = this.toX(place(i));
      const y = this.toY(width ? (sums[to] - sums[from]) / (counts[to] - counts[from]) : column.mean[i]);
      if (isNaN(column.mean[i]) || isNaN(x)) continue;
      if (line.diamonds) diamond(marks, x, y);
      else bold[state.last ? "lineTo" : "moveTo"](x, y);
      if (isFew) { marks.moveTo(x + 2.4, y); marks.arc(x, y, 2.4, 0, 7); }
      state.last = [x, y];
      state.number++;
    }
    context.strokeStyle = context.fillStyle = this.view.color(run, line);
    if (hasPale) {
      Object.assign(context, { globalAlpha: 0.28, lineWidth: 0.9 });
      context.stroke(pale); // also on the band: a spike of one bucket would be too thin to see
      back.reverse().forEach((point) => pale.lineTo(...point));
      if (isBand) context.fill(pale);
    }
    Object.assign(context, { globalAlpha: 1, lineWidth: 1.7, lineJoin: "round" });
    context.setLineDash(line.limit ? DASHES[1] : line.dots || this.view.runs.length === 1 ? [] : DASHES[line.number % DASHES.length]);
    if (line.diamonds) context.fillStyle = this.colors.paper;
    context.fill(marks);
    context.stroke(line.diamonds ? marks : bold);
    context.setLineDash([]);
  }

  /** Draw the incomplete buckets, the ends of the lines, the cursor and the selection. */
  drawOver(series = this.series()) {
    const { top: context, view: { cursor }, scale } = this;
    if (!scale) return;
    context.clearRect(0, 0, this.width, this.height);
    this.clipped(context, () => {
      for (const each of series) {
        const known = this.stateOf(each);
        const state = { ...known };
        this.drawLine(context, each, state, false);
        known.sums.length = known.counts.length = min(known.sums.length, each.table.complete + 1);
        if (!each.line.diamonds && state.last) dot(context, ...state.last, state.number === 1 ? 3.5 : 2.6);
      }
    });
    if (this.selection) {
      const [from, to] = this.selection.map((x) => this.toX(x));
      Object.assign(context, { globalAlpha: 0.14, fillStyle: this.colors.ink });
      context.fillRect(from, TOP, to - from, this.height - TOP - BOTTOM);
      context.globalAlpha = 1;
    }
    if (cursor !== null && cursor >= scale.x0 && cursor <= scale.x1) {
      Object.assign(context, { strokeStyle: this.colors.ink, lineWidth: 1 });
      stroke(context, this.toX(cursor), TOP, this.toX(cursor), this.height - BOTTOM);
      for (const each of series) {
        const found = this.valueAt(each, cursor);
        if (!found) continue;
        context.fillStyle = this.view.color(each.run, each.line);
        dot(context, this.toX(found.x), this.toY(found.value), 3.2);
      }
    }
    this.fillValues(series);
  }

  /** Return the value of the record nearest to `x`, or the last known one before it. x null: the last one. */
  valueAt({ table, column, place }, x) {
    let i = table.length - 1;
    if (x !== null) {
      i = min(bisect(place, table.length, x), i);
      if (i > 0 && abs(place(i - 1) - x) < abs(place(i) - x)) i--;
    }
    while (i >= 0 && isNaN(column.mean[i])) i--;
    return i < 0 ? null : { value: column.mean[i], x: place(i) };
  }

  textAt(each, x) {
    const found = this.valueAt(each, x);
    return found ? this.definition.format(found.value) : "–";
  }

  // Texts: the legend with the values at the cursor, the summary, and the table.

  fillLegend(series) {
    const isOne = this.view.runs.length === 1;
    const items = new Map();
    this.values = new Map(series.map(({ key }) => [key, element("span.value")]));
    for (const { run, line, key } of series) {
      const swatch = element("span", { class: line.diamonds ? "swatch diamond" : "swatch", "aria-hidden": "true" });
      swatch.style.color = this.view.color(run, line);
      const item = isOne ? key : run.number;
      if (!items.has(item)) items.set(item, element("li", swatch, isOne ? null : element("bdi", run.name)));
      const words = this.definition.lines.length > 1 ? line.words : isOne ? "last" : "";
      items.get(item).append(element("span", { class: isOne ? null : "grey" }, ` ${words} `), this.values.get(key));
    }
    this.position = element("li.grey");
    this.legend.replaceChildren(...items.values(), this.position);
    if (items.size > 8) this.legend.setAttribute("tabindex", "0");
    this.fillValues(series);
  }

  fillValues(series) {
    const { cursor, axis } = this.view;
    if (!this.position) return;
    for (const each of series) if (this.values.has(each.key)) setText(this.values.get(each.key), this.textAt(each, cursor));
    setText(this.position, cursor === null ? "" : `at ${AXES[axis].named(cursor)}`);
    if (cursor === null || document.activeElement !== this.slider) return;
    this.slider.setAttribute("aria-valuenow", String(round(cursor)));
    this.slider.setAttribute("aria-valuetext", `${AXES[axis].named(cursor)}: ${series.map((each) => `${each.words} ${this.textAt(each, cursor)}`).join("; ")}`);
  }

  /** Write the summary for screen readers. */
  describe(series) {
    const { definition: { title, unit, format }, view, scale } = this;
    this.described = Date.now();
    const parts = series.map((each) => {
      const known = each.column.mean.filter((value) => !isNaN(value));
      const low = each.column.min.reduce((least, value) => (value < least ? value : least), Infinity);
      return known.length ? `${each.words}: last ${this.textAt(each, null)}, lowest ${format(low)}, ${trend(known)}.` : "";
    });
    this.lines.setAttribute("aria-label", `${title}${unit ? ` (${unit})` : ""} by ${AXES[view.axis].words.toLowerCase()}. ${parts.join(" ")}`);
    this.slider.setAttribute("aria-valuemin", String(round(scale.x0)));
    this.slider.setAttribute("aria-valuemax", String(round(scale.x1)));
  }

  fillTable(series = this.series()) {
    if (!this.disclosure.open || !this.scale || !series.length) return;
    const { axis, range: [x0, x1] } = this.view;
    const { table, place } = series[0];
    const rows = [];
    for (let i = table.length - 1; i >= 0 && place(i) >= x0 && rows.length < TABLE_ROWS; i--) {
      if (place(i) <= x1) rows.push([AXES[axis].format(place(i)), ...series.map((each) => this.textAt(each, place(i)))]);
    }
    const caption = table.size > 1 ? `Means of ${table.size} records, the newest first.` : "The newest first.";
    this.body.replaceChildren(tableOf(caption, [AXES[axis].words, ...series.map(({ words }) => words)].map((head) => `#${head}`), rows, { isCaptionShown: true }));
  }

  // Pointer and keys.

  listen() {
    const { slider, view } = this;
    let start = null;
    const at = (event) => {
      const { x0, x1 } = this.scale;
      const share = (event.clientX - this.plot.getBoundingClientRect().left - LEFT) / (this.width - LEFT - RIGHT);
      return x0 + min(1, max(0, share)) * (x1 - x0);
    };
    const end = (event) => {
      const chosen = this.selection;
      start = this.selection = null;
      if (event.type === "pointerup" && chosen) view.zoom(min(...chosen), max(...chosen));
      else this.drawOver();
    };
    const listeners = {
      pointerdown: (event) => {
        if (event.button || !this.scale) return;
        start = { pixel: event.clientX, x: at(event) };
        slider.setPointerCapture(event.pointerId);
      },
      pointermove: (event) => {
        if (!this.scale) return;
        this.selection = start && abs(event.clientX - start.pixel) > 6 ? [start.x, at(event)] : null;
        view.moveCursor(at(event));
      },
      pointerup: end,
      pointercancel: end,
      pointerleave: () => { if (!start && document.activeElement !== slider) view.moveCursor(null); },
      blur: () => view.moveCursor(null),
      dblclick: () => view.zoom(),
      keydown: (event) => this.onKey(event),
    };
    Object.entries(listeners).forEach(([name, listener]) => on(slider, name, listener));
  }

  onKey(event) {
    if (!this.scale || event.ctrlKey || event.metaKey || event.altKey) return;
    const { view, scale: { x0, x1 } } = this;
    const pixel = (x1 - x0) / (this.width - LEFT - RIGHT);
    const last = min(x1, max(x0, view.end));
    const now = view.cursor === null ? last : view.cursor;
    const by = pixel * (event.shiftKey ? 50 : 5);
    const places = { ArrowLeft: now - by, ArrowDown: now - by, ArrowRight: now + by, ArrowUp: now + by, PageDown: now - 100 * pixel, PageUp: now + 100 * pixel, Home: x0, End: last };
    if (event.key in places) view.moveCursor(min(x1, max(x0, places[event.key])));
    else if ("+=".includes(event.key)) view.zoomBy(1, now);
    else if (event.key === "-") view.zoomBy(-1, now);
    else if (event.key === "0" || event.key === "Escape") view.zoom();
    else return;
    event.preventDefault();
  }
}

function stroke(context, x0, y0, x1, y1) {
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
  for (const [dx, dy] of [[4.5, 0], [0, 4.5], [-4.5, 0], [0, -4.5]]) path.lineTo(x + dx, y + dy);
}

/** Compare the last tenth of the values with the tenth before it. */
function trend(values) {
  if (values.length < 2) return "one record";
  const tenth = max(1, floor(values.length / 10));
  const [before, now] = [values.slice(-2 * tenth, -tenth), values.slice(-tenth)].map((some) => some.reduce((sum, value) => sum + value, 0) / some.length);
  const change = (now - before) / (abs(before) || 1);
  return abs(change) < 0.005 ? "steady" : change < 0 ? "falling" : "rising";
}
