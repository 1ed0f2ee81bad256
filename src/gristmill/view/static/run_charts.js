// The charts of a run, titled and grouped as in the report.

import { bytes, duration, loss, percent, plain, short } from "./numbers.js";
import { grouped } from "./page.js";
import { PLACES } from "./series.js";

const train = (column, words = "training", noisy = true) => ({ table: "train", column, words, noisy });
const parts = (column) => [
  train(column),
  { table: "val", column, words: "validation", dots: true },
  { table: "full", column, words: "full validation", diamonds: true, hue: 1 },
];
const monitored = (column, words) => ({ table: "posterior", column, words });

// enough: a factor between the lowest and highest value from which the automatic vertical axis is logarithmic.
const CHARTS = Object.entries({
  Loss: [
    { id: "loss", title: "Loss", unit: "nats per token", wide: true, enough: 3, lines: parts("loss"),
      note: "Bold: running mean. Pale: every record. Diamonds: validation on the whole split." },
    { id: "bits_per_byte", title: "Bits per byte", unit: "validation", enough: 3, lines: parts("bits_per_byte").slice(1),
      note: "Comparable between tokenizers." },
  ],
  Latents: [
    { id: "reconstruction", title: "Reconstruction", unit: "nats per token", enough: 10, lines: parts("reconstruction"),
      note: "The loss without the KL term." },
    { id: "kl", title: "KL to the prior", unit: "nats per sequence", enough: 10, lines: parts("kl"),
      note: "Upper limit of the information in the latents." },
    { id: "posterior_information", title: "KL and mutual information", unit: "nats per sequence", zero: true,
      note: "Of latents and sequences; measurable up to its limit.",
      lines: [monitored("kl", "KL"), monitored("mutual_information", "mutual information"), { ...monitored("mutual_information_limit", "limit"), limit: true }] },
    { id: "posterior_units", title: "Active units", unit: "dimensions", zero: true,
      note: "Dimensions whose mean varies between sequences.",
      lines: [monitored("active_units", "variance > 0.01"), monitored("active_units_strict", "variance > 0.2")] },
    { id: "posterior_gaps", title: "Reconstruction with wrong latents", unit: "extra nats per sequence", zero: true,
      note: "Near 0, the latents are ignored.",
      lines: [monitored("gap_prior", "from the prior"), monitored("gap_shuffled", "shuffled")] },
  ],
  Optimization: [
    { id: "learning_rate", title: "Learning rate", zero: true, format: plain, lines: [train("lr", "learning rate", false)] },
    { id: "gradient_norm", title: "Gradient norm", enough: 10, note: "Over all parameters, before clipping.",
      lines: [train("grad_norm", "norm"), train("grad_norm_max", "largest since the previous record", false)] },
  ],
  "Speed and memory": [
    { id: "throughput", title: "Throughput", unit: "tokens per second", zero: true, format: short,
      lines: [train("tokens_per_second", "tokens per second")] },
    { id: "utilisation", title: "Model FLOPs utilisation", zero: true, format: percent,
      lines: [train("mfu", "of the peak"), train("mfu_matmul", "of a matmul")] },
    { id: "memory", title: "Memory", zero: true, format: bytes, lines: [train("memory_bytes", "memory", false)] },
    { id: "data_wait", title: "Waiting for data", unit: "of a step", zero: true, format: percent,
      note: "Above 5 %, the data is too slow.", lines: [train("data_wait", "waiting")] },
    { id: "padding", title: "Padding", unit: "of a batch", zero: true, format: percent, lines: [train("padding", "padding")] },
  ],
}).flatMap(([group, charts]) => charts.map((chart) => ({ group, ...chart })));
const KNOWN = new Set([...PLACES, "num_tokens", "full", "kl_weight", ...CHARTS.flatMap(({ lines }) => lines.map(({ column }) => column))]);
export const GROUPS = ["Loss", "Statistics of the model", "Latents", "Optimization", "Speed and memory"];
const MAX_STATISTICS = 50;

/** Return the charts for which one of the runs has records. */
export function chartsOf(runs) {
  const has = (table, column) => runs.some((run) => run.tables[table]?.has(column));
  const own = new Set();
  for (const run of runs) {
    for (const table of ["train", "val", "full"]) {
      for (const name of run.tables[table]?.columns.keys() ?? []) if (!KNOWN.has(name)) own.add(name);
    }
  }
  const statistics = [...own].sort().slice(0, MAX_STATISTICS).map((name) => ({
    id: `statistic ${name}`, group: "Statistics of the model", title: name, lines: parts(name),
    note: name.startsWith("loss on ") ? "One source of the mixture." : "",
  }));
  return [...CHARTS, ...statistics].filter(({ lines }) => lines.some(({ table, column }) => has(table, column)))
    .map((chart) => ({ format: loss, enough: Infinity, note: "", unit: "", ...chart }));
}

export const AXES = {
  step: { words: "Step", format: (x) => grouped(Math.round(x)), named: (x) => `step ${grouped(Math.round(x))}`, tick: (x) => (x >= 1e5 ? short(x) : grouped(x)) },
  tokens: { words: "Tokens", format: short, named: (x) => `${short(x)} tokens`, tick: short },
  seconds: { words: "Time", format: duration, named: duration, tick: duration },
};
