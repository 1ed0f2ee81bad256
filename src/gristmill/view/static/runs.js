// The page of runs: one stream of events feeds the curves, the texts and the status of all runs.

import { announce, byId as $, debounced, element, on, request, seriesColor, showError, start, store, stored } from "./page.js";
import { Chart } from "./chart.js";
import { HeatMap } from "./heat_map.js";
import { AXES, GROUPS, chartsOf } from "./run_charts.js";
import { Card, entryLists, fillDetails } from "./run_texts.js";
import { Run } from "./series.js";

const PAINT_MILLISECONDS = 2000; // between two paintings of new records: each costs about 10 ms of a core
const DETAIL_MILLISECONDS = 10000; // between two updates of the table of figures
const RETRY_MILLISECONDS = 3000;
const FIRST_VISIBLE = 8; // runs, of a folder with many
const MANY_RUNS = 5; // from which on there is a filter
const HEAT_MAPS = 4;

const settings = { axis: "step", scale: "auto", smoothing: 2, ...storedSettings() };
const view = {
  ...settings, axis: settings.axis in AXES ? settings.axis : "step", runs: [],
  get visible() { return this.runs.filter((run) => run.visible); },
  get end() { return Math.max(0, ...this.visible.map((run) => run.end(this.axis)).filter(Number.isFinite)); },
  range: [0, 1], zoomed: null, cursor: null, zoom, moveCursor, zoomBy, show,
  color: (run, line) => seriesColor(view.runs.length > 1 ? run.number : line ? line.hue ?? line.number : 0),
};
const figures = new Map(); // charts, by the id of their definition, and heat maps, by their run
const titles = new Map();
let cards = [];
let updateLists = () => {};
let onlyDifferences = true;

function storedSettings() {
  try {
    return JSON.parse(stored("gristmill-runs")) || {};
  } catch {
    return {};
  }
}

function storeSettings() {
  store("gristmill-runs", JSON.stringify({ axis: view.axis, scale: view.scale, smoothing: view.smoothing }));
}

// The stream of events. A hidden page closes it, so that it costs nothing, and continues where it was.

let source = null;
let lastId = "";
let retry = null;

function connect() {
  clearTimeout(retry);
  if (source || document.hidden) return;
  source = new EventSource(`api/runs/events${lastId ? `?since=${encodeURIComponent(lastId)}` : ""}`);
  source.onopen = () => showError("");
  source.onerror = () => {
    showError("The connection to the server is lost. The page continues when `gristmill view` answers again.");
    if (source?.readyState === EventSource.CLOSED) {
      disconnect();
      retry = setTimeout(connect, RETRY_MILLISECONDS);
    }
  };
  for (const name of ["snapshot", "append"]) on(source, name, (event) => receive(name, event));
}

function disconnect() {
  if (source) source.close();
  source = null;
}

const waiting = []; // events that came before the list of runs

function receive(name, event) {
  lastId = event.lastEventId || lastId;
  if (!view.runs.length) { waiting.push([name, event]); return; }
  const content = JSON.parse(event.data);
  const run = view.runs[content.run];
  run.status = content.status;
  if (name === "snapshot") {
    run.replace(content);
    fetchDetails();
    if (view.zoomed) fetchWindow();
  } else {
    run.append(content);
  }
  schedulePaint(name === "snapshot");
}

// Painting.

let painted = -PAINT_MILLISECONDS;
let timer = null;

function schedulePaint(isUrgent) {
  if (timer !== null && !isUrgent) return;
  clearTimeout(timer);
  const delay = isUrgent ? 0 : Math.max(0, painted + PAINT_MILLISECONDS - performance.now());
  timer = setTimeout(() => requestAnimationFrame(paint), delay);
}

function paint() {
  timer = null;
  painted = performance.now();
  cards.forEach((card) => card.update());
  growRange();
  arrange();
  figures.forEach((figure) => figure.update());
  updateLists(view);
  if (detailsInSight && performance.now() - fetched > DETAIL_MILLISECONDS) fetchDetails();
  document.body.dataset.painted = Number(document.body.dataset.painted || 0) + 1;
}

function redraw() {
  figures.forEach((figure) => figure.refresh());
}

/** Keep the range, with some room for new records, as long as it holds all runs. */
function growRange() {
  if (view.zoomed) { view.range = view.zoomed; return; }
  const { end } = view;
  const [, known] = view.range;
  if (end > known || end < 0.8 * known) {
    const grows = known > 1 && end > known;
    view.range = [0, (grows ? 1.15 : 1.01) * end || 1];
  }
}

/** Find the range again, without the finer tables of the last one. */
function newRange() {
  view.range = [0, 0];
  view.runs.forEach((run) => { run.detail = null; });
  growRange();
}

/** Create the charts that have records, in their order, and remove the others. */
function arrange() {
  const { visible } = view;
  const wanted = chartsOf(visible);
  const place = $("charts");
  const order = [];
  for (const group of GROUPS) {
    const members = wanted.filter((each) => each.group === group).map((each) => figureOf(each.id, () => new Chart(each, view)));
    if (group === "Latents") members.push(...visible.filter((run) => run.posterior?.cells).slice(0, HEAT_MAPS).map((run) => figureOf(run, () => new HeatMap(run, view))));
    if (!members.length) continue;
    if (!titles.has(group)) titles.set(group, element("h3", { class: group === "Loss" ? "quiet" : "group" }, group));
    order.push(titles.get(group), ...members.map((member) => member.root));
  }
  const kept = new Set(order);
  for (const [key, figure] of figures) if (!kept.has(figure.root)) { figure.remove(); figures.delete(key); }
  for (const title of titles.values()) if (!kept.has(title)) title.remove();
  order.forEach((node, number) => { if (place.children[number] !== node) place.insertBefore(node, place.children[number] || null); });
  place.querySelector(".empty")?.remove();
  if (!order.length) place.append(element("p.hint.empty", visible.length ? "No records yet. The curves appear when the run records its first steps." : "All runs are hidden."));
}

