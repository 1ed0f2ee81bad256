// Page tokenizers: type text, see the tokens of one or several tokenizers; merge trees; vocabularies.
import { announce, byId, debounced, element, fillSelect, grouped, needed, on, request, setText, showError, start, store, stored } from "./page.js";
import { meter, table } from "./tables.js";
import { tokenDialog } from "./token_dialog.js";
import { Panel, ratio } from "./token_panel.js";
import { drawFacts } from "./tokenizer_facts.js";
import { vocabularySection } from "./vocabulary.js";

const ENCODER = new TextEncoder();
const DECODER = new TextDecoder("utf-8", { ignoreBOM: true });
const SHOWN_AT_FIRST = 3;
const STORED = "gristmill-text"; // of this tab, so that a reload keeps the text
const MAX_STORED = 100_000;
const DRAW_MILLISECONDS = 60; // draw this often at least, while keys come faster than replies

const form = byId("typing");
const box = byId("text");
let isTyped = false; // maybe before the page is ready
on(box, "input", () => { isTyped = true; }, { once: true });
const artefacts = await start("tokenizers");
const names = artefacts.tokenizers;
const options = form.elements;
const panels = new Map(); // by number of the tokenizer
let facts = null;
let shown = names.map((_, number) => number).slice(0, SHOWN_AT_FIRST);
let waiting = false; // for a reply
let dirty = false; // the text changed after the last request
let drawn = 0; // when the tokens were last drawn
const openToken = tokenDialog(names);
const panelHooks = {
  changed, open: openToken, whitespace: () => options.whitespace.checked, maxTokens: () => facts.max_tokens, remark: spelled,
};

async function loadFacts() {
  facts = await needed("api/tokenizers");
  drawFacts(facts.tokenizers);
}

/** Return the text to encode and its bytes. Half of a surrogate pair becomes U+FFFD. */
function typed() {
  let text = box.value;
  if (text.length > facts.max_characters) {
    text = text.slice(0, facts.max_characters);
    if (/[\ud800-\udbff]$/.test(text)) text = text.slice(0, -1);
  }
  const bytes = ENCODER.encode(text);
  if (!text.isWellFormed?.()) text = DECODER.decode(bytes);
  return { text, bytes };
}

/** Encode the text. At most one request is under way; the next one takes the text as it is then, so the last wins. */
async function changed() {
  dirty = true;
  if (waiting) return;
  waiting = true;
  try {
    let reply = send();
    while (reply) {
      const { bytes, encoded } = await reply;
      reply = dirty ? send() : null; // before drawing, so that both happen at the same time
      if (reply && performance.now() - drawn < DRAW_MILLISECONDS) continue; // a newer reply is on its way
      draw(encoded, bytes);
      drawn = performance.now();
    }
    showError(null);
  } catch (error) {
    showError(error);
  } finally {
    waiting = false;
  }
  if (dirty) return void changed();
  store(STORED, box.value.length <= MAX_STORED ? box.value : null, "sessionStorage");
  sayCounts();
  textChanged();
}

async function send() {
  dirty = false;
  if (!shown.length) return { bytes: new Uint8Array(), encoded: [] };
  const { text, bytes } = typed();
  const asked = shown.map((tokenizer) => ({ tokenizer, first: panels.get(tokenizer).first }));
  const { encoded } = await request("api/tokenizers/encode", { text, specials: options.specials.checked, shown: asked });
  return { bytes, encoded };
}

const sayCounts = debounced(() => {
  announce([...panels.values()].map((panel) => `${names.length > 1 ? `${panel.name}: ` : ""}${grouped(panel.list.total)} tokens`).join(", "));
}, 700);

