// The page shards: chooses a folder and a split, and notices when the folder is finished, replaced or removed.
import { bytes } from "./numbers.js";
import { announce, byId as by, counted, element, fillChoice, fillSelect, grouped, hint, on, request, showError, start } from "./page.js";
import { makeStatistics } from "./shard_figures.js";
import { makeReader } from "./shard_reader.js";
import { makeSearch } from "./shard_search.js";
import { figures, pager, scrolledTable, terms } from "./tables.js";

const POLL_MILLISECONDS = 2500;

const artefacts = await start("shards");
const room = { number: 0, split: "", tokenizer: null, facts: null, query, remember, changed, unit: () => (by("unit").textContent === "Part" ? "part" : "document") };
const reader = makeReader(room);
const search = makeSearch(room, (number, offset, found) => reader.open(number, offset, found));
const statistics = makeStatistics(room);
let loading = 0;
let timer;
let polls = 0;
let problem = null; // why the folder cannot be shown now

function encoded(values) {
  return new URLSearchParams(Object.entries(values).filter(([, value]) => value !== null && value !== undefined)).toString();
}

function query(name, parameters = {}) {
  const after = encoded(parameters);
  return `api/shards/${room.number}${name && `/${name}`}${after && `?${after}`}`;
}

/** Keep the place in the address, so that a reload or a bookmark leads back to it. */
function remember(place) {
  history.replaceState(null, "", `#${encoded({ folder: room.number, split: room.split, tokenizer: room.tokenizer, ...place })}`);
}

function place() {
  const values = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (/^\d{1,15}$/.test(values.get(name) || "") ? Number(values.get(name)) : null);
  return { folder: number("folder"), split: values.get("split"), tokenizer: number("tokenizer"), document: number("document"), offset: number("offset") };
}

/** Return whether `edition` is not the one on the page; then load the new one. */
function changed(edition) {
  if (edition === room.facts?.edition) return false;
  load({ document: 0 }).then(() => announce("The shards were replaced. The page shows the new ones."));
  return true;
}

/** Show the folder from the start. wanted: {split, document, offset, tokenizer} where possible. */
async function load(wanted = {}) {
  const ticket = ++loading;
  let facts;
  try {
    facts = await request(query(""));
  } catch (error) {
    if (ticket === loading) fail({ problem: error.message });
    return;
  }
  if (ticket !== loading) return;
  if (facts.problem) return fail(facts);
  problem = null;
  showError(null);
  room.facts = facts;
  const names = facts.splits.map((split) => split.name);
  room.split = names.includes(wanted.split) ? wanted.split : names.includes(room.split) ? room.split : names[0] || "";
  room.tokenizer = facts.foreign && artefacts.tokenizers.length ? Math.min(wanted.tokenizer ?? room.tokenizer ?? 0, artefacts.tokenizers.length - 1) : null;
  by("written").hidden = true;
  by("view").hidden = false;
  drawChoices();
  drawFacts();
  by("unreadable").hidden = !facts.unreadable;
  by("unreadable").textContent = facts.unreadable || "";
  by("browser").hidden = Boolean(facts.unreadable);
  showSplit(wanted);
}

function showSplit({ document = 0, offset = 0 } = {}) {
  drawFigures();
  search.clear();
  statistics.reset();
  if (room.facts.unreadable) remember({});
  else reader.open(document ?? 0, offset ?? 0);
}

/** Show why the folder cannot be read, and what an unfinished run has written. */
function fail(reply) {
  problem = reply.problem;
  room.facts = null;
  by("view").hidden = true;
  by("splits").hidden = by("tokenizer-choice").hidden = true;
  search.clear();
  if (by("message").textContent !== problem) showError(problem);
  const rows = (reply.written || []).map((split) => [split.name, split.documents, split.tokens, split.source_bytes, split.shards]);
  by("written").hidden = !rows.length;
  by("written").replaceChildren(
    element("h2", "Written so far"),
    hint("Up to the last checkpoint. This page updates itself and shows the documents when the run has finished."),
    scrolledTable("Written so far", ["Split", "#Documents", "#Tokens", "#Bytes of text", "#Finished shards"], rows));
}

/** Ask whether the folder is still the same: every few seconds, and when the page becomes visible. */
async function poll() {
  clearTimeout(timer);
  const mine = ++polls;
  if (!document.hidden) {
    try {
      const state = await request(query("state"));
      if (mine !== polls) return;
      if (state.problem) fail(state);
      else if (problem !== null) await load(place());
      else if (room.facts) changed(state.edition);
    } catch (error) {
      problem ??= "";
      showError(error);
    }
  }
  if (mine === polls) timer = setTimeout(poll, POLL_MILLISECONDS);
}

