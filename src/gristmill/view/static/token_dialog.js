// The dialog about one token: its merge tree, the merges in the order in which they were learned, and what is built from it.
import { byId, counted, element, grouped, hint, on, request, showError } from "./page.js";
import { figures, table } from "./tables.js";
import { chip, fromHex, hexOf, plainText, tokenButton } from "./tokens.js";

const MAX_NODES = 250; // drawn in a tree

/** Return a function `open(number, id)` that shows a token of tokenizer `number`. */
export function tokenDialog(names) {
  const dialog = byId("token");
  const content = dialog.querySelector(".content");
  const back = dialog.querySelector(".back");
  const visited = [];
  let latest = 0;
  on(dialog.querySelector(".close"), "click", () => dialog.close());
  on(dialog, "click", (event) => event.target === dialog && dialog.close());
  on(dialog, "close", () => { visited.length = 0; });
  on(back, "click", () => {
    visited.pop();
    show(...visited.at(-1));
  });

  async function show(number, id) {
    const turn = ++latest;
    let token;
    try {
      token = await request(`api/tokenizers/${number}/tokens/${id}`);
    } catch (error) {
      dialog.close();
      showError(error);
      return;
    }
    if (turn !== latest) return;
    showError(null);
    dialog.querySelector("h2").replaceChildren("Token ", chip(fromHex(token.hex), token.special), names.length > 1 ? element("small", ` ${names[number]}`) : "");
    content.replaceChildren(...sections(token, (other) => open(number, other)));
    back.hidden = visited.length < 2;
    if (!dialog.open) dialog.showModal();
    else dialog.querySelector("h2").focus();
    content.scrollTop = 0;
  }

  function open(number, id) {
    visited.push([number, id]);
    show(number, id);
  }

  return (number, id) => {
    visited.length = 0;
    open(number, id);
  };
}

function sections(token, open) {
  const row = new Map(token.tokens.map((each) => [each.id, each]));
  const facts = [
    ["Id", `${token.id}`], ["Length", counted(token.length, "byte")],
    ["Merge rank", token.rank === null ? "none" : `${grouped(token.rank)} of ${grouped(token.num_merges)}`],
  ];
  const made = [
    element("dl.figures", figures(facts)),
    element("p", "Bytes: ", element("code", hexOf(fromHex(token.hex)), token.length > token.hex.length / 2 ? " …" : "")),
    ...remarks(token).map((text) => element("p", text)),
  ];
  if (token.rank !== null) {
    const steps = token.tokens.filter((each) => each.rank !== null && each.parts.length).sort((a, b) => a.rank - b.rank);
    made.push(
      element("h3", "Merge tree"),
      element("div.scroll", { tabindex: "0", role: "group", "aria-label": "Merge tree as nested lists" },
        element("ul.tree", branches(token.id, row, open))),
      element("h3", "How it was learned, step by step"),
      hint("The rank counts the merges of the whole training from 0."),
      element("div.scroll", stepTable(steps, row, open)));
    if (token.cut) made.push(hint(`Only the first ${row.size} tokens of the tree are shown.`));
  }
  made.push(element("h3", "Tokens built from it"), ...builtFrom(token, open));
  return made;
}

function remarks(token) {
  const texts = {
    special: "A special token. It stands for itself: no merge creates it, and text that spells it becomes this id only where special tokens are allowed.",
    byte: "A single byte. The 256 bytes are the start of the vocabulary, so every text can be encoded.",
    whole: "No merge creates this token. It is used only for a piece of text with exactly these bytes.",
    merge: token.num_creating > 1 ? `${grouped(token.num_creating)} merges create this token. The tree shows the first of them.` : null,
  };
  const own = token.encodes_to;
  const other = token.kind !== "special" && (own.length !== 1 || own[0] !== token.id);
  return [texts[token.kind], other && `Text with exactly these bytes is encoded as ${own.map((id) => `id ${id}`).join(", ")}. This token occurs only as a part of longer text, or not at all.`]
    .filter(Boolean);
}

/** Return the list item of a token, with its parts below it. A tree with too many nodes ends in dots. */
function branches(id, row, open) {
  let left = MAX_NODES;
  return branch(id, 0);

  function branch(each, depth) {
    left -= 1;
    const found = row.get(each);
    const label = found.rank === null ? hexOf(fromHex(found.hex), 4) : `rank ${grouped(found.rank)}`;
    const cut = found.parts.length && (left < 2 || depth > 60);
    return element("li",
      element("div.node", depth ? tokenButton(found, open) : chip(fromHex(found.hex), found.special),
        element("span.grey", `${found.id}`), element("span.grey", label)),
      cut ? element("span.grey", "…") : null,
      found.parts.length && !cut ? element("ul", found.parts.map((part) => branch(part, depth + 1))) : null);
  }
}

function stepTable(steps, row, open) {
  const button = (id) => tokenButton(row.get(id), open);
  return table("Merges that lead to this token, in order of rank", ["#Rank", "Left", "Right", "Token", "#Id"],
    steps.map((step) => [step.rank, ...[...step.parts, step.id].map(button), `${step.id}`]), { class: "steps" });
}

function builtFrom(token, open) {
  if (!token.num_built) return [element("p.grey", "No merge uses this token.")];
  const more = token.num_built > token.built.length ? ` The first ${token.built.length} are shown.` : "";
  return [
    hint(`${grouped(token.num_built)} merge${token.num_built === 1 ? " uses" : "s use"} this token.${more}`),
    element("ul.chips", { "aria-label": `Tokens built from ${plainText(fromHex(token.hex))}` },
      token.built.map((each) => element("li", tokenButton(each, open)))),
  ];
}
