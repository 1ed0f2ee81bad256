// The generated text as tokens: shaded by probability, with a readout of the token under the pointer or the focus.
import { percent } from "./numbers.js";
import { announce, element, grouped, hint } from "./page.js";
import { table, terms } from "./tables.js";
import { TokenBox, drawText, visible, withSigns } from "./tokens.js";

/** Lower ends of the model probability of each shade. */
const LEVELS = [[0.5, "50 % or more"], [0.2, "20–50 %"], [0.05, "5–20 %"], [0.01, "1–5 %"], [0, "below 1 %"]];

/** Return a token on one line, with visible whitespace; its bytes if they are not whole characters. */
function label(text, bytes) {
  if (text === null || text === "" || text.includes("\ufffd")) return bytes ? `bytes ${bytes}` : "(empty)";
  return withSigns(text);
}

/** Return whitespace in words, because a screen reader would skip it. */
function spoken(text) {
  return [...text].map((letter) => ({ " ": "space", "\n": "new line", "\t": "tab" })[letter] ?? "whitespace").join(" ");
}

function levelOf(share) {
  return LEVELS.findIndex(([least]) => share >= least);
}

export class TokenView {
  /** Build the view in `place`; `before` is the prompt, shown in grey. */
  constructor(place, before) {
    this.records = [];
    this.rest = "";
    this.list = element("div.tokens", { dir: "auto", "aria-label": "Generated tokens", hidden: true });
    this.box = new TokenBox(this.list, { shown: (index, isKey) => this.#chosen(index, isKey), opened: (index) => this.#pin(index) });
    if (before) this.list.append(element("span.prompt-echo", { role: "presentation" }, visible(before)));
    const legend = element("ul.legend", element("li", "Model probability:"),
      LEVELS.map(([, words], level) => element("li", element("span", { class: `t level level-${level}` }, words))));
    this.readout = element("div.panel.readout", { role: "region", tabindex: "0", "aria-label": "Token" });
    this.plain = element("div.text");
    this.details = element("details.after", { hidden: true, ontoggle: () => this.#showPlain() },
      element("summary", "Text without tokens"), this.plain);
    place.replaceChildren(element("div.pages", element("div", this.list, legend, this.details), this.readout));
    this.#show();
  }

  get text() {
    return this.records.map((record) => record.text).join("") + this.rest;
  }

  push(records) {
    const follows = this.list.scrollTop + this.list.clientHeight >= this.list.scrollHeight - 40;
    this.records.push(...records);
    this.list.hidden = false;
    this.list.append(...records.map((record) => this.#span(record)));
    if (follows) this.list.scrollTop = this.list.scrollHeight;
    this.box.now ?? this.box.choose(this.box.items[0]);
  }

  /** The text is complete; `rest` comes after its last token. */
  finish(rest) {
    this.rest = rest;
    if (rest) this.list.append(element("span", { role: "presentation" }, rest));
    this.details.hidden = !this.records.length;
    this.#showPlain();
  }

  #showPlain() {
    if (this.details.open) this.plain.textContent = this.text;
  }

  #span(record) {
    const made = element("span", { class: record.special ? "t special" : `t level level-${levelOf(record.q)}`, role: "option",
      "aria-label": record.text && !record.text.trim() ? spoken(record.text) : null });
    drawText(made, record.text, record.bytes);
    return made;
  }

  /** A click keeps a token while the pointer moves to the readout; a second click on it lets it go. */
  #pin(index) {
    this.box.isPinned = !(this.box.isPinned && index === this.pinned);
    this.pinned = index;
  }

  #chosen(index, isKey) {
    this.#show();
    if (!isKey) return;
    const { q, rank } = this.records[index];
    announce(`Model probability ${percent(q)}, rank ${grouped(rank)}.`);
  }

  #show() {
    const index = this.box.index;
    const record = this.records[index];
    if (!record) {
      this.readout.replaceChildren(hint("Point at a token, or use the arrow keys, to see its probability and the alternatives."));
      return;
    }
    const own = [record.id, record.text && !record.text.includes("\ufffd") ? record.text : null, record.bytes, record.p, record.q];
    const found = record.others.find(([id]) => id === record.id);
    const rows = record.others.map((other, index) => this.#row(index + 1, other, other[0] === record.id));
    if (!found) rows.push(this.#row(record.rank, own, true));
    this.readout.replaceChildren(
      element("h3.mono", element("bdi", label(...(found ?? own).slice(1, 3)))),
      element("dl", terms([
        ["Position", grouped(index + 1)], ["Id", grouped(record.id)], ["Bytes", record.bytes],
        ["Rank", grouped(record.rank)], ["Model probability", percent(record.q)], ["Drawn with", percent(record.p)],
      ])),
      table(`The ${record.others.length} likeliest tokens`, ["Rank", "Token", "#Model", "#Drawn"], rows, { isCaptionShown: true }));
  }

  #row(rank, [, text, bytes, drawn, byModel], isChosen) {
    const name = element("td.name.mono", { title: label(text, bytes) }, element("bdi", label(text, bytes)));
    name.style.setProperty("--share", `${byModel * 100}%`);
    return element("tr", { "aria-current": isChosen ? "true" : null }, element("td", grouped(rank)), name,
      element("td.number", percent(byModel, true)), element("td.number", drawn ? percent(drawn, true) : "–"));
  }
}
