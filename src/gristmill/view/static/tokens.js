// Tokens as the pages draw them: bytes as readable text, and a list of tokens that changes only where the text changed.
import { element, on } from "./page.js";

const STRICT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const LENIENT = new TextDecoder("utf-8", { ignoreBOM: true });
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Z}]/u;
const MARK = /^\p{M}/u;
const JOINERS = new Set(["\u200c", "\u200d"]); // needed inside emoji and in some scripts
const SIGNS = { " ": "␣", "\n": "↵", "\t": "⇥" };
const BLANKS = { " ": " ", "\n": " ", "\t": "\t" };

function digitsOf(byte) {
  return byte.toString(16).padStart(2, "0");
}

/** Return bytes as "e4 bd a0", at most `limit` of them. */
export function hexOf(bytes, limit = Infinity) {
  const shown = Array.from(bytes.subarray(0, limit), digitsOf).join(" ");
  return bytes.length > limit ? `${shown} …` : shown;
}

/** Return the bytes of "e4bda0". */
export function fromHex(digits) {
  return Uint8Array.from({ length: digits.length / 2 }, (_, i) => parseInt(digits.slice(2 * i, 2 * i + 2), 16));
}

/** Return the parts of a token: {text} for whole characters and {bytes} for bytes of cut or invalid ones. */
function partsOf(bytes) {
  try {
    return [{ text: STRICT.decode(bytes) }];
  } catch {
    // Some bytes are not whole characters: go through them one by one.
  }
  const parts = [];
  const add = (kind, value) => {
    const last = parts.at(-1);
    if (last && kind in last) last[kind] = last[kind].concat(value);
    else parts.push({ [kind]: value });
  };
  for (let i = 0; i < bytes.length;) {
    const length = bytes[i] < 0x80 ? 1 : bytes[i] >= 0xf0 ? 4 : bytes[i] >= 0xe0 ? 3 : 2;
    try {
      add("text", STRICT.decode(bytes.subarray(i, i + length)));
      i += length;
    } catch {
      add("bytes", [bytes[i]]);
      i += 1;
    }
  }
  return parts;
}

/** Return a token as one line of plain text, for labels: white space as ␣ ↵ ⇥, bytes of cut characters as \xe4. */
export function plainText(bytes, limit = 64) {
  let shown = "";
  for (const { text, bytes: raw } of partsOf(bytes.subarray(0, limit))) {
    if (raw) shown += raw.map((byte) => `\\x${digitsOf(byte)}`).join("");
    else for (const character of text) shown += SIGNS[character] ?? (INVISIBLE.test(character) ? codePoint(character) : character);
  }
  return bytes.length > limit ? `${shown}…` : shown;
}

