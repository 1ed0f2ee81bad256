// The reader of the page shards: one document, or one part, as tokens, tokens with ids, or plain text.
import { announce, byId as by, counted, element, grouped, on, request, showError } from "./page.js";
import { TokenBox, drawText } from "./tokens.js";

const HINT = by("readout").textContent;

/** Return the reader. `room.query(name, parameters)` is an address of the server; `room.changed(edition)` is called when
 * a reply comes from other shards. */
export function makeReader(room) {
  let shown = null; // the last reply
  let found = null; // {number, token, num_tokens} of the search result that is marked
  let asked = 0;
  const tokens = new TokenBox(by("tokens"), { shown: describe });

  async function open(number, offset = 0, mark = null) {
    const ticket = ++asked;
    let reply;
    try {
      reply = await request(room.query("document", { split: room.split, number, offset, tokenizer: room.tokenizer }));
    } catch (error) {
      if (ticket === asked) showError(error);
      return;
    }
    if (ticket !== asked || room.changed(reply.edition)) return;
    showError(null);
    [shown, found] = [reply, mark];
    draw();
    if (reply.number !== null) room.remember({ document: reply.number, offset: reply.offset || null });
  }

  function draw() {
    const { unit, number, total } = shown;
    const isPart = unit === "part";
    by("unit").textContent = isPart ? "Part" : "Document";
    by("total").textContent = total ? `of ${grouped(total)}, from 0` : "";
    by("number").value = number ?? "";
    for (const id of ["previous", "next", "random"]) by(id).disabled = !total;
    by("previous").disabled ||= number === 0;
    by("next").disabled ||= number === total - 1;
    const notices = [shown.why_parts && `${shown.why_parts} The tokens are shown in parts of equal size.`, shown.why_no_tokenizer && `Only ids are shown: ${shown.why_no_tokenizer}`].filter(Boolean);
    by("notice").textContent = notices.join(" ");
    by("notice").hidden = !notices.length;
    by("readout").textContent = HINT;
    if (number === null) {
      by("document-facts").textContent = "The split has no documents.";
      by("tokens").replaceChildren();
      by("pager").hidden = true;
      return;
    }
    const where = shown.file ? `, in ${shown.file}` : "";
    by("document-facts").textContent = `${counted(shown.num_tokens, "token")}, from token ${grouped(shown.begin)} of the split${where}`;
    drawTokens();
    const last = shown.offset + shown.ids.length;
    by("pager").hidden = shown.num_tokens <= shown.page_tokens;
    by("earlier").disabled = !shown.offset;
    by("later").disabled = last >= shown.num_tokens;
    by("place").textContent = `Tokens ${grouped(shown.offset)} to ${grouped(last - 1)} of ${grouped(shown.num_tokens)}`;
    announce(`${isPart ? "Part" : "Document"} ${grouped(number)}, ${grouped(shown.num_tokens)} tokens`);
  }

  function drawTokens() {
    const box = by("tokens");
    const mode = shown.texts ? by("mode").value : "bare";
    box.className = { ids: "tokens hues boxes ids", bare: "tokens hues bare" }[mode] || "tokens hues";
    tokens.leave();
    box.setAttribute("aria-label", `Tokens of ${shown.unit} ${shown.number}`);
    box.setAttribute("role", mode === "text" ? "region" : "listbox");
    box.ariaOrientation = mode === "text" ? null : "horizontal";
    if (mode === "text") {
      box.textContent = shown.texts.join("");
    } else {
      const [special, unknown] = [new Set(shown.special), new Set(shown.unknown)];
      const parts = new DocumentFragment();
      shown.ids.forEach((id, i) => {
        const kind = unknown.has(i) ? " unknown" : special.has(i) ? " special" : "";
        const token = element("span", { class: `t${kind}${isFound(i) ? " found" : ""}`, role: "option", "data-id": id });
        if (mode === "bare" || unknown.has(i)) token.append(String(id));
        else drawText(token, shown.texts[i], shown.bytes?.[i]);
        parts.append(token);
        if (mode === "ids" && shown.texts[i].includes("\n")) parts.append(element("br"));
      });
      box.replaceChildren(parts);
      if (!shown.ids.length) box.append(element("span", { role: "option", class: "grey" }, "(empty)"));
    }
    const mark = box.querySelector(".found");
    box.scrollTop = mark ? mark.offsetTop - box.offsetTop - 60 : 0;
    if (mark && box.getBoundingClientRect().bottom < 80) by("reader").scrollIntoView(); // below it, on a phone
  }

  function isFound(i) {
    if (!found || found.number !== shown.number) return false;
    const place = shown.offset + i;
    return place >= found.token && place < found.token + found.num_tokens;
  }

  function describe(i) {
    const text = shown.texts && !shown.unknown.includes(i) ? JSON.stringify(shown.texts[i]) : "";
    const kind = shown.special.includes(i) ? ", special token" : shown.unknown.includes(i) ? ", not an id of the tokenizer" : "";
    const bytes = shown.bytes?.[i] ? `, bytes ${shown.bytes[i]}` : "";
    by("readout").textContent = `Token ${grouped(shown.offset + i)}: id ${shown.ids[i]}${kind} ${text}${bytes}`;
    tokens.now.setAttribute("aria-label", `${text || "token"}, id ${shown.ids[i]}${kind}`);
  }

  const step = (by) => shown && shown.number !== null && open(Math.min(Math.max(shown.number + by, 0), shown.total - 1));
  const random = () => shown && shown.total && open(Math.floor(Math.random() * shown.total));
  on("previous", "click", () => step(-1));
  on("next", "click", () => step(1));
  on("random", "click", random);
  on("earlier", "click", () => open(shown.number, Math.max(shown.offset - shown.page_tokens, 0), found));
  on("later", "click", () => open(shown.number, shown.offset + shown.page_tokens, found));
  on("mode", "change", () => { if (shown?.ids) drawTokens(); });
  on("jump", "submit", () => {
    const number = by("number").value.replaceAll(/[,\s]/g, "");
    if (/^\d{1,15}$/.test(number)) open(Number(number));
    else showError(`The number must be a whole number from 0 on, got "${by("number").value}".`);
  });
  // Letters act only while something in the reader has the focus, so typing elsewhere never moves the document.
  on("reader", "keydown", (event) => {
    if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = { n: () => step(1), p: () => step(-1), r: random };
    if (event.key in actions) actions[event.key]();
  });

  return { open };
}
