// The facts of each tokenizer.
import { byId, element, grouped, hint } from "./page.js";

/** Show pattern, tie-break, special tokens and sizes of each tokenizer. */
export function drawFacts(tokenizers) {
  const row = (name, ...value) => element("tr", element("th", { scope: "row" }, name), element("td", ...value));
  byId("facts").replaceChildren(...tokenizers.map((each) => element("section.facts",
    tokenizers.length > 1 ? element("h3", each.name) : null,
    each.note ? element("p.note", each.note) : null,
    element("table", element("tbody",
      row("Vocabulary size", `${grouped(each.vocab_size)}${each.num_tokens < each.vocab_size ? ` ids, ${grouped(each.num_tokens)} of them with a token` : ` tokens`}`),
      row("Merges", grouped(each.num_merges)),
      row("Pattern", each.pattern ? element("b", each.pattern) : "A regular expression without a name.", each.pattern ? ` – ${each.pattern_words}` : "", element("br"), element("code", each.regex)),
      row("Tie-break", each.tie_break, each.states_tie_break ? "" : element("span.grey", " (assumed: the file does not record it)")),
      row("Fingerprint", element("code", each.fingerprint)),
      row("Special tokens", specialTokens(each)))))));
}

function specialTokens({ specials, num_specials }) {
  if (!num_specials) return "none";
  const more = num_specials > specials.length ? hint(`The first ${specials.length} of ${grouped(num_specials)}. The vocabulary above lists all of them.`) : "";
  return element("div", element("ul.chips", specials.map(([special, id]) =>
    element("li", element("span.chip.special", { dir: "ltr" }, special), ` ${id}`))), more);
}