function codePoint(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Put a token into a node: text, signs for white space, code points of invisible characters, bytes in hexadecimal. */
export function drawToken(node, bytes, { whitespace = true, limit = 400 } = {}) {
  let run = "";
  const flush = (...more) => {
    if (run) node.append(run);
    node.append(...more);
    run = "";
  };
  for (const { text, bytes: raw } of partsOf(bytes.length > limit ? bytes.subarray(0, limit) : bytes)) {
    if (raw) {
      flush(element("i.b", hexOf(Uint8Array.from(raw))));
      continue;
    }
    const characters = Array.from(text);
    characters.forEach((character, i) => {
      if (character in SIGNS) {
        if (whitespace) flush(element("i.w", SIGNS[character]));
        else run += BLANKS[character];
      } else if (INVISIBLE.test(character) && !(JOINERS.has(character) && i > 0 && i < characters.length - 1)) {
        flush(element("i.e", codePoint(character)));
      } else run += i === 0 && MARK.test(character) ? `◌${character}` : character;
    });
  }
  flush(bytes.length > limit ? "…" : "");
}

/** Return a box with a token. */
export function chip(bytes, isSpecial, tag = "span", attributes = {}) {
  const made = element(isSpecial ? `${tag}.chip.special` : `${tag}.chip`, { dir: "ltr", ...attributes });
  drawToken(made, bytes, { limit: 64 });
  return made;
}

/** Return a button with a token of a list of the server, which calls `open(id)`. */
export function tokenButton(row, open) {
  const bytes = fromHex(row.hex);
  return chip(bytes, row.special, "button", { "aria-label": `Token ${plainText(bytes)}, id ${row.id}`, onclick: () => open(row.id) });
}

const PIECE = 1, JOINED = 2, SPECIAL = 4, BREAK = 8; // flags in the key of a token, below its id
const FLAGS = 16;

/** Return a text on one line, with white space as ␣ ↵ ⇥. */
export function withSigns(text) {
  return visible(text.replace(/[ \n\t]/g, (found) => SIGNS[found]));
}

/** Put a text of the server into a node. Where it is empty, several tokens share a character: show the bytes. */
export function drawText(node, text, hex) {
  if (!text) node.append(element("i.b", hex || "·"));
  text.split("\n").forEach((line, i) => node.append(...(i ? [element("i.w", "↵"), "\n"] : []), visible(line)));
}

/** Return text with pictures of its control characters. */
export function visible(text) {
  return text.replace(/[\0-\x08\x0b-\x1f\x7f]/g, (found) => (found === "\x7f" ? "␡" : String.fromCharCode(0x2400 + found.charCodeAt(0))));
}

let numOptions = 0;

/** A list box of tokens, which are elements of class "t". One token is current: the last one under the pointer or
 * reached with the keys. `shown(index, isKey)` is called for it; `opened(index)` after a click or Enter. */
export class TokenBox {
  constructor(node, { shown, opened = () => {} }) {
    Object.assign(this, { node, shown, opened, now: null, isPinned: false });
    this.items = node.getElementsByClassName("t");
    for (const [name, value] of Object.entries({ role: "listbox", tabindex: "0", "aria-orientation": "horizontal" })) node.setAttribute(name, value);
    on(node, "pointermove", (event) => {
      const place = `${event.clientX} ${event.clientY}`;
      // A list that scrolls below a resting pointer must not take the place of the keys.
      if (!this.isPinned && place !== this.place) this.choose(event.target.closest(".t"));
      this.place = place;
    });
    on(node, "click", (event) => {
      if (this.choose(event.target.closest(".t"))) this.opened(this.index);
    });
    on(node, "focus", () => { if (!this.now && node.matches(":focus-visible")) this.choose(this.items[0], true); });
    on(node, "keydown", (event) => this.#key(event));
  }

  /** Return the index of the current token, or -1. */
  get index() {
    return Array.prototype.indexOf.call(this.items, this.now);
  }

  /** Make a token current, if there is one; return it. */
  choose(token, isKey = false) {
    if (!token || token === this.now) return token;
    this.leave();
    this.now = token;
    token.setAttribute("aria-selected", "true");
    token.id ||= `option-${++numOptions}`;
    this.shown(this.index, isKey); // may name the token, before it is read
    this.node.setAttribute("aria-activedescendant", token.id);
    return token;
  }

  /** Let no token be current. */
  leave() {
    this.now?.removeAttribute("aria-selected");
    this.now = null;
    this.node.removeAttribute("aria-activedescendant");
  }

  #key(event) {
    const last = this.items.length - 1;
    if (last < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    const now = this.index;
    const targets = {
      ArrowRight: () => now + 1, ArrowLeft: () => now - 1, Home: () => 0, End: () => last,
      ArrowDown: () => this.#onNextLine(now, 1), ArrowUp: () => this.#onNextLine(now, -1),
      PageDown: () => now + 50, PageUp: () => now - 50,
    };
    if (event.key in targets) {
      this.choose(this.items[Math.max(0, Math.min(last, targets[event.key]()))], true);
      this.now.scrollIntoView({ block: "nearest" });
    } else if (now >= 0 && (event.key === "Enter" || event.key === " ")) this.opened(now);
    else return;
    event.preventDefault();
  }

  /** Return the index of the nearest token on the line above or below. */
  #onNextLine(now, step) {
    if (now < 0) return 0;
    const { items } = this;
    const line = (index) => items[index].offsetTop;
    const away = (index) => Math.abs(items[index].offsetLeft - items[now].offsetLeft);
    let index = now;
    while (items[index + step] && line(index) === line(now)) index += step;
    if (line(index) === line(now)) return now;
    let best = index;
    for (const other = line(index); items[index] && line(index) === other; index += step) if (away(index) < away(best)) best = index;
    return best;
  }
}

/** The tokens of a text that changes: only tokens that differ are drawn again. `shown(token)` and `opened(token)` get
 * what `describe` returns. */
export class TokenList extends TokenBox {
  constructor(name, { shown, opened }) {
    super(element("div.tokens.boxes.hues", { "aria-label": name, dir: "ltr" }), {
      shown: (index) => { this._label(index); shown(this.describe(index)); }, opened: (index) => opened(this.describe(index)),
    });
    this.tokens = []; // {key, node, begin, end}: the position is in the bytes of the text
    this.first = 0;
    this.total = 0;
    this.whitespace = true;
    this.bytes = new Uint8Array();
  }

  /** Show the tokens of a reply of the server. `bytes` are the bytes of the text. */
  update(encoded, bytes) {
    const specials = new Set(encoded.specials);
    const pieces = new Set(encoded.pieces);
    const keys = new Array(encoded.ids.length);
    const ends = new Array(encoded.ids.length);
    let begin = encoded.begin;
    for (let i = 0; i < keys.length; i++) {
      const end = begin + encoded.lengths[i];
      let flags = pieces.has(i) ? PIECE : 0;
      if (begin > 0 && (bytes[begin] & 0xc0) === 0x80) flags |= JOINED;
      if (specials.has(i)) flags |= SPECIAL;
      else if (bytes.subarray(begin, end).includes(10)) flags |= BREAK;
      keys[i] = encoded.ids[i] * FLAGS + flags;
      ends[i] = begin = end;
    }
    this.first = encoded.first;
    this.total = encoded.num_tokens;
    this.bytes = bytes;
    this._replace(keys, ends, encoded.begin);
  }

  /** Draw all tokens again, with white space visible or not. */
  setWhitespace(whitespace) {
    this.whitespace = whitespace;
    const keys = this.tokens.map((token) => token.key), ends = this.tokens.map((token) => token.end);
    const begin = this.tokens.length ? this.tokens[0].begin : 0;
    this.clear();
    this._replace(keys, ends, begin);
  }

  /** Remove all tokens. */
  clear() {
    this.tokens = [];
    this.node.replaceChildren();
  }

  /** Replace the tokens between the common start and the common end of the old and the new list. */
  _replace(keys, ends, begin) {
    const old = this.tokens;
    const shorter = Math.min(old.length, keys.length);
    let head = 0;
    while (head < shorter && old[head].key === keys[head]) head++;
    let tail = 0;
    while (tail < shorter - head && old[old.length - 1 - tail].key === keys[keys.length - 1 - tail]) tail++;
    const after = tail ? old[old.length - tail].node : null;
    for (let i = head; i < old.length - tail; i++) {
      if (old[i].key & BREAK) old[i].node.nextSibling.remove();
      old[i].node.remove();
    }
    const made = [];
    const fragment = new DocumentFragment();
    for (let i = head; i < keys.length - tail; i++) {
      const token = { key: keys[i], node: this._draw(keys[i], this.bytes.subarray(i ? ends[i - 1] : begin, ends[i])) };
      made.push(token);
      fragment.append(token.node);
      if (token.key & BREAK) fragment.append(document.createElement("br"));
    }
    this.node.insertBefore(fragment, after);
    this.tokens = [...old.slice(0, head), ...made, ...old.slice(old.length - tail)];
    this.tokens.forEach((token, i) => {
      token.begin = i ? ends[i - 1] : begin;
      token.end = ends[i];
    });
    if (!this.now?.isConnected) this.leave();
  }

  _draw(key, bytes) {
    const node = document.createElement("span");
    node.className = `t${key & PIECE ? " p" : ""}${key & JOINED ? " j" : ""}${key & SPECIAL ? " special" : ""}`;
    node.setAttribute("role", "option");
    node.dataset.id = Math.floor(key / FLAGS);
    node.dataset.hex = hexOf(bytes, 12);
    drawToken(node, bytes, { whitespace: this.whitespace });
    return node;
  }

  /** Return what the page knows about a token: its number in the text, id, bytes, and the characters that it cuts. */
  describe(index) {
    const token = this.tokens[index];
    if (!token) return null;
    return {
      number: this.first + index + 1, total: this.total, id: Math.floor(token.key / FLAGS), special: Boolean(token.key & SPECIAL),
      bytes: this.bytes.subarray(token.begin, token.end), cut: this._cutCharacters(token), node: token.node,
    };
  }

  _cutCharacters({ begin, end }) {
    const continues = (at) => (this.bytes[at] & 0xc0) === 0x80;
    const characters = new Set();
    for (const edge of [begin, end]) {
      if (edge === 0 || edge >= this.bytes.length || !continues(edge)) continue;
      let from = edge, to = edge;
      while (from > 0 && continues(from)) from--;
      while (to < this.bytes.length && continues(to)) to++;
      characters.add(LENIENT.decode(this.bytes.subarray(from, to)));
    }
    return [...characters];
  }

  /** Name a token for screen readers. Only the focused token needs a name, and names for all would take long. */
  _label(index) {
    const { number, total, id, special, bytes, cut, node } = this.describe(index);
    const kind = special ? "special token" : "token";
    const part = cut.length ? `, contains a part of ${cut.join(" and ")}` : "";
    node.setAttribute("aria-label", `${kind} ${number} of ${total}: '${plainText(bytes)}', id ${id}${part}`);
  }
}
