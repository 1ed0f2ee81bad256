// Tokens as the pages draw them: bytes as readable text, and a list of tokens that changes only where the text changed.
import { element } from "./page.js";

const STRICT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const LENIENT = new TextDecoder("utf-8", { ignoreBOM: true });
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Z}]/u;
const MARK = /^\p{M}/u;
const JOINERS = new Set(["\u200c", "\u200d"]); // needed inside emoji and in some scripts
const SIGNS = { " ": "␣", "\n": "↵", "\t": "⇥" };
const BLANKS = { " ": " ", "\n": " ", "\t": "\t" };

/** Return bytes as "e4 bd a0", at most `limit` of them. */
export function hexOf(bytes, limit = Infinity) {
  const shown = Array.from(bytes.subarray(0, limit), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
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
    if (raw) shown += raw.map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
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
      flush(element("i", { class: "b" }, hexOf(Uint8Array.from(raw))));
      continue;
    }
    const characters = Array.from(text);
    characters.forEach((character, i) => {
      if (character in SIGNS) {
        if (whitespace) flush(element("i", { class: "w" }, SIGNS[character]));
        else run += BLANKS[character];
      } else if (INVISIBLE.test(character) && !(JOINERS.has(character) && i > 0 && i < characters.length - 1)) {
        flush(element("i", { class: "e" }, codePoint(character)));
      } else run += i === 0 && MARK.test(character) ? `◌${character}` : character;
    });
  }
  flush(bytes.length > limit ? "…" : "");
}

/** Return a button with a token of a list of the server, which calls `open(id)`. */
export function tokenButton(row, open) {
  const bytes = fromHex(row.hex);
  const button = element("button", { class: row.special ? "chip special" : "chip", type: "button", dir: "ltr",
    "aria-label": `Token ${plainText(bytes)}, id ${row.id}`, onclick: () => open(row.id) });
  drawToken(button, bytes, { limit: 64 });
  return button;
}

const PIECE = 1, JOINED = 2, SPECIAL = 4, BREAK = 8; // flags in the key of a token, below its id
const FLAGS = 16;

/** A list box of tokens. Arrow keys move between them. `shown(token)` is called for the token under the pointer or the
 * focus, and `shown(null)` when it is left; `opened(token)` after a click or Enter. */
export class TokenList {
  constructor(name, { shown, opened }) {
    this.node = element("div", { class: "tokens", role: "listbox", "aria-label": name, "aria-orientation": "horizontal", dir: "ltr" });
    this.tokens = []; // {key, node, begin, end}: the position is in the bytes of the text
    this.current = 0;
    this.first = 0;
    this.total = 0;
    this.whitespace = true;
    this.bytes = new Uint8Array();
    this.opened = opened;
    this.node.addEventListener("pointerover", (event) => shown(this.describe(this._indexOf(event.target))));
    this.node.addEventListener("pointerleave", () => shown(this.node.contains(document.activeElement) ? this.describe(this.current) : null));
    this.node.addEventListener("focusin", (event) => {
      const index = this._indexOf(event.target);
      if (index >= 0) this._label(index);
      shown(this.describe(index));
    });
    this.node.addEventListener("click", (event) => {
      const index = this._indexOf(event.target);
      if (index < 0) return;
      this._move(index);
      opened(this.describe(index));
    });
    this.node.addEventListener("keydown", (event) => this._key(event));
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
    const fragment = document.createDocumentFragment();
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
    if (!this.tokens[this.current]?.node.hasAttribute("tabindex")) {
      this.node.querySelector("[tabindex]")?.removeAttribute("tabindex");
      this.current = 0;
      this.tokens[0]?.node.setAttribute("tabindex", "0");
    }
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

  _indexOf(target) {
    const node = target.closest(".t");
    return node ? this.tokens.findIndex((token) => token.node === node) : -1;
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

  _move(index) {
    this.tokens[this.current]?.node.removeAttribute("tabindex");
    this.current = index;
    this.tokens[index].node.setAttribute("tabindex", "0");
    this.tokens[index].node.focus();
  }

  _key(event) {
    const last = this.tokens.length - 1;
    if (last < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    const targets = {
      ArrowRight: () => this.current + 1, ArrowLeft: () => this.current - 1, Home: () => 0, End: () => last,
      ArrowDown: () => this._onNextLine(1), ArrowUp: () => this._onNextLine(-1),
      PageDown: () => this.current + 50, PageUp: () => this.current - 50,
    };
    if (event.key in targets) this._move(Math.max(0, Math.min(last, targets[event.key]())));
    else if (event.key === "Enter" || event.key === " ") this.opened(this.describe(this.current));
    else return;
    event.preventDefault();
  }

  /** Return the nearest token on the line above or below. */
  _onNextLine(step) {
    const line = (index) => this.tokens[index].node.offsetTop;
    const left = this.tokens[this.current].node.offsetLeft;
    const distance = (index) => Math.abs(this.tokens[index].node.offsetLeft - left);
    let index = this.current;
    while (this.tokens[index + step] && line(index) === line(this.current)) index += step;
    if (line(index) === line(this.current)) return this.current;
    let best = index;
    for (const other = line(index); this.tokens[index] && line(index) === other; index += step) {
      if (distance(index) < distance(best)) best = index;
    }
    return best;
  }
}
