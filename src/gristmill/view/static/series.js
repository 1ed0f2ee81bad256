// The records of a run in the browser: columns of buckets, as view/run_columns.py makes them. A bucket holds `size`
// records; new records fill the last bucket, and pairs of buckets are merged when there are too many.

const MAX_BUCKETS = 2048;
export const PLACES = ["step", "tokens", "seconds"];

function decoded(text, Type) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return Array.from(new Type(bytes.buffer));
}

export class Table {
  constructor({ count = 0, size = 1, columns = {} } = {}) {
    Object.assign(this, { count, size });
    this.shape = 0; // changes when the buckets are merged, so that everything drawn from them is outdated
    this.columns = new Map();
    for (const [name, parts] of Object.entries(columns)) {
      const mean = decoded(parts.mean, PLACES.includes(name) ? Float64Array : Float32Array);
      const [min, max] = parts.min ? [decoded(parts.min, Float32Array), decoded(parts.max, Float32Array)] : [mean, mean];
      this.columns.set(name, { mean, min, max });
    }
  }

  /** Number of buckets. */
  get length() { return Math.ceil(this.count / this.size); }

  /** Number of buckets that will not change. */
  get complete() { return Math.floor(this.count / this.size); }

  has(name) { return this.columns.has(name) && this.count > 0; }

  /** Return the place of a bucket on an axis: its last step, tokens or seconds. */
  place(axis, index) {
    const column = this.columns.get(axis);
    return column ? column.mean[index] : NaN;
  }

  /** Append records, given as {name: [numbers]}. */
  append(rows) {
    for (const name of Object.keys(rows)) {
      if (this.columns.has(name)) continue;
      const empty = new Array(this.length).fill(NaN);
      this.columns.set(name, this.size > 1 ? { mean: empty, min: [...empty], max: [...empty] } : { mean: empty, min: empty, max: empty });
    }
    for (let row = 0; row < rows.step.length; row++) {
      const filled = this.count % this.size;
      for (const [name, column] of this.columns) {
        const found = rows[name] ? rows[name][row] : null;
        addTo(column, found === null || !Number.isFinite(found) ? NaN : found, filled, PLACES.includes(name));
      }
      this.count++;
      if (this.length > MAX_BUCKETS) this.merge();
    }
  }

  merge() {
    this.size *= 2;
    this.shape++;
    for (const [name, { mean, min, max }] of this.columns) {
      const merged = { mean: [], min: [], max: [] };
      const isPlace = PLACES.includes(name);
      for (let i = 0; i < mean.length; i += 2) {
        const j = Math.min(i + 1, mean.length - 1);
        merged.mean.push(isPlace ? mean[j] : Number.isNaN(mean[i]) ? mean[j] : Number.isNaN(mean[j]) ? mean[i] : (mean[i] + mean[j]) / 2);
        if (isPlace) continue;
        merged.min.push(least(min[i], min[j]));
        merged.max.push(greatest(max[i], max[j]));
      }
      this.columns.set(name, isPlace ? { mean: merged.mean, min: merged.mean, max: merged.mean } : merged);
    }
  }

  /** Return the first bucket whose place is at least `x`; otherwise the length. */
  find(axis, x) {
    return bisect((i) => this.place(axis, i), this.length, x);
  }
}

/** Return the first of `length` places, in ascending order, that is at least `x`. */
export function bisect(place, length, x) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (place(middle) < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

function addTo(column, value, filled, isPlace) {
  const { mean, min, max } = column;
  const last = mean.length - 1;
  if (filled === 0) {
    mean.push(value);
    if (min !== mean) { min.push(value); max.push(value); }
  } else if (isPlace) {
    mean[last] = value;
  } else {
    if (!Number.isNaN(value)) mean[last] = Number.isNaN(mean[last]) ? value : mean[last] + (value - mean[last]) / (filled + 1);
    min[last] = least(min[last], value);
    max[last] = greatest(max[last], value);
  }
}

function least(a, b) { return Number.isNaN(a) || b < a ? b : a; }
function greatest(a, b) { return Number.isNaN(a) || b > a ? b : a; }

export class Run {
  constructor(number, name) {
    Object.assign(this, { number, name, visible: true, status: null, posterior: null, samples: [], events: [] });
    this.tables = {};
    this.detail = null; // finer tables of a range of steps
    this.generation = 0;
  }

  replace(content) {
    this.tables = tablesOf(content);
    this.detail = null;
    this.generation++;
    this.samples = content.samples;
    this.events = content.events;
    this.posterior = content.posterior;
  }

  append(content) {
    for (const [name, rows] of Object.entries(content.tables)) {
      this.tables[name].append(rows);
      if (this.detail?.isOpen) this.detail.tables[name].append(rows);
    }
    this.samples = [...this.samples, ...content.samples].slice(-100);
    this.events = [...this.events, ...content.events].slice(-500);
    if (content.posterior) this.posterior = content.posterior;
  }

  /** Use finer tables of a range of steps. isOpen: the range ends after the last record, so new ones belong to it. */
  zoomTo(content, isOpen) {
    this.detail = { isOpen, tables: tablesOf(content) };
  }

  /** Return the finer table of the zoomed range if there is one. */
  table(name) {
    return this.detail?.tables[name] || this.tables[name] || EMPTY;
  }

  /** Return the place of a step on an axis. Only training records have tokens and seconds. */
  placeOf(axis, step) {
    const { train = EMPTY } = this.tables;
    if (axis === "step") return step;
    return train.has(axis) ? interpolated(train, "step", axis, step) : NaN;
  }

  /** Return the step at a place on an axis. */
  stepAt(axis, x) {
    const { train = EMPTY } = this.tables;
    return axis === "step" || !train.has(axis) ? x : interpolated(train, axis, "step", x);
  }

  /** Return the place of a bucket of a table. */
  place(name, table, axis, index) {
    return name === "train" || axis === "step" ? table.place(axis, index) : this.placeOf(axis, table.place("step", index));
  }

  /** Return the last place of the run on an axis. */
  end(axis) {
    let last = 0;
    for (const [name, table] of Object.entries(this.tables)) {
      if (table.length) last = Math.max(last, this.place(name, table, axis, table.length - 1) || 0);
    }
    return last;
  }
}

function tablesOf({ tables }) {
  return Object.fromEntries(Object.entries(tables).map(([name, table]) => [name, new Table(table)]));
}

const EMPTY = new Table();

function interpolated(table, from, to, x) {
  const i = table.find(from, x);
  if (i >= table.length) return table.place(to, table.length - 1);
  const [x1, y1] = [table.place(from, i), table.place(to, i)];
  const [x0, y0] = i ? [table.place(from, i - 1), table.place(to, i - 1)] : [0, 0];
  return x1 > x0 ? y0 + ((y1 - y0) * (x - x0)) / (x1 - x0) : y1;
}
