// A panel with the tokens of one tokenizer.
import { counted, element, grouped, hint, request, setText } from "./page.js";
import { figures } from "./tables.js";
import { TokenList, chip, fromHex, hexOf, plainText } from "./tokens.js";

const PAUSE_MILLISECONDS = 50; // a pointer that crosses many tokens must not cause a request for each

/** Return amount / count with two decimals. */
export function ratio(amount, count) {
  return count ? (amount / count).toFixed(2) : "–";
}

/** The tokens of one tokenizer, their figures and a line about the token under the pointer or the focus.
 * `hooks`: functions of the page. */
export class Panel {
  constructor(name, number, hooks) {
    this.name = name;
    this.number = number;
    this.hooks = hooks;
    this.first = 0;
    this.known = new Map(); // merges of tokens that were looked at
    this.list = new TokenList(`Tokens of ${this.name}`, {
      shown: (token) => this.show(token), opened: (token) => token && hooks.open(number, token.id),
    });
    this.list.whitespace = hooks.whitespace();
    this.badge = element("span.badge", { hidden: true }, "fewest tokens");
    this.figures = element("dl.figures");
    this.note = hint();
    this.empty = element("p.grey", "No tokens: the text is empty.");
    this.readout = element("p.readout");
    this.where = element("span.hint");
    const pager = (words, step) => element("button", { onclick: () => this.turn(step) }, words);
    this.earlier = pager("Earlier tokens", -1);
    this.later = pager("Later tokens", 1);
    this.pager = element("div.row.pager", { hidden: true }, this.earlier, this.where, this.later);
    this.node = element("section.tokenizer", { "aria-label": this.name },
      element("h2", this.name, " ", this.badge), this.figures, this.note, this.pager, this.list.node, this.empty, this.readout);
    this.show(null);
  }

  draw(encoded, bytes, best) {
    this.first = encoded.first;
    this.badge.hidden = !best;
    const values = [
      ["Tokens", grouped(encoded.num_tokens)], ["Bytes per token", ratio(encoded.num_bytes, encoded.num_tokens)],
      ["Characters per token", ratio(encoded.num_characters, encoded.num_tokens)], ["Pieces", grouped(encoded.num_pieces)],
      ["Split characters", grouped(encoded.num_split)],
    ];
    if (!this.figures.children.length) {
      this.figures.append(...figures(values));
    }
    values.forEach(([, value], i) => setText(this.figures.children[i].lastChild, value));
    this.list.update(encoded, bytes);
    this.list.node.hidden = !encoded.num_tokens;
    this.empty.hidden = Boolean(encoded.num_tokens);
    setText(this.note, [encoded.note, this.hooks.remark(encoded)].filter(Boolean).join(" "));
    const last = encoded.first + encoded.ids.length;
    this.pager.hidden = encoded.num_tokens <= encoded.ids.length;
    setText(this.where, `Tokens ${grouped(encoded.first + 1)}–${grouped(last)} of ${grouped(encoded.num_tokens)}`);
    this.earlier.disabled = encoded.first === 0;
    this.later.disabled = last >= encoded.num_tokens;
    if (this.token && !this.token.node.isConnected) this.show(null);
  }

  turn(step) {
    this.first = Math.max(0, this.first + step * this.hooks.maxTokens());
    this.list.node.scrollTop = 0;
    this.hooks.changed();
  }

  show(token) {
    this.token = token;
    if (!token) {
      this.readout.replaceChildren(element("span.grey", "Point at a token to see its id, bytes and merge."));
      return;
    }
    const merge = element("span");
    const cut = token.cut.length ? element("span.cut", ` It holds a part of ${token.cut.join(" and ")}, which several tokens share.`) : "";
    this.readout.replaceChildren(chip(token.bytes, token.special), ` token ${grouped(token.number)} of ${grouped(token.total)}, id `, element("b", `${token.id}`),
      `, ${counted(token.bytes.length, "byte")}: `, element("code", hexOf(token.bytes, 16)), ". ", merge, cut);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.explain(token, merge), this.known.has(token.id) ? 0 : PAUSE_MILLISECONDS);
  }

  /** Fill in which merge creates the token. */
  async explain(token, place) {
    if (token.special) {
      place.textContent = "A special token: no merge creates it.";
      return;
    }
    if (!this.known.has(token.id)) {
      if (this.known.size > 500) this.known.clear();
      this.known.set(token.id, request(`api/tokenizers/${this.number}/tokens/${token.id}`));
    }
    try {
      const found = await this.known.get(token.id);
      if (found.rank === null) {
        place.textContent = found.kind === "byte" ? "A single byte." : "Used only for a whole piece.";
        return;
      }
      const parts = found.tokens.find((each) => each.id === found.id).parts.map((part) => found.tokens.find((each) => each.id === part));
      place.textContent = `Merge rank ${grouped(found.rank)}: ${parts.map((part) => plainText(fromHex(part.hex), 24)).join(" + ")}.`;
    } catch {
      this.known.delete(token.id); // the next request that fails shows its message
    }
  }
}
