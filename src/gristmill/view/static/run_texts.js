// The texts of the page of runs: the line of each run, alarms, samples, messages, figures and configuration.

import { announce, byId, element, grouped, hint, on, setText } from "./page.js";
import { duration, loss, short } from "./numbers.js";
import { figures, scrolledTable } from "./tables.js";
import { visible } from "./tokens.js";

const STATES = { training: "training", finished: "finished", stopped: "stopped", waiting: "no records yet", missing: "not found", unreadable: "not readable" };
const FIRST_SHOWN = 6;
const QUIET_SECONDS = 60; // without a record, from which on the age of the last one is shown

/** The line of a run. */
export class Card {
  constructor(run, view) {
    this.run = run;
    this.box = element("input", { type: "checkbox", id: `run-${run.number}`, onchange: () => view.show(run, this.box.checked) });
    this.swatch = element("span.swatch", { "aria-hidden": "true" });
    this.state = element("span.state", "loading");
    this.figures = element("dl");
    this.bar = element("progress", { "aria-label": `Progress of ${run.name}`, max: "1", value: "0", hidden: true });
    this.problem = element("p.problem", { hidden: true });
    const head = view.runs.length > 1
      ? element("label", { for: this.box.id }, this.box, this.swatch, element("bdi", run.name))
      : element("label", element("bdi", run.name));
    this.root = element("li", { "data-run": run.name }, element("div.row", head, this.state), this.figures, this.bar, this.problem);
    this.recolor(view);
  }

  recolor(view) {
    this.swatch.style.color = view.color(this.run);
    this.box.checked = this.run.visible;
  }

  update() {
    const { run, run: { status } } = this;
    if (!status) return;
    const word = STATES[status.state] || status.state;
    if (this.word && this.word !== word) announce(`${run.name}: ${word}`);
    this.word = word;
    this.state.textContent = word;
    this.state.className = `state ${status.state}`;
    const age = status.modified === null ? 0 : Date.now() / 1000 - status.modified;
    const entries = [
      ["step", status.step && (status.total ? `${grouped(status.step)} of ${grouped(status.total)}` : grouped(status.step))],
      ["loss", status.loss !== null && loss(status.loss)],
      ["validation", status.val_loss !== null && loss(status.val_loss)],
      ["tokens/s", status.tokens_per_second !== null && short(status.tokens_per_second)],
      ["time left", status.seconds_left !== null && duration(status.seconds_left)],
      ["last record", age > QUIET_SECONDS && `${duration(age)} ago`],
    ].filter(([, value]) => value);
    this.figures.replaceChildren(...figures(entries));
    this.bar.hidden = !status.total || status.state === "missing";
    this.bar.value = status.total ? Math.min(1, status.step / status.total) : 0;
    const damaged = status.num_damaged ? ` ${grouped(status.num_damaged)} damaged ${status.num_damaged === 1 ? "line of metrics.jsonl is" : "lines of metrics.jsonl are"} not shown.` : "";
    const problem = (status.problem + damaged).trim();
    this.problem.hidden = !problem;
    setText(this.problem, problem);
  }
}

function where(view, run, step) {
  return element("span.where", view.runs.length > 1 ? [element("bdi", run.name), ", "] : null, `step ${grouped(step)}`);
}

/** A list of entries of all visible runs, the newest first, with a button that shows more. */
class Entries {
  constructor(name, make) {
    this.section = byId(`${name}-section`);
    this.list = byId(name);
    this.button = byId(`more-${name}`);
    this.make = make;
    this.number = FIRST_SHOWN;
    this.shown = "";
    if (this.button) on(this.button, "click", () => { this.number += 20; this.update(this.view); });
  }

  update(view) {
    this.view = view;
    const all = view.visible.flatMap((run) => this.make.of(run).map((entry, number) => ({ run, entry, number })));
    all.sort((a, b) => this.make.step(b.entry) - this.make.step(a.entry) || b.number - a.number);
    this.section.hidden = !all.length;
    const chosen = this.button ? all.slice(0, this.number) : all;
    const key = JSON.stringify(chosen.map(({ run, entry }) => [run.number, run.generation, entry]));
    if (key === this.shown) return; // do not disturb a reader or a selection
    this.shown = key;
    this.list.replaceChildren(...chosen.map(({ run, entry }) => this.make.element(view, run, entry)));
    if (this.button) this.button.hidden = all.length <= chosen.length;
  }
}

const ALARMS = {
  of: (run) => run.posterior?.spans ?? [],
  step: (span) => span.first,
  element: (view, run, span) => element("li", where(view, run, span.first), element("strong", visible(span.words)),
    span.is_over ? ` until step ${grouped(span.last)}` : ", still active", span.message ? `: ${visible(span.message)}` : ""),
};
const SAMPLES = {
  of: (run) => run.samples,
  step: (sample) => sample.step,
  element: (view, run, sample) => element("div.sample.panel", where(view, run, sample.step),
    element("p", { dir: "auto", tabindex: sample.text.length > 1500 ? "0" : null }, element("strong", visible(sample.prompt)), visible(sample.text))),
};
const EVENTS = {
  of: (run) => run.events,
  step: (event) => event.step,
  element: (view, run, event) => element("li", where(view, run, event.step), element("span", { dir: "auto" }, visible(event.message))),
};

/** Return a function that updates the alarms, samples and messages. */
export function entryLists() {
  const lists = [new Entries("alarms", ALARMS), new Entries("samples", SAMPLES), new Entries("events", EVENTS)];
  return (view) => lists.forEach((list) => list.update(view));
}

/** Fill the section with the figures, options and machines of the runs. */
export function fillDetails(place, content, onlyDifferences, onSwitch) {
  const many = content.names.length > 1;
  const heads = () => (many ? content.names.map((name) => element("bdi", name)) : ["Value"]);
  const rows = content.figures.map(({ name, note, cells }) => element("tr", element("th", { scope: "row" }, name, note && element("span.hint", ` ${note}`)),
    cells.map(({ value, note: about, is_best: isBest }) => element("td", { class: isBest ? "best" : null }, value, isBest && element("span.quiet", " (best)"), about && element("span.hint", ` ${about}`)))));
  const settings = (title, rows) => {
    const chosen = many && onlyDifferences ? rows.filter(({ differs }) => differs) : rows;
    const words = chosen.length ? null : hint(rows.length ? "All equal." : "Not recorded.");
    return [element("h3", title), words || scrolledTable(title, ["Option", ...heads()], chosen.map(({ name, values, differs }) => element("tr", { class: many && differs ? "differs" : null },
      element("th", { scope: "row" }, name, many && differs && element("span.quiet", " (differs)")), values.map((value) => element("td", value)))))];
  };
  const box = element("input", { type: "checkbox", id: "only-differences", onchange: () => onSwitch(box.checked) });
  box.checked = onlyDifferences;
  place.replaceChildren(
    element("p", content.result),
    content.figures.length ? scrolledTable("Figures", ["Figure", ...heads()], rows) : "",
    many ? element("label", { for: "only-differences" }, box, " Only the options that differ") : "",
    ...settings("Configuration", content.options), ...settings("Machine", content.machine));
}