function drawChoices() {
  const { facts } = room;
  fillSelect(by("folder"), [...artefacts.shards.entries()], room.number);
  by("folder-choice").hidden = artefacts.shards.length < 2;
  const name = artefacts.shards[room.number];
  by("title").textContent = artefacts.shards.length < 2 && name !== "shards" ? `Shards: ${name}` : "Shards";
  by("splits").hidden = facts.splits.length < 2;
  fillChoice(by("splits"), facts.splits.map(({ name }) => [name, name]), room.split, (name) => {
    room.split = name;
    showSplit();
  });
  by("tokenizer-choice").hidden = room.tokenizer === null;
  fillSelect(by("tokenizer"), [...artefacts.tokenizers.entries()], room.tokenizer);
}

function bytesPerToken({ source_bytes, tokens }) {
  return source_bytes === null || !tokens ? "–" : (source_bytes / tokens).toFixed(3);
}

function recorded(number, words = grouped) {
  return number === null ? "not recorded" : words(number);
}

function drawFigures() {
  const split = room.facts.splits.find(({ name }) => name === room.split);
  const entries = split ? [
    ["Documents", recorded(split.documents)],
    ["Tokens", grouped(split.tokens)],
    ["Bytes of text", recorded(split.source_bytes, bytes)],
    ["Bytes per token", bytesPerToken(split)],
    ["Shards", `${grouped(split.shards)} (${bytes(split.bytes)})`],
    ["Vocabulary", recorded(room.facts.vocab_size)],
  ] : [];
  by("figures").replaceChildren(...figures(entries));
}

function drawFacts() {
  const { facts } = room;
  const end = facts.end_of_text;
  const names = [
    ["Path", facts.path],
    ["Layout", facts.foreign ? `${facts.layout}, written by another program` : facts.layout],
    ["Type of ids", facts.dtype],
    ["Tokenizer", facts.foreign ? `not stored in the files${artefacts.tokenizers.length ? "" : ". To see text, pass its tokenizer too: gristmill view FOLDER tokenizer.json"}` : `tokenizer.json, fingerprint ${facts.fingerprint.slice(0, 16)}…`],
    ["End of text", end ? `${end.token} = ${end.id}, ${end.position} each document` : facts.foreign ? "not recorded" : "none"],
    !facts.foreign && ["Inputs", facts.inputs ? `${counted(facts.inputs, "file")}, ${bytes(facts.input_bytes)}${facts.skipped ? `, ${grouped(facts.skipped)} skipped` : ""}` : "an iterable of documents, which has no file names"],
    facts.num_nulls && ["Records without text", grouped(facts.num_nulls)],
  ].filter(Boolean);
  const splits = facts.splits.map((split) => [split.name, split.documents ?? "–", split.tokens, split.source_bytes ?? "–", bytesPerToken(split), split.shards, bytes(split.bytes)]);
  const options = Object.entries(facts.options);
  by("facts").replaceChildren(
    element("dl.names", terms(names)),
    element("h3", "Splits"),
    scrolledTable("Splits", ["Split", "#Documents", "#Tokens", "#Bytes of text", "#Bytes per token", "#Shards", "#Size"], splits),
    facts.inputs ? list("Sources", "inputs", {}, ["File", "Format", "#Size", "Skipped because"], (row) => [row.path, row.format + (row.compression && `, ${row.compression}`), bytes(row.bytes), row.skipped ?? ""]) : "",
    ...facts.splits.map((split) => list(`Shards of ${split.name}`, "files", { split: split.name }, ["File", "#Tokens", "#Documents", "#Size", "Checksum (xxh64)"], (row) => [row.file, row.tokens, row.documents ?? "–", bytes(row.bytes), row.checksum ?? "–"])),
    options.length ? element("details.data", element("summary", "Options"), scrolledTable("Options", ["Option", "Value"], options)) : "",
    facts.command ? element("div", element("h3", "Command that makes the same shards"), element("pre", facts.command)) : "");
}

/** Return a list of the server that is unfolded on demand, 50 rows at a time. */
function list(title, name, parameters, heads, cells) {
  const place = element("div");
  const show = async (begin) => {
    try {
      const { rows, total } = await request(query(name, { ...parameters, begin }));
      place.replaceChildren(scrolledTable(title, heads, rows.map(cells)), pager({ begin, number: rows.length, total, step: 50, show }));
    } catch (error) {
      place.replaceChildren(element("p", error.message));
    }
  };
  return element("details.data", { ontoggle: (event) => event.target.open && !place.firstChild && show(0) }, element("summary", title), place);
}

on("folder", "change", () => {
  room.number = Number(by("folder").value);
  room.facts = null;
  room.split = "";
  load();
});
on("tokenizer", "change", () => {
  room.tokenizer = Number(by("tokenizer").value);
  showSplit();
});
on(window, "hashchange", () => {
  const wanted = place();
  if (wanted.folder === null) return; // a link inside the page
  room.number = Math.min(wanted.folder, artefacts.shards.length - 1);
  load(wanted);
});

const wanted = place();
room.number = Math.min(wanted.folder ?? 0, artefacts.shards.length - 1);
await load(wanted);
timer = setTimeout(poll, POLL_MILLISECONDS);
on(document, "visibilitychange", poll);
