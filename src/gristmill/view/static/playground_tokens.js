// The generated text as tokens: shaded by probability, with a readout of the token under the pointer or the focus.
import { announce, element, grouped } from "./page.js";

/** Lower ends of the model probability of each shade. */
const LEVELS = [[0.5, "50 % or more"], [0.2, "20–50 %"], [0.05, "5–20 %"], [0.01, "1–5 %"], [0, "below 1 %"]];
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f]/g;

/** Return a probability as "12.3 %". */
export function percent(share) {
  const value = share * 100;
  if (value > 0 && value < 0.01) return "< 0.01 %";
  return `${value >= 99.95 || value === 0 ? Math.round(value) : value.toPrecision(value >= 10 ? 3 : 2)} %`;
}

/** Return text with pictures of its control characters. */
function printable(text) {
  return text.replace(CONTROLS, (letter) => String.fromCodePoint(letter === "\x7f" ? 0x2421 : 0x2400 + letter.charCodeAt(0)));
}

/** Return a token on one line, with visible whitespace; its bytes if they are not whole characters. */
function label(text, bytes) {
  if (text === null || text === "" || text.includes("\ufffd")) return bytes ? `bytes ${bytes}` : "(empty)";
  return printable(text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥"));
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
    this.spans = [];
    this.selected = -1;
    this.isPinned = false; // by a click or a key: the pointer then changes nothing until it clicks
    this.rest = "";
    this.list = element("div", {
      class: "tokens", role: "listbox", tabindex: "0", dir: "auto", "aria-label": "Generated tokens", hidden: true,
      onkeydown: (event) => this.#key(event), onpointerover: (event) => this.#point(event, false),
      onclick: (event) => this.#point(event, true),
    });
    if (before) this.list.append(element("span", { class: "prompt-echo", role: "presentation" }, printable(before)));
    const legend = element("ul", { class: "legend" }, element("li", {}, "Model probability:"),
      LEVELS.map(([, words], level) => element("li", {}, element("span", { class: `token level-${level}` }, words))));
    this.readout = element("div", { class: "panel readout", role: "region", tabindex: "0", "aria-label": "Token" });
    this.plain = element("div", { class: "text" });
    this.details = element("details", { class: "after", hidden: true, ontoggle: () => this.#showPlain() },
      element("summary", {}, "Text without tokens"), this.plain);
    place.replaceChildren(element("div", { class: "pages" }, element("div", {}, this.list, legend, this.details), this.readout));
    this.#show();
  }

  get text() {
    return this.records.map((record) => record.text).join("") + this.rest;
  }

  push(records) {
    const follows = this.list.scrollTop + this.list.clientHeight >= this.list.scrollHeight - 40;
    const made = records.map((record, index) => this.#span(record, this.records.length + index));
    this.records.push(...records);
    this.spans.push(...made);
    this.list.hidden = false;
    this.list.append(...made);
    if (follows) this.list.scrollTop = this.list.scrollHeight;
    if (this.selected < 0) this.#select(0);
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

  #span(record, index) {
    const made = element("span", { class: `token level-${levelOf(record.q)}`, role: "option", id: `token-${index}`, "aria-selected": "false",
      "aria-label": record.text && !record.text.trim() ? spoken(record.text) : null });
    if (record.special) made.append(element("span", { class: "mark" }, record.text));
    else if (!record.text) made.append(element("span", { class: "hex" }, record.bytes));
    else {
      for (const [number, line] of record.text.split("\n").entries()) {
        if (number) made.append(element("span", { class: "mark" }, "↵"), "\n");
        made.append(printable(line));
      }
    }
    return made;
  }

  #point(event, isClick) {
    const span = event.target.closest?.("[role=option]");
    if (!span || (this.isPinned && !isClick)) return;
    const index = this.spans.indexOf(span);
    this.isPinned = isClick && !(this.isPinned && index === this.selected);
    this.#select(index);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.spans.length) return;
    const steps = {
      ArrowRight: () => this.selected + 1, ArrowLeft: () => this.selected - 1, Home: () => 0, End: () => this.spans.length - 1,
      ArrowDown: () => this.#line(1), ArrowUp: () => this.#line(-1),
    };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    this.isPinned = true;
    this.#select(Math.max(0, Math.min(this.spans.length - 1, step())));
    this.spans[this.selected].scrollIntoView({ block: "nearest" });
    const { q, rank } = this.records[this.selected];
    announce(`Model probability ${percent(q)}, rank ${grouped(rank)}.`);
  }

  /** Return the token above or below the selected one. */
  #line(direction) {
    const from = this.spans[this.selected].getBoundingClientRect();
    const middle = (from.left + from.right) / 2;
    let best = this.selected;
    let bestAway = Infinity;
    let top = null;
    for (let index = this.selected + direction; index >= 0 && index < this.spans.length; index += direction) {
      const box = this.spans[index].getBoundingClientRect();
      if (Math.abs(box.top - from.top) < 4) continue;
      top ??= box.top;
      if (Math.abs(box.top - top) > 4) break;
      const away = Math.abs((box.left + box.right) / 2 - middle);
      if (away < bestAway) [best, bestAway] = [index, away];
    }
    return best;
  }

  #select(index) {
    if (index === this.selected) return;
    this.spans[this.selected]?.setAttribute("aria-selected", "false");
    this.selected = index;
    this.spans[index].setAttribute("aria-selected", "true");
    this.list.setAttribute("aria-activedescendant", this.spans[index].id);
    this.#show();
  }

  #show() {
    const record = this.records[this.selected];
    if (!record) {
      this.readout.replaceChildren(element("p", { class: "hint" }, "Point at a token, or use the arrow keys, to see its probability and the alternatives."));
      return;
    }
    const own = [record.id, record.text && !record.text.includes("\ufffd") ? record.text : null, record.bytes, record.p, record.q];
    const found = record.others.find(([id]) => id === record.id);
    const rows = record.others.map((other, index) => this.#row(index + 1, other, other[0] === record.id));
    if (!found) rows.push(this.#row(record.rank, own, true));
    this.readout.replaceChildren(
      element("h3", { class: "mono" }, element("bdi", {}, found ? label(found[1], found[2]) : label(own[1], own[2]))),
      element("dl", {}, ...[
        ["Position", grouped(this.selected + 1)], ["Id", grouped(record.id)], ["Bytes", record.bytes],
        ["Rank", grouped(record.rank)], ["Model probability", percent(record.q)], ["Drawn with", percent(record.p)],
      ].map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
      element("table", {}, element("caption", {}, `The ${record.others.length} likeliest tokens`),
        element("thead", {}, element("tr", {}, element("th", { scope: "col", class: "rank" }, "Rank"), element("th", { scope: "col" }, "Token"),
          element("th", { scope: "col", class: "number share" }, "Model"), element("th", { scope: "col", class: "number share" }, "Drawn"))),
        element("tbody", {}, rows)),
    );
  }

  #row(rank, [, text, bytes, drawn, byModel], isChosen) {
    const name = element("td", { class: "name mono", title: label(text, bytes) }, element("bdi", {}, label(text, bytes)));
    name.style.setProperty("--share", `${byModel * 100}%`);
    return element("tr", { "aria-current": isChosen ? "true" : null }, element("td", {}, grouped(rank)), name,
      element("td", { class: "number" }, percent(byModel)), element("td", { class: "number" }, drawn ? percent(drawn) : "–"));
  }
}