function draw(encoded, bytes) {
  const fewest = Math.min(...encoded.map((each) => each.num_tokens));
  const differ = encoded.some((each) => each.num_tokens !== fewest);
  for (const each of encoded) panels.get(each.tokenizer)?.draw(each, bytes, differ && each.num_tokens === fewest);
  drawComparison(encoded, fewest, differ);
  const long = box.value.length > facts.max_characters;
  setText(byId("limit"), long ? `Only the first ${grouped(facts.max_characters)} characters are encoded.` : "");
  if (encoded.some((each) => each.version !== facts.tokenizers[each.tokenizer].version || each.note !== facts.tokenizers[each.tokenizer].note)) {
    loadFacts().catch(() => {});
  }
}

function drawComparison(encoded, fewest, differ) {
  const section = byId("comparison");
  section.hidden = encoded.length < 2;
  if (section.hidden) return;
  const most = Math.max(1, ...encoded.map((each) => each.num_tokens));
  section.replaceChildren(table("Comparison", ["Tokenizer", "#Tokens", "", "#Bytes per token", "#Characters per token"], encoded.map((each) => {
    const best = differ && each.num_tokens === fewest;
    const more = fewest && each.num_tokens > fewest ? `+${Math.round(100 * (each.num_tokens / fewest - 1))} %` : "";
    return element("tr", { class: best ? "best" : null },
      element("th", { scope: "row" }, names[each.tokenizer]),
      element("td.number", grouped(each.num_tokens), best ? element("span.mark", " fewest") : more && element("span.grey", ` ${more}`)),
      element("td", meter(each.num_tokens / most)),
      element("td.number", ratio(each.num_bytes, each.num_tokens)),
      element("td.number", ratio(each.num_characters, each.num_tokens)));
  })));
}

/** Return a remark on special tokens that the text spells but that stay plain text. */
function spelled(encoded) {
  if (options.specials.checked) return "";
  const found = facts.tokenizers[encoded.tokenizer].specials.filter(([special]) => box.value.includes(special));
  if (!found.length) return "";
  return `The text spells ${found.map(([special]) => special).slice(0, 5).join(", ")}, which is plain text here, not a special token.`;
}

function buildChoice() {
  const choice = byId("choice");
  choice.hidden = names.length < 2;
  names.forEach((name, number) => {
    const check = element("input", { type: "checkbox", value: number, checked: shown.includes(number) });
    on(check, "change", () => {
      shown = Array.from(choice.querySelectorAll("input:checked"), (each) => Number(each.value));
      for (const each of choice.querySelectorAll("input")) each.disabled = !each.checked && shown.length >= facts.max_side_by_side;
      buildPanels();
      changed();
    });
    choice.append(element("label", check, ` ${name}`));
  });
}

function buildPanels() {
  for (const number of panels.keys()) if (!shown.includes(number)) panels.delete(number);
  for (const number of shown) if (!panels.has(number)) panels.set(number, new Panel(names[number], number, panelHooks));
  const place = byId("panels");
  place.classList.toggle("several", shown.length > 1);
  place.replaceChildren(...shown.map((number) => panels.get(number).node));
  applyLabels();
}

function applyLabels() {
  for (const name of ["ids", "bytes"]) byId("panels").classList.toggle(name, options[name].checked);
}

await loadFacts();
if (!isTyped) {
  box.value = stored(STORED, "sessionStorage") ?? Object.values(facts.examples)[0];
  if (document.activeElement === box) box.select(); // the next key replaces it
}
fillSelect(options.sample, [["", "choose…"], ...Object.keys(facts.examples).map((name) => [name, name])]);
buildChoice();
buildPanels();
const textChanged = vocabularySection(names, facts.classes, { text: () => ({ text: typed().text, specials: options.specials.checked }), open: openToken });
on(box, "input", changed);
on(options.sample, "change", () => {
  if (!options.sample.value) return;
  box.value = facts.examples[options.sample.value];
  options.sample.value = "";
  panels.forEach((panel) => { panel.first = 0; });
  changed();
});
on(options.specials, "change", changed);
on(options.whitespace, "change", () => panels.forEach((panel) => panel.list.setWhitespace(options.whitespace.checked)));
for (const name of ["ids", "bytes"]) on(options[name], "change", applyLabels);
changed();