function figureOf(key, make) {
  if (!figures.has(key)) figures.set(key, make());
  return figures.get(key);
}

// Cursor and zoom, which all charts share.

let cursorFrame = null;

function moveCursor(x) {
  if (x === view.cursor && x === null) return;
  view.cursor = x;
  if (cursorFrame === null) {
    cursorFrame = requestAnimationFrame(() => {
      cursorFrame = null;
      figures.forEach((figure) => figure.isVisible && figure.drawOver());
    });
  }
}

/** Show a range of the horizontal axis; without arguments, everything. */
function zoom(x0 = null, x1 = null) {
  const isWhole = x0 === null || !(x1 > x0);
  view.zoomed = isWhole ? null : [Math.max(0, x0), x1];
  newRange();
  const axis = AXES[view.axis];
  const words = isWhole ? "Whole run" : `${axis.named(view.zoomed[0])} to ${axis.named(view.zoomed[1])}`;
  $("zoom-reset").disabled = isWhole;
  announce(words);
  redraw();
  if (!isWhole) fetchWindow();
}

/** Zoom in (direction 1) or out (-1) around a place. */
function zoomBy(direction, around = null) {
  const [x0, x1] = view.range;
  const middle = around === null ? (x0 + x1) / 2 : around;
  const factor = direction > 0 ? 0.5 : 2;
  const whole = view.end || 1;
  const [from, to] = [Math.max(0, middle - (middle - x0) * factor), middle + (x1 - middle) * factor];
  if (to - from >= whole) zoom();
  else if (to - from > whole * 1e-6) zoom(from, to);
}

/** Get the zoomed range in more detail, if the buckets of the whole run are coarse. */
const fetchWindow = debounced(async () => {
  const range = view.zoomed;
  if (!range) return;
  const coarse = view.runs.filter((run) => run.visible && Object.values(run.tables).some((table) => table.size > 1));
  await Promise.all(coarse.map(async (run) => {
    const [first, last] = range.map((x) => run.stepAt(view.axis, x));
    const margin = 0.1 * (last - first);
    try {
      const content = await request(`api/runs/${run.number}/window?first=${first - margin}&last=${last + margin}`);
      if (view.zoomed === range) run.zoomTo(content, range[1] >= run.end(view.axis));
    } catch (error) {
      showError(error);
    }
  }));
  if (coarse.length && view.zoomed === range) redraw();
}, 150);

// Figures and configuration.

let fetched = -DETAIL_MILLISECONDS;
let details = null;
let detailsInSight = false;
new IntersectionObserver(([entry]) => { detailsInSight = entry.isIntersecting; }).observe($("details-section"));
const fetchDetails = debounced(async () => {
  fetched = performance.now();
  const chosen = view.visible.slice(0, 20).map((run) => run.number);
  $("details-section").hidden = !chosen.length;
  if (!chosen.length) return;
  try {
    details = await request(`api/runs/details?runs=${chosen.join(",")}`);
    showDetails();
  } catch (error) {
    showError(error);
  }
}, 100);

function showDetails() {
  const focused = document.activeElement?.id;
  fillDetails($("details"), details, onlyDifferences, (chosen) => { onlyDifferences = chosen; showDetails(); });
  if (focused === "only-differences") $(focused).focus();
}

// Controls.

function show(run, visible) {
  run.visible = visible;
  changedRuns();
}

function changedRuns() {
  cards.forEach((card) => card.recolor(view));
  newRange();
  arrange();
  redraw();
  updateLists(view);
  fetchDetails();
  if (view.zoomed) fetchWindow();
}

function listen() {
  $("axis").value = view.axis;
  $("scale").value = view.scale;
  $("smoothing").value = view.smoothing;
  const showSmoothing = () => { $("smoothing-value").textContent = view.smoothing ? `${view.smoothing} %` : "off"; };
  showSmoothing();
  on("axis", "change", () => { view.axis = $("axis").value; view.cursor = null; storeSettings(); zoom(); });
  on("scale", "change", () => { view.scale = $("scale").value; storeSettings(); redraw(); });
  on("smoothing", "input", () => { view.smoothing = Number($("smoothing").value); showSmoothing(); storeSettings(); redraw(); });
  on("zoom-in", "click", () => zoomBy(1));
  on("zoom-out", "click", () => zoomBy(-1));
  on("zoom-reset", "click", () => zoom());
  on("show-all", "click", () => setAll(true));
  on("show-none", "click", () => setAll(false));
  on("filter", "input", () => {
    const wanted = $("filter").value.toLowerCase();
    cards.forEach((card) => { card.root.hidden = !card.run.name.toLowerCase().includes(wanted); });
  });
  on(document, "themechange", () => { cards.forEach((card) => card.recolor(view)); redraw(); });
  on(document, "visibilitychange", () => (document.hidden ? disconnect() : connect()));
}

/** Show or hide all runs that the filter leaves. */
function setAll(visible) {
  cards.forEach((card) => { if (!card.root.hidden) card.run.visible = visible; });
  changedRuns();
}

connect();
listen();
const artefacts = await start("runs");
view.runs = artefacts.runs.map((name, number) => new Run(number, name));
view.runs.forEach((run, number) => { run.visible = number < FIRST_VISIBLE; });
cards = view.runs.map((run) => new Card(run, view));
$("runs").replaceChildren(...cards.map((card) => card.root));
$("choosing").hidden = view.runs.length < MANY_RUNS;
updateLists = entryLists();
waiting.splice(0).forEach(([name, event]) => receive(name, event));
