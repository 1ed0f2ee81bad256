// The vocabulary: search and classes of tokens, page by page.
import { announce, byId, debounced, element, fillSelect, grouped, on, request, showError } from "./page.js";
import { table } from "./tables.js";
import { fromHex, hexOf, tokenButton } from "./tokens.js";

/** Return what is wrong with a query, if it is not yet a number or whole bytes. */
function problemOf(by, query) {
  if (by === "id" && !/^\s*\d{1,9}\s*$/.test(query)) return "Enter an id: a number.";
  if (by === "bytes" && !/^(\s*(0x|\\x)?[0-9a-f]{2})*\s*$/i.test(query)) return "Enter bytes in hexadecimal: pairs of digits, such as e4 bd a0.";
  return null;
}

/** Build the section. `text()` returns {text, specials} of the text box; `open(number, id)` shows a token. Returns a
 * function to call when the text has changed. */
export function vocabularySection(names, classes, { text, open }) {
  const form = byId("search");
  const rows = byId("vocabulary-rows");
  const { tokenizer, of_class, query, by, ignore_case, usage } = form.elements;
  const previous = byId("previous"), next = byId("next");
  const where = byId("where");
  let page = 0, latest = 0;
  fillSelect(tokenizer, Object.entries(names));
  tokenizer.closest("label").hidden = names.length < 2;
  fillSelect(of_class, classes);
  of_class.value = "longest";
  const soon = debounced(() => show(0), 60);
  on(form, "input", (event) => {
    settings();
    if (event.target === query) soon();
    else show(0);
  });
  on(previous, "click", () => show(page - 1));
  on(next, "click", () => show(page + 1));
  settings();
  show(0);

  function isCounting() {
    return ["used", "unused"].includes(of_class.value);
  }

  function settings() {
    usage.closest("label").hidden = !isCounting();
    ignore_case.disabled = !["contains", "begins"].includes(by.value);
    byId("class-words").textContent = classes.find(([value]) => value === of_class.value)[2];
    query.placeholder = { contains: "text, such as ␣the", begins: "text", bytes: "e4 bd a0", id: "259" }[by.value].replace("␣", " ");
    query.inputMode = by.value === "id" ? "numeric" : "text";
  }

  async function show(asked) {
    const turn = ++latest;
    const counting = isCounting();
    const typed = counting && usage.value === "text" ? text() : {};
    const number = Number(tokenizer.value);
    const problem = query.value && problemOf(by.value, query.value);
    if (problem) return showProblem(problem);
    let found;
    try {
      found = await request(`api/tokenizers/${number}/vocabulary`, {
        query: query.value, by: by.value, ignore_case: ignore_case.checked && !ignore_case.disabled,
        of_class: of_class.value, page: Math.max(0, asked), ...typed,
      });
    } catch (error) {
      if (turn === latest) showProblem(error.message);
      return;
    }
    if (turn !== latest) return;
    page = found.page;
    draw(found, number, counting);
  }

  function showProblem(message) {
    rows.replaceChildren();
    where.textContent = message;
    previous.disabled = next.disabled = true;
  }

  function draw(found, number, counting) {
    showError(null);
    const cells = found.rows.map((row) => [
      `${row.id}`, tokenButton(row, (id) => open(number, id)), element("code", hexOf(fromHex(row.hex), 12)), row.length,
      row.special ? "special" : row.rank ?? "–", ...(counting ? [row.count] : []),
    ]);
    rows.replaceChildren(cells.length ? table("Vocabulary", ["#Id", "Token", "Bytes", "#Length", "#Rank", ...(counting ? ["#Uses"] : [])], cells) : "");
    where.textContent = found.total
      ? `${grouped(found.first + 1)}–${grouped(found.first + found.rows.length)} of ${grouped(found.total)} tokens`
      : "No token matches.";
    previous.disabled = found.page === 0;
    next.disabled = found.page >= found.last_page;
    announce(where.textContent);
  }

  return () => {
    if (isCounting() && usage.value === "text") soon();
  };
}
